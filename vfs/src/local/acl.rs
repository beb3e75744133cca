//! The access control list stored with a local file.
//!
//! *Operation.* The list is side data ([`crate::acl::NAME`]), cached until the file's change time differs. The kernel ignores it:
//! for programs on the host the mode bits apply, which are set together with the list. A POSIX.1e list set on the host later is
//! newer and takes precedence: setting ours removes it.
//!
//! *Errors.* An unreadable record counts as no list, because mode bits were set with it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use mutex::locked;
use rustix::fs::XattrFlags;

use crate::acl::posix::{self, Change, Lists, Posix};
use crate::acl::steps::{Step, steps};
use crate::acl::{self, Acl, Kept, Owner};
use crate::authority::Acting;
use crate::error::{VfsError, VfsResult};
use crate::perm::{self, Need};
use crate::types::*;

use super::decide::Judge;
use super::held::{FolderNow, StoredLists};
use super::node::LocalNode;
use super::proc_path::ProcPath;
use super::xattr::growing;

/// The attribute in which Linux exposes POSIX lists.
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn read(fd: BorrowedFd<'_>, name: &str) -> VfsResult<Option<Vec<u8>>> {
    let path = ProcPath::of(fd);
    match growing(|room| rustix::fs::getxattr(path.bytes(), name, room)) {
        Err(VfsError::NoXattr | VfsError::NotSupported) => Ok(None),
        other => other.map(Some),
    }
}

fn write(fd: BorrowedFd<'_>, name: &str, list: &Posix) -> VfsResult<()> {
    let path = ProcPath::of(fd);
    Ok(rustix::fs::setxattr(path.bytes(), name, &list.encode(), XattrFlags::empty())?)
}

fn remove(fd: BorrowedFd<'_>, name: &str) -> VfsResult<()> {
    let path = ProcPath::of(fd);
    match rustix::fs::removexattr(path.bytes(), name).map_err(VfsError::from) {
        Err(VfsError::NoXattr | VfsError::NotSupported) => Ok(()),
        other => other,
    }
}

/// Which lists the names of extended attributes tell.
struct Named {
    /// Whether a list of the gateway may be stored.
    is_ours: bool,
    has_access: Option<bool>,
    has_default: Option<bool>,
}

impl LocalNode {
    pub(super) fn do_acl(&self, attr: &Attr) -> VfsResult<Option<Arc<Acl>>> {
        Ok(self.stored_lists(attr)?.acl)
    }

    /// Returns the lists of this node, by one listing of the names of its extended attributes where it has none of ours.
    pub(super) fn stored_lists(&self, attr: &Attr) -> VfsResult<StoredLists> {
        if let Some((ctime, lists)) = &*locked(&self.lists)
            && *ctime == attr.ctime
        {
            return Ok(lists.clone());
        }
        let is_settled = self.volume.is_settled(attr.ctime);
        let named = self.lists_named()?;
        if let Some(has) = named.has_access
            && is_settled
        {
            *locked(&self.listed) = Some((attr.ctime, has));
        }
        let record = if named.is_ours { self.do_side_get(acl::NAME)? } else { None };
        let kept = record.and_then(|record| Kept::decode(&record));
        let is_dir = self.kind == Kind::Dir;
        let acl = kept
            .filter(|_| !named.has_access.unwrap_or_else(|| self.has_list(attr)))
            .map(|kept| Arc::new(kept.now(Owner::of(attr), attr.mode, is_dir).into_owned()));
        let lists =
            StoredLists { acl, has_access: named.has_access, has_default: named.has_default };
        if is_settled {
            *locked(&self.lists) = Some((attr.ctime, lists.clone()));
        }
        Ok(lists)
    }

    /// Returns which lists there are: most nodes have none, which one listing of their extended attributes tells.
    fn lists_named(&self) -> VfsResult<Named> {
        // What must be read, because not every foreign file system reports its lists among the names.
        let unknown = Named { is_ours: true, has_access: None, has_default: None };
        if !self.volume.posix {
            return Ok(unknown);
        }
        let ours = self.side_name(acl::NAME)?;
        let path = ProcPath::of(self.fd());
        Ok(match growing(|room| rustix::fs::listxattr(path.bytes(), room)) {
            Ok(names) => {
                let has = |name: &[u8]| names.split(|b| *b == 0).any(|n| n == name);
                Named {
                    is_ours: has(ours.as_bytes()),
                    has_access: Some(has(ACCESS.as_bytes())),
                    has_default: Some(has(DEFAULT.as_bytes())),
                }
            }
            Err(VfsError::NotSupported) => {
                Named { is_ours: false, has_access: Some(false), has_default: Some(false) }
            }
            // There may be more names than the kernel lists.
            Err(_) => unknown,
        })
    }

