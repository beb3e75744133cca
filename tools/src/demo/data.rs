//! Test data that differs at every position of every file and is cheap to make and to compare.

use iobuf::{Buf, BufMut};

const PIECE: usize = 1 << 20;

/// Bytes of which every piece of every file is a view.
pub(super) struct Pattern(Buf);

impl Pattern {
    pub(super) fn new() -> Self {
        let mut data = BufMut::heap(2 * PIECE);
        // xorshift64*: no two positions have the same bytes.
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        for word in data.whole_mut().chunks_exact_mut(8) {
            x ^= x >> 12;
            x ^= x << 25;
            x ^= x >> 27;
            word.copy_from_slice(&x.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
        }
        data.set_filled(2 * PIECE);
        Self(data.freeze())
    }

    /// Returns the bytes of `file` at `offset`, which must be a multiple of 1 MiB; `len` is at most 1 MiB.
    pub(super) fn piece(&self, file: u64, offset: u64, len: usize) -> Buf {
        // Multiplying by an odd number spreads neighbouring pieces; any start below 1 MiB leaves room for a whole piece.
        let place = (file << 40 | offset >> 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        let start = usize::try_from(place).unwrap_or(0);
        self.0.slice(start..start + len.min(PIECE))
    }
}

/// Returns the position of the first byte in which `have` differs from `want`; a missing or surplus byte counts as different.
pub(super) fn difference<'a>(want: &[u8], have: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    let mut at = 0;
    for piece in have {
        let rest = &want[at..];
        if rest.len() < piece.len() || &rest[..piece.len()] != piece {
            let same = rest.iter().zip(piece).take_while(|(a, b)| a == b).count();
            return Some(at + same);
        }
        at += piece.len();
    }
    (at < want.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_differ_by_file_and_place() {
        let p = Pattern::new();
        let mut starts: Vec<Vec<u8>> = Vec::new();
        for file in 0..8 {
            for piece in 0..64 {
                let b = p.piece(file, piece << 20, PIECE);
                assert_eq!(b.len(), PIECE);
                starts.push(b[..16].to_vec());
            }
        }
        let all = starts.len();
        starts.sort();
        starts.dedup();
        assert_eq!(starts.len(), all);
    }

    #[test]
    fn every_difference_is_seen() {
        let want = b"abcdef";
        let of = |pieces: &[&'static [u8]]| difference(want, pieces.iter().copied());
        assert_eq!(of(&[b"abc", b"def"]), None);
        assert_eq!(of(&[b"abc", b"dxf"]), Some(4));
        assert_eq!(of(&[b"abc"]), Some(3));
        assert_eq!(of(&[]), Some(0));
        assert_eq!(of(&[b"abcdef", b"g"]), Some(6));
        assert_eq!(of(&[b"abcdefg"]), Some(6));
    }
}
