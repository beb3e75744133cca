//! Compresses and expands messages, and rejects malformed ones.

#![allow(clippy::unwrap_used)]

use smb_compress::message::{Agreed, BESIDE_PAYLOAD, Broken, Expansion, is_worthwhile, shrink};
use smb_proto::smb2::compression::{Compression, Payload};

const PAYLOAD_MAX: usize = 1 << 20;

fn agreed(algorithms: &[u16], chained: bool) -> Agreed {
    Agreed::of_offer(algorithms, chained)
}

fn expand(message: &[u8], agreed: &Agreed) -> Result<Vec<u8>, Broken> {
    let expansion = Expansion::begin(message, agreed, PAYLOAD_MAX)?;
    let mut out = vec![0; expansion.len()];
    expansion.expand(&mut out).map(|()| out)
}

fn begin(message: &[u8], agreed: &Agreed) -> Result<usize, Broken> {
    Expansion::begin(message, agreed, PAYLOAD_MAX).map(|e| e.len())
}

fn unchained(original_len: u32, algorithm: u16, offset: u32, behind: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    Compression::Unchained { original_len, algorithm, offset }.put(&mut message);
    message.extend(behind);
    message
}

fn chained(original_len: u32, payloads: &[Payload<'_>]) -> Vec<u8> {
    let mut message = Vec::new();
    Compression::Chained { original_len }.put(&mut message);
    for (n, payload) in payloads.iter().enumerate() {
        payload.put(n == 0, &mut message);
    }
    message
}

#[test]
fn messages_expand_to_what_they_were() {
    let head = [3; 80];
    let text = b"a line of a log, and one more; ".repeat(3000);
    let mut seed = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed.to_be_bytes()[0]
    })
    .take(70_000)
    .collect();
    let zeros = vec![0; 65_536];
    let around = [&zeros[..5000], &text, &zeros[..9000]].concat();
    let cases: [&[&[u8]]; 6] = [
        &[&text],
        &[&zeros],
        &[&around],
        &[&text, &noise, &zeros],
        &[&around, &[], &around],
        &[&zeros[..100], &text],
    ];
    for algorithms in [&[4, 2, 3, 1, 5][..], &[1], &[2], &[3], &[5], &[5, 4], &[4]] {
        for is_chained in [false, true] {
            let agreed = agreed(algorithms, is_chained);
            for pieces in cases {
                let plain = [&head[..], &pieces.concat()].concat();
                assert!(is_worthwhile(pieces));
                let Some(message) = shrink(&head, pieces, &agreed) else {
                    assert_eq!(algorithms, [4], "nothing but runs");
                    continue;
                };
                assert!(message.len() < plain.len());
                assert!(expand(&message, &agreed).unwrap() == plain, "{agreed:?}");
                assert!(expand(&message, &self::agreed(&[], true)).is_err());
            }
            assert!(shrink(&head, &[&noise], &agreed).is_none(), "noise does not shrink");
        }
    }
    assert!(!is_worthwhile(&[&noise, &[]]));
}

#[test]
fn offers_keep_their_order() {
    let agreed = agreed(&[9, 4, 3, 2, 3, 0, 5], true);
    assert_eq!(agreed.algorithms, [4, 3, 2, 5]);
    assert_eq!(agreed.codec(), Some(smb_compress::Algorithm::Lz77Huffman));
    assert_eq!(Agreed::of_offer(&[0, 6, 9], true).algorithms, []);
}

#[test]
fn broken_messages_are_refused_before_they_expand() {
    let all = agreed(&[4, 2, 3, 1, 5], true);
    let single = agreed(&[2], false);
    let run = |repetitions| Payload::Pattern { pattern: 1, repetitions };
    let stream = |original_len| Payload::Stream { algorithm: 2, original_len, data: &[] };
    let most = u32::try_from(PAYLOAD_MAX + BESIDE_PAYLOAD).unwrap();
    assert_eq!(begin(&unchained(most, 2, 0, &[]), &single), Ok(PAYLOAD_MAX + BESIDE_PAYLOAD));
    assert_eq!(begin(&unchained(most + 1, 2, 0, &[]), &single), Err(Broken::TooLarge));
    assert_eq!(begin(&unchained(u32::MAX, 2, 0, &[]), &all), Err(Broken::TooLarge));
    assert_eq!(begin(&unchained(1, 3, 0, &[]), &single), Err(Broken::NotAgreed));
    assert!(
        matches!(begin(&unchained(1, 2, 1, &[]), &single), Err(Broken::Format(f)) if f.field == "Offset")
    );
    assert_eq!(begin(&chained(1, &[run(1)]), &single), Err(Broken::NotAgreed), "no chains");
    assert_eq!(begin(&chained(most + 1, &[run(most + 1)]), &all), Err(Broken::TooLarge));
    assert_eq!(begin(&chained(9, &[run(10)]), &all), Err(Broken::Length));
    assert_eq!(begin(&chained(9, &[run(u32::MAX)]), &all), Err(Broken::Length));
    assert_eq!(begin(&chained(9, &[run(8)]), &all), Err(Broken::Length));
    assert_eq!(begin(&chained(9, &[run(5), stream(5)]), &all), Err(Broken::Length));
    assert_eq!(begin(&chained(9, &[stream(u32::MAX)]), &all), Err(Broken::Length));
    assert_eq!(begin(&chained(9, &[run(9)]), &agreed(&[2], true)), Err(Broken::NotAgreed));
    assert_eq!(begin(&chained(9, &[stream(9)]), &agreed(&[4, 5], true)), Err(Broken::NotAgreed));
    let cut = chained(9, &[run(9)]);
    for len in 0..cut.len() {
        assert!(matches!(begin(&cut[..len], &all), Err(Broken::Format(_))), "{len}");
    }
    let bad = chained(9, &[stream(9)]);
    assert_eq!(expand(&bad, &all), Err(Broken::Stream(smb_compress::Fault::TooLittle)));
    let bad = unchained(5, 2, 4, b"head\xff\xff");
    assert_eq!(expand(&bad, &single), Err(Broken::Stream(smb_compress::Fault::Truncated)));
}
