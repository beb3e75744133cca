//! Compares the LZ77 decoder, which copies in large steps, with a model that copies byte by byte, for matches of every kind.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use smb_compress::{Algorithm, Fault};

/// Writes a stream element by element, and expands it as well.
#[derive(Default)]
struct Model {
    stream: Vec<u8>,
    plain: Vec<u8>,
    flags_at: usize,
    count: u32,
    shared_at: Option<usize>,
}

impl Model {
    fn flag(&mut self, is_match: bool) {
        if self.count.is_multiple_of(32) {
            self.flags_at = self.stream.len();
            self.stream.extend([0; 4]);
        }
        let bit = 31 - self.count % 32;
        self.stream[self.flags_at + bit as usize / 8] |= u8::from(is_match) << (bit % 8);
        self.count += 1;
    }

    fn literals(&mut self, n: usize) {
        for _ in 0..n {
            self.flag(false);
            let literal = (self.plain.len() * 167 % 251) as u8;
            self.stream.push(literal);
            self.plain.push(literal);
        }
    }

    fn reference(&mut self, distance: usize, len: usize) {
        self.flag(true);
        let field = (len - 3).min(7);
        self.stream.extend((((distance - 1) << 3 | field) as u16).to_le_bytes());
        if let Some(more) = (len - 3).checked_sub(7) {
            let bits = more.min(15) as u8;
            match self.shared_at.take() {
                Some(at) => self.stream[at] |= bits << 4,
                None => {
                    self.shared_at = Some(self.stream.len());
                    self.stream.push(bits);
                }
            }
            match more.checked_sub(15) {
                None => {}
                Some(rest) if rest < 255 => self.stream.push(rest as u8),
                Some(_) => {
                    self.stream.push(255);
                    self.stream.extend(((len - 3) as u16).to_le_bytes());
                }
            }
        }
        for _ in 0..len {
            self.plain.push(self.plain[self.plain.len().wrapping_sub(distance)]);
        }
    }

    fn check(&self, what: &str) {
        // Bytes that the decoder does not write would be seen.
        let mut out = vec![0xEE; self.plain.len()];
        assert_eq!(Algorithm::Lz77.decompress(&self.stream, &mut out), Ok(()), "{what}");
        assert!(out == self.plain, "{what}");
    }
}

const LENGTHS: [usize; 19] =
    [3, 4, 8, 9, 10, 11, 15, 16, 17, 23, 24, 25, 26, 31, 32, 33, 279, 280, 5000];

#[test]
fn matches_of_every_kind_expand() {
    for distance in (1..=50).chain([63, 64, 65, 1000, 8191, 8192]) {
        for len in LENGTHS {
            for after in [0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 79, 80, 81, 200] {
                let mut model = Model::default();
                model.literals(distance);
                model.reference(distance, len);
                model.literals(after);
                model.check(&format!("distance {distance}, length {len}, {after} bytes after"));
            }
        }
    }
}

#[test]
fn mixtures_of_literals_and_matches_expand() {
    let mut seed = 1_u64;
    let mut random = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    for round in 0..400 {
        let mut model = Model::default();
        let (literals, steps) = (random(40), random(300));
        model.literals(1);
        for _ in 0..steps {
            model.literals(random(literals + 1) / (1 + random(4)));
            let farthest = model.plain.len().min([3, 20, 40, 8192][random(4)]);
            model.reference(1 + random(farthest), LENGTHS[random(18)]);
        }
        model.literals(random(100));
        model.check(&format!("round {round}"));
        // A part of the stream that the output needs may not be missing.
        let mut out = vec![0; model.plain.len()];
        for cut in (0..model.stream.len()).step_by(7) {
            let result = Algorithm::Lz77.decompress(&model.stream[..cut], &mut out);
            assert!(
                matches!(result, Err(Fault::Truncated | Fault::TooLittle)),
                "round {round}, {cut} of {}: {result:?}",
                model.stream.len()
            );
        }
    }
}

#[test]
fn match_before_output_or_beyond_its_end_is_refused() {
    for distance in (1..=50).chain([8192]) {
        for len in LENGTHS {
            for after in [0, 40, 200] {
                let mut model = Model::default();
                model.literals(distance);
                model.reference(distance, len);
                model.literals(after);
                // The same stream with a match that begins a byte too early.
                if distance < 8192 {
                    let mut stream = model.stream.clone();
                    let token = distance + 4 * (distance / 32 + 1);
                    let at = u16::from_le_bytes([stream[token], stream[token + 1]]) + 8;
                    stream[token..token + 2].copy_from_slice(&at.to_le_bytes());
                    let result =
                        Algorithm::Lz77.decompress(&stream, &mut vec![0; model.plain.len()]);
                    assert_eq!(result, Err(Fault::Distance), "{distance} {len} {after}");
                }
                if after == 0 {
                    let mut out = vec![0; distance + len - 1];
                    let result = Algorithm::Lz77.decompress(&model.stream, &mut out);
                    assert_eq!(result, Err(Fault::TooMuch), "{distance} {len}");
                }
            }
        }
    }
}
