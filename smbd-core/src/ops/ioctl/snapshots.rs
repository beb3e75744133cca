//! FSCTL_SRV_ENUMERATE_SNAPSHOTS (MS-SMB2 section 3.3.5.15.1): lists the previous versions of a file or directory.
//!
//! *Operation.* Returns the snapshots of a directory; for a file, the snapshots of its directory that contain its name. Clients
//! open a version by its time ([`crate::ops::create`]).

use smb_proto::dtyp::gmt;

use crate::answer::Answer;
use crate::status::Status;
use crate::wire::fsctl::Snapshots;

use super::Asked;

pub(super) async fn enumerate(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.file()?;
    a.room(Snapshots::LEN, Status::INVALID_PARAMETER)?;
    let (place, cred) = (file.place(), &a.open.cred);
    let is_dir = a.open.is_dir();
    let dir = if is_dir { file.base() } else { place.dir };
    let times = dir.snapshot_times(cred, (!is_dir).then_some(&place.name[..])).await?;
    // Newest first, as on Windows.
    let names = times.into_iter().rev().map(gmt).collect();
    a.answer(&Snapshots::new(names, a.request.output_max).emit())
}
