//! What all shares have in common for one file of the host or of a cluster: its [`NodeId`], under which `state` keeps what clients
//! hold, its change attribute, and the turns of appends.
//!
//! *Operation.* Shares may overlap: two of one folder, or one inside another. Each share has records of its own, because paths,
//! handles and rights are the share's; records of one file refer to one [`SharedFile`], which they find by the [`FileKey`]. A
//! record holds its inode, and lets its reference go first, so a file system of this host gives the number to no other file
//! meanwhile. One that a program or another machine serves may do so: the [`Generation`] tells such files apart, and where it
//! cannot, the records are asked whether their file is still there ([`Holder`]).
//!
//! *Memory.* One entry for each file with a record.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};

use ahash::RandomState;
use dashmap::DashMap;
use mutex::locked;

use crate::types::{Attr, Kind, NodeId, Time, next_node_id};

/// The identity of a file, whatever share it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FileKey {
    /// Device and inode number on this host.
    Host(u64, u64),
    /// File system of a cluster, inode number and snapshot.
    Ceph(u64, u64, u64),
    /// The folder of snapshots of a folder of this host.
    Versions(u64, u64),
}

/// What tells files apart that have one number, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) kind: Kind,
    /// A digest of the kernel's handle, if the file has one handle whatever its name.
    pub(crate) handle: Option<u64>,
    /// Time of birth, if the file system tells it: some tell it only at times.
    pub(crate) born: Option<Time>,
}

impl Generation {
    /// Returns the generation where no other file can have the number.
    pub(crate) fn only(kind: Kind) -> Self {
        Self { kind, handle: None, born: None }
    }

    /// Compares a file that has a record with one that was found under its number.
    pub(crate) fn compare(&self, found: &Self) -> Likeness {
        if self.kind != found.kind {
            return Likeness::Other;
        }
        match (self.handle.zip(found.handle), self.born.zip(found.born)) {
            (Some((one, other)), _) if one == other => Likeness::Same,
            (Some(_), _) => Likeness::Other,
            (None, Some((one, other))) if one == other => Likeness::Same,
            (None, Some(_)) => Likeness::BornApart,
            (None, None) => Likeness::Unknown,
        }
    }
}

/// How alike two files of one number are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Likeness {
    Same,
    /// Nothing tells them apart.
    Unknown,
    /// Their times of birth differ: two files, or one whose time a program has set.
    BornApart,
    Other,
}

/// A record that can tell whether its file is still there.
pub(crate) trait Holder: Send + Sync {
    /// Returns whether a file found with these attributes, under the number of the record's file, is that file. Asks the file
    /// system.
    fn is_still(&self, found: &Attr) -> bool;
}

/// The last value of the change attribute.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    ctime: u64,
    own: u64,
    given: u64,
}

/// A file, shared by its records.
pub(crate) struct SharedFile {
    key: FileKey,
    pub(crate) id: NodeId,
    generation: Mutex<Generation>,
    /// Records that can be asked, on volumes whose numbers prove little.
    holders: Mutex<Vec<Weak<dyn Holder>>>,
    /// Held while data is appended to the file.
    pub(crate) appends: Mutex<()>,
    change: Mutex<Change>,
    /// Number of changes made through the records.
    changes: AtomicU64,
    /// See [`SharedFile::is_waste`].
    waste: AtomicBool,
}

/// The files of one key that have records: one, unless its number was reused.
#[derive(Default)]
struct Known {
    newest: Weak<SharedFile>,
    older: Vec<Weak<SharedFile>>,
}

impl Known {
    fn all(&self) -> impl Iterator<Item = Arc<SharedFile>> {
        std::iter::once(&self.newest).chain(&self.older).filter_map(Weak::upgrade)
    }

    /// Adds a file, and removes those that are gone.
    fn add(&mut self, file: &Arc<SharedFile>) {
        let before = std::mem::replace(&mut self.newest, Arc::downgrade(file));
        self.older.push(before);
        self.older.retain(|known| known.strong_count() > 0);
    }

    /// Removes the files of which `which` returns true. Returns true if none is left.
    fn remove(&mut self, which: impl Fn(&Weak<SharedFile>) -> bool) -> bool {
        self.older.retain(|known| !which(known));
        if which(&self.newest) {
            self.newest = self.older.pop().unwrap_or_default();
        }
        self.newest.strong_count() == 0 && self.older.is_empty()
    }
}

