//! RPC-over-RDMA over the loopback provider: our client against our server, and a raw peer that breaks every rule.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod common;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use common::{Echo, Message, bulk_of, nobody_holds, pool, put_back, run};
use iobuf::{Account, Buf, BufMut, Pool, PoolLimits};
use proptest::prelude::*;
use rdma_transport::caller::{BulkResult, Call, Caller, Event};
use rdma_transport::channel::{
    Channel, ChannelError, Handle, Info, Payload, Place, RemoteSeg, Traffic, Transport,
};
use rdma_transport::fault::{Faults, Faulty};
use rdma_transport::rpcrdma::wire::{
    Lists, Prefix, PrivateData, RDMA_DONE, RDMA_ERROR, RDMA_MSG, RDMA_MSGP, RDMA_NOMSG, RdmaError,
    ReadSeg,
};
use rdma_transport::rpcrdma::{RdmaCaller, RdmaChannel, answer, chunks};
use rdma_transport::serve::serve;
use rdma_transport::verbs::{Completion, Down, QueuePair, Region, Work, WorkId, WorkKind};
use rdma_transport::{limits, loopback};
use tokio::task::JoinHandle;

fn info(pool: &Pool) -> Arc<Info> {
    let nowhere = "127.0.0.1:0".parse().unwrap();
    Arc::new(Info {
        peer: nowhere,
        local: nowhere,
        transport: Transport::Rdma("loopback"),
        account: Account::new(),
        pool: pool.clone(),
        traffic: Traffic::default(),
    })
}

/// A client, a server in its task, and everything to look at afterwards.
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
    let recvs = || Pool::new(PoolLimits { buffers_max: [256, 1, 1] });
    let pools = [recvs(), recvs(), setup.payload];
    let server_info = info(&pools[2]);
    let private = setup.client_private;
    let channel =
        RdmaChannel::new(server, server_info.clone(), pools[0].clone(), &private).unwrap();
    let handle = channel.handle();
    let server = tokio::spawn(serve(Box::new(channel), Arc::new(setup.echo)));
    let answer = theirs.private_data;
    let caller = RdmaCaller::new(client, info(&pools[2]), pools[1].clone(), &answer);
    Pair { caller: caller.unwrap(), server, handle, server_info, pools }
}

fn call(m: &Message, reply_max: usize, bulk_max: usize) -> Call {
    let (head, at) = m.split();
    let pad = (m.bulk.len().wrapping_neg() % 4) as u8;
    // In pieces: each is a segment of its own.
    let data = m.bulk.chunks(300_000).map(|c| Buf::from(c.to_vec())).collect();
    let payload = Payload { at, data, pad, place: Place::Eligible };
    let payloads = Some(payload).filter(|p| !p.is_empty()).into_iter().collect();
    let bulk = Some(BulkResult { max: bulk_max, locate: bulk_of }).filter(|b| b.max > 0);
    Call { head, payloads, reply_max, bulk }
}

async fn next(caller: &mut RdmaCaller) -> Result<Event, ChannelError> {
    poll_fn(|cx| caller.poll_event(cx)).await
}

async fn answered(caller: &mut RdmaCaller) -> (u32, Vec<u8>) {
    match next(caller).await.unwrap() {
        Event::Answer(xid, a) => (xid, put_back(&a.body, &a.pulled)),
        other => panic!("{other:?}"),
    }
}

/// A call whose reply certainly has room.
fn roomy(m: &Message) -> Call {
    call(m, m.split().0.len(), m.bulk.len())
}

