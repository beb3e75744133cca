//! Control codes with nearly constant results: compression state and object identifiers.

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::status::Status;
use crate::wire::fsctl::compression_state;

use super::Asked;

/// COMPRESSION_FORMAT_NONE
const COMPRESSION_NONE: u16 = 0;
/// COMPRESSION_FORMAT_DEFAULT
const COMPRESSION_DEFAULT: u16 = 1;
/// COMPRESSION_FORMAT_LZNT1, the last valid format.
const COMPRESSION_LZNT1: u16 = 2;
/// Bytes of a FILE_OBJECTID_BUFFER (MS-FSCC section 2.1.3).
const OBJECT_ID_LEN: u32 = 64;

/// Answers FSCTL_GET_COMPRESSION: clients see all files as uncompressed.
pub(super) fn get_compression(a: &Asked<'_>) -> Result<Answer, Status> {
    a.file()?;
    a.room(2, Status::INVALID_PARAMETER)?;
    a.answer(&COMPRESSION_NONE.to_le_bytes())
}

/// Answers FSCTL_SET_COMPRESSION: accepts only the existing state.
pub(super) fn set_compression(a: &Asked<'_>) -> Result<Answer, Status> {
    a.file()?;
    let format = a.parse(compression_state)?;
    if format > COMPRESSION_LZNT1 {
        return Err(Status::INVALID_PARAMETER);
    }
    a.open.check(mask::WRITE_DATA)?;
    match format {
        COMPRESSION_NONE => a.answer(&[]),
        // Samba's servers answer so for the format that they would choose themselves, and smbtorture expects it
        // (smb2.ioctl.compress_notsup_set).
        COMPRESSION_DEFAULT => Err(Status::NOT_SUPPORTED),
        // A volume without compression (MS-FSA section 2.1.5.10.30).
        _ => Err(Status::INVALID_DEVICE_REQUEST),
    }
}

/// Answers FSCTL_CREATE_OR_GET_OBJECT_ID and FSCTL_GET_OBJECT_ID. Derives the identifier from the file handle, which is permanent,
/// so that it needs no storage, and a copy of the file has a different identifier.
pub(super) fn object_id(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.file()?;
    a.room(OBJECT_ID_LEN, Status::INVALID_PARAMETER)?;
    let handle = file.base().handle();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&fold(b"object", handle.as_bytes()).to_le_bytes());
    id[8..].copy_from_slice(&fold(b"volume", handle.as_bytes()).to_le_bytes());
    let mut out = id.to_vec();
    // BirthVolumeId, BirthObjectId: the current ones. DomainId is always zero.
    out.extend(fold(b"share", file.share.name.as_bytes()).to_le_bytes());
    out.extend([0; 8]);
    out.extend(id);
    out.extend([0; 16]);
    a.answer(&out)
}

/// Computes FNV-1a with 64 bits.
fn fold(salt: &[u8], bytes: &[u8]) -> u64 {
    salt.iter()
        .chain(bytes)
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}
