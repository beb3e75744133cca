//! Side data: values that are kept with a file and that no client sees.
//!
//! *Operation.* The values are extended attributes `trusted.headgate.*` where the process may use them (root with `CAP_SYS_ADMIN`):
//! no local user can change them and every kind of node can have them. Otherwise they are `user.headgate.*`, which are hidden from
//! clients, and access control lists are sealed ([`super::seal`]). The choice is made once for a share. The attributes are reached
//! by the descriptor's name below `/proc`, which needs no open.
//!
//! *Errors.* [`VfsError::NotSupported`] where the file system or the kind of node has no such attributes; a reader treats this as
//! "no value".

use std::os::fd::AsFd;

use mutex::locked;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::acl;
use crate::backend::check_side_name;
use crate::dos::{self, Dos};
use crate::engine::limits::SIDE_MAX;
use crate::error::{VfsError, VfsResult};
use crate::reparse;
use crate::types::{Attr, Kind, XattrSizes};
use crate::waste_record;
use crate::xattrs::{self, PREFIX, SAMBA};

use super::HIDDEN;
use super::held::{Beside, StoredLists};
use super::node::LocalNode;
use super::proc_path::ProcPath;
use super::stat::{self, Stat};
use super::xattr::{growing, seen_by_clients};

/// Room for a record of DOS attributes, also one written by Samba.
const RECORD_MAX: usize = 128;

impl LocalNode {
    pub(super) fn side_name(&self, name: &str) -> VfsResult<String> {
        check_side_name(name)?;
        let space = if self.volume.trusted { "trusted" } else { "user" };
        Ok(format!("{space}.headgate.{name}"))
    }

    /// True if this record decides about permission and is kept where local users can write.
    fn is_sealed(&self, name: &str) -> bool {
        [acl::NAME, waste_record::NAME].contains(&name) && !self.volume.trusted
    }

    pub(super) fn do_side_get(&self, name: &str) -> VfsResult<Option<Vec<u8>>> {
        let whole = self.side_name(name)?;
        let path = ProcPath::of(self.fd());
        match growing(|room| rustix::fs::getxattr(path.bytes(), &whole[..], room)) {
            Err(VfsError::NoXattr | VfsError::NotSupported | VfsError::Perm) => Ok(None),
            Ok(value) if self.is_sealed(name) => self.unseal(&value),
            other => other.map(Some),
        }
    }

    pub(super) fn do_side_set(&self, name: &str, value: Option<&[u8]>) -> VfsResult<()> {
        self.volume.writable()?;
        if value.is_some_and(|v| v.len() > SIDE_MAX) {
            return Err(VfsError::XattrTooBig);
        }
        let sealed = match value {
            Some(record) if self.is_sealed(name) => Some(self.seal(record)?),
            _ => None,
        };
        let value = sealed.as_deref().or(value);
        let name = self.side_name(name)?;
        let path = ProcPath::of(self.fd());
        let done = match value {
            Some(v) => rustix::fs::setxattr(path.bytes(), &name[..], v, XattrFlags::empty()),
            None => match rustix::fs::removexattr(path.bytes(), &name[..]) {
                Err(Errno::NODATA) => return Ok(()),
                other => other,
            },
        };
        *locked(&self.beside) = None;
        *locked(&self.lists) = None;
        self.changed();
        done.map_err(|e| match e {
            // The node is neither file nor directory, so it has no `user.` attributes.
            Errno::PERM if !matches!(self.kind, Kind::File | Kind::Dir) => VfsError::NotSupported,
            e => e.into(),
        })
    }

    /// Notes that a file which the process just created has no side data while its change time equals its birth time. Only for
    /// volumes where a change in between cannot go unnoticed.
    pub(super) fn note_as_born(&self, stat: &Stat) {
        let ctime = stat.attr.ctime;
        if self.volume.exact_times && self.volume.trusted && stat.attr.btime == Some(ctime) {
            *locked(&self.lists) = Some((ctime, StoredLists::default()));
            let (dos, xattrs) = Default::default();
            *locked(&self.beside) = Some(Beside { ctime, dos, xattrs });
        }
    }

    /// Returns the side data of the node. The result is kept until the change time moves, like the access control list. One listing
    /// of attribute names tells which values exist, so a file without side data costs one call.
    pub(super) fn beside(&self, attr: &Attr) -> VfsResult<Beside> {
        if let Some(known) = *locked(&self.beside)
            && known.ctime == attr.ctime
        {
            return Ok(known);
        }
        let path = ProcPath::of(self.fd());
        let names = match growing(|room| rustix::fs::listxattr(path.bytes(), room)) {
            Err(VfsError::NotSupported | VfsError::Perm) => Vec::new(),
            other => other?,
        };
        let dos = self.dos_of(&path, &names)?;
        let mut xattrs = XattrSizes::default();
        if matches!(self.kind, Kind::File | Kind::Dir) {
            for name in seen_by_clients(&names) {
                let whole = [PREFIX, name].concat();
                // An attribute that was removed since the listing is left out.
                if let Ok(value) = rustix::fs::getxattr_query(path.bytes(), &whole[..]) {
                    xattrs.add(name.len(), value);
                }
            }
        }
        let found = Beside { ctime: attr.ctime, dos, xattrs };
        if self.volume.is_settled(attr.ctime) {
            *locked(&self.beside) = Some(found);
        }
        Ok(found)
    }

    /// Reads the record of DOS attributes, in the format of the gateway or of Samba, and that of a reparse point.
    fn dos_of(&self, path: &ProcPath, names: &[u8]) -> VfsResult<Dos> {
        let has = |name: &str| xattrs::names(names).any(|n| n == name.as_bytes());
        let ask = |name: &str| {
            if !has(name) {
                return Ok(None);
            }
            let mut room = [0; RECORD_MAX];
            match rustix::fs::getxattr(path.bytes(), name, &mut room[..]) {
                Ok(n) => Ok(Some(room[..n.min(RECORD_MAX)].to_vec())),
                // `RANGE`: the value is too large for a record.
                Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::RANGE) => Ok(None),
                Err(e) => Err(VfsError::from(e)),
            }
        };
        let has_samba = matches!(self.kind, Kind::File | Kind::Dir);
        let samba = || if has_samba { ask(SAMBA) } else { Ok(None) };
        let reparse = match has(&self.side_name(reparse::NAME)?) {
            true => self.do_side_get(reparse::NAME)?,
            false => None,
        };
        xattrs::dos(ask(&self.side_name(dos::NAME)?)?, samba, reparse)
    }

    pub(super) fn do_path(&self) -> VfsResult<Vec<u8>> {
        let border = self.volume.border.root.as_fd();
        if self.is_root() && self.volume.covers.is_none() {
            return Ok(Vec::new());
        }
        let root = self.volume.path_of(border)?;
        let path = self.volume.path_of(self.fd())?;
        let below = path.strip_prefix(&root[..]).ok_or(VfsError::Stale)?;
        let below = if root == b"/" { below } else { below.strip_prefix(b"/").unwrap_or_default() };
        if below.is_empty() || below.split(|c| *c == b'/').any(|name| name == HIDDEN) {
            return Err(VfsError::Stale);
        }
        // The kernel appends this mark to the name of a removed file, but a file may really have such a name.
        if below.ends_with(b" (deleted)") {
            let there = stat::of_name(border, below).ok();
            if there.is_none_or(|s| (s.dev, s.ino) != (self.dev, self.ino)) {
                return Err(VfsError::Stale);
            }
        }
        Ok(below.to_vec())
    }
}
