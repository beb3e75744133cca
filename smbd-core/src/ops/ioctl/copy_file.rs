//! FSCTL_SRV_COPYCHUNK without chunks, by which macOS copies a file with its streams, if the session agreed on OSX_COPYFILE
//! ([`crate::mac`]). Such a request of any other client copies no byte.
//!
//! *Operation.* The data is copied in the steps of a copy with chunks, so that locks, leases and watchers see the same. Then the
//! target gets each stream of the source, and loses the data that it had beyond the source's.
//!
//! *Memory.* One step.
//!
//! *Errors.* A copy that fails or is cancelled has changed a part of the target.

use vfs::VfsError;
use vfs::streams::Streams;

use super::Asked;
use super::copy_range::{CHUNK_MAX, copy};
use crate::answer::Answer;
use crate::mac;
use crate::open::{File, Open};
use crate::ops::bytes::{self, Change};
use crate::pace::Pace;
use crate::status::Status;
use crate::wire::fsctl::{Chunk, Copied};

/// Copies the file that `source` has open. The caller has checked the rights of both opens.
pub(super) async fn whole(a: &Asked<'_>, source: &Open, from: &File) -> Result<Answer, Status> {
    let size = a.cx.by_storage(copied(a, source, from)).await??;
    let done = Copied { total: u32::try_from(size).unwrap_or(u32::MAX), ..Copied::default() };
    a.answer(&done.emit())
}

async fn copied(a: &Asked<'_>, source: &Open, from: &File) -> Result<u64, Status> {
    let target = a.file()?;
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
    let (reader, writer, base) = (a.file_ops_of(source), a.file_ops(), to.base());
    while let Some(stream) = named.next().await? {
        if !mac::exists(&stream.name, stream.attr.size, true) {
            continue;
        }
        let made = writer.stream_create(&to.share, &base, &a.open.cred, &stream.name).await?.0;
        let from = (&stream.node, &reader);
        bytes::copy_stream(a.cx, &a.open, from, &made.node, CHUNK_MAX.into()).await?;
    }
    Ok(())
}
