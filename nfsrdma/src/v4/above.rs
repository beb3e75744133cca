//! A folder above the shares, and what all such folders have in common: see [`super::pseudo`] for what a client sees of them.

use std::sync::{Arc, LazyLock};

use vfs::namespace::Share;
use vfs::{Attr, Capabilities, Kind, Time};

/// `fsid4` of the root and of the folders below it.
pub(super) const FSID: (u64, u64) = (0, 0);

/// What they can do: nothing but be listed.
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
};

const FILEID: u64 = 1;

/// `fsid4` of a volume below a share: never that of the root.
pub(super) fn fsid_of(share: &Share, volume: u64) -> (u64, u64) {
    (u64::from(share.id) + 1, volume)
}

/// The number of the share's name in the root.
pub(super) fn fileid_of(share: &Share) -> u64 {
    u64::from(share.id) + FILEID + 1
}

/// A folder above the shares: one of the path of some share that the client may use, or the root.
#[derive(Clone, Debug)]
pub struct Above {
    /// Its path without the first slash; empty for the root.
    pub(super) path: Arc<str>,
}

/// What stands in a folder above the shares.
pub(super) enum Child {
    /// The root of a share.
    Share(Arc<Share>),
    /// A further folder.
    Folder(Above),
}

impl Child {
    /// Different among all that one folder holds: in cookies of its listing, and in what stands for inode numbers.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Share(share) => u64::from(share.id),
            Self::Folder(folder) => (1 << 32) + u64::from(folder.number()),
        }
    }
}

/// `path` without `folder`, and without the slash between them; `None` where it does not lie below it.
pub(super) fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    if folder.is_empty() {
        return Some(path);
    }
    path.strip_prefix(folder)?.strip_prefix('/')
}

impl Above {
    /// Above all.
    pub(super) fn root() -> Self {
        static ROOT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));
        Self { path: ROOT.clone() }
    }

    /// The folder that the root of a share stands in.
    pub(super) fn of_share(share: &Share) -> Self {
        Self::of(share.nfs_path()).parent().unwrap_or_else(Self::root)
    }

    pub(super) fn of(path: &str) -> Self {
        Self { path: path.into() }
    }

    /// Its path without the first slash.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// In handles: of the root 0, else that of a share of this name. The configuration refuses two folders with one number, and 0.
    pub(super) fn number(&self) -> u32 {
        if self.path.is_empty() { 0 } else { Share::id_of(&self.path) }
    }

    pub(super) fn fileid(&self) -> u64 {
        match self.number() {
            0 => FILEID,
            number => (1 << 33) + u64::from(number),
        }
    }

    /// The folder that it stands in; the root stands in none.
    pub(super) fn parent(&self) -> Option<Self> {
        let (parent, _) = self.path.rsplit_once('/').unwrap_or(("", ""));
        (!self.path.is_empty()).then(|| Self::of(parent))
    }
}

/// An empty directory at the beginning of time.
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
