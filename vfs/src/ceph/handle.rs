//! File handles: a tag, the inode number, and the snapshot number.
//!
//! *Operation.* The tag is derived from cluster, file system and served folder, so that handles of a share become invalid when it
//! is given another folder. Handles stored on the volume itself have a tag that omits the folder.
//!
//! *Errors.* [`VfsError::BadHandle`] for a wrong length, [`VfsError::Stale`] for a different tag.

use ceph_sys::Vino;

use crate::error::{VfsError, VfsResult};
use crate::fnv::fnv;
use crate::types::Handle;

/// Bytes of a tag.
const TAG: usize = 4;
/// Bytes of a handle.
const LEN: usize = TAG + 16;

fn short(number: u64) -> [u8; TAG] {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    [a ^ e, b ^ f, c ^ g, d ^ h]
}

/// The prefixes of a volume's handles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    folder: [u8; TAG],
    /// The tag for stored handles, without the folder.
    volume: [u8; TAG],
}

impl Tag {
    pub(super) fn new(fsid: u64, root: Vino) -> Self {
        let fs = fsid.to_be_bytes();
        let folder = fnv([fs, root.ino.to_be_bytes(), root.snap.to_be_bytes()].as_flattened());
        Self { folder: short(folder), volume: short(fsid) }
    }

    /// Builds the handle of an inode.
    pub(super) fn make(&self, vino: Vino) -> VfsResult<Handle> {
        let [ino, snap] = [vino.ino.to_be_bytes(), vino.snap.to_be_bytes()];
        Handle::new(&[&self.folder[..], &ino, &snap].concat()).ok_or(VfsError::BadHandle)
    }

    /// Parses the inode from a handle.
    pub(super) fn parse(&self, handle: &Handle) -> VfsResult<Vino> {
        let bytes: &[u8; LEN] = handle.as_bytes().try_into().map_err(|_| VfsError::BadHandle)?;
        if bytes[..TAG] != self.folder {
            return Err(VfsError::Stale);
        }
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(eight)
        };
        Ok(Vino { ino: number(TAG), snap: number(TAG + 8) })
    }

    /// Converts a handle to its stored form.
    pub(super) fn stored(&self, handle: &Handle) -> Handle {
        retag(handle, self.folder, self.volume)
    }

    /// Converts a handle from its stored form.
    pub(super) fn served(&self, stored: &Handle) -> Handle {
        retag(stored, self.volume, self.folder)
    }
}

fn retag(handle: &Handle, from: [u8; TAG], to: [u8; TAG]) -> Handle {
    match handle.as_bytes().split_first_chunk::<TAG>() {
        Some((tag, rest)) if *tag == from => {
            Handle::new(&[&to[..], rest].concat()).unwrap_or_else(|| handle.clone())
        }
        _ => handle.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_belongs_to_one_folder() {
        let file = Vino { ino: 0x100_0000_0001, snap: ceph_sys::ffi::CEPH_NOSNAP };
        let of = |ino| Tag::new(7, Vino { ino, ..file });
        let (one, other) = (of(1), of(2));
        let handle = one.make(file).unwrap();
        assert_eq!(one.parse(&handle), Ok(file));
        assert_eq!(other.parse(&handle), Err(VfsError::Stale));
        assert_eq!(other.parse(&other.served(&one.stored(&handle))), Ok(file));
        let short = Handle::new(&handle.as_bytes()[1..]).unwrap();
        assert_eq!(one.parse(&short), Err(VfsError::BadHandle));
    }
}
