//! Checks which events a watcher of a directory may see: only events of names that it could list itself.
//!
//! *Operation.* A watcher may see an event below the watched directory if it may search the path to the event's folder and list
//! that folder; in a share that lists only accessible names, also only if it could list the name. The check uses the watcher's
//! credentials and the names from the watched directory on. A decision about a folder is valid for [`KNOWN_FOR`], or until rights
//! change or a folder is added.
//!
//! *Memory.* [`KNOWN_MAX`] folders for each watch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mutex::locked;

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::share::Share;
use crate::types::{Access, Action, Attr, Cred};
use crate::watch_event::{Event, what};

/// How long a decision about a folder is valid: changes by other processes of the host are not always reported.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// Largest number of folders with a stored decision.
const KNOWN_MAX: usize = 64;

/// The result of a check of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The watcher may see it.
    Shown,
    /// The watcher may not see it.
    Hidden,
    /// A folder, or the name itself if that counts, was removed meanwhile, or cannot be read.
    Unknown,
}

/// The credentials of a watcher, with stored decisions.
pub(crate) struct WatchAccess {
    share: Arc<Share>,
    cred: Cred,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    folders: HashMap<Vec<u8>, (bool, Instant)>,
    /// How often the decisions were dropped: a check that was under way meanwhile is invalid.
    forgotten: u64,
}

impl WatchAccess {
    pub(crate) fn new(share: Arc<Share>, cred: Cred) -> Self {
        Self { share, cred, known: Mutex::default() }
    }

    /// Returns true if any user who could open the directory may see this path, without a check.
    pub(crate) fn is_open(&self, path: &[u8]) -> bool {
        self.cred.uid == 0 || !self.share.rules.only_visible && !path.contains(&b'/')
    }

    /// Returns true if a decision about one of these events applies to the other.
    pub(crate) fn is_same(&self, a: &Event, b: &Event) -> bool {
        a == b || !self.share.rules.only_visible && folder_of(a).0 == folder_of(b).0
    }

    /// Drops decisions if a change at or below the watched directory affects them.
    pub(crate) fn note(&self, action: Action, kind: u32) {
        let comes = matches!(action, Action::Added | Action::RenamedNew);
        if kind & what::SECURITY != 0 || kind & what::DIR_NAME != 0 && comes {
            let mut known = locked(&self.known);
            known.folders.clear();
            known.forgotten += 1;
        }
    }

    fn known(&self, folder: &[u8]) -> (Option<bool>, u64) {
        let known = locked(&self.known);
        let found = known.folders.get(folder).filter(|(_, at)| at.elapsed() < KNOWN_FOR);
        (found.map(|(shown, _)| *shown), known.forgotten)
    }

    fn learn(&self, folder: &[u8], shown: bool, forgotten: u64) {
        let mut known = locked(&self.known);
        if known.forgotten != forgotten {
            return;
        }
        if known.folders.len() >= KNOWN_MAX {
            known.folders.clear();
        }
        known.folders.insert(folder.to_vec(), (shown, Instant::now()));
    }

    /// Checks whether the watcher of `top` may see this event.
    pub(crate) async fn judge(&self, top: &NodeRef, event: &Event) -> Judgement {
        let (folder, name) = folder_of(event);
        if self.share.rules.only_visible {
            return judgement(self.lists(top, folder, name).await);
        }
        let (known, forgotten) = self.known(folder);
        if let Some(shown) = known {
            return judgement(Ok(shown));
        }
        let shown = self.folder(top, folder).await.map(|_| true);
        let judged = judgement(shown);
        if judged != Judgement::Unknown {
            self.learn(folder, judged == Judgement::Shown, forgotten);
        }
        judged
    }

    /// Returns the folder at this path, if the watcher can list it.
    async fn folder(&self, top: &NodeRef, path: &[u8]) -> VfsResult<NodeRef> {
        let (mut at, mut attr): (NodeRef, Option<Attr>) = (top.clone(), None);
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            let (node, seen) = at.lookup(&self.cred, name).await?;
            (at, attr) = (node, Some(seen));
        }
        // Permission on the watched directory itself was checked when it was opened.
        let Some(attr) = attr else { return Ok(at) };
        match at.access(&self.cred, Access(Access::READ), &attr).await?.0 {
            0 => Err(VfsError::Access),
            _ => Ok(at),
        }
    }

    /// Checks whether the watcher would find this name in a listing of the folder.
    async fn lists(&self, top: &NodeRef, folder: &[u8], name: &[u8]) -> VfsResult<bool> {
        let folder = self.folder(top, folder).await?;
        let (node, attr) = folder.lookup(&self.cred, name).await?;
        self.share.shows(&node, &attr, &self.cred).await
    }
}

fn judgement(shown: VfsResult<bool>) -> Judgement {
    match shown {
        Ok(true) => Judgement::Shown,
        Ok(false) | Err(VfsError::Access | VfsError::Perm) => Judgement::Hidden,
        Err(_) => Judgement::Unknown,
    }
}

/// Returns the folder of an event, and the name in it: for a stream the name of its file.
fn folder_of(event: &Event) -> (&[u8], &[u8]) {
    let at = event.path.iter().rposition(|b| *b == b'/');
    let (folder, name) = match at {
        Some(at) => (&event.path[..at], &event.path[at + 1..]),
        None => (&[][..], &event.path[..]),
    };
    let is_stream = matches!(
        event.action,
        Action::AddedStream | Action::RemovedStream | Action::ModifiedStream
    );
    let colon = name.iter().rposition(|b| *b == b':').filter(|_| is_stream);
    (folder, &name[..colon.unwrap_or(name.len())])
}
