//! Decides whether data is worth compressing, from a small part of it.

use crate::lz77;

/// Places of which a piece is tried, where there is more than two of the largest pieces.
const PLACES: usize = 3;
const PIECE_MIN: usize = 2048;
const PIECE_MAX: usize = 4096;

/// Compresses small pieces of `data` and tells whether that saves an eighth of them at least.
pub fn is_compressible(data: &[u8]) -> bool {
    let mut room = [0; PIECE_MAX];
    let mut shrink =
        |piece: &[u8]| lz77::compress(piece, &mut room[..piece.len()]).unwrap_or(piece.len());
    if data.len() <= 2 * PIECE_MAX {
        let piece = &data[..data.len().min(PIECE_MAX)];
        return shrink(piece) < piece.len() - piece.len() / 8;
    }
    let piece = (data.len() / 64).clamp(PIECE_MIN, PIECE_MAX);
    let stride = (data.len() - piece) / (PLACES - 1);
    let shrunk: usize = (0..PLACES).map(|n| shrink(&data[stride * n..][..piece])).sum();
    shrunk < PLACES * (piece - piece / 8)
}
