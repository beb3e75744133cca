//! Information classes of MS-FSCC sections 2.4 (files), 2.5 (volumes) and 2.7 (change notices), pure.
//!
//! *Operation.* Classes of fixed size are structures with `parse`, `emit` and `LEN`; like Windows, `parse` accepts a buffer that is
//! longer than the class. Classes that repeat (directory entries, streams, extended attributes, change notices) have a writer that
//! chains entries in a buffer up to the client's limit, and an iterator that parses them.
//!
//! *Errors.* [`wire::Fault`], whose offset counts from the start of the buffer.

use wire::{Rule, bytes, decode, le_u8, le_u16, le_u32, le_u64, reject, take};

use crate::dtyp::FileTime;
use crate::parse::{Parsed, size, whole};

pub mod dir;
pub mod ea;
pub mod file;
pub mod mac;
pub mod notify;
pub mod pipe;
pub mod quota;
pub mod set;
pub mod stream;
pub mod volume;

/// File attributes (MS-FSCC section 2.6).
#[allow(missing_docs)] // The names are the specification's.
pub mod attribute {
    pub const READONLY: u32 = 0x0001;
    pub const HIDDEN: u32 = 0x0002;
    pub const SYSTEM: u32 = 0x0004;
    pub const DIRECTORY: u32 = 0x0010;
    pub const ARCHIVE: u32 = 0x0020;
    pub const NORMAL: u32 = 0x0080;
    pub const TEMPORARY: u32 = 0x0100;
    pub const SPARSE_FILE: u32 = 0x0200;
    pub const REPARSE_POINT: u32 = 0x0400;
    pub const COMPRESSED: u32 = 0x0800;
    pub const OFFLINE: u32 = 0x1000;
    pub const NOT_CONTENT_INDEXED: u32 = 0x2000;
    pub const ENCRYPTED: u32 = 0x4000;
    /// Attributes that a SET_INFO may set (MS-FSA section 2.1.5.15.2); the file system controls the others.
    pub const SETTABLE: u32 =
        READONLY | HIDDEN | SYSTEM | ARCHIVE | TEMPORARY | OFFLINE | NOT_CONTENT_INDEXED;
}

/// A field of a fixed structure.
pub(crate) trait Field: Sized {
    /// Parses the field with this name.
    fn field<'a>(name: &'static str, input: &'a [u8]) -> wire::Parsed<'a, Self>;
    /// Appends the field.
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! fields {
    ($($type:ident $leaf:ident)*) => {$(
        impl Field for $type {
            fn field<'a>(name: &'static str, input: &'a [u8]) -> wire::Parsed<'a, Self> {
                $leaf(name)(input)
            }
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
        }
    )*};
}
fields!(u8 le_u8 u16 le_u16 u32 le_u32 u64 le_u64);

impl Field for FileTime {
    fn field<'a>(name: &'static str, input: &'a [u8]) -> wire::Parsed<'a, Self> {
        let (rest, ticks) = le_u64(name)(input)?;
        Ok((rest, Self(ticks)))
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.0.to_le_bytes());
    }
}

impl<const N: usize> Field for [u8; N] {
    fn field<'a>(name: &'static str, input: &'a [u8]) -> wire::Parsed<'a, Self> {
        bytes(name)(input)
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
}

/// Declares structures of fixed size; a bare number declares reserved bytes, which are sent as zeros.
macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident ($len:literal) { $($field:ident : $type:ty = $wire:literal,)* $(; $pad:literal)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs)] // The names are the specification's.
        pub struct $name { $(pub $field: $type,)* }
        impl $name {
            /// Length on the wire, in bytes.
            pub const LEN: usize = $len;
            /// Parses the structure at the start of `bytes`.
            pub fn parse(bytes: &[u8]) -> $crate::parse::Parsed<Self> {
                $crate::parse::whole(bytes, Self::field)
            }
            fn field(i: &[u8]) -> wire::Parsed<'_, Self> {
                $(let (i, $field) = $crate::fscc::Field::field($wire, i)?;)*
                $(let (i, _) = wire::take($pad, "Reserved")(i)?;)?
                Ok((i, Self { $($field,)* }))
            }
            /// Appends the structure.
            pub fn put(&self, out: &mut Vec<u8>) {
                $($crate::fscc::Field::put(&self.$field, out);)*
                $(out.extend([0; $pad]);)?
            }
            /// Serializes the structure.
            pub fn emit(&self) -> Vec<u8> {
                let mut out = Vec::with_capacity(Self::LEN);
                self.put(&mut out);
                out
            }
        }
    )*};
}
pub(crate) use fixed;

/// Alignment of the entries of a chain, in bytes.
const ALIGN: usize = 8;

/// Chains entries by `NextEntryOffset` in a buffer of limited size.
#[derive(Debug)]
pub struct Chain {
    out: Vec<u8>,
    last: Option<usize>,
    limit: usize,
    align: usize,
}

