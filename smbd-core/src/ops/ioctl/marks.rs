//! What a client asks about a file that this server answers from little: compression, object identity.

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::status::Status;
use crate::wire::fsctl::compression_state;

use super::Asked;

/// COMPRESSION_FORMAT_NONE
const COMPRESSION_NONE: u16 = 0;
/// COMPRESSION_FORMAT_LZNT1, the last that has a meaning.
const COMPRESSION_LZNT1: u16 = 2;
/// Bytes of a FILE_OBJECTID_BUFFER (MS-FSCC section 2.1.3).
const OBJECT_ID_LEN: u32 = 64;

/// FSCTL_GET_COMPRESSION: nothing is compressed here, as far as a client can see.
pub(super) fn get_compression(a: &Asked<'_>) -> Result<Answer, Status> {
    a.file()?;
    a.room(2, Status::INVALID_PARAMETER)?;
    a.answer(&COMPRESSION_NONE.to_le_bytes())
}

/// FSCTL_SET_COMPRESSION: only to what is so already.
pub(super) fn set_compression(a: &Asked<'_>) -> Result<Answer, Status> {
    a.file()?;
    let format = a.parse(compression_state)?;
    // MS-FSA section 2.1.5.10.30. For a format that there is, the section has INVALID_DEVICE_REQUEST where nothing is compressed;
    // Windows answers NOT_SUPPORTED on such a volume (smbtorture, smb2.ioctl.compress_notsup_set).
    if format > COMPRESSION_LZNT1 {
        return Err(Status::INVALID_PARAMETER);
    }
    a.open.check(mask::WRITE_DATA)?;
    if format == COMPRESSION_NONE { a.answer(&[]) } else { Err(Status::NOT_SUPPORTED) }
}

/// FSCTL_CREATE_OR_GET_OBJECT_ID and FSCTL_GET_OBJECT_ID. The identity is made from the file's handle, which names it for ever; so
/// nothing has to be kept, and a copy of the file has another one.
pub(super) fn object_id(a: &Asked<'_>) -> Result<Answer, Status> {
    let file = a.file()?;
    a.room(OBJECT_ID_LEN, Status::INVALID_PARAMETER)?;
    let handle = file.base().handle();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&fold(b"object", handle.as_bytes()).to_le_bytes());
    id[8..].copy_from_slice(&fold(b"volume", handle.as_bytes()).to_le_bytes());
    let mut out = id.to_vec();
    // BirthVolumeId, BirthObjectId: it was born here. DomainId is always zero.
    out.extend(fold(b"share", file.share.name.as_bytes()).to_le_bytes());
    out.extend([0; 8]);
    out.extend(id);
    out.extend([0; 16]);
    a.answer(&out)
}

/// FNV-1a, 64 bits.
fn fold(salt: &[u8], bytes: &[u8]) -> u64 {
    salt.iter()
        .chain(bytes)
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}
