//! Server-side copy: FSCTL_SRV_REQUEST_RESUME_KEY and FSCTL_SRV_COPYCHUNK(_WRITE) (MS-SMB2 sections 3.3.5.15.5 and 3.3.5.15.6).
//!
//! *Operation.* Copies each chunk with the volume's copy operation if it has one, else with a read and a write. Reads a chunk
//! completely before writing it, so that ranges of one file may overlap.
//!
//! *Memory.* One chunk of at most [`CHUNK_MAX`] bytes.

use std::sync::Arc;

use vfs::VfsError;
use vfs::backend::ReadInto;

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::open::{File, Open};
use crate::ops::bytes::{self, Change, Changing};
use crate::pace::Pace;
use crate::status::Status;
use crate::wire::fsctl::{Chunk, Copied, CopyChunks, ResumeKey, code};

use super::Asked;

/// ServerSideCopyMaxNumberofChunks
const CHUNKS_MAX: u32 = 256;
/// ServerSideCopyMaxChunkSize
const CHUNK_MAX: u32 = 1 << 20;
/// ServerSideCopyMaxDataSize
const TOTAL_MAX: u64 = 16 << 20;

pub(super) fn resume_key(a: &Asked<'_>) -> Result<Answer, Status> {
    a.file()?;
    a.room(ResumeKey::ANSWER_LEN, Status::INVALID_PARAMETER)?;
    a.answer(&ResumeKey::of(a.open.id).emit())
}

pub(super) async fn chunks(a: &Asked<'_>) -> Result<Answer, Status> {
    a.room(Copied::LEN, Status::INVALID_PARAMETER)?;
    let asked = a.parse(|input| CopyChunks::parse(input, CHUNKS_MAX))?;
    let source = source(a, asked.key)?;
    a.file()?;
    if !within_limits(&asked) {
        let limits = Copied {
            chunks: CHUNKS_MAX,
            chunk_bytes: CHUNK_MAX,
            total: u32::try_from(TOTAL_MAX).unwrap_or(u32::MAX),
        };
        let body = a.response(&limits.emit());
        return Ok(Answer::with_status(Status::INVALID_PARAMETER, body));
    }
    bytes::check(&a.open, Change::CopyInto { at: 0, len: 0 })?;
    if a.request.code == code::SRV_COPYCHUNK {
        a.open.check(mask::READ_DATA)?;
    }
    // The right to execute a file includes reading it.
    source.check(mask::READ_DATA | mask::EXECUTE)?;
    let from = source.file()?;
    if a.open.is_dir() || source.is_dir() {
        return Err(Status::INVALID_DEVICE_REQUEST);
    }
    let mut done = Copied::default();
    let mut pace = Pace::begin();
    for chunk in &asked.chunks {
        pace.keep().await;
        let (n, status) = copy(a, &source, from, chunk).await;
        done.total = done.total.saturating_add(n);
        if status != Status::SUCCESS {
            done.chunk_bytes = n;
            return Ok(Answer::with_status(status, a.response(&done.emit())));
        }
        done.chunks += 1;
    }
    a.answer(&done.emit())
}

/// Returns the open of this session that a resume key names.
fn source(a: &Asked<'_>, key: ResumeKey) -> Result<Arc<Open>, Status> {
    let session = a.cx.session()?.id;
    let open = key.file().and_then(|id| a.cx.server.opens.get(id));
    open.filter(|o| o.session_id() == session).ok_or(Status::OBJECT_NAME_NOT_FOUND)
}

fn within_limits(asked: &CopyChunks) -> bool {
    let total: u64 = asked.chunks.iter().map(|c| u64::from(c.len)).sum();
    // The announced number of chunks, each neither empty nor too long, within the total limit.
    u32::try_from(asked.chunks.len()) == Ok(asked.count)
        && asked.count <= CHUNKS_MAX
        && total <= TOTAL_MAX
        && asked.chunks.iter().all(|c| (1..=CHUNK_MAX).contains(&c.len))
}

/// Copies one chunk. Returns the number of bytes copied and the status.
async fn copy(a: &Asked<'_>, source: &Open, from: &File, chunk: &Chunk) -> (u32, Status) {
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
