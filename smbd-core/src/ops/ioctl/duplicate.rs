//! FSCTL_DUPLICATE_EXTENTS_TO_FILE (MS-FSA section 2.1.5.10.4): two files share storage.

use vfs::namespace::FileOps;
use vfs::{NodeRef, VfsError};

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::ops::bytes::{Change, Changing};
use crate::status::Status;
use crate::wire::fsctl::DuplicateExtents;

use super::{Asked, ranges};

/// Cluster size in bytes that clients see.
const CLUSTER: u64 = 4096;

pub(super) async fn extents(a: &Asked<'_>) -> Result<Answer, Status> {
    let target = a.file()?;
    let d = a.parse(DuplicateExtents::parse)?;
    if !target.share.backend.capabilities_of(&target.node()).reflink {
        return Err(Status::INVALID_DEVICE_REQUEST);
    }
    let source = a.cx.open(d.source).map_err(|_| Status::INVALID_HANDLE)?;
    let from = source.file()?;
    if a.open.is_dir() || source.is_dir() {
        return Err(Status::INVALID_PARAMETER);
    }
    let right = a.may_change(Change::DuplicateInto { at: d.to, len: d.count }).await?;
    source.check(mask::READ_DATA)?;
    let ends = |at: u64| at.checked_add(d.count).filter(|end| i64::try_from(*end).is_ok());
    let (Some(from_end), Some(to_end)) = (ends(d.from), ends(d.to)) else {
        return Err(Status::INVALID_PARAMETER);
    };
    // The range must end within the source, and within the target unless the target is sparse; a target that is not sparse cannot
    // receive holes.
    let (from_attr, to_attr) = (from.node().getattr().await?, target.node().getattr().await?);
    let sparse = ranges::is_sparse(target, &to_attr).await?;
    let holes = ranges::is_sparse(from, &from_attr).await?;
    let overlaps = from.node().id() == target.node().id() && d.from < to_end && d.to < from_end;
    if from_end > from_attr.size || !sparse && (to_end > to_attr.size || holes) || overlaps {
        return Err(Status::NOT_SUPPORTED);
    }
    if d.count == 0 {
        return a.answer(&[]);
    }
    let reader = a.file_ops_of(&source);
    let from = (&from.node(), &reader);
    match right.clone_from(from, d.from).await {
        // Clients see a single cluster size; if the volume shares storage only in larger units, copy the data.
        Err(VfsError::Invalid) if aligned(&d) => copied(&right, from, &d).await?,
        Err(VfsError::NotSupported | VfsError::CrossDevice) => return Err(Status::NOT_SUPPORTED),
        other => other?,
    }
    right.done().await?;
    a.answer(&[])
}

/// Returns whether the offsets are cluster-aligned.
fn aligned(d: &DuplicateExtents) -> bool {
    d.from.is_multiple_of(CLUSTER) && d.to.is_multiple_of(CLUSTER)
}

async fn copied(
    right: &Changing<'_>,
    from: (&NodeRef, &FileOps<'_>),
    d: &DuplicateExtents,
) -> Result<(), Status> {
    let mut n = 0;
    while n < d.count {
        let some = right.copy_from(n, from, d.from + n, d.count - n).await??;
        if some == 0 {
            return Err(Status::UNEXPECTED_IO_ERROR);
        }
        n += some;
    }
    Ok(())
}
