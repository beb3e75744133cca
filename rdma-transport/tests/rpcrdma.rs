//! RPC-over-RDMA over loopback and iWARP: our client against our server.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod common;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use common::{Echo, Message, bulk_of, nobody_holds, pool, put_back, run};
use iobuf::{Buf, Pool, PoolLimits};
use proptest::prelude::*;
use rdma_transport::caller::{BulkResult, Call, Caller, Event};
use rdma_transport::channel::{Channel, ChannelError, Handle, Info, Payload, Place, Transport};
use rdma_transport::fault::{Faults, Faulty};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use rdma_transport::rpcrdma::wire::PrivateData;
use rdma_transport::rpcrdma::{RdmaCaller, RdmaChannel};
use rdma_transport::serve::serve;
use rdma_transport::verbs::{Provider, QueuePair};
use rdma_transport::{limits, loopback};
use tokio::task::JoinHandle;

fn info(pool: &Pool) -> Arc<Info> {
    let nowhere = "127.0.0.1:0".parse().unwrap();
    Arc::new(Info::new(nowhere, nowhere, Transport::Rdma("loopback"), pool.clone()))
}

/// A client, a server task, and the state to inspect afterwards.
struct Pair {
    caller: RdmaCaller,
    server: JoinHandle<ChannelError>,
    handle: Handle,
    server_info: Arc<Info>,
    pools: [Pool; 3],
}

struct Setup {
    echo: Echo,
    faults: Option<(u64, Faults)>,
    client_private: Vec<u8>,
    payload: Pool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            echo: Echo::default(),
            faults: None,
            client_private: RdmaCaller::connect_params().private_data.to_vec(),
            payload: pool(64),
        }
    }
}

fn connect(setup: Setup) -> Pair {
    let (mine, theirs) = (RdmaCaller::connect_params(), RdmaChannel::accept_params());
    let [mut client, mut server] = loopback::pair(&mine, &theirs);
    if let Some((seed, faults)) = setup.faults {
        client = Box::new(Faulty::new(client, seed, Faults { lose: 0, ..faults }));
        server = Box::new(Faulty::new(server, !seed, faults));
    }
    pair(setup, client, server)
}

/// Connects both halves over these queue pairs.
fn pair(setup: Setup, client: Box<dyn QueuePair>, server: Box<dyn QueuePair>) -> Pair {
    let recvs = || Pool::new(PoolLimits { buffers_max: [256, 1, 1] });
    let pools = [recvs(), recvs(), setup.payload];
    let server_info = info(&pools[2]);
    let private = setup.client_private;
    let channel =
        RdmaChannel::new(server, server_info.clone(), pools[0].clone(), &private).unwrap();
    let handle = channel.handle();
    let server = tokio::spawn(serve(Box::new(channel), Arc::new(setup.echo)));
    let answer = RdmaChannel::accept_params().private_data;
    let caller = RdmaCaller::new(client, info(&pools[2]), pools[1].clone(), &answer);
    Pair { caller: caller.unwrap(), server, handle, server_info, pools }
}

/// Connects both halves over sockets.
async fn connect_iwarp(setup: Setup) -> Pair {
    let iwarp = Iwarp::new(IwarpConfig::default());
    let mut listener = iwarp.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let at = listener.local_addr();
    let accept = async {
        let mut incoming = listener.accept().await.unwrap();
        let private = incoming.request().await.unwrap();
        assert_eq!(private, RdmaCaller::connect_params().private_data);
        incoming.accept(RdmaChannel::accept_params()).await.unwrap()
    };
    let (server, client) = tokio::join!(accept, iwarp.connect(at, RdmaCaller::connect_params()));
    pair(setup, client.unwrap().qp, server.qp)
}

