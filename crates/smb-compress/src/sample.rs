//! Estimates from a small sample whether data is worth compressing.

use crate::lz77;

/// Number of samples, if the data is longer than two of the largest samples.
const PLACES: usize = 3;
const PIECE_MIN: usize = 2048;
const PIECE_MAX: usize = 4096;

/// Compresses small samples of `data` and returns whether that saves at least an eighth of their size.
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
