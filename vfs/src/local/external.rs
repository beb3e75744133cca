//! Changes by processes of this host that do not come through `FileOps`.
//!
//! *Operation.* The kernel tells which of the files and directories that were asked for were changed, and by which process
//! (`fanotify(7)`); what this process did itself is passed over, because `FileOps` tells of that. One thread reads what the
//! kernel has to say, for all backends, from the first [`watch`] on.
//!
//! *Memory.* [`MARKS_MAX`] watched nodes; the kernel holds the inode of each.
//!
//! *Errors.* Where the kernel does not offer this (`fanotify_init` is forbidden in a container, or the file system has no file
//! handles), [`watch`] gives `None`: changes by others are then seen when somebody looks, and the log says so once.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once};

use mutex::locked;

use super::fanotify::{self, Seen, Subject};
use crate::external_change::{Change, Listener, Watched};

/// Nodes watched at once.
const MARKS_MAX: usize = 1 << 16;

struct Entry {
    is_dir: bool,
    listeners: Vec<(u64, Listener)>,
}

#[derive(Default)]
struct Marks {
    by_subject: HashMap<Subject, Entry>,
    next: u64,
}

/// The kernel's voice.
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

fn refused(why: &str) {
    REFUSED.call_once(|| {
        tracing::warn!("changes by other processes of this host are noticed late: fanotify: {why}");
    });
}

/// A watched node: the watch ends with it.
struct Mark {
    hub: Arc<Hub>,
    subject: Subject,
    number: u64,
    node: OwnedFd,
}

/// Watches a file for changes, or a directory for changes of what it lists, by processes other than this one.
pub(super) fn watch(node: BorrowedFd<'_>, is_dir: bool, listener: Listener) -> Option<Watched> {
    let hub = HUB.as_ref()?;
    match hub.add(node, is_dir, listener) {
        Ok(watched) => watched,
        Err(why) => {
            refused(&why.to_string());
            None
        }
    }
}

impl Hub {
    fn marks(&self) -> MutexGuard<'_, Marks> {
        // Whole at every step.
        locked(&self.marks)
    }

    fn add(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        is_dir: bool,
        listener: Listener,
    ) -> crate::VfsResult<Option<Watched>> {
        let subject = fanotify::subject(fd)?;
        let node = fd.try_clone_to_owned()?;
        let mut marks = self.marks();
        let is_new = !marks.by_subject.contains_key(&subject);
        if is_new && marks.by_subject.len() >= MARKS_MAX {
            return Ok(None);
        }
        if is_new {
            fanotify::mark(self.group.as_fd(), fd, is_dir)?;
        }
        marks.next += 1;
        let number = marks.next;
        let entry = marks.by_subject.entry(subject.clone());
        let entry = entry.or_insert_with(|| Entry { is_dir, listeners: Vec::new() });
        entry.listeners.push((number, listener));
        Ok(Some(Watched::new(Mark { hub: self.clone(), subject, number, node })))
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
            // Not under the lock: a listener may end a watch.
            listeners.iter().for_each(|l| l(&change));
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut marks = self.hub.marks();
        let Some(entry) = marks.by_subject.get_mut(&self.subject) else { return };
        entry.listeners.retain(|(number, _)| *number != self.number);
        if entry.listeners.is_empty() {
            let is_dir = entry.is_dir;
            marks.by_subject.remove(&self.subject);
            // The inode may be gone, and its mark with it.
            let _ = fanotify::unmark(self.hub.group.as_fd(), self.node.as_fd(), is_dir);
        }
    }
}
