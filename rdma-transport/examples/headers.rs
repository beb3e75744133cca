//! Measures parsing and encoding of an RPC-over-RDMA header with 16 segments, and of an SMB Direct header, in nanoseconds.
use std::hint::black_box;
use std::time::Instant;

use rdma_transport::channel::RemoteSeg;
use rdma_transport::rpcrdma::chunks;
use rdma_transport::rpcrdma::wire::{Lists, Prefix, RDMA_MSG, ReadSeg};
use rdma_transport::smbdirect::wire::DataTransfer;

/// Best of 20 rounds.
fn measure(name: &str, mut run: impl FnMut()) {
    const TIMES: u32 = 200_000;
    let best = (0..20).map(|_| {
        let start = Instant::now();
        (0..TIMES).for_each(|_| run());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
    });
    println!("{name}: {:.1} ns", best.fold(f64::INFINITY, f64::min));
}

fn main() {
    let seg = |n: u32| RemoteSeg { handle: n, len: 4096, offset: u64::from(n) << 16 };
    let lists = |reads: u32, writes: u32| Lists {
        reads: (0..reads).map(|n| ReadSeg { position: 16, target: seg(n) }).collect(),
        writes: if writes == 0 { vec![] } else { vec![(0..writes).map(seg).collect()] },
        reply: None,
    };
    for (name, lists) in [
        ("16 read segments", lists(16, 0)),
        ("a write chunk of 16", lists(0, 16)),
        ("no chunk", lists(0, 0)),
    ] {
        let mut message = Vec::new();
        Prefix { xid: 5, vers: 1, credits: 32, proc: RDMA_MSG }.emit(&mut message);
        lists.emit(&mut message);
        let call = [5u32, 0, 2, 100_003, 3, 6, 0, 0, 0, 0];
        call.iter().for_each(|w| message.extend_from_slice(&w.to_be_bytes()));
        measure(&format!("parse, {name}"), || {
            let _ = black_box(chunks::parse(black_box(&message)));
        });
        let mut out = Vec::with_capacity(1024);
        measure(&format!("emit, {name}"), || {
            out.clear();
            black_box(&lists).emit(black_box(&mut out));
        });
    }
    let header = DataTransfer {
        credits_requested: 10,
        credits_granted: 1,
        flags: 0,
        remaining: 0,
        offset: 24,
        len: 8,
    };
    let mut message = header.emit();
    message.resize(32, 7);
    measure("parse, SMB Direct data", || {
        let _ = black_box(DataTransfer::parse(black_box(&message), 1364, 1 << 20));
    });
}
