//! A raw peer that violates every rule of RPC-over-RDMA, and uses every freedom of it.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod common;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use common::{Echo, Message, exhausted, pool, run, run_by_virtual_time};
use iobuf::{BufMut, Pool, PoolLimits};
use proptest::prelude::*;
use rdma_transport::channel::{ChannelError, Info, RemoteSeg, Transport};
use rdma_transport::receives::{Receives, parts};
use rdma_transport::rpcrdma::wire::{
    Lists, Prefix, RDMA_DONE, RDMA_ERROR, RDMA_MSG, RDMA_MSGP, RDMA_NOMSG, RdmaError, ReadSeg,
};
use rdma_transport::rpcrdma::{RdmaCaller, RdmaChannel, answer, chunks};
use rdma_transport::serve::serve;
use rdma_transport::verbs::{
    Completion, Counters, Down, Limits, QueuePair, Refused, Region, Rejected, Work, WorkId,
    WorkKind,
};
use rdma_transport::{limits, loopback};
use tokio::task::JoinHandle;

fn info(pool: &Pool) -> Arc<Info> {
    let nowhere = "127.0.0.1:0".parse().unwrap();
    Arc::new(Info::new(nowhere, nowhere, Transport::Rdma("loopback"), pool.clone()))
}

/// A client that sends arbitrary messages.
struct Raw {
    qp: Box<dyn QueuePair>,
    /// Received messages not examined yet.
    inbox: VecDeque<Vec<u8>>,
    server: JoinHandle<ChannelError>,
}

impl Raw {
    fn new(echo: Echo) -> Self {
        Self::of(echo, info(&pool(8)), |qp| qp)
    }

    /// Connects to a server with this information, over a modified queue pair.
    fn of(
        echo: Echo,
        info: Arc<Info>,
        change: impl FnOnce(Box<dyn QueuePair>) -> Box<dyn QueuePair>,
    ) -> Self {
        let (mine, theirs) = (RdmaCaller::connect_params(), RdmaChannel::accept_params());
        let [mut qp, server] = loopback::pair(&mine, &theirs);
        let recvs = Pool::new(PoolLimits { buffers_max: [256, 1, 1] });
        let channel = RdmaChannel::new(change(server), info, recvs, &mine.private_data).unwrap();
        let server = tokio::spawn(serve(Box::new(channel), Arc::new(echo)));
        let recv = |_| Work::Recv { id: WorkId(0), into: BufMut::heap(4096) };
        qp.post((0..60).map(recv).collect()).unwrap();
        Self { qp, inbox: VecDeque::new(), server }
    }

    fn send(&mut self, message: Vec<u8>) {
        let send = Work::Send { id: WorkId(1), from: vec![message.into()], invalidate: None };
        self.qp.post(vec![send]).unwrap();
    }

