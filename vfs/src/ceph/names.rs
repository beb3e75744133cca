//! Finds, creates, renames and removes names in CephFS.
//!
//! *Operation.* A name is one component looked up in a held inode. Calls that create or remove names run as the caller, or as the
//! superuser if a list permits it ([`super::decide`]); then the new object is given to the caller by its inode, which no other
//! client can replace.
//!
//! *Errors.* Those of the library. A removed directory is [`VfsError::Stale`].

use std::sync::Arc;

use ceph_sys::{Errno, Name, Perm, Vino};

use crate::authority::Acting;
use crate::backend::{Made, Node, check_name};
use crate::creation::{Existing, existing, verifier_times};
use crate::error::{VfsError, VfsResult};
use crate::folder::Folder;
use crate::perm::{self, Need};
use crate::types::*;

use super::HIDDEN;
use super::decide::Judge;
use super::exclusive;
use super::node::CephNode;
use super::stat::{Stat, vino_of};

/// Longest name, in bytes.
const NAME_MAX: u32 = 255;

/// How often a name may vanish between two calls before the caller gets an error to retry.
const RACES_MAX: usize = 8;

/// The set-id bits of a mode.
const SET_ID: u32 = 0o6000;

/// The mode of a new file of this user in a directory with these attributes. If the directory gives the file its group, only
/// members of the group may set the set-group-id bit (`mode_strip_sgid` of Linux); the cluster does not check that.
fn mode_here(cred: &Cred, dir: &Attr, mode: u32) -> u32 {
    let is_lent = dir.mode & 0o2000 != 0 && cred.uid != 0 && !cred.in_group(dir.gid);
    if is_lent { mode & !0o2000 } else { mode }
}

/// A new object: its record and its attributes.
type New = (Arc<CephNode>, Stat);

impl CephNode {
    /// Checks that this is a directory below the share in which clients may look up names.
    pub(super) fn names(&self) -> VfsResult<()> {
        match self.kind {
            Kind::Dir => self.inside(),
            Kind::Symlink => Err(VfsError::Symlink),
            _ => Err(VfsError::NotDir),
        }
    }

    /// Checks and converts a name to be created or removed in this directory.
    fn change_name(&self, name: &[u8]) -> VfsResult<Name> {
        self.changeable()?;
        self.names()?;
        check_name(name, NAME_MAX)?;
        if Self::hides(name) {
            return Err(VfsError::Access);
        }
        self.volume.done(Name::new(name))
    }

    /// True for the name of a gateway's own folder, at any depth because another share's root may lie here.
    pub(super) fn hides(name: &[u8]) -> bool {
        name == HIDDEN
    }

    /// Turns "not found" into "stale" if the directory itself was removed.
    fn or_stale(&self, e: VfsError) -> VfsError {
        if e == VfsError::NotFound && self.attr().is_err() { VfsError::Stale } else { e }
    }

    pub(super) fn do_lookup(&self, cred: &Cred, name: &[u8]) -> VfsResult<(Arc<CephNode>, Attr)> {
        self.names()?;
        if name == b".." {
            return self.parent(cred);
        }
        check_name(name, NAME_MAX)?;
        if Self::hides(name) {
            return Err(VfsError::NotFound);
        }
        self.lookup_as(cred, name).map_err(|e| self.or_stale(e))
    }

    /// Makes a library call that uses a name in this directory.
    pub(super) fn by_name<T>(&self, call: impl FnOnce() -> Result<T, Errno>) -> VfsResult<T> {
        let _apart = self.volume.renames.name(self.vino);
        self.volume.done(call())
    }

    /// Finds this name, if the caller may look it up.
    fn lookup_as(&self, cred: &Cred, name: &[u8]) -> VfsResult<(Arc<CephNode>, Attr)> {
        if cred.uid == 0 {
            return self.find(name);
        }
        let attr = self.attr()?;
        if let Some(allowed) = self.by_list(cred, &attr)? {
            perm::enough(allowed, perm::EXECUTE)?;
            return self.find(name);
        }
        self.found(name, &self.volume.perm(cred)?)
    }

    /// Finds this name as the superuser.
    pub(super) fn find(&self, name: &[u8]) -> VfsResult<(Arc<CephNode>, Attr)> {
        self.found(name, &self.volume.process)
    }

