//! Streams of the codecs of SMB compression.

use smb_compress::Algorithm;

/// Expands to at most so many bytes.
const OUT_MAX: usize = 20_000;

/// Two bytes say how much the stream is to expand to, in steps of four. What a stream expands to comes back from its encoder, and
/// the input itself does.
#[allow(clippy::expect_used)]
fn codec(algorithm: Algorithm, data: &[u8]) {
    let Some((len, stream)) = data.split_first_chunk::<2>() else { return };
    let len = (usize::from(u16::from_le_bytes(*len)) * 4).min(OUT_MAX);
    let mut out = vec![0; len];
    if algorithm.decompress(stream, &mut out).is_ok() {
        round_trip(algorithm, &out);
    }
    round_trip(algorithm, stream);
    assert!(algorithm.compress(stream, &mut []).is_none() || stream.is_empty());
}

#[allow(clippy::expect_used)]
fn round_trip(algorithm: Algorithm, plain: &[u8]) {
    let mut room = vec![0; 2 * plain.len() + 1024];
    let len = algorithm.compress(plain, &mut room).expect("room");
    let mut back = vec![0; plain.len()];
    algorithm.decompress(&room[..len], &mut back).expect("a stream of its own");
    assert!(back == plain);
}

/// LZNT1.
pub fn compress_lznt1(data: &[u8]) {
    codec(Algorithm::Lznt1, data);
}

/// Plain LZ77.
pub fn compress_lz77(data: &[u8]) {
    codec(Algorithm::Lz77, data);
}

/// LZ77+Huffman.
pub fn compress_lz77_huffman(data: &[u8]) {
    codec(Algorithm::Lz77Huffman, data);
}

/// LZ4.
pub fn compress_lz4(data: &[u8]) {
    codec(Algorithm::Lz4, data);
}

/// A stream of text and runs.
pub(super) fn seeds(algorithm: Algorithm) -> Vec<Vec<u8>> {
    let plain: Vec<u8> = (0..100_u8).chain([7; 400]).chain(*b"abcabcabcabcabcabcabcdef").collect();
    let mut room = vec![0; 2048];
    let len = algorithm.compress(&plain, &mut room).unwrap_or(0);
    let size = u16::try_from(plain.len() / 4).unwrap_or(0);
    vec![[&size.to_le_bytes()[..], &room[..len]].concat()]
}
