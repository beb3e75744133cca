//! Finds, creates, renames and removes local names.
//!
//! *Operation.* A name is one component relative to the directory's descriptor, and no call follows a symbolic link. Calls that
//! create or remove names run as the caller, bypassing mode bits if a list permits it ([`super::decide`]); calls that only reopen a
//! new or found object run as the process.
//!
//! *Errors.* Those of the kernel. An operation on a mount point is [`VfsError::Access`], on a removed directory
//! [`VfsError::Stale`].

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use mutex::locked;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::authority::{Acting, FolderSeen};
use crate::backend::{FoundOrFolder, Made, Node, check_name};
use crate::creation::{Existing, existing, verifier_times};
use crate::error::{VfsError, VfsResult};
use crate::perm::{self, Need};
use crate::types::*;

use super::decide::{Judge, Override};
use super::held::{DataFd, FolderNow};
use super::node::LocalNode;
use super::past;
use super::proc_path::decimal;
use super::stat::{self, Stat};
use super::{HIDDEN, Volume};

/// A file with more storage than this is removed, or truncated, on a thread of the pool, because freeing it takes long.
pub(super) const LARGE: u64 = 64 << 20;

/// How often a name may vanish between two system calls before the caller gets an error to retry.
const RACES_MAX: usize = 8;

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Converts errors of calls that change names: EBUSY means a mount point here, so a retry would not help.
fn refused(e: Errno) -> VfsError {
    if e == Errno::BUSY { VfsError::Access } else { e.into() }
}

impl Volume {
    /// Changes the mode of an open file, also through an `O_PATH` descriptor.
    pub(super) fn chmod(&self, fd: BorrowedFd<'_>, mode: Mode) -> VfsResult<()> {
        use std::os::fd::AsRawFd;
        let mut room = [0u8; 12];
        let name = decimal(fd.as_raw_fd(), &mut room);
        Ok(rustix::fs::chmodat(&self.proc_fd, name, mode, AtFlags::empty())?)
    }
}

/// The set-id bits of a mode.
const SET_ID: u32 = 0o6000;

