//! The part of NDR (C706 chapter 14) that the interfaces of file servers need.
//!
//! *Operation.* Every number is aligned to its size, counted from the start of the stub, so a [`Reader`] or [`Writer`] tracks its
//! position. The referents of a structure's pointers follow the structure: [`Writer::later`].

use wire::{Parser, Rule, bytes, decode, known, le_u16, le_u32, reject, take};

use crate::dtyp::Sid;
use crate::parse::{Parsed, size, text};

/// Maximum length of a string, in characters.
pub const TEXT_MAX: u32 = 1024;

/// Parses arguments.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    stub: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of a stub.
    pub fn new(stub: &'a [u8]) -> Self {
        Self { stub, rest: stub }
    }

    /// Runs a parser at the next multiple of `align`.
    fn read<T>(
        &mut self,
        align: usize,
        field: &'static str,
        parser: impl FnOnce(&'a [u8]) -> wire::Parsed<'a, T>,
    ) -> Parsed<T> {
        let at = self.stub.len() - self.rest.len();
        let pad = at.next_multiple_of(align) - at;
        let read = decode(self.rest, |i| parser(take(pad, field)(i)?.0));
        let (rest, value) = read.map_err(|why| why.at(self.stub))?;
        self.rest = rest;
        Ok(value)
    }

    /// Parses this many bytes.
    pub fn bytes(&mut self, len: usize) -> Parsed<&'a [u8]> {
        self.read(1, "bytes", take(len, "bytes"))
    }

    /// Parses a fixed array of bytes.
    pub fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        self.read(1, "bytes", bytes("bytes"))
    }

    /// Skips to the next multiple of `to`, where a structure with fields of that alignment begins.
    pub fn align(&mut self, to: usize) -> Parsed<()> {
        self.read(to, "padding", |i| Ok((i, ())))
    }

    /// Parses a 64-bit number.
    pub fn u64(&mut self) -> Parsed<u64> {
        self.read(8, "hyper", |i| {
            let (i, (low, high)) = (le_u32("hyper"), le_u32("hyper")).parse(i)?;
            Ok((i, u64::from(high) << 32 | u64::from(low)))
        })
    }

    /// Parses a 16-bit number.
    pub fn u16(&mut self) -> Parsed<u16> {
        self.read(2, "short", le_u16("short"))
    }

    /// Parses a 32-bit number.
    pub fn u32(&mut self) -> Parsed<u32> {
        self.read(4, "long", le_u32("long"))
    }

    /// Parses a nullable pointer; returns whether it is not null.
    pub fn pointer(&mut self) -> Parsed<bool> {
        Ok(self.u32()? != 0)
    }

    /// Parses a conformant varying array of 16-bit characters; drops a terminating zero.
    pub fn text(&mut self) -> Parsed<String> {
        let found = self.read(4, "max_count", |start| {
            let (place, (most, offset)) = (le_u32("max_count"), le_u32("offset")).parse(start)?;
            let (i, count) = le_u32("actual_count")(place)?;
            if offset != 0 || count > most {
                return Err(reject("actual_count", Rule::Value, place));
            }
            if count > TEXT_MAX {
                let rule = Rule::OverLimit { max: size(TEXT_MAX) };
                return Err(reject("actual_count", rule, place));
            }
            let (i, characters) = take(2 * size(count), "text")(i)?;
            Ok((i, text(characters, "text")?))
        })?;
        Ok(found.strip_suffix('\0').map(str::to_owned).unwrap_or(found))
    }

    /// Parses a pointer to such an array.
    pub fn unique_text(&mut self) -> Parsed<Option<String>> {
        if self.pointer()? { self.text().map(Some) } else { Ok(None) }
    }

    /// Parses the head of a conformant varying array; returns how many elements follow, at most `most`.
    pub fn varying(&mut self, most: u32) -> Parsed<u32> {
        self.read(4, "max_count", |start| {
            let (place, (max, offset)) = (le_u32("max_count"), le_u32("offset")).parse(start)?;
            let (i, count) = le_u32("actual_count")(place)?;
            if offset != 0 || count > max || count > most {
                return Err(reject("actual_count", Rule::Value, place));
            }
            Ok((i, count))
        })
    }

    /// Parses the fixed part of an RPC_UNICODE_STRING; returns whether its buffer follows.
    pub fn string_head(&mut self) -> Parsed<bool> {
        self.u16()?;
        self.u16()?;
        self.pointer()
    }

    /// Parses an RPC_SID, which contains its number of parts twice.
    pub fn sid(&mut self) -> Parsed<Sid> {
        self.read(4, "SubAuthorityCount", |start| {
            let few = |n: u32| Some(size(n)).filter(|n| *n <= Sid::SUBS_MAX);
            let (i, subs) = known("SubAuthorityCount", le_u32("SubAuthorityCount"), few)(start)?;
            let (i, sid) = Sid::field(i)?;
            if sid.subs().len() != subs {
                return Err(reject("SubAuthorityCount", Rule::Value, start));
            }
            Ok((i, sid))
        })
    }
}

