//! Compares 1 MiB transfers over 127.0.0.1: plain TCP against RDMA Write and RDMA Read over this iWARP, alternately.
//!
//! The same regions are written repeatedly, which no upper protocol does: the receiver's prediction fails, and small FPDUs are
//! copied out of its look-ahead buffer.
//!
//! Usage: `cargo run --release -p rdma-transport --example iwarp_rate [-- MIB [ROUNDS [NAME]]]`
// Panics are acceptable in an example.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::future::poll_fn;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use bytes::Bytes;
use iobuf::{Buf, BufMut};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use rdma_transport::verbs::{
    Completion, ConnectParams, Provider, QueuePair, Region, RemoteSeg, Work, WorkId, WorkKind,
};

const SIZE: usize = 1 << 20;
const DEPTH: usize = 8;

type Qp = Box<dyn QueuePair>;

fn params() -> ConnectParams {
    ConnectParams {
        private_data: Bytes::new(),
        recvs: 16,
        sends: 64,
        reads_out: 16,
        reads_in: 16,
        recv_size: 4096,
    }
}

async fn more(qp: &mut Qp, out: &mut Vec<Completion>) -> bool {
    poll_fn(|cx| qp.poll(cx, out)).await.is_ok()
}

async fn wait(qp: &mut Qp, kind: WorkKind) -> Completion {
    let mut out = Vec::new();
    loop {
        assert!(more(qp, &mut out).await, "down");
        if let Some(i) = out.iter().position(|c| c.kind == kind) {
            return out.swap_remove(i);
        }
    }
}

fn in_thread<F: Future<Output = ()>>(
    f: impl FnOnce() -> F + Send + 'static,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(|| {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f());
    })
}

/// The initiator: offers memory to the peer, and waits until the peer has used it.
async fn memory(config: IwarpConfig, at: std::net::SocketAddr, readable: bool) {
    let mut qp = Iwarp::new(config).connect(at, params()).await.unwrap().qp;
    let mut adverts = Vec::new();
    for _ in 0..DEPTH {
        let region = if readable {
            Region::Readable(Buf::from(vec![7; SIZE]))
        } else {
            Region::Writable(BufMut::heap(SIZE))
        };
        let seg = qp.register(region).unwrap();
        adverts.extend(seg.handle.to_be_bytes());
        adverts.extend(seg.offset.to_be_bytes());
    }
    qp.post(vec![
        Work::Recv { id: WorkId(0), into: BufMut::heap(4096) },
        Work::Send { id: WorkId(0), from: vec![Buf::from(adverts)], invalidate: None },
    ])
    .unwrap();
    wait(&mut qp, WorkKind::Recv).await;
}

async fn rdma(config: IwarpConfig, mib: usize, read: bool) -> Duration {
    let mut listener =
        Iwarp::new(config.clone()).listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let at = listener.local_addr();
    let other = in_thread(move || memory(config, at, read));
    let mut qp = listener.accept().await.unwrap().accept(params()).await.unwrap().qp;
    qp.post(vec![Work::Recv { id: WorkId(0), into: BufMut::heap(4096) }]).unwrap();
    let c = wait(&mut qp, WorkKind::Recv).await;
    let segs: Vec<RemoteSeg> = c
        .buf
        .unwrap()
        .filled()
        .chunks(12)
        .map(|b| RemoteSeg {
            handle: u32::from_be_bytes(*b.first_chunk().unwrap()),
            offset: u64::from_be_bytes(*b[4..].first_chunk().unwrap()),
            len: u32::try_from(SIZE).unwrap(),
        })
        .collect();
    let data: Vec<Buf> = (0..DEPTH).map(|_| Buf::from(vec![5; SIZE])).collect();
    let mut sinks: Vec<BufMut> = (0..DEPTH).map(|_| BufMut::heap(SIZE)).collect();
    let start = Instant::now();
    let (mut posted, mut done, mut out) = (0, 0, Vec::new());
    while done < mib {
        while posted < mib && posted - done < DEPTH {
            let (id, i) = (WorkId(posted as u64), posted % DEPTH);
            qp.post(vec![if read {
                Work::Read { id, from: vec![segs[i]], into: sinks.pop().unwrap() }
            } else {
                Work::Write { id, from: data[i].clone(), to: segs[i] }
            }])
            .unwrap();
            posted += 1;
        }
        assert!(more(&mut qp, &mut out).await);
        for c in out.drain(..) {
            assert_eq!(c.result, Ok(SIZE));
            if let Some(mut b) = c.buf {
                b.set_filled(0);
                sinks.push(b);
            }
            done += 1;
        }
    }
    qp.post(vec![Work::Send { id: WorkId(0), from: vec![], invalidate: None }]).unwrap();
    wait(&mut qp, WorkKind::Send).await;
    other.join().unwrap();
    start.elapsed()
}

/// A minimal sender and receiver over plain TCP.
fn tcp(mib: usize) -> Duration {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let sink = std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        let mut bufs: Vec<Vec<u8>> = (0..DEPTH).map(|_| vec![0; SIZE]).collect();
        for i in 0..mib {
            s.read_exact(&mut bufs[i % DEPTH]).unwrap();
        }
    });
    let mut s = std::net::TcpStream::connect(at).unwrap();
    s.set_nodelay(true).unwrap();
    let bufs: Vec<Vec<u8>> = (0..DEPTH).map(|_| vec![5; SIZE]).collect();
    let start = Instant::now();
    for i in 0..mib {
        s.write_all(&bufs[i % DEPTH]).unwrap();
    }
    sink.join().unwrap();
    start.elapsed()
}

fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<u64> = text
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|f| f.parse().unwrap())
        .collect();
    Duration::from_millis(10 * (fields[0] + fields[1]))
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |otherwise| args.next().map_or(otherwise, |a| a.parse().expect("a number"));
    let (mib, rounds): (usize, usize) = (number(1024), number(3));
    let only = args.next();
    let on = |crc, large_fpdus| IwarpConfig { crc, large_fpdus, ..IwarpConfig::default() };
    for _ in 0..rounds {
        let show = |name: &str, run: &dyn Fn() -> Duration| {
            if only.as_ref().is_some_and(|o| o != name) {
                return;
            }
            let before = (cpu(), iobuf::copied_bytes());
            let t = run();
            let rate = mib as f64 / t.as_secs_f64();
            let copied = (iobuf::copied_bytes() - before.1) >> 10;
            println!("{name:24} {rate:7.0} MiB/s  cpu {:?}  copied {copied} KiB", cpu() - before.0);
        };
        let run = |c: IwarpConfig, read| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(rdma(c, mib, read))
        };
        show("tcp", &|| tcp(mib));
        show("write", &|| run(on(false, true), false));
        show("write crc", &|| run(on(true, true), false));
        show("write mss", &|| run(on(false, false), false));
        show("write mss crc", &|| run(on(true, false), false));
        show("read", &|| run(on(false, true), true));
        show("read crc", &|| run(on(true, true), true));
        show("read mss", &|| run(on(false, false), true));
        show("read mss crc", &|| run(on(true, false), true));
        println!();
    }
}
