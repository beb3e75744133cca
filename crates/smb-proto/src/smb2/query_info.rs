//! SMB2 QUERY_INFO (MS-SMB2 sections 2.2.37 and 2.2.38).

use wire::{Parser, le_u8, le_u16, le_u32};

use super::file_id::FileId;
pub use super::query_directory::Response;
use super::{HEADER_LEN, Parsed};
use crate::parse::{behind, body, size};

/// `InfoType` of QUERY_INFO and SET_INFO.
#[allow(missing_docs)] // The names are the specification's.
pub mod info_type {
    pub const FILE: u8 = 1;
    pub const FILESYSTEM: u8 = 2;
    pub const SECURITY: u8 = 3;
    pub const QUOTA: u8 = 4;
}

/// Parts of a security descriptor, in `AdditionalInformation` (MS-SMB2 section 2.2.37).
#[allow(missing_docs)] // The names are the specification's.
pub mod security_information {
    pub const OWNER: u32 = 0x1;
    pub const GROUP: u32 = 0x2;
    pub const DACL: u32 = 0x4;
    pub const SACL: u32 = 0x8;
    pub const LABEL: u32 = 0x10;
    pub const ATTRIBUTE: u32 = 0x20;
    pub const SCOPE: u32 = 0x40;
    pub const BACKUP: u32 = 0x1_0000;
}

/// Bits of [`Request::flags`], for extended attributes and quotas.
#[allow(missing_docs)] // The names are the specification's.
pub mod flag {
    pub const RESTART_SCAN: u32 = 1;
    pub const RETURN_SINGLE_ENTRY: u32 = 2;
    pub const INDEX_SPECIFIED: u32 = 4;
}

/// FileFullEaInformation, whose request lists names.
const FULL_EA: u8 = 15;

/// A QUERY_INFO request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// InfoType
    pub info_type: u8,
    /// FileInfoClass
    pub class: u8,
    /// Maximum length of the response's buffer, in bytes.
    pub output_len: u32,
    /// Parts of a descriptor, or the index of an extended attribute.
    pub additional: u32,
    /// Flags.
    pub flags: u32,
    /// The file.
    pub file: FileId,
    /// Names of extended attributes, or users of a quota.
    pub input: Vec<u8>,
}

impl Request {
    /// Length of the fixed part of the body, in bytes.
    const FIXED: usize = 40;

    /// Parses a request. The message bounds the input.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 41, |i| {
            let (place, (info_type, class, output_len)) =
                (le_u8("InfoType"), le_u8("FileInfoClass"), le_u32("OutputBufferLength"))
                    .parse(i)?;
            let (i, (at, _, len)) =
                (le_u16("InputBufferOffset"), le_u16("Reserved"), le_u32("InputBufferLength"))
                    .parse(place)?;
            let (i, (additional, flags, file)) =
                (le_u32("AdditionalInformation"), le_u32("Flags"), FileId::parse).parse(i)?;
            // Ignore the input of other classes, whatever its offset and length (section 3.3.5.20).
            let has_input =
                info_type == info_type::QUOTA || info_type == info_type::FILE && class == FULL_EA;
            let input = if has_input {
                behind(message, Self::FIXED, (at.into(), size(len)), "InputBuffer", place)?.to_vec()
            } else {
                Vec::new()
            };
            Ok((i, Self { info_type, class, output_len, additional, flags, file, input }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.input.len().max(1));
        out.extend(41_u16.to_le_bytes());
        out.extend([self.info_type, self.class]);
        out.extend(self.output_len.to_le_bytes());
        let at = if self.input.is_empty() { 0 } else { HEADER_LEN + Self::FIXED };
        out.extend(u16::try_from(at).unwrap_or_default().to_le_bytes());
        out.extend([0; 2]);
        out.extend(u32::try_from(self.input.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(self.additional.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.file.emit());
        out.extend(&self.input);
        if self.input.is_empty() {
            out.push(0);
        }
        out
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
    fn malformed_input_is_refused() {
        let r = Request {
            info_type: info_type::FILE,
            class: 15,
            output_len: 1024,
            additional: 0,
            flags: 0,
            file: FileId::default(),
            input: vec![1, 2, 3],
        };
        let good = message(&r.emit());
        assert_eq!(Request::parse(&good), Ok(r));
        let mut bad = good.clone();
        bad[64 + 12..64 + 16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(named(Request::parse(&bad)), Err("InputBuffer"));
        assert_eq!(named(Request::parse(&good[..100])), Err("FileId"));
    }

    proptest! {
        #[test]
        fn requests_round_trip(
            info_type: u8, class: u8, output_len: u32, additional: u32, flags: u32, persistent: u64, volatile: u64,
            input in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let input = if info_type == info_type::QUOTA { input } else { Vec::new() };
            let file = FileId { persistent, volatile };
            let r = Request { info_type, class, output_len, additional, flags, file, input };
            prop_assert_eq!(Request::parse(&message(&r.emit())).unwrap(), r);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut m = message(&[41, 0]);
            m.extend(bytes);
            let _ = Request::parse(&m);
        }
    }
}
