//! Checks round trips, and that other decoders accept the streams.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use proptest::prelude::*;
use smb_compress::{Algorithm, Fault, pattern, sample};

/// Generates texts with few or many letters, runs, noise, and distant repetitions.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        proptest::collection::vec(97_u8..101, 0..300),
        (any::<u8>(), 0_usize..5000).prop_map(|(byte, n)| vec![byte; n]),
        (proptest::collection::vec(any::<u8>(), 1..40), 1_usize..3000)
            .prop_map(|(piece, n)| piece.repeat(n / piece.len() + 1)),
    ];
    let pieces = proptest::collection::vec(piece, 0..12);
    (pieces, 0_usize..40_000).prop_map(|(pieces, gap)| {
        let once = pieces.concat();
        let filler = (0..gap).map(|n| (n * n % 251).to_le_bytes()[0]);
        once.iter().copied().chain(filler).chain(once.iter().copied()).collect()
    })
}

fn shrink(algorithm: Algorithm, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 2 * data.len() + 1000];
    let len = algorithm.compress(data, &mut out).unwrap();
    out.truncate(len);
    out
}

/// Decodes with an independent implementation.
fn oracle(algorithm: Algorithm, stream: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match algorithm {
        Algorithm::Lznt1 => lznt1::decompress(stream, &mut out).ok()?,
        // This decoder reads ahead and stops at the end of the input, so padding is needed to finish.
        Algorithm::Lz77Huffman => {
            return xpress_huffman::decompress(&[stream, &[0; 8]].concat(), len).ok();
        }
        Algorithm::Lz77 => return by_the_text(stream, len),
        Algorithm::Lz4 => return lz4_flex::block::decompress(stream, len).ok(),
    }
    Some(out)
}

/// Decodes LZ77 byte by byte, as in the processing rules of MS-XCA section 2.4.4.
fn by_the_text(input: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut at, mut flags, mut count, mut half) = (0, 0_u32, 0, None);
    let byte = |at: usize| input.get(at).map(|b| usize::from(*b));
    let number =
        |at: usize, n: usize| (0..n).try_fold(0, |v, i| Some(v | byte(at + i)? << (8 * i)));
    loop {
        if count == 0 {
            flags = u32::try_from(number(at, 4)?).ok()?;
            at += 4;
            count = 32;
        }
        count -= 1;
        if flags >> count & 1 == 0 {
            out.push(*input.get(at)?);
            at += 1;
            continue;
        }
        if at == input.len() {
            return (out.len() == len).then_some(out);
        }
        let token = number(at, 2)?;
        at += 2;
        let mut n = token % 8;
        if n == 7 {
            n = match half.take() {
                None => {
                    half = Some(at);
                    at += 1;
                    byte(at - 1)? % 16
                }
                Some(before) => byte(before)? / 16,
            };
            if n == 15 {
                n = byte(at)?;
                at += 1;
                if n == 255 {
                    n = number(at, 2)?;
                    at += 2;
                    if n == 0 {
                        n = number(at, 4)?;
                        at += 4;
                    }
                    n -= 22;
                }
                n += 15;
            }
            n += 7;
        }
        for _ in 0..n + 3 {
            out.push(out[out.len() - token / 8 - 1]);
        }
    }
}

