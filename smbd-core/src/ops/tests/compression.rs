//! Compressed requests and responses: negotiation, expansion, and errors that close the connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use iobuf::{Buf, Pool, PoolLimits};
use rdma_transport::channel::{Command as Asked, Handle, Info, ReadChunkData, Reply, Transport};
use rdma_transport::limits::{MESSAGE_WAIT, MESSAGE_WAIT_MAX};
use smb_compress::Algorithm;
use smb_compress::message::{Agreed, BESIDE_PAYLOAD, Expansion, shrink};

use super::data::{reading, writing};
use crate::compound;
use crate::conn::Conn;
use crate::harness::{Answered, Client, Harness};
use crate::limits::COMPRESSED_ANSWER_MIN;
use crate::open::FileId;
use crate::status::Status;
use crate::wire::compression::{self, Compression, Payload};
use crate::wire::negotiate::{self, Dialect, SIGNING_ENABLED};
use crate::wire::negotiate_context::{NegotiateContext, SHA_512};
use crate::wire::read::{self, REQUEST_COMPRESSED};
use crate::wire::{Command, HEADER_LEN, Header, query_directory};

const IO: usize = 8 << 20;

fn agreed(algorithms: &[u16], chained: bool) -> Agreed {
    Agreed::of_offer(algorithms, chained)
}

fn harness(agreed: &Agreed) -> Harness {
    Harness { compression: agreed.clone(), ..Harness::new() }
}

fn text(len: usize) -> Vec<u8> {
    (0..).flat_map(|n: u32| format!("line {n} of a log; ").into_bytes()).take(len).collect()
}

