//! Reads a file by SMB as fast as the network allows: `fetch ADDRESS:PORT SHARE USER PASSWORD NAME ORIGINAL HOW`. HOW is `off`, or
//! the codec to offer for compression: `lz77`, `huffman` or `lz4`, with chains and Pattern_V1. Compares a first part with ORIGINAL,
//! a file of this host, then measures all. Prints the seconds, and the bytes that the connection received for the file.

#![allow(clippy::expect_used)] // A measurement that cannot continue should panic with a message.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use client::connect::Local;
use client::smb::{Compression, Options, Smb, SmbFile, User};
use futures_util::{StreamExt, stream};
use smb_compress::Algorithm;
use smb_proto::smb2::compression::algorithm::PATTERN_V1;

const PIECE: u32 = 1 << 20;
const AT_ONCE: usize = 8;
/// Bytes that are compared.
const COMPARED: u64 = 8 << 20;

fn compression(how: &str) -> Option<Compression> {
    let algorithms: &[u16] = match how {
        "off" => return None,
        "lz77" => &[PATTERN_V1, Algorithm::Lz77 as u16],
        "huffman" => &[PATTERN_V1, Algorithm::Lz77Huffman as u16],
        "lz4" => &[PATTERN_V1, Algorithm::Lz4 as u16],
        other => panic!("no codec {other}"),
    };
    Some(Compression { algorithms, chained: true })
}

/// Reads the file up to `end` and returns how many bytes came. Each piece goes through `check` with its offset.
async fn read(smb: &Smb, file: &SmbFile, end: u64, check: impl Fn(u64, &[u8])) -> u64 {
    let pieces = stream::iter((0..end).step_by(PIECE as usize));
    let pieces = pieces.map(async |at| (at, smb.read(file, at, PIECE).await.expect("READ")));
    let mut pieces = pieces.buffered(AT_ONCE);
    let mut total = 0;
    while let Some((mut at, data)) = pieces.next().await {
        for part in data {
            check(at, &part);
            at += part.len() as u64;
            total += part.len() as u64;
        }
    }
    total
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [at, share, name, password, file, original, how] = words[..] else {
        panic!("fetch ADDRESS:PORT SHARE USER PASSWORD NAME ORIGINAL HOW");
    };
    let user = User { name: name.into(), password: password.into(), ..User::default() };
    let options = Options { compression: compression(how), ..Options::default() };
    let at = at.parse().expect("an address");
    let local = Local::default();
    let smb = Smb::connect(at, false, ("server", share), &user, options, &local).await;
    let smb = smb.expect("a share");
    let original = File::open(original).expect("ORIGINAL");
    let file = smb.find(file).await.expect("NAME");
    let size = original.metadata().expect("its size").len();
    assert_eq!(file.size, size, "another size");
    let compare = |at, part: &[u8]| {
        let mut own = vec![0; part.len()];
        original.read_exact_at(&mut own, at).expect("ORIGINAL");
        assert!(own == part, "other bytes from {at} on");
    };
    read(&smb, &file, size.min(COMPARED), compare).await;
    let before = smb.info().traffic.inline_in.load(Relaxed);
    let began = Instant::now();
    assert_eq!(read(&smb, &file, size, |_, _| ()).await, size, "the file is shorter");
    let seconds = began.elapsed().as_secs_f64();
    println!("{seconds} {}", smb.info().traffic.inline_in.load(Relaxed) - before);
}
