//! A message as a list of slices: iterates over runs of whole cipher blocks, splits, copies and rotates without joining the slices.

use crate::Failed;
use crate::enctype::BLOCK;

/// Length of a run in bytes: small enough that a second pass (the HMAC) finds it in the first-level cache.
const RUN: usize = 8 << 10;

/// Returns the total length of all slices, in bytes.
pub(crate) fn len(pieces: &[&mut [u8]]) -> usize {
    pieces.iter().map(|p| p.len()).sum()
}

/// Returns the bytes `from..to` as slices. Ignores bytes after the end.
pub(crate) fn range<'a>(pieces: &'a mut [&mut [u8]], from: usize, to: usize) -> Vec<&'a mut [u8]> {
    let mut out = Vec::with_capacity(pieces.len());
    let mut at = 0;
    for piece in pieces {
        let n = piece.len();
        let (start, end) = (from.clamp(at, at + n) - at, to.clamp(at, at + n) - at);
        if start < end {
            out.push(&mut piece[start..end]);
        }
        at += n;
    }
    out
}

/// Copies bytes starting at `at`; if the message is short, the rest of `to` is unchanged.
pub(crate) fn copy_out(pieces: &[&mut [u8]], at: usize, to: &mut [u8]) {
    let (mut skip, mut to) = (at, to);
    for piece in pieces {
        let here = skip.min(piece.len());
        skip -= here;
        let n = (piece.len() - here).min(to.len());
        let (now, rest) = to.split_at_mut(n);
        now.copy_from_slice(&piece[here..here + n]);
        to = rest;
    }
}

/// Writes `from` at `at`; drops bytes that do not fit.
pub(crate) fn copy_in(pieces: &mut [&mut [u8]], at: usize, from: &[u8]) {
    let (mut skip, mut from) = (at, from);
    for piece in pieces {
        let here = skip.min(piece.len());
        skip -= here;
        let n = (piece.len() - here).min(from.len());
        let (now, rest) = from.split_at(n);
        piece[here..here + n].copy_from_slice(now);
        from = rest;
    }
}

/// Calls `each` for the first `len` bytes, a multiple of the block, in order and in runs of whole blocks. A block that spans
/// several slices is copied out and back.
pub(crate) fn blocks(
    pieces: &mut [&mut [u8]],
    len: usize,
    mut each: impl FnMut(&mut [u8]) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let (mut left, mut gathered, mut filled) = (len, [0; BLOCK], 0);
    let mut at = 0;
    for i in 0..pieces.len() {
        let mut offset = 0;
        let size = pieces[i].len();
        while offset < size && left > 0 {
            if filled == 0 && size - offset >= BLOCK {
                let n = (size - offset).min(left).min(RUN) / BLOCK * BLOCK;
                each(&mut pieces[i][offset..offset + n])?;
                (offset, left, at) = (offset + n, left - n, at + n);
                continue;
            }
            let n = (BLOCK - filled).min(size - offset);
            gathered[filled..filled + n].copy_from_slice(&pieces[i][offset..offset + n]);
            (offset, filled) = (offset + n, filled + n);
            if filled == BLOCK {
                each(&mut gathered)?;
                copy_in(pieces, at, &gathered);
                (left, at, filled) = (left - BLOCK, at + BLOCK, 0);
            }
        }
    }
    if left == 0 { Ok(()) } else { Err(Failed) }
}

/// Undoes a rotation to the right by `count` bytes. The 16-bit `count` limits the extra memory to 64 KiB.
pub(crate) fn rotate_left(pieces: &mut [&mut [u8]], count: u16) {
    let total = len(pieces);
    if total == 0 {
        return;
    }
    let count = usize::from(count) % total;
    let mut first = vec![0; count];
    copy_out(pieces, 0, &mut first);
    let mut buffer = [0; 4096];
    let mut at = count;
    while at < total {
        let n = buffer.len().min(total - at);
        copy_out(pieces, at, &mut buffer[..n]);
        copy_in(pieces, at - count, &buffer[..n]);
        at += n;
    }
    copy_in(pieces, total - count, &first);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Splits `bytes` at the positions `cuts`, modulo its length.
    fn cut<'a>(bytes: &'a mut [u8], cuts: &[usize]) -> Vec<&'a mut [u8]> {
        let mut at: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).collect();
        at.sort_unstable();
        let (mut rest, mut done, mut out) = (bytes, 0, Vec::new());
        for end in at {
            let (piece, behind) = rest.split_at_mut(end - done);
            out.push(piece);
            (rest, done) = (behind, end);
        }
        out.push(rest);
        out
    }

    proptest! {
        #[test]
        fn runs_cover_each_block_once(
            bytes in proptest::collection::vec(any::<u8>(), 0..20_000), cuts: Vec<usize>,
        ) {
            let whole = bytes.len() / BLOCK * BLOCK;
            let (mut seen, mut work) = (Vec::new(), bytes.clone());
            blocks(&mut cut(&mut work, &cuts), whole, |run| {
                seen.extend_from_slice(run);
                run.iter_mut().for_each(|b| *b ^= 0x5a);
                Ok(())
            }).unwrap();
            prop_assert_eq!(&seen[..], &bytes[..whole]);
            let changed: Vec<u8> = bytes[..whole].iter().map(|b| b ^ 0x5a).collect();
            prop_assert_eq!(&work[..whole], &changed[..]);
            prop_assert_eq!(&work[whole..], &bytes[whole..]);
        }

        #[test]
        fn rotation_is_undone(
            bytes in proptest::collection::vec(any::<u8>(), 1..9000), cuts: Vec<usize>, count: u16,
        ) {
            let mut work = bytes.clone();
            let n = usize::from(count) % work.len();
            work.rotate_right(n);
            rotate_left(&mut cut(&mut work, &cuts), count);
            prop_assert_eq!(work, bytes);
        }

        #[test]
        fn range_returns_requested_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), cuts: Vec<usize>, a in 0usize..400, b in 0usize..400,
        ) {
            let mut work = bytes.clone();
            let mut pieces = cut(&mut work, &cuts);
            let got: Vec<u8> = range(&mut pieces, a, b).iter().flat_map(|p| p.to_vec()).collect();
            let (from, to) = (a.min(bytes.len()), b.min(bytes.len()));
            prop_assert_eq!(&got[..], bytes.get(from..to).unwrap_or_default());
        }
    }

    #[test]
    fn too_few_bytes_are_an_error() {
        assert_eq!(blocks(&mut [&mut [0; 31]], 32, |_| Ok(())), Err(Failed));
    }
}
