//! XDR (RFC 4506) as a trait: a type parses its own field and appends itself.

use crate::{Malformed, Parsed, be_u32, be_u64, emit, list, opaque, optional, pad, take};

/// An XDR type without a length limit.
pub trait Xdr<'a>: Sized {
    /// Parses the field with this name. The fields of a structure have separate names.
    ///
    /// # Errors
    ///
    /// The first field that breaks a rule.
    fn field(name: &'static str, input: &'a [u8]) -> Parsed<'a, Self>;

    /// Appends its encoding.
    fn emit(&self, out: &mut Vec<u8>);

    /// Parses a complete value.
    ///
    /// # Errors
    ///
    /// The first field that breaks a rule.
    #[inline]
    fn parse(input: &'a [u8]) -> Parsed<'a, Self> {
        Self::field("value", input)
    }
}

/// An XDR type that starts with a count or length of at most `max`.
pub trait Bounded<'a>: Sized {
    /// Parses the field with this name.
    ///
    /// # Errors
    ///
    /// The first field that breaks a rule.
    fn bounded(max: usize, name: &'static str, input: &'a [u8]) -> Parsed<'a, Self>;

    /// Appends its encoding. The caller ensures the limit.
    fn put(&self, out: &mut Vec<u8>);
}

/// Parses a value at the start of `message`; returns the remaining bytes and the value.
///
/// # Errors
///
/// The first field that breaks a rule; [`Malformed::at`] gives its offset.
pub fn decode<'a, T: Xdr<'a>>(message: &'a [u8]) -> Result<(&'a [u8], T), Malformed<'a>> {
    crate::decode(message, T::parse)
}

/// Encodes a value.
pub fn encode<'a>(value: &impl Xdr<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    value.emit(&mut out);
    out
}

/// Parses opaque data of `len` bytes and its padding, after a structure that ends before its data.
#[inline]
pub fn data<'a>(len: usize, name: &'static str) -> impl Fn(&'a [u8]) -> Parsed<'a, &'a [u8]> {
    move |input| {
        let (rest, value) = take(len, name)(input)?;
        let (rest, _) = take(pad(len), name)(rest)?;
        Ok((rest, value))
    }
}

macro_rules! primitive {
    ($($type:ident $parser:ident $emit:ident $wire:ident)*) => { $(
        impl<'a> Xdr<'a> for $type {
            #[inline]
            fn field(name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
                let (rest, value) = $parser(name)(input)?;
                Ok((rest, $type::from_ne_bytes(value.to_ne_bytes())))
            }

            #[inline]
            fn emit(&self, out: &mut Vec<u8>) {
                emit::$emit(out, $wire::from_ne_bytes(self.to_ne_bytes()));
            }
        }
    )* };
}

primitive! {
    u32 be_u32 be_u32 u32
    i32 be_u32 be_u32 u32
    u64 be_u64 be_u64 u64
    i64 be_u64 be_u64 u64
}

impl<'a> Xdr<'a> for bool {
    #[inline]
    fn field(name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        crate::bool(name)(input)
    }

    #[inline]
    fn emit(&self, out: &mut Vec<u8>) {
        emit::be_u32(out, u32::from(*self));
    }
}

impl<'a> Xdr<'a> for () {
    #[inline]
    fn field(_: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        Ok((input, ()))
    }

    #[inline]
    fn emit(&self, _: &mut Vec<u8>) {}
}

/// Opaque data of fixed length (RFC 4506 section 4.9). In the protocols of this crate every such length is a multiple of four.
impl<'a, const N: usize> Xdr<'a> for [u8; N] {
    #[inline]
    fn field(name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        const { assert!(N.is_multiple_of(4), "padding is not read here") };
        crate::bytes(name)(input)
    }

    #[inline]
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// Optional data (RFC 4506 section 4.19), and the unions of NFS version 3 with the same encoding.
impl<'a, T: Xdr<'a>> Xdr<'a> for Option<T> {
    #[inline]
    fn field(name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        optional(name, |i| T::field(name, i))(input)
    }

    #[inline]
    fn emit(&self, out: &mut Vec<u8>) {
        self.is_some().emit(out);
        if let Some(value) = self {
            value.emit(out);
        }
    }
}

impl<'a, T: Bounded<'a>> Bounded<'a> for Option<T> {
    #[inline]
    fn bounded(max: usize, name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        optional(name, |i| T::bounded(max, name, i))(input)
    }

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().emit(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
}

impl<'a> Bounded<'a> for &'a [u8] {
    #[inline]
    fn bounded(max: usize, name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        opaque(max, name)(input)
    }

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        emit::opaque(out, self);
    }
}

impl<'a, T: Xdr<'a>> Bounded<'a> for Vec<T> {
    #[inline]
    fn bounded(max: usize, name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        list(max, name, |i| T::field(name, i))(input)
    }

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        emit::count(out, self.len());
        self.iter().for_each(|value| value.emit(out));
    }
}

/// Opaque data that follows or is outside of the message (RFC 8166 section 3.4): only the length word. It must be the last field of
/// a structure, so that the parser stops at the position of the data; [`data`] parses inline data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bulk {
    /// Length without padding, in bytes.
    pub len: usize,
}

impl<'a> Bounded<'a> for Bulk {
    #[inline]
    fn bounded(max: usize, name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        let (rest, place) = crate::bulk(max, name)(input)?;
        Ok((rest, Self { len: place.len }))
    }

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        emit::count(out, self.len);
    }
}

/// A list that XDR encodes as optional data, each element followed by the next: entries of directories, mounts, mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain<T>(pub Vec<T>);

impl<'a, T: Xdr<'a>> Bounded<'a> for Chain<T> {
    fn bounded(max: usize, name: &'static str, input: &'a [u8]) -> Parsed<'a, Self> {
        let (mut rest, mut out) = (input, Vec::new());
        loop {
            let (behind, there) = bool::field(name, rest)?;
            if !there {
                return Ok((behind, Self(out)));
            }
            if out.len() == max {
                return Err(crate::reject(name, crate::Rule::OverLimit { max }, rest));
            }
            let (behind, value) = T::field(name, behind)?;
            out.push(value);
            rest = behind;
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        for value in &self.0 {
            true.emit(out);
            value.emit(out);
        }
        false.emit(out);
    }
}
