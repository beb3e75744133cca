//! Generates values from arbitrary bytes for round-trip tests of every type: the encoding parses completely, and no prefix of it
//! does.

use proptest::prelude::*;

use super::{Bulk, Chain};

/// Bytes that determine a value. When they are used up, everything is zero or empty.
#[derive(Debug)]
pub(crate) struct Seed<'a>(pub(crate) &'a [u8]);

impl<'a> Seed<'a> {
    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (out, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        out
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let bytes = self.bytes(N);
        out[..bytes.len()].copy_from_slice(bytes);
        out
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        let [byte] = self.array();
        usize::from(byte) % n
    }
}

pub(crate) trait Sample<'a>: Sized {
    fn sample(seed: &mut Seed<'a>) -> Self;
}

pub(crate) trait SampleBounded<'a>: Sized {
    fn sample(max: usize, seed: &mut Seed<'a>) -> Self;
}

macro_rules! plain {
    ($($type:ident)*) => { $(
        impl<'a> Sample<'a> for $type {
            fn sample(seed: &mut Seed<'a>) -> Self {
                Self::from_be_bytes(seed.array())
            }
        }
    )* };
}

plain! { u32 i32 u64 i64 }

impl<'a> Sample<'a> for bool {
    fn sample(seed: &mut Seed<'a>) -> Self {
        seed.below(2) == 1
    }
}

impl<'a> Sample<'a> for () {
    fn sample(_: &mut Seed<'a>) -> Self {}
}

impl<'a, const N: usize> Sample<'a> for [u8; N] {
    fn sample(seed: &mut Seed<'a>) -> Self {
        seed.array()
    }
}

impl<'a, T: Sample<'a>> Sample<'a> for Option<T> {
    fn sample(seed: &mut Seed<'a>) -> Self {
        (seed.below(3) > 0).then(|| T::sample(seed))
    }
}

impl<'a, T: SampleBounded<'a>> SampleBounded<'a> for Option<T> {
    fn sample(max: usize, seed: &mut Seed<'a>) -> Self {
        (seed.below(3) > 0).then(|| T::sample(max, seed))
    }
}

impl<'a> SampleBounded<'a> for &'a [u8] {
    fn sample(max: usize, seed: &mut Seed<'a>) -> Self {
        let n = seed.below(max.min(9) + 1);
        seed.bytes(n)
    }
}

impl<'a, T: Sample<'a>> SampleBounded<'a> for Vec<T> {
    fn sample(max: usize, seed: &mut Seed<'a>) -> Self {
        let n = seed.below(max.min(4) + 1);
        (0..n).map(|_| T::sample(seed)).collect()
    }
}

impl<'a, T: Sample<'a>> SampleBounded<'a> for Chain<T> {
    fn sample(max: usize, seed: &mut Seed<'a>) -> Self {
        Self(Vec::sample(max, seed))
    }
}

impl<'a> SampleBounded<'a> for Bulk {
    fn sample(max: usize, seed: &mut Seed<'a>) -> Self {
        Self { len: seed.below(max.min(255) + 1) }
    }
}

/// Generates enough bytes for the largest type.
pub(crate) fn seed() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..600)
}

/// Checks that the encoding parses to its last byte, and that every prefix is truncated.
pub(crate) fn round_trip<'a, T: PartialEq + std::fmt::Debug>(
    value: &T,
    bytes: &'a [u8],
    parse: impl Fn(&'a [u8]) -> ::wire::Parsed<'a, T>,
) {
    let (rest, read) = ::wire::decode(bytes, &parse).unwrap_or_else(|e| panic!("{}", e.at(bytes)));
    assert_eq!((rest, &read), (&[][..], value));
    for end in 0..bytes.len() {
        let cut = &bytes[..end];
        let fault = ::wire::decode(cut, &parse).map(|_| ()).unwrap_err().at(cut);
        assert_eq!(fault.rule, ::wire::Rule::Truncated, "{fault}, cut at {end}");
        assert!(fault.offset <= end && fault.field != "message", "{fault}");
    }
}

/// Declares a round-trip test for each type.
macro_rules! round_trips {
    ($($name:ident: $ty:ty),* $(,)?) => { proptest::proptest! { $(
        #[test]
        fn $name(seed in $crate::xdr::sample::seed()) {
            use $crate::xdr::sample::{Sample, Seed, round_trip};
            let value = <$ty as Sample>::sample(&mut Seed(&seed));
            let bytes = $crate::xdr::encode(&value);
            round_trip(&value, &bytes, |i| <$ty as $crate::xdr::Xdr>::parse(i));
        }
    )* } };
}

/// Declares a round-trip test for each number of a choice.
macro_rules! choices {
    ($($name:ident: $ty:ty),* $(,)?) => { proptest::proptest! { $(
        #[test]
        fn $name(seed in $crate::xdr::sample::seed()) {
            use $crate::xdr::sample::{Seed, round_trip};
            for number in <$ty>::NUMBERS {
                let value = Some(<$ty>::sample(*number, &mut Seed(&seed)));
                let mut bytes = Vec::new();
                value.iter().for_each(|v| v.emit(&mut bytes));
                round_trip(&value, &bytes, |i| <$ty>::parse(*number, i));
            }
        }
    )* } };
}

pub(crate) use {choices, round_trips};
