//! Builds and parses the file handles that clients see: share, node, and a keyed hash that only this server can compute.
//!
//! A handle consists of a version, a kind, a keyed hash, the share's number and the backend's handle. The hash keeps clients from
//! forging handles of files outside the exported folder.

use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use vfs::namespace::{Namespace, Share};
use vfs::{Handle, NodeRef, VfsError, VfsResult};

/// Largest handle, in bytes (RFC 1813 section 2.4; NFSv4 allows more).
pub const FH_MAX: usize = 64;

const VERSION: u8 = 1;
const KIND_ABOVE: u8 = 0;
const KIND_NODE: u8 = 1;
const MAC_LEN: usize = 8;
const MAC_AT: usize = 2;
const SHARE_AT: usize = MAC_AT + MAC_LEN;
const NODE_AT: usize = SHARE_AT + 4;
const _: () = assert!(NODE_AT + Handle::MAX <= FH_MAX);

/// A file handle in wire form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fh {
    bytes: [u8; FH_MAX],
    len: u8,
}

impl Fh {
    pub const EMPTY: Self = Self { bytes: [0; FH_MAX], len: 0 };

    /// Wraps the bytes that a client sent; `None` when there are more than [`FH_MAX`].
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        let len = u8::try_from(wire.len()).ok()?;
        let mut bytes = [0; FH_MAX];
        bytes.get_mut(..wire.len())?.copy_from_slice(wire);
        Some(Self { bytes, len })
    }

    /// The share number in the handle; 0 if the handle is too short to have one.
    pub fn share(&self) -> u32 {
        let number = self.as_bytes().get(SHARE_AT..).and_then(<[u8]>::first_chunk);
        number.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Fh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The object that a handle refers to.
#[derive(Clone)]
pub enum Named {
    /// A pseudo folder above the shares, by its number (0: the root). Only NFSv4 has them.
    Above(u32),
    /// A file or directory of a share.
    Node(Arc<Share>, Handle),
}

/// Builds and parses handles with the server's key.
pub struct Handles {
    key: [u8; 16],
}

impl Handles {
    /// Uses this key. Handles made with another key yield [`VfsError::BadHandle`].
    pub fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    fn mac(&self, kind: u8, rest: &[u8]) -> [u8; MAC_LEN] {
        let mut h = SipHasher13::new_with_key(&self.key);
        h.write_u8(VERSION);
        h.write_u8(kind);
        h.write(rest);
        h.finish128().h1.to_be_bytes()
    }

    /// Builds the handle of a pseudo folder by its number (0: the root).
    pub fn above(&self, number: u32) -> Fh {
        self.seal(KIND_ABOVE, number, &[])
    }

    /// Builds the handle of a file or directory.
    pub fn of_node(&self, share: &Share, node: &Handle) -> Fh {
        self.seal(KIND_NODE, share.id, node.as_bytes())
    }

    fn seal(&self, kind: u8, share: u32, node: &[u8]) -> Fh {
        let mut bytes = [0; FH_MAX];
        let end = NODE_AT + node.len().min(Handle::MAX);
        bytes[0] = VERSION;
        bytes[1] = kind;
        bytes[SHARE_AT..NODE_AT].copy_from_slice(&share.to_be_bytes());
        bytes[NODE_AT..end].copy_from_slice(&node[..end - NODE_AT]);
        let mac = self.mac(kind, &bytes[SHARE_AT..end]);
        bytes[MAC_AT..SHARE_AT].copy_from_slice(&mac);
        // Invariant: the handle is at most FH_MAX bytes.
        #[allow(clippy::cast_possible_truncation)]
        let len = end as u8;
        Fh { bytes, len }
    }

    /// Finds the object of a client's handle. [`VfsError::BadHandle`] if this server did not make it, [`VfsError::Stale`] if its
    /// share is no longer served over NFS.
    pub fn open(&self, ns: &Namespace, wire: &[u8]) -> VfsResult<Named> {
        let (Some(&[version, kind]), Some(mac), Some(rest)) =
            (wire.first_chunk(), wire.get(MAC_AT..SHARE_AT), wire.get(SHARE_AT..))
        else {
            return Err(VfsError::BadHandle);
        };
        // A variable-time comparison is safe: guessing the hash byte by byte takes a client longer than mounting the share.
        if version != VERSION || wire.len() > FH_MAX || self.mac(kind, rest) != *mac {
            return Err(VfsError::BadHandle);
        }
        let (Some(share), Some(node)) = (rest.first_chunk(), rest.get(4..)) else {
            return Err(VfsError::BadHandle);
        };
        let number = u32::from_be_bytes(*share);
        if kind == KIND_ABOVE {
            return Ok(Named::Above(number));
        }
        let share = ns.share(number).filter(|s| s.protocols.nfs());
        let share = share.ok_or(VfsError::Stale)?;
        let node = Handle::new(node).ok_or(VfsError::BadHandle)?;
        Ok(Named::Node(share, node))
    }

    /// Finds the file or directory of a client's handle. A pseudo folder yields [`VfsError::BadHandle`].
    pub async fn resolve(&self, ns: &Namespace, wire: &[u8]) -> VfsResult<(Arc<Share>, NodeRef)> {
        match self.open(ns, wire)? {
            Named::Above(_) => Err(VfsError::BadHandle),
            Named::Node(share, handle) => {
                let node = share.backend.resolve(&handle).await?;
                Ok((share, node))
            }
        }
    }
}
