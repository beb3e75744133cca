//! Further state in the record of an inode.

use std::sync::Arc;

use ceph_sys::{Dir, File, Vino};

use crate::acl::Acl;
use crate::dos::Dos;
use crate::types::{DirEntry, XattrSizes};

/// An inode opened for data.
pub(super) struct Open(pub(super) Arc<File>);

/// An open listing with its position.
pub(super) struct Listing {
    pub(super) dir: Dir,
    /// The cookie of the last entry returned.
    pub(super) at: u64,
    /// The next entry, if it was read already.
    pub(super) ahead: Option<DirEntry>,
}

/// A directory and a name in it.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) dir: Vino,
    pub(super) name: Box<[u8]>,
}

/// Access control lists of a node.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// The NFSv4 list, adjusted to owner and mode.
    pub(super) acl: Option<Arc<Acl>>,
    /// The POSIX list converted to NFSv4.
    pub(super) of_host: Option<Acl>,
    /// The POSIX lists themselves.
    pub(super) access: Option<Vec<u8>>,
    pub(super) default: Option<Vec<u8>>,
    pub(super) dos: Dos,
    pub(super) sizes: XattrSizes,
}
