//! SMB2 QUERY_DIRECTORY (MS-SMB2 sections 2.2.33 and 2.2.34).

use wire::{Parser, le_u8, le_u16, le_u32};

use super::file_id::FileId;
use super::{HEADER_LEN, Parsed, put_utf16};
use crate::parse::{behind, body, buffer, shorts, size, text};

/// Bits of [`Request::flags`].
#[allow(missing_docs)] // The names are the specification's.
pub mod flag {
    pub const RESTART_SCANS: u8 = 0x01;
    pub const RETURN_SINGLE_ENTRY: u8 = 0x02;
    pub const INDEX_SPECIFIED: u8 = 0x04;
    pub const REOPEN: u8 = 0x10;
}

/// A QUERY_DIRECTORY request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// FileInformationClass: a number of MS-FSCC section 2.4.
    pub class: u8,
    /// Flags.
    pub flags: u8,
    /// Index at which to continue, with `INDEX_SPECIFIED`.
    pub file_index: u32,
    /// The directory.
    pub file: FileId,
    /// Maximum length of the response's buffer, in bytes.
    pub output_len: u32,
    /// The search pattern; may be empty.
    pub pattern: String,
}

impl Request {
    /// Length of the fixed part of the body, in bytes.
    const FIXED: usize = 32;

    /// Parses one.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 33, |i| {
            let (i, (class, flags, file_index, file)) =
                (le_u8("FileInformationClass"), le_u8("Flags"), le_u32("FileIndex"), FileId::parse)
                    .parse(i)?;
            let place = i;
            let (i, named) = shorts("FileName")(i)?;
            let (i, output_len) = le_u32("OutputBufferLength")(i)?;
            let name = behind(message, Self::FIXED, named, "FileName", place)?;
            let pattern = text(name, "FileName")?;
            Ok((i, Self { class, flags, file_index, file, output_len, pattern }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + 2 * self.pattern.len());
        out.extend(33_u16.to_le_bytes());
        out.extend([self.class, self.flags]);
        out.extend(self.file_index.to_le_bytes());
        out.extend(self.file.emit());
        let at = u16::try_from(HEADER_LEN + Self::FIXED).unwrap_or_default();
        out.extend(at.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.output_len.to_le_bytes());
        let len = put_utf16(&mut out, &self.pattern);
        out[26..28].copy_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
        // One byte of the buffer belongs to the structure.
        if len == 0 {
            out.push(0);
        }
        out
    }
}

/// A response with entries in the requested class. QUERY_INFO and CHANGE_NOTIFY responses have the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The bytes of the buffer.
    pub buffer: Vec<u8>,
}

impl Response {
    /// Length of the fixed part of the body, in bytes.
    pub const FIXED: usize = 8;

    /// Parses one.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 9, |i| {
            let place = (le_u16("OutputBufferOffset"), le_u32("OutputBufferLength"))
                .map(|(at, len)| (at.into(), size(len)));
            let (i, found) = buffer(message, "Buffer", place)(i)?;
            Ok((i, Self { buffer: found.to_vec() }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.buffer.len().max(1));
        out.extend(9_u16.to_le_bytes());
        // An empty response has offset zero and only the one byte of buffer that belongs to the structure.
        let at = if self.buffer.is_empty() { 0 } else { HEADER_LEN + Self::FIXED };
        out.extend(u16::try_from(at).unwrap_or_default().to_le_bytes());
        out.extend(u32::try_from(self.buffer.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(&self.buffer);
        if self.buffer.is_empty() {
            out.push(0);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::test_harness::named;
    use proptest::prelude::*;

    /// Builds a message from an empty header and a body.
    fn message(body: &[u8]) -> Vec<u8> {
        [&[0; HEADER_LEN], body].concat()
    }

    #[test]
    fn malformed_names_are_refused() {
        let r = Request {
            class: 37,
            flags: 0,
            file_index: 0,
            file: FileId::default(),
            output_len: 65_536,
            pattern: "*".into(),
        };
        let good = message(&r.emit());
        assert_eq!(Request::parse(&good), Ok(r));
        let mut bad = good.clone();
        bad[64 + 24] = 0xff;
        assert_eq!(named(Request::parse(&bad)), Err("FileName"), "an offset beyond the end");
        let mut bad = good.clone();
        bad[64 + 26] = 1;
        assert_eq!(named(Request::parse(&bad)), Err("FileName"), "half a character");
        assert_eq!(named(Request::parse(&good[..80])), Err("FileId"));
        assert_eq!(named(Request::parse(&[0; 64])), Err("StructureSize"));
    }

    proptest! {
        #[test]
        fn requests_round_trip(
            class: u8, flags: u8, file_index: u32, persistent: u64, volatile: u64, output_len: u32,
            pattern in ".{0,40}",
        ) {
            let file = FileId { persistent, volatile };
            let r = Request { class, flags, file_index, file, output_len, pattern };
            prop_assert_eq!(Request::parse(&message(&r.emit())).unwrap(), r);
        }

        #[test]
        fn responses_round_trip(buffer in proptest::collection::vec(any::<u8>(), 0..200)) {
            let r = Response { buffer };
            prop_assert_eq!(Response::parse(&message(&r.emit())).unwrap(), r);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut m = message(&bytes);
            let _ = Request::parse(&m);
            m.splice(64..64, [33, 0]);
            let _ = Request::parse(&m);
            m[64] = 9;
            let _ = Response::parse(&m);
        }
    }
}
