//! FSCTL_SRV_COPYCHUNK without chunks, by which macOS copies a file with its streams, if the session agreed on OSX_COPYFILE
//! ([`crate::mac`]). Such a request of any other client copies no byte.
//!
//! *Operation.* The data is copied in the steps of a copy with chunks, so that locks, leases and watchers see the same. Then the
//! target gets each stream of the source, and loses the data that it had beyond the source's.
//!
//! *Memory.* One step.
//!
//! *Errors.* A copy that fails or is cancelled has changed a part of the target. STATUS_SHARING_VIOLATION if an open of a stream of
//! the target forbids others to write.

use std::sync::atomic::Ordering;

use state::HolderId;
use vfs::VfsError;
use vfs::arbiter::Arbiter;
use vfs::backend::NodeRef;
use vfs::streams::Streams;

use super::Asked;
use super::copy_range::{CHUNK_MAX, copy};
use crate::answer::Answer;
use crate::dtyp::mask;
use crate::mac;
use crate::open::{File, Open};
use crate::ops::bytes::{self, Change};
use crate::ops::create::has_left;
use crate::pace::Pace;
use crate::status::Status;
use crate::wire::create::share;
use crate::wire::fsctl::{Chunk, Copied};

/// Copies the file that `source` has open. The caller has checked the rights of both opens.
pub(super) async fn whole(a: &Asked<'_>, source: &Open, from: &File) -> Result<Answer, Status> {
    let size = a.cx.by_storage(copied(a, source, from)).await??;
    let done = Copied { total: u32::try_from(size).unwrap_or(u32::MAX), ..Copied::default() };
    a.answer(&done.emit())
}

async fn copied(a: &Asked<'_>, source: &Open, from: &File) -> Result<u64, Status> {
    let target = a.file()?;
    // A handle that may only append cannot replace what the file has.
    a.open.check(mask::WRITE_DATA)?;
    if from.node().id() == target.node().id() {
        return Err(Status::INVALID_PARAMETER);
    }
    let size = a.file_ops_of(source).getattr(&from.node()).await?.size;
    let (mut at, mut pace) = (0, Pace::begin());
    while at < size {
        pace.keep().await;
        let len = u32::try_from(size - at).unwrap_or(u32::MAX).min(CHUNK_MAX);
        let (some, status) = copy(a, source, from, &Chunk { from: at, to: at, len }).await;
        if status != Status::SUCCESS {
            return Err(status);
        }
        // A copy that fails later counts as well.
        a.cx.copied.fetch_add(some.into(), Ordering::Relaxed);
        at += u64::from(some);
    }
    if target.node().getattr().await?.size > size {
        a.may_change(Change::EndOfFile(size)).await?.resize().await?;
    }
    if !from.is_stream() && !target.is_stream() {
        streams(a, source, from, target).await?;
    }
    Ok(size)
}

async fn streams(a: &Asked<'_>, source: &Open, from: &File, to: &File) -> Result<(), Status> {
    let mut named = match Streams::of(&from.share, &from.base()).await {
        Err(VfsError::NotSupported) => return Ok(()),
        named => named?,
    };
    let reader = a.file_ops_of(source);
    while let Some(stream) = named.next().await? {
        // A client that caches it may have more of it than the volume.
        reader.check_unwritten(&stream.node).await?;
        let size = match stream.node.getattr().await {
            Err(VfsError::NotFound | VfsError::Stale) => continue,
            attr => attr?.size,
        };
        if mac::exists(&stream.name, size, true) {
            let target = Target::open(a, to, &stream.name).await?;
            let from = (&stream.node, &reader);
            bytes::copy_stream(a.cx, &a.open, from, &target.node, CHUNK_MAX.into()).await?;
        }
    }
    Ok(())
}

/// A stream of the target while it is written. It counts as an open: share modes of others may forbid it, caching of others is
/// recalled first, and the last close of another client does not remove the stream meanwhile.
struct Target<'a> {
    node: NodeRef,
    arbiter: &'a Arbiter,
    holder: HolderId,
}

impl<'a> Target<'a> {
    /// Opens or creates the stream of this name.
    async fn open(a: &'a Asked<'_>, to: &File, name: &str) -> Result<Self, Status> {
        /// Attempts to open a stream that other clients keep removing.
        const RACES_MAX: usize = 4;
        let (opens, arbiter) = (&a.cx.server.opens, a.cx.server.namespace.arbiter());
        let opening =
            Open::opening(mask::WRITE_DATA, share::READ | share::WRITE | share::DELETE, true);
        let (party, base) = (&a.open.party, to.base());
        for _ in 0..RACES_MAX {
            let made = a.file_ops().stream_create(&to.share, &base, &a.open.cred, name).await?.0;
            let (node, place) = (made.node, to.place());
            let nodes = (node.clone(), base.clone());
            let file = File::new(nodes, Some(made.name), to.share.clone(), place, 1);
            let wait = arbiter.open_waiting(node.id(), party, opening, Some(a.cx));
            a.cx.or_cancelled(wait).await??;
            let target = Self { node, arbiter, holder: party.holder };
            if has_left(a.cx, &file).await? {
                continue;
            }
            if opens.is_doomed(&file) {
                return Err(Status::DELETE_PENDING);
            }
            match target.node.getattr().await {
                Ok(attr) if attr.nlink > 0 => return Ok(target),
                Ok(_) | Err(VfsError::NotFound | VfsError::Stale) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(Status::SHARING_VIOLATION)
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        self.arbiter.close(self.node.id(), self.holder);
    }
}