    fn found(&self, name: &[u8], perm: &Perm) -> VfsResult<(Arc<CephNode>, Attr)> {
        let its = self.volume.done(Name::new(name))?;
        let (inode, stat) = self.by_name(|| self.inode().lookup(&its, perm))?;
        let node = self.volume.adopt(inode, &stat)?;
        node.is_at(self, name);
        let attr = node.take(&stat)?;
        Ok((node, attr))
    }

    /// The parent directory; the root is its own parent.
    fn parent(&self, cred: &Cred) -> VfsResult<(Arc<CephNode>, Attr)> {
        self.permitted_now(cred, perm::EXECUTE)?;
        if self.is_root() {
            return Ok((self.strong()?, self.attr()?));
        }
        let node = self.above()?;
        // This directory may have been moved out of the share since the last check.
        node.inside_now()?;
        let attr = node.attr()?;
        Ok((node, attr))
    }

    pub(super) fn do_readlink(&self) -> VfsResult<Vec<u8>> {
        if self.kind != Kind::Symlink {
            return Err(VfsError::Invalid);
        }
        // All users may read symbolic links: their mode is ignored on Linux.
        self.volume.done(self.inode().readlink(&self.volume.process))
    }

    pub(super) fn do_create(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        how: CreateHow,
        mut set: SetAttr,
    ) -> VfsResult<Made> {
        let its = self.change_name(name)?;
        let before = self.attr()?;
        if let CreateHow::Exclusive(verifier) = how {
            let (a, m) = verifier_times(verifier);
            set.atime = Some(SetTime::At(a));
            set.mtime = Some(SetTime::At(m));
        }
        let mode = set.mode.take().unwrap_or(0o600) & 0o7777;
        let number = exclusive::number(how, by.cred.uid);
        let make = |perm: &Perm, mode: u32| {
            // Created like a device: a combined create and open looks the name up first, which needs a request to the MDS unless
            // the library has cached the whole folder.
            let made = || self.inode().mknod(&its, libc::S_IFREG | mode, number.into(), perm);
            let (inode, stat) = self.by_name(made)?;
            Ok((self.volume.adopt(inode, &stat)?, stat))
        };
        for _ in 0..RACES_MAX {
            match self.making(by, perm::ADD_FILE, name, (&before, mode), &make) {
                Ok(new) => return self.made(by.cred, name, new, &set, before),
                Err(VfsError::Exists) if how != CreateHow::Guarded => {}
                Err(e) => return Err(self.or_stale(e)),
            }
            let found = self.lookup_as(by.cred, name).and_then(|(node, attr)| {
                match node.unfinished(number, by.cred.uid)? {
                    Some(stat) => self.finish(by, name, (node, stat), mode, &set, before),
                    None => self.existing(by.cred, (node, attr), how, &set, before),
                }
            });
            match found {
                Err(VfsError::NotFound) => {}
                other => return other,
            }
        }
        Err(VfsError::Delay)
    }

    /// Completes an exclusive create of this caller under this name, with this mode.
    fn finish(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        (node, stat): New,
        mode: u32,
        set: &SetAttr,
        before: Attr,
    ) -> VfsResult<Made> {
        let mode = mode_here(by.cred, &before, mode);
        let is_given =
            stat.stx_uid == by.cred.uid && mode & SET_ID & !u32::from(stat.stx_mode) == 0;
        let mut new = (node, stat);
        if !is_given {
            // Only objects permitted by a list are created by the superuser, and the list must still permit it: any caller that may
            // look up the name learns that it exists.
            let Judge::List(power) = self.decide(by, perm::ADD_FILE, &before)? else {
                return Err(VfsError::Exists);
            };
            new = power.run(|_| self.give(by, name, new, mode))?;
        }
        self.made(by.cred, name, new, set, before)
    }

