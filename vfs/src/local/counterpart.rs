//! Finds the record of this share for a file that another share has opened.
//!
//! *Operation.* The other record's descriptor leads to the file. By the kernel's path of it the file is in this share or not; a
//! folder that is mounted at several places is found again by its handle.
//!
//! *Errors.* Those of the kernel. A file that the share does not serve is `None`.

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::types::Kind;

use super::handle::{self, Form, Parsed};
use super::node::LocalNode;
use super::{LocalBackend, stat, sys};

impl LocalBackend {
    pub(super) fn find_counterpart(&self, other: &LocalNode) -> VfsResult<Option<NodeRef>> {
        let volume = &self.volume;
        if let Some(node) = volume.cache.by_inode(other.dev, other.ino) {
            return Ok(Arc::ptr_eq(&node.shared, &other.shared).then_some(node as NodeRef));
        }
        let open = || other.fd().try_clone_to_owned().map_err(VfsError::from);
        let fd = volume.cache.with_room(open)?;
        let seen = stat::of_fd(fd.as_fd())?;
        let served = match volume.is_inside(fd.as_fd()) {
            Ok(true) => volume.adopt(fd, &seen),
            Ok(false) => self.elsewhere_mounted(other),
            Err(e) => Err(e),
        };
        match served {
            Ok(node) => Ok(Some(node as NodeRef)),
            // It is in a mount that this share does not serve, or outside of it.
            Err(VfsError::Access | VfsError::Stale | VfsError::NotFound) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Finds a folder that this share reaches through another mount of the same file system.
    fn elsewhere_mounted(&self, other: &LocalNode) -> VfsResult<Arc<LocalNode>> {
        let (volume, its) = (&self.volume, &other.volume);
        let may_be = other.kind == Kind::Dir
            && other.dev == volume.root_dev
            && its.mount != volume.mount
            && (volume.handles, its.handles) == (Form::Kernel, Form::Kernel);
        let parsed = handle::parse(&other.handle, its.tag, its.handles);
        let (true, Ok(Parsed::Kernel { kind, bytes })) = (may_be, parsed) else {
            return Err(VfsError::Stale);
        };
        let open = || sys::open_by_handle(volume.root.as_fd(), kind, bytes);
        let fd = volume.cache.with_room(open)?;
        let seen = stat::of_fd(fd.as_fd())?;
        if volume.is_inside(fd.as_fd())? { volume.adopt(fd, &seen) } else { Err(VfsError::Stale) }
    }
}
