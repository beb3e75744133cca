//! Reparse points that Linux has no kind of node for: the data that Windows keeps with a file, opaque to the gateway.
//!
//! *Operation.* One record of side data ([`crate::Node::side_get`], name [`NAME`]): a version byte, a byte of flags, and the buffer
//! as clients set and read it, which begins with the tag. A file with the record keeps its contents; a symbolic link with it is a
//! link whose target means something on Windows alone. [`Dos::reparse`](crate::Dos::reparse) tells tag and flags without the data.
//!
//! *Errors.* An unreadable record counts as missing, as for [`crate::dos`].

use crate::NodeRef;
use crate::error::VfsResult;

/// The name of the record among a node's side data.
pub const NAME: &str = "reparse";

/// Length before the buffer, in bytes.
const HEAD: usize = 2;
/// Length of the tag, with which each buffer begins.
const TAG: usize = 4;

const VERSION: u8 = 1;
const IS_DIR: u8 = 1;

/// What listings show of a reparse point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The tag as MS-FSCC section 2.1.2.1 numbers it.
    pub tag: u32,
    /// True for a reparse point that was made of a folder.
    pub is_dir: bool,
}

/// A reparse point as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// True if it was made of a folder: a symbolic link does not tell.
    pub is_dir: bool,
    /// Tag and data in the form of MS-FSCC sections 2.1.2.2 and 2.1.2.3.
    pub buffer: Vec<u8>,
}

impl Kept {
    /// Encodes the record for side data.
    pub fn encode(&self) -> Vec<u8> {
        let flags = if self.is_dir { IS_DIR } else { 0 };
        [&[VERSION, flags], &self.buffer[..]].concat()
    }

    /// Reads a record. Flags of a later version have no meaning here.
    pub fn decode(record: &[u8]) -> Option<Self> {
        let ([version, flags], buffer) = record.split_first_chunk::<HEAD>()?;
        let is_whole = *version != 0 && buffer.len() >= TAG;
        let is_dir = flags & IS_DIR != 0;
        is_whole.then(|| Self { is_dir, buffer: buffer.to_vec() })
    }

    /// Returns the reparse point of a node.
    pub async fn of(node: &NodeRef) -> VfsResult<Option<Self>> {
        Ok(node.side_get(NAME).await?.and_then(|record| Self::decode(&record)))
    }
}

impl Tagged {
    /// Reads tag and flags of a record.
    pub(crate) fn decode(record: &[u8]) -> Option<Self> {
        let Kept { is_dir, buffer } = Kept::decode(record)?;
        let tag = u32::from_le_bytes(*buffer.first_chunk()?);
        Some(Self { tag, is_dir })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_each_kind_round_trips() {
        for is_dir in [false, true] {
            for len in [TAG, 100, 16 << 10] {
                let kept = Kept { is_dir, buffer: vec![7; len] };
                assert_eq!(Kept::decode(&kept.encode()), Some(kept.clone()));
                let tagged = Tagged { tag: 0x0707_0707, is_dir };
                assert_eq!(Tagged::decode(&kept.encode()), Some(tagged));
            }
        }
    }

    #[test]
    fn record_without_tag_or_version_counts_as_missing() {
        let good = Kept { is_dir: true, buffer: vec![1, 2, 3, 4] }.encode();
        for n in 0..good.len() {
            assert_eq!(Kept::decode(&good[..n]), None, "{n}");
        }
        assert_eq!(Kept::decode(&[0; 6]), None);
        let later = [&[9, IS_DIR | 0x80], &good[HEAD..]].concat();
        assert_eq!(Kept::decode(&later), Kept::decode(&good));
    }
}
