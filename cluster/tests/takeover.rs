//! Two nodes and a real etcd. The service is a program that holds a lock while it runs: two at once would be seen.
//!
//! Wants `etcd` (package etcd-server): the tier `third` installs and runs it.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on says so.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener as Free};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cluster::election::{Keys, drained};
use cluster::etcd::{Endpoint, Etcd};
use cluster::{Plan, Runner, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The shortest that a member of etcd with its defaults gives is two seconds.
const TTL: Duration = Duration::from_secs(3);
/// What a loaded machine takes for what should take no time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A member of etcd of its own.
struct Member(
    Child,
    u16,
    #[expect(dead_code, reason = "the folder lives as long")] tempfile::TempDir,
);

impl Member {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let free = || Free::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (port, peers) = (free(), free());
        let at = |port| format!("http://127.0.0.1:{port}");
        let child = Command::new(std::env::var("ETCD").unwrap_or("etcd".into()))
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--listen-client-urls", &at(port), "--advertise-client-urls", &at(port)])
            .args(["--listen-peer-urls", &at(peers), "--initial-advertise-peer-urls", &at(peers)])
            .args(["--initial-cluster", &format!("default={}", at(peers))])
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.path().join("log")).unwrap())
            .spawn()
            .expect("package etcd-server");
        let member = Self(child, port, dir);
        let etcd = member.client(port);
        until("etcd answers", || async { etcd.put("/probe", b"").await.is_ok() }).await;
        member
    }

    fn client(&self, port: u16) -> Etcd {
        etcd(port)
    }
}

fn etcd(port: u16) -> Etcd {
    let at = Endpoint { tls: false, host: "127.0.0.1".into(), port };
    Etcd::new(vec![at], Duration::from_secs(1))
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    let began = Instant::now();
    while !is().await {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The way to etcd, which can be cut: nothing gets through, and nobody is told.
struct Way(u16, watch::Sender<bool>);

impl Way {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().port();
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                let (mut from, _) = listener.accept().await.unwrap();
                let mut is_cut = is_cut.clone();
                let was_cut = *is_cut.borrow();
                tokio::spawn(async move {
                    let through = async {
                        let there = SocketAddr::from(([127, 0, 0, 1], port));
                        let mut to = TcpStream::connect(there).await.unwrap();
                        let _ = copy_bidirectional(&mut from, &mut to).await;
                    };
                    let cut = async {
                        let _ = is_cut.wait_for(|cut| *cut).await;
                        // Held open, silent.
                        sleep(PATIENCE).await;
                    };
                    if was_cut {
                        sleep(PATIENCE).await;
                    } else {
                        tokio::select! { () = through => {}, () = cut => {} }
                    }
                });
            }
        });
        Self(at, cut)
    }
}

/// A folder for what the programs of a test tell.
struct World {
    member: Member,
    dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        Self { member: Member::start().await, dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn service(&self) -> Service {
        let word = |s: &str| s.to_owned();
        let journal = self.path("journal");
        let (journal, lock) = (journal.display(), self.path("lock"));
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
            name: word("files"),
            command: vec![word("sh"), word("-c"), run],
            addresses: Vec::new(),
            nodes: Vec::new(),
            fence: Some(vec![word("sh"), word("-c"), fence]),
            attach: None,
            detach: None,
            connections: None,
        }
    }

    fn node(&self, name: &str, port: u16, service: Service) -> Node {
        let plan = Plan { name: "c".into(), node: name.into(), ttl: TTL, services: vec![service] };
        let etcd = etcd(port);
        let (stop, stopped) = watch::channel(false);
        Node { stop, task: tokio::spawn(Runner::new(plan, etcd).run(stopped)) }
    }

    /// What the programs told, line by line; nothing was ever served twice at a time.
    fn journal(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("journal")).unwrap_or_default();
        assert!(!text.contains("twice"), "{text}");
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for so many lines, and gives the last.
    async fn line(&self, number: usize) -> Vec<String> {
        until(&format!("line {number} of {:?}", self.journal()), || async {
            self.journal().len() >= number
        })
        .await;
        self.journal()[number - 1].split(' ').map(str::to_owned).collect()
    }
}

