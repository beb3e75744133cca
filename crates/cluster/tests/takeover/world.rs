//! etcd, a way to it that fails in several manners, and nodes whose services are programs.

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

/// The shortest that a member of etcd with its defaults gives is two seconds.
pub const TTL: Duration = Duration::from_secs(3);
/// What a loaded machine takes for what should take no time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A member of etcd.
pub struct Member {
    pub port: u16,
    command: Command,
    child: Child,
}

impl Member {
    /// It ends, and begins again with its data.
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

/// An etcd of so many members, which keep their data in this folder.
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

/// A client of the members at these ports of this machine.
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

/// What a way to etcd keeps back; nobody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    requests: &'static [&'static str],
    answers: &'static [&'static str],
}

/// A way to etcd.
pub struct Way {
    pub port: u16,
    kept: watch::Sender<Kept>,
    kept_back: Arc<AtomicUsize>,
}

impl Way {
    pub const OPEN: Kept = Kept { requests: &[], answers: &[] };
    pub const CUT: Kept = Kept { requests: &[""], answers: &[] };
    /// Without watches.
    pub const UNWATCHED: Kept = Kept { requests: &["watch"], answers: &[] };
    /// Without transactions: nothing is changed, and keys are read.
    pub const UNCHANGED: Kept = Kept { requests: &["kv/txn"], answers: &[] };
    /// Transactions are carried out, and no answer comes.
    pub const UNANSWERED: Kept = Kept { requests: &[], answers: &["kv/txn"] };

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

    pub fn set(&self, kept: Kept) {
        self.kept.send_replace(kept);
    }

    /// How many requests were kept back, or passed on and their answers kept back.
    pub fn kept_back(&self) -> usize {
        self.kept_back.load(Ordering::Relaxed)
    }
}

/// One connection is one request.
async fn pass(
    mut from: TcpStream,
    port: u16,
    mut kept: watch::Receiver<Kept>,
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
    // In this order: a way that is cut already passes nothing on.
    let is_cut = tokio::select! { biased; () = cut => true, () = through => false };
    if is_cut {
        kept_back.fetch_add(1, Ordering::Relaxed);
        // Held open, silent.
        sleep(PATIENCE).await;
    }
}

/// A folder for what the programs of a test tell.
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

    /// A client of its etcd.
    pub fn etcd(&self) -> Etcd {
        etcd(&[self.member.port])
    }

    /// The service `files`.
    pub fn service(&self) -> Service {
        self.named("files")
    }

    /// A service with a journal of its own.
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

    /// A node of several services, by several members of etcd.
    pub fn node_of(&self, name: &str, ports: &[u16], services: &[Service]) -> Node {
        let (name, services) = (name.to_owned(), services.to_vec());
        let plan = Plan { name: "c".into(), node: name, ttl: TTL, services };
        let (stop, stopped) = watch::channel(false);
        Node { stop, task: tokio::spawn(Runner::new(plan, etcd(ports)).run(stopped)) }
    }

    /// What the programs of `files` told, line by line; nothing was ever served twice at a time.
    pub fn journal(&self) -> Vec<String> {
        self.journal_of("files")
    }

    pub fn journal_of(&self, service: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(&format!("{service}.journal")));
        let text = text.unwrap_or_default();
        assert!(!text.contains("twice"), "{text}");
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for so many lines, and gives the last.
    pub async fn line(&self, number: usize) -> Vec<String> {
        self.line_of("files", number).await
    }

    pub async fn line_of(&self, service: &str, number: usize) -> Vec<String> {
        let what = format!("line {number} of {service}: {:?}", self.journal_of(service));
        until(&what, || async { self.journal_of(service).len() >= number }).await;
        self.journal_of(service)[number - 1].split(' ').map(str::to_owned).collect()
    }

    /// The key `owner` of a service.
    pub async fn owner(&self, service: &str) -> Option<Entry> {
        self.etcd().get(&Keys::new("c", service).owner).await.unwrap()
    }
}

/// etcd forgets what was before its newest revision, as many are told to do every few minutes.
pub async fn compact(port: u16) {
    let etcd = etcd(&[port]);
    etcd.put("/newest", b"").await.unwrap();
    etcd.delete("/newest").await.unwrap();
    etcd.put("/newest", b"").await.unwrap();
    let newest = etcd.get("/newest").await.unwrap().unwrap().created;
    let body = format!("{{\"revision\":\"{newest}\",\"physical\":true}}");
    post(port, "kv/compaction", &body, "").await;
}

/// What etcd answers to a request which its client here does not make.
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

/// The member that leads the others.
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

    /// All that it does ends, and its programs.
    pub fn dies(self) {
        self.task.abort();
    }
}

pub fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid).join("cmdline").exists()
        && fs::read(Path::new("/proc").join(pid).join("cmdline")).is_ok_and(|c| !c.is_empty())
}
