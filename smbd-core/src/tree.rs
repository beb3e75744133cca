//! Tree connects: a share as one session uses it (MS-SMB2 section 3.3.1.9).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vfs::namespace::{Namespace, Share};
use vfs::{Cred, NodeRef};

use crate::mutex::locked;
use crate::settings::ShareSettings;

/// What a tree shows.
pub enum Target {
    /// Files.
    Files(Arc<Share>),
    /// Nothing: the share is on other servers, and each open is told so.
    Elsewhere(Arc<Share>),
    /// Named pipes: `IPC$`.
    Pipes,
}

/// When a client last took an open up again by a tree connect; before the first time, when it connected.
pub struct LastTakeUp(Mutex<Instant>);

impl Default for LastTakeUp {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl LastTakeUp {
    /// It was at this time.
    pub(crate) fn note(&self, at: Instant) {
        *locked(&self.0) = at;
    }

    /// How long ago that was.
    pub(crate) fn ago(&self) -> Duration {
        locked(&self.0).elapsed()
    }
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
    /// The top of the share for its user, where each has a folder of its own.
    pub home: Option<NodeRef>,
    /// The user, as the share squashed it.
    pub cred: Cred,
    /// Most that the user may be granted here (an access mask).
    pub maximal_access: u32,
    /// What the share asks for.
    pub settings: ShareSettings,
    /// When its client last took an open up again.
    pub last_take_up: LastTakeUp,
}

impl Tree {
    /// The share of files; `None` for `IPC$`, and for one that is on other servers.
    pub fn share(&self) -> Option<&Arc<Share>> {
        match &self.target {
            Target::Files(share) => Some(share),
            Target::Elsewhere(_) | Target::Pipes => None,
        }
    }

    /// The share, where it is on other servers.
    pub(crate) fn elsewhere(&self) -> Option<&Arc<Share>> {
        match &self.target {
            Target::Elsewhere(share) => Some(share),
            Target::Files(_) | Target::Pipes => None,
        }
    }

    /// It is `IPC$`.
    pub(crate) fn is_pipes(&self) -> bool {
        matches!(self.target, Target::Pipes)
    }

    /// Where paths of its client begin: the user's own folder, or the top of the share.
    pub(crate) fn top(&self, share: &Share) -> NodeRef {
        self.home.clone().unwrap_or_else(|| share.backend.root())
    }

    /// The share of files as the configuration has it now: what a listing leaves out, and how a new file is made. Whoever was
    /// granted reading alone goes on to see the share of readers. Where the share is gone, or is another folder, it is the one that
    /// was connected: the tree is about to end.
    pub(crate) fn share_now(&self, namespace: &Namespace) -> Option<Arc<Share>> {
        let share = self.share()?;
        let now = namespace.share(share.id);
        let now = now.filter(|now| Arc::ptr_eq(&now.backend, &share.backend));
        Some(match now {
            Some(now) if share.read_only => now.reader(),
            Some(now) => now,
            None => share.clone(),
        })
    }
}