/// Serializes results.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
    referents: u32,
}

/// A referent to write after a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Later {
    /// Text with a terminating zero.
    Text(String),
    /// The buffer of an RPC_UNICODE_STRING.
    Counted(String),
    /// An RPC_SID.
    Sid(Sid),
    /// A conformant array of bytes.
    Sized(Vec<u8>),
    /// A conformant varying array of bytes that has room for `most`.
    Bytes {
        /// Its max_count.
        most: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

impl Writer {
    /// Appends zeros up to the next multiple of `to`.
    pub fn align(&mut self, to: usize) {
        self.out.resize(self.out.len().next_multiple_of(to), 0);
    }

    /// Appends a 16-bit number.
    pub fn u16(&mut self, n: u16) {
        self.align(2);
        self.out.extend(n.to_le_bytes());
    }

    /// Appends a 32-bit number.
    pub fn u32(&mut self, n: u32) {
        self.align(4);
        self.out.extend(n.to_le_bytes());
    }

    /// Appends a number of 64 bits that is aligned like one of 32 (OLD_LARGE_INTEGER of MS-SAMR section 2.2.2.2).
    pub fn old_large(&mut self, n: u64) {
        self.align(4);
        self.out.extend(n.to_le_bytes());
    }

    /// Appends a number of 64 bits.
    pub fn u64(&mut self, n: u64) {
        self.align(8);
        self.out.extend(n.to_le_bytes());
    }

    /// Appends bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends a non-null pointer.
    pub fn pointer(&mut self) {
        self.referents += 4;
        self.u32(0x0002_0000 + self.referents);
    }

    /// Appends a null pointer.
    pub fn null(&mut self) {
        self.u32(0);
    }

    /// Appends the fixed part of an RPC_UNICODE_STRING.
    pub fn string_head(&mut self, text: &str) {
        let bytes = u16::try_from(2 * text.encode_utf16().count()).unwrap_or(u16::MAX);
        self.align(4);
        self.u16(bytes);
        self.u16(bytes);
        self.pointer();
    }

    fn array(&mut self, units: &[u16]) {
        let count = u32::try_from(units.len()).unwrap_or(u32::MAX);
        self.u32(count);
        self.u32(0);
        self.u32(count);
        self.out.extend(units.iter().flat_map(|u| u.to_le_bytes()));
    }

    /// Appends referents.
    pub fn later(&mut self, all: Vec<Later>) {
        for one in all {
            match one {
                Later::Text(text) => {
                    self.array(&text.encode_utf16().chain([0]).collect::<Vec<_>>());
                }
                Later::Counted(text) => self.array(&text.encode_utf16().collect::<Vec<_>>()),
                Later::Bytes { most, bytes } => {
                    self.u32(most);
                    self.u32(0);
                    self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                    self.out.extend(bytes);
                }
                Later::Sized(bytes) => {
                    self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                    self.out.extend(bytes);
                }
                Later::Sid(sid) => {
                    self.u32(u32::try_from(sid.subs().len()).unwrap_or_default());
                    sid.put(&mut self.out);
                }
            }
        }
    }

    /// Returns the stub.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dtyp::test_harness::any_sid;
    use crate::smb2::test_harness::named;

    proptest! {
        #[test]
        fn all_values_round_trip(
            short: u16, long: u32, one in "[a-zé]{0,9}", counted in "[a-z]{1,9}", sid in any_sid(),
            cut: prop::sample::Index,
        ) {
            let mut w = Writer::default();
            w.u16(short);
            w.u32(long);
            w.pointer();
            w.later(vec![Later::Text(one.clone())]);
            w.string_head(&counted);
            w.pointer();
            w.later(vec![Later::Counted(counted.clone()), Later::Sid(sid.clone())]);
            w.null();
            let stub = w.finish();
            let read = |stub: &[u8]| {
                let mut r = Reader::new(stub);
                let numbers = (r.u16()?, r.u32()?);
                let one = r.unique_text()?;
                let pointers = (r.string_head()?, r.pointer()?);
                let counted = r.text()?;
                let sid = r.sid()?;
                Ok::<_, wire::Fault>((numbers, one, pointers, counted, sid, r.pointer()?))
            };
            prop_assert!(read(&stub[..cut.index(stub.len())]).is_err());
            let want = ((short, long), Some(one), (true, true), counted, sid, false);
            prop_assert_eq!(read(&stub), Ok(want));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Reader::new(&bytes).text();
            let _ = Reader::new(&bytes).sid();
        }
    }

    #[test]
    fn numbers_of_64_bits_are_aligned_by_kind() {
        let mut w = Writer::default();
        w.u32(1);
        w.old_large(2);
        w.u64(3);
        w.later(vec![Later::Bytes { most: 9, bytes: vec![7, 8] }]);
        let stub = w.clone().finish();
        let mut r = Reader::new(&stub);
        assert_eq!((r.array(), r.u32(), r.u32()), (Ok([1, 0, 0, 0]), Ok(2), Ok(0)));
        assert_eq!((r.align(8), r.u64(), r.u32()), (Ok(()), Ok(3), Ok(9)));
        assert_eq!(
            (r.bytes(9).map(<[u8]>::len), named(r.align(8)), named(r.u64())),
            (Ok(9), Err("padding"), Err("hyper"))
        );
        let words: Vec<u8> =
            [1_u32, 2, 0, 0, 3, 0, 9, 0, 2].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(w.finish(), [&words[..], &[7, 8]].concat());
    }

    #[test]
    fn counts_are_checked_before_allocation() {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
        let text = |stub: &[u8]| named(Reader::new(stub).text());
        for array in [[3, 0, 4], [9, 1, 4], [9, 0, 6]] {
            assert_eq!(named(Reader::new(&words(&array)).varying(5)), Err("actual_count"));
        }
        assert_eq!(Reader::new(&words(&[1000, 0, 5])).varying(5), Ok(5));
        assert_eq!(text(&words(&[1025, 0, 1025])), Err("actual_count"));
        assert_eq!(text(&words(&[1, 0, 2])), Err("actual_count"));
        assert_eq!(text(&words(&[1, 1, 1])), Err("actual_count"));
        assert_eq!(text(&words(&[2, 0, 2])), Err("text"));
        assert_eq!(named(Reader::new(&words(&[16])).sid()), Err("SubAuthorityCount"));
        let two = [&words(&[2])[..], &Sid::everyone().emit()].concat();
        assert_eq!(named(Reader::new(&two).sid()), Err("SubAuthorityCount"));
    }
}
