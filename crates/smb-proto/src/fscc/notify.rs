//! FILE_NOTIFY_INFORMATION (MS-FSCC section 2.7.1): changes in a directory.

use wire::{Parser, known, le_u32, take};

use super::{Chain, entries};
use crate::parse::{Parsed, put_utf16, size, text};

/// The kind of a change (MS-FSCC section 2.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)] // The names are the specification's.
pub enum Action {
    Added = 1,
    Removed = 2,
    Modified = 3,
    RenamedOldName = 4,
    RenamedNewName = 5,
    AddedStream = 6,
    RemovedStream = 7,
    ModifiedStream = 8,
}

impl Action {
    fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            1 => Self::Added,
            2 => Self::Removed,
            3 => Self::Modified,
            4 => Self::RenamedOldName,
            5 => Self::RenamedNewName,
            6 => Self::AddedStream,
            7 => Self::RemovedStream,
            8 => Self::ModifiedStream,
            _ => return None,
        })
    }
}

/// A change in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kind of change.
    pub action: Action,
    /// Path of the changed entry from the watched directory, with `\`.
    pub name: String,
}

impl Change {
    fn emit(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend((self.action as u32).to_le_bytes());
        out.extend([0; 4]);
        let len = put_utf16(&mut out, &self.name);
        out[8..12].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        out
    }

    /// Serializes a list; `None` if it exceeds `limit` bytes, in which case the client must list the directory.
    pub fn emit_list(list: &[Self], limit: usize) -> Option<Vec<u8>> {
        let mut chain = Chain::aligned(limit, 4);
        list.iter().all(|c| chain.push(&c.emit())).then(|| chain.into_bytes())
    }

    /// Parses a list.
    pub fn parse_list(bytes: &[u8]) -> Parsed<Vec<Self>> {
        entries(bytes, |i| {
            let action = known("Action", le_u32("Action"), Action::from_number);
            let (i, (action, len)) = (action, le_u32("FileNameLength")).parse(i)?;
            let (i, name) = take(size(len), "FileName")(i)?;
            Ok((i, Self { action, name: text(name, "FileName")? }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_round_trip(list in proptest::collection::vec((1..=8_u32, ".{0,9}"), 0..6), cut in 0..100_usize) {
            let list: Vec<Change> = list.into_iter()
                .map(|(a, name)| Change { action: Action::from_number(a).unwrap(), name }).collect();
            let bytes = Change::emit_list(&list, 65_536).unwrap();
            prop_assert_eq!(Change::parse_list(&bytes).unwrap(), list.clone());
            let fits = bytes.len() <= cut;
            prop_assert_eq!(Change::emit_list(&list, cut).is_some(), fits);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Change::parse_list(&bytes);
        }
    }
}
