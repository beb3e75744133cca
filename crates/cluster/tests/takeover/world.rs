//! etcd, a proxy to it that fails in several ways, and nodes whose services are programs.

use std::fs;
use std::net::{SocketAddr, TcpListener as Free};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cluster::election::Keys;
use cluster::etcd::{Endpoint, Entry, Etcd};
use cluster::{Plan, Runner, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Members of etcd with default settings grant at least two seconds.
pub const TTL: Duration = Duration::from_secs(3);
/// Time limit for fast operations on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A member of etcd.
pub struct Member {
    pub port: u16,
    command: Command,
    child: Child,
}

impl Member {
    /// Stops it, and starts it again with its data.
    pub fn restart(&mut self) {
        self.kill();
        self.child = self.command.spawn().unwrap();
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts an etcd with this number of members, which keep their data in this folder.
pub async fn start_etcd(dir: &Path, members: usize) -> Vec<Member> {
    let free = || Free::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ports: Vec<(u16, u16)> = (0..members).map(|_| (free(), free())).collect();
    let at = |port| format!("http://127.0.0.1:{port}");
    let all: Vec<_> =
        ports.iter().enumerate().map(|(i, (_, peers))| format!("m{i}={}", at(*peers))).collect();
    let start = |(i, (port, peers)): (usize, &(u16, u16))| {
        let mut command = Command::new(std::env::var("ETCD").unwrap_or("etcd".into()));
        command
            .args(["--name", &format!("m{i}"), "--initial-cluster", &all.join(",")])
            .arg("--data-dir")
            .arg(dir.join(format!("etcd{i}")))
            .args(["--listen-client-urls", &at(*port), "--advertise-client-urls", &at(*port)])
            .args(["--listen-peer-urls", &at(*peers)])
            .args(["--initial-advertise-peer-urls", &at(*peers)])
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join(format!("etcd{i}.log"))).unwrap());
        let child = command.spawn().expect("package etcd-server");
        Member { port: *port, command, child }
    };
    let members: Vec<_> = ports.iter().enumerate().map(start).collect();
    let etcd = etcd(&[members[0].port]);
    until("etcd answers", || async { etcd.put("/probe", b"").await.is_ok() }).await;
    members
}

/// Returns a client of the members at these local ports.
pub fn etcd(ports: &[u16]) -> Etcd {
    let at = |port: &u16| Endpoint { tls: false, host: "127.0.0.1".into(), port: *port };
    Etcd::new(ports.iter().map(at).collect(), Duration::from_secs(1))
}

pub async fn until<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    let began = Instant::now();
    while !is().await {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The requests and replies that a proxy silently drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropFilter {
    requests: &'static [&'static str],
    answers: &'static [&'static str],
}

/// A proxy to etcd.
pub struct Proxy {
    pub port: u16,
    kept: watch::Sender<DropFilter>,
    kept_back: Arc<AtomicUsize>,
}

impl Proxy {
    pub const OPEN: DropFilter = DropFilter { requests: &[], answers: &[] };
    pub const CUT: DropFilter = DropFilter { requests: &[""], answers: &[] };
    /// Drops watches.
    pub const UNWATCHED: DropFilter = DropFilter { requests: &["watch"], answers: &[] };
    /// Drops transactions: keys can be read but not changed.
    pub const UNCHANGED: DropFilter = DropFilter { requests: &["kv/txn"], answers: &[] };
    /// Executes transactions but drops their replies.
    pub const UNANSWERED: DropFilter = DropFilter { requests: &[], answers: &["kv/txn"] };

    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().port();
        let (kept, is_kept) = watch::channel(Self::OPEN);
        let kept_back = Arc::<AtomicUsize>::default();
        let counted = kept_back.clone();
        tokio::spawn(async move {
            loop {
                let (from, _) = listener.accept().await.unwrap();
                tokio::spawn(pass(from, port, is_kept.clone(), counted.clone()));
            }
        });
        Self { port: at, kept, kept_back }
    }

    pub fn set(&self, kept: DropFilter) {
        self.kept.send_replace(kept);
    }

    /// Returns the number of dropped requests and replies.
    pub fn kept_back(&self) -> usize {
        self.kept_back.load(Ordering::Relaxed)
    }
}

/// Forwards one connection, which is one request.
async fn pass(
    mut from: TcpStream,
    port: u16,
    mut kept: watch::Receiver<DropFilter>,
    kept_back: Arc<AtomicUsize>,
) {
    let mut head = [0; 64];
    let Ok(n) = from.peek(&mut head).await else { return };
    let path = String::from_utf8_lossy(&head[..n]).into_owned();
    let is =
        move |list: &[&str]| list.iter().any(|word| path.contains(&format!("POST /v3/{word}")));
    let now = *kept.borrow_and_update();
    let there = SocketAddr::from(([127, 0, 0, 1], port));
    let through = async {
        let Ok(mut to) = TcpStream::connect(there).await else { return };
        if is(now.answers) {
            kept_back.fetch_add(1, Ordering::Relaxed);
            let _ = copy(&mut from, &mut to).await;
        } else {
            let _ = copy_bidirectional(&mut from, &mut to).await;
        }
    };
    let cut = async {
        let _ = kept.wait_for(|kept| is(kept.requests)).await;
    };
    // In this order: a proxy that is already cut forwards nothing.
    let is_cut = tokio::select! { biased; () = cut => true, () = through => false };
    if is_cut {
        kept_back.fetch_add(1, Ordering::Relaxed);
        // Keep it open, silently.
        sleep(PATIENCE).await;
    }
}

