//! FLUSH (MS-SMB2 sections 2.2.17 and 2.2.18).

use wire::{Parser, take};

use super::{FileId, Parsed};
use crate::parse::body;

/// A FLUSH request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The open file.
    pub file: FileId,
}

impl Request {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 24, |i| {
            let (i, (_, file)) = (take(6, "Reserved"), FileId::parse).parse(i)?;
            Ok((i, Self { file }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        out.extend(24_u16.to_le_bytes());
        out.extend([0; 6]);
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
        let r = Request { file: FileId { persistent: 3, volatile: 4 } };
        let m = message(Command::Flush, &r.emit());
        assert_eq!(Request::parse(&m), Ok(r));
        assert!(Request::parse(&m[..m.len() - 1]).is_err());
        assert_eq!(Response::parse(&message(Command::Flush, &Response.emit())), Ok(Response));
    }
}
