//! Parsers shared by this crate, in addition to the primitives of [`wire`]: the frame of a message, buffers given by offset and
//! length, and text.

use wire::{Fault, Malformed, Parser, Rule, decode, known, le_u16, le_u32, reject, take};

/// Length of the header before every body, in bytes (MS-SMB2 section 2.2.1).
pub const HEADER_LEN: usize = 64;

/// The result of parsing a complete value: the value, or the field that breaks a rule and its offset.
pub type Parsed<T> = Result<T, Fault>;

/// A rejected field inside a parser.
pub(crate) type Rejected<'a> = nom::Err<Malformed<'a>>;

/// Runs a parser on `bytes`; offsets count from its start. Ignores bytes after the value.
#[inline]
pub(crate) fn whole<'a, T>(
    bytes: &'a [u8],
    parser: impl FnOnce(&'a [u8]) -> wire::Parsed<'a, T>,
) -> Parsed<T> {
    match decode(bytes, parser) {
        Ok((_, value)) => Ok(value),
        Err(why) => Err(why.at(bytes)),
    }
}

/// Runs a parser on the body of a message that starts at its header; checks the first field, `StructureSize`.
#[inline]
pub(crate) fn body<'a, T>(
    message: &'a [u8],
    structure_size: u16,
    parser: impl FnOnce(&'a [u8]) -> wire::Parsed<'a, T>,
) -> Parsed<T> {
    whole(message, |message| {
        let behind = message.get(HEADER_LEN..).unwrap_or_default();
        let (rest, ()) =
            constant("StructureSize", le_u16("StructureSize"), structure_size)(behind)?;
        parser(rest)
    })
}

/// Parses a field that must have this value.
#[inline]
pub(crate) fn constant<'a, T: PartialEq>(
    field: &'static str,
    each: impl Parser<&'a [u8], Output = T, Error = Malformed<'a>>,
    value: T,
) -> impl FnMut(&'a [u8]) -> wire::Parsed<'a, ()> {
    known(field, each, move |found| (found == value).then_some(()))
}

/// Returns `len` bytes at an offset that the peer sent in the field at `place`, counted from the start of `whole`. An empty range
/// is valid at any offset.
#[inline]
pub(crate) fn range<'a>(
    whole: &'a [u8],
    (at, len): (usize, usize),
    field: &'static str,
    place: &'a [u8],
) -> Result<&'a [u8], Rejected<'a>> {
    if len == 0 {
        return Ok(&[]);
    }
    let found = at.checked_add(len).and_then(|end| whole.get(at..end));
    found.ok_or_else(|| reject(field, Rule::OutOfBounds, place))
}

/// Like [`range`], for a buffer of a request: it must begin after the fixed part of the body, which has `fixed` bytes.
#[inline]
pub(crate) fn behind<'a>(
    message: &'a [u8],
    fixed: usize,
    (at, len): (usize, usize),
    field: &'static str,
    place: &'a [u8],
) -> Result<&'a [u8], Rejected<'a>> {
    if len != 0 && at < HEADER_LEN + fixed {
        return Err(reject(field, Rule::Value, place));
    }
    range(message, (at, len), field, place)
}

/// Returns the bytes of `whole` at this offset and length.
#[inline]
pub(crate) fn buffer<'a>(
    whole: &'a [u8],
    field: &'static str,
    mut place: impl Parser<&'a [u8], Output = (usize, usize), Error = Malformed<'a>>,
) -> impl FnMut(&'a [u8]) -> wire::Parsed<'a, &'a [u8]> {
    move |input| {
        let (rest, named) = place.parse(input)?;
        Ok((rest, range(whole, named, field, input)?))
    }
}

