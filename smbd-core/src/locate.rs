//! Finds the bulk data of a message in its first bytes, so that a byte stream can be read straight into place: the data of a
//! WRITE, the ciphertext of an encrypted message, the streams of a compressed one.

use rdma_transport::channel::PayloadLocator;

use crate::wire::header::PROTOCOL_ID;
use crate::wire::write::Request;
use crate::wire::{Command, Header, compression, transform};

/// Smaller payloads are not worth their own buffer.
const BULK_MIN: usize = 4096;

/// The locator for SMB2 messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmbLocate;

impl PayloadLocator for SmbLocate {
    fn bulk(&self, head: &[u8], total: usize) -> Option<(usize, usize)> {
        let id = head.first_chunk::<4>()?;
        let (at, len) = match *id {
            transform::PROTOCOL_ID => (transform::LEN, total.checked_sub(transform::LEN)?),
            compression::PROTOCOL_ID => (compression::LEN, total.checked_sub(compression::LEN)?),
            PROTOCOL_ID => write(head, total)?,
            _ => return None,
        };
        (len >= BULK_MIN).then_some((at, len))
    }

    /// An encrypted message cannot be located before decryption, nor a compressed one before expansion. A signed one can be
    /// answered without its data, although it is not verified.
    fn is_sealed(&self, head: &[u8]) -> bool {
        head.starts_with(&transform::PROTOCOL_ID) || head.starts_with(&compression::PROTOCOL_ID)
    }
}

/// Returns the place of a WRITE's data if the WRITE is not in a chain and its data is last in the message (MS-SMB2 section 2.2.21).
pub(crate) fn write(head: &[u8], total: usize) -> Option<(usize, usize)> {
    let header = Header::parse(head).ok()?;
    if header.command() != Some(Command::Write) || header.next != 0 {
        return None;
    }
    let request = Request::parse(head).ok()?;
    let (at, len) = (usize::from(request.data_offset), usize::try_from(request.length).ok()?);
    let is_behind = request.data_offset >= Request::DATA_OFFSET;
    (is_behind && at.checked_add(len)? == total).then_some((at, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rdma::Channel;
    use crate::wire::{FileId, Flags, HEADER_LEN};

    fn message(request: &Request, next: u32) -> Vec<u8> {
        let header = Header {
            credit_charge: 1,
            status: 0,
            command: Command::Write as u16,
            credits: 1,
            flags: Flags::default(),
            next,
            message_id: 1,
            tree_or_async: 0,
            session_id: 1,
            signature: [0; 16],
        };
        [&header.emit()[..], &request.emit()].concat()
    }

    #[test]
    fn the_data_of_a_write_is_found_by_its_parser() {
        let request = Request {
            data_offset: Request::DATA_OFFSET,
            length: 65_536,
            offset: 0,
            file: FileId::default(),
            channel: Some(Channel::None),
            remaining: 0,
            flags: 0,
            descriptors: Vec::new(),
            transform: None,
        };
        let head = message(&request, 0);
        let total = head.len() + 65_536;
        assert_eq!(SmbLocate.bulk(&head, total), Some((112, 65_536)));
        assert!(!SmbLocate.is_sealed(&head));
        assert_eq!(SmbLocate.bulk(&head[..111], total), None, "too short to tell");
        assert_eq!(SmbLocate.bulk(&head, total + 1), None, "something stands behind the data");
        assert_eq!(SmbLocate.bulk(&message(&request, 8), total), None, "a chain");
        let inside = Request { data_offset: 111, length: 65_537, ..request.clone() };
        assert_eq!(SmbLocate.bulk(&message(&inside, 0), total), None, "in the fixed part");
        // A message that the parser rejects has no separate data: it is refused after it was read as a whole.
        let mut bad = message(&Request { channel: Some(Channel::RdmaV1), ..request }, 0);
        bad[HEADER_LEN + 40..HEADER_LEN + 44].copy_from_slice(&[112, 0, 16, 0]);
        assert_eq!(SmbLocate.bulk(&bad, total), None);
    }

    #[test]
    fn ciphertext_is_all_behind_the_header() {
        let head = [&transform::PROTOCOL_ID[..], &[0; 60]].concat();
        assert_eq!(SmbLocate.bulk(&head, 5000), Some((52, 4948)));
        assert!(SmbLocate.is_sealed(&head));
        assert_eq!(SmbLocate.bulk(&head, 4147), None, "smaller than a buffer");
    }
}