fn noise(len: usize) -> Vec<u8> {
    let mut seed = 1_u64;
    let next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Returns the bytes of a response on the wire.
fn bytes(reply: &Reply) -> Vec<u8> {
    reply.pieces().flatten().copied().collect()
}

/// Returns the expanded response, and whether it was compressed.
fn expanded(reply: &Reply, agreed: &Agreed) -> (Vec<u8>, bool) {
    let message = bytes(reply);
    if !message.starts_with(&compression::PROTOCOL_ID) {
        return (message, false);
    }
    let expansion = Expansion::begin(&message, agreed, IO).unwrap();
    let mut plain = vec![0; expansion.len()];
    expansion.expand(&mut plain).unwrap();
    assert!(message.len() < plain.len(), "an answer became longer");
    (plain, true)
}

/// Sends a message the way a byte-stream transport delivers it.
async fn send(c: &Client, message: &[u8]) -> Option<Reply> {
    let is_compressed = message.starts_with(&compression::PROTOCOL_ID);
    let at = if is_compressed && message.len() > 5000 { compression::LEN } else { message.len() };
    let (head, data) = message.split_at(at);
    let data = vec![Buf::from(data.to_vec())];
    let read_chunks =
        if at < message.len() { vec![ReadChunkData { at, data }] } else { Vec::new() };
    compound::call(c.core.clone(), c.conn.clone(), Buf::from(head.to_vec()), read_chunks).await
}

/// Sends a message that must close the connection.
async fn ends(c: &Client, message: &[u8]) -> bool {
    let is_silent = send(c, message).await.is_none();
    is_silent && matches!(c.asked.lock().unwrap().try_recv(), Ok(Asked::Shutdown))
}

/// Writes with a compressed request, or with a plain one if compression does not make it shorter.
async fn write_compressed(c: &Client, agreed: &Agreed, file: FileId, data: &[u8]) -> Status {
    let mut head = c.header(Command::Write, 128).emit().to_vec();
    head.extend(writing(file, 0, data.len()).emit());
    let plain = [&head[..], data].concat();
    let message = shrink(&head, &[data], agreed).unwrap_or(plain);
    let reply = send(c, &message).await.expect("an answer");
    Status::of(&Header::parse(&reply.head).unwrap())
}

async fn read_compressed(c: &Client, file: FileId, len: usize) -> Reply {
    let request = reading(file, 0, u32::try_from(len).unwrap());
    c.reply(Command::Read, &read::Request { flags: REQUEST_COMPRESSED, ..request }.emit(), &[])
        .await
}

/// Combines algorithms, chaining, sizes around each limit and kinds of data, and reads back what was written.
#[tokio::test]
async fn data_is_the_same_however_it_travels() {
    let sizes = [1, 4096, 4097, 4113, 65_455, 65_456, 65_457, 65_536, 70_000, 300_000];
    let numbers = Algorithm::ALL.map(|a| a as u16);
    let lists = numbers.iter().map(|n| vec![*n]).chain([vec![4, 2], vec![4], vec![4, 2, 3, 1, 5]]);
    for list in lists {
        for chained in [false, true] {
            let agreed = agreed(&list, chained);
            let c = harness(&agreed).client();
            let file = c.open("file").await;
            for size in sizes {
                let around = [vec![0; size / 2], text(size - size / 2)].concat();
                for (data, shrinks) in [(text(size), true), (noise(size), false), (around, true)] {
                    let case = format!("{agreed:?} {size} {shrinks}");
                    assert_eq!(write_compressed(&c, &agreed, file, &data).await, Status::SUCCESS);
                    let (answer, was_compressed) =
                        expanded(&read_compressed(&c, file, size).await, &agreed);
                    assert!(answer[HEADER_LEN + read::Response::LEN..] == data, "{case}");
                    let has_codec = agreed.codec().is_some();
                    let large = size >= COMPRESSED_ANSWER_MIN;
                    if has_codec {
                        assert_eq!(was_compressed, shrinks && large, "{case}");
                    }
                    let (plain, is_plain) = (reading(file, 0, 1 << 20), false);
                    let reply = c.reply(Command::Read, &plain.emit(), &[]).await;
                    assert_eq!(expanded(&reply, &agreed).1, is_plain, "not asked for");
                }
            }
        }
    }
}

#[tokio::test]
async fn listings_are_compressed_behind_a_read_that_was() {
    let agreed = agreed(&[4, 2], true);
    let c = harness(&agreed).client();
    for n in 0..100 {
        c.open(&format!("file number {n}")).await;
    }
    let folder = c.create("", |r| r.options = 1).await.unwrap().file;
    let request = query_directory::Request {
        class: 37,
        flags: query_directory::flag::RESTART_SCANS,
        file_index: 0,
        file: folder,
        output_len: 65_536,
        pattern: "*".into(),
    };
    let plain = c.reply(Command::QueryDirectory, &request.emit(), &[]).await;
    assert!(!expanded(&plain, &agreed).1, "no client is known to expand answers");
    read_compressed(&c, c.open("file number 1").await, 10).await;
    let second = c.reply(Command::QueryDirectory, &request.emit(), &[]).await;
    let (answer, was_compressed) = expanded(&second, &agreed);
    assert!(was_compressed && bytes(&second).len() * 3 < answer.len());
    assert!(answer[HEADER_LEN..] == bytes(&plain)[HEADER_LEN..]);
}

/// MS-SMB2 section 3.3.5.2.1.2 requires the server to disconnect.
#[tokio::test]
async fn broken_messages_end_the_connection() {
    let all = agreed(&[4, 2, 3, 1, 5], true);
    let single = agreed(&[2], false);
    let unchained = |original_len, algorithm, behind: &[u8]| {
        let mut message = Vec::new();
        Compression::Unchained { original_len, algorithm, offset: 0 }.put(&mut message);
        [&message, behind].concat()
    };
    let chained = |original_len, payload: Payload<'_>| {
        let mut message = Vec::new();
        Compression::Chained { original_len }.put(&mut message);
        payload.put(true, &mut message);
        message
    };
    let run = |repetitions| Payload::Pattern { pattern: 0xfe, repetitions };
    let over = u32::try_from(IO + BESIDE_PAYLOAD + 1).unwrap();
    let inner = unchained(70, 2, &[0xff; 70]);
    let cases: [(&Agreed, Vec<u8>); 11] = [
        (&Agreed::default(), chained(100, run(100))),
        (&Agreed::default(), unchained(100, 2, &[0xff; 40])),
        (&single, chained(100, run(100))),
        (&single, unchained(100, 3, &[0xff; 40])),
        (&single, unchained(100, 2, &[0xff; 40])),
        (&single, unchained(over, 2, &[0xff; 40])),
        (&all, chained(over, run(over))),
        (&all, chained(100, run(u32::MAX))),
        (&all, chained(100, run(100))),
        (&all, chained(u32::try_from(inner.len()).unwrap(), Payload::Plain(&inner))),
        (&all, unchained(100, 2, &[])[..12].to_vec()),
    ];
    for (n, (agreed, message)) in cases.into_iter().enumerate() {
        let c = harness(agreed).client();
        assert!(ends(&c, &message).await, "case {n}");
    }
}

