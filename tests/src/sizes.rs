//! Files of every size around the thresholds over SMB Direct: written data is compared with the folder and read back.

#![allow(clippy::unwrap_used)] // A failing transfer fails the test.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use client::smb::{Options, Smb, SmbFile};
use iobuf::{Buf, BufMut};
use smb_crypto::seal::Cipher;
use smb_crypto::sign::Algorithm;

use crate::world::{buf, pattern};

/// Each signing algorithm and each cipher, and whether it encrypts.
pub fn ways() -> [(Options, bool); 7] {
    let signed = |signing| Options { sign: true, signing, ..Options::default() };
    let sealed = |ciphers| Options { seal: true, ciphers, ..Options::default() };
    [
        (signed(&[Algorithm::AesGmac]), false),
        (signed(&[Algorithm::AesCmac]), false),
        (signed(&[Algorithm::HmacSha256]), false),
        (sealed(&[Cipher::Aes128Gcm]), true),
        (sealed(&[Cipher::Aes256Gcm]), true),
        (sealed(&[Cipher::Aes128Ccm]), true),
        (sealed(&[Cipher::Aes256Ccm]), true),
    ]
}

/// Sizes around these are tested, one byte less and one more: a byte, the largest message of older clients, one SMB Direct message,
/// the smallest RDMA transfer, two pages, the buffers, the largest READ and WRITE.
const AROUND: [usize; 10] = [1, 127, 128, 1340, 1364, 4096, 8192, 65_536, 1 << 20, 8 << 20];
/// The smallest transfer for which our client uses RDMA.
pub const DIRECT: usize = client::smb::DIRECT_MIN as usize;

/// Splits `len` bytes into `n` pieces, with different neighbours if possible.
fn cut(len: usize, n: usize) -> Vec<usize> {
    let n = n.min(len).max(1);
    let (each, rest) = (len / n, len % n);
    let uneven = |i: usize| each + if i.is_multiple_of(2) { each / 2 } else { 0 };
    let mut cut: Vec<usize> = (0..n).map(uneven).collect();
    // Odd pieces are shortened by the excess of the even ones; the last one takes the rest.
    for i in (1..n).step_by(2) {
        cut[i] -= each / 2;
    }
    let sum: usize = cut[..n - 1].iter().sum();
    cut[n - 1] = (each * n + rest).saturating_sub(sum);
    cut
}

pub fn joined(pieces: &[Buf]) -> Vec<u8> {
    pieces.iter().flat_map(|b| b.iter().copied()).collect()
}

/// Writes and reads back `len` bytes from and into `n` pieces of memory.
async fn there_and_back(smb: &Smb, file: &SmbFile, path: &Path, len: usize, n: usize) {
    let label = format!("{len} bytes in {n}");
    let data = pattern(&label, len);
    let mut rest = &data[..];
    let mut pieces = Vec::new();
    for piece in cut(len, n) {
        let (now, later) = rest.split_at(piece);
        pieces.push(buf(now));
        rest = later;
    }
    assert!(rest.is_empty());
    let taken = smb.write(file, 0, pieces).await;
    assert_eq!(taken, Ok(u32::try_from(len).unwrap()), "{label}");
    assert!(fs::read(path).unwrap()[..len] == data, "{label} in the folder");
    let count = u32::try_from(len).unwrap();
    // READ at offset 0 is limited to the largest size.
    let one = (DIRECT..=8 << 20).contains(&len);
    let found = if one {
        let into = cut(len, n).into_iter().map(BufMut::heap).collect();
        smb.read_into(file, 0, count, into).await
    } else {
        smb.read(file, 0, count).await
    };
    assert!(joined(&found.unwrap()) == data, "{label} read back");
}

/// Writes and reads files `f` of all sizes in one piece of memory and in up to 64, and checks that all data from [`DIRECT`] on used
/// RDMA. `nth` varies the pieces.
pub async fn every_size(smb: Smb, folder: &Path, nth: usize) {
    let path = folder.join("f");
    let file = smb.create("f").await.unwrap();
    let mut sizes: Vec<usize> = AROUND.iter().flat_map(|s| [s - 1, *s, s + 1]).collect();
    sizes.dedup();
    for (i, &len) in sizes.iter().enumerate() {
        there_and_back(&smb, &file, &path, len, (nth * 23 + i * 5) % 64 + 1).await;
    }
    for n in 1..=64 {
        there_and_back(&smb, &file, &path, DIRECT + 131 * n + nth, n).await;
    }
    let t = &smb.info().traffic;
    let (placed, fetched) = (t.rdma_write.load(Relaxed), t.rdma_read.load(Relaxed));
    // The last byte of 8 MiB and one byte is transferred inline.
    let by_rdma = |len: &usize| if *len > 8 << 20 { 8 << 20 } else { *len };
    let direct = sizes.iter().filter(|l| **l >= DIRECT).map(by_rdma).sum::<usize>()
        + (1..=64).map(|n| DIRECT + 131 * n + nth).sum::<usize>();
    assert_eq!((placed, fetched), (direct as u64, direct as u64), "{:?}", smb.info());
    smb.close(file).await.unwrap();
    smb.leave().await.unwrap();
}
