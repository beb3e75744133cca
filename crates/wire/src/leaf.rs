//! Parsers of single fields.

use nom::Parser;

use crate::error::{Malformed, Parsed, Rule, reject};

/// Zero bytes that follow `n` bytes of opaque data (RFC 4506 section 4.10).
pub const fn pad(n: usize) -> usize {
    n.wrapping_neg() & 3
}

/// An array of bytes as it stands. XDR pads arrays whose length is no multiple of four; those are read by [`take`].
#[inline]
pub fn bytes<'a, const N: usize>(
    field: &'static str,
) -> impl Fn(&'a [u8]) -> Parsed<'a, [u8; N]> + Copy {
    move |input| match input.split_first_chunk() {
        Some((value, rest)) => Ok((rest, *value)),
        None => Err(reject(field, Rule::Truncated, input)),
    }
}

/// So many bytes, borrowed.
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
    /// One byte.
    le_u8 u8 from_le_bytes
    /// Two bytes, the lowest first.
    le_u16 u16 from_le_bytes
    /// Four bytes, the lowest first.
    le_u32 u32 from_le_bytes
    /// Eight bytes, the lowest first.
    le_u64 u64 from_le_bytes
    /// Four bytes, the highest first: XDR's `unsigned int` (RFC 4506 section 4.2).
    be_u32 u32 from_be_bytes
    /// Eight bytes, the highest first: XDR's `unsigned hyper` (RFC 4506 section 4.5).
    be_u64 u64 from_be_bytes
}

/// What `each` reads, where `to` knows it; [`Rule::Value`] otherwise.
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

/// XDR's `bool`: 0 or 1 (RFC 4506 section 4.4).
#[inline]
pub fn bool<'a>(field: &'static str) -> impl Fn(&'a [u8]) -> Parsed<'a, bool> + Copy {
    move |input| match be_u32(field)(input)? {
        (rest, 0) => Ok((rest, false)),
        (rest, 1) => Ok((rest, true)),
        _ => Err(reject(field, Rule::Value, input)),
    }
}

/// XDR's optional data: a `bool`, and the value behind it if that is 1 (RFC 4506 section 4.19).
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

/// A count or length of XDR, at most `max`.
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

/// XDR's `opaque<max>` and `string<max>`, borrowed (RFC 4506 section 4.10). Its padding must be there; what the padding
/// holds means nothing.
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

/// XDR's variable-length array of at most `max` elements (RFC 4506 section 4.13).
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

/// So many elements. The caller has compared the number with its limit.
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
    // Room that is taken ahead is no larger than the message, however large elements are in memory: a count can lie.
    let mut out = Vec::with_capacity(count.min(rest.len() / size_of::<T>().max(4)));
    for _ in 0..count {
        let (behind, value) = each.parse(rest)?;
        out.push(value);
        rest = behind;
    }
    Ok((rest, out))
}

/// Opaque data that may be elsewhere: behind its length, beside the message, in memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk<'a> {
    /// Bytes, without padding.
    pub len: usize,
    /// The message from the place of the data on.
    pub rest: &'a [u8],
}

impl Bulk<'_> {
    /// Offset of the data in `message`, the whole that the parser was given.
    pub fn at(&self, message: &[u8]) -> usize {
        message.len().saturating_sub(self.rest.len())
    }
}

/// XDR's `opaque<max>` up to its data, which is not looked at and need not be there.
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
