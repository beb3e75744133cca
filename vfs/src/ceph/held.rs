//! What the record of an inode holds of it besides the inode itself.

use std::sync::Arc;

use ceph_sys::{Dir, File, Vino};

use crate::acl::Acl;
use crate::dos::Dos;
use crate::types::{DirEntry, XattrSizes};

/// An inode that is open for data.
pub(super) struct Open(pub(super) Arc<File>);

/// An open listing and where it stands.
pub(super) struct Listing {
    pub(super) dir: Dir,
    /// The cookie behind which it goes on.
    pub(super) at: u64,
    /// The next entry, where it was looked at already.
    pub(super) ahead: Option<DirEntry>,
}

/// A directory and a name in it.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) dir: Vino,
    pub(super) name: Box<[u8]>,
}

/// What is kept with a node.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// The list of NFSv4, as owner and mode leave it.
    pub(super) acl: Option<Arc<Acl>>,
    /// The POSIX list as one of NFSv4.
    pub(super) of_host: Option<Acl>,
    /// The POSIX lists themselves.
    pub(super) access: Option<Vec<u8>>,
    pub(super) default: Option<Vec<u8>>,
    pub(super) dos: Dos,
    pub(super) sizes: XattrSizes,
}