    /// Returns the list of this directory, and whether the host gives new nodes in it a default list.
    pub(super) fn do_passed_on(&self, attr: &Attr) -> VfsResult<(Option<Arc<Acl>>, bool)> {
        let lists = self.stored_lists(attr)?;
        let has_default = match lists.has_default {
            _ if lists.acl.is_some() || self.kind != Kind::Dir => false,
            Some(has) => has,
            None => read(self.fd(), DEFAULT)?.and_then(|list| Posix::parse(&list)).is_some(),
        };
        Ok((lists.acl, has_default))
    }

    pub(super) fn do_acl_shown(&self, attr: &Attr) -> VfsResult<Arc<Acl>> {
        if let Some(acl) = self.do_acl(attr)? {
            return Ok(acl);
        }
        let is_dir = self.kind == Kind::Dir;
        let access = if self.has_list(attr) { read(self.fd(), ACCESS)? } else { None };
        let default = if is_dir { read(self.fd(), DEFAULT)? } else { None };
        let of_host = posix::list(attr.mode, access.as_deref(), default.as_deref(), is_dir);
        Ok(Arc::new(of_host.unwrap_or_else(|| Acl::of_mode(attr.mode, is_dir))))
    }

    pub(super) fn do_acl_set(&self, acl: &Acl, mode: u32) -> VfsResult<()> {
        self.volume.writable()?;
        let attr = self.attr()?;
        let is_dir = self.kind == Kind::Dir;
        // A gateway that serves all users with one identity needs access to its own files whatever the list grants.
        let own = match (self.volume.identity.is_single(), is_dir) {
            (false, _) => 0,
            (true, false) => 0o600,
            (true, true) => 0o700,
        };
        let mode = (mode | own) & 0o777;
        let kept = Kept { mode, owner: Owner::of(&attr), acl: acl.clone() };
        let mut narrowed = false;
        for step in steps(attr.mode, mode) {
            let done = match step {
                Step::Close(mode) => self.chmod(mode).inspect(|()| narrowed = true),
                Step::Keep => {
                    let done = self.do_side_set(acl::NAME, Some(&kept.encode()));
                    if done.is_err() && narrowed {
                        // The previous list matched the previous mode bits, so both are restored.
                        self.chmod(attr.mode)?;
                    }
                    done
                }
                Step::TakeAway => self.remove_host_lists(),
                Step::Open(mode) => self.chmod(mode),
            };
            if let Err(e) = done {
                self.changed();
                return Err(e);
            }
        }
        self.changed();
        Ok(())
    }

    /// Removes POSIX lists, so that ours applies.
    fn remove_host_lists(&self) -> VfsResult<()> {
        remove(self.fd(), ACCESS)?;
        if self.kind == Kind::Dir { remove(self.fd(), DEFAULT) } else { Ok(()) }
    }

    pub(super) fn do_posix(&self, attr: &Attr) -> VfsResult<Lists> {
        if let Some(acl) = self.do_acl(attr)? {
            return Ok(Lists { access: acl.posix(Owner::of(attr)), default: None });
        }
        let list = |there: bool, name: &str| -> VfsResult<Option<Posix>> {
            let value = if there { read(self.fd(), name)? } else { None };
            Ok(value.and_then(|value| Posix::parse(&value)))
        };
        Ok(Lists {
            access: list(self.has_list(attr), ACCESS)?.unwrap_or_else(|| Posix::of_mode(attr.mode)),
            default: list(self.kind == Kind::Dir, DEFAULT)?,
        })
    }

    pub(super) fn do_posix_set(&self, change: &Change) -> VfsResult<()> {
        self.volume.writable()?;
        let is_dir = self.kind == Kind::Dir;
        match &change.default {
            Some(Some(_)) if !is_dir => return Err(VfsError::Invalid),
            Some(Some(default)) => write(self.fd(), DEFAULT, default)?,
            Some(None) if is_dir => remove(self.fd(), DEFAULT)?,
            _ => {}
        }
        if let Some(access) = &change.access {
            write(self.fd(), ACCESS, access)?;
            self.do_side_set(acl::NAME, None)?;
        }
        self.changed();
        Ok(())
    }

    /// Creates an object under `name` in this directory, as the caller.
    pub(super) fn making<T: Send>(
        &self,
        by: &Acting<'_>,
        need: Need,
        name: &[u8],
        folder: &FolderNow,
        make: impl FnOnce(BorrowedFd<'_>) -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        let attr = &folder.attr;
        let judge = match folder.may_be_listed || by.is_helped() {
            true => self.decide(by, need, attr),
            false => Ok(Judge::Kernel),
        };
        match judge {
            Ok(Judge::Kernel) => self.volume.identity.run(by.cred, || make(self.fd())),
            Ok(Judge::List(power)) => power.run(by.cred, make),
            Err(VfsError::Access) if self.permitted(by.cred, perm::EXECUTE, attr).is_ok() => {
                match self.volume.stat_of(self.fd(), name) {
                    Ok(_) => Err(VfsError::Exists),
                    Err(VfsError::NotFound) => Err(VfsError::Access),
                    Err(e) => Err(e),
                }
            }
            Err(e) => Err(e),
        }
    }
}
