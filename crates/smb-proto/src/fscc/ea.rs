//! Extended attributes (MS-FSCC sections 2.4.15 and 2.4.16).

use wire::{Parser, le_u8, le_u16, take};

use super::entries;
use crate::parse::{Parsed, constant};

/// Length of the fixed part of FILE_FULL_EA_INFORMATION, in bytes.
const FIXED: usize = 8;

/// FILE_NEED_EA: a client that does not interpret the attribute must not open the file.
pub const NEED_EA: u8 = 0x80;

/// An attribute and its value; an empty value removes the attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullEa {
    /// Flags.
    pub flags: u8,
    /// Name, of one-byte characters.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// Checks an attribute name: no control characters and no forbidden signs (MS-FSCC section 2.4.16).
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.iter().any(|b| *b < 0x20 || b"\"*+,/:;<=>?[\\]|".contains(b))
}

/// Serializes an entry of FILE_FULL_EA_INFORMATION with `NextEntryOffset` zero.
pub fn entry(flags: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FullEa::FRAME + name.len() + value.len());
    out.extend([0; 4]);
    out.push(flags);
    out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend(name);
    out.push(0);
    out.extend(value);
    out
}

impl FullEa {
    /// Serializes an entry with `NextEntryOffset` zero.
    pub fn emit(&self) -> Vec<u8> {
        entry(self.flags, &self.name, &self.value)
    }

    /// Length of an entry without name and value, in bytes: the fixed part, and a zero after the name.
    pub const FRAME: usize = FIXED + 1;

    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (flags, name_len, value_len)) =
            (le_u8("Flags"), le_u8("EaNameLength"), le_u16("EaValueLength")).parse(i)?;
        let (i, name) = name(name_len, i)?;
        let (i, value) = take(value_len.into(), "EaValue")(i)?;
        Ok((i, Self { flags, name, value: value.to_vec() }))
    }

    /// Parses a list: FILE_FULL_EA_INFORMATION of a CREATE or SET_INFO.
    pub fn parse_list(bytes: &[u8]) -> Parsed<Vec<Self>> {
        entries(bytes, Self::parse)
    }

    /// Serializes a list, each entry at a multiple of 4.
    pub fn emit_list(list: &[Self]) -> Vec<u8> {
        let mut chain = super::Chain::aligned(usize::MAX, 4);
        for ea in list {
            chain.push(&ea.emit());
        }
        chain.into_bytes()
    }
}

/// Parses the names of attributes in a QUERY_INFO: FILE_GET_EA_INFORMATION.
pub fn parse_names(bytes: &[u8]) -> Parsed<Vec<Vec<u8>>> {
    entries(bytes, |i| {
        let (i, len) = le_u8("EaNameLength")(i)?;
        name(len, i)
    })
}

/// Parses a name of this length and its terminating zero.
fn name(len: u8, i: &[u8]) -> wire::Parsed<'_, Vec<u8>> {
    let zero = constant("EaName", le_u8("EaName"), 0);
    (take(len.into(), "EaName"), zero).map(|(name, ()): (&[u8], ())| name.to_vec()).parse(i)
}

/// Serializes a list of names, as the client sends it.
pub fn emit_names(names: &[&[u8]]) -> Vec<u8> {
    let mut chain = super::Chain::aligned(usize::MAX, 4);
    for name in names {
        let mut entry = vec![0, 0, 0, 0, u8::try_from(name.len()).unwrap_or(u8::MAX)];
        entry.extend(*name);
        entry.push(0);
        chain.push(&entry);
    }
    chain.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::test_harness::named;
    use proptest::prelude::*;

    #[test]
    fn malformed_lists_are_refused() {
        let ea = FullEa { flags: 0, name: b"ABC".to_vec(), value: vec![1, 2] };
        let good = ea.emit();
        assert_eq!(good.len(), FullEa::FRAME + ea.name.len() + ea.value.len());
        assert_eq!(FullEa::parse_list(&good), Ok(vec![ea]));
        let bad = |at: usize, to: u8, field| {
            let mut b = good.clone();
            b[at] = to;
            assert_eq!(named(FullEa::parse_list(&b)), Err(field));
        };
        bad(5, 200, "EaName");
        bad(5, 4, "EaName");
        bad(7, 1, "EaValue");
        bad(0, 200, "NextEntryOffset");
        assert!(is_name(b"user") && !is_name(b"") && !is_name(b"a:b") && !is_name(b"a\n"));
        assert_eq!(named(parse_names(&[0, 0, 0, 0, 9, b'x', 0])), Err("EaName"));
    }

    proptest! {
        #[test]
        fn lists_round_trip(list in proptest::collection::vec(
            ("[A-Z]{1,9}", proptest::collection::vec(any::<u8>(), 0..20), any::<u8>()), 0..6,
        )) {
            let list: Vec<FullEa> = list.into_iter()
                .map(|(name, value, flags)| FullEa { flags, name: name.into_bytes(), value }).collect();
            prop_assert_eq!(FullEa::parse_list(&FullEa::emit_list(&list)).unwrap(), list.clone());
            let names: Vec<&[u8]> = list.iter().map(|e| &e.name[..]).collect();
            prop_assert_eq!(parse_names(&emit_names(&names)).unwrap(), names);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = FullEa::parse_list(&bytes);
            let _ = parse_names(&bytes);
        }
    }
}
