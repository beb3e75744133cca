//! SMB2 CHANGE_NOTIFY (MS-SMB2 sections 2.2.35 and 2.2.36).

use super::file_id::FileId;
pub use super::query_directory::Response;
use wire::{Parser, le_u16, le_u32};

use super::Parsed;
use crate::parse::body;

/// SMB2_WATCH_TREE: watch the whole subtree, not only this directory.
pub const WATCH_TREE: u16 = 1;

/// Bits of [`Request::filter`] (MS-SMB2 section 2.2.35).
#[allow(missing_docs)] // The names are the specification's.
pub mod filter {
    pub const FILE_NAME: u32 = 0x001;
    pub const DIR_NAME: u32 = 0x002;
    pub const ATTRIBUTES: u32 = 0x004;
    pub const SIZE: u32 = 0x008;
    pub const LAST_WRITE: u32 = 0x010;
    pub const LAST_ACCESS: u32 = 0x020;
    pub const CREATION: u32 = 0x040;
    pub const EA: u32 = 0x080;
    pub const SECURITY: u32 = 0x100;
    pub const STREAM_NAME: u32 = 0x200;
    pub const STREAM_SIZE: u32 = 0x400;
    pub const STREAM_WRITE: u32 = 0x800;
    /// All variants.
    pub const ALL: u32 = 0xfff;
}

/// A CHANGE_NOTIFY request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Flags: [`WATCH_TREE`].
    pub flags: u16,
    /// Maximum length of the response's buffer, in bytes.
    pub output_len: u32,
    /// The directory.
    pub file: FileId,
    /// CompletionFilter
    pub filter: u32,
}

impl Request {
    /// Parses one.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 32, |i| {
            let (i, (flags, output_len)) =
                (le_u16("Flags"), le_u32("OutputBufferLength")).parse(i)?;
            let (i, (file, filter)) = (FileId::parse, le_u32("CompletionFilter")).parse(i)?;
            let (i, _) = le_u32("Reserved")(i)?;
            Ok((i, Self { flags, output_len, file, filter }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.extend(32_u16.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.output_len.to_le_bytes());
        out.extend(self.file.emit());
        out.extend(self.filter.to_le_bytes());
        out.extend([0; 4]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::HEADER_LEN;
    use super::super::test_harness::named;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn truncated_request_is_refused() {
        let mut m = vec![0; HEADER_LEN];
        m.extend([32, 0, 1, 0]);
        assert_eq!(named(Request::parse(&m)), Err("OutputBufferLength"));
    }

    proptest! {
        #[test]
        fn requests_round_trip(flags: u16, output_len: u32, persistent: u64, volatile: u64, filter: u32) {
            let r = Request { flags, output_len, file: FileId { persistent, volatile }, filter };
            let mut m = vec![0; HEADER_LEN];
            m.extend(r.emit());
            prop_assert_eq!(m.len(), HEADER_LEN + 32);
            prop_assert_eq!(Request::parse(&m).unwrap(), r);
        }
    }
}