impl LocalNode {
    /// Checks a name to be created or removed in this directory.
    pub(super) fn change_name(&self, name: &[u8]) -> VfsResult<BorrowedFd<'_>> {
        self.volume.writable()?;
        let dir = self.dir_fd()?;
        check_name(name, self.volume.caps.name_max)?;
        if self.hides(name) {
            return Err(VfsError::Access);
        }
        Ok(dir)
    }

    /// True for the name of a gateway's own folder, at any depth because another share's root may lie here, and for names that lead
    /// to snapshots.
    pub(super) fn hides(&self, name: &[u8]) -> bool {
        name == HIDDEN || self.hides_snapshots(name)
    }

    fn hides_snapshots(&self, name: &[u8]) -> bool {
        let snapshots = &self.volume.border.snapshots;
        snapshots.is_on() && (name == past::NAME || self.is_root() && snapshots.is_base(name))
    }

    /// Turns "not found" into "stale" if the directory itself was removed.
    fn or_stale(&self, e: VfsError) -> VfsError {
        if e == VfsError::NotFound && self.attr().is_err() { VfsError::Stale } else { e }
    }

    pub(super) fn do_lookup(&self, cred: &Cred, name: &[u8]) -> VfsResult<(Arc<LocalNode>, Attr)> {
        let dir = self.dir_fd()?;
        if name == b".." {
            return self.parent(cred, dir);
        }
        check_name(name, self.volume.caps.name_max)?;
        if self.hides(name) {
            return Err(VfsError::NotFound);
        }
        self.find(cred, dir, name).map_err(|e| match cred.uid {
            0 => self.or_stale(e),
            // Search permission was checked on an existing directory.
            _ => e,
        })
    }

    pub(super) fn do_lookup_or_folder(&self, cred: &Cred, name: &[u8]) -> VfsResult<FoundOrFolder> {
        let dir = self.dir_fd()?;
        check_name(name, self.volume.caps.name_max)?;
        if self.hides(name) {
            return Ok(FoundOrFolder::Missing(self.attr()?));
        }
        // Search permission of other callers is checked by the attributes of the directory.
        let attr = if cred.uid == 0 { None } else { Some(self.attr()?) };
        match (self.find_in(cred, (dir, attr.as_ref()), name), attr) {
            (Ok((node, attr)), _) => Ok(FoundOrFolder::Found(node, attr)),
            (Err(VfsError::NotFound), Some(attr)) => Ok(FoundOrFolder::Missing(attr)),
            (Err(VfsError::NotFound), None) => Ok(FoundOrFolder::Missing(self.attr()?)),
            (Err(e), _) => Err(e),
        }
    }

    pub(super) fn find(
        &self,
        cred: &Cred,
        dir: BorrowedFd<'_>,
        name: &[u8],
    ) -> VfsResult<(Arc<LocalNode>, Attr)> {
        self.find_in(cred, (dir, None), name)
    }

    /// Finds a name in this directory. `attr`: its attributes, if they were read just before.
    fn find_in(
        &self,
        cred: &Cred,
        (dir, attr): (BorrowedFd<'_>, Option<&Attr>),
        name: &[u8],
    ) -> VfsResult<(Arc<LocalNode>, Attr)> {
        let volume = &self.volume;
        // An object mounted there is opened by the process, after the caller's permission was checked.
        let find = || {
            let moment = volume.cache.moment();
            let stat = volume.stat_of(dir, name)?;
            if stat.mount != volume.mount {
                volume.crosses()?;
                let fd = rustix::fs::openat(dir, name, PATH, Mode::empty())?;
                return Ok(Err(fd));
            }
            let known = volume.cache.held_since(moment, stat.dev, stat.ino);
            if let Some(node) = known {
                let same = match volume.is_still(&node, &stat) {
                    true => node.renew_by(self, name),
                    false => Err(VfsError::Stale),
                };
                match same {
                    // Another file has the inode number now.
                    Err(VfsError::Stale) => volume.cache.displace(&node),
                    renewed => {
                        renewed?;
                        let attr = node.take(&stat);
                        return Ok(Ok((node, attr)));
                    }
                }
            }
            let fd = rustix::fs::openat(dir, name, PATH, Mode::empty())?;
            let (node, attr) = self.opened(fd)?;
            node.renew_by(self, name)?;
            Ok(Ok((node, attr)))
        };
        match volume.cache.with_room(|| self.on_names(cred, perm::EXECUTE, attr, find))? {
            Ok(found) => Ok(found),
            Err(mounted) => self.opened_beyond(mounted),
        }
    }

    /// The record of an object opened just now, and its attributes.
    fn opened(&self, fd: OwnedFd) -> VfsResult<(Arc<LocalNode>, Attr)> {
        let stat = stat::of_fd(fd.as_fd())?;
        let node = self.volume.adopt(fd, &stat)?;
        let attr = node.take(&stat);
        Ok((node, attr))
    }

    /// Like [`LocalNode::opened`], for an object on another volume, which may stop responding.
    fn opened_beyond(&self, fd: OwnedFd) -> VfsResult<(Arc<LocalNode>, Attr)> {
        let seen = stat::at_hand(fd.as_fd())?;
        let volume = self.volume.border.volume(fd.as_fd(), &seen)?;
        volume.visited(|| self.opened(fd))
    }

    /// The parent directory; the root is its own parent.
    fn parent(&self, cred: &Cred, dir: BorrowedFd<'_>) -> VfsResult<(Arc<LocalNode>, Attr)> {
        if self.is_root() && self.volume.covers.is_none() {
            let me = self.strong()?;
            self.permitted_now(cred, perm::EXECUTE)?;
            return Ok((me, self.attr()?));
        }
        let volume = &self.volume;
        let flags = PATH | OFlags::DIRECTORY;
        let open = || Ok(rustix::fs::openat(dir, c"..", flags, Mode::empty())?);
        let fd = volume.cache.with_room(|| self.on_names(cred, perm::EXECUTE, None, open))?;
        // This directory may have been moved out of the share since the last check.
        if !volume.is_inside(fd.as_fd())? {
            return Err(VfsError::Stale);
        }
        if self.is_root() { self.opened_beyond(fd) } else { self.opened(fd) }
    }

    pub(super) fn do_readlink(&self) -> VfsResult<Vec<u8>> {
        if self.kind != Kind::Symlink {
            return Err(VfsError::Invalid);
        }
        // All users may read symbolic links: their mode is ignored on Linux.
        Ok(rustix::fs::readlinkat(self.fd(), c"", Vec::with_capacity(256))?.into_bytes())
    }

    /// Returns what the request has read of this directory for the first of several attempts, and reads it now for others and on a
    /// volume that may have let the request wait.
    pub(super) fn seen_once(
        &self,
        seen: Option<FolderSeen>,
    ) -> impl Fn() -> VfsResult<FolderNow> + Send + use<'_> {
        let seen = Cell::new(seen.filter(|_| self.volume.turns.is_none()));
        move || match seen.take() {
            Some(FolderSeen { attr, is_listed }) => {
                let attr = attr.map_or_else(|| self.attr(), Ok)?;
                Ok(FolderNow { attr, may_be_listed: is_listed })
            }
            None => self.folder_now(),
        }
    }

    fn folder_now(&self) -> VfsResult<FolderNow> {
        Ok(FolderNow { attr: self.attr()?, may_be_listed: true })
    }

    pub(super) fn do_create(
        &self,
        by: &Acting<'_>,
        (name, folder): (&[u8], FolderNow),
        how: CreateHow,
        mut set: SetAttr,
    ) -> VfsResult<Made> {
        let dir = self.change_name(name)?;
        let before = folder.attr;
        if let CreateHow::Exclusive(verifier) = how {
            let (a, m) = verifier_times(verifier);
            set.atime = Some(SetTime::At(a));
            set.mtime = Some(SetTime::At(m));
        }
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(set.mode.unwrap_or(0o600) & 0o7777);
        for _ in 0..RACES_MAX {
            let volume = &self.volume;
            let make = |dir: BorrowedFd<'_>| Ok(rustix::fs::openat(dir, name, flags, mode)?);
            let make = || self.making(by, perm::ADD_FILE, name, &folder, make);
            match volume.cache.with_room(make) {
                Ok(file) => {
                    // Follows links, because the name there is a link to the file.
                    let again = || volume.reopen(file.as_fd(), OFlags::PATH);
                    let path = volume.cache.with_room(again).inspect_err(|_| {
                        // The new file is removed, since the client gets an error and may retry.
                        let _ = stat::of_fd(file.as_fd()).map(|made| self.unmake(name, &made));
                    })?;
                    set.mode = None;
                    return self.made(by.cred, name, (path, Some(file)), &set, before);
                }
                Err(VfsError::Exists) if how != CreateHow::Guarded => {}
                Err(e) => return Err(self.or_stale(e)),
            }
            match self.existing(by.cred, dir, name, how, &set, before) {
                Err(VfsError::NotFound) => {}
                other => return other,
            }
        }
        Err(VfsError::Delay)
    }

    /// Opens an existing file, if the way of creating allows that.
    fn existing(
        &self,
        cred: &Cred,
        dir: BorrowedFd<'_>,
        name: &[u8],
        how: CreateHow,
        set: &SetAttr,
        before: Attr,
    ) -> VfsResult<Made> {
        let (node, mut attr) = self.find(cred, dir, name)?;
        let created = match existing(how, self.volume.identity.effective(cred).uid, &attr, set)? {
            Existing::Repeated => true,
            Existing::Cut => {
                let cut = SetAttr { size: Some(0), ..SetAttr::default() };
                attr = node.do_setattr(cred, &cut, false)?.1;
                false
            }
            Existing::Opened => false,
        };
        let dir = DirChange { before, after: self.attr()?, atomic: false };
        Ok(Made { node, attr, dir, created })
    }

    /// Completes a new object: its record, further attributes, and the directory's attributes. It has its mode, except bits that
    /// `mkdir` does not set.
    fn made(
        &self,
        cred: &Cred,
        name: &[u8],
        (path, file): (OwnedFd, Option<OwnedFd>),
        set: &SetAttr,
        before: Attr,
    ) -> VfsResult<Made> {
        self.changed();
        let stat = stat::of_fd(path.as_fd())?;
        let node = self.volume.adopt(path, &stat)?;
        node.renew_by(self, name)?;
        if let Some(file) = file {
            *locked(&node.data) = Some(DataFd::new(file, true));
            node.note_as_born(&stat);
        }
        let mut set = *set;
        let who = self.volume.identity.effective(cred);
        if who.uid != 0 {
            // An ordinary user owns its new files, whatever owner the client sends, like in the kernel's server.
            set.uid = None;
            set.gid = set.gid.filter(|g| who.in_group(*g));
        }
        if let Some(asked) = set.mode.take() {
            // Only missing bits are added: a default list of the folder may have removed permissions, and the kernel clears
            // set-group-id for a caller outside the group that the new folder inherits, and both bits with another owner.
            let moves = set.uid.is_some() || set.gid.is_some();
            let there = if moves { 0 } else { stat.attr.mode };
            let missing = asked & SET_ID & !there;
            set.mode = (missing != 0).then_some(stat.attr.mode | missing);
        }
        if set.size == Some(0) {
            set.size = None;
        }
        let attr = if set == SetAttr::default() {
            node.take(&stat)
        } else {
            if let Err(e) = node.apply(cred, &set, &stat.attr) {
                // The new object is removed, since the client gets an error.
                self.unmake(name, &stat);
                return Err(e);
            }
            node.attr()?
        };
        let dir = DirChange { before, after: self.attr()?, atomic: false };
        Ok(Made { node, attr, dir, created: true })
    }

    /// Creates an object other than a regular file with `make`, and completes it.
    fn make(
        &self,
        by: &Acting<'_>,
        (name, folder): (&[u8], FolderNow),
        (kind, need): (Kind, Need),
        set: &SetAttr,
        make: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno> + Send,
    ) -> VfsResult<Made> {
        let dir = self.change_name(name)?;
        let volume = &self.volume;
        // If no descriptor is available, no object is created, because it would need to be removed again.
        volume.cache.with_room(|| Ok(()))?;
        self.making(by, need, name, &folder, |dir| Ok(make(dir)?)).map_err(|e| self.or_stale(e))?;
        let owner = volume.identity.effective(by.cred).uid;
        let is_ours =
            |made: &Stat| made.attr.kind == kind && !(volume.posix && made.attr.uid != owner);
        let open = || Ok(rustix::fs::openat(dir, name, PATH, Mode::empty())?);
        let path = volume.cache.with_room(open).inspect_err(|_| {
            // The new object is removed, since the client gets an error and may retry.
            if let Some(made) = stat::of_name(dir, name).ok().filter(is_ours) {
                self.unmake(name, &made);
            }
        })?;
        // Another user may have taken the name since. That user's object gets neither attributes nor an inherited list.
        if !is_ours(&stat::of_fd(path.as_fd())?) {
            return Err(VfsError::NotFound);
        }
        self.made(by.cred, name, (path, None), set, folder.attr)
    }

    pub(super) fn do_mkdir(
        &self,
        by: &Acting<'_>,
        (name, folder): (&[u8], FolderNow),
        mut set: SetAttr,
    ) -> VfsResult<Made> {
        set.size = None;
        let mode = set.mode.take().unwrap_or(0o700) & 0o7777;
        // The call supports permission and sticky bits only.
        set.mode = (mode & SET_ID != 0).then_some(mode);
        let mode = Mode::from_raw_mode(mode & 0o1777);
        let what = (Kind::Dir, perm::ADD_DIR);
        self.make(by, (name, folder), what, &set, |dir| rustix::fs::mkdirat(dir, name, mode))
    }

    pub(super) fn do_symlink(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        target: &[u8],
        mut set: SetAttr,
    ) -> VfsResult<Made> {
        if target.is_empty() || target.contains(&0) {
            return Err(VfsError::Invalid);
        }
        (set.size, set.mode) = (None, None);
        let what = (Kind::Symlink, perm::ADD_FILE);
        let place = (name, self.folder_now()?);
        self.make(by, place, what, &set, |dir| rustix::fs::symlinkat(target, dir, name))
    }

    pub(super) fn do_mknod(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        what: Special,
        mut set: SetAttr,
    ) -> VfsResult<Made> {
        set.size = None;
        let mode = Mode::from_raw_mode(set.mode.take().unwrap_or(0o600) & 0o7777);
        what.check()?;
        let (kind, file, dev) = match what {
            Special::Block(a, b) => (Kind::Block, FileType::BlockDevice, rustix::fs::makedev(a, b)),
            Special::Char(a, b) => {
                (Kind::Char, FileType::CharacterDevice, rustix::fs::makedev(a, b))
            }
            Special::Fifo => (Kind::Fifo, FileType::Fifo, 0),
            Special::Socket => (Kind::Socket, FileType::Socket, 0),
        };
        if matches!(kind, Kind::Block | Kind::Char) && by.cred.uid != 0 {
            // The kernel's rule, whatever a list grants.
            self.allows_names(by, perm::ADD_FILE, &self.attr()?)?;
            return Err(VfsError::Perm);
        }
        let place = (name, self.folder_now()?);
        self.make(by, place, (kind, perm::ADD_FILE), &set, |dir| {
            rustix::fs::mknodat(dir, name, file, mode, dev)
        })
    }

    pub(super) async fn do_unlink(&self, by: Acting<'_>, name: &[u8]) -> VfsResult<DirChange> {
        let dir = self.change_name(name)?;
        let seen = self.volume.stat_of(dir, name).ok();
        let large =
            |s: &Stat| s.attr.kind == Kind::File && s.attr.nlink == 1 && s.attr.used > LARGE;
        if !seen.as_ref().is_some_and(large) {
            let remove = || self.remove(&by, name, seen, AtFlags::empty());
            return self.volume.retried(remove).await;
        }
        let (cred, powers) = by.into_parts();
        let (me, cred, name) = (self.strong()?, cred.clone(), name.to_vec());
        self.volume
            .engine
            .run_long(move || {
                me.remove(&Acting::with(&cred, powers), &name, seen, AtFlags::empty())
            })
            .await
    }

    /// Returns true if the host reads a large folder before it lets go of this name of it: it must be empty.
    pub(super) fn is_large_folder(&self, seen: Option<&Stat>) -> bool {
        let large = |s: &Stat| s.attr.kind == Kind::Dir && s.attr.size > self.volume.large_folder;
        seen.is_some_and(large)
    }

    pub(super) async fn do_rmdir(&self, by: Acting<'_>, name: &[u8]) -> VfsResult<DirChange> {
        let seen = self.volume.stat_of(self.change_name(name)?, name).ok();
        if !self.is_large_folder(seen.as_ref()) {
            let remove = || self.remove(&by, name, seen, AtFlags::REMOVEDIR);
            return self.volume.retried(remove).await;
        }
        let (cred, powers) = by.into_parts();
        let (me, cred, name) = (self.strong()?, cred.clone(), name.to_vec());
        let remove =
            move || me.remove(&Acting::with(&cred, powers), &name, seen, AtFlags::REMOVEDIR);
        self.volume.engine.run_long(remove).await
    }

    /// The record of an object seen under a name, if there is one. It may belong to a file that got the number since, so it must be
    /// verified.
    fn known(&self, seen: Option<Stat>) -> Option<Arc<LocalNode>> {
        seen.and_then(|s| self.volume.cache.by_inode(s.dev, s.ino))
    }

    pub(super) fn remove(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        seen: Option<Stat>,
        flags: AtFlags,
    ) -> VfsResult<DirChange> {
        let before = self.attr()?;
        let victim = self.known(seen);
        let remove = |dir: BorrowedFd<'_>| rustix::fs::unlinkat(dir, name, flags).map_err(refused);
        let first = match self.decide(by, perm::REMOVE, &before) {
            Ok(Judge::Kernel) => {
                self.on_names(by.cred, perm::REMOVE, Some(&before), || remove(self.fd()))
            }
            // In a sticky folder the owner of the file matters, which the kernel checks.
            Ok(Judge::List(power)) => power.run(by.cred, remove),
            Err(e) => Err(e),
        };
        let done = match first {
            // The file's own list may still permit the removal.
            Err(e @ (VfsError::Access | VfsError::Perm)) => {
                match self.may_delete_itself(by, name, &before) {
                    Ok(power) => power.run(by.cred, remove),
                    // The node's list could not be read.
                    Err(short @ VfsError::Resources) => Err(short),
                    Err(_) => Err(e),
                }
            }
            other => other,
        };
        done.map_err(|e| self.or_stale(e))?;
        self.changed();
        lost_a_name(victim);
        Ok(DirChange { before, after: self.attr()?, atomic: false })
    }

    pub(super) async fn do_rename_in_turn(
        &self,
        by: Acting<'_>,
        from: &[u8],
        (to_dir, to): (&dyn Node, &[u8]),
        replace: bool,
    ) -> VfsResult<(DirChange, DirChange)> {
        let target = self.same_backend(to_dir)?;
        if !(replace && target.has_large_folder(to)) {
            let rename = || self.do_rename(&by, from, target, to, replace);
            return self.volume.retried(rename).await;
        }
        let (cred, powers) = by.into_parts();
        let (me, target, cred) = (self.strong()?, target.strong()?, cred.clone());
        let (from, to) = (from.to_vec(), to.to_vec());
        let rename =
            move || me.do_rename(&Acting::with(&cred, powers), &from, &*target, &to, replace);
        self.volume.engine.run_long(rename).await
    }

    /// Returns true if this name in this directory is a large folder's.
    pub(super) fn has_large_folder(&self, name: &[u8]) -> bool {
        let seen = self.dir_fd().and_then(|dir| self.volume.stat_of(dir, name));
        self.is_large_folder(seen.ok().as_ref())
    }

    pub(super) fn do_rename(
        &self,
        by: &Acting<'_>,
        from: &[u8],
        to_dir: &dyn Node,
        to: &[u8],
        replace: bool,
    ) -> VfsResult<(DirChange, DirChange)> {
        let target = self.same_backend(to_dir)?;
        let (old, new) = (self.change_name(from)?, target.change_name(to)?);
        let (before, to_before) = (self.attr()?, target.attr()?);
        let there = self.volume.stat_of(new, to).ok();
        // Two names of one file both stay (POSIX rename), and the directories are unchanged.
        let stays = there.as_ref().is_some_and(|t| {
            self.volume.stat_of(old, from).is_ok_and(|f| (f.dev, f.ino) == (t.dev, t.ino))
        });
        let replaces = there.is_some() && !stays;
        let victim = self.known(there);
        let rename = |old: BorrowedFd<'_>, new: BorrowedFd<'_>| {
            if !replace {
                return rename_new(old, from, new, to);
            }
            rustix::fs::renameat(old, from, new, to).map_err(|e| match e {
                // Some file systems (XFS) return this for a directory that is not empty, as POSIX allows.
                Errno::EXIST => VfsError::NotEmpty,
                e => refused(e),
            })
        };
        let here = self.ino == target.ino && self.dev == target.dev;
        let listed = by.is_helped()
            || self.by_list(by.cred, &before)?.is_some()
            || !here && target.by_list(by.cred, &to_before)?.is_some();
        let by_lists = || {
            let names = [(self, from, &before), (target, to, &to_before)];
            let (leaves, comes) = self.may_move(by, names, replaces)?;
            if stays {
                return Ok(());
            }
            let call = |old: BorrowedFd<'_>, new: BorrowedFd<'_>| match replaces {
                true => rename(old, new),
                // An object that appeared meanwhile was not checked.
                false => rename_new(old, from, new, to).map_err(|e| match e {
                    VfsError::Exists if replace => VfsError::Delay,
                    e => e,
                }),
            };
            leaves.run_both(comes, by.cred, call)
        };
        let done = if listed {
            by_lists()
        } else if here {
            self.on_names(by.cred, perm::REMOVE, Some(&before), || rename(old, new))
        } else {
            self.volume.identity.run(by.cred, || rename(old, new))
        };
        let done = match done {
            // The file's own list may still permit the removal.
            Err(e @ (VfsError::Access | VfsError::Perm)) if !listed && by.cred.uid != 0 => {
                // Unless the list could not be read.
                by_lists().map_err(|why| if why == VfsError::Resources { why } else { e })
            }
            other => other,
        };
        done.map_err(|e| self.or_stale(target.or_stale(e)))?;
        if stays {
            let same = |a| DirChange { before: a, after: a, atomic: true };
            return Ok((same(before), same(to_before)));
        }
        self.changed();
        target.changed();
        lost_a_name(victim);
        let change = DirChange { before, after: self.attr()?, atomic: false };
        let to_change = DirChange { before: to_before, after: target.attr()?, atomic: false };
        Ok((change, to_change))
    }

    /// Checks what a rename needs where lists are stored: removing the name here, adding it there, and removing a replaced file.
    fn may_move<'a>(
        &'a self,
        by: &Acting<'_>,
        [(_, from, before), (target, to, to_before)]: [(&'a LocalNode, &'a [u8], &Attr); 2],
        replaces: bool,
    ) -> VfsResult<(Override<'a>, Override<'a>)> {
        let moved = self.volume.stat_of(self.fd(), from)?;
        let leaves = self.may_take(by, from, before)?.of_exactly(from, &moved);
        let comes = target.allows_names(by, perm::adding(moved.attr.kind), to_before)?;
        if moved.attr.kind == Kind::Dir && self.ino != target.ino {
            // A move changes the `..` of the directory.
            let (node, attr) = self.find(&Cred::root(), self.fd(), from)?;
            node.permitted(by.cred, perm::CHANGE_PARENT, &attr)?;
        }
        if !replaces {
            return Ok((leaves, comes));
        }
        let there = self.volume.stat_of(target.fd(), to)?;
        Ok((leaves, target.may_take(by, to, to_before)?.of_exactly(to, &there)))
    }

    pub(super) fn do_exchange(
        &self,
        by: &Acting<'_>,
        here: &[u8],
        other: &dyn Node,
        there: &[u8],
    ) -> VfsResult<(DirChange, DirChange)> {
        let other = self.same_backend(other)?;
        let (mine, its) = (self.change_name(here)?, other.change_name(there)?);
        let (before, other_before) = (self.attr()?, other.attr()?);
        let exchange = |mine: BorrowedFd<'_>, its: BorrowedFd<'_>| {
            rustix::fs::renameat_with(mine, here, its, there, RenameFlags::EXCHANGE).map_err(|e| {
                // File systems that do not support the flag return this.
                if e == Errno::INVAL { VfsError::NotSupported } else { refused(e) }
            })
        };
        let listed = by.is_helped()
            || self.by_list(by.cred, &before)?.is_some()
            || other.by_list(by.cred, &other_before)?.is_some();
        if listed {
            let mine = (self, here, &before);
            let its = (other, there, &other_before);
            let (leaves, _) = self.may_move(by, [mine, its], true)?;
            let (comes, _) = other.may_move(by, [its, mine], true)?;
            leaves.run_both(comes, by.cred, exchange)
        } else {
            self.volume.identity.run(by.cred, || exchange(mine, its))
        }
        .map_err(|e| self.or_stale(other.or_stale(e)))?;
        self.changed();
        other.changed();
        let change = DirChange { before, after: self.attr()?, atomic: false };
        Ok((change, DirChange { before: other_before, after: other.attr()?, atomic: false }))
    }

    pub(super) fn do_link(
        &self,
        by: &Acting<'_>,
        dir: &dyn Node,
        name: &[u8],
    ) -> VfsResult<(Attr, DirChange)> {
        use std::os::fd::AsRawFd;
        let target = self.same_backend(dir)?;
        target.change_name(name)?;
        if self.kind == Kind::Dir {
            return Err(VfsError::IsDir);
        }
        if self.shared.is_waste() {
            // For clients it has no name, and such a file gets none.
            return Err(VfsError::Stale);
        }
        let before = target.attr()?;
        let mut room = [0u8; 12];
        let number = decimal(self.fd().as_raw_fd(), &mut room);
        let link = |into: BorrowedFd<'_>| {
            let follow = AtFlags::SYMLINK_FOLLOW;
            Ok(rustix::fs::linkat(&self.volume.proc_fd, number, into, name, follow)?)
        };
        let its = self.attr()?;
        let is_listed = self.by_list(by.cred, &its)?.is_some();
        let made = match target.decide(by, perm::ADD_FILE, &before) {
            Ok(Judge::Kernel) if is_listed => {
                // The kernel does not know the lists by which the caller may read and write it.
                self.may_be_linked(by.cred, &its)?;
                let power = target.allows_names(by, perm::ADD_FILE, &before);
                power.and_then(|power| power.run(by.cred, link))
            }
            Ok(Judge::List(power)) => {
                self.may_be_linked(by.cred, &its)?;
                power.run(by.cred, link)
            }
            _ => {
                let folder = FolderNow { attr: before, may_be_listed: true };
                target.making(by, perm::ADD_FILE, name, &folder, link)
            }
        };
        made.map_err(|e| {
            let gone = e == VfsError::NotFound && self.attr().is_ok_and(|a| a.nlink == 0);
            if gone { VfsError::Stale } else { target.or_stale(e) }
        })?;
        self.changed();
        target.changed();
        Ok((self.attr()?, DirChange { before, after: target.attr()?, atomic: false }))
    }
}