/// etcd forgets what was before its newest revision, as many are told to do every few minutes.
async fn compact(port: u16) {
    let etcd = etcd(port);
    etcd.put("/newest", b"").await.unwrap();
    etcd.delete("/newest").await.unwrap();
    etcd.put("/newest", b"").await.unwrap();
    let newest = etcd.get("/newest").await.unwrap().unwrap().created;
    let body = format!("{{\"revision\":\"{newest}\",\"physical\":true}}");
    let request =
        format!("POST /v3/kv/compaction HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
}

struct Node {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), String>>,
}

impl Node {
    async fn end(self) {
        self.stop.send(true).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid).join("cmdline").exists()
        && fs::read(Path::new("/proc").join(pid).join("cmdline")).is_ok_and(|c| !c.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_handed_over_without_a_fence() {
    let world = World::new().await;
    let port = world.member.1;
    let etcd = world.member.client(port);
    let keys = Keys::new("c", "files");
    let one = world.node("gw1", port, world.service());
    let first = world.line(1).await;
    assert_eq!(first[..2], ["serves", "gw1"]);
    let two = world.node("gw2", port, world.service());
    // Chosen for another node.
    etcd.put(&keys.wanted, b"gw2").await.unwrap();
    let second = world.line(2).await;
    assert_eq!(second[..2], ["serves", "gw2"]);
    assert!(second[2].parse::<u64>().unwrap() > first[2].parse().unwrap(), "epochs grow");
    assert!(!lives(&first[3]), "the gateway before has ended");
    // Its node is drained, and is the one that was chosen: the other has it all the same.
    etcd.put(&drained("c", "gw2"), b"").await.unwrap();
    assert_eq!(world.line(3).await[..2], ["serves", "gw1"]);
    etcd.delete(&drained("c", "gw2")).await.unwrap();
    // Back to where it was chosen to be; then that node ends.
    assert_eq!(world.line(4).await[..2], ["serves", "gw2"]);
    two.end().await;
    let last = world.line(5).await;
    assert_eq!(last[..2], ["serves", "gw1"]);
    one.end().await;
    assert!(!lives(&last[3]));
    assert!(world.journal().iter().all(|line| !line.starts_with("fenced")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_is_cut_off_stops_before_another_is_elected_and_is_fenced() {
    let world = World::new().await;
    let way = Way::to(world.member.1).await;
    let one = world.node("gw1", way.0, world.service());
    let first = world.line(1).await;
    let two = world.node("gw2", world.member.1, world.service());
    way.1.send(true).unwrap();
    // The lock of the journal would tell if it had not stopped.
    let fenced = world.line(2).await;
    assert_eq!(fenced, ["fenced", "gw1", &first[2]]);
    assert!(!lives(&first[3]), "it stopped by its own clock");
    assert_eq!(world.line(3).await[..2], ["serves", "gw2"]);
    // It comes back, and is told that another owns it now.
    way.1.send(false).unwrap();
    two.end().await;
    assert_eq!(world.line(4).await[..2], ["serves", "gw1"]);
    one.end().await;
    assert_eq!(world.journal().len(), 4, "{:?}", world.journal());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_fence_does_not_serve() {
    let world = World::new().await;
    let way = Way::to(world.member.1).await;
    let one = world.node("gw1", way.0, world.service());
    world.line(1).await;
    fs::write(world.path("no-fence"), b"").unwrap();
    let two = world.node("gw2", world.member.1, world.service());
    way.1.send(true).unwrap();
    // Two times it was elected, and gave up.
    let etcd = world.member.client(world.member.1);
    let keys = Keys::new("c", "files");
    let began = Instant::now();
    let mut epochs = BTreeSet::new();
    while epochs.len() < 3 {
        epochs.extend(etcd.get(&keys.owner).await.unwrap().map(|owner| owner.created));
        assert!(began.elapsed() < PATIENCE, "{epochs:?}");
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(world.journal().len(), 1, "{:?}", world.journal());
    fs::remove_file(world.path("no-fence")).unwrap();
    assert_eq!(world.line(2).await[..2], ["fenced", "gw1"]);
    assert_eq!(world.line(3).await[..2], ["serves", "gw2"]);
    two.end().await;
    one.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_ends_is_started_again_and_one_that_cannot_goes_to_another_node() {
    let world = World::new().await;
    let port = world.member.1;
    let one = world.node("gw1", port, world.service());
    let mut line = world.line(1).await;
    let two = world.node("gw2", port, world.service());
    let epoch = line[2].clone();
    for number in 2..=4 {
        assert!(Command::new("kill").args(["-9", &line[3]]).status().unwrap().success());
        line = world.line(number).await;
        assert_eq!(line[..3], ["serves", "gw1", &epoch], "in the same epoch");
    }
    assert!(Command::new("kill").args(["-9", &line[3]]).status().unwrap().success());
    let other = world.line(5).await;
    assert_eq!(other[..2], ["serves", "gw2"]);
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_etcd_a_service_stops_and_with_it_comes_back() {
    let world = World::new().await;
    let way = Way::to(world.member.1).await;
    let one = world.node("gw1", way.0, world.service());
    let first = world.line(1).await;
    way.1.send(true).unwrap();
    until("it stops", || async { !lives(&first[3]) }).await;
    way.1.send(false).unwrap();
    let again = world.line(2).await;
    assert_eq!(again[..2], ["serves", "gw1"], "the machine itself needs no fence");
    assert!(again[2].parse::<u64>().unwrap() > first[2].parse().unwrap());
    one.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_stays_where_it_is_while_the_node_that_was_chosen_is_not_there() {
    let world = World::new().await;
    let port = world.member.1;
    let etcd = world.member.client(port);
    let one = world.node("gw1", port, world.service());
    let first = world.line(1).await;
    etcd.put(&Keys::new("c", "files").wanted, b"gw2").await.unwrap();
    // So long an owner that leaves for it would have looked three times, and left.
    sleep(TTL).await;
    assert!(lives(&first[3]), "{:?}", world.journal());
    let two = world.node("gw2", port, world.service());
    assert_eq!(world.line(2).await[..2], ["serves", "gw2"]);
    one.end().await;
    two.end().await;
}

/// In which epoch the service is owned, if it is.
async fn epoch(world: &World) -> Option<u64> {
    let etcd = world.member.client(world.member.1);
    etcd.get(&Keys::new("c", "files").owner).await.unwrap().map(|it| it.created)
}

/// How long it takes from the end of this epoch until line `number` of the journal is there.
async fn after(world: &World, ended: Option<u64>, number: usize) -> Duration {
    until("the epoch ends", || async { epoch(world).await != ended }).await;
    let began = Instant::now();
    world.line(number).await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_that_was_chosen_is_not_waited_for_where_it_owned_the_service_last() {
    let world = World::new().await;
    let port = world.member.1;
    let etcd = world.member.client(port);
    let way = Way::to(port).await;
    etcd.put(&Keys::new("c", "files").wanted, b"gw1").await.unwrap();
    let one = world.node("gw1", way.0, world.service());
    assert_eq!(world.line(1).await[..2], ["serves", "gw1"]);
    let two = world.node("gw2", port, world.service());
    // It stands, and waits for the end of the owner.
    sleep(TTL).await;
    let first = epoch(&world).await;
    way.1.send(true).unwrap();
    let waited = after(&world, first, 2).await;
    assert!(waited < TTL, "{waited:?} until gw1 was fenced, which was cut off");
    assert_eq!(world.line(3).await[..2], ["serves", "gw2"]);
    // It comes back, and has the service again; then it is drained.
    way.1.send(false).unwrap();
    assert_eq!(world.line(4).await[..2], ["serves", "gw1"]);
    let third = epoch(&world).await;
    etcd.put(&drained("c", "gw1"), b"").await.unwrap();
    let waited = after(&world, third, 5).await;
    assert!(waited < TTL, "{waited:?} until another served, when gw1 was drained");
    assert_eq!(world.line(5).await[..2], ["serves", "gw2"]);
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_is_as_fast_where_etcd_has_forgotten_when_the_owner_was_elected() {
    let world = World::new().await;
    let port = world.member.1;
    let way = Way::to(port).await;
    let one = world.node("gw1", way.0, world.service());
    world.line(1).await;
    compact(port).await;
    let two = world.node("gw2", port, world.service());
    // It has stood, and waits.
    sleep(TTL).await;
    let began = Instant::now();
    way.1.send(true).unwrap();
    assert_eq!(world.line(3).await[..2], ["serves", "gw2"]);
    assert!(began.elapsed() < 5 * TTL, "{:?}", began.elapsed());
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_longer_than_a_ttl_to_let_go_is_not_fenced() {
    let world = World::new().await;
    let port = world.member.1;
    let etcd = world.member.client(port);
    let journal = world.path("journal");
    let slow = |word: &str| {
        let line = format!("sleep {}; echo {word} >>{}", 2 * TTL.as_secs(), journal.display());
        vec!["sh".into(), "-c".into(), line]
    };
    let service = Service {
        attach: Some(vec!["true".into()]),
        detach: Some(slow("detached")),
        ..world.service()
    };
    let one = world.node("gw1", port, service.clone());
    world.line(1).await;
    let two = world.node("gw2", port, service);
    etcd.put(&Keys::new("c", "files").wanted, b"gw2").await.unwrap();
    assert_eq!(world.line(2).await, ["detached"]);
    assert_eq!(world.line(3).await[..2], ["serves", "gw2"]);
    one.end().await;
    two.end().await;
}

/// A member that lost the others knows nothing of what they decide.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_on_a_member_without_a_leader_ends() {
    let dir = tempfile::tempdir().unwrap();
    let free = || Free::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ports: Vec<(u16, u16)> = (0..3).map(|_| (free(), free())).collect();
    let at = |port| format!("http://127.0.0.1:{port}");
    let all: Vec<_> =
        ports.iter().enumerate().map(|(i, (_, peers))| format!("m{i}={}", at(peers))).collect();
    let mut members: Vec<Child> = Vec::new();
    for (i, (port, peers)) in ports.iter().enumerate() {
        let mut member = Command::new(std::env::var("ETCD").unwrap_or("etcd".into()));
        member.args(["--name", &format!("m{i}"), "--initial-cluster", &all.join(",")]);
        member.arg("--data-dir").arg(dir.path().join(i.to_string()));
        member.args(["--listen-client-urls", &at(port), "--advertise-client-urls", &at(port)]);
        member.args([
            "--listen-peer-urls",
            &at(peers),
            "--initial-advertise-peer-urls",
            &at(peers),
        ]);
        member.stdout(Stdio::null()).stderr(Stdio::null());
        members.push(member.spawn().expect("package etcd-server"));
    }
    let one = etcd(ports[0].0);
    until("etcd answers", || async { one.put("/probe", b"").await.is_ok() }).await;
    let watching = tokio::spawn(async move { one.wait("/x/", 1, PATIENCE).await });
    // It is with the member when that answers another.
    etcd(ports[0].0).get("/probe").await.unwrap();
    for member in &mut members[1..] {
        member.kill().unwrap();
        member.wait().unwrap();
    }
    let began = Instant::now();
    let ended = watching.await.unwrap();
    let took = began.elapsed();
    members[0].kill().unwrap();
    members[0].wait().unwrap();
    // Who waits looks again, and is answered by none that has no leader.
    assert!(took < PATIENCE / 2, "{ended:?} after {took:?}");
}
