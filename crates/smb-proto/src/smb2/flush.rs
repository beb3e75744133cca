//! FLUSH (MS-SMB2 sections 2.2.17 and 2.2.18).

use wire::{Parser, le_u16, take};

use super::{FileId, Parsed};
use crate::parse::body;

/// A FLUSH request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The open file.
    pub file: FileId,
    /// macOS asks for F_FULLFSYNC, by a value of a reserved field, if the volume has FULL_SYNC ([`super::aapl::volume`]).
    pub full_sync: bool,
}

/// Reserved1 of a request for F_FULLFSYNC.
const FULL_SYNC: u16 = 0xffff;

impl Request {
    /// Builds a request for the durability that any client gets.
    pub fn of(file: FileId) -> Self {
        Self { file, full_sync: false }
    }

    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 24, |i| {
            let (i, (reserved, _, file)) =
                (le_u16("Reserved1"), take(4, "Reserved2"), FileId::parse).parse(i)?;
            Ok((i, Self { file, full_sync: reserved == FULL_SYNC }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        out.extend(24_u16.to_le_bytes());
        out.extend(if self.full_sync { FULL_SYNC } else { 0 }.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.file.emit());
        out
    }
}

/// A FLUSH response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response;

impl Response {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 4, |i| Ok((i, Self)))
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        vec![4, 0, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::message;

    #[test]
    fn request_and_response_round_trip() {
        for full_sync in [false, true] {
            let r = Request { file: FileId { persistent: 3, volatile: 4 }, full_sync };
            let m = message(Command::Flush, &r.emit());
            assert_eq!(Request::parse(&m), Ok(r));
            assert!(Request::parse(&m[..m.len() - 1]).is_err());
        }
        assert_eq!(Response::parse(&message(Command::Flush, &Response.emit())), Ok(Response));
    }
}
