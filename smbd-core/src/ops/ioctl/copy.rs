//! Server-side copy: FSCTL_SRV_REQUEST_RESUME_KEY and FSCTL_SRV_COPYCHUNK(_WRITE) (MS-SMB2 sections 3.3.5.15.5 and 3.3.5.15.6).
//!
//! *Operation.* Copies each chunk by itself ([`super::copy_range`]).
//!
//! *Memory.* One chunk of at most [`CHUNK_MAX`] bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rates::Kind;

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::mac::agreed;
use crate::open::Open;
use crate::ops::bytes::{self, Change};
use crate::pace::Pace;
use crate::status::Status;
use crate::wire::fsctl::{Copied, CopyChunks, ResumeKey, code};

use super::copy_range::{CHUNK_MAX, copy};
use super::{Asked, copy_file};

/// ServerSideCopyMaxNumberofChunks
const CHUNKS_MAX: u32 = 256;
/// ServerSideCopyMaxDataSize
const TOTAL_MAX: u64 = 16 << 20;
/// The most bytes for whose rates a copy of a whole file waits. The others are owed afterwards, so that one large file does not
/// keep other requests of its share waiting for hours.
const WHOLE_ASKED_MAX: u32 = 64 << 20;

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
    let is_whole = asked.count == 0 && a.cx.session()?.mac.has(agreed::COPYFILE);
    let all = match is_whole {
        true => {
            let size = a.cx.by_storage(from.node().getattr()).await??.size;
            u32::try_from(size).unwrap_or(u32::MAX).min(WHOLE_ASKED_MAX)
        }
        false => asked.chunks.iter().fold(0u32, |all, chunk| all.saturating_add(chunk.len)),
    };
    a.cx.in_rates_of(&a.open, Kind::Write, all, 0).await?;
    if is_whole {
        return copy_file::whole(a, &source, from).await;
    }
    let mut done = Copied::default();
    let mut pace = Pace::begin();
    for chunk in &asked.chunks {
        pace.keep().await;
        let (n, status) = copy(a, &source, from, chunk).await;
        done.total = done.total.saturating_add(n);
        a.cx.copied.store(done.total.into(), Ordering::Relaxed);
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
