//! Checks of CREATE that do not look at any file (MS-SMB2 section 3.3.5.9, MS-FSA section 2.1.5.1 phase 1).

use crate::dtyp::mask;
use crate::fscc::attribute;
use crate::status::Status;
use crate::wire::create::{Disposition, Request, oplock, option, share};

/// Bits of `FileAttributes` that a client may send (MS-FSCC section 2.6).
const ATTRIBUTES: u32 = 0x005e_ffb7;
/// Unsupported `CreateOptions`: a remote instance, opening a file by its identifier, an opportunistic filter.
const NOT_SUPPORTED: u32 = 0x80 | option::OPEN_BY_FILE_ID | option::RESERVE_OPFILTER;

/// Checks the request and returns its disposition.
pub(super) fn request(r: &Request<'_>) -> Result<Disposition, Status> {
    const DELEGATE: u32 = 3;
    if r.impersonation > DELEGATE {
        return Err(Status::BAD_IMPERSONATION_LEVEL);
    }
    if r.options & !option::ALL != 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    if r.options & NOT_SUPPORTED != 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    // SYNCHRONIZE without other rights is allowed; programs open files this way to hold their names.
    if r.access == 0 || r.access & !mask::VALID != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    let levels = [oplock::NONE, oplock::II, oplock::EXCLUSIVE, oplock::BATCH, oplock::LEASE];
    if r.share & !(share::READ | share::WRITE | share::DELETE) != 0
        || !levels.contains(&r.oplock_level)
        || r.attributes & !ATTRIBUTES != 0
    {
        return Err(Status::INVALID_PARAMETER);
    }
    let disposition = Disposition::from_number(r.disposition).ok_or(Status::INVALID_PARAMETER)?;
    let dir = r.options & option::DIRECTORY_FILE != 0;
    if dir && (r.options & option::NON_DIRECTORY_FILE != 0 || disposition.cuts()) {
        return Err(Status::INVALID_PARAMETER);
    }
    if dir && r.attributes & attribute::TEMPORARY != 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    // MAXIMUM_ALLOWED may turn out to include DELETE, which is known after the file was found (MS-SMB2 section 3.3.5.9).
    let may_delete = mask::map_generic(r.access) & (mask::DELETE | mask::MAXIMUM_ALLOWED) != 0;
    if r.options & option::DELETE_ON_CLOSE != 0 && !may_delete {
        return Err(Status::ACCESS_DENIED);
    }
    Ok(disposition)
}
