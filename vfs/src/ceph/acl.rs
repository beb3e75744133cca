//! Access control lists of CephFS files: the NFSv4 list stored with a file, and the POSIX lists that the cluster supports.
//!
//! *Operation.* An NFSv4 list is side data ([`crate::acl::NAME`]). Other clients of the cluster ignore it and use the mode bits,
//! which are set together with the list. A POSIX list set on a file later is newer than ours and takes precedence: setting ours
//! removes it.
//!
//! *Errors.* An unreadable record counts as no list, because mode bits were set with it.

use std::sync::Arc;

use crate::acl::posix::{self, Change, Lists, Posix};
use crate::acl::steps::{Step, steps};
use crate::acl::{self, Acl, Kept, Owner};
use crate::error::{VfsError, VfsResult};
use crate::types::*;

use super::node::CephNode;

/// The attribute in which the library exposes POSIX lists.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

impl CephNode {
    pub(super) fn do_acl(&self, attr: &Attr) -> VfsResult<Option<Arc<Acl>>> {
        Ok(self.beside(attr)?.acl.clone())
    }

    pub(super) fn do_acl_shown(&self, attr: &Attr) -> VfsResult<Arc<Acl>> {
        let beside = self.beside(attr)?;
        if let Some(acl) = &beside.acl {
            return Ok(acl.clone());
        }
        let is_dir = self.kind == Kind::Dir;
        let (access, default) = (beside.access.as_deref(), beside.default.as_deref());
        let of_host = posix::list(attr.mode, access, default, is_dir);
        Ok(Arc::new(of_host.unwrap_or_else(|| Acl::of_mode(attr.mode, is_dir))))
    }

    pub(super) fn do_acl_set(&self, acl: &Acl, mode: u32) -> VfsResult<()> {
        self.changeable()?;
        let attr = self.attr()?;
        let kept = Kept { mode: mode & 0o777, owner: Owner::of(&attr), acl: acl.clone() };
        let mut narrowed = false;
        for step in steps(attr.mode, mode & 0o777) {
            match step {
                Step::Close(mode) => {
                    self.chmod(mode)?;
                    narrowed = true;
                }
                Step::Keep => {
                    let done = self.do_side_set(acl::NAME, Some(&kept.encode()));
                    if done.is_err() && narrowed {
                        // The previous list matched the previous mode bits, so both are restored.
                        self.chmod(attr.mode)?;
                    }
                    done?;
                }
                Step::TakeAway => {
                    self.set_value(ACCESS, None)?;
                    if self.kind == Kind::Dir {
                        self.set_value(DEFAULT, None)?;
                    }
                }
                Step::Open(mode) => self.chmod(mode)?,
            }
        }
        Ok(())
    }

    pub(super) fn do_posix(&self, attr: &Attr) -> VfsResult<Lists> {
        let beside = self.beside(attr)?;
        if let Some(acl) = &beside.acl {
            return Ok(Lists { access: acl.posix(Owner::of(attr)), default: None });
        }
        let list = |value: &Option<Vec<u8>>| value.as_deref().and_then(Posix::parse);
        Ok(Lists {
            access: list(&beside.access).unwrap_or_else(|| Posix::of_mode(attr.mode)),
            default: list(&beside.default),
        })
    }

    pub(super) fn do_posix_set(&self, change: &Change) -> VfsResult<()> {
        self.changeable()?;
        let is_dir = self.kind == Kind::Dir;
        match &change.default {
            Some(Some(_)) if !is_dir => return Err(VfsError::Invalid),
            Some(Some(default)) => self.set_value(DEFAULT, Some(&default.encode()))?,
            Some(None) if is_dir => self.set_value(DEFAULT, None)?,
            _ => {}
        }
        if let Some(access) = &change.access {
            self.set_value(ACCESS, Some(&access.encode()))?;
            self.do_side_set(acl::NAME, None)?;
        }
        Ok(())
    }
}