fn call(m: &Message, reply_max: usize, bulk_max: usize) -> Call {
    let (head, at) = m.split();
    let pad = (m.bulk.len().wrapping_neg() % 4) as u8;
    // In pieces, each of which becomes a segment.
    let data = m.bulk.chunks(300_000).map(|c| Buf::from(c.to_vec())).collect();
    let payload = Payload { at, data, pages: None, pad, place: Place::Eligible };
    let payloads = Some(payload).filter(|p| !p.is_empty()).into_iter().collect();
    let bulk = Some(BulkResult { max: bulk_max, locate: bulk_of }).filter(|b| b.max > 0);
    Call { head, payloads, reply_max, bulk }
}

async fn next(caller: &mut RdmaCaller) -> Result<Event, ChannelError> {
    poll_fn(|cx| caller.poll_event(cx)).await
}

async fn answered(caller: &mut RdmaCaller) -> (u32, Vec<u8>) {
    match next(caller).await.unwrap() {
        Event::Answer(xid, a) => (xid, put_back(&a.body, &a.read_chunks)),
        other => panic!("{other:?}"),
    }
}

/// A call with ample room for its reply.
fn roomy(m: &Message) -> Call {
    call(m, m.split().0.len(), m.bulk.len())
}

fn count(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn bulk_data_uses_rdma() {
    run(async {
        let Pair { mut caller, server, server_info, pools, .. } = connect(Setup::default());
        let m = Message::new(7, 100, 1 << 20, 8);
        caller.call(roomy(&m));
        assert!(answered(&mut caller).await == (7, m.reply()));
        let t = &server_info.traffic;
        assert_eq!((count(&t.rdma_read), count(&t.rdma_write)), (1 << 20, 1 << 20));
        let [inline_in, inline_out] = [&t.inline_in, &t.inline_out].map(count);
        assert!(inline_in < 400 && inline_out < 400, "{inline_in} {inline_out}");
        let mine = &caller.info().traffic;
        assert_eq!((count(&mine.rdma_read), count(&mine.rdma_write)), (1 << 20, 1 << 20));
        drop(caller);
        server.await.unwrap();
        pools.iter().for_each(nobody_holds);
    });
}

fn sizes() -> impl Strategy<Value = (u32, usize, usize, usize, bool)> {
    let bulk = prop_oneof![
        2 => Just(0usize),
        3 => 1usize..6000,
        1 => 1usize..(1 << 20),
        1 => Just(1 << 20),
    ];
    let head = prop_oneof![3 => 0usize..500, 1 => 0usize..9000];
    (0u32..256, head, bulk, 0usize..300, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Short and long calls and replies, bulk data in chunks and inline, with and without a Write chunk, many concurrently, for
    /// clients that announce their thresholds and for those that do not.
    #[test]
    fn every_byte_returns_unchanged(
        mut sizes in proptest::collection::vec(sizes(), 1..20),
        plain in any::<bool>(),
    ) {
        run(async {
            let mut setup = Setup::default();
            if plain {
                setup.client_private = Vec::new();
            }
            let Pair { mut caller, server, pools, .. } = connect(setup);
            let mut expected = HashMap::new();
            for (i, (seed, head, bulk, tail, chunk)) in sizes.drain(..).enumerate() {
                // Our client always announces its threshold; a server that ignores it assumes less, so the client must stay below
                // that.
                let m = Message::new((i as u32) << 8 | seed, head, bulk, tail);
                let mut c = roomy(&m);
                if !chunk || plain {
                    c.bulk = None;
                    c.reply_max = m.emit().len().max(5000);
                }
                expected.insert(m.xid, m.reply());
                caller.call(c);
            }
            while !expected.is_empty() {
                let (xid, got) = answered(&mut caller).await;
                assert!(expected.remove(&xid).unwrap() == got);
            }
            drop(caller);
            server.await.unwrap();
            pools.iter().for_each(nobody_holds);
        });
    }
}

#[test]
fn every_size_around_the_thresholds() {
    run(async { every_size(connect(Setup::default())).await });
    run(async { every_size(connect_iwarp(Setup::default()).await).await });
}

async fn every_size(mut pair: Pair) {
    {
        let caller = &mut pair.caller;
        for near in [0usize, 127, 128, 1024, 1340, 1364, 4000, 4040, 4096, 8192, 65536, 1 << 20] {
            for bulk in near.saturating_sub(2)..=(near + 2).min(1 << 20) {
                let m = Message::new(bulk as u32, 40, bulk, 12);
                caller.call(roomy(&m));
                assert!(answered(caller).await == (m.xid, m.reply()), "{bulk}");
            }
        }
        for size in (3900..4100).step_by(4) {
            let m = Message::new(size, size as usize, 0, 0);
            caller.call(roomy(&m));
            assert!(answered(caller).await == (m.xid, m.reply()), "{size}");
        }
    }
    let Pair { caller, server, pools, .. } = pair;
    drop(caller);
    server.await.unwrap();
    pools.iter().for_each(nobody_holds);
}

/// Many concurrent calls over sockets: no reply is mixed up, lost or retained.
#[test]
fn depth_over_iwarp() {
    run(async {
        let Pair { mut caller, server, pools, server_info, .. } =
            connect_iwarp(Setup::default()).await;
        let mut expected = HashMap::new();
        for i in 0..60u32 {
            let bulk = [0, 4096, 65_536, 300_000, 1 << 20, 5][i as usize % 6];
            let m = Message::new(i, 40, bulk, 12);
            expected.insert(i, m.reply());
            caller.call(roomy(&m));
        }
        while !expected.is_empty() {
            let (xid, got) = answered(&mut caller).await;
            assert!(expected.remove(&xid).unwrap() == got);
        }
        assert!(count(&server_info.traffic.rdma_write) > 10 << 20);
        drop(caller);
        server.await.unwrap();
        pools.iter().for_each(nobody_holds);
    });
}

#[test]
fn oversized_reply_keeps_connection() {
    run(async {
        let Pair { mut caller, .. } = connect(Setup::default());
        let m = Message::new(1, 5000, 0, 0);
        caller.call(Call { reply_max: 512, ..roomy(&m) });
        let Event::Refused(1, why) = next(&mut caller).await.unwrap() else { panic!() };
        assert!(why.to_string().contains("ERR_CHUNK"), "{why}");
        let m = Message::new(2, 40, 10_000, 0);
        caller.call(call(&m, 4000, 9_996));
        assert!(matches!(next(&mut caller).await.unwrap(), Event::Refused(2, _)));
        let m = Message::new(3, 40, 10_000, 0);
        caller.call(roomy(&m));
        assert_eq!(answered(&mut caller).await, (3, m.reply()));
    });
}

#[test]
fn calls_in_flight_follow_the_credits() {
    run(async {
        let hold = Arc::new(tokio::sync::Semaphore::new(0));
        let echo = Echo { hold: Some(hold.clone()), ..Echo::default() };
        let (in_work, most) = (echo.in_work.clone(), echo.in_work_most.clone());
        let Pair { mut caller, .. } = connect(Setup { echo, ..Setup::default() });
        let calls = 3 * u32::from(limits::RPCRDMA_CREDITS);
        for xid in 0..calls {
            caller.call(roomy(&Message::new(xid, 0, 0, 0)));
        }
        let mut left = calls;
        // The first reply announces the credits; then all of these run concurrently.
        hold.add_permits(1);
        while left > 0 {
            tokio::select! {
                biased;
                _ = answered(&mut caller) => left -= 1,
                () = tokio::task::yield_now() => {}
            }
            if in_work.load(Ordering::SeqCst) == usize::from(limits::RPCRDMA_CREDITS) {
                hold.add_permits(calls as usize);
            }
        }
        assert_eq!(most.load(Ordering::SeqCst), usize::from(limits::RPCRDMA_CREDITS));
    });
}

#[test]
fn scarce_pool_only_delays_calls() {
    run(async {
        let payload = Pool::new(PoolLimits { buffers_max: [1, 1, 2] });
        let Pair { mut caller, pools, .. } =
            connect(Setup { payload: payload.clone(), ..Setup::default() });
        // The client's own results wait for the same pool, so only its arguments may be large.
        for xid in 0..40 {
            let m = Message::new(xid * 3, 8000, 200_000 + xid as usize, 0);
            caller.call(Call { reply_max: 400_000, bulk: None, ..roomy(&m) });
        }
        for _ in 0..40 {
            let (xid, got) = answered(&mut caller).await;
            let m = Message::new(xid, 8000, 200_000 + xid as usize / 3, 0);
            assert!(got == m.reply());
        }
        assert!(payload.stats()[2].waits > 0, "the limit was reached");
        nobody_holds(&pools[2]);
    });
}

/// A client that does not take its replies, or does not respond to Reads, occupies a bounded part of the pool.
#[test]
fn stalled_client_holds_bounded_memory() {
    run(async {
        let payload = pool(100);
        let setup = Setup { payload: payload.clone(), ..Setup::default() };
        let Pair { mut caller, server, pools, .. } = connect_iwarp(setup).await;
        caller.call(roomy(&Message::new(99, 0, 0, 0)));
        answered(&mut caller).await;
        for xid in 0..60 {
            // These xids are answered at once.
            caller.call(call(&Message::new(3 * xid + 1, 0, 1 << 20, 0), 2 << 20, 0));
        }
        // One poll sends the calls; after that the client is not polled, so it neither receives nor responds to Reads.
        assert!(poll_fn(|cx| Poll::Ready(caller.poll_event(cx).is_pending())).await);
        for _ in 0..5000 {
            tokio::task::yield_now().await;
        }
        let held = payload.stats()[2].in_use * (1 << 20);
        let most = limits::RPCRDMA_FETCHING_MAX + limits::REPLY_BACKLOG_MAX + (2 << 20);
        assert!(held > 0 && held <= most, "{held}");
        for _ in 0..60 {
            answered(&mut caller).await;
            assert!(payload.stats()[2].in_use * (1 << 20) <= most);
        }
        drop(caller);
        server.await.unwrap();
        pools.iter().for_each(nobody_holds);
    });
}

#[test]
fn handles_are_invalidated_on_request() {
    run(async {
        for (allowed, expected) in [(true, 1), (false, 0)] {
            let told = PrivateData { remote_invalidation: allowed, ..PrivateData::OURS };
            let client_private = told.emit().to_vec();
            let Pair { mut caller, server_info, .. } =
                connect(Setup { client_private, ..Setup::default() });
            // First one handle, then two, of which neither is invalidated.
            let m = Message::new(1, 0, 20_000, 0);
            caller.call(Call { reply_max: 21_000, bulk: None, ..roomy(&Message::new(0, 0, 0, 0)) });
            answered(&mut caller).await;
            caller.call(roomy(&m));
            answered(&mut caller).await;
            assert_eq!(count(&server_info.traffic.invalidations), expected);
        }
    });
}

#[test]
fn callbacks_go_in_the_reverse_direction() {
    run(async {
        let Pair { mut caller, handle, .. } = connect(Setup::default());
        let calls: Vec<_> = (0..20u8)
            .map(|i| {
                let handle = handle.clone();
                tokio::spawn(async move { handle.call(vec![0, 0, 0, 0, 0, 0, 0, 0, i]).await })
            })
            .collect();
        let (mut seen, mut answers) = (0, 0);
        while seen < 20 || answers < 20 {
            match next(&mut caller).await.unwrap() {
                Event::Callback(m) => {
                    seen += 1;
                    // Forward calls are made in between.
                    caller.call(roomy(&Message::new(u32::from(m[8]), 0, 9000, 0)));
                    caller.answer([&m[..4], &[0, 0, 0, 1], &m[8..]].concat());
                }
                Event::Answer(..) => answers += 1,
                Event::Refused(..) => panic!("all calls fit"),
            }
        }
        let pump = tokio::spawn(async move { next(&mut caller).await.map(|_| ()) });
        for (i, call) in calls.into_iter().enumerate() {
            let reply = call.await.unwrap().unwrap();
            assert_eq!(usize::from(reply[8]), i);
        }
        let too_long = handle.call(vec![0; limits::RPCRDMA_INLINE]).await;
        assert!(matches!(too_long, Err(ChannelError::Closed(_))));
        handle.shutdown().await;
        assert!(matches!(pump.await.unwrap(), Err(ChannelError::Closed(_))));
    });
}

#[test]
fn shutdown_answers_requests_in_progress() {
    run(async {
        let hold = Arc::new(tokio::sync::Semaphore::new(0));
        let echo = Echo { hold: Some(hold.clone()), ..Echo::default() };
        let in_work = echo.in_work.clone();
        let Pair { mut caller, server, handle, .. } = connect(Setup { echo, ..Setup::default() });
        let m = Message::new(1, 0, 50_000, 0);
        caller.call(roomy(&m));
        let waits =
            tokio::spawn(
                async move { (answered(&mut caller).await, next(&mut caller).await.is_err()) },
            );
        while in_work.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        handle.shutdown().await;
        tokio::task::yield_now().await;
        hold.add_permits(1);
        assert!(waits.await.unwrap() == ((1, m.reply()), true));
        assert_eq!(server.await.unwrap(), ChannelError::Closed("by this side".into()));
    });
}

#[test]
fn idle_connection_uses_little_memory() {
    run(async {
        let Pair { mut caller, pools, .. } = connect(Setup::default());
        for xid in 0..100 {
            caller.call(roomy(&Message::new(xid, 0, 30_000, 0)));
            answered(&mut caller).await;
        }
        tokio::task::yield_now().await;
        let held: usize = pools[0].stats().iter().map(|c| c.in_use * c.size).sum();
        assert!(held + size_of::<RdmaChannel>() < 300 << 10, "{held}");
        nobody_holds(&pools[2]);
    });
}

/// Delays, refusals, reordering and losses: calls end with the right bytes or with the connection, and no buffer is lost.
#[test]
fn seeded_faults_lose_no_data() {
    let mut lost = 0;
    for seed in 0..200 {
        run(async {
            let lose = if seed % 2 == 0 { 0 } else { 20 };
            let faults = Faults { delay: 300, refuse: 200, lose, ..Faults::default() };
            let Pair { mut caller, server, pools, .. } =
                connect(Setup { faults: Some((seed, faults)), ..Setup::default() });
            let mut expected = HashMap::new();
            for i in 0..30u32 {
                let bulk = [0, 700, 5000, 9000][i as usize % 4] + seed as usize;
                let m = Message::new(i, seed as usize * 20 % 6000, bulk, 8);
                expected.insert(i, m.reply());
                caller.call(roomy(&m));
            }
            while !expected.is_empty() {
                match next(&mut caller).await {
                    Ok(Event::Answer(xid, a)) => {
                        assert!(
                            expected.remove(&xid).unwrap() == put_back(&a.body, &a.read_chunks)
                        );
                    }
                    // The wrapper also refuses memory; then the call was never sent.
                    Ok(Event::Refused(xid, why)) => {
                        assert!(why.to_string().contains("memory"), "{why}");
                        expected.remove(&xid).unwrap();
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(why) => {
                        assert!(lose > 0, "seed {seed}: {why}");
                        lost += 1;
                        break;
                    }
                }
            }
            drop(caller);
            server.await.unwrap();
            pools.iter().for_each(nobody_holds);
        });
    }
    assert!(lost > 30 && lost < 100, "{lost} of 100 connections were lost");
}
