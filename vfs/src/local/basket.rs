//! The wastebasket of a folder of the host, for the gateway itself: lists, gives back and removes what is in it.
//!
//! *Operation.* Every call starts at the gateway's own folder, which only its user may enter, and runs with the credentials of the
//! process. No call follows a symbolic link. A file is given back by a further name, then loses its record, and then its name in
//! the wastebasket: a crash leaves it at its place, and [`Basket::repair`] removes the rest.
//!
//! *Memory.* Folders are read in pieces; records of files are not entered in the cache, because clients find those by handle.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use mutex::locked;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RawDir, Uid};
use rustix::io::Errno;

use crate::backend::check_name;
use crate::error::{VfsError, VfsResult};
use crate::shared_file::{FileKey, SharedFile};
use crate::types::{Handle, Kind};
use crate::waste_record::{Id, NAME, Record};
use crate::wastebasket::{Basket, Entry, Weight};

use super::node::LocalNode;
use super::proc_path::decimal;
use super::stat::{self, Stat};
use super::waste::{FOLDER, split};
use super::{HIDDEN, Volume, handle, sys};

/// Bytes of a folder that are read at once.
const LISTING: usize = 32 << 10;
/// Flags for folders that are only a place to start from.
const DIR: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Microseconds since 1970 at which this process first looked: older files were placed by earlier runs.
static STARTED: LazyLock<u64> = LazyLock::new(now);

/// Returns the time in microseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The wastebasket of one volume.
pub(super) struct LocalBasket(Arc<Volume>);

/// A file in it.
struct File {
    hidden: Arc<LocalNode>,
    path: String,
    node: Arc<LocalNode>,
    stat: Stat,
}

impl LocalBasket {
    pub(super) fn of(volume: &Arc<Volume>) -> Self {
        LazyLock::force(&STARTED);
        Self(volume.clone())
    }

    fn open(&self, id: Id) -> VfsResult<File> {
        let volume = &self.0;
        let hidden = volume.open_hidden(false)?.ok_or(VfsError::NotFound)?;
        let path = format!("{FOLDER}/{}", id.path());
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(hidden.fd(), &path[..], flags, Mode::empty())?;
        let stat = stat::of_fd(fd.as_fd())?;
        let its = handle::make(fd.as_fd(), &stat, volume.tag, volume.handles)?;
        let shared = volume.shared(&stat, &its);
        let node = LocalNode::new(volume.clone(), fd, &stat, (its, shared));
        node.shared.set_waste(stat.attr.nlink == 1);
        Ok(File { hidden, path, node, stat })
    }

    /// Calls `each` with every file and its attributes, until that returns false.
    fn each(&self, each: &mut dyn FnMut(Id, &Stat) -> bool) -> VfsResult<()> {
        let Some(hidden) = self.0.open_hidden(false)? else { return Ok(()) };
        let Some(all) = opened(hidden.fd(), FOLDER)? else { return Ok(()) };
        names(&all, &mut |user| {
            let Ok(uid) = user.parse::<u32>() else { return Ok(true) };
            let Some(days) = opened(all.as_fd(), user)? else { return Ok(true) };
            names(&days, &mut |day| {
                let Some(files) = opened(days.as_fd(), day)? else { return Ok(true) };
                names(&files, &mut |file| {
                    let id = Id::of_file(uid, file).filter(|id| id.day().to_string() == day);
                    let Some(id) = id else { return Ok(true) };
                    match stat::of_name(files.as_fd(), file.as_bytes()) {
                        Ok(stat) => Ok(each(id, &stat)),
                        // It was given back or removed.
                        Err(VfsError::NotFound) => Ok(true),
                        Err(e) => Err(e),
                    }
                })
            })
        })
        .map(drop)
    }

