//! Attributes and permission checks of local files.
//!
//! *Operation.* The kernel decides. On an ordinary local file system, for a file without an access control list, its decision
//! follows from mode, owner and group ([`crate::perm`]) and is computed, because switching to the caller costs several times as
//! much as most operations; otherwise, and to learn the reason of a refusal, `faccessat2` is called as the caller. The owner of a
//! regular file needs no permission for reads and writes: the file may have been opened before a chmod (RFC 1813 section 4.4).
//!
//! If an access control list is stored with a file ([`super::acl`]), the list decides instead of the kernel: permitted operations
//! are done as the process.

use mutex::locked;
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::acl::{Acl, Owner, mask};
use crate::error::{VfsError, VfsResult};
use crate::perm::{self, Need, R, W, X};
use crate::types::*;

use super::Volume;
use super::names::LARGE;
use super::node::LocalNode;
use super::proc_path::ProcPath;
use super::sys;

/// An upper bound for the resolution of a tick-based kernel clock for change times.
const TICK: Duration = Duration::from_millis(50);

impl LocalNode {
    /// The rights that mode, owner and group grant the caller, if no other rule applies. `has_list`: whether the host has a list
    /// for the node; `None`: unknown.
    fn rights(&self, cred: &Cred, attr: &Attr, has_list: Option<bool>) -> Option<u32> {
        let volume = &self.volume;
        let who = volume.identity.effective(cred);
        if volume.identity.is_single() || !volume.posix || self.fixed.load(Ordering::Relaxed) {
            return None;
        }
        if who.uid != 0 && has_list.unwrap_or_else(|| self.has_list(attr)) {
            return None;
        }
        Some(perm::rights(self.kind, attr.mode, attr.uid, attr.gid, who))
    }

    /// True if the file has a POSIX access control list, or if that is unknown. Cached until its change time differs; a very recent
    /// change time may cover several changes and is not trusted.
    pub(super) fn has_list(&self, attr: &Attr) -> bool {
        if let Some((ctime, has)) = *locked(&self.listed)
            && ctime == attr.ctime
        {
            return has;
        }
        let has = match self.volume.acl(self.fd()) {
            Err(VfsError::NoXattr | VfsError::NotSupported) => false,
            Ok(()) | Err(_) => true,
        };
        if self.volume.is_settled(attr.ctime) {
            *locked(&self.listed) = Some((attr.ctime, has));
        }
        has
    }

    /// The caller's rights by the stored list; `None` if there is no list, and for the superuser.
    pub(super) fn by_list(&self, cred: &Cred, attr: &Attr) -> VfsResult<Option<u32>> {
        Ok(self.judged(cred, attr)?.0)
    }

    /// The caller's rights as [`LocalNode::by_list`] returns them, and whether the host has a list for the node, if that is known.
    fn judged(&self, cred: &Cred, attr: &Attr) -> VfsResult<(Option<u32>, Option<bool>)> {
        if cred.uid == 0 {
            return Ok((None, None));
        }
        let lists = self.stored_lists(attr)?;
        let allowed = lists.acl.map(|acl| acl.allowed(cred, Owner::of(attr)));
        Ok((allowed, lists.has_access))
    }

    /// Checks that the caller has the needed rights; `attr` was read just before.
    pub(super) fn permitted(&self, cred: &Cred, need: Need, attr: &Attr) -> VfsResult<()> {
        let (by_list, has_list) = self.judged(cred, attr)?;
        if let Some(allowed) = by_list {
            return perm::enough(allowed, need);
        }
        if self.rights(cred, attr, has_list).is_some_and(|r| r & need.bits == need.bits) {
            return Ok(());
        }
        self.volume.identity.run(cred, || sys::access(self.fd(), need.bits))
    }

    /// Like [`LocalNode::permitted`], but reads the attributes first.
    pub(super) fn permitted_now(&self, cred: &Cred, need: Need) -> VfsResult<()> {
        self.permitted(cred, need, &self.attr()?)
    }

