//! Measures the codecs: `cargo run --release -p smb-compress --example speed [FILE]`. The default input is text composed of words
//! of the license, which is the same in each version. Prints the compression ratio, and the speed of compression and decompression
//! in megabytes per second of processor time.

use std::fs;
use std::hint::black_box;
use std::time::Duration;

use smb_compress::{Algorithm, sample};

const PIECE: usize = 1 << 20;
const ROUND: Duration = Duration::from_millis(600);

/// Returns the processor time of this process, so that other programs do not distort the measurement.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// Returns the speed of `work` in megabytes per second if each run processes `bytes` bytes.
fn speed(bytes: usize, mut work: impl FnMut()) -> f64 {
    let (began, mut rounds) = (processor_time(), 0.0);
    loop {
        work();
        rounds += 1.0;
        let taken = processor_time() - began;
        if taken >= ROUND {
            return bytes as f64 * rounds / taken.as_secs_f64() / 1e6;
        }
    }
}

/// Generates a text of words in a non-repeating order.
fn text() -> Vec<u8> {
    let words: Vec<&str> = include_str!("../../../LICENSE-APACHE").split_inclusive(' ').collect();
    let mut seed = 1_u64;
    let mut text = Vec::with_capacity(8 * PIECE);
    while text.len() < 8 * PIECE {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let from = (seed >> 33) as usize % words.len();
        let phrase = &words[from..words.len().min(from + 6)];
        phrase.iter().for_each(|word| text.extend_from_slice(word.as_bytes()));
    }
    text
}

fn main() {
    let data = match std::env::args().nth(1) {
        Some(path) => fs::read(path).unwrap_or_default(),
        None => text(),
    };
    println!("{} bytes in pieces of {PIECE}\n", data.len());
    println!("| codec | of 100 bytes | in, MB/s | out, MB/s |\n|---|---|---|---|");
    for algorithm in Algorithm::ALL {
        let mut streams: Vec<Vec<u8>> = Vec::new();
        let mut room = vec![0; 2 * PIECE];
        for piece in data.chunks(PIECE) {
            let len = algorithm.compress(piece, &mut room).unwrap_or(0);
            streams.push(room[..len].to_vec());
        }
        let ratio = streams.iter().map(Vec::len).sum::<usize>() as f64 / data.len() as f64;
        let input = speed(data.len(), || {
            for piece in data.chunks(PIECE) {
                black_box(algorithm.compress(black_box(piece), &mut room));
            }
        });
        let output = speed(data.len(), || {
            for (piece, stream) in data.chunks(PIECE).zip(&streams) {
                let done = algorithm.decompress(black_box(stream), &mut room[..piece.len()]);
                black_box(done.is_ok());
            }
        });
        println!("| {} | {:.1} | {input:.0} | {output:.0} |", algorithm.name(), 100.0 * ratio);
    }
    let samples = speed(data.len(), || {
        data.chunks(PIECE).for_each(|piece| {
            black_box(sample::is_compressible(black_box(piece)));
        });
    });
    println!("\na sample of each piece: {samples:.0} MB/s");
}
