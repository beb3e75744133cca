//! Received data must not depend on how TCP splits it.

use proptest::prelude::*;

/// A plausible FPDU of any kind, valid or invalid.
fn fpdu() -> impl Strategy<Value = Vec<u8>> {
    let tagged = (0u8..4, 0u32..5, 0u64..9000, any::<bool>(), 0usize..2000, any::<bool>());
    let tagged = tagged.prop_map(|(op, stag, to, last, len, base)| {
        let op = if op < 3 { [0x40, 0x42, 0x40][usize::from(op)] } else { 0x43 };
        let base = if base && stag != 3 { u64::from(!stag | 1) << 12 } else { 0 };
        let mut b = vec![0x81 | if last { 0x40 } else { 0 }, op];
        b.extend(stag.to_be_bytes());
        b.extend((base + to).to_be_bytes());
        b.extend((0..len).map(|i| i as u8));
        b
    });
    let untagged = (0u8..6, 1u32..6, 0u32..3, any::<bool>(), 0usize..320, 0u32..4);
    let untagged = untagged.prop_map(|(op, msn, mo, last, len, inv)| {
        let (op, queue) =
            [(0x43, 0), (0x44, 0), (0x43, 0), (0x41, 1), (0x47, 2), (0x45, 1)][usize::from(op)];
        let mut b = vec![0x01 | if last { 0x40 } else { 0 }, op];
        for word in [inv, queue, msn, mo * 100] {
            b.extend(word.to_be_bytes());
        }
        b.extend((0..if queue == 1 { 28 } else { len }).map(|i| i as u8));
        b
    });
    prop_oneof![tagged, untagged].prop_map(frame)
}

fn frame(ulpdu: Vec<u8>) -> Vec<u8> {
    let mut b = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    b.extend(&ulpdu);
    b.resize(b.len().next_multiple_of(4) + 4, 0);
    b
}

/// Responses to the two outstanding Reads, in FPDUs of `size`, with Sends in between.
fn responses(size: usize, sends: usize) -> Vec<u8> {
    let (mut out, mut at, mut msn) = (Vec::new(), 0, 1u32);
    for end in [3000usize, 5000] {
        while at < end {
            let n = size.min(end - at);
            let mut b = vec![if at + n == end { 0xc1 } else { 0x81 }, 0x42, 0, 0, 0, 3];
            b.extend((at as u64).to_be_bytes());
            b.extend((0..n).map(|i| (i + at) as u8));
            out.extend(frame(b));
            at += n;
            if usize::try_from(msn).unwrap() <= sends.min(4) {
                let mut b = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
                b.extend(msn.to_be_bytes());
                b.extend([0; 4]);
                b.extend(vec![msn as u8; 200]);
                out.extend(frame(b));
                msn += 1;
            }
        }
    }
    out
}

/// RDMA Writes to the writable region, each split into FPDUs of `size`.
fn writes(size: usize, parts: &[(usize, usize)]) -> Vec<u8> {
    let mut out = Vec::new();
    for &(from, len) in parts {
        let mut at = 0;
        while at < len {
            let n = size.min(len - at);
            let mut b = vec![if at + n == len { 0xc1 } else { 0x81 }, 0x40, 0, 0, 0, 1];
            b.extend(((u64::from(!1u32) << 12 | 1 << 12) + (from + at) as u64).to_be_bytes());
            b.extend((0..n).map(|i| (i * 3 + at + from) as u8));
            out.extend(frame(b));
            at += n;
        }
    }
    out
}

fn check(stream: &[u8], step: u8) {
    // A frame without a CRC, like the frames above. In pieces of up to 256 bytes, 4 KiB, and all at once.
    for scale in [0, 0x80, 0xe0] {
        super::super::fuzz(&[&[scale, step], stream].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn plausible_streams(frames in proptest::collection::vec(fpdu(), 1..12), step: u8) {
        check(&frames.concat(), step);
    }

    #[test]
    fn read_responses(size in 1usize..3000, sends in 0usize..5, step: u8, more in fpdu()) {
        let size = size.max(20);
        check(&[responses(size, sends), more].concat(), step);
    }

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        super::super::fuzz(&bytes);
    }

    #[test]
    fn overlapping_writes(
        size in 20usize..3000,
        parts in proptest::collection::vec((0usize..4000, 1usize..4000), 1..6),
        step: u8,
    ) {
        check(&writes(size, &parts), step);
    }
}
