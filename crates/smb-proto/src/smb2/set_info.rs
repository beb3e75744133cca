//! SMB2 SET_INFO (MS-SMB2 sections 2.2.39 and 2.2.40).

use wire::{Parser, le_u8, le_u16, le_u32};

use super::file_id::FileId;
use super::{HEADER_LEN, Parsed};
use crate::parse::{behind, body, size};

/// A SET_INFO request. [`super::query_info`] has the types and parts of descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// InfoType
    pub info_type: u8,
    /// FileInfoClass
    pub class: u8,
    /// Parts of a security descriptor.
    pub additional: u32,
    /// The file.
    pub file: FileId,
    /// The new information.
    pub buffer: Vec<u8>,
}

impl Request {
    /// Length of the fixed part of the body, in bytes.
    const FIXED: usize = 32;

    /// Parses a request. The message bounds the buffer.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 33, |i| {
            let (i, (info_type, class)) = (le_u8("InfoType"), le_u8("FileInfoClass")).parse(i)?;
            let place = i;
            let (i, (len, at)) = (le_u32("BufferLength"), le_u16("BufferOffset")).parse(i)?;
            let (i, (_, additional, file)) =
                (le_u16("Reserved"), le_u32("AdditionalInformation"), FileId::parse).parse(i)?;
            let found = behind(message, Self::FIXED, (at.into(), size(len)), "Buffer", place)?;
            Ok((i, Self { info_type, class, additional, file, buffer: found.to_vec() }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.buffer.len().max(1));
        out.extend(33_u16.to_le_bytes());
        out.extend([self.info_type, self.class]);
        out.extend(u32::try_from(self.buffer.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(u16::try_from(HEADER_LEN + Self::FIXED).unwrap_or_default().to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.additional.to_le_bytes());
        out.extend(self.file.emit());
        out.extend(&self.buffer);
        if self.buffer.is_empty() {
            out.push(0);
        }
        out
    }
}

/// A SET_INFO response, which has no further fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response;

impl Response {
    /// Parses one.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 2, |i| Ok((i, Self)))
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        2_u16.to_le_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_harness::named;
    use super::*;
    use proptest::prelude::*;

    fn message(body: &[u8]) -> Vec<u8> {
        [&[0; HEADER_LEN], body].concat()
    }

    #[test]
    fn malformed_buffer_is_refused() {
        let file = FileId::default();
        let r = Request { info_type: 1, class: 4, additional: 0, file, buffer: vec![0; 40] };
        let good = message(&r.emit());
        assert_eq!(Request::parse(&good), Ok(r));
        assert_eq!(named(Request::parse(&good[..good.len() - 1])), Err("Buffer"));
        let mut bad = good.clone();
        bad[64 + 8] += 1;
        assert_eq!(named(Request::parse(&bad)), Err("Buffer"));
        assert_eq!(Response::parse(&message(&Response.emit())), Ok(Response));
        assert_eq!(named(Response::parse(&message(&[3, 0]))), Err("StructureSize"));
    }

    proptest! {
        #[test]
        fn requests_round_trip(
            info_type: u8, class: u8, additional: u32, persistent: u64, volatile: u64,
            buffer in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let file = FileId { persistent, volatile };
            let r = Request { info_type, class, additional, file, buffer };
            prop_assert_eq!(Request::parse(&message(&r.emit())).unwrap(), r);
        }
    }
}
