//! The cost of protecting data sent over SMB Direct: each side processes it once, without a copy. Runs in a separate process, since
//! the counters are global.

#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use client::connect::Local;
use client::smb::{Options, Smb};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{buf, pattern};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};

const LEN: usize = 8 << 20;
/// Requests and responses, which are signed or encrypted as well, and iWARP frames split between two reads of the socket: at most a
/// sixteenth.
const SOME: u64 = LEN as u64 / 16;

/// Bytes signed or encrypted, and bytes copied.
fn counted() -> [u64; 2] {
    [smb_crypto::touched_bytes(), iobuf::copied_bytes()]
}

#[tokio::test(flavor = "multi_thread")]
async fn protected_data_is_processed_once() {
    let (world, _dir) = with_alice(|_| ()).await;
    let local =
        Local { rdma: Some(Arc::new(Iwarp::new(IwarpConfig::default()))), ..Local::default() };
    let (at, place) = (world.running.smb_direct[0], ("127.0.0.1", "data"));
    let data = buf(&pattern("f", LEN));
    let count = u32::try_from(LEN).unwrap();
    for (sign, seal) in [(false, false), (true, false), (false, true)] {
        let options = Options { sign, seal, ..Options::default() };
        let smb = Smb::connect(at, true, place, &alice(), options, &local).await.unwrap();
        let file = smb.create("f").await.unwrap();
        let passes = if sign || seal { 2 } else { 0 };
        let check = |what: &str, before: [u64; 2]| {
            let [touched, copied] = [0, 1].map(|n| counted()[n] - before[n]);
            let expected = passes * LEN as u64..passes * LEN as u64 + SOME;
            assert!(expected.contains(&touched), "{what}: {touched} touched, {options:?}");
            assert!(copied < SOME, "{what}: {copied} copied, {options:?}");
        };
        let before = counted();
        assert_eq!(smb.write(&file, 0, vec![data.clone()]).await, Ok(count));
        check("write", before);
        let before = counted();
        let found = smb.read(&file, 0, count).await.unwrap();
        check("read", before);
        assert!(found.iter().flat_map(|b| b.iter()).eq(data.iter()), "{options:?}");
        smb.leave().await.unwrap();
    }
    world.running.stop().await;
}
