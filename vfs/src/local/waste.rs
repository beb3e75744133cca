//! Moves files that lose their last name to the wastebasket, and recognizes those that are there.
//!
//! *Operation.* The file gets its name in the wastebasket first, then its record, and then loses the client's name by the ordinary
//! removal or rename, with the caller's rights. If that fails, it undoes the steps. Removals of one name, and renames over it,
//! take turns, so that the file that was given a place is the file that is removed; so do removals of different names of one file,
//! of which the last one keeps it. On a strict share the folder in the wastebasket is on stable storage before the client's name
//! goes.
//!
//! A file is in the wastebasket if it has a record, one name, and that name is in the wastebasket of the record. Its handles are
//! stale then. In this process [`SharedFile::is_waste`](crate::shared_file::SharedFile::is_waste) marks it, so that records of all
//! shares show a link count of 0.
//!
//! *Errors.* See [`NotKept`]; all others fail the operation.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::authority::Acting;
use crate::backend::Node;
use crate::error::{VfsError, VfsResult};
use crate::types::*;
use crate::waste_record::{Id, NAME};
use crate::wastebasket::{NotKept, Outcome, Waste};

use super::Volume;
use super::node::LocalNode;
use super::proc_path::{ProcPath, decimal};
use super::seal::LEN as SEAL_LEN;
use super::stat::{self, Stat};
use super::xattr::growing;

/// Its folder in the gateway's own folder.
pub(super) const FOLDER: &str = "wastebasket";
/// Number of turns of one volume.
const TURNS: usize = 32;
/// Bytes before the record: the inode number of the share's folder, and the place.
const HEAD: usize = 24;
/// How often a name may get another file while a file is moved there.
const RACES_MAX: usize = 8;

/// True once a share of this process had a wastebasket: until then no file can be in one.
static ANY: AtomicBool = AtomicBool::new(false);

/// True if files of this process may be in a wastebasket.
pub(super) fn may_exist() -> bool {
    ANY.load(Ordering::Acquire)
}

/// A file that has a name in the wastebasket, and still has the client's.
struct Placed {
    hidden: Arc<LocalNode>,
    path: String,
    node: Arc<LocalNode>,
}

/// The result of giving a file a place.
enum Place {
    There(Placed),
    /// No file would lose its last name.
    Needless {
        is_free: bool,
    },
    Not(NotKept),
}

/// Writes the place that precedes a record.
fn head(root_ino: u64, id: Id) -> Vec<u8> {
    let mut out = root_ino.to_be_bytes().to_vec();
    out.extend(id.at.to_be_bytes());
    out.extend(id.uid.to_be_bytes());
    out.extend(id.number.to_be_bytes());
    out
}

/// Splits a value into the share's folder, the place, and the record.
pub(super) fn split(value: &[u8]) -> Option<(u64, Id, &[u8])> {
    let (head, record) = value.split_first_chunk::<HEAD>()?;
    let (root, rest) = head.split_first_chunk::<8>()?;
    let (at, rest) = rest.split_first_chunk::<8>()?;
    let (uid, number) = rest.split_first_chunk::<4>()?;
    let id = Id {
        at: u64::from_be_bytes(*at),
        uid: u32::from_be_bytes(*uid),
        number: u32::from_be_bytes(number.try_into().ok()?),
    };
    Some((u64::from_be_bytes(*root), id, record))
}

impl Volume {
    /// Notes that files of this process may be in a wastebasket.
    pub(super) fn has_waste() {
        ANY.store(true, Ordering::Release);
    }

    /// Notes whether the share has a wastebasket, perhaps from an earlier run.
    pub(super) fn look_for_waste(&self) {
        let path = [super::HIDDEN, b"/", FOLDER.as_bytes()].concat();
        if stat::of_name(self.root.as_fd(), &path).is_ok() {
            Self::has_waste();
        }
    }

