//! Tree connects: a share as one session uses it (MS-SMB2 section 3.3.1.9).

use std::sync::Arc;

use vfs::Cred;
use vfs::namespace::Share;

use crate::settings::ShareSettings;

/// What a tree shows.
pub enum Target {
    /// Files.
    Files(Arc<Share>),
    /// Named pipes: `IPC$`.
    Pipes,
}

/// A tree connect.
pub struct Tree {
    /// Its number in the session.
    pub id: u32,
    /// The session it belongs to.
    pub session_id: u64,
    /// Name of the share, as the configuration writes it.
    pub name: String,
    /// What it shows.
    pub target: Target,
    /// The user, as the share squashed it.
    pub cred: Cred,
    /// Most that the user may be granted here (an access mask).
    pub maximal_access: u32,
    /// What the share asks for.
    pub settings: ShareSettings,
}

impl Tree {
    /// The share of files; `None` for `IPC$`.
    pub fn share(&self) -> Option<&Arc<Share>> {
        match &self.target {
            Target::Files(share) => Some(share),
            Target::Pipes => None,
        }
    }
}
