//! A volume in memory.
//!
//! *Operation.* All operations run in place. A read returns views of the volume's pages without a copy; clones share pages until
//! one side writes. Names change under one lock of the volume, so that the attributes of a directory before and after a change are
//! atomic.
//!
//! *Memory.* Data, names, attributes and a fixed amount for each node count against the volume's limit.
//!
//! *Errors.* [`VfsError::NoSpace`] at the limit. Handles contain a random number of this run: after a restart they are stale.

mod attrs;
mod data;
mod names;
mod node;
mod pages;
mod perm;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

use dashmap::DashMap;
use mutex::locked;

use crate::backend::{Backend, BoxFuture, NodeRef, ready};
use crate::error::{VfsError, VfsResult};
use crate::types::*;

use node::MemNode;
use pages::{PAGE, Usage};

/// Bytes charged for each node in addition to its data.
const NODE_BYTES: u64 = 1024;

const NAME_MAX: u32 = 255;

const SIZE_MAX: u64 = i64::MAX.unsigned_abs();

/// Number of the root, the first node of a volume.
const ROOT: u64 = 1;

struct Volume {
    boot: [u8; 8],
    usage: Arc<Usage>,
    nodes: DashMap<u64, Weak<MemNode>>,
    next: AtomicU64,
    /// Held while names change.
    names: Mutex<()>,
    read_only: bool,
}

/// A volume in memory, served by the gateway.
pub struct MemBackend {
    volume: Arc<Volume>,
    root: Arc<MemNode>,
    /// See [`Backend::hidden`].
    hidden: Mutex<Option<Arc<MemNode>>>,
}

impl MemBackend {
    /// Creates an empty volume of at most `limit` bytes. Its root belongs to the superuser and every user may write to it, like
    /// `/tmp` without the sticky bit.
    pub fn new(limit: u64) -> VfsResult<Arc<Self>> {
        Self::with(limit, false)
    }

    /// Like [`MemBackend::new`]; `read_only` refuses every change, for tests of front ends.
    pub fn with(limit: u64, read_only: bool) -> VfsResult<Arc<Self>> {
        let mut boot = [0; 8];
        getrandom::fill(&mut boot).map_err(|_| VfsError::Resources)?;
        let volume = Arc::new(Volume {
            boot,
            usage: Usage::new(limit),
            nodes: DashMap::new(),
            next: AtomicU64::new(ROOT),
            names: Mutex::new(()),
            read_only,
        });
        let root = MemNode::root(&volume)?;
        Ok(Arc::new(Self { volume, root, hidden: Mutex::new(None) }))
    }
}

impl Volume {
    fn writable(&self) -> VfsResult<()> {
        if self.read_only { Err(VfsError::ReadOnly) } else { Ok(()) }
    }

    fn find(&self, handle: &Handle) -> VfsResult<Arc<MemNode>> {
        let (boot, number) =
            handle.as_bytes().split_first_chunk::<8>().ok_or(VfsError::BadHandle)?;
        let number: [u8; 8] = number.try_into().map_err(|_| VfsError::BadHandle)?;
        if *boot != self.boot {
            return Err(VfsError::Stale);
        }
        let found = self.nodes.get(&u64::from_be_bytes(number)).and_then(|w| w.upgrade());
        found.ok_or(VfsError::Stale)
    }
}

impl Backend for MemBackend {
    fn root(&self) -> NodeRef {
        self.root.clone()
    }

    fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>> {
        ready(self.volume.find(handle).map(|n| n as NodeRef))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name_max: NAME_MAX,
            size_max: SIZE_MAX,
            link_max: u32::MAX,
            xattr: true,
            reflink: true,
            clone_block: u32::try_from(PAGE).unwrap_or(u32::MAX),
            deallocate: true,
            block: 4096,
            handles_persist: false,
            read_only: self.volume.read_only,
            quotas: false,
        }
    }

    fn hidden(&self, make: bool) -> BoxFuture<'_, VfsResult<Option<NodeRef>>> {
        let mut hidden = locked(&self.hidden);
        if hidden.is_none() && make {
            match self.volume.writable().and_then(|()| MemNode::root(&self.volume)) {
                Ok(made) => *hidden = Some(made),
                Err(e) => return ready(Err(e)),
            }
        }
        ready(Ok(hidden.clone().map(|n| n as NodeRef)))
    }

    fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>> {
        let usage = &self.volume.usage;
        let free = usage.free();
        let nodes = self.volume.nodes.len() as u64;
        let free_files = free / NODE_BYTES;
        ready(Ok(FsStat {
            total_bytes: usage.limit,
            free_bytes: free,
            avail_bytes: free,
            total_files: nodes + free_files,
            free_files,
            avail_files: free_files,
        }))
    }
}
