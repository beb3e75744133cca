//! Our initiator against our acceptor, with faults.

use std::collections::VecDeque;
use std::future::poll_fn;

use iobuf::{Buf, BufMut, Pool, PoolLimits};
use rdma_transport::channel::{ChannelError, RemoteSeg, Reply};
use rdma_transport::fault::{Faults, Faulty};
use rdma_transport::messages::{Message, Messages};
use rdma_transport::smbdirect::SmbDirectCaller;
use rdma_transport::verbs::{QueuePair, Region};

use crate::common::{nobody_holds, pool};
use crate::harness::*;

struct Pair {
    caller: SmbDirectCaller,
    served: Served,
    recvs: Pool,
}

fn pair(client: Box<dyn QueuePair>, server: Box<dyn QueuePair>, payload: &Pool) -> Pair {
    let recvs = Pool::new(PoolLimits { buffers_max: [300, 1, 1] });
    let served = serve_on(server, payload.clone());
    let caller = SmbDirectCaller::new(client, info(&pool(64)), recvs.clone()).unwrap();
    Pair { caller, served, recvs }
}

async fn next(caller: &mut SmbDirectCaller) -> Result<Message, ChannelError> {
    poll_fn(|cx| caller.poll_message(cx)).await
}

/// One request of each kind, with sizes around every threshold.
fn requests() -> Vec<(Ask, Vec<u8>)> {
    let mut all = Vec::new();
    let sizes = [1, 7, 1000, 1340, 1341, 4055, 4056, 4057, 8111, 8112, 8113, 65_536, 500_000];
    for (i, len) in sizes.into_iter().enumerate() {
        all.push((Ask::echo(bytes(len, i as u8)), bytes(len, i as u8)));
        all.push((Ask::read(len, vec![]), content(len)));
    }
    all
}

#[test]
fn messages_of_all_sizes_arrive() {
    for over in [Over::Loopback, Over::Iwarp] {
        run(async {
            let payload = pool(64);
            let (client, server) = queue_pairs(over).await;
            let Pair { mut caller, served, recvs } = pair(client, server, &payload);
            let mut expected: VecDeque<Vec<u8>> = VecDeque::new();
            for _ in 0..3 {
                for (ask, answer) in requests() {
                    caller.send(Reply::of(ask.emit()));
                    expected.push_back(answer);
                }
            }
            while let Some(answer) = expected.pop_front() {
                assert!(next(&mut caller).await.unwrap().body[..] == answer);
            }
            drop(caller);
            served.end.await.unwrap();
            for p in [&recvs, &served.recvs, &payload] {
                nobody_holds(p);
            }
        });
    }
}

#[test]
fn pushes_precede_later_replies() {
    for over in [Over::Loopback, Over::Iwarp] {
        run(async {
            let (client, server) = queue_pairs(over).await;
            let Pair { mut caller, served, .. } = pair(client, server, &pool(64));
            let ask = Ask { op: 3, rest: b"twice".to_vec(), ..Ask::default() };
            caller.send(Reply::of(ask.emit()));
            for _ in 0..2 {
                assert_eq!(next(&mut caller).await.unwrap().body[..], *b"twice");
            }
            served.handle.push(Reply::of(b"out of the blue".to_vec())).await.unwrap();
            assert_eq!(next(&mut caller).await.unwrap().body[..], *b"out of the blue");
        });
    }
}

/// Messages wait for scarce buffers, but no message is lost.
#[test]
fn small_pool_only_delays_messages() {
    run(async {
        let payload = Pool::new(PoolLimits { buffers_max: [2, 2, 2] });
        let (client, server) = queue_pairs(Over::Loopback).await;
        let Pair { mut caller, served, .. } = pair(client, server, &payload);
        for i in 0..20_u8 {
            caller.send(Reply::of(Ask::echo(bytes(100_000, i)).emit()));
        }
        for i in 0..20_u8 {
            assert!(next(&mut caller).await.unwrap().body[..] == bytes(100_000, i));
        }
        drop(caller);
        served.end.await.unwrap();
        nobody_holds(&payload);
    });
}

#[test]
fn shutdown_completes_requests_in_progress() {
    run(async {
        let (client, server) = queue_pairs(Over::Iwarp).await;
        let Pair { mut caller, served, .. } = pair(client, server, &pool(64));
        caller.send(Reply::of(Ask::echo(b"last words".to_vec()).emit()));
        assert_eq!(next(&mut caller).await.unwrap().body[..], *b"last words");
        served.handle.shutdown().await;
        assert!(next(&mut caller).await.is_err());
        assert_eq!(served.end.await.unwrap(), ChannelError::Closed("by this side".into()));
    });
}

/// Runs one client with faults: echoes, reads and writes by RDMA. True if all succeeded.
async fn exchange(caller: &mut SmbDirectCaller, seed: u64) -> bool {
    type Expected = (Vec<u8>, Option<(RemoteSeg, usize)>);
    let mut waiting: VecDeque<Expected> = VecDeque::new();
    for i in 0..30_u64 {
        let len = (seed.wrapping_mul(i + 7).wrapping_mul(0x9e37_79b9) >> 16) as usize % 20_000 + 1;
        match i % 3 {
            0 => {
                caller.send(Reply::of(Ask::echo(bytes(len, i as u8)).emit()));
                waiting.push_back((bytes(len, i as u8), None));
            }
            1 => {
                let Ok(seg) = caller.register(Region::Writable(BufMut::heap(len))) else {
                    continue;
                };
                caller.send(Reply::of(Ask::read(len, vec![seg]).emit()));
                waiting.push_back((b"read".to_vec(), Some((seg, len))));
            }
            _ => {
                let data = Buf::from(content(len));
                let Ok(seg) = caller.register(Region::Readable(data)) else { continue };
                caller.send(Reply::of(Ask::pull(vec![seg]).emit()));
                waiting.push_back((content(len), None));
            }
        }
    }
    while !waiting.is_empty() {
        let Ok(message) = next(caller).await else { return false };
        let at = waiting.iter().position(|(expected, _)| message.body[..] == *expected);
        let (_, region) = at.and_then(|at| waiting.remove(at)).unwrap();
        if let Some((seg, len)) = region {
            let Some(Region::Writable(mut b)) = caller.release(seg.handle) else { panic!() };
            assert!(b.whole_mut()[..len] == content(len), "of a read that was answered");
        }
    }
    true
}

/// Delayed and reordered completions, refused posts, lost connections: every answer that arrives is right, and all memory is
/// returned.
#[test]
fn seeded_faults() {
    let mut whole = 0;
    for seed in 0..1000 {
        run(async {
            let payload = pool(16);
            let (client, server) = queue_pairs(Over::Loopback).await;
            let lose = if seed % 4 == 0 { 2 } else { 0 };
            let faults = Faults { delay: 200, refuse: 100, lose, ..Faults::default() };
            let client = Box::new(Faulty::new(client, seed, Faults { lose: 0, ..faults }));
            let server = Box::new(Faulty::new(server, !seed, faults));
            let Pair { mut caller, served, recvs } = pair(client, server, &payload);
            let went_well = exchange(&mut caller, seed).await;
            whole += u32::from(went_well);
            assert!(went_well || lose > 0, "seed {seed}");
            drop(caller);
            served.end.await.unwrap();
            for p in [&recvs, &served.recvs, &payload] {
                nobody_holds(p);
            }
        });
    }
    assert!(whole > 750, "most runs go well: {whole}");
}
