//! Two nodes, each in a network namespace of its own on one bridge, a real etcd, and clients of three kinds while the service
//! moves: by order, by a kill, by a cut link, by a node that stands still and wakes.
//!
//! Wants root, `ip` and `etcd` (packages iproute2, etcd-server): the tier `third` installs and runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::target::Target;
use client::{Credential, Volume};
use iobuf::Buf;
use serde_json::Value;
use tokio::time::{sleep, timeout};

/// Of the owner's lease in etcd.
const TTL: u64 = 3;
/// What a machine under load takes for what needs no time.
const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;

fn headgate() -> &'static str {
    env!("CARGO_BIN_EXE_headgate")
}

/// Runs a program that must succeed.
fn sh(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().expect(words[0]);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// A bridge with this host, two nodes and an etcd on it.
struct World {
    id: u32,
    dir: tempfile::TempDir,
    etcd: Child,
    nodes: [Option<Child>; 2],
}

impl World {
    fn net(&self) -> String {
        // One of 250 networks, so that two tests of two trees can run at once.
        format!("10.77.{}", self.id % 250)
    }

    fn vip(&self) -> String {
        format!("{}.10", self.net())
    }

    fn space(&self, node: usize) -> String {
        format!("hg{}-{node}", self.id)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn new() -> Self {
        let (id, dir) = (std::process::id(), tempfile::tempdir().unwrap());
        let (net, bridge) = (format!("10.77.{}", id % 250), format!("hgb{id}"));
        sh(&format!("ip link add {bridge} type bridge"));
        sh(&format!("ip address add {net}.1/24 dev {bridge}"));
        sh(&format!("ip link set {bridge} up"));
        let at = |port: u16| format!("http://{net}.1:{port}");
        let etcd = Command::new(std::env::var("ETCD").unwrap_or("etcd".into()))
            .arg("--data-dir")
            .arg(dir.path().join("etcd"))
            .args(["--listen-client-urls", &at(2379), "--advertise-client-urls", &at(2379)])
            .args(["--listen-peer-urls", &at(2380), "--initial-advertise-peer-urls", &at(2380)])
            .args(["--initial-cluster", &format!("default={}", at(2380))])
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.path().join("etcd.log")).unwrap())
            .spawn()
            .expect("package etcd-server");
        let mut world = Self { id, dir, etcd, nodes: [None, None] };
        for node in 0..2 {
            let (space, link) = (world.space(node), format!("hgl{id}-{node}"));
            sh(&format!("ip netns add {space}"));
            sh(&format!("ip link add {link} type veth peer name eth0 netns {space}"));
            sh(&format!("ip link set {link} master {bridge} up"));
            sh(&format!("ip -n {space} address add {net}.{}/24 dev eth0", node + 2));
            sh(&format!("ip -n {space} link set eth0 up"));
            sh(&format!("ip -n {space} link set lo up"));
        }
        world.configure();
        until("etcd answers", || world.ask(0, &["status"]).is_some()).await;
        world.start(0);
        world
    }

    fn configure(&self) {
        for folder in ["share", "state"] {
            fs::create_dir(self.path(folder)).unwrap();
        }
        fs::write(self.path("password"), "moves-with-it").unwrap();
        fs::set_permissions(self.path("password"), fs::Permissions::from_mode(0o600)).unwrap();
        let dir = self.dir.path().display();
        fs::write(
            self.path("files.yaml"),
            format!(
                "shares: [{{name: data, path: {dir}/share, squash: none}}]\n\
                 users: [{{name: alice, password_file: {dir}/password, uid: 0, gid: 0, groups: []}}]\n\
                 state: {dir}/state\nadmin: off\nnfs: {{lease: 2s, grace: 2s, portmap: off}}\n"
            ),
        )
        .unwrap();
        // A power switch: nothing of that node runs any more.
        fs::write(
            self.path("fence"),
            format!(
                "#!/bin/sh\necho $HEADGATE_FENCED_NODE >>{dir}/fenced\n\
                 ip netns pids hg{}-${{HEADGATE_FENCED_NODE#gw}} | xargs -r kill -9\n",
                self.id
            ),
        )
        .unwrap();
        fs::set_permissions(self.path("fence"), fs::Permissions::from_mode(0o700)).unwrap();
        for node in 0..2 {
            let text = format!(
                "cluster:\n  etcd: http://{net}.1:2379\n  node: gw{node}\n  ttl: {TTL}s\n  services:\n  \
                 - name: files\n    config: {dir}/files.yaml\n    addresses: {vip}/24@eth0\n    fence: {dir}/fence\n",
                net = self.net(),
                vip = self.vip(),
            );
            fs::write(self.path(&format!("gw{node}.yaml")), text).unwrap();
        }
    }

    fn start(&mut self, node: usize) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("gw{node}.log")))
            .unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", &self.space(node), headgate(), "cluster", "run", "--config"])
            .arg(self.path(&format!("gw{node}.yaml")))
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.nodes[node] = Some(child);
    }

    /// `headgate cluster`, of this node's file.
    fn ask(&self, node: usize, words: &[&str]) -> Option<String> {
        let output = Command::new(headgate())
            .arg("cluster")
            .args(words)
            .arg("--config")
            .arg(self.path(&format!("gw{node}.yaml")))
            .output()
            .unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Who serves, and in which epoch.
    fn owner(&self) -> Option<(String, u64)> {
        let status: Value = serde_json::from_str(&self.ask(0, &["status", "--json"])?).ok()?;
        let service = &status["services"][0];
        Some((service["node"].as_str()?.to_owned(), service["epoch"].as_u64()?))
    }

    fn logs(&self) -> String {
        let log =
            |node| fs::read_to_string(self.path(&format!("gw{node}.log"))).unwrap_or_default();
        format!("gw0:\n{}\ngw1:\n{}", log(0), log(1))
    }

    /// A signal to all that runs on a node.
    fn signal(&self, node: usize, signal: &str) {
        let pids = Command::new("ip").args(["netns", "pids", &self.space(node)]).output().unwrap();
        for pid in String::from_utf8_lossy(&pids.stdout).split_whitespace() {
            let _ = Command::new("kill").args([signal, pid]).status();
        }
    }

    fn link(&self, node: usize, state: &str) {
        sh(&format!("ip link set hgl{}-{node} {state}", self.id));
    }

    /// What ended a node was repaired.
    async fn repaired(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].take() {
            self.signal(node, "-9");
            child.wait().unwrap();
        }
        let space = self.space(node);
        let vip = self.vip();
        self.start(node);
        // The run that begins takes away what the one before left.
        until("the address of a dead run is gone", || {
            let shown = Command::new("ip").args(["-n", &space, "address"]).output().unwrap();
            !String::from_utf8_lossy(&shown.stdout).contains(&format!("{vip}/"))
        })
        .await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        for node in 0..2 {
            self.signal(node, "-9");
            if let Some(mut child) = self.nodes[node].take() {
                let _ = child.wait();
            }
        }
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
        for node in 0..2 {
            let _ = Command::new("ip").args(["netns", "delete", &self.space(node)]).status();
            let link = format!("hgl{}-{node}", self.id);
            let _ =
                Command::new("ip").args(["link", "delete", &link]).stderr(Stdio::null()).status();
        }
        let bridge = format!("hgb{}", self.id);
        let _ = Command::new("ip").args(["link", "delete", &bridge]).status();
    }
}

