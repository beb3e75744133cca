//! Measures the cost of counting an operation on this machine: `cargo run --release -p rdma-transport --example meter_cost`.

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rdma_transport::meter::{Done, Meter, Meters, Way};

const ROUNDS: u32 = 2_000_000;

/// Nanoseconds for one operation: the clock is read at its beginning, and the meter reads it at its end.
fn cost(meter: &Meter) -> f64 {
    let done = Done { share: 7, operation: 25, bytes: 4096, failed: false };
    let before = on_cpu();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        black_box(meter).record(began, black_box(done), || "data".into());
    }
    (on_cpu() - before) / f64::from(ROUNDS)
}

/// Processor time of this thread in nanoseconds, so that other work of the machine does not count.
fn on_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

fn main() {
    let meters = Arc::new(Meters::default());
    let on = meters.of(Way { protocol: "nfs", transport: "tcp" });
    let off = Meter::default();
    cost(&on);
    println!("off (two looks at the clock): {:.1} ns", cost(&off));
    println!("on, one thread: {:.1} ns", cost(&on));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let on = on.clone();
            thread::spawn(move || cost(&on))
        })
        .collect();
    for (n, t) in threads.into_iter().enumerate() {
        if let Ok(ns) = t.join() {
            println!("on, thread {n} of two: {ns:.1} ns");
        }
    }
}
