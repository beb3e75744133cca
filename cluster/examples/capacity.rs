//! What a large cluster asks of etcd, on paper: `cargo run --release -p cluster --example capacity`.
//!
//! *Operation.* A simulation of ten minutes in steps of a tenth of a second: each request of each actor at its own moment, by
//! the times of `cluster::service` and `cluster::registration`. In the middle a node dies. With the endpoint of an etcd as
//! argument it measures as well how many renewals and looks that answers, by as many connections as the cluster makes: each
//! request has one of its own.

#![allow(clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::etcd::{Endpoint, Etcd};

const NODES: usize = 100;
const SERVICES: usize = 10_000;
const CLIENTS: usize = 1_000_000;
/// In milliseconds, as all times here.
const TTL: usize = 5_000;
const STEP: usize = 100;
const END: usize = 600_000;
const DEATH: usize = 300_000;

/// Requests to etcd in each step.
#[derive(Default)]
struct Load {
    renewals: Vec<u64>,
    looks: Vec<u64>,
    writes: Vec<u64>,
}

/// Numbers that are spread alike in each run (xorshift64*).
struct Spread(u64);

impl Spread {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let n = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(n).unwrap_or(0) % end
    }
}

fn each(steps: &mut [u64], from: usize, until: usize, period: usize) {
    let mut at = from;
    while at < until {
        steps[at / STEP] += 1;
        at += period;
    }
}

/// `standing`: nodes that may serve a service.
fn simulate(standing: usize) -> Load {
    let steps = || vec![0; END / STEP + TTL];
    let mut load = Load { renewals: steps(), looks: steps(), writes: steps() };
    let mut spread = Spread(20_261_126);
    for node in 0..NODES {
        let until = if node == 0 { DEATH } else { END };
        // Registration: a renewal and a transaction that finds the key there; and whether the node is drained.
        let at = spread.below(TTL / 3);
        each(&mut load.renewals, at, until, TTL / 3);
        each(&mut load.writes, at, until, TTL / 3);
        each(&mut load.looks, spread.below(TTL / 10), until, TTL / 10);
    }
    for service in 0..SERVICES {
        let is_of_dead = service % NODES == 0;
        let until = if is_of_dead { DEATH } else { END };
        each(&mut load.renewals, spread.below(TTL / 3), until, TTL / 3);
        // The owner's watch of its keys, and those of the candidates, are made again each two TTLs; a look and what is
        // wanted before each.
        each(&mut load.looks, spread.below(2 * TTL), until, 2 * TTL);
        for _ in 1..standing {
            for _ in 0..2 {
                each(&mut load.looks, spread.below(2 * TTL), END, 2 * TTL);
            }
        }
        if is_of_dead {
            // etcd ends the leases a TTL after their last renewals; all candidates look at once, and stand: a lease and a
            // transaction
            // each, and the lease of each who lost is given back.
            let at = DEATH + TTL - spread.below(TTL / 3);
            let candidates = u64::try_from(standing - 1).unwrap_or(0);
            load.looks[at / STEP] += 3 * candidates;
            load.writes[at / STEP] += 3 * candidates;
            // The owner records itself, how it took over, and takes what was asked and its trouble away; its lease is
            // renewed from now on.
            load.writes[at / STEP + 1] += 4;
            each(&mut load.renewals, at, END, TTL / 3);
            each(&mut load.looks, at, END, 2 * TTL);
        }
    }
    load
}

/// Of one second: the mean before the death, and the most after it.
fn of_second(steps: &[u64]) -> (u64, u64) {
    let seconds: Vec<u64> =
        steps[..END / STEP].chunks(1000 / STEP).map(|s| s.iter().sum()).collect();
    let death = DEATH / 1000;
    let calm = &seconds[10..death];
    let after = seconds[death..death + 2 * TTL / 1000].iter().max().copied().unwrap_or(0);
    (calm.iter().sum::<u64>() / calm.len() as u64, after)
}

fn show() {
    println!(
        "{NODES} nodes, {SERVICES} services, {CLIENTS} clients, ttl {} s; requests a second",
        TTL / 1000
    );
    println!(
        "| nodes that may serve a service | renewals | looks | writes | most writes after a node's death | watches |"
    );
    println!("|---|---|---|---|---|---|");
    for standing in [2, 3, NODES] {
        let load = simulate(standing);
        let [renewals, looks, writes] =
            [&load.renewals, &load.looks, &load.writes].map(|steps| of_second(steps));
        println!(
            "| {standing} | {} | {} | {} | {} | {} |",
            renewals.0,
            looks.0,
            writes.0,
            writes.1,
            SERVICES * standing
        );
    }
    let flows = CLIENTS / SERVICES;
    let line = "192.0.2.10:2049 198.51.100.100:1023\n".len();
    println!(
        "connections of a service in its list: {flows}, {} bytes; segments after a node's death: {}",
        flows * line,
        flows * SERVICES / NODES * 4
    );
}

/// Requests a second that an etcd answers.
async fn measure(endpoint: &str) {
    let at = endpoint.trim_start_matches("http://");
    let (host, port) = at.rsplit_once(':').expect("http://HOST:PORT");
    let at = Endpoint { tls: false, host: host.into(), port: port.parse().expect("a port") };
    let etcd = Arc::new(Etcd::new(vec![at], Duration::from_secs(5)));
    let lease = etcd.grant(Duration::from_secs(60)).await.expect("etcd answers");
    for what in ["renewals", "looks", "writes"] {
        let done = Arc::<AtomicU64>::default();
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..64 {
            let (etcd, done) = (etcd.clone(), done.clone());
            tasks.spawn(async move {
                while began.elapsed() < Duration::from_secs(5) {
                    let answered = match what {
                        "renewals" => etcd.keep_alive(lease).await.is_ok(),
                        "looks" => etcd.below_at("/capacity/").await.is_ok(),
                        _ => etcd.put(&format!("/capacity/{task}"), b"x").await.is_ok(),
                    };
                    done.fetch_add(u64::from(answered), Ordering::Relaxed);
                }
            });
        }
        while tasks.join_next().await.is_some() {}
        let each = done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
        println!("{what}: {each:.0} a second");
    }
}

fn main() {
    show();
    if let Some(endpoint) = std::env::args().nth(1) {
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        runtime.block_on(measure(&endpoint));
    }
}
