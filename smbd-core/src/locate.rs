//! Finds the bulk data of a message in its first bytes, so that a byte stream can be read straight into place: the data of a
//! WRITE, the ciphertext of an encrypted message.

use rdma_transport::channel::Locate;

use crate::wire::header::PROTOCOL_ID;
use crate::wire::{Command, HEADER_LEN, Header};

/// Bytes of an SMB2_TRANSFORM_HEADER (MS-SMB2 section 2.2.41).
const TRANSFORM_LEN: usize = 52;
const TRANSFORM_ID: [u8; 4] = *b"\xfdSMB";
/// Smaller payload is not worth a buffer of its own.
const BULK_MIN: usize = 4096;

/// Knows the messages of SMB2.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmbLocate;

impl Locate for SmbLocate {
    fn bulk(&self, head: &[u8], total: usize) -> Option<(usize, usize)> {
        let id = head.first_chunk::<4>()?;
        let (at, len) = match *id {
            TRANSFORM_ID => (TRANSFORM_LEN, total.checked_sub(TRANSFORM_LEN)?),
            PROTOCOL_ID => write(head, total)?,
            _ => return None,
        };
        (len >= BULK_MIN).then_some((at, len))
    }
}

/// Where the data of a lone WRITE stands, when it is the last thing of its message (MS-SMB2 section 2.2.21).
pub(crate) fn write(head: &[u8], total: usize) -> Option<(usize, usize)> {
    let header = Header::parse(head).ok()?;
    if header.command() != Some(Command::Write) || header.next != 0 {
        return None;
    }
    let fixed: &[u8; 48] = head.get(HEADER_LEN..)?.first_chunk()?;
    let at = usize::from(u16::from_le_bytes([fixed[2], fixed[3]]));
    let len = u32::from_le_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
    let len = usize::try_from(len).ok()?;
    let end = at.checked_add(len)?;
    (at >= HEADER_LEN + fixed.len() && end == total).then_some((at, len))
}
