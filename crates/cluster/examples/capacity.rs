//! Measures the load that a large cluster causes on etcd: `cargo run --release -p cluster --example capacity http://127.0.0.1:2379
//! [NODES SERVICES CANDIDATES TTL SPREAD]`, the last two in seconds.
//!
//! *Operation.* All nodes run in this process, each a separate [`Runner`] with its lease and its watch; the gateway of a service is
//! a program that waits until its input closes. Each service has a preferred node and `CANDIDATES` nodes that may run it. Nodes
//! start one after the other during SPREAD. The program measures the time until all services run, the load of etcd during a minute
//! without changes, and load and time when a node dies and when all nodes die and restart at once. The load comes from etcd's own
//! metrics. It requires a separate etcd, and may need one and a half open files per service.

#![allow(clippy::expect_used, clippy::cast_precision_loss)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::board::Board;
use cluster::election::Keys;
use cluster::etcd::{Endpoint, Etcd};
use cluster::{Plan, Runner, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

const NAME: &str = "capacity";
const CALM: Duration = Duration::from_secs(60);
/// Interval of progress lines.
const TOLD_EACH: Duration = Duration::from_secs(10);
/// Interval at which the running services are counted.
const STEP: Duration = Duration::from_millis(50);

/// The parameters of the measurement.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    services: usize,
    candidates: usize,
    ttl: Duration,
    /// Time during which all nodes start, one after the other.
    spread: Duration,
}

struct Node {
    board: Arc<Board>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), String>>,
}

impl Size {
    /// Returns the nodes that may run a service, the preferred one first. The alternatives of one preferred node are spread over
    /// all other nodes.
    fn nodes_of(self, service: usize) -> Vec<String> {
        let (chosen, others) = (service % self.nodes, self.nodes - 1);
        let other = |n| (chosen + 1 + (service / self.nodes + n) % others) % self.nodes;
        let numbers = std::iter::once(chosen).chain((0..self.candidates - 1).map(other));
        numbers.map(node_name).collect()
    }

    fn services(self) -> Vec<Service> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let service = |number| Service {
            name: service_name(number),
            command: words(&["sh", "-c", "echo headgate ready; exec sleep infinity <&- >&-"]),
            addresses: Vec::new(),
            nodes: self.nodes_of(number),
            fence: Some(words(&["true"])),
            attach: None,
            detach: None,
            connections: None,
            has_sessions: false,
        };
        (0..self.services).map(service).collect()
    }
}

fn node_name(number: usize) -> String {
    format!("gw{number}")
}

fn service_name(number: usize) -> String {
    format!("s{number}")
}

/// Returns etcd's counters: calls by method, work and memory.
async fn counters(at: &Endpoint) -> BTreeMap<String, f64> {
    const SHOWN: [(&str, &str); 3] = [
        ("etcd_server_proposals_committed_total", "raft proposals"),
        ("process_cpu_seconds_total", "seconds of its CPU"),
        ("etcd_debugging_mvcc_events_total", "events to watchers"),
    ];
    let mut stream = TcpStream::connect((&*at.host, at.port)).await.expect("etcd listens");
    let request = b"GET /metrics HTTP/1.0\r\n\r\n";
    stream.write_all(request).await.expect("etcd listens");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("etcd answers");
    let mut counters = BTreeMap::new();
    for line in text.lines() {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        if let Some((_, shown)) = SHOWN.iter().find(|(metric, _)| *metric == name) {
            counters.insert((*shown).to_owned(), value);
        } else if name.starts_with("grpc_server_started_total{")
            && let Some((_, method)) = name.split_once("grpc_method=\"")
            && let Some((method, _)) = method.split_once('"')
        {
            *counters.entry(format!("calls of {method}")).or_default() += value;
        }
    }
    counters
}

/// Prints the differences between two samples of the counters.
fn show(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>, time: Duration) {
    for (name, value) in after {
        let done = value - before.get(name).copied().unwrap_or(0.0);
        if done > 0.0 {
            println!("  {name}: {done:.1}, {:.1} a second", done / time.as_secs_f64());
        }
    }
}

/// Returns how many services these nodes run.
fn served<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> usize {
    nodes.into_iter().map(|node| node.board.served()).sum()
}

/// Waits until these nodes run `all` services; returns the times of the first after `from`, of half of them, and of all.
async fn until_served(nodes: &[Node], from: usize, all: usize) -> [Duration; 3] {
    let began = Instant::now();
    let mut times = [None; 3];
    let mut each = interval(STEP);
    let mut told = TOLD_EACH;
    loop {
        each.tick().await;
        let now = served(nodes);
        if began.elapsed() >= told {
            println!("  after {:.0?}: {now} served", began.elapsed());
            told += TOLD_EACH;
        }
        let wanted = [from + 1, from + (all - from) / 2, all];
        for (time, wanted) in times.iter_mut().zip(wanted) {
            if now >= wanted {
                time.get_or_insert(began.elapsed());
            }
        }
        if let [Some(first), Some(half), Some(last)] = times {
            return [first, half, last];
        }
    }
}

