//! LOCK (MS-SMB2 sections 2.2.26 and 2.2.27).

use wire::{Parser, Rule, le_u16, le_u32, le_u64, reject, times};

use super::{FileId, Parsed};
use crate::parse::body;

/// `Flags` of an element.
pub mod flag {
    #![allow(missing_docs)] // The names are the specification's.
    pub const SHARED: u32 = 0x1;
    pub const EXCLUSIVE: u32 = 0x2;
    pub const UNLOCK: u32 = 0x4;
    pub const FAIL_IMMEDIATELY: u32 = 0x10;
}

/// An SMB2_LOCK_ELEMENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Bits of [`flag`].
    pub flags: u32,
}

/// Length of an element, in bytes.
const ELEMENT_LEN: usize = 24;

impl Element {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (offset, length, flags, _)) =
            (le_u64("Offset"), le_u64("Length"), le_u32("Flags"), le_u32("Reserved")).parse(i)?;
        Ok((i, Self { offset, length, flags }))
    }
}

/// A LOCK request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `LockSequenceNumber`: 4 bits.
    pub sequence_number: u8,
    /// `LockSequenceIndex`: 28 bits; 0 if the client does not number its locks.
    pub sequence_index: u32,
    /// The open file.
    pub file: FileId,
    /// The locks; at least one.
    pub locks: Vec<Element>,
}

impl Request {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 48, |start| {
            let (i, (count, sequence, file)) =
                (le_u16("LockCount"), le_u32("LockSequence"), FileId::parse).parse(start)?;
            let count = usize::from(count);
            if count == 0 {
                return Err(reject("LockCount", Rule::Value, start));
            }
            if i.len() < count * ELEMENT_LEN {
                return Err(reject("LockCount", Rule::OutOfBounds, start));
            }
            let (i, locks) = times(count, Element::parse)(i)?;
            // Invariant: four bits fit.
            #[allow(clippy::cast_possible_truncation)]
            let sequence_number = (sequence & 0xf) as u8;
            Ok((i, Self { sequence_number, sequence_index: sequence >> 4, file, locks }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.locks.len() * ELEMENT_LEN);
        out.extend(48_u16.to_le_bytes());
        out.extend(u16::try_from(self.locks.len()).unwrap_or(u16::MAX).to_le_bytes());
        let sequence = self.sequence_index << 4 | u32::from(self.sequence_number & 0xf);
        out.extend(sequence.to_le_bytes());
        out.extend(self.file.emit());
        for l in &self.locks {
            out.extend(l.offset.to_le_bytes());
            out.extend(l.length.to_le_bytes());
            out.extend(l.flags.to_le_bytes());
            out.extend([0; 4]);
        }
        out
    }
}

/// A LOCK response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response;

impl Response {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 4, |i| Ok((i, Self)))
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        vec![4, 0, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::{message, named};

    fn some(count: usize) -> Request {
        let element = Element { offset: 1 << 40, length: u64::MAX, flags: flag::SHARED };
        Request {
            sequence_number: 9,
            sequence_index: 64,
            file: FileId { persistent: 3, volatile: 4 },
            locks: vec![element; count],
        }
    }

    /// Follows the fixed part in section 2.2.26.
    #[test]
    fn request_fields_match_specification() {
        let body = some(1).emit();
        assert_eq!(body.len(), 48, "StructureSize counts one element");
        assert_eq!(body[..8], [48, 0, 1, 0, 0x09, 0x04, 0, 0]);
        assert_eq!(body[8..16], 3_u64.to_le_bytes());
        assert_eq!(body[24..32], (1_u64 << 40).to_le_bytes());
        assert_eq!(body[40..48], [1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn missing_locks_are_refused() {
        let bad = |r: &[u8]| named(Request::parse(&message(Command::Lock, r))) == Err("LockCount");
        assert!(bad(&some(0).emit()));
        let mut body = some(2).emit();
        body.truncate(71);
        assert!(bad(&body));
        let mut many = some(1).emit();
        many[2..4].copy_from_slice(&[0xff, 0xff]);
        assert!(bad(&many), "no memory is taken for what is not there");
        assert_eq!(Response::parse(&message(Command::Lock, &Response.emit())), Ok(Response));
    }

    proptest! {
        #[test]
        fn requests_round_trip(number in 0..16_u8, index in 0..1_u32 << 28, n in 1..9_usize,
                offset: u64, length: u64, flags: u32, cut in 0..999_usize) {
            let mut r = some(n);
            (r.sequence_number, r.sequence_index) = (number, index);
            r.locks[n - 1] = Element { offset, length, flags };
            let m = message(Command::Lock, &r.emit());
            prop_assert_eq!(Request::parse(&m), Ok(r));
            let _ = Request::parse(&m[..cut.min(m.len())]);
        }
    }
}
