//! Compressed SMB by our own client: every algorithm, chained or not, signed, encrypted or neither, of sizes around each limit.

#![allow(clippy::unwrap_used)]
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use client::Result;
use client::connect::Local;
use client::smb::{Compression, Options, Smb};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf, pattern};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};

const SIZES: [usize; 7] = [0, 1, 4096, 4097, 65_456, 65_457, 150_000];
/// More than one READ or WRITE has.
const LARGE: usize = (8 << 20) + 1;
const LISTS: [&[u16]; 6] = [&[1], &[2], &[3], &[5], &[4, 2, 3, 1, 5], &[4]];

async fn connect(world: &World, rdma: bool, options: Options) -> Result<Smb> {
    let provider = Arc::new(Iwarp::new(IwarpConfig::default()));
    let local = Local { rdma: Some(provider), ..Local::default() };
    let at = if rdma { world.running.smb_direct[0] } else { world.running.smb[0] };
    Smb::connect(at, rdma, ("127.0.0.1", "data"), &alice(), options, &local).await
}

fn text(len: usize) -> Vec<u8> {
    (0..).flat_map(|n: u32| format!("line {n} of a log; ").into_bytes()).take(len).collect()
}

/// Zeros, text, noise and zeros, a quarter each.
fn mixed(len: usize) -> Vec<u8> {
    let part = len / 4;
    [vec![0; part], text(part), pattern("noise", part), vec![0; len - 3 * part]].concat()
}

/// Writes a file, looks at it in its folder, and reads it; returns the bytes that the connection took for both.
async fn there_and_back(world: &World, smb: &Smb, data: &[u8], case: &str) -> u64 {
    let traffic = || {
        let traffic = &smb.info().traffic;
        traffic.inline_in.load(Relaxed) + traffic.inline_out.load(Relaxed)
    };
    let before = traffic();
    let file = smb.create("file").await.unwrap_or_else(|e| panic!("{case}: {e}"));
    let taken =
        smb.write(&file, 0, vec![buf(data)]).await.unwrap_or_else(|e| panic!("{case}: {e}"));
    assert_eq!(taken as usize, data.len(), "{case}");
    assert!(fs::read(world.folder().join("file")).unwrap() == data, "{case}: in the folder");
    let count = u32::try_from(data.len() + 10).unwrap();
    let found = smb.read(&file, 0, count).await.unwrap_or_else(|e| panic!("{case}: {e}"));
    smb.close(file).await.unwrap();
    let found: Vec<u8> = found.iter().flat_map(|b| b.to_vec()).collect();
    assert!(found == data, "{case}: read back");
    traffic() - before
}

#[tokio::test(flavor = "multi_thread")]
async fn files_travel_compressed_in_every_way() {
    let (world, _dir) = with_alice(|_| ()).await;
    for algorithms in LISTS {
        for (chained, sign, seal) in [
            (false, false, false),
            (false, true, false),
            (false, false, true),
            (true, false, false),
            (true, true, false),
            (true, false, true),
        ] {
            let compression = Some(Compression { algorithms, chained });
            let options = Options { sign, seal, compression, ..Options::default() };
            let smb = connect(&world, false, options).await.unwrap();
            let large = (algorithms.len() > 1).then_some(LARGE);
            for size in SIZES.into_iter().chain(large) {
                for (kind, data) in [("text", text(size)), ("mixed", mixed(size))] {
                    let case = format!("{compression:?} {sign} {seal} {size} {kind}");
                    let moved = there_and_back(&world, &smb, &data, &case).await;
                    let is_shorter = size > 65_536 && algorithms != [4] && kind == "text";
                    assert!(!is_shorter || moved < size as u64, "{case}: {moved} bytes");
                }
            }
            smb.leave().await.unwrap();
        }
    }
    world.running.stop().await;
}

/// What does not shrink travels as it is, and RDMA knows no compression.
#[tokio::test(flavor = "multi_thread")]
async fn noise_and_rdma_travel_uncompressed() {
    let (world, _dir) = with_alice(|_| ()).await;
    let compression = Some(Compression { algorithms: &[4, 2], chained: true });
    let options = Options { compression, ..Options::default() };
    let smb = connect(&world, false, options).await.unwrap();
    let noise = pattern("noise", 1 << 20);
    let moved = there_and_back(&world, &smb, &noise, "noise").await;
    assert!((2 << 20..(2 << 20) + 4096).contains(&moved), "{moved}");
    smb.leave().await.unwrap();
    let direct = connect(&world, true, options).await.unwrap();
    there_and_back(&world, &direct, &text(1 << 20), "rdma").await;
    let placed = direct.info().traffic.rdma_read.load(Relaxed);
    assert_eq!(placed, 1 << 20, "all of it is placed");
    direct.leave().await.unwrap();
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_that_is_off_is_not_offered() {
    let off = |s: &mut config::Settings| s.smb.compression = config::Compression::Off;
    let (world, _dir) = with_alice(off).await;
    let compression = Some(Compression { algorithms: &[2], chained: false });
    let smb = connect(&world, false, Options { compression, ..Options::default() }).await.unwrap();
    let moved = there_and_back(&world, &smb, &text(1 << 20), "off").await;
    assert!(moved > 2 << 20, "{moved}");
    smb.leave().await.unwrap();
    world.running.stop().await;
}
