//! A small protocol for testing transports, and a service for it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iobuf::{Account, Buf, BufMut, Pool, PoolLimits};
use rdma_transport::channel::{
    BoxFuture, ChannelError, Info, Payload, PayloadLocator, Place, ReadChunkData, Reply, Service,
    Transport,
};
use rdma_transport::serve::serve;
use rdma_transport::tcp::{Framing, TcpChannel};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A call: xid, type CALL, length of the head, head, length of the bulk data (0: none), bulk data with padding, tail. Head and tail
/// are multiples of four, as in XDR.
#[derive(Clone, Debug)]
pub struct Message {
    pub xid: u32,
    pub head: Vec<u8>,
    pub bulk: Vec<u8>,
    pub tail: Vec<u8>,
}

pub const FIXED: usize = 16;

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().unwrap()) as usize)
}

impl Message {
    pub fn new(xid: u32, head: usize, bulk: usize, tail: usize) -> Self {
        let seed = xid as u8;
        let head = bytes(head.next_multiple_of(4), seed);
        let tail = bytes(tail.next_multiple_of(4), seed ^ 0x55);
        Self { xid, head, bulk: bytes(bulk, !seed), tail }
    }

    /// The message without bulk data and its padding, and the position of the bulk data.
    pub fn split(&self) -> (Vec<u8>, usize) {
        let mut out = Vec::new();
        let len = |n: usize| u32::try_from(n).unwrap().to_be_bytes();
        out.extend_from_slice(&self.xid.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&len(self.head.len()));
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&len(self.bulk.len()));
        let at = out.len();
        out.extend_from_slice(&self.tail);
        (out, at)
    }

    pub fn emit(&self) -> Vec<u8> {
        let (mut out, at) = self.split();
        let mut bulk = self.bulk.clone();
        bulk.resize(bulk.len().next_multiple_of(4), 0);
        out.splice(at..at, bulk);
        out
    }

    /// The reply of [`Echo`] if no memory became available for the bulk data.
    pub fn reply_without_data(&self) -> Vec<u8> {
        let (mut out, _) = self.split();
        out[7] = 1;
        out
    }

    /// The reply of [`Echo`]: the same message with type REPLY.
    pub fn reply(&self) -> Vec<u8> {
        let mut out = self.emit();
        out[7] = 1;
        out
    }
}

/// Locates the bulk data of a message.
pub fn bulk_of(head: &[u8]) -> Option<(usize, usize)> {
    let at = FIXED.checked_add(word(head, 8)?)?;
    word(head, at - 4).filter(|&n| n > 0).map(|n| (at, n))
}

pub struct Locator;

impl PayloadLocator for Locator {
    fn bulk(&self, head: &[u8], _total: usize) -> Option<(usize, usize)> {
        bulk_of(head)
    }

    fn is_sealed(&self, head: &[u8]) -> bool {
        word(head, 0) == Some(SEALED as usize)
    }
}

/// The xid of messages that cannot be answered without their bulk data.
pub const SEALED: u32 = 0x5ea1_ed00;

/// Restores bulk data inline, with its padding.
pub fn put_back(body: &[u8], read_chunks: &[ReadChunkData]) -> Vec<u8> {
    let mut out = body.to_vec();
    for p in read_chunks.iter().rev() {
        let mut data: Vec<u8> = p.data.iter().flat_map(|b| b.to_vec()).collect();
        data.resize(data.len().next_multiple_of(4), 0);
        out.splice(p.at..p.at, data);
    }
    out
}

/// Returns each request as its reply, with its bulk data as a payload at the same position, whether it was pulled or inline. Every
/// third reply takes a few polls; with `hold`, each takes a permit.
#[derive(Default)]
pub struct Echo {
    pub in_work: Arc<AtomicUsize>,
    pub in_work_most: Arc<AtomicUsize>,
    pub read_chunks: Arc<AtomicUsize>,
    pub hold: Option<Arc<tokio::sync::Semaphore>>,
}