fn check(algorithm: Algorithm, data: &[u8]) {
    let stream = shrink(algorithm, data);
    let mut out = vec![0; data.len()];
    assert_eq!(algorithm.decompress(&stream, &mut out), Ok(()), "{algorithm:?}");
    assert!(out == data, "{algorithm:?} gives other bytes");
    if !data.is_empty() {
        let other = oracle(algorithm, &stream, data.len());
        assert!(other.as_deref() == Some(data), "another decoder of {algorithm:?}");
        // An output one byte longer or shorter is an error, except that LZ77+Huffman does not check the end.
        let is_exact = algorithm != Algorithm::Lz77Huffman;
        let shorter = algorithm.decompress(&stream, &mut out[1..]);
        assert!(shorter.is_err() || !is_exact, "{algorithm:?}");
        out.push(0);
        assert!(algorithm.decompress(&stream, &mut out).is_err(), "{algorithm:?}");
    }
    for room in [0, 1, 3, 4, 255, stream.len() / 2, stream.len().saturating_sub(1)] {
        if room < stream.len() {
            assert_eq!(algorithm.compress(data, &mut vec![0; room]), None, "{algorithm:?} {room}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_expand_to_what_was_compressed(data in data()) {
        for algorithm in Algorithm::ALL {
            check(algorithm, &data);
        }
    }

    #[test]
    fn truncated_streams_are_refused(data in data(), at in 0.0..1.0) {
        for algorithm in Algorithm::ALL {
            let stream = shrink(algorithm, &data);
            // LZ77+Huffman ends with three or more bytes of padding.
            let cut = (stream.len() as f64 * at) as usize;
            let slack = if algorithm == Algorithm::Lz77Huffman { 8 } else { 0 };
            if cut + slack < stream.len() {
                let result = algorithm.decompress(&stream[..cut], &mut vec![0; data.len()]);
                let is_whole = matches!(algorithm, Algorithm::Lz77) && cut + 4 == stream.len();
                prop_assert!(result.is_err() || is_whole, "{:?} {} of {}", algorithm, cut, stream.len());
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_panic(data in data(), len in 0_usize..100_000, noise in any::<u64>()) {
        for algorithm in Algorithm::ALL {
            let _: Result<(), Fault> = algorithm.decompress(&data, &mut vec![0; len]);
            let mut stream = shrink(algorithm, &data);
            for n in 0..8 {
                let at = (noise >> n) as usize % stream.len().max(1);
                if let Some(byte) = stream.get_mut(at) {
                    *byte ^= (noise >> (7 * n)) as u8;
                }
            }
            let _: Result<(), Fault> = algorithm.decompress(&stream, &mut vec![0; data.len()]);
        }
    }

    #[test]
    fn runs_are_as_long_as_they_look(data in data()) {
        let at_front = data.iter().take_while(|b| Some(*b) == data.first()).count();
        let at_back = data.iter().rev().take_while(|b| Some(*b) == data.last()).count();
        let long = |n| if n < pattern::RUN_MIN { 0 } else { n };
        prop_assert_eq!(pattern::leading(&data), long(at_front));
        prop_assert_eq!(pattern::trailing(&data), long(at_back));
    }
}

#[test]
fn lengths_around_every_limit_expand() {
    let noise: Vec<u8> =
        (0_u64..140_000).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let limits =
        [0, 1, 2, 3, 4, 16, 31, 32, 33, 64, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_072];
    for algorithm in Algorithm::ALL {
        for len in limits {
            check(algorithm, &noise[..len]);
            check(algorithm, &vec![7; len]);
            check(algorithm, &b"compress me, "[..].repeat(len / 13 + 1)[..len]);
        }
        // Match lengths around the limits of each encoding.
        for len in (3..40).chain(280..300).chain(65_530..65_580) {
            let text = [&noise[..64], &vec![9; len], &noise[64..128], &vec![9; len]].concat();
            check(algorithm, &text);
        }
    }
}

#[test]
fn samples_tell_text_from_noise() {
    let mut seed = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed.to_be_bytes()[0]
    })
    .take(1 << 20)
    .collect();
    let text = include_bytes!("../src/lz77.rs");
    assert!(sample::is_compressible(&text.repeat(20)));
    assert!(sample::is_compressible(&text[..4096]));
    assert!(sample::is_compressible(&vec![0; 70_000]));
    for len in [1, 511, 512, 4096, 65_536, 1 << 20] {
        assert!(!sample::is_compressible(&noise[..len]), "{len}");
    }
    assert!(!sample::is_compressible(&[]));
}
