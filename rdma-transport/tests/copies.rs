//! The copy budget: payload is never copied on the RDMA path, and over TCP only if its position cannot be known. These tests run in
//! a separate process, one after the other, since the counter is global.
#![allow(clippy::unwrap_used)]

mod common;

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use common::{Echo, Message, bulk_of, bytes, pool, read_record, run, served};
use iobuf::{Buf, BufMut, Pool, PoolLimits};
use rdma_transport::caller::{BulkResult, Call, Caller, Event};
use rdma_transport::channel::{Info, Payload, Place, Transport};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use rdma_transport::loopback;
use rdma_transport::rpcrdma::{RdmaCaller, RdmaChannel};
use rdma_transport::serve::serve;
use rdma_transport::verbs::{Provider, QueuePair, Region, Work, WorkId};
use tokio::io::AsyncWriteExt;

static ALONE: Mutex<()> = Mutex::new(());

/// Runs `transfer` exclusively and returns the bytes copied meanwhile.
fn copied_by(transfer: impl Future<Output = ()>) -> u64 {
    let _alone = mutex::locked(&ALONE);
    let before = iobuf::copied_bytes();
    run(transfer);
    iobuf::copied_bytes() - before
}

#[test]
fn rdma_transfers_are_not_copied() {
    let copied = copied_by(async {
        let nowhere = "127.0.0.1:0".parse().unwrap();
        let info = || Arc::new(Info::new(nowhere, nowhere, Transport::Rdma("loopback"), pool(4)));
        let (mine, theirs) = (RdmaCaller::connect_params(), RdmaChannel::accept_params());
        let [client, server] = loopback::pair(&mine, &theirs);
        let recvs = Pool::new(PoolLimits { buffers_max: [256, 1, 1] });
        let channel = RdmaChannel::new(server, info(), recvs.clone(), &mine.private_data).unwrap();
        tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
        let mut caller = RdmaCaller::new(client, info(), recvs, &theirs.private_data).unwrap();
        for bulk in [1 << 20, 4000, 100] {
            let m = Message::new(1, 100, bulk, 8);
            let (head, at) = m.split();
            let pad = u8::try_from(bulk.wrapping_neg() % 4).unwrap();
            let data = vec![Buf::from(m.bulk.clone())];
            let payloads = vec![Payload { at, data, pages: None, pad, place: Place::Eligible }];
            let (reply_max, bulk) = (head.len(), BulkResult { max: bulk, locate: bulk_of });
            caller.call(Call { head, payloads, reply_max, bulk: Some(bulk) });
            let Event::Answer(..) = poll_fn(|cx| caller.poll_event(cx)).await.unwrap() else {
                panic!("an answer")
            };
        }
    });
    assert_eq!(copied, 0);
}

/// Data that arrived with the record's head is copied once, and no further payload.
#[test]
fn tcp_bulk_data_is_not_copied() {
    let copied = copied_by(async {
        let read_chunks = Arc::new(AtomicUsize::new(0));
        let echo = Echo { read_chunks: read_chunks.clone(), ..Echo::default() };
        let (mut client, _server, _, _) = served(echo).await;
        let m = Message::new(1, 200, 1 << 20, 40);
        let record = m.emit();
        client.write_u32(1 << 31 | u32::try_from(record.len()).unwrap()).await.unwrap();
        client.write_all(&record).await.unwrap();
        assert!(read_record(&mut client).await == m.reply());
        assert_eq!(read_chunks.load(Ordering::SeqCst), 1);
    });
    assert!(copied < 1 << 14, "copied {copied}");
}

/// Sending copies no bytes, receiving only those that were predicted wrongly.
#[test]
fn iwarp_writes_are_not_copied() {
    const LEN: usize = 1 << 20;
    const WRITES: u64 = 16;
    let copied = copied_by(async {
        let [mut source, mut sink] = iwarp_pair().await;
        let to = sink.register(Region::Writable(BufMut::heap(LEN))).unwrap();
        sink.post(vec![Work::Recv { id: WorkId(0), into: BufMut::heap(16) }]).unwrap();
        let data = Buf::from(bytes(LEN, 1));
        let write = |n| Work::Write { id: WorkId(n), from: data.clone(), to };
        let send = Work::Send { id: WorkId(WRITES), from: vec![], invalidate: None };
        source.post((0..WRITES).map(write).chain([send]).collect()).unwrap();
        until_received(&mut source, &mut sink).await;
        let Some(Region::Writable(mut found)) = sink.release(to.handle) else { panic!("a region") };
        assert!(found.whole_mut() == &data[..]);
    });
    assert!(copied < WRITES * LEN as u64 / 16, "copied {copied}");
}

/// Returns the connecting and the accepting end.
async fn iwarp_pair() -> [Box<dyn QueuePair>; 2] {
    let iwarp = Iwarp::new(IwarpConfig::default());
    let mut listener = iwarp.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let at = listener.local_addr();
    let accept = async {
        let mut incoming = listener.accept().await.unwrap();
        incoming.request().await.unwrap();
        incoming.accept(RdmaChannel::accept_params()).await.unwrap()
    };
    let (server, client) = tokio::join!(accept, iwarp.connect(at, RdmaCaller::connect_params()));
    [client.unwrap().qp, server.qp]
}

/// Polls both ends until `sink` has received the message that follows the written data.
async fn until_received(source: &mut Box<dyn QueuePair>, sink: &mut Box<dyn QueuePair>) {
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    poll_fn(|cx| {
        // An end that returned completions has not registered a waker.
        while let Poll::Ready(up) = source.poll(cx, &mut sent) {
            up.unwrap();
        }
        sink.poll(cx, &mut received)
    })
    .await
    .unwrap();
    assert!(sent.iter().chain(&received).all(|c| c.result.is_ok()), "{sent:?} {received:?}");
}