impl Chain {
    /// Creates a chain of at most `limit` bytes. The caller checks the limit against the maximum response.
    pub fn new(limit: usize) -> Self {
        Self::aligned(limit, ALIGN)
    }

    /// Creates a chain with another alignment.
    pub fn aligned(limit: usize, align: usize) -> Self {
        Self { out: Vec::new(), last: None, limit, align }
    }

    /// Appends an entry whose first four bytes are its `NextEntryOffset`. Returns false, without a change, if it does not fit.
    pub fn push(&mut self, entry: &[u8]) -> bool {
        let at = self.out.len().next_multiple_of(self.align);
        if at + entry.len() > self.limit {
            return false;
        }
        self.out.resize(at, 0);
        if let Some(last) = self.last {
            let step = u32::try_from(at - last).unwrap_or(u32::MAX);
            self.out[last..last + 4].copy_from_slice(&step.to_le_bytes());
        }
        self.out.extend(entry);
        self.last = Some(at);
        true
    }

    /// Appends the part of an entry that fits, for a response that reports truncation.
    pub fn push_cut(&mut self, entry: &[u8]) {
        if !self.push(entry) {
            let at = self.out.len().next_multiple_of(self.align);
            let room = self.limit.saturating_sub(at).min(entry.len());
            if room > 0 {
                self.push(&entry[..room]);
            }
        }
    }

    /// Returns the number of bytes left.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.out.len())
    }

    /// Checks that no entry was appended.
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Returns the buffer.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }
}

/// Iterates over the entries of a chain, each up to the start of the next or to the end. Stops with an error at an invalid offset.
/// Always terminates, because every offset must point forward.
pub fn chained(bytes: &[u8]) -> impl Iterator<Item = Parsed<&[u8]>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let found = decode(rest, entry);
        rest = found.as_ref().map_or(&[], |(behind, _)| behind);
        Some(found.map(|(_, this)| this).map_err(|why| why.at(bytes)))
    })
}

/// Splits off the first entry.
fn entry(i: &[u8]) -> wire::Parsed<'_, &[u8]> {
    let (_, next) = le_u32("NextEntryOffset")(i)?;
    match size(next) {
        0 => Ok((&[], i)),
        next if next < 4 || next >= i.len() => Err(reject("NextEntryOffset", Rule::OutOfBounds, i)),
        next => {
            let (rest, this) = take(next, "NextEntryOffset")(i)?;
            Ok((rest, this))
        }
    }
}

/// Parses all entries of a chain, each after its `NextEntryOffset`.
pub(crate) fn entries<'a, T>(
    bytes: &'a [u8],
    each: impl Fn(&'a [u8]) -> wire::Parsed<'a, T>,
) -> Parsed<Vec<T>> {
    whole(bytes, |mut rest| {
        let mut all = Vec::new();
        while !rest.is_empty() {
            let (behind, this) = entry(rest)?;
            let (this, _) = take(4, "NextEntryOffset")(this)?;
            all.push(each(this)?.1);
            rest = behind;
        }
        Ok((rest, all))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::test_harness::named;
    use proptest::prelude::*;

    #[test]
    fn invalid_chain_offset_ends_iteration() {
        let all = |bytes: &[u8]| {
            named(chained(bytes).collect::<Parsed<Vec<_>>>().map(|entries| entries.len()))
        };
        assert_eq!(all(&[]), Ok(0));
        assert_eq!(all(&[0; 4]), Ok(1));
        assert_eq!(all(&[0; 3]), Err("NextEntryOffset"));
        assert_eq!(all(&[4, 0, 0, 0]), Err("NextEntryOffset"));
        assert_eq!(all(&[1, 0, 0, 0, 0, 0, 0, 0]), Err("NextEntryOffset"));
        assert_eq!(all(&[0xff, 0xff, 0xff, 0xff, 0]), Err("NextEntryOffset"));
    }

    proptest! {
        #[test]
        fn chains_round_trip(sizes in proptest::collection::vec(4..40_usize, 0..20), limit in 0..400_usize) {
            let mut chain = Chain::new(limit);
            let mut taken = 0;
            for (i, n) in sizes.iter().enumerate() {
                let mut entry = vec![u8::try_from(i).unwrap(); *n];
                entry[..4].fill(0);
                if !chain.push(&entry) {
                    break;
                }
                taken += 1;
            }
            let bytes = chain.into_bytes();
            prop_assert!(bytes.len() <= limit);
            let read: Vec<_> = chained(&bytes).collect::<Parsed<_>>().unwrap();
            prop_assert_eq!(read.len(), taken);
            for (i, (entry, n)) in read.iter().zip(&sizes).enumerate() {
                prop_assert!(entry.len() >= *n && entry.len() < n + ALIGN);
                prop_assert!(entry[4..*n].iter().all(|b| usize::from(*b) == i));
            }
        }
    }
}