    /// The next message of the server, or the end.
    async fn recv(&mut self) -> Result<Vec<u8>, Down> {
        let mut done: Vec<Completion> = Vec::new();
        poll_fn(|cx| {
            loop {
                for c in done.drain(..) {
                    if let (WorkKind::Recv, Ok(_), Some(buf)) = (c.kind, c.result, c.buf) {
                        let into = BufMut::heap(4096);
                        // Refused if the connection has ended meanwhile, which the next poll reports.
                        let _ = self.qp.post(vec![Work::Recv { id: WorkId(0), into }]);
                        self.inbox.push_back(buf.filled().to_vec());
                    }
                }
                if let Some(message) = self.inbox.pop_front() {
                    return Poll::Ready(Ok(message));
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

/// A queue pair whose peer does not respond to RDMA Reads.
struct Unanswered {
    qp: Box<dyn QueuePair>,
    reads: Vec<Work>,
}

impl QueuePair for Unanswered {
    fn limits(&self) -> Limits {
        self.qp.limits()
    }

    fn post(&mut self, chain: Vec<Work>) -> Result<(), Rejected> {
        let is_read = |work: &Work| matches!(work, Work::Read { .. });
        let (reads, others) = chain.into_iter().partition(is_read);
        self.reads.extend::<Vec<Work>>(reads);
        self.qp.post(others)
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        self.qp.poll(cx, out)
    }

    fn register(&mut self, region: Region) -> Result<RemoteSeg, (Refused, Region)> {
        self.qp.register(region)
    }

    fn release(&mut self, handle: u32) -> Option<Region> {
        self.qp.release(handle)
    }

    fn disconnect(&mut self) {
        self.qp.disconnect();
    }

    fn counters(&self) -> Counters {
        self.qp.counters()
    }
}

/// A call with a Read chunk of 1 MiB.
fn large_call() -> Vec<u8> {
    let body = words(&[5, 0, 0, 1 << 20]);
    header(1, RDMA_MSG, &reads(vec![read_at(16, 1 << 20)]), &body)
}

/// A peer that sends messages is disconnected nevertheless if its RDMA Reads get no response.
#[test]
fn unanswered_reads_end_despite_messages() {
    run_by_virtual_time(async {
        let payload = pool(4);
        let unanswered = |qp| Box::new(Unanswered { qp, reads: Vec::new() }) as Box<dyn QueuePair>;
        let mut raw = Raw::of(Echo::default(), info(&payload), unanswered);
        raw.send(large_call());
        assert!(tokio::time::timeout(Duration::from_secs(1), raw.recv()).await.is_err());
        assert_eq!(payload.stats()[2].in_use, 1, "it is being fetched");
        let _others = exhausted(&payload);
        let began = tokio::time::Instant::now();
        while !raw.server.is_finished() {
            raw.send(words(&[5, 1, 32, RDMA_DONE]));
            let _ = tokio::time::timeout(Duration::from_secs(2), raw.recv()).await;
        }
        let ChannelError::Closed(why) = raw.server.await.unwrap() else { panic!("a violation") };
        assert!(why.contains("others wait"), "{why}");
        assert!(began.elapsed() <= Duration::from_secs(9), "{:?}", began.elapsed());
    });
}

/// Calls without memory for their data are answered without it, and the connection continues.
#[test]
fn rdma_data_without_memory_is_refused() {
    run_by_virtual_time(async {
        let payload = pool(4);
        let (held, waiting) = exhausted(&payload);
        let mut raw = Raw::of(Echo::default(), info(&payload), |qp| qp);
        let m = Message::new(5, 0, 1 << 20, 8);
        let (body, at) = m.split();
        let data = raw.qp.register(Region::Readable(m.bulk.clone().into())).unwrap();
        let answer = raw.qp.register(Region::Writable(BufMut::heap(1 << 20))).unwrap();
        let list = vec![ReadSeg { position: at as u32, target: data }];
        let lists = Lists { writes: vec![vec![answer]], ..reads(list) };
        let call = header(1, RDMA_MSG, &lists, &body);
        let began = tokio::time::Instant::now();
        (0..4).for_each(|_| raw.send(call.clone()));
        for _ in 0..4 {
            let got = raw.recv().await.unwrap();
            assert!(got.ends_with(&m.reply_without_data()), "{got:?}");
        }
        let took = began.elapsed();
        let most = limits::MEMORY_WAIT_MAX + Duration::from_secs(1);
        assert!((limits::MEMORY_WAIT_MAX..most).contains(&took), "{took:?}");
        drop(held);
        waiting.await.unwrap();
        raw.send(call);
        raw.recv().await.unwrap();
        let Some(Region::Writable(mut written)) = raw.qp.release(answer.handle) else { panic!() };
        assert!(*written.whole_mut() == m.bulk[..]);
        assert!(!raw.server.is_finished());
    });
}

/// A call whose message is itself fetched cannot be answered without it, and waits for memory. If none comes in time the connection
/// ends, and the client is not at fault.
#[test]
fn calls_waiting_for_memory_are_kept_for_a_while() {
    run_by_virtual_time(async {
        let payload = pool(4);
        let _others = exhausted(&payload);
        let mut raw = Raw::of(Echo::default(), info(&payload), |qp| qp);
        raw.send(header(1, RDMA_NOMSG, &reads(vec![read_at(0, 1 << 20)]), &[]));
        let began = tokio::time::Instant::now();
        let wait = limits::MESSAGE_WAIT_MAX - Duration::from_secs(1);
        assert!(
            tokio::time::timeout(wait, raw.recv()).await.is_err(),
            "it neither ends nor answers"
        );
        assert!(!raw.server.is_finished());
        assert_eq!(payload.stats()[2].waiting, 2, "the other one and this");
        let ChannelError::Closed(why) = raw.server.await.unwrap() else { panic!("a violation") };
        assert!(why.contains("the gateway had no memory"), "{why}");
        let took = began.elapsed();
        assert!(took < limits::MESSAGE_WAIT_MAX + Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn stranger_is_granted_few_credits() {
    run(async {
        let mut info = Info::new(
            "127.0.0.1:1".parse().unwrap(),
            "127.0.0.1:2".parse().unwrap(),
            Transport::Rdma("loopback"),
            pool(8),
        );
        info.receives = Some(Box::new(Receives::counted(parts(100, 100).of(info.peer.ip()))));
        let info = Arc::new(info);
        let mut raw = Raw::of(Echo::default(), info.clone(), |qp| qp);
        let few = u32::from(limits::RPCRDMA_CREDITS_FEW);
        for wanted in [few, few, u32::from(limits::RPCRDMA_CREDITS)] {
            if wanted > few {
                info.introduction.note();
            }
            raw.send(header(1, RDMA_MSG, &Lists::default(), &Message::new(5, 0, 0, 0).emit()));
            let reply = raw.recv().await.unwrap();
            assert_eq!(reply[8..12], wanted.to_be_bytes());
        }
        // Each credit has its Receive; this client has 60 for the replies.
        for _ in 0..60 {
            raw.send(header(1, RDMA_MSG, &Lists::default(), &Message::new(5, 0, 0, 0).emit()));
        }
        while info.traffic.requests.load(Ordering::Relaxed) < 63 {
            assert!(!raw.server.is_finished());
            let _ = tokio::time::timeout(Duration::from_millis(10), raw.recv()).await;
        }
    });
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

/// Each rule that a client's message can violate, with such a message.
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

/// The log line of an invalid header names the field, the rule and the position.
#[test]
fn broken_fields_are_named() {
    let list = |body: &[u32]| [&words(&[5, 1, 32, RDMA_MSG])[..], &words(body)].concat();
    let wraps = writes(vec![vec![seg(1, 2, 0), seg(1, 2, u64::MAX - 1)]]);
    let many = writes(vec![vec![]; limits::RPCRDMA_CHUNKS_MAX + 1]);
    let entries = reads(vec![read_at(4, 1); limits::RPCRDMA_SEGMENTS_MAX + 1]);
    let cases = [
        (words(&[5, 1, 32]), "rdma_proc truncated at 12"),
        (list(&[]), "rdma_reads truncated at 16"),
        (list(&[1, 4, 7, 100, 0]), "offset truncated at 32"),
        (list(&[0, 2, 0]), "rdma_writes invalid at 20"),
        (list(&[0, 0, 3]), "rdma_reply invalid at 24"),
        (list(&[0, 1, 257]), "segments over its limit of 256 at 24"),
        (header(1, RDMA_MSG, &wraps, &[]), "offset out of bounds at 52"),
        (header(1, RDMA_MSG, &many, &[]), "rdma_writes over its limit of 16 at 148"),
        (header(1, RDMA_MSG, &entries, &[]), "rdma_reads over its limit of 256 at 6160"),
        (words(&[5, 1, 32, RDMA_ERROR, 9]), "rdma_err invalid at 16"),
        (words(&[5, 1, 32, RDMA_ERROR, 1, 1]), "rdma_vers_high truncated at 24"),
    ];
    for (message, told) in cases {
        let (_, violation) = chunks::parse(&message).unwrap_err();
        assert_eq!(violation.to_string(), told, "{}", violation.name());
    }
}

/// The server's answer to an invalid message: the right error, with the request's xid and version; and the connection continues.
#[test]
fn violations_are_answered_by_rdma_error() {
    for (rule, message) in broken_messages() {
        run(async {
            match chunks::parse(&message) {
                Err((_, v)) => assert_eq!(v.name(), rule),
                // A message and payload that are too long together are detected when memory is planned.
                Ok(m) => assert_eq!(rule, "rpcrdma.chunk.too-long", "{m:?}"),
            }
            let mut raw = Raw::new(Echo::default());
            let (_, sent) = Prefix::parse(&message).unwrap();
            raw.send(message);
            let got = raw.recv().await.unwrap();
            let (rest, prefix) = Prefix::parse(&got).unwrap();
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
            assert_eq!(RdmaError::parse(rest), Ok((&[][..], expected)), "{rule}");
            let m = Message::new(5, 0, 0, 0);
            raw.send(header(1, RDMA_MSG, &Lists::default(), &m.emit()));
            assert_eq!(raw.recv().await.unwrap()[28..], m.reply(), "{rule}");
        });
    }
}

#[test]
fn unanswerable_messages_end_connection() {
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
        // The requests in progress never end, so only the end of the connection is awaited.
        raw.recv().await.unwrap_err();
        drop(raw);

        // A peer with endless violations is answered a limited number of times.
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

/// RDMA_DONE, RDMA_ERROR and replies without a waiting caller are ignored, and never answered by an error.
#[test]
fn meaningless_messages_are_dropped() {
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

/// Several Read chunks of several segments, the list out of order, with explicit and implied padding; and the same with the message
/// itself in a Position Zero chunk.
#[test]
fn read_chunks_are_placed_by_position() {
    for long in [false, true] {
        run(async {
            let mut raw = Raw::new(Echo::default());
            // xid, CALL, no head, no bulk data; then two opaques of 5 and 6 bytes and a last word.
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

/// A Write list and a Reply chunk in one call: the payload goes to the first, the rest to the second.
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

/// Slightly wrong headers never cause a panic, and accepted ones obey the limits.
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
    // The default generator takes half of the time without optimization.
    #![proptest_config(ProptestConfig {
        cases: 20_000,
        rng_algorithm: proptest::test_runner::RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    })]

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

    /// Random messages to a whole server: it answers, or the connection ends; the next connection works.
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
            let Raw { qp, server, .. } = raw;
            drop(qp);
            server.await.unwrap();
        });
    }
}
