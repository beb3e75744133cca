//! Prometheus metrics of a node about its services, whether or not it serves any.
//!
//! *Operation.* One HTTP/1 connection for each request, `GET /metrics`. The labels are service names from the file of the cluster.
//!
//! *Memory.* [`REQUEST_MAX`] for each of at most [`ASKING_MAX`] requests; further ones are closed on accept. Storage that hangs
//! occupies a thread for each file on it, at most [`LOOKS_MAX`], however often the node is queried ([`Looks`]).
//!
//! *Errors.* If a request does not arrive within [`REQUEST_TIME`], its connection ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::cluster::board::{Board, ServiceState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

const REQUEST_MAX: usize = 4096;
const REQUEST_TIME: Duration = Duration::from_secs(5);
const ASKING_MAX: usize = 16;
/// Files that are checked at the same time.
const LOOKS_MAX: usize = 16;
/// Files without a result by then count as unreadable.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// A metric of each service.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&ServiceState) -> f64,
}

const fn metric(
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&ServiceState) -> f64,
) -> Metric {
    Metric { name, kind, help, value }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
const fn count(n: u64) -> f64 {
    n as f64
}

fn is(what: bool) -> f64 {
    f64::from(u8::from(what))
}

fn of_last(s: &ServiceState, time: fn(&::cluster::board::Takeover) -> Duration) -> f64 {
    s.last.as_ref().map_or(0.0, |last| time(last).as_secs_f64())
}

/// Every metric; the labels are `cluster`, `node` and `service`.
const TABLE: [Metric; 12] = [
    metric("headgate_cluster_owner", "gauge", "1 while this node owns the service", |s| {
        is(s.epoch.is_some())
    }),
    metric(
        "headgate_cluster_serves",
        "gauge",
        "1 while its gateway runs here, with its addresses",
        |s| is(s.serves),
    ),
    metric(
        "headgate_cluster_epoch",
        "gauge",
        "The epoch in which this node owns the service; 0: it does not",
        |s| count(s.epoch.unwrap_or(0)),
    ),
    metric(
        "headgate_cluster_lease_left_seconds",
        "gauge",
        "How long this node may serve the service if its lease is not renewed",
        |s| s.left().as_secs_f64(),
    ),
    metric(
        "headgate_cluster_may_not_serve",
        "gauge",
        "1 while this node cannot take the service over; `headgate cluster status` says why",
        |s| is(s.trouble.is_some()),
    ),
    metric(
        "headgate_cluster_takeovers_total",
        "counter",
        "How often this node began to serve the service",
        |s| count(s.takeovers),
    ),
    metric(
        "headgate_cluster_leases_lost_total",
        "counter",
        "How often the lease of this node was not renewed in time",
        |s| count(s.lost),
    ),
    metric(
        "headgate_cluster_gateway_ends_total",
        "counter",
        "How often the gateway of the service ended without an order",
        |s| count(s.ended),
    ),
    metric(
        "headgate_cluster_failed_takeovers_total",
        "counter",
        "How often this node was elected and could not serve the service",
        |s| count(s.failed),
    ),
    metric(
        "headgate_cluster_takeover_seconds",
        "gauge",
        "Seconds from the last election of this node until it served",
        |s| of_last(s, |last| last.total),
    ),
    metric(
        "headgate_cluster_takeover_fence_seconds",
        "gauge",
        "How much of that time the fence took",
        |s| of_last(s, |last| last.fence),
    ),
    metric(
        "headgate_cluster_takeover_attach_seconds",
        "gauge",
        "How much of that time attaching the storage took",
        |s| of_last(s, |last| last.attach),
    ),
];

/// Name, kind and help of the metric about a service's file on this node, which is not part of the node's table.
const FILE: (&str, &str, &str) = (
    "headgate_cluster_file_unreadable",
    "gauge",
    "1 while this node cannot read the configuration of the service, and so cannot take the service over",
);

/// The node that the metrics describe.
pub(super) struct Node {
    pub(super) cluster: String,
    /// Name of the node.
    pub(super) name: String,
    /// Checks the configuration of each service.
    pub(super) files: Looks,
}

/// Checks whether files can be read; one that hangs delays no other.
pub(super) struct Looks {
    files: BTreeMap<String, PathBuf>,
    places: Arc<Semaphore>,
    /// Checks that have not ended; until then their file is not checked again.
    under_way: Mutex<BTreeMap<String, JoinHandle<bool>>>,
}

impl Looks {
    /// Checks these files, keyed by service.
    pub(super) fn at(files: BTreeMap<String, PathBuf>) -> Self {
        let places = Arc::new(Semaphore::new(LOOKS_MAX));
        Self { files, places, under_way: Mutex::default() }
    }

    /// Returns for each service whether its file cannot be read in time.
    async fn unreadable(&self) -> BTreeMap<String, bool> {
        let mut under_way = self.under_way.lock().await;
        for (service, file) in &self.files {
            under_way.entry(service.clone()).or_insert_with(|| {
                let (file, places) = (file.clone(), self.places.clone());
                tokio::spawn(async move {
                    let _place = places.acquire_owned().await;
                    let look = move || File::open(file).is_err();
                    // Only a panic makes it fail.
                    tokio::task::spawn_blocking(look).await.unwrap_or(true)
                })
            });
        }
        let until = Instant::now() + LOOK_TIME;
        let mut unreadable = BTreeMap::new();
        for service in self.files.keys() {
            let Some(look) = under_way.get_mut(service) else { continue };
            let seen = timeout_at(until, look).await;
            if seen.is_ok() {
                under_way.remove(service);
            }
            let is_readable = matches!(seen, Ok(Ok(false)));
            unreadable.insert(service.clone(), !is_readable);
        }
        unreadable
    }
}

impl Node {
    /// Returns the text of all metrics.
    async fn text(&self, board: &Board) -> String {
        let (mut text, services) = (String::new(), board.services());
        for Metric { name, kind, help, value } in &TABLE {
            let of_each = services.iter().map(|(service, standing)| (service, value(standing)));
            self.family(&mut text, (name, kind, help), of_each);
        }
        let unreadable = self.files.unreadable().await;
        let unreadable = unreadable.iter().filter(|(it, _)| services.contains_key(*it));
        let unreadable = unreadable.map(|(it, unreadable)| (it, is(*unreadable)));
        self.family(&mut text, FILE, unreadable);
        text
    }

    fn family<'a>(
        &self,
        text: &mut String,
        (name, kind, help): (&str, &str, &str),
        values: impl Iterator<Item = (&'a String, f64)>,
    ) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        let (cluster, node) = (label(&self.cluster), label(&self.name));
        for (service, value) in values {
            let service = label(service);
            let labels = format!("cluster=\"{cluster}\",node=\"{node}\",service=\"{service}\"");
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    }
}

/// Escapes a name for use as a label's value.
fn label(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Binds the address of the metrics.
pub(super) async fn listen(at: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(at).await.map_err(|e| format!("`metrics: {at}`: {e}"))
}

/// Serves requests for as long as the node runs.
pub(super) async fn serve(listener: TcpListener, node: Node, board: Arc<Board>) {
    let asking = Arc::new(Semaphore::new(ASKING_MAX));
    let node = Arc::new(node);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Usually descriptors have run out for a moment.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = asking.clone().try_acquire_owned() else { continue };
        let (node, board) = (node.clone(), board.clone());
        tokio::spawn(async move {
            let _place = place;
            // Ignore clients that disconnect.
            let _ = timeout(REQUEST_TIME, answer(stream, &node, &board)).await;
        });
    }
}

async fn answer(mut stream: TcpStream, node: &Node, board: &Board) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= REQUEST_MAX || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let (status, body) = if request.starts_with(b"GET /metrics ") {
        ("200 OK", node.text(board).await)
    } else {
        ("404 Not Found", "there is /metrics\n".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> String {
        let path = format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_alarms_ask_for_metrics_that_exist_and_the_page_has_them_all() {
        let rules: serde_yaml::Value =
            serde_yaml::from_str(&file("deploy/prometheus-alerts-cluster.yaml")).unwrap();
        let groups = rules["groups"].as_sequence().unwrap();
        let rules: Vec<_> = groups.iter().flat_map(|g| g["rules"].as_sequence().unwrap()).collect();
        assert!(rules.len() >= 5);
        for rule in rules {
            let expr = rule["expr"].as_str().unwrap();
            let words = expr.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let asked: Vec<_> = words.filter(|w| w.starts_with("headgate_")).collect();
            assert!(!asked.is_empty() || expr.starts_with("up"), "{expr}");
            for name in asked {
                let is_there = name == FILE.0 || TABLE.iter().any(|m| m.name == name);
                assert!(is_there, "there is no metric {name}");
            }
            for key in ["summary", "description"] {
                assert!(rule["annotations"][key].as_str().is_some_and(|t| t.len() > 10), "{expr}");
            }
        }
        let page = file("docs/cluster.md");
        let all = TABLE.iter().map(|m| (m.name, m.help)).chain([(FILE.0, FILE.2)]);
        for (name, help) in all {
            assert!(
                page.contains(&format!("| `{name}` | {help} |")),
                "docs/cluster.md: {name} | {help}"
            );
        }
    }

    #[tokio::test]
    async fn a_configuration_on_storage_that_hangs_is_unreadable_and_held_by_one_thread() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        // Opening it for reading blocks until a writer opens it.
        rustix::fs::mkfifoat(rustix::fs::CWD, at("a"), rustix::fs::Mode::RWXU).unwrap();
        std::fs::write(at("b"), b"").unwrap();
        let looks = Looks::at(["a", "b", "c"].map(|it| (it.to_owned(), at(it))).into());
        let told = |a, b, c| [("a", a), ("b", b), ("c", c)].map(|(it, is)| (it.to_owned(), is));
        for _ in 0..3 {
            let seen = timeout(REQUEST_TIME, looks.unreadable()).await.unwrap();
            assert_eq!(seen, told(true, false, true).into());
            assert_eq!(looks.places.available_permits(), LOOKS_MAX - 1);
        }
        std::fs::write(at("a"), b"").unwrap();
        let look = looks.under_way.lock().await.remove("a").unwrap();
        assert!(!look.await.unwrap());
    }
}