    /// True if the open file is in a wastebasket.
    pub(super) fn is_waste(&self, fd: BorrowedFd<'_>, stat: &Stat) -> VfsResult<bool> {
        if !ANY.load(Ordering::Acquire) || stat.attr.kind != Kind::File || stat.attr.nlink != 1 {
            return Ok(false);
        }
        let space = if self.trusted { "trusted" } else { "user" };
        let path = ProcPath::of(fd);
        let name = format!("{space}.headgate.{NAME}");
        let none = [Errno::NODATA, Errno::NOTSUP, Errno::PERM, Errno::ACCESS];
        match rustix::fs::getxattr_query(path.bytes(), &name[..]) {
            Ok(_) => {}
            Err(e) if none.contains(&e) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        let value = growing(|room| rustix::fs::getxattr(path.bytes(), &name[..], room))?;
        let value = value.get(if self.trusted { 0 } else { SEAL_LEN }..);
        let Some((root, id, _)) = value.and_then(split) else { return Ok(false) };
        if root != self.root_ino {
            // The wastebasket of a share with another folder. Where users can write records, it ignores theirs.
            return Ok(self.trusted);
        }
        let place = [super::HIDDEN, b"/", FOLDER.as_bytes(), b"/", id.path().as_bytes()].concat();
        match stat::of_name(self.root.as_fd(), &place) {
            Ok(there) => Ok((there.dev, there.ino) == (stat.dev, stat.ino)),
            // A program of the host has moved it out.
            Err(VfsError::NotFound) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Waits for the turn of a name.
    fn turn_of_name(&self, dir: &LocalNode, name: &[u8]) -> MutexGuard<'_, ()> {
        turn(&self.waste_turns[0], (dir.dev, dir.ino, name))
    }

    /// Waits for the turn of the file under a name; the caller has the name's turn.
    fn turn_of_file(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Option<MutexGuard<'_, ()>> {
        let seen = self.stat_of(dir, name).ok()?;
        Some(turn(&self.waste_turns[1], (seen.dev, seen.ino)))
    }

    /// True if changes of names wait for the device, which no thread of the runtime may do.
    fn waits_for_device(&self) -> bool {
        !self.in_memory && self.strict.iter().any(|strict| strict.load(Ordering::Relaxed))
    }

    /// Makes the folder of this place durable with the name in it, and the folders above.
    fn sync_place(&self, hidden: BorrowedFd<'_>, path: &str) -> VfsResult<()> {
        if !self.waits_for_device() {
            return Ok(());
        }
        let mut path = path;
        while !path.is_empty() {
            // At last, the gateway's own folder.
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let name = if folder.is_empty() { "." } else { folder };
            let dir = rustix::fs::openat(hidden, name, flags, Mode::empty())?;
            self.calls.fsync(dir.as_fd())?;
            // Folders above have new names only with a new day.
            let is_new = stat::of_fd(dir.as_fd())?
                .attr
                .btime
                .is_none_or(|born| Time::now().sec.saturating_sub(born.sec) < 120);
            if !is_new {
                return Ok(());
            }
            path = folder;
        }
        Ok(self.calls.fsync(self.root.as_fd())?)
    }
}

/// Turns of names, and of files.
pub(super) type Turns = [[Mutex<()>; TURNS]; 2];

fn turn<'a>(turns: &'a [Mutex<()>; TURNS], of: impl Hash) -> MutexGuard<'a, ()> {
    let mut hash = DefaultHasher::new();
    of.hash(&mut hash);
    let at = usize::try_from(hash.finish() % TURNS as u64).unwrap_or(0);
    locked(&turns[at % TURNS])
}