/// Renames to a name that must be free. If the file system cannot check that atomically, a look-up comes first.
fn rename_new(old: BorrowedFd<'_>, from: &[u8], new: BorrowedFd<'_>, to: &[u8]) -> VfsResult<()> {
    match rustix::fs::renameat_with(old, from, new, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => match stat::of_name(new, to) {
            Ok(_) => Err(VfsError::Exists),
            // Also returned when a directory would be moved below itself, which the call reports again.
            Err(VfsError::NotFound) => rustix::fs::renameat(old, from, new, to).map_err(refused),
            Err(e) => Err(e),
        },
        other => other.map_err(refused),
    }
}

/// Handles the loss of a name; after the last one, the record is released, and with the last reference the storage.
fn lost_a_name(node: Option<Arc<LocalNode>>) {
    if let Some(node) = node {
        node.changed();
        // Reading the attributes of a file with link count 0 removes it from the cache; a directory then returns `Stale`.
        let _ = node.attr();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LocalBackend, LocalConfig};
    use super::*;
    use crate::backend::Backend;
    use crate::waste_record::{Id, Record, Way};
    use crate::wastebasket::Waste;

    /// Counts the jobs on threads that each change of an empty folder takes in a share where folders above `limit` bytes are large:
    /// a removal, a rename onto it, and one of a share with a wastebasket.
    async fn jobs_of_changes(limit: u64) -> [u64; 3] {
        let dir = tempfile::tempdir().unwrap();
        for name in ["removed", "replaced", "kept", "one", "other"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let backend = LocalBackend::open_with(LocalConfig::new(dir.path()), |found| {
            // A share on FUSE gets a separate engine, whose jobs can be counted.
            (found.magic, found.large_folder) = (0x6573_5546, limit);
        })
        .unwrap();
        let (root, cred) = (backend.root(), Cred::root());
        let by = || Acting::caller(&cred);
        let jobs = || backend.volume.engine.long_stats().done;
        let start = jobs();
        root.remove(by(), b"removed", true).await.unwrap();
        let removed = jobs();
        root.rename(by(), b"one", &*root, b"replaced", true).await.unwrap();
        let replaced = jobs();
        let record = Record {
            way: Way::Removed,
            path: b"kept".to_vec(),
            is_whole: true,
            user: String::new(),
            uid: None,
            peer: None,
            protocol: String::new(),
        };
        let waste = Waste { id: Id { at: 0, uid: 0, number: 0 }, record };
        root.rename_kept(by(), b"other", &*root, b"kept", &waste).await.unwrap();
        let kept = jobs();
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 2, "the folders `replaced` and `kept`");
        [removed - start, replaced - removed, kept - replaced]
    }

    /// The host looks whether a folder is empty, and reads all that it takes.
    #[tokio::test]
    async fn large_folder_is_removed_and_replaced_on_a_thread() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("f")).unwrap();
        let size = std::fs::metadata(dir.path().join("f")).unwrap().len();
        assert_eq!(jobs_of_changes(size).await, [0; 3]);
        if size > 0 {
            assert_eq!(jobs_of_changes(size - 1).await, [1; 3]);
        }
    }
}