fn count(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn bulk_goes_by_write_and_read_and_the_rest_by_send() {
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
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// Short and long calls and replies, bulk data by chunk and inline, with and without a Write chunk, many at once, for
    /// clients that tell their thresholds and for those that do not.
    #[test]
    fn every_byte_comes_back(
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
                // Our client always tells; a server that was not told assumes less, so it must stay below that.
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
    run(async {
        let Pair { mut caller, .. } = connect(Setup::default());
        for near in [0usize, 127, 128, 1024, 1340, 1364, 4000, 4040, 4096, 8192, 65536, 1 << 20] {
            for bulk in near.saturating_sub(2)..=(near + 2).min(1 << 20) {
                let m = Message::new(bulk as u32, 40, bulk, 12);
                caller.call(roomy(&m));
                assert!(answered(&mut caller).await == (m.xid, m.reply()), "{bulk}");
            }
        }
        for size in (3900..4100).step_by(4) {
            let m = Message::new(size, size as usize, 0, 0);
            caller.call(roomy(&m));
            assert!(answered(&mut caller).await == (m.xid, m.reply()), "{size}");
        }
    });
}

#[test]
fn a_reply_without_room_is_an_error_and_the_connection_goes_on() {
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
        // The first answer tells how many there may be; then all of these are in work at once.
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
fn a_scarce_pool_delays_and_loses_nothing() {
    run(async {
        let payload = Pool::new(PoolLimits { buffers_max: [1, 1, 2] });
        let Pair { mut caller, pools, .. } =
            connect(Setup { payload: payload.clone(), ..Setup::default() });
        // The client's own results wait in the same pool, so only its arguments may be large.
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

#[test]
fn handles_are_invalidated_when_the_client_allows_it() {
    run(async {
        for (allowed, expected) in [(true, 1), (false, 0)] {
            let told = PrivateData { remote_invalidation: allowed, ..PrivateData::OURS };
            let client_private = told.emit().to_vec();
            let Pair { mut caller, server_info, .. } =
                connect(Setup { client_private, ..Setup::default() });
            // One handle only, then two, of which none is invalidated.
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
                    // Forward calls pass between.
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
fn shutdown_answers_what_is_in_work() {
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
fn an_idle_connection_stays_below_its_memory() {
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

/// Delays, refusals, reordering and losses: calls end with the right bytes or with the connection, and no buffer stays away.
#[test]
fn seeded_faults_lose_nothing() {
    let mut lost = 0;
    for seed in 0..300 {
        run(async {
            let lose = if seed % 2 == 0 { 0 } else { 20 };
            let faults = Faults { delay: 300, refuse: 200, lose };
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
                        assert!(expected.remove(&xid).unwrap() == put_back(&a.body, &a.pulled));
                    }
                    // The wrapper refuses memory, too; then the call was never made.
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
    assert!(lost > 50 && lost < 150, "{lost} of 150 connections were lost");
}

// ---- A raw peer -----------------------------------------------------------------------------------------------------

/// A client that sends what it likes.
struct Raw {
    qp: Box<dyn QueuePair>,
    server: JoinHandle<ChannelError>,
}

impl Raw {
    fn new(echo: Echo) -> Self {
        let (mine, theirs) = (RdmaCaller::connect_params(), RdmaChannel::accept_params());
        let [mut qp, server] = loopback::pair(&mine, &theirs);
        let recvs = Pool::new(PoolLimits { buffers_max: [256, 1, 1] });
        let channel = RdmaChannel::new(server, info(&pool(8)), recvs, &mine.private_data).unwrap();
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(echo)));
        let recv = |_| Work::Recv { id: WorkId(0), into: BufMut::heap(4096) };
        qp.post((0..60).map(recv).collect()).unwrap();
        Self { qp, server }
    }

    fn send(&mut self, message: Vec<u8>) {
        let send = Work::Send { id: WorkId(1), from: vec![message.into()], invalidate: None };
        self.qp.post(vec![send]).unwrap();
    }

    /// The next message from the server, or the end.
    async fn recv(&mut self) -> Result<Vec<u8>, Down> {
        let mut done: Vec<Completion> = Vec::new();
        poll_fn(|cx| {
            loop {
                for c in done.drain(..) {
                    if let (WorkKind::Recv, Ok(_), Some(buf)) = (c.kind, c.result, c.buf) {
                        let into = BufMut::heap(4096);
                        // Refused when the connection has ended meanwhile, which the next poll says.
                        let _ = self.qp.post(vec![Work::Recv { id: WorkId(0), into }]);
                        return Poll::Ready(Ok(buf.filled().to_vec()));
                    }
                }
                match self.qp.poll(cx, &mut done) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(down)) => return Poll::Ready(Err(down)),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }
}

fn seg(handle: u32, len: u32, offset: u64) -> RemoteSeg {
    RemoteSeg { handle, len, offset }
}

fn read_at(position: u32, len: u32) -> ReadSeg {
    ReadSeg { position, target: seg(77, len, 1000) }
}

fn header(vers: u32, proc: u32, lists: &Lists, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Prefix { xid: 5, vers, credits: 32, proc }.emit(&mut out);
    lists.emit(&mut out);
    out.extend_from_slice(payload);
    out
}

fn reads(reads: Vec<ReadSeg>) -> Lists {
    Lists { reads, ..Lists::default() }
}

fn writes(writes: Vec<Vec<RemoteSeg>>) -> Lists {
    Lists { writes, ..Lists::default() }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// Every rule that a client can break in a message, with a message that breaks it.
fn broken_messages() -> Vec<(&'static str, Vec<u8>)> {
    let body = &Message::new(5, 0, 0, 0).emit()[..];
    let none = Lists::default();
    let many = limits::RPCRDMA_CHUNKS_MAX as u32;
    let mib = limits::RPC_PAYLOAD_MAX as u32;
    let list = |w: &[u32]| [words(&[5, 1, 32, 0]), words(w)].concat();
    let mut other_xid = body.to_vec();
    other_xid[0] = 9;
    let overlapping = writes(vec![vec![seg(1, 100, 50)], vec![seg(2, 100, 0), seg(1, 60, 0)]]);
    let mut reply_overlap = writes(vec![vec![seg(1, 100, 50)]]);
    reply_overlap.reply = Some(vec![seg(1, 1, 149)]);
    let reverse = |lists| header(1, RDMA_MSG, &lists, &words(&[5, 1, 0]));
    vec![
        ("rpcrdma.header.version", header(2, RDMA_MSG, &none, body)),
        ("rpcrdma.header.version", header(0, RDMA_MSG, &none, body)),
        ("rpcrdma.header.procedure", header(1, RDMA_MSGP, &none, body)),
        ("rpcrdma.header.procedure", header(1, 5, &none, body)),
        ("rpcrdma.list.truncated", list(&[])),
        ("rpcrdma.list.truncated", list(&[0, 0])),
        ("rpcrdma.list.truncated", list(&[1, 4, 7, 100, 0])),
        ("rpcrdma.list.truncated", list(&[0, 1, 2, 7, 100, 0, 0])),
        ("rpcrdma.list.truncated", list(&[0, 0, 1])),
        ("rpcrdma.list.flag", list(&[2, 0, 0])),
        ("rpcrdma.list.flag", list(&[0, 0xffff_ffff, 0])),
        ("rpcrdma.list.flag", list(&[0, 0, 3])),
        ("rpcrdma.list.segments", list(&[0, 1, limits::RPCRDMA_SEGMENTS_MAX as u32 + 1])),
        ("rpcrdma.list.segments", list(&[0, 0, 1, 0xffff_ffff])),
        (
            "rpcrdma.list.chunks",
            header(1, RDMA_MSG, &writes(vec![vec![]; many as usize + 1]), body),
        ),
        (
            "rpcrdma.list.chunks",
            header(
                1,
                RDMA_MSG,
                &reads((1..=many + 1).map(|i| read_at(i * 4, 4)).collect()),
                &[body, &[0; 400]].concat(),
            ),
        ),
        (
            "rpcrdma.segment.wraps",
            header(1, RDMA_MSG, &writes(vec![vec![seg(1, 2, u64::MAX - 1)]]), body),
        ),
        ("rpcrdma.chunk.too-long", header(1, RDMA_MSG, &reads(vec![read_at(16, mib + 1)]), body)),
        (
            "rpcrdma.chunk.too-long",
            header(1, RDMA_MSG, &reads(vec![read_at(8, mib), read_at(mib + 12, 1)]), body),
        ),
        (
            "rpcrdma.chunk.too-long",
            header(1, RDMA_NOMSG, &reads(vec![read_at(0, 0xffff_ffff)]), &[]),
        ),
        (
            "rpcrdma.chunk.too-long",
            header(1, RDMA_NOMSG, &reads(vec![read_at(0, 70_000), read_at(8, mib)]), &[]),
        ),
        ("rpcrdma.position.unaligned", header(1, RDMA_MSG, &reads(vec![read_at(13, 4)]), body)),
        (
            "rpcrdma.position.beyond",
            header(1, RDMA_MSG, &reads(vec![read_at(body.len() as u32 + 4, 4)]), body),
        ),
        (
            "rpcrdma.position.overlap",
            header(1, RDMA_MSG, &reads(vec![read_at(8, 9), read_at(16, 4)]), body),
        ),
        ("rpcrdma.segment.overlap", header(1, RDMA_MSG, &overlapping, body)),
        ("rpcrdma.segment.overlap", header(1, RDMA_MSG, &reply_overlap, body)),
        ("rpcrdma.msg.call-chunk", header(1, RDMA_MSG, &reads(vec![read_at(0, 40)]), body)),
        ("rpcrdma.nomsg.no-call-chunk", header(1, RDMA_NOMSG, &none, &[])),
        ("rpcrdma.nomsg.no-call-chunk", header(1, RDMA_NOMSG, &reads(vec![read_at(8, 40)]), &[])),
        ("rpcrdma.nomsg.message", header(1, RDMA_NOMSG, &reads(vec![read_at(0, 40)]), body)),
        ("rpcrdma.message.xid", header(1, RDMA_MSG, &none, &other_xid)),
        ("rpcrdma.message.short", header(1, RDMA_MSG, &none, &body[..7])),
        ("rpcrdma.message.short", header(1, RDMA_NOMSG, &reads(vec![read_at(0, 7)]), &[])),
        ("rpcrdma.reverse.chunks", reverse(writes(vec![vec![]]))),
        ("rpcrdma.reverse.chunks", reverse(reads(vec![read_at(8, 4)]))),
    ]
}

/// What the server answers to a broken message: the right error, with the request's xid and version; and the connection
/// goes on.
#[test]
fn broken_rules_are_answered_by_rdma_error() {
    for (rule, message) in broken_messages() {
        run(async {
            match chunks::parse(&message) {
                Err((_, v)) => assert_eq!(v.name(), rule),
                // A message and its payload that are too long together are noticed when memory is planned.
                Ok(m) => assert_eq!(rule, "rpcrdma.chunk.too-long", "{m:?}"),
            }
            let mut raw = Raw::new(Echo::default());
            let (sent, _) = Prefix::parse(&message).unwrap();
            raw.send(message);
            let got = raw.recv().await.unwrap();
            let (prefix, rest) = Prefix::parse(&got).unwrap();
            assert_eq!(
                (prefix.xid, prefix.vers, prefix.proc),
                (sent.xid, sent.vers, RDMA_ERROR),
                "{rule}"
            );
            assert!(prefix.credits > 0);
            let expected = match rule {
                "rpcrdma.header.version" => RdmaError::Versions { low: 1, high: 1 },
                _ => RdmaError::Chunk,
            };
            assert_eq!(RdmaError::parse(rest), Some(expected), "{rule}");
            let m = Message::new(5, 0, 0, 0);
            raw.send(header(1, RDMA_MSG, &Lists::default(), &m.emit()));
            assert_eq!(raw.recv().await.unwrap()[28..], m.reply(), "{rule}");
        });
    }
}

#[test]
fn what_cannot_be_answered_ends_the_connection() {
    let rule = |e| match e {
        ChannelError::Violation(rule, _) => rule,
        ChannelError::Closed(why) => panic!("{why}"),
    };
    run(async {
        let mut raw = Raw::new(Echo::default());
        raw.send(vec![0; 15]);
        raw.recv().await.unwrap_err();
        assert_eq!(rule(raw.server.await.unwrap()), "rpcrdma.header.short");

        let mut raw = Raw::new(Echo {
            hold: Some(Arc::new(tokio::sync::Semaphore::new(0))),
            ..Echo::default()
        });
        for _ in 0..=limits::RPCRDMA_CREDITS {
            raw.send(header(1, RDMA_MSG, &Lists::default(), &Message::new(5, 0, 0, 0).emit()));
        }
        // The requests in work never end, so only the connection's end is waited for.
        raw.recv().await.unwrap_err();
        drop(raw);

        // A peer that breaks rules without end is not answered without end.
        let mut raw = Raw::new(Echo::default());
        for _ in 0..limits::RPCRDMA_ERRORS_MAX {
            raw.send(header(1, RDMA_MSGP, &Lists::default(), &[]));
            raw.recv().await.unwrap();
        }
        raw.send(header(1, RDMA_MSGP, &Lists::default(), &[]));
        raw.recv().await.unwrap_err();
        assert_eq!(rule(raw.server.await.unwrap()), "rpcrdma.header.procedure");
    });
}

/// RDMA_DONE, RDMA_ERROR and replies that nobody waits for mean nothing, and never an error in answer.
#[test]
fn what_means_nothing_is_dropped() {
    run(async {
        let mut raw = Raw::new(Echo::default());
        for _ in 0..100 {
            raw.send(words(&[5, 1, 32, RDMA_DONE]));
            raw.send(words(&[5, 1, 32, RDMA_ERROR, 2]));
            raw.send(words(&[5, 1, 32, RDMA_ERROR, 1, 1, 1]));
            raw.send(header(1, RDMA_MSG, &Lists::default(), &words(&[5, 1, 0])));
            let m = Message::new(5, 0, 0, 0);
            raw.send(header(1, RDMA_MSG, &Lists::default(), &m.emit()));
            assert_eq!(raw.recv().await.unwrap()[28..], m.reply());
        }
        raw.send(words(&[5, 1, 32, RDMA_ERROR, 9]));
        let m = Message::new(5, 0, 0, 0);
        raw.send(header(1, RDMA_MSG, &Lists::default(), &m.emit()));
        assert_eq!(raw.recv().await.unwrap()[28..], m.reply());
    });
}

/// Several Read chunks of several segments, the list out of order, with explicit and with implied padding; and the same with
/// the message itself in a Position Zero chunk.
#[test]
fn several_read_chunks_stand_where_they_belong() {
    for long in [false, true] {
        run(async {
            let mut raw = Raw::new(Echo::default());
            // xid, CALL, no head, no bulk; then two opaques of 5 and 6 bytes and a last word.
            let whole = [
                &words(&[5, 0, 8, 0, 0, 0, 5])[..],
                b"abcde\0\0\0",
                &words(&[6]),
                b"fghijk\0\0",
                &words(&[9]),
            ]
            .concat();
            let reduced = [&whole[..28], &whole[36..40], &whole[48..]].concat();
            let mut region =
                |bytes: &[u8]| raw.qp.register(Region::Readable(bytes.to_vec().into())).unwrap();
            let at = |position, target| ReadSeg { position, target };
            let mut list = vec![
                at(40, region(b"fg")),
                at(28, region(b"ab")),
                at(40, region(b"hijk\0\0")),
                at(28, region(b"cde")),
            ];
            let message = if long {
                let (first, second) = reduced.split_at(10);
                list.insert(2, at(0, region(first)));
                list.push(at(0, region(second)));
                header(1, RDMA_NOMSG, &reads(list), &[])
            } else {
                header(1, RDMA_MSG, &reads(list), &reduced)
            };
            raw.send(message);
            let got = raw.recv().await.unwrap();
            let mut expected = whole.clone();
            expected[7] = 1;
            assert_eq!(got[28..], expected);
        });
    }
}

/// A Write list and a Reply chunk in one call: the payload goes to the one, the rest to the other.
#[test]
fn write_list_and_reply_chunk_together() {
    run(async {
        let mut raw = Raw::new(Echo::default());
        let m = Message::new(5, 4500, 3000, 0);
        let (body, at) = m.split();
        let mut writable = |n| raw.qp.register(Region::Writable(BufMut::heap(n))).unwrap();
        let chunk = vec![writable(1000), writable(1500), writable(1000)];
        let unused = vec![writable(64)];
        let long = vec![writable(2000), writable(4096)];
        let call = raw.qp.register(Region::Readable(body.clone().into())).unwrap();
        let data = raw.qp.register(Region::Readable(m.bulk.clone().into())).unwrap();
        let lists = Lists {
            reads: vec![
                ReadSeg { position: at as u32, target: data },
                ReadSeg { position: 0, target: call },
            ],
            writes: vec![chunk.clone(), unused.clone()],
            reply: Some(long.clone()),
        };
        raw.send(header(1, RDMA_NOMSG, &lists, &[]));
        let got = raw.recv().await.unwrap();
        let (prefix, answer::FromServer::Reply(None, returned)) = answer::parse(&got).unwrap()
        else {
            panic!("a long reply")
        };
        assert_eq!(prefix.proc, RDMA_NOMSG);
        answer::check(&Lists { reads: vec![], ..lists }, &returned).unwrap();
        let lens = |c: &[RemoteSeg]| c.iter().map(|s| s.len as usize).collect::<Vec<_>>();
        assert_eq!(lens(&returned.writes[0]), [1000, 1500, 500]);
        assert_eq!(lens(&returned.writes[1]), [0]);
        let reply = returned.reply.unwrap();
        assert_eq!(lens(&reply), [2000, body.len() - 2000]);
        let mut memory = |c: &[RemoteSeg]| {
            let part = |s: &RemoteSeg| match raw.qp.release(s.handle) {
                Some(Region::Writable(mut b)) => {
                    b.set_filled(s.len as usize);
                    b.filled().to_vec()
                }
                _ => panic!("our own memory"),
            };
            c.iter().flat_map(part).collect::<Vec<u8>>()
        };
        assert!(memory(&returned.writes[0]) == m.bulk);
        let mut expected = body;
        expected[7] = 1;
        assert!(memory(&reply) == expected);
    });
}

/// Headers that are almost right: never a panic, and what is taken obeys the limits.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let valid: Vec<Vec<u8>> = {
        let body = Message::new(5, 40, 0, 0).emit();
        let full = Lists {
            reads: vec![read_at(16, 100), read_at(16, 50), read_at(168, 3)],
            writes: vec![vec![seg(1, 10, 0), seg(2, 20, 5)], vec![seg(3, 9, 9)]],
            reply: Some(vec![seg(4, 4096, 0)]),
        };
        let mut long = full.clone();
        long.reads.insert(0, read_at(0, 200));
        vec![
            header(1, RDMA_MSG, &Lists::default(), &body),
            header(1, RDMA_MSG, &full, &body),
            header(1, RDMA_NOMSG, &long, &[]),
            words(&[5, 1, 32, RDMA_ERROR, 1, 1, 1]),
        ]
    };
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0usize..4);
    (prop::sample::select(valid), proptest::collection::vec(change, 0..6)).prop_map(
        |(mut m, changes)| {
            for (at, byte, how) in changes {
                if m.is_empty() {
                    break;
                }
                let i = at.index(m.len());
                match how {
                    0 => m[i] = byte,
                    1 => m[i] ^= 1 << (byte % 8),
                    2 => m.truncate(i),
                    _ => m[i] = [0, 1, 0xff, 0x7f][usize::from(byte) % 4],
                }
            }
            m
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn mutated_headers_are_checked(message in mutated()) {
        if let Ok((_, chunks::Message::Call { inline, call, reads, offer })) = chunks::parse(&message) {
            let body = match (inline, &call) {
                (Some(at), None) => message.len() - at,
                (None, Some(call)) => call.len,
                _ => panic!("a call has one body"),
            };
            let mut before = 0;
            for r in &reads {
                assert!(r.at >= before && r.at <= body);
                assert_eq!(r.len, r.segments.iter().map(|s| s.len as usize).sum::<usize>());
                before = r.at;
            }
            let total: usize = reads.iter().map(|r| r.len).sum();
            assert!(total <= limits::RPC_PAYLOAD_MAX);
            assert!(reads.len() <= limits::RPCRDMA_CHUNKS_MAX);
            assert!(offer.writes.len() <= limits::RPCRDMA_CHUNKS_MAX);
        }
        let _ = answer::parse(&message);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The same through a whole server: it answers, or the connection ends; the next connection is as good as ever.
    #[test]
    fn mutated_headers_never_hurt_the_server(messages in proptest::collection::vec(mutated(), 1..40)) {
        run(async {
            let mut raw = Raw::new(Echo::default());
            for message in messages {
                let send = Work::Send { id: WorkId(1), from: vec![message.into()], invalidate: None };
                if raw.qp.post(vec![send]).is_err() {
                    break;
                }
                tokio::select! {
                    biased;
                    got = raw.recv() => if got.is_err() { break },
                    () = async { for _ in 0..5 { tokio::task::yield_now().await } } => {}
                }
            }
            let Raw { qp, server } = raw;
            drop(qp);
            server.await.unwrap();
        });
    }
}