/// A client that writes one file after the other, and knows which the service has acknowledged.
struct Writer {
    name: &'static str,
    target: String,
    acknowledged: AtomicU64,
    longest: AtomicU64,
    stop: AtomicBool,
}

fn block(name: &str, number: u64) -> Vec<u8> {
    format!("{name} {number:08} ").into_bytes().into_iter().cycle().take(BLOCK).collect()
}

impl Writer {
    fn new(name: &'static str, target: String) -> Arc<Self> {
        let (acknowledged, longest, stop) = Default::default();
        Arc::new(Self { name, target, acknowledged, longest, stop })
    }

    async fn connect(&self) -> client::Result<Volume> {
        let target: Target = self.target.parse().unwrap();
        Volume::open(&target, &Local::default(), Credential::sys(0, 0, &[])).await
    }

    fn file(&self, number: u64) -> String {
        format!("{}.{number}", self.name)
    }

    /// A new file with one block.
    async fn write(&self, volume: &Volume, number: u64) -> client::Result<()> {
        let file = volume.create(&self.file(number)).await?;
        let taken = volume.write(&file, 0, vec![Buf::from(block(self.name, number))]).await?;
        assert_eq!(taken as usize, BLOCK);
        volume.commit(&file).await?;
        volume.close(file).await
    }

