//! Copies a range of one open file into another, for the control codes that copy.
//!
//! *Operation.* Uses the volume's copy operation if it has one, else a read and a write. Reads a range completely before writing
//! it, so that ranges of one file may overlap.
//!
//! *Memory.* One range of at most [`CHUNK_MAX`] bytes.

use vfs::VfsError;
use vfs::backend::ReadInto;

use super::Asked;
use crate::open::{File, Open};
use crate::ops::bytes::{Change, Changing};
use crate::status::Status;
use crate::wire::fsctl::Chunk;

/// Longest range in bytes: ServerSideCopyMaxChunkSize.
pub(super) const CHUNK_MAX: u32 = 1 << 20;

/// Copies one chunk. Returns the number of bytes copied and the status.
pub(super) async fn copy(
    a: &Asked<'_>,
    source: &Open,
    from: &File,
    chunk: &Chunk,
) -> (u32, Status) {
    let right = match a.may_change(Change::CopyInto { at: chunk.to, len: chunk.len.into() }).await {
        Ok(right) => right,
        Err(status) => return (0, status),
    };
    let (n, status) = pieces(a, &right, source, from, chunk).await;
    match if n > 0 { right.done().await } else { Ok(()) } {
        Err(why) if status == Status::SUCCESS => (n, why),
        _ => (n, status),
    }
}

/// Copies a chunk in pieces as large as the volume accepts.
async fn pieces(
    a: &Asked<'_>,
    right: &Changing<'_>,
    source: &Open,
    from: &File,
    chunk: &Chunk,
) -> (u32, Status) {
    let mut n = 0;
    loop {
        let left = Chunk {
            from: chunk.from.saturating_add(u64::from(n)),
            to: chunk.to.saturating_add(u64::from(n)),
            len: chunk.len - n,
        };
        if left.len == 0 {
            return (n, Status::SUCCESS);
        }
        match some(a, right, n, source, from, &left).await {
            Ok(0) => return (n, Status::UNEXPECTED_IO_ERROR),
            Ok(some) => n = n.saturating_add(some).min(chunk.len),
            Err(status) => return (n, status),
        }
    }
}

/// Copies a part of the remaining chunk.
async fn some(
    a: &Asked<'_>,
    right: &Changing<'_>,
    skip: u32,
    source: &Open,
    from: &File,
    c: &Chunk,
) -> Result<u32, Status> {
    let len = u64::from(c.len);
    let size = from.node().getattr().await?.size;
    // The whole chunk must be before the end of the source (MS-SMB2 section 3.3.5.15.6).
    if c.from.checked_add(len).is_none_or(|end| end > size) {
        return Err(Status::INVALID_VIEW_SIZE);
    }
    let reader = a.file_ops_of(source);
    let target = a.file()?;
    let overlaps = from.node().id() == target.node().id()
        && c.from < c.to.saturating_add(len)
        && c.to < c.from.saturating_add(len);
    if !overlaps {
        match right.copy_from(skip.into(), (&from.node(), &reader), c.from, len).await? {
            Err(VfsError::NotSupported | VfsError::CrossDevice) => {}
            done => return Ok(u32::try_from(done?).unwrap_or(c.len)),
        }
    }
    let count = usize::try_from(c.len).unwrap_or(0);
    // The data does not go to the client, so ignore whether the client reads its responses.
    let into = ReadInto { backpressure: None, ..a.cx.conn.read_into.clone() };
    let read = reader.read(&from.node(), None, c.from, count, &into).await?;
    let (_, count) = right.write(skip.into(), read.data, false).await?;
    Ok(u32::try_from(count).unwrap_or(c.len))
}