/// A folder for the output of a test's programs.
pub struct World {
    pub member: Member,
    dir: tempfile::TempDir,
}

impl World {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let member = start_etcd(dir.path(), 1).await.remove(0);
        Self { member, dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a client of its etcd.
    pub fn etcd(&self) -> Etcd {
        etcd(&[self.member.port])
    }

    /// Returns the service `files`.
    pub fn service(&self) -> Service {
        self.named("files")
    }

    /// Returns a service with a separate journal.
    pub fn named(&self, name: &str) -> Service {
        let word = |s: &str| s.to_owned();
        let journal = self.path(&format!("{name}.journal"));
        let (journal, lock) = (journal.display(), self.path(&format!("{name}.lock")));
        let run = format!(
            "exec 9>{}; flock -n 9 || {{ echo twice $HEADGATE_NODE >>{journal}; exit 1; }}; \
             echo serves $HEADGATE_NODE $HEADGATE_EPOCH $$ >>{journal}; echo headgate ready; exec sleep 1000",
            lock.display()
        );
        let fence = format!(
            "test ! -e {} || {{ echo no power switch >&2; exit 1; }}; \
             echo fenced $HEADGATE_FENCED_NODE $HEADGATE_FENCED_EPOCH >>{journal}",
            self.path("no-fence").display()
        );
        Service {
            name: word(name),
            command: vec![word("sh"), word("-c"), run],
            addresses: Vec::new(),
            nodes: Vec::new(),
            fence: Some(vec![word("sh"), word("-c"), fence]),
            attach: None,
            detach: None,
            connections: None,
            has_sessions: false,
        }
    }

    pub fn node(&self, name: &str, port: u16, service: Service) -> Node {
        self.node_of(name, &[port], &[service])
    }

    /// Starts a node with several services and several members of etcd.
    pub fn node_of(&self, name: &str, ports: &[u16], services: &[Service]) -> Node {
        let (name, services) = (name.to_owned(), services.to_vec());
        let plan = Plan { name: "c".into(), node: name, ttl: TTL, services };
        let (stop, stopped) = watch::channel(false);
        Node { stop, task: tokio::spawn(Runner::new(plan, etcd(ports)).run(stopped)) }
    }

    /// Returns the output of the programs of `files`, line by line; checks that no two ran at the same time.
    pub fn journal(&self) -> Vec<String> {
        self.journal_of("files")
    }

    pub fn journal_of(&self, service: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(&format!("{service}.journal")));
        let text = text.unwrap_or_default();
        assert!(!text.contains("twice"), "{text}");
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for this number of lines, and returns the last.
    pub async fn line(&self, number: usize) -> Vec<String> {
        self.line_of("files", number).await
    }

    pub async fn line_of(&self, service: &str, number: usize) -> Vec<String> {
        let what = format!("line {number} of {service}: {:?}", self.journal_of(service));
        until(&what, || async { self.journal_of(service).len() >= number }).await;
        self.journal_of(service)[number - 1].split(' ').map(str::to_owned).collect()
    }

    /// Returns the key `owner` of a service.
    pub async fn owner(&self, service: &str) -> Option<Entry> {
        self.etcd().get(&Keys::new("c", service).owner).await.unwrap()
    }
}

/// Makes etcd forget all revisions before the newest, as many are configured to do every few minutes.
pub async fn compact(port: u16) {
    let etcd = etcd(&[port]);
    etcd.put("/newest", b"").await.unwrap();
    etcd.delete("/newest").await.unwrap();
    etcd.put("/newest", b"").await.unwrap();
    let newest = etcd.get("/newest").await.unwrap().unwrap().created;
    let body = format!("{{\"revision\":\"{newest}\",\"physical\":true}}");
    post(port, "kv/compaction", &body, "").await;
}

/// Sends a request to etcd that the client does not support, and returns the reply.
pub async fn post(port: u16, path: &str, body: &str, token: &str) -> String {
    let head = format!("POST /v3/{path} HTTP/1.0\r\nContent-Length: {}\r\n", body.len());
    let request = match token {
        "" => format!("{head}\r\n{body}"),
        token => format!("{head}Authorization: {token}\r\n\r\n{body}"),
    };
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(" 200 "), "{path}: {answer}");
    answer
}

/// Returns the member that leads the others.
pub async fn leader(members: &[Member]) -> usize {
    for (number, member) in members.iter().enumerate() {
        let answer = post(member.port, "maintenance/status", "{}", "").await;
        let id = |name: &str| {
            let rest = answer.split_once(&format!("\"{name}\":\""))?.1;
            Some(rest.split_once('"')?.0.to_owned())
        };
        if id("leader").is_some() && id("leader") == id("member_id") {
            return number;
        }
    }
    panic!("etcd has no leader");
}

pub struct Node {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), String>>,
}

impl Node {
    pub async fn end(self) {
        self.stop.send(true).unwrap();
        self.task.await.unwrap().unwrap();
    }

    /// Ends all its tasks and programs at once.
    pub fn dies(self) {
        self.task.abort();
    }
}

pub fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid).join("cmdline").exists()
        && fs::read(Path::new("/proc").join(pid).join("cmdline")).is_ok_and(|c| !c.is_empty())
}