/// Returns the busiest second of etcd until `stop`: calls and commits.
async fn busiest(at: Endpoint, mut stop: watch::Receiver<bool>) -> (f64, f64) {
    let (mut calls, mut committed) = (0.0_f64, 0.0_f64);
    let sum = |counters: &BTreeMap<String, f64>| -> f64 {
        counters.iter().filter(|(name, _)| name.starts_with("calls")).map(|(_, n)| n).sum()
    };
    let mut before = (counters(&at).await, Instant::now());
    while !*stop.borrow() {
        tokio::select! { () = sleep(Duration::from_secs(1)) => {}, _ = stop.changed() => {} }
        let now = (counters(&at).await, Instant::now());
        let time = (now.1 - before.1).as_secs_f64();
        let proposals = |of: &BTreeMap<String, f64>| of.get("raft proposals").copied();
        if time > 0.5 {
            calls = calls.max((sum(&now.0) - sum(&before.0)) / time);
            let more = proposals(&now.0).zip(proposals(&before.0)).map_or(0.0, |(n, b)| n - b);
            committed = committed.max(more / time);
        }
        before = now;
    }
    (calls, committed)
}

/// One section of the measurement, with the load of etcd during it.
struct Part {
    at: Endpoint,
    before: BTreeMap<String, f64>,
    began: Instant,
    stop: watch::Sender<bool>,
    busiest: JoinHandle<(f64, f64)>,
}

impl Part {
    async fn begin(at: &Endpoint) -> Self {
        let (stop, stopped) = watch::channel(false);
        let before = counters(at).await;
        let busiest = tokio::spawn(busiest(at.clone(), stopped));
        Self { at: at.clone(), before, began: Instant::now(), stop, busiest }
    }

    async fn end(self) {
        show(&self.before, &counters(&self.at).await, self.began.elapsed());
        self.stop.send_replace(true);
        let (calls, committed) = self.busiest.await.expect("it ends");
        println!("  the busiest second: {calls:.0} calls, {committed:.0} proposals");
    }
}

/// Starts the nodes of the cluster one after the other.
async fn start(at: &Endpoint, size: Size, services: &[Service], spread: Duration) -> Vec<Node> {
    let mut nodes = Vec::new();
    for number in 0..size.nodes {
        let node = node_name(number);
        let own = services.iter().filter(|service| service.nodes.contains(&node)).cloned();
        let plan = Plan { name: NAME.into(), ttl: size.ttl, services: own.collect(), node };
        let (stop, stopped) = watch::channel(false);
        let runner = Runner::new(plan, Etcd::new(vec![at.clone()], size.ttl / 5));
        nodes.push(Node { board: runner.board(), stop, task: tokio::spawn(runner.run(stopped)) });
        sleep(spread / u32::try_from(size.nodes).expect("few nodes")).await;
    }
    nodes
}

async fn measure(at: Endpoint, size: Size) {
    let services = size.services();
    let etcd = Etcd::new(vec![at.clone()], size.ttl / 5);
    for (number, service) in services.iter().enumerate() {
        let chosen = node_name(number % size.nodes);
        let key = Keys::new(NAME, &service.name).wanted;
        etcd.put(&key, chosen.as_bytes()).await.expect("etcd answers");
    }
    let part = Part::begin(&at).await;
    let mut nodes = start(&at, size, &services, size.spread).await;
    println!("all nodes started in {:?}: {} are served", size.spread, served(&nodes));
    let [first, half, all] = until_served(&nodes, 0, size.services).await;
    println!(
        "then the first is served after {first:.1?}, half after {half:.1?}, all after {all:.1?}"
    );
    part.end().await;

    // Wait for the aftermath of the start.
    sleep(4 * size.ttl).await;
    let before = counters(&at).await;
    sleep(CALM).await;
    println!("a minute without changes:");
    show(&before, &counters(&at).await, CALM);
    println!("  services served: {}", served(&nodes));

    let dead = nodes.remove(0);
    let lost = served([&dead]);
    let part = Part::begin(&at).await;
    dead.task.abort();
    let rest = served(&nodes);
    let [first, half, all] = until_served(&nodes, rest, rest + lost).await;
    println!(
        "a node with {lost} services dies: the first is served after {first:.1?}, half after {half:.1?}, all after {all:.1?}"
    );
    sleep(size.ttl).await;
    part.end().await;

    let part = Part::begin(&at).await;
    for node in nodes {
        node.task.abort();
        // Its programs have ended with it.
        let _ = node.task.await;
    }
    println!("all nodes die, which took {:.1?}, and start at once", part.began.elapsed());
    let nodes = start(&at, size, &services, Duration::ZERO).await;
    let [first, half, all] = until_served(&nodes, 0, size.services).await;
    println!(
        "then the first is served after {first:.1?}, half after {half:.1?}, all after {all:.1?}"
    );
    part.end().await;
    for node in &nodes {
        node.stop.send_replace(true);
    }
    for node in nodes {
        node.task.await.expect("it ends").expect("in order");
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let endpoint = words.next().expect("http://HOST:PORT of an etcd");
    let mut number = |usual| words.next().map_or(usual, |word| word.parse().expect("a number"));
    let size = Size {
        nodes: number(100),
        services: number(10_000),
        candidates: number(3),
        ttl: Duration::from_secs(number(5) as u64),
        spread: Duration::from_secs(number(0) as u64),
    };
    assert!((2..=size.nodes).contains(&size.candidates), "two nodes for a service at least");
    let at = endpoint.trim_start_matches("http://");
    let (host, port) = at.rsplit_once(':').expect("http://HOST:PORT");
    let at = Endpoint { tls: false, host: host.into(), port: port.parse().expect("a port") };
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(measure(at, size));
}
