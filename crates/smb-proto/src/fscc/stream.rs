//! FileStreamInformation (MS-FSCC section 2.4.49): the streams of a file.

use wire::{Parser, le_u32, le_u64, take};

use super::entries;
use crate::parse::{Parsed, put_utf16, size, text};

/// A stream of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// `:name:$DATA`; the data of the file itself is `::$DATA`.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Allocated size in bytes.
    pub allocation: u64,
}

impl Stream {
    /// Serializes an entry of a list.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![0; 8];
        out.extend(self.size.to_le_bytes());
        out.extend(self.allocation.to_le_bytes());
        let len = put_utf16(&mut out, &self.name);
        out[4..8].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        out
    }

    /// Parses a list.
    pub fn parse_list(bytes: &[u8]) -> Parsed<Vec<Self>> {
        entries(bytes, |i| {
            let (i, (len, bytes, allocation)) =
                (le_u32("StreamNameLength"), le_u64("StreamSize"), le_u64("StreamAllocationSize"))
                    .parse(i)?;
            let (i, name) = take(size(len), "StreamName")(i)?;
            let name = text(name, "StreamName")?;
            Ok((i, Self { name, size: bytes, allocation }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fscc::Chain;
    use proptest::prelude::*;

    /// Serializes the entries that fit in `limit` bytes; returns whether all did.
    fn emit_list(list: &[Stream], limit: usize) -> (Vec<u8>, bool) {
        let mut chain = Chain::new(limit);
        let whole = list.iter().all(|s| chain.push(&s.emit()));
        (chain.into_bytes(), whole)
    }

    proptest! {
        #[test]
        fn lists_round_trip(list in proptest::collection::vec((".{0,9}", any::<u64>(), any::<u64>()), 0..6), cut in 0..200_usize) {
            let list: Vec<Stream> = list.into_iter()
                .map(|(name, size, allocation)| Stream { name, size, allocation }).collect();
            let (bytes, whole) = emit_list(&list, 65_536);
            prop_assert!(whole);
            prop_assert_eq!(Stream::parse_list(&bytes).unwrap(), list.clone());
            let (bytes, _) = emit_list(&list, cut);
            prop_assert!(bytes.len() <= cut);
            let some = Stream::parse_list(&bytes).unwrap();
            prop_assert_eq!(&some[..], &list[..some.len()]);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Stream::parse_list(&bytes);
        }
    }
}
