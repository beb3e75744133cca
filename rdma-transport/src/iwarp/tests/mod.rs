//! Tests queue pairs against each other and against raw sockets, over 127.0.0.1.
// Test data is truncated to bytes intentionally.
#![allow(clippy::cast_possible_truncation)]

mod hostile;
mod pairs;
mod peers;
pub(crate) mod receiver;
mod segmentation;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use iobuf::{Buf, BufMut};

use super::*;
use crate::verbs::*;

pub(crate) fn params() -> ConnectParams {
    ConnectParams {
        private_data: Bytes::from_static(b"hello"),
        recvs: 64,
        sends: 64,
        reads_out: 8,
        reads_in: 8,
        recv_size: 4096,
    }
}

/// Fails after a time that only a hanging test reaches.
pub(crate) async fn in_time<T>(f: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), f).await.expect("it hangs")
}

pub(crate) async fn listen(c: &IwarpConfig) -> (Box<dyn Listener>, SocketAddr) {
    let listener = Iwarp::new(c.clone()).listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let at = listener.local_addr();
    (listener, at)
}

/// The initiator and the responder.
pub(crate) async fn pair_of(
    i: IwarpConfig,
    r: IwarpConfig,
    ip: ConnectParams,
    rp: ConnectParams,
) -> (Connected, Connected) {
    let (mut listener, at) = listen(&r).await;
    let accept = async {
        let mut incoming = listener.accept().await.unwrap();
        assert_eq!(incoming.request().await.unwrap(), ip.private_data.clone());
        incoming.accept(rp).await.unwrap()
    };
    let provider = Iwarp::new(i);
    let (c, s) = in_time(async { tokio::join!(provider.connect(at, ip.clone()), accept) }).await;
    (c.unwrap(), s)
}

pub(crate) async fn pair() -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    let c = IwarpConfig::default();
    let (i, r) = pair_of(c.clone(), c, params(), params()).await;
    (i.qp, r.qp)
}

/// Returns the completions of one poll.
pub(crate) async fn next(qp: &mut Box<dyn QueuePair>) -> Result<Vec<Completion>, Down> {
    let mut out = Vec::new();
    in_time(poll_fn(|cx| qp.poll(cx, &mut out))).await.map(|()| out)
}

/// Polls both ends until the first has returned `n` completions and the second `m`.
pub(crate) async fn both(
    a: &mut Box<dyn QueuePair>,
    n: usize,
    b: &mut Box<dyn QueuePair>,
    m: usize,
) -> (Vec<Completion>, Vec<Completion>) {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    let done = poll_fn(|cx| {
        loop {
            let before = (x.len(), y.len());
            // Both ends must make progress even if only one expects completions; then the end of the other is no error.
            for (qp, out, wanted) in [(&mut *a, &mut x, n), (&mut *b, &mut y, m)] {
                if let Poll::Ready(Err(down)) = qp.poll(cx, out)
                    && out.len() < wanted
                {
                    panic!("an end is down: {down}");
                }
            }
            if x.len() >= n && y.len() >= m {
                return Poll::Ready(());
            }
            if (x.len(), y.len()) == before {
                return Poll::Pending;
            }
        }
    });
    in_time(done).await;
    (x, y)
}

pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251 + seed * 7) % 253) as u8).collect()
}

pub(crate) fn buf(bytes: Vec<u8>) -> Buf {
    Buf::from(bytes)
}

pub(crate) fn send(id: u64, bytes: Vec<u8>) -> Work {
    Work::Send { id: WorkId(id), from: vec![buf(bytes)], invalidate: None }
}

pub(crate) fn recv(id: u64, size: usize) -> Work {
    Work::Recv { id: WorkId(id), into: BufMut::heap(size) }
}

pub(crate) fn part(seg: RemoteSeg, at: usize, len: usize) -> RemoteSeg {
    RemoteSeg { handle: seg.handle, len: len as u32, offset: seg.offset + at as u64 }
}

pub(crate) fn writable(region: Option<Region>) -> BufMut {
    match region {
        Some(Region::Writable(b)) => b,
        other => panic!("no writable region but {other:?}"),
    }
}
