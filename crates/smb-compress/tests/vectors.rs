//! Checks the examples of MS-XCA section 3 and malformed streams of each format.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use smb_compress::{Algorithm, Fault};

const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

fn expand(algorithm: Algorithm, data: &[u8], len: usize) -> Result<Vec<u8>, Fault> {
    let mut out = vec![0; len];
    algorithm.decompress(data, &mut out)?;
    Ok(out)
}

fn shrink(algorithm: Algorithm, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 2 * data.len() + 600];
    let len = algorithm.compress(data, &mut out).unwrap();
    out.truncate(len);
    out
}

/// Encodes the LZ77+Huffman code lengths by symbol.
fn code_lengths(of: &[(usize, u8)]) -> Vec<u8> {
    let mut table = vec![0; 256];
    for (symbol, bits) in of {
        table[symbol / 2] |= bits << (4 * (symbol % 2));
    }
    table
}

#[test]
fn lz77_examples_are_read_and_written() {
    let literals = [&unhex("3f000000")[..], ALPHABET].concat();
    let repeated = unhex("ffffff1f 616263 1700 0f ff 2601");
    for (stream, text) in [(literals, ALPHABET.to_vec()), (repeated, b"abc".repeat(100))] {
        assert_eq!(expand(Algorithm::Lz77, &stream, text.len()).unwrap(), text);
        assert_eq!(shrink(Algorithm::Lz77, &text), stream);
    }
}

#[test]
fn huffman_examples_are_read_and_written() {
    // In the first example the codes of a to v have five bits, the others four.
    let mut lengths: Vec<(usize, u8)> = (97..123).map(|s| (s, 5)).collect();
    for (symbol, bits) in &mut lengths {
        *bits = if *symbol < 119 { 5 } else { 4 };
    }
    lengths.push((256, 4));
    let mut alphabet = code_lengths(&lengths);
    assert_eq!(&alphabet[48..62], unhex("5055555555555555555555454404"));
    assert_eq!(alphabet[128], 4);
    alphabet.extend(unhex("d8523ed794115be9195ff9d67cdf8d0400000000"));
    let mut repeated = code_lengths(&[(97, 3), (98, 3), (99, 2), (256, 2), (287, 2)]);
    repeated.extend(unhex("a8dc 0000 ff 2601"));
    let texts = [(alphabet, ALPHABET.to_vec()), (repeated, b"abc".repeat(100))];
    for (stream, text) in texts {
        assert_eq!(expand(Algorithm::Lz77Huffman, &stream, text.len()).unwrap(), text);
        let ours = shrink(Algorithm::Lz77Huffman, &text);
        assert!(ours.len() <= stream.len() + 2, "{} of {}", ours.len(), stream.len());
        assert_eq!(expand(Algorithm::Lz77Huffman, &ours, text.len()).unwrap(), text);
    }
}

#[test]
fn lznt1_example_is_read() {
    let stream = unhex(
        "38b08846232000204720410010a24701a045204400084501507900c045200524\
         138805b4024a44ef0358028c091601484500be009e000401189000",
    );
    let text = b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D E F# G F# \
        E D E A F# F# G A A G F# E D D E F# E D D";
    let len = text.len();
    let whole = (len..len + 2).find_map(|n| expand(Algorithm::Lznt1, &stream, n).ok()).unwrap();
    assert_eq!(&whole[..len], text);
    assert!(shrink(Algorithm::Lznt1, text).len() <= stream.len() + 2);
}

#[test]
fn malformed_streams_are_refused() {
    use Algorithm::{Lz4, Lz77, Lz77Huffman, Lznt1};
    use Fault::{Chunk, Code, Distance, Length, TooLittle, TooMuch, Truncated};
    let table = code_lengths(&[(97, 1), (256 + 16, 1)]);
    let huffman = |tail: &[u8]| [&table[..], tail].concat();
    let nothing_before = huffman(&[0xff; 8]);
    let cases: [(Algorithm, Vec<u8>, usize, Fault); 18] = [
        (Lz77, vec![], 1, TooLittle),
        (Lz77, unhex("ffff"), 1, Truncated),
        (Lz77, unhex("00000000 61"), 2, Truncated),
        (Lz77, unhex("ffffff7f 61"), 2, TooLittle),
        (Lz77, unhex("ffffff7f 61 0000 6161616161"), 4, TooMuch),
        (Lz77, unhex("ffffff7f 61 0800"), 4, Distance),
        (Lz77, unhex("ffffff7f 61 0700"), 99, Truncated),
        (Lz77, unhex("ffffff7f 61 0700 0f ff 0100"), 99, Length),
        (Lz77, unhex("ffffff7f 61 0700 0f ff 0000 ffffffff"), 99, TooMuch),
        (Lz77Huffman, vec![0; 255], 1, Truncated),
        (Lz77Huffman, vec![0; 300], 1, Code),
        (Lz77Huffman, vec![0xff; 300], 1, Code),
        (Lz77Huffman, nothing_before, 9, Distance),
        (Lz77Huffman, huffman(&[]), 1000, Truncated),
        (Lznt1, unhex("0010"), 1, Chunk),
        (Lznt1, unhex("0230 6161"), 3, Truncated),
        (Lznt1, unhex("03b0 02 61 00 00"), 3, TooMuch),
        (Lznt1, unhex("02b0 01 00 00"), 3, Distance),
    ];
    for (algorithm, stream, len, fault) in cases {
        assert_eq!(expand(algorithm, &stream, len), Err(fault), "{algorithm:?} {stream:02x?}");
    }
    assert_eq!(expand(Lz4, &unhex("f0"), 9), Err(Fault::Block));
    assert_eq!(expand(Lz4, &unhex("1061"), 9), Err(TooLittle));
}

/// A few bytes that announce an expansion to four gigabytes.
#[test]
fn bombs_stop_at_the_bound() {
    let bomb = unhex("ffffff7f 61 0700 0f ff 0000 ffffffff");
    assert_eq!(expand(Algorithm::Lz77, &bomb, 1 << 20), Err(Fault::TooMuch));
    for algorithm in Algorithm::ALL {
        let stream = shrink(algorithm, &vec![0; 1 << 20]);
        assert!(expand(algorithm, &stream, 1 << 20).is_ok());
        for len in [0, 1, 4096, 65_536, (1 << 20) - 1] {
            assert!(expand(algorithm, &stream, len).is_err(), "{algorithm:?} {len}");
        }
    }
}
