//! Runs the fuzz targets on their seeds, and on many small changes of each: a minute of fuzzing in a second, and reproducible.

use std::panic::catch_unwind;

use headgate_tests::fuzz::{TARGETS, seeds};

const CHANGES: u32 = 1000;

/// xorshift: the same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n.max(1) as u64).unwrap_or(0)
    }
}

/// Makes one to four changes: a byte, a word to an extreme value, a piece removed or doubled, the end cut off.
fn change(seed: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(data.len());
        match numbers.below(5) {
            0 if !data.is_empty() => data[at] ^= 1 << numbers.below(8),
            1 if at + 4 <= data.len() => {
                let words = [0, 1, 3, 0xff, 0x7fff_ffff, 0x8000_0000, u32::MAX - 3, u32::MAX];
                data[at / 4 * 4..at / 4 * 4 + 4]
                    .copy_from_slice(&words[numbers.below(8)].to_be_bytes());
            }
            2 => data.truncate(at),
            3 => data.extend_from_within(at..),
            _ => drop(data.drain(at..(at + 4).min(data.len()))),
        }
    }
    data
}

#[test]
fn targets_survive_changed_seeds() {
    for (name, target) in TARGETS {
        for seed in seeds::of(name) {
            let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
            target(&seed);
            // These targets start a server, which takes longer than decoding a message.
            let whole = [
                "nfs40_args",
                "nfs41_args",
                "nfs42_args",
                "side_calls",
                "smb2_connection",
                "smb2_session",
                "smb_direct",
                "tls_handshake",
            ];
            for _ in 0..if whole.contains(&name) { CHANGES / 20 } else { CHANGES } {
                let data = change(&seed, &mut numbers);
                assert!(catch_unwind(|| target(&data)).is_ok(), "{name}: {data:02x?}");
            }
        }
    }
}

#[test]
fn targets_have_programs_and_seeds() {
    let manifest = include_str!("../../fuzz/Cargo.toml");
    for (name, _) in TARGETS {
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "{name} is not in fuzz/Cargo.toml"
        );
        assert!(seeds::of(name).iter().any(|s| !s.is_empty()), "{name} has no seed");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
}