/// Sends a stream that is valid except for its end; its command must not run.
#[tokio::test]
async fn cut_streams_write_nothing() {
    let agreed = agreed(&[2], false);
    let c = harness(&agreed).client();
    let file = c.open("file").await;
    let data = text(100_000);
    let mut head = c.header(Command::Write, 128).emit().to_vec();
    head.extend(writing(file, 0, data.len()).emit());
    let message = shrink(&head, &[&data], &agreed).unwrap();
    assert!(ends(&c, &message[..message.len() - 9]).await);
    let answered = c.ask(Command::Read, &reading(file, 0, 100).emit()).await;
    assert_eq!(answered.status(), Status::END_OF_FILE);
}

/// Returns the compression context in the response to a NEGOTIATE with these settings and contexts.
async fn negotiated(
    compression: bool,
    transport: Transport,
    contexts: Vec<NegotiateContext<'_>>,
) -> Result<Option<(u32, Vec<u16>)>, Status> {
    let harness = Harness::new();
    let settings = (*harness.core.settings()).clone();
    harness.core.set_settings(crate::settings::Settings { compression, ..settings });
    let anywhere = std::net::SocketAddr::from(([127, 0, 0, 1], 445));
    let info = Info::new(anywhere, anywhere, transport, Pool::new(PoolLimits::of_bytes(1 << 20)));
    let conn = Arc::new(Conn::new(Arc::new(info), Handle::detached()));
    let preauth = NegotiateContext::Preauth { algorithms: vec![SHA_512], salt: &[1; 32] };
    let request = negotiate::Request {
        security_mode: SIGNING_ENABLED,
        client_guid: [7; 16],
        dialects: vec![Dialect::V311.number()],
        contexts: std::iter::once(preauth).chain(contexts).collect(),
        ..negotiate::Request::default()
    };
    let header = harness.client().header(Command::Negotiate, 1);
    let header = Header { session_id: 0, message_id: 0, tree_or_async: 0, ..header };
    let message = Buf::from([&header.emit()[..], &request.emit()].concat());
    let reply = compound::call(harness.core.clone(), conn, message, Vec::new()).await;
    let answered = Answered::of(reply.expect("an answer")).ok()?;
    let response = negotiate::Response::parse(&answered.message).unwrap();
    Ok(response.contexts.iter().find_map(|context| match context {
        NegotiateContext::Compression { flags, algorithms } => Some((*flags, algorithms.clone())),
        _ => None,
    }))
}

#[tokio::test]
async fn negotiation_keeps_the_order_of_the_client() {
    let offer = |flags, algorithms: &[u16]| {
        vec![NegotiateContext::Compression { flags, algorithms: algorithms.to_vec() }]
    };
    let by_tcp = |contexts| negotiated(true, Transport::Tcp, contexts);
    let agreed = |flags, algorithms: &[u16]| Ok(Some((flags, algorithms.to_vec())));
    assert_eq!(by_tcp(offer(1, &[4, 2, 3, 1, 5])).await, agreed(1, &[4, 2, 3, 1, 5]));
    assert_eq!(by_tcp(offer(0, &[5, 9, 3, 5])).await, agreed(0, &[5, 3]));
    assert_eq!(by_tcp(offer(1, &[6, 7])).await, agreed(1, &[0]), "none in common");
    assert_eq!(by_tcp(vec![]).await, Ok(None));
    let linux = |flags| [offer(flags, &[2, 3, 1]), vec![NegotiateContext::Posix]].concat();
    assert_eq!(by_tcp(linux(0)).await, agreed(0, &[2]), "Linux 6.12 takes one");
    assert_eq!(by_tcp(linux(1)).await, agreed(1, &[2, 3, 1]));
    assert_eq!(by_tcp(offer(1, &[])).await, Err(Status::INVALID_PARAMETER), "an empty list");
    let twice = [offer(1, &[2]), offer(1, &[2])].concat();
    assert_eq!(by_tcp(twice).await, Err(Status::INVALID_PARAMETER));
    assert_eq!(negotiated(false, Transport::Tcp, offer(1, &[2])).await, Ok(None), "switched off");
    let rdma = Transport::Rdma("test");
    assert_eq!(negotiated(true, rdma, offer(1, &[2])).await, Ok(None), "never by RDMA");
}

