//! Measures on this machine what reads and writes of a volume in memory cost: `cargo run --release -p vfs --example mem_cost`.
#![allow(clippy::unwrap_used)]

use iobuf::{Account, Buf, Pool, PoolLimits};
use vfs::backend::ReadInto;
use vfs::mem::MemBackend;
use vfs::*;

/// Returns the nanoseconds of CPU time of this thread, so that other load on the machine does not count.
fn on_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

/// Prints the best of five runs of `f`, for each of its `n` operations.
fn cost(what: &str, n: u32, mut f: impl FnMut()) {
    let once = |_| {
        let before = on_cpu();
        f();
        (on_cpu() - before) / f64::from(n)
    };
    let best = (0..5).map(once).fold(f64::INFINITY, f64::min);
    println!("{what:48} {best:10.0} ns");
}

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f)
}

fn main() {
    let volume = MemBackend::new(1 << 30).unwrap();
    let pool = Pool::new(PoolLimits { buffers_max: [4; 3] });
    let into = ReadInto {
        account: Account::new(),
        pool,
        backpressure: None,
        pages: false,
        attributes: true,
    };
    let root = volume.root();
    let (who, plain) = (Cred::root(), SetAttr::default());
    let make = |name: &str| {
        let made = root.create(Acting::caller(&who), name.as_bytes(), CreateHow::Unchecked, plain);
        block_on(made).unwrap().node
    };
    let remove = |name: &str| {
        let _ = block_on(root.unlink(Acting::caller(&who), name.as_bytes())).unwrap();
    };
    let write = |node: &NodeRef, at: u64, data: &Buf| {
        let _ = block_on(node.write(WriteBy::Open(None), at, vec![data.clone()], Stable::Unstable))
            .unwrap();
    };
    let (small, large) = (Buf::from(vec![1; 4 << 10]), Buf::from(vec![1; 1 << 20]));
    let file = make("f");
    (0..64).for_each(|i| write(&file, i << 20, &large));
    cost("read 4 KiB", 16_384, || {
        (0..16_384).for_each(|i| drop(block_on(file.read(None, i << 12, 4 << 10, &into)).unwrap()));
    });
    cost("write 4 KiB over data", 16_384, || {
        (0..16_384).for_each(|i| write(&file, i << 12, &small))
    });
    cost("write 1 MiB over data", 64, || (0..64).for_each(|i| write(&file, i << 20, &large)));
    cost("write 1 MiB over data that is being read", 64, || {
        for i in 0..64 {
            let _seen = block_on(file.read(None, i << 20, 1 << 20, &into)).unwrap();
            write(&file, i << 20, &large);
        }
    });
    for (what, name, n) in [("4 MiB file", "m", 4), ("256 MiB file", "l", 256)] {
        cost(&format!("make, write by 1 MiB and remove a {what}, per MiB"), n, || {
            let file = make(name);
            (0..u64::from(n)).for_each(|i| write(&file, i << 20, &large));
            remove(name);
        });
    }
    cost("make, write by 4 KiB and remove a 16 MiB file, per 4 KiB", 4096, || {
        let file = make("a");
        (0..4096).for_each(|i| write(&file, i << 12, &small));
        remove("a");
    });
    cost("make, write and remove a file of 4 KiB", 10_000, || {
        for _ in 0..10_000 {
            write(&make("s"), 0, &small);
            remove("s");
        }
    });
}