static FILES: LazyLock<DashMap<FileKey, Known, RandomState>> = LazyLock::new(DashMap::default);

impl SharedFile {
    /// Returns the file of this key and generation. The caller holds the inode.
    pub(crate) fn of(key: FileKey, generation: Generation) -> Arc<Self> {
        let mut entry = FILES.entry(key).or_default();
        let mut known: Vec<_> = entry.all().collect();
        let found = known.iter().position(|file| file.may_be(&generation));
        let file = match found {
            Some(at) => known.swap_remove(at),
            None => {
                let file = Self::new(key, generation);
                entry.add(&file);
                file
            }
        };
        // The other references are dropped outside of the map's lock, because the last one takes it.
        drop(entry);
        file.learn(&generation);
        file
    }

    /// Returns the files of this key that have records.
    pub(crate) fn known(key: FileKey) -> Vec<Arc<Self>> {
        FILES.get(&key).map(|known| known.all().collect()).unwrap_or_default()
    }

    fn new(key: FileKey, generation: Generation) -> Arc<Self> {
        Arc::new(Self {
            key,
            id: next_node_id(),
            generation: Mutex::new(generation),
            holders: Mutex::default(),
            appends: Mutex::default(),
            change: Mutex::default(),
            changes: AtomicU64::new(0),
            waste: AtomicBool::new(false),
        })
    }

    /// See [`Generation::compare`].
    pub(crate) fn compare(&self, found: &Generation) -> Likeness {
        locked(&self.generation).compare(found)
    }

    fn may_be(&self, found: &Generation) -> bool {
        matches!(self.compare(found), Likeness::Same | Likeness::Unknown)
    }

    /// Notes what was found of this file.
    pub(crate) fn learn(&self, found: &Generation) {
        let mut own = locked(&self.generation);
        own.born = found.born.or(own.born);
        own.handle = found.handle.or(own.handle);
    }

    /// Adds a record that can be asked.
    pub(crate) fn hold(&self, holder: Weak<dyn Holder>) {
        let mut holders = locked(&self.holders);
        holders.retain(|one| one.strong_count() > 0 && !one.ptr_eq(&holder));
        holders.push(holder);
    }

    /// Asks the records whether the file found with these attributes is theirs; `None` if there is none to ask. May wait for the
    /// file system.
    pub(crate) fn is_still(&self, found: &Attr) -> Option<bool> {
        let holders: Vec<_> = locked(&self.holders).iter().filter_map(Weak::upgrade).collect();
        let mut answers = holders.iter().map(|holder| holder.is_still(found)).peekable();
        answers.peek()?;
        Some(answers.any(|is_still| is_still))
    }

    /// Gives the key to another file: the file system has reused the number although a record exists.
    pub(crate) fn displace(&self) {
        self.leave(|known| std::ptr::eq(known.as_ptr(), self));
    }

    fn leave(&self, which: impl Fn(&Weak<Self>) -> bool) {
        FILES.remove_if_mut(&self.key, |_, known| known.remove(&which));
    }

    /// Returns true if the file was moved to a wastebasket while it had this record: for clients it is removed.
    pub(crate) fn is_waste(&self) -> bool {
        self.waste.load(Ordering::Relaxed)
    }

    /// Notes that the file was moved to a wastebasket, or given back.
    pub(crate) fn set_waste(&self, is_waste: bool) {
        self.waste.store(is_waste, Ordering::Relaxed);
    }

