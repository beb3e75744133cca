//! Attributes in wire form: `bitmap4` and `fattr4` (RFC 8881 sections 3.3.7 and 5).

use nfs_proto::nfs4::attr;
use nfsrdma::xdr::{Reader, Writer, XdrError, XdrResult};

/// Words of a bitmap that are taken.
const WORDS_MAX: usize = 8;
const OWNER_MAX: usize = 1024;

/// The attributes this client asks for.
pub(crate) const WANTED: &[u32] = &[
    attr::TYPE,
    attr::CHANGE,
    attr::SIZE,
    attr::FSID,
    attr::FILEID,
    attr::MODE,
    attr::NUMLINKS,
    attr::OWNER,
    attr::OWNER_GROUP,
    attr::SPACE_USED,
    attr::TIME_MODIFY,
];

/// A bitmap with these bits.
pub fn bitmap(bits: &[u32]) -> Vec<u32> {
    let mut words = Vec::new();
    for bit in bits {
        let word = usize::try_from(bit / 32).unwrap_or(usize::MAX).min(WORDS_MAX - 1);
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        words[word] |= 1 << (bit % 32);
    }
    words
}

pub(crate) fn put_bitmap(w: &mut Writer, bits: &[u32]) {
    let words = bitmap(bits);
    w.count(words.len());
    words.into_iter().for_each(|word| w.u32(word));
}

/// The bits of a bitmap, ascending.
pub(crate) fn read_bitmap(r: &mut Reader<'_>) -> XdrResult<Vec<u32>> {
    let n = r.count(WORDS_MAX)?;
    let mut bits = Vec::new();
    for i in 0..n {
        let word = r.u32()?;
        let base = u32::try_from(i * 32).unwrap_or(0);
        bits.extend((0..32).filter(|b| word & (1 << b) != 0).map(|b| base + b));
    }
    Ok(bits)
}

/// The attributes of a file, as far as the server gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's own.
pub struct Attr {
    pub kind: u32,
    pub change: u64,
    pub size: u64,
    pub fsid: (u64, u64),
    pub fileid: u64,
    pub mode: u32,
    pub numlinks: u32,
    pub owner: Vec<u8>,
    pub owner_group: Vec<u8>,
    pub space_used: u64,
    pub time_modify: (i64, u32),
}

impl Attr {
    /// Reads a `fattr4` that holds attributes of [`WANTED`] only.
    pub(crate) fn read(r: &mut Reader<'_>) -> XdrResult<Self> {
        let bits = read_bitmap(r)?;
        let _length = r.u32()?;
        let mut a = Self::default();
        for bit in bits {
            match bit {
                attr::TYPE => a.kind = r.u32()?,
                attr::CHANGE => a.change = r.u64()?,
                attr::SIZE => a.size = r.u64()?,
                attr::FSID => a.fsid = (r.u64()?, r.u64()?),
                attr::FILEID => a.fileid = r.u64()?,
                attr::MODE => a.mode = r.u32()?,
                attr::NUMLINKS => a.numlinks = r.u32()?,
                attr::OWNER => a.owner = r.opaque(OWNER_MAX)?.to_vec(),
                attr::OWNER_GROUP => a.owner_group = r.opaque(OWNER_MAX)?.to_vec(),
                attr::SPACE_USED => a.space_used = r.u64()?,
                attr::TIME_MODIFY => a.time_modify = (r.i64()?, r.u32()?),
                // Not asked for: an answer with more cannot be read.
                _ => return Err(XdrError::BadValue),
            }
        }
        Ok(a)
    }
}

/// Writes a `fattr4` with a mode, a size, or both.
pub(crate) fn put_mode_and_size(w: &mut Writer, mode: Option<u32>, size: Option<u64>) {
    let mut bits = Vec::new();
    bits.extend(size.map(|_| attr::SIZE));
    bits.extend(mode.map(|_| attr::MODE));
    put_bitmap(w, &bits);
    w.count(size.map_or(0, |_| 8) + mode.map_or(0, |_| 4));
    if let Some(size) = size {
        w.u64(size);
    }
    if let Some(mode) = mode {
        w.u32(mode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iobuf::Buf;

    #[test]
    fn bitmaps_round_trip() {
        assert_eq!(bitmap(&[1, 4, 33]), [0b1_0010, 0b10]);
        assert_eq!(bitmap(&[]), Vec::<u32>::new());
        let mut w = Writer::new();
        put_bitmap(&mut w, &[0, 31, 32, 82]);
        let body = Buf::from(w.bytes().to_vec());
        assert_eq!(read_bitmap(&mut Reader::new(&body, &[])), Ok(vec![0, 31, 32, 82]));
    }
}