    /// Opens an existing file, if the way of creating allows that.
    fn existing(
        &self,
        cred: &Cred,
        (node, mut attr): (Arc<CephNode>, Attr),
        how: CreateHow,
        set: &SetAttr,
        before: Attr,
    ) -> VfsResult<Made> {
        let created = match existing(how, cred.uid, &attr, set)? {
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

    /// Creates an object under `name` in this directory (with its previous attributes) with this mode, as the caller. If a list
    /// permits it, creates it as the superuser, without set-id bits, and gives it to the caller.
    fn making(
        &self,
        by: &Acting<'_>,
        need: Need,
        name: &[u8],
        (attr, mode): (&Attr, u32),
        make: &dyn Fn(&Perm, u32) -> VfsResult<New>,
    ) -> VfsResult<New> {
        let mode = mode_here(by.cred, attr, mode);
        match self.decide(by, need, attr) {
            Ok(Judge::Library) => {
                let caller = self.volume.perm(by.cred)?;
                make(&caller, mode).map_err(|e| match e {
                    // The library checks the right first; a caller that may look up the name must learn that it exists.
                    VfsError::Access if self.found(name, &caller).is_ok() => VfsError::Exists,
                    e => e,
                })
            }
            Ok(Judge::List(power)) => {
                let maker = self.volume.process_in(by.cred.gid)?;
                let (node, stat) = power.run(|_| make(&maker, mode & !SET_ID))?;
                if by.cred.uid == 0 && mode & SET_ID == 0 {
                    return Ok((node, stat));
                }
                self.give(by, name, (node, stat), mode)
            }
            Err(VfsError::Access) if self.permitted(by.cred, perm::EXECUTE, attr).is_ok() => {
                match self.seen(name) {
                    Ok(_) => Err(VfsError::Exists),
                    Err(VfsError::NotFound) => Err(VfsError::Access),
                    Err(e) => Err(e),
                }
            }
            Err(e) => Err(e),
        }
    }

    /// Gives an object created by the superuser to the caller, with the set-id bits of this mode.
    fn give(&self, by: &Acting<'_>, name: &[u8], (node, stat): New, mode: u32) -> VfsResult<New> {
        let own = SetAttr { uid: Some(by.cred.uid), ..SetAttr::default() };
        let given = node.set(&own, &self.volume.process).and_then(|()| {
            match mode & SET_ID != 0 && node.kind != Kind::Dir {
                true => node.chmod(u32::from(stat.stx_mode) & 0o7777 | mode & SET_ID),
                false => Ok(()),
            }
        });
        given.inspect_err(|_| self.unmake(name, node.vino, node.kind))?;
        let stat = self.volume.done(node.inode().getattr(&self.volume.process))?;
        Ok((node, stat))
    }

    /// Completes a new object: sets further attributes, and reads the directory's attributes.
    fn made(
        &self,
        cred: &Cred,
        name: &[u8],
        (node, stat): New,
        set: &SetAttr,
        before: Attr,
    ) -> VfsResult<Made> {
        node.is_at(self, name);
        let mut set = SetAttr { umask: 0, ..*set };
        if let Some(asked) = set.mode.take() {
            // Only missing bits are added: a default list of the folder may have removed permissions.
            let now = u32::from(stat.stx_mode) & 0o7777;
            let missing = asked & SET_ID & !now;
            set.mode = (missing != 0).then_some(now | missing);
        }
        if cred.uid != 0 {
            // An ordinary user owns its new files, whatever owner the client sends, like in the kernel's server.
            set.uid = None;
            set.gid = set.gid.filter(|g| cred.in_group(*g));
        }
        set.size = set.size.filter(|size| *size != 0);
        let attr = node.take(&stat)?;
        let attr = if set == SetAttr::default() {
            attr
        } else {
            let applied = node.apply(cred, &set, &attr);
            // If that fails, the new object is removed, since the client gets an error.
            applied.inspect_err(|_| self.unmake(name, node.vino, node.kind))?;
            node.attr()?
        };
        let dir = DirChange { before, after: self.attr()?, atomic: false };
        Ok(Made { node, attr, dir, created: true })
    }

    /// Creates an object other than a regular file with `make`, and completes it.
    fn make(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        (need, mode): (Need, u32),
        set: &SetAttr,
        make: impl Fn(&Name, &Perm, u32) -> Result<(ceph_sys::Inode, Stat), Errno>,
    ) -> VfsResult<Made> {
        let its = self.change_name(name)?;
        let before = self.attr()?;
        let make = |perm: &Perm, mode: u32| {
            let (inode, stat) = self.by_name(|| make(&its, perm, mode))?;
            Ok((self.volume.adopt(inode, &stat)?, stat))
        };
        let new = self.making(by, need, name, (&before, mode), &make);
        self.made(by.cred, name, new.map_err(|e| self.or_stale(e))?, set, before)
    }

    pub(super) fn do_mkdir(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        mut set: SetAttr,
    ) -> VfsResult<Made> {
        set.size = None;
        let mode = set.mode.take().unwrap_or(0o700) & 0o7777;
        set.mode = (mode & SET_ID != 0).then_some(mode);
        self.make(by, name, (perm::ADD_DIR, mode & 0o1777), &set, |its, perm, mode| {
            self.inode().mkdir(its, mode, perm)
        })
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
        let target = self.volume.done(Name::new(target))?;
        self.make(by, name, (perm::ADD_FILE, 0), &set, |its, perm, _| {
            self.inode().symlink(its, &target, perm)
        })
    }

    pub(super) fn do_mknod(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        what: Special,
        mut set: SetAttr,
    ) -> VfsResult<Made> {
        set.size = None;
        let mode = set.mode.take().unwrap_or(0o600) & 0o7777;
        what.check()?;
        let (file, dev) = match what {
            Special::Block(a, b) => (libc::S_IFBLK, libc::makedev(a, b)),
            Special::Char(a, b) => (libc::S_IFCHR, libc::makedev(a, b)),
            Special::Fifo => (libc::S_IFIFO, 0),
            Special::Socket => (libc::S_IFSOCK, 0),
        };
        if matches!(what, Special::Block(..) | Special::Char(..)) && by.cred.uid != 0 {
            // The kernel's rule, whatever a list grants.
            self.allows_names(by, perm::ADD_FILE, &self.attr()?)?;
            return Err(VfsError::Perm);
        }
        self.make(by, name, (perm::ADD_FILE, mode), &set, |its, perm, mode| {
            self.inode().mknod(its, file | mode, dev, perm)
        })
    }

    /// Removes a name from the directory in the cluster.
    pub(super) fn take_name(&self, name: &[u8], dir: bool, perm: &Perm) -> VfsResult<()> {
        let name = self.volume.done(Name::new(name))?;
        self.by_name(|| match dir {
            true => self.inode().rmdir(&name, perm),
            false => self.inode().unlink(&name, perm),
        })
    }

    pub(super) fn do_remove(
        &self,
        by: &Acting<'_>,
        name: &[u8],
        dir: bool,
    ) -> VfsResult<DirChange> {
        self.change_name(name)?;
        let before = self.attr()?;
        let victim = self.seen(name).ok().and_then(|(vino, attr)| self.victim(vino, &attr));
        let remove = |perm: &Perm| self.take_name(name, dir, perm);
        let first = match self.decide(by, perm::REMOVE, &before) {
            Ok(Judge::Library) => remove(&self.volume.perm(by.cred)?),
            Ok(Judge::List(power)) => match self.is_sticky_for(by.cred, name, &before) {
                Ok(true) => Err(VfsError::Perm),
                Ok(false) => power.run(remove),
                Err(e) => Err(e),
            },
            Err(e) => Err(e),
        };
        let done = match first {
            // The file's own list may still permit the removal.
            Err(e @ (VfsError::Access | VfsError::Perm)) => {
                match self.may_delete_itself(by, name, &before) {
                    Ok(power) => power.run(remove),
                    Err(_) => Err(e),
                }
            }
            other => other,
        };
        done.map_err(|e| self.or_stale(e))?;
        lost_a_name(victim);
        Ok(DirChange { before, after: self.attr()?, atomic: false })
    }

    /// The record of the object that will lose a name, if there is one.
    fn victim(&self, vino: Vino, attr: &Attr) -> Option<Victim> {
        let node = self.volume.records.find(vino, self.volume.now())?;
        Some((node, attr.nlink <= 1 || attr.kind == Kind::Dir))
    }

    /// The record of the object with this name, if there is one.
    fn known(&self, name: &[u8]) -> Option<Arc<CephNode>> {
        let (vino, _) = self.seen(name).ok()?;
        self.volume.records.find(vino, self.volume.now())
    }

    /// Renames in the cluster, after looking up both names: see `Renames`.
    fn rename_now(&self, old: &Name, target: &Self, new: &Name, perm: &Perm) -> VfsResult<()> {
        let _apart = self.volume.renames.rename(self.vino, target.vino);
        let look = |dir: &Self, name| {
            let found = dir.inode().lookup(name, &self.volume.process);
            self.volume.done(found.map(|(_, stat)| vino_of(&stat)))
        };
        let moved = look(self, old)?;
        match look(target, new) {
            // Two names of one file both stay (POSIX rename). The library would treat both as removed.
            Ok(there) if there == moved => return Ok(()),
            Err(VfsError::NotFound) | Ok(_) => {}
            Err(e) => return Err(e),
        }
        self.volume.done(self.inode().rename(old, target.inode(), new, perm))?;
        if self.vino != target.vino {
            self.look_anew();
        }
        Ok(())
    }

    /// Requests this directory's attributes from the MDS, which does not notify the only client of a directory about changes by a
    /// rename out of it; the library would continue to use its cached ones.
    fn look_anew(&self) {
        // The MDS itself answers requests for recursive statistics. If this fails, the next request reports the error.
        let _ = Name::new(b"ceph.dir.rctime")
            .map(|name| self.inode().getxattr(&name, &self.volume.process));
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
        let there = match target.seen(to) {
            Err(VfsError::NotFound) => None,
            other => Some(other?),
        };
        let victim = there.as_ref().and_then(|(vino, attr)| self.victim(*vino, attr));
        let there = there.map(|(vino, _)| vino);
        let moved = match self.seen(from) {
            Err(VfsError::NotFound) => {
                // Returns EACCES rather than ENOENT without search permission, so that the caller does not learn whether the name
                // exists.
                self.permitted(by.cred, perm::EXECUTE, &before)?;
                return Err(self.or_stale(VfsError::NotFound));
            }
            other => other?,
        };
        let (moved, its) = moved;
        // Two names of one file both stay (POSIX rename), and the directories are unchanged.
        let stays = there == Some(moved);
        let replaces = there.is_some() && !stays;
        if there.is_some() && !replace {
            return Err(VfsError::Exists);
        }
        let rename = |perm: &Perm| self.rename_now(&old, target, &new, perm);
        let names = [(self, from, &before), (target, to, &to_before)];
        let listed = by.is_helped()
            || self.by_list(by.cred, &before)?.is_some()
            || target.vino != self.vino && target.by_list(by.cred, &to_before)?.is_some();
        let by_lists = || {
            let (leaves, comes) = self.may_move(by, names, replaces)?;
            leaves.run_both(comes, rename)
        };
        let done = if listed {
            by_lists()
        } else {
            self.may_change_parent(by, names).and_then(|()| rename(&self.volume.perm(by.cred)?))
        };
        let done = match done {
            // The file's own list may still permit the removal.
            Err(e @ (VfsError::Access | VfsError::Perm)) if !listed && by.cred.uid != 0 => {
                by_lists().map_err(|_| e)
            }
            other => other,
        };
        let done = match done {
            // The MDS first checks whether the directory is empty, and only then the type of the replacement.
            Err(VfsError::NotEmpty) if its.kind != Kind::Dir => Err(VfsError::IsDir),
            other => other,
        };
        done.map_err(|e| self.or_stale(target.or_stale(e)))?;
        if stays {
            let same = |a| DirChange { before: a, after: a, atomic: true };
            return Ok((same(before), same(to_before)));
        }
        lost_a_name(victim);
        if let Some(moved) = target.known(to) {
            moved.is_at(target, to);
        }
        let change = DirChange { before, after: self.attr()?, atomic: false };
        let to_change = DirChange { before: to_before, after: target.attr()?, atomic: false };
        Ok((change, to_change))
    }

    /// A directory that gets another parent must be writable for the caller, as its `..` changes (rename(2)); the library does not
    /// check that.
    fn may_change_parent(
        &self,
        by: &Acting<'_>,
        [(_, from, _), (target, ..)]: [(&CephNode, &[u8], &Attr); 2],
    ) -> VfsResult<()> {
        if by.cred.uid == 0 || self.vino == target.vino {
            return Ok(());
        }
        let (node, attr) = self.find(from)?;
        match node.kind {
            Kind::Dir => node.permitted(by.cred, perm::CHANGE_PARENT, &attr),
            _ => Ok(()),
        }
    }

    /// Checks what a rename needs where lists are stored: removing the name here, adding it there, and removing a replaced file.
    fn may_move<'a>(
        &'a self,
        by: &Acting<'_>,
        names: [(&'a CephNode, &'a [u8], &Attr); 2],
        replaces: bool,
    ) -> VfsResult<(super::decide::Override<'a>, super::decide::Override<'a>)> {
        let [(_, from, before), (target, to, to_before)] = names;
        let (moved, its) = self.seen(from)?;
        let leaves = self.may_take(by, from, before)?.of_exactly(from, moved);
        let comes = target.allows_names(by, perm::adding(its.kind), to_before)?;
        self.may_change_parent(by, names)?;
        if !replaces {
            return Ok((leaves, comes));
        }
        let (there, _): (Vino, _) = target.seen(to)?;
        Ok((leaves, target.may_take(by, to, to_before)?.of_exactly(to, there)))
    }

    pub(super) fn do_link(
        &self,
        by: &Acting<'_>,
        dir: &dyn Node,
        name: &[u8],
    ) -> VfsResult<(Attr, DirChange)> {
        let target = self.same_backend(dir)?;
        let its_name = target.change_name(name)?;
        if self.kind == Kind::Dir {
            return Err(VfsError::IsDir);
        }
        let before = target.attr()?;
        let link =
            |perm: &Perm| target.by_name(|| self.inode().link(target.inode(), &its_name, perm));
        let its = self.attr()?;
        let is_listed = self.by_list(by.cred, &its)?.is_some();
        let made = match target.decide(by, perm::ADD_FILE, &before) {
            Ok(Judge::Library) if is_listed => {
                // The library does not know the lists by which the caller may read and write it.
                self.may_be_linked(by.cred, &its)?;
                let power = target.allows_names(by, perm::ADD_FILE, &before);
                power.and_then(|power| power.run(link))
            }
            Ok(Judge::List(power)) => {
                self.may_be_linked(by.cred, &its)?;
                power.run(link)
            }
            Ok(Judge::Library) => link(&self.volume.perm(by.cred)?),
            Err(VfsError::Access) if target.permitted(by.cred, perm::EXECUTE, &before).is_ok() => {
                match target.seen(name) {
                    Ok(_) => Err(VfsError::Exists),
                    Err(VfsError::NotFound) => Err(VfsError::Access),
                    Err(e) => Err(e),
                }
            }
            Err(e) => Err(e),
        };
        made.map_err(|e| {
            let gone = e == VfsError::NotFound && self.attr().is_ok_and(|a| a.nlink == 0);
            if gone { VfsError::Stale } else { target.or_stale(e) }
        })?;
        self.is_at(target, name);
        Ok((self.attr()?, DirChange { before, after: target.attr()?, atomic: false }))
    }

    /// Finds the gateway's own folder in this one. A folder that another user has created or can enter is refused: that user could
    /// read and change the clients' data in it.
    pub(super) fn open_hidden(&self, make: bool) -> VfsResult<Option<Arc<CephNode>>> {
        if make {
            self.changeable()?;
            let name = self.volume.done(Name::new(HIDDEN))?;
            match self.by_name(|| self.inode().mkdir(&name, 0o700, &self.volume.process)) {
                Ok(_) | Err(VfsError::Exists) => {}
                Err(e) => return Err(e),
            }
        }
        let (node, attr) = match self.find(HIDDEN) {
            Err(VfsError::NotFound) => return Ok(None),
            other => other?,
        };
        if attr.kind != Kind::Dir || attr.uid != 0 || attr.mode & 0o077 != 0 {
            self.volume.is_open_to_others();
            return Err(VfsError::NotSupported);
        }
        Ok(Some(node))
    }

    /// See [`super::CephBackend::prove`].
    pub(super) fn prove(&self) -> VfsResult<()> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| VfsError::Resources)?;
        let name = format!(".headgate-check-{:016x}", u64::from_be_bytes(random));
        let root = Cred::root();
        let made = self.do_create(
            &Acting::caller(&root),
            name.as_bytes(),
            CreateHow::Guarded,
            SetAttr { mode: Some(0o600), ..SetAttr::default() },
        )?;
        let node = self.same_backend(&*made.node)?;
        let file = node.file()?;
        let wrote = self.volume.done(file.write(0, &[std::io::IoSlice::new(b"headgate")]));
        let kept = node.do_side_set("probe", Some(b"1"));
        drop(file);
        let removed = self.take_name(name.as_bytes(), false, &self.volume.process);
        wrote.and(kept).and(removed)
    }
}

/// A file about to lose a name, and whether that is its last, as far as known.
type Victim = (Arc<CephNode>, bool);

/// Handles the loss of a name; after the last one, the record is released.
fn lost_a_name(victim: Option<Victim>) {
    match victim {
        // No request to the MDS is needed: a file that got another name meanwhile is found by that.
        Some((node, true)) => node.volume.records.forget(&node),
        Some((node, false)) => {
            // Reading the attributes of a file with link count 0 removes its record.
            let _ = node.attr();
        }
        None => {}
    }
}