    async fn run(self: Arc<Self>) {
        let mut opened = None;
        let mut last = Instant::now();
        let mut said = String::new();
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.acknowledged.load(Ordering::Relaxed);
            let once = async {
                let volume = match opened.take() {
                    Some(volume) => volume,
                    None => self.connect().await?,
                };
                self.write(opened.insert(volume), number).await
            };
            match timeout(Duration::from_secs(1), once).await {
                Ok(Ok(())) => {
                    let stall = u64::try_from(last.elapsed().as_millis()).unwrap();
                    self.longest.fetch_max(stall, Ordering::Relaxed);
                    last = Instant::now();
                    self.acknowledged.store(number + 1, Ordering::Relaxed);
                    sleep(Duration::from_millis(10)).await;
                }
                // A client of its own kind would do so: connect again, and write again.
                failed => {
                    let why =
                        failed.map_or("no answer in a second".into(), |done| format!("{done:?}"));
                    if said != why {
                        println!("{} after {number} blocks: {why}", self.name);
                        said = why;
                    }
                    opened = None;
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn count(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Everything that was acknowledged is there.
    fn check(&self, share: &Path) {
        for number in 0..self.count() {
            let data = fs::read(share.join(self.file(number))).unwrap_or_default();
            assert_eq!(data, block(self.name, number), "{}: block {number} is lost", self.name);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum How {
    Drain,
    Kill,
    Cut,
    StandStill,
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_go_on_when_the_service_moves_and_nothing_acknowledged_is_lost() {
    let mut world = World::new().await;
    until("the service is served", || world.owner().is_some()).await;
    world.start(1);
    let vip = world.vip();
    let writers = [
        Writer::new("v3", format!("nfs://{vip}/data?version=3&mountport=2049")),
        Writer::new("v41", format!("nfs://{vip}/data?version=4.1")),
        Writer::new("smb", format!("smb://alice:moves-with-it@{vip}/data")),
    ];
    let tasks: Vec<_> = writers.iter().map(|w| tokio::spawn(w.clone().run())).collect();
    let progress = |from: [u64; 3]| writers.iter().zip(from).all(|(w, from)| w.count() > from + 5);
    let counts = || [writers[0].count(), writers[1].count(), writers[2].count()];
    until("all clients write", || progress([0; 3])).await;
    for how in [How::Drain, How::Kill, How::Cut, How::StandStill] {
        let (owner, epoch) = world.owner().unwrap();
        let node = usize::from(owner == "gw1");
        for writer in &writers {
            writer.longest.store(0, Ordering::Relaxed);
        }
        match how {
            How::Drain => drop(world.ask(0, &["drain", &owner]).unwrap()),
            How::Kill => world.signal(node, "-9"),
            How::Cut => world.link(node, "down"),
            How::StandStill => world.signal(node, "-STOP"),
        }
        until("another node serves", || {
            world.owner().is_some_and(|(other, later)| other != owner && later > epoch)
        })
        .await;
        let before = counts();
        until(&format!("all clients write after {how:?}"), || progress(before)).await;
        let stalls = writers.each_ref().map(|w| w.longest.load(Ordering::Relaxed));
        println!("{how:?}: {owner} in epoch {epoch}; longest stalls in ms: {stalls:?}");
        let fenced = fs::read_to_string(world.path("fenced")).unwrap_or_default();
        match how {
            How::Drain => {
                assert_eq!(fenced, "", "whoever lets go needs no fence");
                world.ask(0, &["undrain", &owner]).unwrap();
            }
            How::Kill | How::Cut | How::StandStill => {
                assert_eq!(fenced.trim(), owner, "{how:?}: {}", world.logs());
                fs::remove_file(world.path("fenced")).unwrap();
                if matches!(how, How::Cut) {
                    world.link(node, "up");
                }
                world.repaired(node).await;
            }
        }
    }
    a_second_run_on_the_node_of_the_owner_takes_no_address(&world).await;
    for writer in &writers {
        writer.stop.store(true, Ordering::Relaxed);
    }
    for task in tasks {
        task.await.unwrap();
    }
    for writer in &writers {
        writer.check(&world.path("share"));
    }
    println!("acknowledged and there: {:?} blocks", counts());
}

async fn a_second_run_on_the_node_of_the_owner_takes_no_address(world: &World) {
    let node = usize::from(world.owner().unwrap().0 == "gw1");
    let log = world.path("second.log");
    let mut second = Command::new("ip")
        .args(["netns", "exec", &world.space(node), headgate(), "cluster", "run", "--config"])
        .arg(world.path(&format!("gw{node}.yaml")))
        .stderr(fs::File::create(&log).unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the second run has begun", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("stands for its services"))
    })
    .await;
    // It asks etcd every fifth of a TTL.
    sleep(Duration::from_secs(TTL)).await;
    sh(&format!("kill -TERM {}", second.id()));
    second.wait().unwrap();
    let shown = Command::new("ip").args(["-n", &world.space(node), "address"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(&format!("{}/", world.vip())), "{shown}");
}

/// Killed alone, as by the kernel when memory is short.
#[tokio::test]
async fn a_gateway_ends_with_the_process_that_may_let_it_serve() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    for folder in ["share", "state"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
    }
    fs::write(
        dir.path().join("files.yaml"),
        format!(
            "shares: [{{name: data, path: {here}/share, squash: none}}]\nstate: {here}/state\nadmin: off\n\
             bind: 127.0.0.1\nnfs: {{port: 0, portmap: off}}\n"
        ),
    )
    .unwrap();
    let line = format!(
        "HEADGATE_PARENT=$$ HEADGATE_EPOCH=7 {} serve --config {here}/files.yaml >{here}/out 2>{here}/err & \
         echo $! >{here}/pid; wait",
        headgate()
    );
    let mut parent = Command::new("sh").args(["-c", &line]).spawn().unwrap();
    let err = || fs::read_to_string(dir.path().join("err")).unwrap_or_default();
    until("it is ready", || {
        let out = fs::read_to_string(dir.path().join("out")).unwrap_or_default();
        assert!(parent.try_wait().unwrap().is_none(), "{out}{}", err());
        out.contains("headgate ready")
    })
    .await;
    let pid = fs::read_to_string(dir.path().join("pid")).unwrap();
    let lives = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    assert!(lives());
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the gateway has ended", || !lives()).await;
    // Without that process it does not begin.
    let output = Command::new(headgate())
        .args(["serve", "--config"])
        .arg(dir.path().join("files.yaml"))
        .envs([("HEADGATE_PARENT", "1"), ("HEADGATE_EPOCH", "8")])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("`headgate cluster run` has ended"), "{why}");
}

#[tokio::test]
async fn what_cannot_be_served_safely_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    fs::create_dir(dir.path().join("share")).unwrap();
    let service = dir.path().join("files.yaml");
    let cluster = dir.path().join("cluster.yaml");
    let told = |service_text: &str, fence: &str| {
        fs::write(&service, service_text).unwrap();
        let text = format!(
            "cluster:\n  etcd: http://127.0.0.1:1\n  services:\n  - name: files\n    config: {here}/files.yaml\n    \
             addresses: 192.0.2.10/24@eth0\n{fence}"
        );
        fs::write(&cluster, text).unwrap();
        let output = Command::new(headgate())
            .args(["cluster", "run", "--config"])
            .arg(&cluster)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let share = format!("shares: [{{name: data, path: {here}/share}}]\n");
    let why = told(&format!("{share}state: {here}/state\n"), "");
    assert!(
        why.contains("cluster.yaml:4:11") && why.contains("name a program as `fence`"),
        "{why}"
    );
    let why = told(&share, "    fence: /bin/true\n");
    assert!(why.contains("cluster.yaml:4:11") && why.contains("names no `state`"), "{why}");
    let why = told("shares: 1\n", "    fence: /bin/true\n");
    assert!(why.contains("files.yaml:1:9"), "{why}");
    // The file of a cluster is no gateway's.
    let output =
        Command::new(headgate()).args(["check", "--config"]).arg(&cluster).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("this is the file of a cluster"), "{why}");
}
