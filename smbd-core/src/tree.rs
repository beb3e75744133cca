//! Tree connects: a share as one session uses it (MS-SMB2 section 3.3.1.9).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mutex::locked;
use vfs::namespace::{Namespace, Share};
use vfs::{Cred, NodeRef};

use crate::settings::ShareSettings;

/// The target of a tree connect.
pub enum Target {
    /// A share of files.
    Files(Arc<Share>),
    /// A share on other servers: each CREATE gets a referral.
    Elsewhere(Arc<Share>),
    /// Named pipes: `IPC$`.
    Pipes,
}

/// When a client last reclaimed an open over a tree connect; initially the time of the connect.
pub struct LastTakeUp {
    connected: Instant,
    /// When the last reclaim was answered, and how many are in progress.
    last: Mutex<(Instant, u32)>,
}

impl Default for LastTakeUp {
    fn default() -> Self {
        let connected = Instant::now();
        Self { connected, last: Mutex::new((connected, 0)) }
    }
}

impl LastTakeUp {
    /// Sets the time.
    #[cfg(test)]
    pub(crate) fn note(&self, at: Instant) {
        locked(&self.last).0 = at;
    }

    /// Returns how long ago that was; `None` if the client was already connected at `since`.
    pub(crate) fn ago(&self, since: Instant) -> Option<Duration> {
        if self.connected < since {
            return None;
        }
        let (last, under_way) = *locked(&self.last);
        Some(if under_way > 0 { Duration::ZERO } else { last.elapsed() })
    }
}

/// A reclaim over this tree connect, in progress until dropped.
pub(crate) struct TakesUp(Arc<Tree>);

impl TakesUp {
    pub(crate) fn by(tree: Arc<Tree>) -> Self {
        locked(&tree.last_take_up.last).1 += 1;
        Self(tree)
    }
}

impl Drop for TakesUp {
    fn drop(&mut self) {
        let mut last = locked(&self.0.last_take_up.last);
        *last = (Instant::now(), last.1.saturating_sub(1));
    }
}

pub struct Tree {
    pub id: u32,
    pub session_id: u64,
    /// Name of the share, as in the configuration.
    pub name: String,
    pub target: Target,
    /// The user's own folder, in a share where each user has one.
    pub home: Option<NodeRef>,
    /// The user after the share's identity mapping.
    pub cred: Cred,
    /// Its client was told that the share is the root of a DFS namespace.
    pub is_dfs: bool,
    /// Most access that the user may get here (an access mask).
    pub maximal_access: u32,
    /// The settings of the share.
    pub settings: ShareSettings,
    /// When its client last reclaimed an open.
    pub last_take_up: LastTakeUp,
}

impl Tree {
    /// Returns the share of files; `None` for `IPC$` and for a share on other servers.
    pub fn share(&self) -> Option<&Arc<Share>> {
        match &self.target {
            Target::Files(share) => Some(share),
            Target::Elsewhere(_) | Target::Pipes => None,
        }
    }

    /// Returns the share if it is on other servers.
    pub(crate) fn elsewhere(&self) -> Option<&Arc<Share>> {
        match &self.target {
            Target::Elsewhere(share) => Some(share),
            Target::Files(_) | Target::Pipes => None,
        }
    }

    /// Returns whether it is `IPC$`.
    pub(crate) fn is_pipes(&self) -> bool {
        matches!(self.target, Target::Pipes)
    }

    /// Returns the start of its client's paths: the user's own folder, or the top of the share.
    pub(crate) fn top(&self, share: &Share) -> NodeRef {
        self.home.clone().unwrap_or_else(|| share.backend.root())
    }

    /// Returns the share of files with its present configuration, which decides what listings omit and how new files are made. A
    /// session that was granted read access keeps the read-only view. If the share is gone or has another folder, returns the
    /// connected one: the tree is about to end.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_from_before_a_loss_says_nothing_of_what_was_lost() {
        let last = LastTakeUp::default();
        let (before, after) = (last.connected, Instant::now() + Duration::from_secs(1));
        assert!(last.ago(before).is_some());
        assert_eq!(last.ago(after), None);
        locked(&last.last).1 = 1;
        assert_eq!(last.ago(before), Some(Duration::ZERO), "one is under way");
    }
}