impl Service for Echo {
    fn call(
        &self,
        body: Buf,
        read_chunks: Vec<ReadChunkData>,
    ) -> BoxFuture<'static, Option<Reply>> {
        let (in_work, most) = (self.in_work.clone(), self.in_work_most.clone());
        let hold = self.hold.clone();
        self.read_chunks.fetch_add(read_chunks.len(), Ordering::SeqCst);
        Box::pin(async move {
            most.fetch_max(in_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            if let Some(hold) = hold {
                hold.acquire().await.unwrap().forget();
            } else if body[3].is_multiple_of(3) {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
            }
            in_work.fetch_sub(1, Ordering::SeqCst);
            let (mut head, mut read_chunks) = (body.to_vec(), read_chunks);
            let inline =
                bulk_of(&body).filter(|(at, len)| at + len.next_multiple_of(4) <= head.len());
            if let (true, Some((at, len))) = (read_chunks.is_empty(), inline) {
                head.drain(at..at + len.next_multiple_of(4));
                read_chunks.push(ReadChunkData { at, data: vec![body.slice(at..at + len)] });
            }
            head[7] = 1;
            let payloads = read_chunks.into_iter().map(|p| {
                let len: usize = p.data.iter().map(Buf::len).sum();
                let pad = u8::try_from(len.wrapping_neg() % 4).unwrap();
                Payload { at: p.at, data: p.data, pages: None, pad, place: Place::Eligible }
            });
            let payloads = payloads.collect();
            Some(Reply { head, payloads, ..Reply::default() })
        })
    }
}

pub fn pool(n: usize) -> Pool {
    Pool::new(PoolLimits { buffers_max: [n; 3] })
}

pub fn run<T>(future: impl Future<Output = T>) -> T {
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async { tokio::time::timeout(Duration::from_secs(60), future).await.unwrap() })
}

/// Time is virtual and advances when all tasks are idle.
pub fn run_by_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    let rt = builder.enable_all().start_paused(true).build().unwrap();
    rt.block_on(async { tokio::time::timeout(Duration::from_secs(3600), future).await.unwrap() })
}

/// Takes all large buffers of a pool, and waits for one more.
pub fn exhausted(pool: &Pool) -> (Vec<BufMut>, JoinHandle<()>) {
    let held = std::iter::from_fn(|| pool.try_get(1 << 20)).collect();
    let waits = pool.clone();
    let waiting = tokio::spawn(async move {
        waits.acquire(1 << 20, Account::new()).await.unwrap();
    });
    (held, waiting)
}

pub fn nobody_holds(pool: &Pool) {
    for class in pool.stats() {
        assert_eq!((class.in_use, class.waiting), (0, 0), "{class:?}");
    }
}

/// Bytes that depend on position and seed. Generated by doubling, which is fast even without optimization.
pub fn bytes(len: usize, seed: u8) -> Vec<u8> {
    let mut out: Vec<u8> =
        (0..len.min(509)).map(|i| (i.wrapping_mul(31) >> 3) as u8 ^ seed).collect();
    while out.len() < len {
        let more = out.len().min(len - out.len());
        out.extend_from_within(..more);
    }
    out
}

/// Connects a client to a server channel with RPC records.
pub async fn pair(recvs: Pool, payload: Pool) -> (TcpStream, TcpChannel) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, peer) = listener.accept().await.unwrap();
    // The kernel would take megabytes of replies that the client does not read, more or fewer from run to run.
    socket2::SockRef::from(&server).set_send_buffer_size(64 << 10).unwrap();
    let info = Arc::new(Info::new(peer, listener.local_addr().unwrap(), Transport::Tcp, payload));
    (client, TcpChannel::new(server, info, recvs, Arc::new(Locator), Framing::Record).unwrap())
}

/// Connects a client to a server that runs `echo`; also returns the pools for receiving and for payload.
pub async fn served(echo: Echo) -> (TcpStream, JoinHandle<ChannelError>, Pool, Pool) {
    let (recvs, payload) = (pool(8), pool(8));
    let (client, channel) = pair(recvs.clone(), payload.clone()).await;
    (client, tokio::spawn(serve(Box::new(channel), Arc::new(echo))), recvs, payload)
}

pub async fn read_record(from: &mut TcpStream) -> Vec<u8> {
    let mark = from.read_u32().await.unwrap();
    assert!(mark >> 31 == 1, "replies have one fragment");
    let mut body = vec![0; (mark & 0x7fff_ffff) as usize];
    from.read_exact(&mut body).await.unwrap();
    body
}
