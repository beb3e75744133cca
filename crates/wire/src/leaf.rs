//! Parsers of single fields.

use nom::Parser;

use crate::error::{Malformed, Parsed, Rule, reject};

/// Returns the number of zero bytes that pad `n` bytes of opaque data (RFC 4506 section 4.10).
pub const fn pad(n: usize) -> usize {
    n.wrapping_neg() & 3
}

/// Parses an array of bytes without padding. Use [`take`] for XDR arrays whose length is not a multiple of four.
#[inline]
pub fn bytes<'a, const N: usize>(
    field: &'static str,
) -> impl Fn(&'a [u8]) -> Parsed<'a, [u8; N]> + Copy {
    move |input| match input.split_first_chunk() {
        Some((value, rest)) => Ok((rest, *value)),
        None => Err(reject(field, Rule::Truncated, input)),
    }
}

/// Takes this many bytes, borrowed.
#[inline]
pub fn take<'a>(
    count: usize,
    field: &'static str,
) -> impl Fn(&'a [u8]) -> Parsed<'a, &'a [u8]> + Copy {
    move |input| match input.split_at_checked(count) {
        Some((value, rest)) => Ok((rest, value)),
        None => Err(reject(field, Rule::Truncated, input)),
    }
}

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident $type:ident $from:ident)*) => { $(
        $(#[$doc])*
        #[inline]
        pub fn $name<'a>(field: &'static str) -> impl Fn(&'a [u8]) -> Parsed<'a, $type> + Copy {
            move |input| {
                let (rest, value) = bytes(field)(input)?;
                Ok((rest, $type::$from(value)))
            }
        }
    )* };
}

number! {
    /// Parses one byte.
    le_u8 u8 from_le_bytes
    /// Parses two bytes, little-endian.
    le_u16 u16 from_le_bytes
    /// Parses four bytes, little-endian.
    le_u32 u32 from_le_bytes
    /// Parses eight bytes, little-endian.
    le_u64 u64 from_le_bytes
    /// Parses four bytes, big-endian: XDR's `unsigned int` (RFC 4506 section 4.2).
    be_u32 u32 from_be_bytes
    /// Parses eight bytes, big-endian: XDR's `unsigned hyper` (RFC 4506 section 4.5).
    be_u64 u64 from_be_bytes
}

/// Converts the result of `each` with `to`; fails with [`Rule::Value`] if `to` returns `None`.
#[inline]
pub fn known<'a, T, U>(
    field: &'static str,
    mut each: impl Parser<&'a [u8], Output = T, Error = Malformed<'a>>,
    to: impl Fn(T) -> Option<U>,
) -> impl FnMut(&'a [u8]) -> Parsed<'a, U> {
    move |input| {
        let (rest, value) = each.parse(input)?;
        to(value).map(|value| (rest, value)).ok_or_else(|| reject(field, Rule::Value, input))
    }
}

/// Parses XDR's `bool`: 0 or 1 (RFC 4506 section 4.4).
#[inline]
pub fn bool<'a>(field: &'static str) -> impl Fn(&'a [u8]) -> Parsed<'a, bool> + Copy {
    move |input| match be_u32(field)(input)? {
        (rest, 0) => Ok((rest, false)),
        (rest, 1) => Ok((rest, true)),
        _ => Err(reject(field, Rule::Value, input)),
    }
}

/// Parses XDR's optional data: a `bool`, followed by the value if it is 1 (RFC 4506 section 4.19).
#[inline]
pub fn optional<'a, T>(
    field: &'static str,
    mut each: impl Parser<&'a [u8], Output = T, Error = Malformed<'a>>,
) -> impl FnMut(&'a [u8]) -> Parsed<'a, Option<T>> {
    move |input| match bool(field)(input)? {
        (rest, true) => each.parse(rest).map(|(rest, value)| (rest, Some(value))),
        (rest, false) => Ok((rest, None)),
    }
}

/// Parses an XDR count or length of at most `max`.
#[inline]
fn count<'a>(max: usize, field: &'static str) -> impl Fn(&'a [u8]) -> Parsed<'a, usize> {
    move |input| {
        let (rest, n) = be_u32(field)(input)?;
        match usize::try_from(n) {
            Ok(n) if n <= max => Ok((rest, n)),
            _ => Err(reject(field, Rule::OverLimit { max }, input)),
        }
    }
}

/// Parses XDR's `opaque<max>` and `string<max>`, borrowed (RFC 4506 section 4.10). The padding must be present; its contents are
/// ignored.
#[inline]
pub fn opaque<'a>(
    max: usize,
    field: &'static str,
) -> impl Fn(&'a [u8]) -> Parsed<'a, &'a [u8]> + Copy {
    move |input| {
        let (rest, n) = count(max, field)(input)?;
        let (rest, value) = take(n, field)(rest)?;
        let (rest, _) = take(pad(n), field)(rest)?;
        Ok((rest, value))
    }
}

/// Parses XDR's variable-length array of at most `max` elements (RFC 4506 section 4.13).
#[inline]
pub fn list<'a, T>(
    max: usize,
    field: &'static str,
    mut each: impl Parser<&'a [u8], Output = T, Error = Malformed<'a>>,
) -> impl FnMut(&'a [u8]) -> Parsed<'a, Vec<T>> {
    move |input| {
        let (rest, n) = count(max, field)(input)?;
        many(n, &mut each, rest)
    }
}

/// Parses this many elements. The caller has checked the number against its limit.
#[inline]
pub fn times<'a, T>(
    count: usize,
    mut each: impl Parser<&'a [u8], Output = T, Error = Malformed<'a>>,
) -> impl FnMut(&'a [u8]) -> Parsed<'a, Vec<T>> {
    move |input| many(count, &mut each, input)
}

#[inline]
fn many<'a, T>(
    count: usize,
    each: &mut impl Parser<&'a [u8], Output = T, Error = Malformed<'a>>,
    mut rest: &'a [u8],
) -> Parsed<'a, Vec<T>> {
    // Preallocate no more than the size of the message, whatever the size of an element in memory, because the count may be wrong.
    let mut out = Vec::with_capacity(count.min(rest.len() / size_of::<T>().max(4)));
    for _ in 0..count {
        let (behind, value) = each.parse(rest)?;
        out.push(value);
        rest = behind;
    }
    Ok((rest, out))
}

/// Opaque data that may be stored elsewhere: after its length, outside of the message, or in memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk<'a> {
    /// Length without padding, in bytes.
    pub len: usize,
    /// The message from the position of the data on.
    pub rest: &'a [u8],
}

impl Bulk<'_> {
    /// Returns the offset of the data in `message`, which the parser was given completely.
    pub fn at(&self, message: &[u8]) -> usize {
        message.len().saturating_sub(self.rest.len())
    }
}

/// Parses XDR's `opaque<max>` up to its data, which need not be present.
#[inline]
pub fn bulk<'a>(
    max: usize,
    field: &'static str,
) -> impl Fn(&'a [u8]) -> Parsed<'a, Bulk<'a>> + Copy {
    move |input| {
        let (rest, len) = count(max, field)(input)?;
        Ok((rest, Bulk { len, rest }))
    }
}

#[cfg(test)]
mod tests;
