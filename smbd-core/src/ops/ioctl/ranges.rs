//! Holes: FSCTL_SET_SPARSE, SET_ZERO_DATA, QUERY_ALLOCATED_RANGES and FILE_LEVEL_TRIM (MS-FSA sections 2.1.5.10.35, 2.1.5.10.37,
//! 2.1.5.10.22 and 2.1.5.10.7).

use iobuf::Buf;
use vfs::{Attr, Dos, Seek, VfsError};

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::open::File;
use crate::ops::room::room;
use crate::pace::Pace;
use crate::status::Status;
use crate::wire::fsctl::{Span, Trim};

use super::Asked;
use crate::ops::bytes::{self, Change, Changing};

/// Most ranges of one answer, each found by two system calls.
const RANGES_MAX: usize = 4096;
/// Zeros written in one step on volumes without hole punching.
const ZEROS: u64 = 1 << 20;

/// Returns whether a client has made this file or stream sparse.
pub(super) async fn is_sparse(file: &File, attr: &Attr) -> Result<bool, Status> {
    let dos = file.node().dos(attr).await?;
    Ok(dos.attributes.is_some_and(|bits| bits & Dos::SPARSE != 0))
}

pub(super) async fn set_sparse(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.data()?;
    a.open.check(mask::WRITE_DATA | mask::WRITE_ATTRIBUTES | mask::APPEND_DATA)?;
    // An empty input sets the attribute.
    let on = a.input().first().is_none_or(|b| *b != 0);
    let attr = file.node().getattr().await?;
    let mut dos = file.node().dos(&attr).await?;
    let before = dos.attributes.unwrap_or(default_attributes(file));
    let after = if on { before | Dos::SPARSE } else { before & !Dos::SPARSE };
    if after != before {
        dos.attributes = Some(after);
        a.file_ops().dos_set(&file.share, &file.node(), dos).await?;
    }
    a.answer(&[])
}

/// Returns the attributes of a file for which no attributes are stored: ARCHIVE for files.
fn default_attributes(file: &File) -> u32 {
    if file.is_stream() { 0 } else { Dos::ARCHIVE }
}

pub(super) async fn set_zero_data(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.data()?;
    bytes::check(&a.open, Change::ZeroData { at: 0, len: 0 })?;
    let asked = a.parse(Span::parse)?;
    if asked.at > asked.other {
        return Err(Status::INVALID_PARAMETER);
    }
    let attr = file.node().getattr().await?;
    let count = asked.other.min(attr.size).saturating_sub(asked.at);
    if count > 0 {
        let right = a.may_change(Change::ZeroData { at: asked.at, len: count }).await?;
        zero(&right, count, is_sparse(file, &attr).await?).await?;
        right.done().await?;
    }
    a.answer(&[])
}

/// Zeros the range of the change, which has `count` bytes.
async fn zero(right: &Changing<'_>, count: u64, sparse: bool) -> Result<(), Status> {
    match right.deallocate().await {
        Ok(()) => {
            if !sparse {
                // Keep storage allocated for the range. If allocation fails, the range still reads as zeros.
                match right.allocate().await {
                    Ok(()) | Err(VfsError::NotSupported | VfsError::NoSpace) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            return Ok(());
        }
        Err(VfsError::NotSupported) => {}
        Err(e) => return Err(e.into()),
    }
    let zeros = Buf::from(vec![0; usize::try_from(count.min(ZEROS)).unwrap_or(0)]);
    let mut done = 0;
    while done < count {
        let n = usize::try_from((count - done).min(ZEROS)).unwrap_or(0);
        let (_, taken) = right.write(done, vec![zeros.slice(0..n)], false).await?;
        if taken == 0 {
            return Err(Status::UNEXPECTED_IO_ERROR);
        }
        done += taken as u64;
    }
    Ok(())
}

/// Reports the ranges that have storage (MS-FSCC section 2.3.52), at most [`RANGES_MAX`]: the client asks again from the last one.
pub(super) async fn query_allocated(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.data()?;
    a.open.check(mask::READ_DATA)?;
    let asked = a.parse(Span::parse)?;
    let end = asked.at.checked_add(asked.other).filter(|e| i64::try_from(*e).is_ok());
    let end = end.ok_or(Status::INVALID_PARAMETER)?;
    let _room = room(a.cx, a.request.output_max).await?;
    let attr = file.node().getattr().await?;
    let end = end.min(attr.size);
    let sparse = is_sparse(file, &attr).await?;
    let max = usize::try_from(a.request.output_max).unwrap_or(usize::MAX) / Span::LEN;
    let max = max.min(RANGES_MAX);
    let (mut output, mut at) = (Vec::new(), asked.at);
    let mut pace = Pace::begin();
    while at < end {
        pace.keep().await;
        let (from, to) = if sparse { allocated(file, at).await? } else { (at, end) };
        let (from, to) = (from.min(end), to.min(end));
        if from == to {
            break;
        }
        if output.len() / Span::LEN == max {
            let too_small = max == 0;
            let status = if too_small { Status::BUFFER_TOO_SMALL } else { Status::BUFFER_OVERFLOW };
            if too_small {
                return Err(status);
            }
            return Ok(Answer::with_status(status, a.response(&output)));
        }
        output.extend(Span { at: from, other: to - from }.emit());
        at = to;
    }
    a.answer(&output)
}

/// Returns the next range that has storage, or an empty one at the end of the file.
async fn allocated(file: &File, at: u64) -> Result<(u64, u64), Status> {
    let none = (u64::MAX, u64::MAX);
    let from = match file.node().seek(at, Seek::Data).await {
        Err(VfsError::NoMoreData) => return Ok(none),
        other => other?,
    };
    match file.node().seek(from, Seek::Hole).await {
        Err(VfsError::NoMoreData) => Ok(none),
        other => Ok((from, other?)),
    }
}

pub(super) async fn trim(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.data()?;
    bytes::check(&a.open, Change::Trim { at: 0, len: 0 })?;
    let asked = a.parse(Trim::parse)?;
    let size = file.node().getattr().await?.size;
    let mut done = 0_u32;
    for range in &asked.ranges {
        let count = range.at.saturating_add(range.other).min(size).saturating_sub(range.at);
        if count > 0 {
            let right = a.may_change(Change::Trim { at: range.at, len: count }).await?;
            right.deallocate().await?;
            right.done().await?;
        }
        done += 1;
    }
    // FILE_LEVEL_TRIM_OUTPUT is optional (MS-FSCC section 2.3.74).
    if a.room(4, Status::BUFFER_TOO_SMALL).is_err() {
        return a.answer(&[]);
    }
    a.answer(&done.to_le_bytes())
}