/// Creates the folders of a place.
fn make_folders(hidden: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    for (at, _) in path.match_indices('/') {
        let folder = path.get(..at).unwrap_or_default();
        match rustix::fs::mkdirat(hidden, folder, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl LocalNode {
    /// Gives the file of a name a place in the wastebasket.
    fn take_place(&self, name: &[u8], waste: &Waste) -> VfsResult<Place> {
        let (volume, dir) = (&self.volume, self.dir_fd()?);
        let needless = |is_free| Ok(Place::Needless { is_free });
        let seen = match volume.stat_of(dir, name) {
            Err(VfsError::NotFound) => return needless(true),
            seen => seen?,
        };
        if seen.attr.kind != Kind::File || seen.attr.nlink > 1 || seen.attr.sealed {
            return needless(false);
        }
        if volume.covers.is_some() || seen.mount != volume.mount {
            return Ok(Place::Not(NotKept::Elsewhere));
        }
        if volume.inode_per_name || seen.attr.nlink == 0 {
            return Ok(Place::Not(NotKept::NotSupported));
        }
        let (node, attr) = self.find(&Cred::root(), dir, name)?;
        if (node.dev, node.ino) != (seen.dev, seen.ino) || attr.nlink != seen.attr.nlink {
            return Err(VfsError::Delay);
        }
        let hidden = match volume.open_hidden(false).and_then(|hidden| match hidden {
            None => volume.open_hidden(true),
            hidden => Ok(hidden),
        }) {
            Ok(Some(hidden)) => hidden,
            Err(VfsError::NoSpace | VfsError::Quota) => return Ok(Place::Not(NotKept::NoSpace)),
            // A folder of this name that is not the gateway's: the log tells what to do.
            Ok(None) | Err(VfsError::NotSupported) => return Err(VfsError::Access),
            Err(e) => return Err(e),
        };
        Volume::has_waste();
        let placed = Placed { hidden, path: format!("{FOLDER}/{}", waste.id.path()), node };
        match placed.link(volume) {
            Ok(()) => {}
            Err(Errno::XDEV) => return Ok(Place::Not(NotKept::Elsewhere)),
            Err(Errno::NOSPC | Errno::DQUOT) => return Ok(Place::Not(NotKept::NoSpace)),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NOSYS) => {
                return Ok(Place::Not(NotKept::NotSupported));
            }
            // It was removed meanwhile.
            Err(Errno::NOENT) => return Err(VfsError::Delay),
            Err(e) => return Err(e.into()),
        }
        let sync = || volume.sync_place(placed.hidden.fd(), &placed.path);
        match placed.describe(waste).and_then(|()| sync()) {
            Ok(()) => Ok(Place::There(placed)),
            Err(why) => {
                placed.take_back();
                match why {
                    VfsError::NoSpace | VfsError::Quota | VfsError::XattrTooBig => {
                        Ok(Place::Not(NotKept::NoSpace))
                    }
                    VfsError::NotSupported | VfsError::Perm => {
                        Ok(Place::Not(NotKept::NotSupported))
                    }
                    why => Err(why),
                }
            }
        }
    }

    /// Removes a name of a file, and keeps the file.
    fn remove_kept(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        waste: &Waste,
    ) -> VfsResult<Outcome<DirChange>> {
        let dir = self.change_name(name)?;
        let _turn = self.volume.turn_of_name(self, name);
        let _its = self.volume.turn_of_file(dir, name);
        let seen = self.volume.stat_of(dir, name).ok();
        let remove = || self.remove(by, name, seen, AtFlags::empty());
        match self.take_place(name, waste)? {
            Place::Not(why) => Ok(Outcome::No(why)),
            Place::Needless { .. } => remove().map(Outcome::None),
            Place::There(placed) => placed.finish(remove()),
        }
    }

    /// Renames over a name, and keeps the file that had it.
    fn rename_over_kept(
        &self,
        by: &Acting<'_>,
        from: &[u8],
        (target, to): (&LocalNode, &[u8]),
        waste: &Waste,
    ) -> VfsResult<Outcome<(DirChange, DirChange)>> {
        let (old, new) = (self.change_name(from)?, target.change_name(to)?);
        let _turn = self.volume.turn_of_name(target, to);
        let rename = |replace| self.do_rename(by, from, target, to, replace);
        for _ in 0..RACES_MAX {
            let _its = self.volume.turn_of_file(new, to);
            let moved = self.volume.stat_of(old, from)?;
            let there = self.volume.stat_of(new, to).ok();
            if there.is_some_and(|there| (there.dev, there.ino) == (moved.dev, moved.ino)) {
                return rename(true).map(Outcome::None);
            }
            match target.take_place(to, waste)? {
                Place::Not(why) => return Ok(Outcome::No(why)),
                Place::There(placed) => return placed.finish(rename(true)),
                Place::Needless { is_free: false } => return rename(true).map(Outcome::None),
                // Keeps a file that gets the name meanwhile, too.
                Place::Needless { is_free: true } => match rename(false) {
                    Err(VfsError::Exists) => {}
                    done => return done.map(Outcome::None),
                },
            }
        }
        Err(VfsError::Delay)
    }

    pub(super) async fn do_unlink_kept(
        &self,
        by: Acting<'_>,
        name: &[u8],
        waste: &Waste,
    ) -> VfsResult<Outcome<DirChange>> {
        if !self.volume.waits_for_device() {
            return self.volume.retried(|| self.remove_kept(&by, name, waste)).await;
        }
        let (cred, powers) = by.into_parts();
        let (me, cred, name, waste) = (self.strong()?, cred.clone(), name.to_vec(), waste.clone());
        let remove = move || me.remove_kept(&Acting::with(&cred, powers), &name, &waste);
        self.volume.engine.run_long(remove).await
    }

    pub(super) async fn do_rename_kept(
        &self,
        by: Acting<'_>,
        from: &[u8],
        (to_dir, to): (&dyn Node, &[u8]),
        waste: &Waste,
    ) -> VfsResult<Outcome<(DirChange, DirChange)>> {
        let target = self.same_backend(to_dir)?;
        if !self.volume.waits_for_device() && !target.has_large_folder(to) {
            let rename = || self.rename_over_kept(&by, from, (target, to), waste);
            return self.volume.retried(rename).await;
        }
        let (cred, powers) = by.into_parts();
        let (me, target, cred) = (self.strong()?, target.strong()?, cred.clone());
        let (from, to, waste) = (from.to_vec(), to.to_vec(), waste.clone());
        let rename = move || {
            me.rename_over_kept(&Acting::with(&cred, powers), &from, (&target, &to), &waste)
        };
        self.volume.engine.run_long(rename).await
    }
}

impl Placed {
    /// Gives the file its name in the wastebasket.
    fn link(&self, volume: &Volume) -> Result<(), Errno> {
        let mut room = [0u8; 12];
        let number = decimal(self.node.fd().as_raw_fd(), &mut room);
        let link = || {
            let follow = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(&volume.proc_fd, number, self.hidden.fd(), &self.path[..], follow)
        };
        match link() {
            Err(Errno::NOENT) => {
                make_folders(self.hidden.fd(), &self.path)?;
                link()
            }
            done => done,
        }
    }

    /// Stores the record, without the folder's path where there is no room for it.
    fn describe(&self, waste: &Waste) -> VfsResult<()> {
        let head = head(self.node.volume.root_ino, waste.id);
        let set =
            |record: Vec<u8>| self.node.do_side_set(NAME, Some(&[&head[..], &record].concat()));
        match set(waste.record.encode()) {
            Err(VfsError::NoSpace | VfsError::Quota | VfsError::XattrTooBig) => {
                set(waste.record.short().encode())
            }
            done => done,
        }
    }

    /// Ends the removal of the client's name.
    fn finish<T>(self, done: VfsResult<T>) -> VfsResult<Outcome<T>> {
        let done = match done {
            Ok(done) => done,
            Err(why) => {
                match stat::of_fd(self.node.fd()) {
                    // The client's name went although an error followed, or by another share: the name here is the last one.
                    Ok(stat) if stat.attr.nlink == 1 => self.node.shared.set_waste(true),
                    Ok(_) => self.take_back(),
                    // The next start decides.
                    Err(_) => {}
                }
                return Err(why);
            }
        };
        // A program of the host may have moved the file or linked it meanwhile.
        if stat::of_fd(self.node.fd())?.attr.nlink != 1 {
            self.take_back();
            return Ok(Outcome::None(done));
        }
        self.node.shared.set_waste(true);
        // Its record is released like that of a file without a name.
        let _ = self.node.attr();
        Ok(Outcome::Yes(done))
    }

    /// Removes record and place; what fails is left to [`Basket::repair`](crate::wastebasket::Basket::repair).
    fn take_back(self) {
        let done = self.node.do_side_set(NAME, None).and_then(|()| {
            Ok(rustix::fs::unlinkat(self.hidden.fd(), &self.path[..], AtFlags::empty())?)
        });
        if let Err(e) = done {
            tracing::warn!(
                error = %e, file = self.path,
                "a second name of a client's file stays in the wastebasket until the next start"
            );
        }
    }
}
