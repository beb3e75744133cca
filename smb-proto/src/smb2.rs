//! The formats of MS-SMB2 section 2, pure: one file per command, each with what a client sends and what a server answers.
//!
//! *Operation.* A `Request` or `Response` is read by `parse(message)`, where `message` starts at the 64-byte header and ends
//! where this message of a chain ends, because offsets in SMB2 count from the header. It is written by `emit()`, which gives the
//! body that follows the header, with offsets already counted from it. Reading borrows; nothing is copied but fixed fields.
//!
//! *Errors.* [`Malformed`], which names the field. Every offset and length is checked against the message before it is used,
//! and the `StructureSize` of each body against its value.

pub mod change_notify;
pub mod close;
pub mod context;
pub mod create;
pub mod error;
pub mod file_id;
pub mod flush;
pub mod fsctl;
pub mod header;
pub mod ioctl;
pub mod lock;
pub mod negotiate;
pub mod negotiate_context;
pub mod oplock_break;
pub mod query_directory;
pub mod query_info;
pub mod rdma;
pub mod read;
pub mod reparse;
pub mod session_setup;
pub mod set_info;
pub mod simple;
pub mod smb1;
#[cfg(test)]
pub(crate) mod test_kit;
pub mod transform;
pub mod tree_connect;
pub mod write;

pub use file_id::FileId;
pub use header::{Command, Flags, Header};

/// Bytes of the header before every body (MS-SMB2 section 2.2.1).
pub const HEADER_LEN: usize = 64;

/// A message that does not follow its format; names the field. Answered with `STATUS_INVALID_PARAMETER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// What reading gives.
pub type Parsed<T> = Result<T, Malformed>;

/// Reads little-endian fields one after the other; every short read names the field that was cut.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    whole: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// From `at` in `whole`.
    pub fn new(whole: &'a [u8], at: usize) -> Self {
        Self { whole, at }
    }

    /// The body of a message that starts at its header, whose first field must be this `StructureSize`.
    pub fn body(message: &'a [u8], structure_size: u16) -> Parsed<Self> {
        let mut fields = Self::new(message, HEADER_LEN);
        if fields.u16("StructureSize")? != structure_size {
            return Err(Malformed("StructureSize"));
        }
        Ok(fields)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Parsed<[u8; N]> {
        let rest = self.whole.get(self.at..).ok_or(Malformed(field))?;
        let found = rest.first_chunk::<N>().ok_or(Malformed(field))?;
        self.at += N;
        Ok(*found)
    }

    /// The next byte.
    pub fn u8(&mut self, field: &'static str) -> Parsed<u8> {
        self.array::<1>(field).map(|b| b[0])
    }

    /// The next 16 bits.
    pub fn u16(&mut self, field: &'static str) -> Parsed<u16> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// The next 32 bits.
    pub fn u32(&mut self, field: &'static str) -> Parsed<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// The next 64 bits.
    pub fn u64(&mut self, field: &'static str) -> Parsed<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize, field: &'static str) -> Parsed<&'a [u8]> {
        let found = range(self.whole, self.at, len, field)?;
        self.at += len;
        Ok(found)
    }

    /// Passes over bytes that mean nothing here.
    pub fn skip(&mut self, len: usize) {
        self.at = self.at.saturating_add(len);
    }

    /// Offset of the next field from the start of the message.
    pub fn at(&self) -> usize {
        self.at
    }

    /// What follows.
    pub fn rest(&self) -> &'a [u8] {
        self.whole.get(self.at..).unwrap_or_default()
    }
}

/// `len` bytes at an offset that the peer gave, counted from the start of `whole`. Nothing at all may stand anywhere.
pub fn range<'a>(
    whole: &'a [u8],
    offset: usize,
    len: usize,
    field: &'static str,
) -> Parsed<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    let end = offset.checked_add(len).ok_or(Malformed(field))?;
    whole.get(offset..end).ok_or(Malformed(field))
}

/// Text as SMB2 sends it: UTF-16, little-endian, without a terminator. `None` when the bytes are odd in number or hold half of a
/// surrogate pair.
pub fn utf16(bytes: &[u8]) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    char::decode_utf16(units.iter().map(|u| u16::from_le_bytes(*u))).collect::<Result<_, _>>().ok()
}

/// Appends text in UTF-16, little-endian, and gives its length in bytes.
pub fn put_utf16(out: &mut Vec<u8>, text: &str) -> usize {
    let from = out.len();
    out.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    out.len() - from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_field_is_named() {
        let mut f = Fields::new(&[1, 2, 3], 0);
        assert_eq!(f.u16("First"), Ok(0x0201));
        assert_eq!(f.u16("Second"), Err(Malformed("Second")));
        assert_eq!(f.u8("Second"), Ok(3));
        assert_eq!(Fields::new(&[], 9).u8("Beyond"), Err(Malformed("Beyond")));
    }

    #[test]
    fn ranges_are_checked_without_overflow() {
        let whole = [0_u8; 8];
        assert_eq!(range(&whole, usize::MAX, 2, "Buffer"), Err(Malformed("Buffer")));
        assert_eq!(range(&whole, 7, 2, "Buffer"), Err(Malformed("Buffer")));
        assert_eq!(range(&whole, 6, 2, "Buffer"), Ok(&whole[6..]));
        assert_eq!(range(&whole, 999, 0, "Buffer"), Ok(&[][..]), "nothing may stand anywhere");
    }

    #[test]
    fn text_is_utf16() {
        let mut out = Vec::new();
        assert_eq!(put_utf16(&mut out, "aé😀"), 8);
        assert_eq!(utf16(&out).as_deref(), Some("aé😀"));
        assert_eq!(utf16(&out[..7]), None);
        assert_eq!(utf16(&[0x00, 0xd8]), None, "half a pair");
    }
}
