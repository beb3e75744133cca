//! COPY (RFC 7862 section 15.2) within this server, always synchronous; so OFFLOAD_CANCEL and OFFLOAD_STATUS (sections 15.8 and
//! 15.9) never find a copy in progress.

use nfs_proto::nfs4::StableHow4;
use nfs_proto::nfs4::ops::{Copied, Copy4, CopyRequirements4, WriteResponse4};

use crate::v4::compound::Compound;
use crate::v4::limits::COPY_MAX;
use crate::v4::object::Located;
use crate::v4::stateid_access::{IoAccess, StateidAccess, check_io};
use crate::v4::status::Status;
use crate::v4::wire::Stateid;

use super::allocate::{may_read, may_write};

/// Source and destination of COPY and CLONE, with access rights and offsets.
pub(super) struct Pair {
    pub(super) from: Located,
    pub(super) to: Located,
    pub(super) to_right: StateidAccess,
    pub(super) from_at: u64,
    pub(super) to_at: u64,
    pub(super) count: u64,
}

impl Pair {
    /// True if source and destination overlap in one file, which both operations forbid (RFC 7862 sections 15.2.3 and 15.13.3).
    pub(super) fn overlaps(&self, count: u64) -> bool {
        self.from.node.id() == self.to.node.id() && self.from_at.abs_diff(self.to_at) < count
    }
}

/// Finds source and destination, each by stateid and offset, and checks both stateids.
pub(super) async fn pair(
    cx: &mut Compound<'_>,
    (from_id, from_at): (Stateid, u64),
    (to_id, to_at): (Stateid, u64),
    count: u64,
) -> Result<Pair, Status> {
    let (to, from) = (cx.file()?, cx.saved_file()?);
    if from_at.checked_add(count).is_none() || to_at.checked_add(count).is_none() {
        return Err(Status::Inval);
    }
    if from.share.id != to.share.id {
        return Err(Status::Xdev);
    }
    // For the source, "current stateid" means the saved stateid (RFC 7862 section 15.2.3).
    let from_id = match from_id {
        Stateid::CURRENT => cx.saved_stateid.ok_or(Status::BadStateId)?,
        other => other,
    };
    let from_right = check_io(cx, &from, from_id, IoAccess::Read).await?;
    let to_right = check_io(cx, &to, to_id, IoAccess::Write).await?;
    may_read(&from, &from_right).await?;
    may_write(&to, &to_right).await?;
    Ok(Pair { from, to, to_right, from_at, to_at, count })
}

pub(in crate::v4) async fn copy(cx: &mut Compound<'_>) -> Result<(), Status> {
    // The request's permissions for asynchronous or non-consecutive copying need not be used.
    let asked: Copy4<'_> = cx.args.value()?;
    let (from, to) = ((asked.src_stateid, asked.src_offset), (asked.dst_stateid, asked.dst_offset));
    let p = pair(cx, from, to, asked.count).await?;
    if !asked.source_server.is_empty() {
        // The source is on another server.
        return Err(Status::NotSupp);
    }
    let size = p.from.node.getattr().await?.size;
    // RFC 7862 section 15.2.3: a range beyond the end of the source MUST fail; 0 means up to the end.
    let there = size.checked_sub(p.from_at).ok_or(Status::Inval)?;
    if p.count > there {
        return Err(Status::Inval);
    }
    let wanted = if p.count == 0 { there } else { p.count };
    if p.overlaps(wanted) {
        return Err(Status::Inval);
    }
    let count = wanted.min(COPY_MAX);
    // Read before the first byte is written, as for WRITE.
    let verifier = p.to.node.verifier();
    let done = if count == 0 {
        0
    } else {
        let file_ops = cx.nfs.core.namespace.by(p.to_right.who).opened_by(&p.to.cred);
        let copy =
            file_ops.copy_range(&p.to.share, &p.to.node, &p.from.node, p.from_at, p.to_at, count);
        cx.recorded(&p.to, &p.to_right, copy).await?
    };
    cx.copied = done;
    cx.out.value(&Copied {
        response: WriteResponse4 {
            callback_id: Vec::new(),
            count: done,
            // The data needs a COMMIT.
            committed: StableHow4::Unstable,
            writeverf: cx.nfs.core.write_verifier(verifier),
        },
        requirements: CopyRequirements4 { consecutive: true, synchronous: true },
    });
    Ok(())
}

/// Answers OFFLOAD_CANCEL and OFFLOAD_STATUS.
pub(in crate::v4) async fn offload(cx: &mut Compound<'_>) -> Result<(), Status> {
    cx.args.value::<Stateid>()?;
    cx.file()?;
    Err(Status::BadStateId)
}