/// Parses two 16-bit numbers: an offset and a length, or the reverse.
#[inline]
pub(crate) fn shorts<'a>(
    field: &'static str,
) -> impl Fn(&'a [u8]) -> wire::Parsed<'a, (usize, usize)> + Copy {
    move |input| {
        let (rest, (a, b)) = (le_u16(field), le_u16(field)).parse(input)?;
        Ok((rest, (a.into(), b.into())))
    }
}

/// Parses two 32-bit numbers: an offset and a length.
#[inline]
pub(crate) fn longs<'a>(
    field: &'static str,
) -> impl Fn(&'a [u8]) -> wire::Parsed<'a, (usize, usize)> + Copy {
    move |input| {
        let (rest, (a, b)) = (le_u32(field), le_u32(field)).parse(input)?;
        Ok((rest, (size(a), size(b))))
    }
}

/// Converts a peer's number to a size. One that does not fit becomes larger than every message.
#[inline]
pub(crate) fn size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Parses this many 16-bit numbers.
#[inline]
pub(crate) fn u16s<'a>(
    count: usize,
    field: &'static str,
) -> impl Fn(&'a [u8]) -> wire::Parsed<'a, Vec<u16>> + Copy {
    move |input| {
        let (rest, bytes) = take(count.saturating_mul(2), field)(input)?;
        let (numbers, _) = bytes.as_chunks::<2>();
        Ok((rest, numbers.iter().map(|n| u16::from_le_bytes(*n)).collect()))
    }
}

/// Decodes text of a field ([`utf16`]).
#[inline]
pub(crate) fn text<'a>(bytes: &'a [u8], field: &'static str) -> Result<String, Rejected<'a>> {
    utf16(bytes).ok_or_else(|| reject(field, Rule::Value, bytes))
}

/// Decodes text as SMB2 sends it: UTF-16, little-endian, without a terminator. `None` if the number of bytes is odd or a surrogate
/// pair is incomplete.
pub fn utf16(bytes: &[u8]) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    char::decode_utf16(units.iter().map(|u| u16::from_le_bytes(*u))).collect::<Result<_, _>>().ok()
}

/// Appends text in UTF-16, little-endian, and returns its length in bytes.
pub fn put_utf16(out: &mut Vec<u8>, text: &str) -> usize {
    let from = out.len();
    out.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    out.len() - from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<T>(parsed: Parsed<T>) -> Result<T, String> {
        parsed.map_err(|fault| fault.to_string())
    }

    #[test]
    fn buffer_offset_never_overflows() {
        let read = |bytes: &[u8]| {
            said(whole(bytes, |i| {
                let (i, _) = take(1, "Flags")(i)?;
                let (i, found) = buffer(bytes, "Buffer", longs("Buffer"))(i)?;
                Ok((i, found.to_vec()))
            }))
        };
        assert_eq!(read(&[0, 9, 0, 0, 0, 2, 0, 0, 0, 5, 6]), Ok(vec![5, 6]));
        assert_eq!(read(&[0, 99, 0, 0, 0, 0, 0, 0, 0]), Ok(vec![]), "none, anywhere");
        let bad = Err("Buffer out of bounds at 1".to_owned());
        assert_eq!(read(&[0, 9, 0, 0, 0, 3, 0, 0, 0, 5, 6]), bad);
        assert_eq!(read(&[0, 255, 255, 255, 255, 2, 0, 0, 0, 5, 6]), bad);
        assert_eq!(read(&[0, 9, 0, 0, 0, 3, 0]), Err("Buffer truncated at 5".into()));
    }

    #[test]
    fn wrong_structure_size_is_refused() {
        let read = |bytes: &[u8]| said(body(bytes, 4, le_u16("Reserved")));
        let mut message = vec![0; HEADER_LEN];
        assert_eq!(read(&message), Err("StructureSize truncated at 64".into()));
        assert_eq!(read(&message[..3]), Err("StructureSize truncated at 3".into()));
        message.extend([4, 0, 7, 0]);
        assert_eq!(read(&message), Ok(7));
        message[HEADER_LEN] = 5;
        assert_eq!(read(&message), Err("StructureSize invalid at 64".into()));
    }

    #[test]
    fn text_decodes_as_utf16() {
        let mut out = Vec::new();
        assert_eq!(put_utf16(&mut out, "aé😀"), 8);
        assert_eq!(utf16(&out).as_deref(), Some("aé😀"));
        assert_eq!(utf16(&out[..7]), None);
        assert_eq!(utf16(&[0x00, 0xd8]), None, "half a pair");
    }
}