    /// Counts a change made here. Called after the change and before the attributes are read.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the change attribute for this change time.
    pub(crate) fn change_number(&self, ctime: u64) -> u64 {
        let own = self.changes.load(Ordering::Relaxed);
        let mut last = locked(&self.change);
        let same = (last.ctime, last.own) == (ctime, own);
        if !same || last.given == 0 {
            let next = if same { last.given } else { last.given.saturating_add(1) };
            *last = Change { ctime, own, given: ctime.max(next) };
        }
        last.given
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // Another file may have the key as well.
        self.leave(|known| known.strong_count() == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(ino: u64) -> FileKey {
        // No device has this number.
        FileKey::Host(u64::MAX, ino)
    }

    fn of(ino: u64) -> Arc<SharedFile> {
        SharedFile::of(key(ino), Generation::only(Kind::File))
    }

    #[test]
    fn file_has_one_id_while_held() {
        let first = of(1);
        let again = of(1);
        assert!(Arc::ptr_eq(&first, &again));
        assert_ne!(of(2).id, first.id);
        let id = first.id;
        drop((first, again));
        assert!(!FILES.contains_key(&key(1)), "nothing is left");
        assert_ne!(of(1).id, id, "an id is never used again");
    }

    #[test]
    fn displaced_file_keeps_its_id() {
        let old = of(3);
        old.displace();
        let new = of(3);
        assert_ne!(old.id, new.id);
        // The end of the old file leaves the new one.
        drop(old);
        assert!(Arc::ptr_eq(&new, &of(3)));
    }

    #[test]
    fn change_within_one_tick_moves_attribute() {
        let file = of(4);
        let before = file.change_number(100);
        assert_eq!(file.change_number(100), before);
        file.changed();
        let after = file.change_number(100);
        assert!(after > before);
        assert!(file.change_number(50) > after, "a clock that was set back");
    }

    /// Threads that take and drop files: those that hold one at the same time see one id.
    #[test]
    fn simultaneous_holders_agree() {
        let held = Mutex::new(());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..20_000_u64 {
                        let one = of(10 + n % 3);
                        let _turn = locked(&held);
                        assert!(Arc::ptr_eq(&one, &of(10 + n % 3)));
                    }
                });
            }
        });
        assert!((10..13).all(|n| !FILES.contains_key(&key(n))));
    }

    /// Files that had one number one after the other, as shares find them in any order.
    #[test]
    fn generations_have_identities_of_their_own() {
        let born = |sec| Some(Time { sec, nsec: 0 });
        let file = |handle, born| Generation { kind: Kind::File, handle, born };
        let of = |generation| SharedFile::of(key(5), generation);
        let old = of(file(None, born(1)));
        let new = of(file(None, born(2)));
        assert_ne!(old.id, new.id);
        for _ in 0..2 {
            assert!(
                Arc::ptr_eq(&old, &of(file(None, born(1)))),
                "a share that still has the old one"
            );
            assert!(Arc::ptr_eq(&new, &of(file(None, born(2)))));
        }
        let dir = of(Generation::only(Kind::Dir));
        assert!(dir.id != old.id && dir.id != new.id, "a folder is no file");
        // A file system that does not always tell the birth.
        let seen = |sec| Generation { born: born(sec), ..Generation::only(Kind::Dir) };
        assert!(Arc::ptr_eq(&dir, &of(seen(9))));
        assert_ne!(of(seen(8)).id, dir.id);
        drop((old, dir));
        assert!(Arc::ptr_eq(&new, &of(file(None, born(2)))), "the end of others leaves it");
        drop(new);
        // The kernel's handle decides where there is one: a program may set the time of birth.
        let one = of(file(Some(1), born(1)));
        assert!(Arc::ptr_eq(&one, &of(file(Some(1), born(2)))));
        assert_ne!(of(file(Some(2), born(1))).id, one.id);
        drop(one);
        assert!(!FILES.contains_key(&key(5)), "nothing is left");
    }

    #[test]
    fn holders_say_whether_the_file_is_still_there() {
        struct Says(bool);
        impl Holder for Says {
            fn is_still(&self, _: &Attr) -> bool {
                self.0
            }
        }
        let file = of(6);
        let attr = Attr {
            kind: Kind::File,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            rdev: (0, 0),
            fsid: 0,
            fileid: 6,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            btime: None,
            change: 0,
            sealed: false,
        };
        assert_eq!(file.is_still(&attr), None, "no record can be asked");
        let (yes, no) = (Arc::new(Says(true)), Arc::new(Says(false)));
        let weak = |one: &Arc<Says>| -> Weak<dyn Holder> {
            let weak: Weak<Says> = Arc::downgrade(one);
            weak
        };
        file.hold(weak(&no));
        assert_eq!(file.is_still(&attr), Some(false));
        file.hold(weak(&yes));
        assert_eq!(file.is_still(&attr), Some(true), "one of them has it");
        drop(yes);
        assert_eq!(file.is_still(&attr), Some(false));
    }
}
