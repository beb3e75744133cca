//! Tree connects: a share as one session uses it (MS-SMB2 section 3.3.1.9).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mutex::locked;
use vfs::namespace::{Namespace, Share};
use vfs::{Cred, NodeRef};

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
pub struct LastTakeUp {
    connected: Instant,
    /// When it was answered, and how many are under way.
    last: Mutex<(Instant, u32)>,
}

impl Default for LastTakeUp {
    fn default() -> Self {
        let connected = Instant::now();
        Self { connected, last: Mutex::new((connected, 0)) }
    }
}

impl LastTakeUp {
    /// It was at this time.
    #[cfg(test)]
    pub(crate) fn note(&self, at: Instant) {
        locked(&self.last).0 = at;
    }

    /// How long ago that was; `None` where the client has been connected since before this time.
    pub(crate) fn ago(&self, since: Instant) -> Option<Duration> {
        if self.connected < since {
            return None;
        }
        let (last, under_way) = *locked(&self.last);
        Some(if under_way > 0 { Duration::ZERO } else { last.elapsed() })
    }
}

/// An open is being taken up by this tree connect, until this goes.
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
