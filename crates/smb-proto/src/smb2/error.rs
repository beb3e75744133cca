//! The body of an error response with additional data (MS-SMB2 section 2.2.2).

use wire::{Parser, le_u8, le_u16, le_u32, take};

use super::Parsed;
use super::reparse::{RELATIVE, Reparse, TAG_SYMLINK, substitute_name};
use crate::parse::{constant, size, whole};

/// SMB2_ERROR_ID_DEFAULT
const ERROR_ID_DEFAULT: u32 = 0;
/// "SYML"
const SYMLINK_ERROR_TAG: u32 = 0x4c4d_5953;

/// Builds an error response with this data; in dialect 3.1.1 (`contexts`) the data is in an error context.
pub fn body(data: &[u8], contexts: bool) -> Vec<u8> {
    let len = |n: usize| u32::try_from(n).unwrap_or(0).to_le_bytes();
    let mut out = vec![9, 0, u8::from(contexts), 0];
    if contexts {
        out.extend(len(8 + data.len()));
        out.extend(len(data.len()));
        out.extend(ERROR_ID_DEFAULT.to_le_bytes());
    } else {
        out.extend(len(data.len()));
    }
    out.extend(data);
    out
}

/// Returns the data of an error response, taken out of its context if there is one. `message` starts at its header.
pub fn data(message: &[u8]) -> Parsed<&[u8]> {
    crate::parse::body(message, 9, |i| {
        let (i, (contexts, _, len)) =
            (le_u8("ErrorContextCount"), le_u8("Reserved"), le_u32("ByteCount")).parse(i)?;
        if contexts == 0 {
            return take(size(len), "ErrorData")(i);
        }
        let (i, (len, _)) = (le_u32("ErrorDataLength"), le_u32("ErrorId")).parse(i)?;
        take(size(len), "ErrorData")(i)
    })
}

/// Builds a Symbolic Link Error Response (section 2.2.2.2.1): the link's target, and the number of unparsed path bytes after it.
///
/// The length is a multiple of 8: Go's client requires this even of the last error context (section 2.2.2.1), and Python's
/// smbprotocol parses bytes after a context as another one. Therefore `PathBuffer` ends with padding.
pub fn symlink(target: &str, relative: bool, unparsed: usize) -> Vec<u8> {
    let mut reparse = Reparse::Symlink { target: target.to_owned(), relative }.emit();
    reparse.resize(reparse.len().next_multiple_of(8), 0);
    let mut out = Vec::with_capacity(8 + reparse.len());
    // The length excludes the field itself.
    let len = u32::try_from(4 + reparse.len()).unwrap_or(0);
    out.extend(len.to_le_bytes());
    out.extend(SYMLINK_ERROR_TAG.to_le_bytes());
    out.extend(&reparse[..4]);
    out.extend(u16::try_from(reparse.len() - 8).unwrap_or(u16::MAX).to_le_bytes());
    // This field is reserved in a reparse point.
    out.extend(u16::try_from(unparsed).unwrap_or(u16::MAX).to_le_bytes());
    out.extend(&reparse[8..]);
    out
}

/// Parses a Symbolic Link Error Response: the target, whether it is relative, and the number of unparsed path bytes.
pub fn parse_symlink(data: &[u8]) -> Parsed<(String, bool, u16)> {
    whole(data, |i| {
        let (i, _) = le_u32("SymLinkLength")(i)?;
        let (i, ()) = constant("SymLinkErrorTag", le_u32("SymLinkErrorTag"), SYMLINK_ERROR_TAG)(i)?;
        let (i, ()) = constant("ReparseTag", le_u32("ReparseTag"), TAG_SYMLINK)(i)?;
        let (i, (_, unparsed)) =
            (le_u16("ReparseDataLength"), le_u16("UnparsedPathLength")).parse(i)?;
        let (i, (name, flags)) = substitute_name(i)?;
        Ok((i, (name, flags & RELATIVE != 0, unparsed)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::message;

    #[test]
    fn symlinks_round_trip_in_both_forms() {
        for (text, relative) in [("a\\b", true), ("\\etc", false), ("../x", true)] {
            let link = symlink(text, relative, 10);
            assert_eq!(link[..4], u32::try_from(link.len() - 4).unwrap().to_le_bytes());
            assert_eq!(link[12..14], u16::try_from(link.len() - 16).unwrap().to_le_bytes());
            assert!(link.len().is_multiple_of(8), "{text}");
            for contexts in [false, true] {
                let whole = body(&link, contexts);
                assert_eq!(whole[4..8], u32::try_from(whole.len() - 8).unwrap().to_le_bytes());
                if contexts {
                    assert_eq!(whole[8..12], u32::try_from(link.len()).unwrap().to_le_bytes());
                }
                let m = message(Command::Create, &whole);
                let data = data(&m).unwrap();
                assert_eq!(parse_symlink(data), Ok((text.to_owned(), relative, 10)));
            }
        }
    }

    #[test]
    fn truncated_response_is_refused() {
        let m = message(Command::Create, &body(&symlink("abc", true, 0), true));
        for cut in 64..m.len() {
            assert!(data(&m[..cut]).is_err());
        }
        let link = symlink("abc", true, 0);
        for cut in 0..link.len() - 6 {
            assert!(parse_symlink(&link[..cut]).is_err(), "{cut}");
        }
    }
}
