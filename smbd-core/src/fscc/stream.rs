//! FileStreamInformation (MS-FSCC section 2.4.49): the streams of a file.

use super::{Chain, chained};
use crate::wire::{Fields, Malformed, Parsed, put_utf16, utf16};

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// `:name:$DATA`; the data of the file itself is `::$DATA`.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes of storage.
    pub allocation: u64,
}

impl Stream {
    fn emit(&self) -> Vec<u8> {
        let mut out = vec![0; 8];
        out.extend(self.size.to_le_bytes());
        out.extend(self.allocation.to_le_bytes());
        let len = put_utf16(&mut out, &self.name);
        out[4..8].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        out
    }

    /// The list as far as it fits in `limit` bytes, and whether all of it did.
    pub fn emit_list(list: &[Self], limit: usize) -> (Vec<u8>, bool) {
        let mut chain = Chain::new(limit);
        let whole = list.iter().all(|s| chain.push(&s.emit()));
        (chain.into_bytes(), whole)
    }

    /// Reads a list.
    pub fn parse_list(bytes: &[u8]) -> Parsed<Vec<Self>> {
        chained(bytes)
            .map(|entry| {
                let mut f = Fields::new(entry?, 4);
                let len = usize::try_from(f.u32("StreamNameLength")?).unwrap_or(usize::MAX);
                let (size, allocation) = (f.u64("StreamSize")?, f.u64("StreamAllocationSize")?);
                let name = f.bytes(len, "StreamName")?;
                let name = utf16(name).ok_or(Malformed("StreamName"))?;
                Ok(Self { name, size, allocation })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_round_trip(list in proptest::collection::vec((".{0,9}", any::<u64>(), any::<u64>()), 0..6), cut in 0..200_usize) {
            let list: Vec<Stream> = list.into_iter()
                .map(|(name, size, allocation)| Stream { name, size, allocation }).collect();
            let (bytes, whole) = Stream::emit_list(&list, 65_536);
            prop_assert!(whole);
            prop_assert_eq!(Stream::parse_list(&bytes).unwrap(), list.clone());
            let (bytes, _) = Stream::emit_list(&list, cut);
            prop_assert!(bytes.len() <= cut);
            let some = Stream::parse_list(&bytes).unwrap();
            prop_assert_eq!(&some[..], &list[..some.len()]);
        }

        #[test]
        fn any_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Stream::parse_list(&bytes);
        }
    }
}