    /// Opens the folder of this path in the share, and creates what is missing of it.
    fn folder(&self, names: &[&[u8]]) -> VfsResult<OwnedFd> {
        let mut at = rustix::fs::openat(&self.0.root, c".", DIR, Mode::empty())?;
        for name in names {
            let above = stat::of_fd(at.as_fd())?;
            at = match rustix::fs::openat(&at, *name, DIR, Mode::empty()) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&at, *name, Mode::RWXU)?;
                    let made = rustix::fs::openat(&at, *name, DIR, Mode::empty())?;
                    self.resemble(made.as_fd(), &above)?;
                    made
                }
                other => other?,
            };
            if stat::of_fd(at.as_fd())?.mount != self.0.mount {
                return Err(VfsError::CrossDevice);
            }
        }
        Ok(at)
    }

    /// Gives the record of a file that a client still holds the new name: the kernel knows its descriptor by the removed one.
    fn renew(&self, folder: &OwnedFd, name: &[u8], file: &File) {
        let Some(held) = self.0.cache.by_inode(file.stat.dev, file.stat.ino) else { return };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(fd) = rustix::fs::openat(folder, name, flags, Mode::empty())
            && stat::of_fd(fd.as_fd()).is_ok_and(|s| (s.dev, s.ino) == (held.dev, held.ino))
            && let Err(e) = sys::replace(held.fd(), &fd)
        {
            tracing::warn!(error = %e, "a file that was given back has no path until its holders close it");
        }
    }

    /// Gives a new folder owner, group and mode of the folder above.
    fn resemble(&self, folder: BorrowedFd<'_>, above: &Stat) -> VfsResult<()> {
        let (uid, gid) = (Uid::from_raw(above.attr.uid), Gid::from_raw(above.attr.gid));
        match rustix::fs::chownat(folder, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH) {
            // A gateway without privileges owns all files.
            Ok(()) | Err(Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
        self.0.chmod(folder, Mode::from_raw_mode(above.attr.mode))
    }
}

/// Opens a folder for listing; `None` if it does not exist or is none.
fn opened(dir: BorrowedFd<'_>, name: &str) -> VfsResult<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Calls `each` for the names of a folder that are text, until that returns false. Returns whether it never did.
fn names(dir: &OwnedFd, each: &mut dyn FnMut(&str) -> VfsResult<bool>) -> VfsResult<bool> {
    let mut room: Vec<u8> = Vec::with_capacity(LISTING);
    let mut raw = RawDir::new(dir, room.spare_capacity_mut());
    while let Some(entry) = raw.next() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if !name.starts_with('.') && !each(name)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl File {
    /// Removes its name in the wastebasket, and the folder of its day if that is past and empty.
    fn unlink(&self, id: Id) -> VfsResult<()> {
        rustix::fs::unlinkat(self.hidden.fd(), &self.path[..], AtFlags::empty())?;
        self.tidy(id);
        Ok(())
    }

    fn tidy(&self, id: Id) {
        let today = Id { at: now(), ..id }.day();
        if let Some((day, _)) = self.path.rsplit_once('/')
            && id.day() != today
        {
            // It fails if the folder is not empty.
            let _ = rustix::fs::unlinkat(self.hidden.fd(), day, AtFlags::REMOVEDIR);
        }
    }
}

impl Basket for LocalBasket {
    fn weights(&self, each: &mut dyn FnMut(Weight) -> bool) -> VfsResult<()> {
        self.each(&mut |id, stat| {
            // Storage of a file with another name is not the wastebasket's.
            let used = if stat.attr.nlink > 1 { 0 } else { stat.attr.used };
            each(Weight { id, used })
        })
    }

    fn entry(&self, id: Id) -> VfsResult<Entry> {
        let _turn = locked(&self.0.basket_turn);
        let File { node, stat, .. } = self.open(id)?;
        let value = node.do_side_get(NAME)?;
        let record = value.as_deref().and_then(split).filter(|(_, its, _)| *its == id);
        let record = record.and_then(|(_, _, record)| Record::decode(record));
        let (size, used, owner) = (stat.attr.size, stat.attr.used, stat.attr.uid);
        Ok(Entry { id, size, used, owner, record })
    }

    fn restore(&self, id: Id, to: &[u8], replace: bool) -> VfsResult<()> {
        self.0.writable()?;
        let names: Vec<&[u8]> = to.split(|b| *b == b'/').collect();
        names.iter().try_for_each(|name| check_name(name, self.0.caps.name_max))?;
        let Some((name, folders)) = names.split_last() else { return Err(VfsError::Invalid) };
        if names.first() == Some(&HIDDEN) {
            return Err(VfsError::Access);
        }
        let _turn = locked(&self.0.basket_turn);
        let file = self.open(id)?;
        if file.stat.attr.nlink != 1 || file.stat.attr.kind != Kind::File {
            return Err(VfsError::NotFound);
        }
        let folder = self.folder(folders)?;
        let here = file.hidden.fd();
        let key = FileKey::Host(file.stat.dev, file.stat.ino);
        let given_back = || {
            SharedFile::known(key).into_iter().for_each(|file| file.set_waste(false));
            self.renew(&folder, name, &file);
            file.node.do_side_set(NAME, None)
        };
        if replace {
            rustix::fs::renameat(here, &file.path[..], &folder, *name)?;
            file.tidy(id);
            return given_back();
        }
        let mut room = [0u8; 12];
        let number = decimal(file.node.fd().as_raw_fd(), &mut room);
        let follow = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(&self.0.proc_fd, number, &folder, *name, follow)?;
        given_back()?;
        file.unlink(id)
    }

    fn remove(&self, id: Id) -> VfsResult<Option<Handle>> {
        self.0.writable()?;
        let _turn = locked(&self.0.basket_turn);
        let file = self.open(id)?;
        if file.stat.attr.nlink > 1 {
            // Clients have it: it loses only the record and the name here.
            file.node.do_side_set(NAME, None)?;
        }
        file.unlink(id)?;
        let is_gone = stat::of_fd(file.node.fd())?.attr.nlink == 0;
        Ok(is_gone.then(|| file.node.handle.clone()))
    }

    fn repair(&self) -> VfsResult<usize> {
        if self.0.read_only {
            return Ok(0);
        }
        let _turn = locked(&self.0.basket_turn);
        let mut doubles = Vec::new();
        self.each(&mut |id, stat| {
            if stat.attr.nlink > 1 && id.at < *STARTED {
                doubles.push(id);
            }
            true
        })?;
        for id in &doubles {
            let file = self.open(*id)?;
            file.node.do_side_set(NAME, None)?;
            file.unlink(*id)?;
        }
        Ok(doubles.len())
    }
}
