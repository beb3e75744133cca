//! Extended attributes in the `user.` namespace.
//!
//! *Operation.* The kernel's calls on open files and directories, with the caller's credentials, because the kernel checks read or
//! write permission on the file at each call; where the file has an access control list, the list decides instead. Linux has no
//! `user.` attributes on other kinds of nodes.
//!
//! *Errors.* [`VfsError::NoXattr`] for a name that does not exist; [`VfsError::NotSupported`] where the file cannot have any
//! attributes.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, XattrFlags};

use crate::engine::limits::XATTR_MAX;
use crate::error::{VfsError, VfsResult};
use crate::perm::{self, Need};
use crate::types::*;
use crate::xattrs::{self, full};

use super::node::LocalNode;

/// First buffer size, large enough for most values.
const FIRST: usize = 4096;

/// Prefix of the side data when the process may not use `trusted.`: hidden from clients.
const HIDDEN: &[u8] = b"headgate.";

/// Returns the names of a list that clients see, without the prefix and without the gateway's side data.
pub(super) fn seen_by_clients(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    xattrs::seen_by_clients(list).filter(|name| !name.starts_with(HIDDEN))
}

/// Calls `ask` with a small buffer first, and with the largest one if that was too small.
pub(super) fn growing(
    mut ask: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> VfsResult<Vec<u8>> {
    let mut room = vec![0; FIRST];
    let n = match ask(&mut room) {
        Err(rustix::io::Errno::RANGE) => {
            room.resize(XATTR_MAX, 0);
            ask(&mut room)?
        }
        other => other?,
    };
    room.truncate(n);
    Ok(room)
}

impl LocalNode {
    /// Runs `f` with the caller's credentials and a descriptor that allows attribute calls.
    fn with_xattrs<T: Send>(
        &self,
        cred: &Cred,
        need: Need,
        f: impl FnOnce(BorrowedFd<'_>) -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        let listed = self.by_list(cred, &self.attr()?)?;
        if let Some(allowed) = listed {
            perm::enough(allowed, need)?;
        }
        let process = Cred::root();
        let cred = if listed.is_some() { &process } else { cred };
        match self.kind {
            Kind::File => {
                let fd = self.data_fd(false)?;
                self.volume.identity.run(cred, || f(fd.as_fd()))
            }
            Kind::Dir => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let dir = self.dir_fd()?;
                let open = || Ok(rustix::fs::openat(dir, c".", flags, Mode::empty())?);
                let fd = self.volume.cache.with_room(open)?;
                self.volume.identity.run(cred, || f(fd.as_fd()))
            }
            _ => Err(VfsError::NotSupported),
        }
    }

    pub(super) fn do_xattr_get(&self, cred: &Cred, name: &[u8]) -> VfsResult<Vec<u8>> {
        if name.starts_with(HIDDEN) {
            return Err(VfsError::NoXattr);
        }
        let name = full(name)?;
        self.with_xattrs(cred, perm::READ_XATTR, |fd| {
            growing(|room| rustix::fs::fgetxattr(fd, &name[..], room))
        })
    }

    pub(super) fn do_xattr_set(
        &self,
        cred: &Cred,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> VfsResult<(Attr, Attr)> {
        self.volume.writable()?;
        if name.starts_with(HIDDEN) {
            return Err(VfsError::Access);
        }
        let name = full(name)?;
        if value.len() > XATTR_MAX {
            return Err(VfsError::XattrTooBig);
        }
        let flags = match how {
            XattrHow::Either => XattrFlags::empty(),
            XattrHow::Create => XattrFlags::CREATE,
            XattrHow::Replace => XattrFlags::REPLACE,
        };
        let before = self.attr()?;
        self.with_xattrs(cred, perm::WRITE_XATTR, |fd| {
            Ok(rustix::fs::fsetxattr(fd, &name[..], value, flags)?)
        })?;
        self.changed();
        Ok((before, self.attr()?))
    }

    pub(super) fn do_xattr_remove(&self, cred: &Cred, name: &[u8]) -> VfsResult<(Attr, Attr)> {
        self.volume.writable()?;
        if name.starts_with(HIDDEN) {
            return Err(VfsError::NoXattr);
        }
        let name = full(name)?;
        let before = self.attr()?;
        self.with_xattrs(cred, perm::WRITE_XATTR, |fd| {
            Ok(rustix::fs::fremovexattr(fd, &name[..])?)
        })?;
        self.changed();
        Ok((before, self.attr()?))
    }

    pub(super) fn do_xattr_list(&self, cred: &Cred) -> VfsResult<Vec<Vec<u8>>> {
        if !matches!(self.kind, Kind::File | Kind::Dir) {
            return Ok(Vec::new());
        }
        // The kernel lists names without a permission check; a client needs the right to read (RFC 8276 section 8.4.3).
        self.permitted_now(cred, perm::READ_XATTR)?;
        let list = self.with_xattrs(cred, perm::READ_XATTR, |fd| {
            growing(|room| rustix::fs::flistxattr(fd, room))
        })?;
        Ok(seen_by_clients(&list).map(<[u8]>::to_vec).collect())
    }
}