    /// Runs a call that looks up or changes names in this directory without creating any: as the process if the caller has
    /// permission, else as the caller, so that the kernel returns the error.
    pub(super) fn on_names<T: Send>(
        &self,
        cred: &Cred,
        need: Need,
        attr: Option<&Attr>,
        f: impl FnOnce() -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        if cred.uid == 0 {
            return self.volume.identity.run(cred, f);
        }
        let attr = match attr {
            Some(attr) => *attr,
            None => self.attr()?,
        };
        // In a sticky directory the owner of the file matters.
        let sticky = need.bits & W != 0 && attr.mode & 0o1000 != 0;
        let (by_list, has_list) = self.judged(cred, &attr)?;
        if let Some(allowed) = by_list {
            perm::enough(allowed, need)?;
            return if sticky && cred.uid != attr.uid { Err(VfsError::Perm) } else { f() };
        }
        let identity = &self.volume.identity;
        let enough = |rights: u32| !sticky && rights & need.bits == need.bits;
        if !identity.differs(cred) || self.rights(cred, &attr, has_list).is_some_and(enough) {
            return f();
        }
        identity.run(cred, f)
    }

    /// Checks that the caller may read or write the file's data; `attr` was read just before.
    pub(super) fn may_use_data(&self, cred: &Cred, attr: &Attr, write: bool) -> VfsResult<()> {
        if cred.uid == 0 || cred.uid == attr.uid {
            return Ok(());
        }
        let who = self.volume.identity.effective(cred);
        let owns = who.uid == 0 || who.uid == attr.uid;
        if owns && self.by_list(cred, attr)?.is_none() {
            return Ok(());
        }
        if write { self.permitted(cred, perm::WRITE, attr) } else { self.readable(cred, attr) }
    }

    /// Checks for read permission, or for execute permission, which an NFS client can use only by reading.
    fn readable(&self, cred: &Cred, attr: &Attr) -> VfsResult<()> {
        let why = match self.permitted(cred, perm::READ, attr) {
            Err(why @ VfsError::Access) => why,
            other => return other,
        };
        match self.do_acl(attr)? {
            Some(acl) if acl.runs(cred, Owner::of(attr)) => Ok(()),
            Some(_) => Err(why),
            None => self.permitted(cred, perm::EXECUTE, attr),
        }
    }

    pub(super) fn do_open(&self, cred: &Cred, read: bool, write: bool) -> VfsResult<Attr> {
        self.regular()?;
        if write {
            self.volume.writable()?;
        }
        let attr = self.attr()?;
        match (read, write) {
            (true, true) => self.permitted(cred, perm::BOTH, &attr)?,
            (false, true) => self.permitted(cred, perm::WRITE, &attr)?,
            (true, false) => self.readable(cred, &attr)?,
            (false, false) => {}
        }
        Ok(attr)
    }

    pub(super) fn do_access(&self, cred: &Cred, wanted: Access, attr: &Attr) -> VfsResult<Access> {
        let (by_list, has_list) = self.judged(cred, attr)?;
        self.access_by(cred, wanted, attr, (by_list, has_list))
    }

    /// Like [`LocalNode::do_access`], with the stored list by which it was decided.
    pub(super) fn do_acl_access(
        &self,
        cred: &Cred,
        wanted: Access,
        attr: &Attr,
    ) -> VfsResult<(Option<Arc<Acl>>, Access)> {
        let lists = self.stored_lists(attr)?;
        let by_list = lists.acl.as_ref().filter(|_| cred.uid != 0);
        let by_list = by_list.map(|acl| acl.allowed(cred, Owner::of(attr)));
        let access = self.access_by(cred, wanted, attr, (by_list, lists.has_access))?;
        Ok((lists.acl, access))
    }

