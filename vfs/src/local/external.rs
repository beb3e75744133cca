//! Detects changes by processes of this host that bypass `FileOps`.
//!
//! *Operation.* The kernel reports changes of watched files and directories, with the process that made them (`fanotify(7)`);
//! changes by this process are ignored, because `FileOps` reports those. One thread reads the events for all backends, started by
//! the first [`watch`].
//!
//! *Memory.* [`MARKS_MAX`] watched nodes; the kernel holds the inode of each. A node has one mark and one descriptor, which counts
//! against the budget of local files, whatever the number of listeners.
//!
//! *Errors.* If the kernel does not support this (`fanotify_init` is forbidden in a container, or the file system has no file
//! handles), [`watch`] returns `None`: changes by others are then noticed by polling, and the log says so once.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once};

use mutex::locked;

use super::descriptors::Fd;
use super::fanotify::{self, Seen, Subject};
use crate::VfsResult;
use crate::external_change::{Change, Listener, Watched};

/// Largest number of nodes watched at once.
const MARKS_MAX: usize = 1 << 16;

struct Entry {
    is_dir: bool,
    /// Needed to remove the mark when the last listener ends.
    node: Fd,
    listeners: Vec<(u64, Listener)>,
}

#[derive(Default)]
struct Marks {
    by_subject: HashMap<Subject, Entry>,
    next: u64,
}

impl Marks {
    /// Adds a listener to a node with a mark, and returns the listener's number.
    fn join(&mut self, subject: &Subject, listener: &Listener) -> Option<u64> {
        let entry = self.by_subject.get_mut(subject)?;
        self.next += 1;
        entry.listeners.push((self.next, listener.clone()));
        Some(self.next)
    }
}

/// The fanotify group with its listeners.
struct Hub {
    group: OwnedFd,
    marks: Mutex<Marks>,
}

static HUB: LazyLock<Option<Arc<Hub>>> = LazyLock::new(start);
static REFUSED: Once = Once::new();

fn start() -> Option<Arc<Hub>> {
    let group = match fanotify::group() {
        Ok(group) => group,
        Err(why) => {
            refused(&why.to_string());
            return None;
        }
    };
    let hub = Arc::new(Hub { group, marks: Mutex::default() });
    let reader = hub.clone();
    let thread = std::thread::Builder::new().name("external".into());
    thread.spawn(move || reader.run()).ok().map(|_| hub)
}

/// Warns once that watches are refused.
pub(super) fn refused(why: &str) {
    REFUSED.call_once(|| {
        tracing::warn!("changes by other processes of this host are noticed late: fanotify: {why}");
    });
}

/// One listener of a watched node; dropping it ends the watch.
struct Mark {
    hub: Arc<Hub>,
    subject: Subject,
    number: u64,
}

/// Adds a listener to a watched node. `None` if it is not watched, or watching is unsupported.
pub(super) fn join(node: BorrowedFd<'_>, listener: &Listener) -> Option<Watched> {
    let hub = HUB.as_ref()?;
    let subject = fanotify::subject(node).ok()?;
    let number = hub.marks().join(&subject, listener)?;
    Some(hub.watched(subject, number))
}

/// Watches a file for changes, or a directory for changes of its entries, by processes other than this one. Takes a descriptor if
/// the node is not watched yet.
pub(super) fn watch(
    node: BorrowedFd<'_>,
    is_dir: bool,
    listener: &Listener,
) -> VfsResult<Option<Watched>> {
    let Some(hub) = HUB.as_ref() else { return Ok(None) };
    let subject = fanotify::subject(node)?;
    let number = hub.mark(node, &subject, is_dir, listener)?;
    Ok(number.map(|number| hub.watched(subject, number)))
}

impl Hub {
    fn marks(&self) -> MutexGuard<'_, Marks> {
        // Consistent after every step.
        locked(&self.marks)
    }

    fn watched(self: &Arc<Self>, subject: Subject, number: u64) -> Watched {
        Watched::new(Mark { hub: self.clone(), subject, number })
    }

    /// Marks a node for its first listener, and returns the listener's number.
    fn mark(
        &self,
        fd: BorrowedFd<'_>,
        subject: &Subject,
        is_dir: bool,
        listener: &Listener,
    ) -> VfsResult<Option<u64>> {
        let node = Fd::new(fd.try_clone_to_owned()?);
        let mut marks = self.marks();
        if !marks.by_subject.contains_key(subject) {
            if marks.by_subject.len() >= MARKS_MAX {
                return Ok(None);
            }
            fanotify::mark(self.group.as_fd(), fd, is_dir)?;
            let entry = Entry { is_dir, node, listeners: Vec::new() };
            marks.by_subject.insert(subject.clone(), entry);
        }
        Ok(marks.join(subject, listener))
    }

    fn run(&self) {
        let mut room = vec![0_u8; 64 << 10];
        loop {
            let seen = match fanotify::read(self.group.as_fd(), &mut room) {
                Ok(seen) => seen,
                Err(why) => {
                    tracing::warn!("fanotify has ended: {why}");
                    return;
                }
            };
            seen.iter().for_each(|s| self.tell(s));
        }
    }

    fn tell(&self, seen: &Seen) {
        if seen.is_own {
            return;
        }
        if seen.overflow {
            let all: Vec<Listener> = {
                let marks = self.marks();
                let entries = marks.by_subject.values();
                entries.flat_map(|e| e.listeners.iter().map(|(_, l)| l.clone())).collect()
            };
            all.iter().for_each(|l| l(&Change::Overflow));
            return;
        }
        for (subject, change) in seen.changes() {
            let wants_name = matches!(change, Change::Name { .. });
            let listeners: Vec<Listener> = {
                let marks = self.marks();
                let entry = marks.by_subject.get(subject).filter(|e| e.is_dir == wants_name);
                let listeners = entry.map(|e| e.listeners.iter().map(|(_, l)| l.clone()));
                listeners.map(Iterator::collect).unwrap_or_default()
            };
            // Called outside the lock: a listener may end a watch.
            listeners.iter().for_each(|l| l(&change));
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut marks = self.hub.marks();
        let Some(entry) = marks.by_subject.get_mut(&self.subject) else { return };
        entry.listeners.retain(|(number, _)| *number != self.number);
        if entry.listeners.is_empty()
            && let Some(entry) = marks.by_subject.remove(&self.subject)
        {
            // The inode may be gone, and its mark with it.
            let group = self.hub.group.as_fd();
            let _ = fanotify::unmark(group, entry.node.as_fd(), entry.is_dir);
        }
    }
}
