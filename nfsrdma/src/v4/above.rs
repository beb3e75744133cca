//! Pseudo folders above the shares, and their common properties: see [`super::pseudo`] for the client's view.

use std::sync::{Arc, LazyLock};

use vfs::namespace::Share;
use vfs::{Attr, Capabilities, Kind, Time};

/// `fsid4` of the root and of all pseudo folders.
pub(super) const FSID: (u64, u64) = (0, 0);

/// Capabilities of pseudo folders: they can only be listed.
pub(super) const CAPABILITIES: Capabilities = Capabilities {
    name_max: 255,
    size_max: i64::MAX as u64,
    link_max: 1,
    xattr: false,
    reflink: false,
    clone_block: 0,
    deallocate: false,
    block: 4096,
    handles_persist: true,
    read_only: true,
    quotas: false,
};

const FILEID: u64 = 1;

/// `fsid4` of a volume in a share: it always differs from the root's.
pub(super) fn fsid_of(share: &Share, volume: u64) -> (u64, u64) {
    (u64::from(share.id) + 1, volume)
}

/// The file id of the share's entry in the root.
pub(super) fn fileid_of(share: &Share) -> u64 {
    u64::from(share.id) + FILEID + 1
}

/// A pseudo folder: the root, or a folder on the path to a share that the client may use.
#[derive(Clone, Debug)]
pub struct Above {
    /// Its path without the leading slash; empty for the root.
    pub(super) path: Arc<str>,
}

/// An entry of a pseudo folder.
pub(super) enum Child {
    Share(Arc<Share>),
    /// Another pseudo folder.
    Folder(Above),
}

impl Child {
    /// A number unique within the folder, used as listing cookie and in place of an inode number.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Share(share) => u64::from(share.id),
            Self::Folder(folder) => (1 << 32) + u64::from(folder.number()),
        }
    }
}

/// `path` relative to `folder`; `None` if it is not below it.
pub(super) fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    if folder.is_empty() {
        return Some(path);
    }
    path.strip_prefix(folder)?.strip_prefix('/')
}

impl Above {
    pub(super) fn root() -> Self {
        static ROOT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));
        Self { path: ROOT.clone() }
    }

    /// The folder that contains the root of a share.
    pub(super) fn of_share(share: &Share) -> Self {
        Self::of(share.nfs_path()).parent().unwrap_or_else(Self::root)
    }

    pub(super) fn of(path: &str) -> Self {
        Self { path: path.into() }
    }

    /// Its path without the leading slash.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The number in handles: 0 for the root, else the number that a share of this path would have. The configuration rejects
    /// collisions and 0.
    pub(super) fn number(&self) -> u32 {
        if self.path.is_empty() { 0 } else { Share::id_of(&self.path) }
    }

    pub(super) fn fileid(&self) -> u64 {
        match self.number() {
            0 => FILEID,
            number => (1 << 33) + u64::from(number),
        }
    }

    /// Its parent; `None` for the root.
    pub(super) fn parent(&self) -> Option<Self> {
        let (parent, _) = self.path.rsplit_once('/').unwrap_or(("", ""));
        (!self.path.is_empty()).then(|| Self::of(parent))
    }
}

/// Attributes of an empty directory with timestamps at the epoch.
pub(super) const NOTHING: Attr = {
    let time = Time { sec: 0, nsec: 0 };
    Attr {
        kind: Kind::Dir,
        mode: 0o555,
        nlink: 2,
        uid: 0,
        gid: 0,
        size: 4096,
        used: 0,
        rdev: (0, 0),
        fsid: 0,
        fileid: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: None,
        change: 0,
        sealed: false,
    }
};