    fn access_by(
        &self,
        cred: &Cred,
        wanted: Access,
        attr: &Attr,
        (by_list, has_list): (Option<u32>, Option<bool>),
    ) -> VfsResult<Access> {
        const CHANGES: u32 = Access::MODIFY | Access::EXTEND | Access::DELETE | Access::XATTR_WRITE;
        let asked = || perm::of_access(self.kind).iter().filter(|(bit, _)| wanted.0 & bit != 0);
        let may = match by_list {
            Some(allowed) => asked()
                .filter(|(_, need)| allowed & need.rights == need.rights)
                .fold(0, |may, (bit, _)| may | bit),
            None => {
                let all = asked().fold(0, |all, (_, need)| all | need.bits);
                let rights = match self.rights(cred, attr, has_list) {
                    Some(rights) => rights & all,
                    None => self.ask(cred, all)?,
                };
                asked()
                    .filter(|(_, need)| rights & need.bits == need.bits)
                    .fold(0, |may, (bit, _)| may | bit)
            }
        };
        Ok(Access(if self.volume.read_only { may & !CHANGES } else { may }))
    }

    /// The rights in `all` that the kernel grants.
    fn ask(&self, cred: &Cred, all: u32) -> VfsResult<u32> {
        self.volume.identity.run(cred, || {
            if all == 0 || sys::access(self.fd(), all).is_ok() {
                return Ok(all);
            }
            let mut may = 0;
            for one in [R, W, X].into_iter().filter(|one| all & one != 0) {
                match sys::access(self.fd(), one) {
                    Ok(()) => may |= one,
                    Err(VfsError::Access | VfsError::Perm | VfsError::ReadOnly) => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(may)
        })
    }

    pub(super) fn do_setattr(
        &self,
        cred: &Cred,
        set: &SetAttr,
        open_write: bool,
    ) -> VfsResult<(Attr, Attr)> {
        self.volume.writable()?;
        let before = self.attr()?;
        if set.size.is_some() {
            self.regular()?;
            if !open_write {
                self.may_use_data(cred, &before, true)?;
            }
        }
        self.apply(cred, set, &before)?;
        Ok((before, self.attr()?))
    }

    pub(super) fn do_may(&self, cred: &Cred, intent: Intent<'_>) -> VfsResult<()> {
        match intent {
            Intent::Read => {
                self.regular()?;
                self.may_use_data(cred, &self.attr()?, false)
            }
            Intent::Write => {
                self.volume.writable()?;
                self.regular()?;
                self.may_use_data(cred, &self.attr()?, true)
            }
            Intent::Set { set, open_write } => self.may_set(cred, set, open_write),
            Intent::SetXattr if !matches!(self.kind, Kind::File | Kind::Dir) => {
                Err(VfsError::NotSupported)
            }
            Intent::SetXattr => self.permitted_now(cred, perm::WRITE_XATTR),
            // The kernel applies the same rule when it decides.
            Intent::Link if self.volume.posix => self.may_be_linked(cred, &self.attr()?),
            Intent::Link => Ok(()),
            Intent::Add(kind) => self.permitted_now(cred, perm::adding(kind)),
        }
    }

    /// Checks all known rules against a change of attributes. If the file system has additional rules, the call itself detects
    /// them.
    fn may_set(&self, cred: &Cred, set: &SetAttr, open_write: bool) -> VfsResult<()> {
        self.volume.writable()?;
        let attr = self.attr()?;
        if set.size.is_some() {
            self.regular()?;
            if !open_write {
                self.may_use_data(cred, &attr, true)?;
            }
        }
        let owner = Owner::of(&attr);
        if let Some(allowed) = self.by_list(cred, &attr)? {
            return perm::may_set(allowed, cred, owner, set);
        }
        if !self.volume.posix {
            return Ok(());
        }
        let who = self.volume.identity.effective(cred);
        // Linux stores no mode for symbolic links.
        let mode = set.mode.filter(|_| self.kind != Kind::Symlink);
        match perm::may_set_by_mode(who, owner, &SetAttr { mode, ..*set })? {
            true => self.permitted(cred, perm::WRITE, &attr),
            false => Ok(()),
        }
    }

    pub(super) fn do_may_date(&self, cred: &Cred, attr: &Attr) -> VfsResult<bool> {
        let who = self.volume.identity.effective(cred);
        Ok(match self.by_list(cred, attr)? {
            Some(allowed) => cred.uid == attr.uid || allowed & mask::WRITE_ATTRIBUTES != 0,
            None => who.uid == 0 || who.uid == attr.uid,
        })
    }

    /// Returns the record itself if the folder is large: one call may read it all to find the next name, because ext4 keeps the
    /// blocks of removed names.
    pub(super) fn apart_if_large(&self) -> Option<Arc<Self>> {
        let is_large = self.size.load(Ordering::Relaxed) > self.volume.large_folder;
        self.strong().ok().filter(|_| is_large)
    }

    /// Returns the record itself if the file will lose more than [`LARGE`] bytes, which takes long.
    pub(super) fn apart_if_it_frees_much(&self, set: &SetAttr) -> Option<Arc<Self>> {
        let frees = self.size.load(Ordering::Relaxed).saturating_sub(set.size?);
        self.strong().ok().filter(|_| frees > LARGE)
    }

    /// Sets attributes as the caller, by the kernel's rules: owner first, because that clears the set-id bits that a new mode may
    /// set; times last, because a new size changes them.
    pub(super) fn apply(&self, cred: &Cred, set: &SetAttr, attr: &Attr) -> VfsResult<()> {
        if *set == SetAttr::default() {
            return Ok(());
        }
        let data = match set.size {
            Some(_) => Some(self.data_fd(true)?),
            None => None,
        };
        let mut mode = set.mode;
        let listed = self.by_list(cred, attr)?;
        if let Some(allowed) = listed {
            let owner = Owner::of(attr);
            perm::may_set(allowed, cred, owner, set)?;
            mode = mode.map(|mode| perm::settable(mode, cred, owner));
        }
        let rest = || {
            if set.uid.is_some() || set.gid.is_some() {
                self.chown(set.uid, set.gid)?;
            }
            if let Some(mode) = mode {
                self.chmod(mode)?;
            }
            Ok(())
        };
        let times = || match (set.atime, set.mtime) {
            (None, None) => Ok(()),
            (atime, mtime) => self.utimes(atime, mtime),
        };
        let cut = || match (set.size, &data) {
            (Some(size), Some(fd)) => {
                rustix::fs::ftruncate(fd, size).map_err(|e| match VfsError::from(e) {
                    VfsError::Invalid => VfsError::TooBig,
                    e => e,
                })
            }
            _ => Ok(()),
        };
        let done = match listed {
            // Runs as the caller, so that the kernel clears set-id bits.
            Some(_) => {
                rest().and_then(|()| self.volume.identity.run(cred, cut)).and_then(|()| times())
            }
            None if self.dates_by_writing(cred, set, attr)? => {
                let others = SetAttr { atime: None, mtime: None, ..*set };
                self.setting(cred, &others, attr, || rest().and_then(|()| cut()))
                    .and_then(|()| times())
            }
            None => {
                self.setting(cred, set, attr, || rest().and_then(|()| cut()).and_then(|()| times()))
            }
        };
        self.changed();
        done
    }

    /// True if the caller sets times that only its write permission allows: a writer may set the times of another owner's file to
    /// now, both or one; the kernel allows only both together, and Linux' NFS client sends one with each change of size. Checked
    /// before any attribute is set: times come last, when data may be gone.
    fn dates_by_writing(&self, cred: &Cred, set: &SetAttr, attr: &Attr) -> VfsResult<bool> {
        let times = [set.atime, set.mtime];
        let who = self.volume.identity.effective(cred).uid;
        if times == [None, None] || !self.volume.posix || who == 0 || who == attr.uid {
            return Ok(false);
        }
        if times.iter().any(|t| matches!(t, Some(SetTime::At(_)))) {
            return Err(VfsError::Perm);
        }
        self.permitted(cred, perm::WRITE, attr)?;
        Ok(true)
    }

    /// Runs `f`, which sets attributes: as the process if the kernel would allow the caller the same with the same result, else as
    /// the caller.
    fn setting<T: Send>(
        &self,
        cred: &Cred,
        set: &SetAttr,
        attr: &Attr,
        f: impl FnOnce() -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        let identity = &self.volume.identity;
        let owner = identity.effective(cred).uid == attr.uid;
        let plain_size = set.size.is_none() || attr.mode & 0o6000 == 0;
        let plain_mode = set.mode.is_none_or(|m| owner && m & 0o6000 == 0);
        let plain_times = owner || set.atime.is_none() && set.mtime.is_none();
        let plain_owner = set.uid.is_none() && set.gid.is_none();
        let fixed = self.fixed.load(Ordering::Relaxed);
        if self.volume.posix && !fixed && plain_size && plain_mode && plain_times && plain_owner {
            return f();
        }
        identity.run(cred, f)
    }

    fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> VfsResult<()> {
        // The kernel interprets this number as "unchanged".
        if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
            return Err(VfsError::Invalid);
        }
        let uid = uid.map(rustix::fs::Uid::from_raw);
        let gid = gid.map(rustix::fs::Gid::from_raw);
        Ok(rustix::fs::chownat(self.fd(), c"", uid, gid, AtFlags::EMPTY_PATH)?)
    }

    pub(super) fn chmod(&self, mode: u32) -> VfsResult<()> {
        if self.kind == Kind::Symlink {
            // Linux stores no mode for symbolic links, but clients send one when they create a link.
            return Ok(());
        }
        self.volume.chmod(self.fd(), Mode::from_raw_mode(mode & 0o7777))
    }

    fn utimes(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> VfsResult<()> {
        let spec = |t| match t {
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            Some(SetTime::At(t)) => Timespec { tv_sec: t.sec, tv_nsec: i64::from(t.nsec) },
        };
        if [atime, mtime]
            .iter()
            .any(|t| matches!(t, Some(SetTime::At(t)) if t.nsec >= 1_000_000_000))
        {
            return Err(VfsError::Invalid);
        }
        let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
        Ok(rustix::fs::utimensat(self.fd(), c"", &times, AtFlags::EMPTY_PATH)?)
    }
}

impl Volume {
    /// True if any later change will have a change time different from this one, read just now: because it is old enough (a time in
    /// the future proves no age), or because times are exact.
    pub(super) fn is_settled(&self, ctime: Time) -> bool {
        if self.exact_times {
            return true;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (Ok(sec), nsec) = (u64::try_from(ctime.sec), ctime.nsec) else { return true };
        since.checked_sub(Duration::new(sec, nsec)).is_some_and(|age| age > TICK)
    }

    /// Reads a POSIX access control list: [`VfsError::NoXattr`] if it does not exist.
    fn acl(&self, fd: BorrowedFd<'_>) -> VfsResult<()> {
        let path = ProcPath::of(fd);
        let mut none = [0_u8; 0];
        rustix::fs::getxattr(path.bytes(), c"system.posix_acl_access", &mut none)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LocalBackend, LocalConfig};
    use crate::backend::Backend;
    use crate::types::Cred;

    #[tokio::test]
    async fn single_identity_owner_sets_times() {
        let dir = tempfile::tempdir().unwrap();
        let stranger =
            Cred { uid: 54_321, gid: 54_321, groups: [].into(), token: crate::Token::NONE };
        for unprivileged in [true, false] {
            let config = LocalConfig { unprivileged, ..LocalConfig::new(dir.path()) };
            let root = LocalBackend::open(config).unwrap().root();
            let attr = root.getattr().await.unwrap();
            let is_single = unprivileged || !rustix::process::geteuid().is_root();
            assert_eq!(root.may_date(&stranger, &attr).await, Ok(is_single));
        }
    }
}