#[tokio::test]
async fn clients_that_expand_are_remembered_by_their_reads() {
    let agreed = agreed(&[2], false);
    let c = harness(&agreed).client();
    let file = c.open("file").await;
    read_compressed(&c, file, 1).await;
    assert!(c.conn.wants_compressed.load(Ordering::Relaxed));
    let without = Harness::new().client();
    let file = without.open("file").await;
    read_compressed(&without, file, 1).await;
    assert!(!without.conn.wants_compressed.load(Ordering::Relaxed), "nothing was agreed on");
}

/// Sends a large compressed WRITE that the gateway cannot expand; returns the file and the time until the connection ended.
async fn large_message_ends(c: &Client, agreed: &Agreed, file: FileId) -> std::time::Duration {
    let data = text(100_000);
    let mut head = c.header(Command::Write, 128).emit().to_vec();
    head.extend(writing(file, 0, data.len()).emit());
    let message = shrink(&head, &[&data[..]], agreed).unwrap();
    let began = tokio::time::Instant::now();
    assert!(ends(c, &message).await);
    began.elapsed()
}

/// A message that gets no thread ends its connection as well, and the gateway does not say that memory was missing.
#[tokio::test(start_paused = true)]
async fn message_without_thread_is_told_as_such() {
    let met = |limit| {
        let met = rdma_transport::count::limits_met();
        met.iter().find(|(name, _)| *name == limit).map_or(0, |(_, n)| *n)
    };
    let agreed = agreed(&[4, 2], true);
    let c = harness(&agreed).client();
    let file = c.open("file").await;
    let [total, _] = crate::limits::compressing();
    let (here, threads) = (c.conn.info.peer.ip(), &c.core.compressing);
    // This address takes its part.
    let its = threads.take(here, total.most, MESSAGE_WAIT_MAX).await;
    assert!(its.is_some());
    let met_by_any = || met(total.name) + met("compressing-threads-of-address");
    let before = met_by_any();
    assert!(large_message_ends(&c, &agreed, file).await >= MESSAGE_WAIT_MAX);
    assert!(met_by_any() > before);
    let rows = rdma_transport::refused::list();
    assert!(rows.iter().any(|row| row.refused.rule == total.name && row.refused.peer == here));
    assert_eq!(c.conn.reported.load(Ordering::Relaxed), 0, "no rule was broken");
}

/// A message that gets no memory ends its connection in time, and its client has broken no rule.
#[tokio::test(start_paused = true)]
async fn message_without_memory_is_not_fault_of_client() {
    let met = || {
        let met = rdma_transport::count::limits_met();
        met.iter().find(|(name, _)| *name == MESSAGE_WAIT).map_or(0, |(_, n)| *n)
    };
    let agreed = agreed(&[4, 2], true);
    let c = harness(&agreed).client();
    let file = c.open("file").await;
    let pool = &c.conn.info.pool;
    pool.set_heap(1 << 20, 1 << 20);
    let _all = pool.pay_now(1 << 20);
    let before = met();
    assert!(large_message_ends(&c, &agreed, file).await >= MESSAGE_WAIT_MAX && met() > before);
    assert_eq!(c.conn.reported.load(Ordering::Relaxed), 0, "no rule was broken");
}
