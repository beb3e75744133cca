//! A cluster on one machine.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::{TTL, headgate, until};

/// Variations of the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// The fence is storage that rejects the previous node, whose programs continue to run: here it only reports the call. Each
    /// node then has its own records, copied from the other node when it attaches them, since one machine has one lock for both.
    pub is_storage_fenced: bool,
    /// This host, which is not a node, has the address of the service.
    pub is_address_taken: bool,
    /// The service has an IPv6 address, too.
    pub has_ipv6: bool,
    /// etcd has three members instead of one.
    pub has_three_members: bool,
    /// A second service exists, with the share `archive`.
    pub has_second: bool,
    /// The share and the records are in a CephFS, which fences them.
    pub is_on_ceph: bool,
}

impl Setup {
    fn members(self) -> usize {
        if self.has_three_members { 3 } else { 1 }
    }
}

/// Ways to end the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// It gets the order to serve nothing.
    Drain,
    /// All of its processes end.
    Kill,
    /// Its link is cut.
    Cut,
    /// All of its processes are stopped.
    StandStill,
}

impl How {
    /// Returns the way with this name in the documents.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "drain" => Self::Drain,
            "kill" => Self::Kill,
            "cut" => Self::Cut,
            "stop" => Self::StandStill,
            _ => return None,
        })
    }
}

/// Runs a program that must succeed.
pub fn sh(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().expect(words[0]);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the answer of a member of etcd to an empty request.
fn post(at: &str, path: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(at.strip_prefix("http://")?).ok()?;
    let request = format!("POST {path} HTTP/1.0\r\nContent-Length: 2\r\n\r\n{{}}");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// A bridge with this host, two nodes and an etcd on it.
pub struct World {
    id: u32,
    dir: tempfile::TempDir,
    etcd: Vec<Option<Child>>,
    nodes: [Option<Child>; 2],
    setup: Setup,
}

/// Gives each world of this process a separate network.
static WORLDS: AtomicU32 = AtomicU32::new(0);

/// Returns the content of a file of the share, by name; empty if it does not exist.
pub type Reader = Box<dyn Fn(&str) -> Vec<u8>>;

impl World {
    fn net(&self) -> String {
        // One of 250 networks, so that tests of two source trees can run at once.
        format!("10.77.{}", self.id % 250)
    }

    pub fn vip(&self) -> String {
        format!("{}.10", self.net())
    }

    /// Returns the IPv6 address in its usual notation.
    pub fn vip6(&self) -> String {
        format!("fd77::{:x}:10", 0x100 + self.id % 250)
    }

    /// Returns the bridge device of this host, to which all nodes are connected.
    pub fn bridge(&self) -> String {
        format!("hgb{}", self.id)
    }

    /// Returns the address of the second service.
    pub fn second_vip(&self) -> String {
        format!("{}.11", self.net())
    }

    pub fn space(&self, node: usize) -> String {
        format!("hg{}-{node}", self.id)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a world whose first node is a candidate for the service.
    pub async fn new() -> Self {
        Self::of(Setup::default()).await
    }

    /// Creates a world with both nodes: the first serves, the second is a candidate.
    pub async fn of_both(setup: Setup) -> Self {
        let mut world = Self::of(setup).await;
        until("the service is served", || world.owner().is_some() && world.has_address(0)).await;
        world.start(1);
        until("the other node stands", || world.logs().matches("is a candidate for").count() == 2)
            .await;
        world
    }

    /// Creates a world of this setup, whose first node is a candidate for the service.
    pub async fn of(setup: Setup) -> Self {
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let (id, dir) = (std::process::id() * 8 + number, tempfile::tempdir().unwrap());
        let (net, bridge) = (format!("10.77.{}", id % 250), format!("hgb{id}"));
        sh(&format!("ip link add {bridge} type bridge"));
        sh(&format!("ip address add {net}.1/24 dev {bridge}"));
        sh(&format!("ip link set {bridge} up"));
        let etcd = (0..setup.members()).map(|_| None).collect();
        let mut world = Self { id, dir, etcd, nodes: [None, None], setup };
        for node in 0..2 {
            let (space, link) = (world.space(node), format!("hgl{id}-{node}"));
            sh(&format!("ip netns add {space}"));
            sh(&format!("ip link add {link} type veth peer name eth0 netns {space}"));
            sh(&format!("ip link set {link} master {bridge} up"));
            sh(&format!("ip -n {space} address add {net}.{}/24 dev eth0", node + 2));
            sh(&format!("ip -n {space} link set eth0 up"));
            sh(&format!("ip -n {space} link set lo up"));
        }
        for (node, number) in [(0, 0), (1, 1)] {
            // `ip netns exec` mounts these over the host's files, so that each node appears as a separate machine.
            let own = PathBuf::from("/etc/netns").join(world.space(node));
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("machine-id"), format!("{:032x}\n", id * 2 + number)).unwrap();
        }
        if setup.is_on_ceph {
            world.ceph(&["up"]);
            let (top, perm) = world.mounted("/");
            top.mkdir(&ceph_sys::Name::new(b"data").unwrap(), 0o777, &perm).unwrap();
        }
        if setup.is_address_taken {
            sh(&format!("ip address add {}/24 dev {bridge}", world.vip()));
        }
        for member in 0..setup.members() {
            world.start_etcd(member);
        }
        world.configure();
        until("etcd answers", || world.ask(0, &["status"]).is_some()).await;
        world.start(0);
        world
    }

    /// Runs a command on this world's Ceph, which listens on an address of this host that nodes reach; returns its output.
    fn ceph(&self, words: &[&str]) -> String {
        let mut script =
            Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/ceph/cluster"));
        script
            .args(words)
            .env("CEPH_AT", self.path("ceph"))
            .env("CEPH_IP", format!("{}.1", self.net()));
        let done = script.env("CEPH_PORT", "23300").output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Returns the number of clients on this node that Ceph has cut off.
    pub fn cut_off(&self, node: usize) -> usize {
        let at = format!("{}.{}:", self.net(), node + 2);
        let listed = self.ceph(&["ceph", "osd", "blocklist", "ls"]);
        listed.lines().filter(|line| line.starts_with(&at)).count()
    }

    /// Returns the path of that Ceph's configuration.
    fn ceph_conf(&self) -> PathBuf {
        self.path("ceph").join("ceph.conf")
    }

    /// Mounts a folder of that Ceph as a client that does not know the gateways.
    fn mounted(&self, folder: &str) -> (ceph_sys::Inode, ceph_sys::Perm) {
        let mount = ceph_sys::Mount::open(&ceph_sys::Options {
            conf: Some(&self.ceph_conf()),
            fs: "fs",
            root: folder,
            ..ceph_sys::Options::default()
        });
        let mount = mount.unwrap();
        let perm = ceph_sys::Perm::new(&mount, 0, 0, &[]).unwrap();
        (mount.root().unwrap(), perm)
    }

    /// Returns a reader of the share's files, wherever the share is.
    pub fn reader(&self) -> Reader {
        if !self.setup.is_on_ceph {
            let share = self.path("share");
            return Box::new(move |name| fs::read(share.join(name)).unwrap_or_default());
        }
        let (root, perm) = self.mounted("/data");
        Box::new(move |name| {
            let name = ceph_sys::Name::new(name.as_bytes()).unwrap();
            let Ok((inode, stat)) = root.lookup(&name, &perm) else { return Vec::new() };
            let file = std::sync::Arc::new(inode).open(0, &perm).unwrap();
            let mut data = vec![0; usize::try_from(stat.stx_size).unwrap()];
            let n = file.read(0, &mut [std::io::IoSliceMut::new(&mut data)]).unwrap();
            data.truncate(n);
            data
        })
    }

    /// Replaces etcd by one without data.
    pub fn forget(&mut self) {
        let mut member = self.etcd[0].take().unwrap();
        member.kill().unwrap();
        member.wait().unwrap();
        fs::remove_dir_all(self.path("etcd0")).unwrap();
        self.start_etcd(0);
    }

    /// Returns the address of a member of etcd; `port` is the first member's.
    fn member(&self, number: usize, port: usize) -> String {
        format!("http://{}.1:{}", self.net(), port + 10 * number)
    }

    /// Starts a member of etcd, also after it has ended.
    pub fn start_etcd(&mut self, number: usize) {
        let (clients, peers) = (self.member(number, 2379), self.member(number, 2380));
        let all = 0..self.etcd.len();
        let all: Vec<_> = all.map(|it| format!("m{it}={}", self.member(it, 2380))).collect();
        let mut etcd = Command::new(std::env::var("ETCD").unwrap_or("etcd".into()));
        etcd.args(["--name", &format!("m{number}"), "--initial-cluster", &all.join(",")]);
        etcd.arg("--data-dir").arg(self.path(&format!("etcd{number}")));
        etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        let log = fs::File::create(self.path(&format!("etcd{number}.log"))).unwrap();
        let child = etcd.stdout(Stdio::null()).stderr(log).spawn().expect("package etcd-server");
        self.etcd[number] = Some(child);
    }

    /// Kills the leading member of etcd and returns its number.
    pub fn kill_leader(&mut self) -> usize {
        let leads = |number: &usize| {
            let status = post(&self.member(*number, 2379), "/v3/maintenance/status");
            status.is_some_and(|it| it["leader"] == it["header"]["member_id"])
        };
        let leader = (0..self.etcd.len()).find(leads).expect("etcd has a leader");
        let mut member = self.etcd[leader].take().unwrap();
        member.kill().unwrap();
        member.wait().unwrap();
        leader
    }

    /// Ends a node in this way.
    pub fn strike(&self, how: How, node: usize) {
        match how {
            How::Drain => drop(self.ask(0, &["drain", &format!("gw{node}")]).unwrap()),
            How::Kill => self.signal(node, "-9"),
            How::Cut => self.link(node, "down"),
            How::StandStill => self.signal(node, "-STOP"),
        }
    }

    /// Checks that the node was fenced if necessary, and restores it.
    pub async fn mend(&mut self, how: How, node: usize) {
        let fenced = fs::read_to_string(self.path("fenced")).unwrap_or_default();
        if how == How::Drain {
            self.ask(0, &["undrain", &format!("gw{node}")]).unwrap();
        }
        if how == How::Drain && fenced.is_empty() {
            return;
        }
        if self.setup.is_on_ceph {
            if how == How::Cut {
                self.link(node, "up");
            }
            return self.repaired(node).await;
        }
        // A node that had no contact to etcd has not reported its release.
        let is_excused = self.setup.has_three_members && self.logs().contains("lost: the lease");
        assert!(how != How::Drain || is_excused, "whoever lets go needs no fence: {fenced}");
        assert_eq!(fenced.trim(), format!("gw{node}"), "{how:?}: {}", self.logs());
        fs::remove_file(self.path("fenced")).unwrap();
        if how == How::Cut {
            self.link(node, "up");
        }
        self.repaired(node).await;
    }

    fn configure(&self) {
        for folder in ["share", "state"] {
            fs::create_dir(self.path(folder)).unwrap();
        }
        fs::write(self.path("password"), "moves-with-it").unwrap();
        fs::set_permissions(self.path("password"), fs::Permissions::from_mode(0o600)).unwrap();
        let dir = self.dir.path().display();
        for node in 0..2 {
            let state = if self.setup.is_storage_fenced || self.setup.is_on_ceph {
                format!("state{node}")
            } else {
                "state".into()
            };
            let share = match self.setup.is_on_ceph {
                true => format!(
                    "shares: [{{name: data, squash: none, ceph: {{filesystem: fs, path: /data, config: {}}}}}]\n\
                     records: data",
                    self.ceph_conf().display()
                ),
                false => format!("shares: [{{name: data, path: {dir}/share, squash: none}}]"),
            };
            let text = format!(
                "{share}\n\
                 users: [{{name: alice, password_file: {dir}/password, uid: 0, gid: 0, groups: []}}]\n\
                 state: {dir}/{state}\nadmin: off\nnfs: {{lease: 2s, grace: 2s, portmap: off}}\n"
            );
            fs::write(self.path(&format!("files{node}.yaml")), text).unwrap();
        }
        // Acts as a power switch: kills all processes of that node. A process whose first thread has ended is in no namespace,
        // while other threads still hold its files.
        let switch = format!(
            "pids=$(ip netns pids hg{}-${{HEADGATE_FENCED_NODE#gw}}); kill -9 $pids\n\
             for pid in $pids; do\n\
             while grep -qs '^State:.[^XZ]' /proc/$pid/task/*/status; do sleep 0.01; done\n\
             done",
            self.id
        );
        let switch = if self.setup.is_storage_fenced { "" } else { &switch };
        self.script("fence", &format!("echo $HEADGATE_FENCED_NODE >>{dir}/fenced\n{switch}"));
        let attach = "n=${HEADGATE_NODE#gw}; o=$((1-n))\n\
                      if test -e state$o; then rm -rf state$n; cp -a state$o state$n; fi";
        self.script("attach", &format!("cd {dir}\n{attach}"));
        let attach = if self.setup.is_storage_fenced {
            format!("    attach: {dir}/attach\n    detach: /bin/true\n")
        } else {
            String::new()
        };
        let members: Vec<_> = (0..self.etcd.len()).map(|it| self.member(it, 2379)).collect();
        let second = match self.setup.has_second {
            true => self.second(),
            false => String::new(),
        };
        let etcd = format!("[{}]", members.join(", "));
        let fence = match self.setup.is_on_ceph {
            true => String::new(),
            false => format!("    fence: {dir}/fence\n"),
        };
        let vip6 = match self.setup.has_ipv6 {
            true => format!(", \"{}/64@eth0\"", self.vip6()),
            false => String::new(),
        };
        for node in 0..2 {
            let text = format!(
                "cluster:\n  etcd: {etcd}\n  node: gw{node}\n  ttl: {TTL}s\n  metrics: {net}.{host}:9465\n  \
                 services:\n  \
                 - name: files\n    config: {dir}/files{node}.yaml\n    addresses: [{vip}/24@eth0{vip6}]\n\
                 {fence}{attach}{second}",
                net = self.net(),
                host = node + 2,
                vip = self.vip(),
            );
            fs::write(self.path(&format!("gw{node}.yaml")), text).unwrap();
        }
    }

    /// Creates the second service and returns its part of the cluster file.
    fn second(&self) -> String {
        let dir = self.dir.path().display();
        for folder in ["archive", "second-state"] {
            fs::create_dir(self.path(folder)).unwrap();
        }
        let text = format!(
            "shares: [{{name: archive, path: {dir}/archive, squash: none}}]\n\
             users: [{{name: alice, password_file: {dir}/password, uid: 0, gid: 0, groups: []}}]\n\
             state: {dir}/second-state\nadmin: off\nnfs: {{lease: 2s, grace: 2s, portmap: off}}\n"
        );
        fs::write(self.path("second.yaml"), text).unwrap();
        format!(
            "  - name: second\n    config: {dir}/second.yaml\n    addresses: {}/24@eth0\n    fence: {dir}/fence\n",
            self.second_vip()
        )
    }

    /// Writes a program of this world.
    pub fn script(&self, name: &str, lines: &str) {
        fs::write(self.path(name), format!("#!/bin/sh\n{lines}\n")).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o700)).unwrap();
    }

    /// Runs the service on a node, as soon as it is elected.
    pub fn start(&mut self, node: usize) {
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

    /// Waits for the end of a node's runner, which must be an error.
    pub async fn refused(&mut self, node: usize) {
        let mut child = self.nodes[node].take().unwrap();
        until("the runner ends", || child.try_wait().unwrap().is_some()).await;
        assert!(!child.wait().unwrap().success());
    }

    /// Runs `headgate cluster` with this node's file.
    pub fn ask(&self, node: usize, words: &[&str]) -> Option<String> {
        let output = Command::new(headgate())
            .arg("cluster")
            .args(words)
            .arg("--config")
            .arg(self.path(&format!("gw{node}.yaml")))
            .output()
            .unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the service in the output of `headgate cluster status`.
    fn status(&self) -> Option<Value> {
        let mut status: Value = serde_json::from_str(&self.ask(0, &["status", "--json"])?).ok()?;
        Some(status["services"][0].take())
    }

    /// Returns the owner and its epoch.
    pub fn owner(&self) -> Option<(String, u64)> {
        let service = self.status()?;
        Some((service["node"].as_str()?.to_owned(), service["epoch"].as_u64()?))
    }

    /// Returns the duration of the takeover after this epoch, counted from the election.
    pub async fn takeover_seconds(&self, before: u64) -> f64 {
        let mut seconds = None;
        until("etcd says how it was taken over", || {
            let takeover = self.status().map(|mut service| service["takeover"].take());
            let takeover = takeover.filter(|it| it["epoch"].as_u64().is_some_and(|it| it > before));
            seconds = takeover.and_then(|it| it["seconds"].as_f64());
            seconds.is_some()
        })
        .await;
        seconds.unwrap()
    }

    pub fn logs(&self) -> String {
        let log =
            |node| fs::read_to_string(self.path(&format!("gw{node}.log"))).unwrap_or_default();
        format!("gw0:\n{}\ngw1:\n{}", log(0), log(1))
    }

    /// Sends a signal to all processes of a node.
    pub fn signal(&self, node: usize, signal: &str) {
        for pid in self.pids(node) {
            let _ = Command::new("kill").args([signal, &pid]).status();
        }
    }

    /// Returns all processes of a node.
    fn pids(&self, node: usize) -> Vec<String> {
        let pids = Command::new("ip").args(["netns", "pids", &self.space(node)]).output().unwrap();
        String::from_utf8_lossy(&pids.stdout).split_whitespace().map(str::to_owned).collect()
    }

    /// Returns the gateway process of a node.
    pub fn gateway(&self, node: usize) -> String {
        self.programs(node, "serve").pop().expect("a gateway runs there")
    }

    /// Returns the processes of this program on a node with this subcommand: `serve`, or `cluster`.
    pub fn programs(&self, node: usize, what: &str) -> Vec<String> {
        let does = |pid: &String| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|b| *b == 0).nth(1) == Some(what.as_bytes())
        };
        self.pids(node).into_iter().filter(does).collect()
    }

    /// Returns, for each connection with unread data at the service on a node, the number of bytes.
    pub fn unread(&self, node: usize) -> Vec<u64> {
        let tables = Command::new("ip")
            .args(["netns", "exec", &self.space(node), "cat", "/proc/net/tcp"])
            .output()
            .unwrap();
        let queued = |line: &str| {
            let queues = line.split_whitespace().nth(4)?;
            u64::from_str_radix(queues.split_once(':')?.1, 16).ok()
        };
        String::from_utf8_lossy(&tables.stdout)
            .lines()
            .skip(1)
            .filter_map(queued)
            .filter(|n| *n > 0)
            .collect()
    }

    /// Returns the states of a node's connections at the address of the service: column `st` of `/proc/net/tcp`.
    pub fn connections(&self, node: usize) -> Vec<String> {
        const LISTEN: &str = "0A";
        let ip: std::net::Ipv4Addr = self.vip().parse().unwrap();
        let from = format!("{:08X}:", u32::from_ne_bytes(ip.octets()));
        let tables = Command::new("ip")
            .args(["netns", "exec", &self.space(node), "cat", "/proc/net/tcp"])
            .output()
            .unwrap();
        let state = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[1].starts_with(&from) && words[3] != LISTEN).then(|| words[3].to_owned())
        };
        String::from_utf8_lossy(&tables.stdout).lines().skip(1).filter_map(state).collect()
    }

    /// Returns true if the node's TCP has acknowledged all data that clients of this host sent to the service.
    pub fn is_acknowledged(&self) -> bool {
        let ip: std::net::Ipv4Addr = self.vip().parse().unwrap();
        let to = format!("{:08X}:", u32::from_ne_bytes(ip.octets()));
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let waits = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[2].starts_with(&to) && !words[4].starts_with("00000000:")
        };
        !table.lines().skip(1).any(waits)
    }

    /// Returns a node's metrics.
    pub fn metrics(&self, node: usize) -> String {
        let at = format!("{}.{}:9465", self.net(), node + 2);
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answer
    }

    /// Returns true if this node has the address of the service.
    pub fn has_address(&self, node: usize) -> bool {
        self.has(node, &self.vip())
    }

    /// Returns true if this node has this address.
    pub fn has(&self, node: usize, ip: &str) -> bool {
        let shown = Command::new("ip").args(["-n", &self.space(node), "address"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains(&format!("{ip}/"))
    }

    /// Returns the device of this host that leads to a node.
    pub fn device(&self, node: usize) -> String {
        format!("hgl{}-{node}", self.id)
    }

    pub fn link(&self, node: usize, state: &str) {
        sh(&format!("ip link set hgl{}-{node} {state}", self.id));
    }

    /// Restarts a node as after a repair.
    pub async fn repaired(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].take() {
            self.signal(node, "-9");
            child.wait().unwrap();
        }
        self.start(node);
        // The new run removes the address that the previous one left.
        until("the address of a dead run is gone", || !self.has_address(node)).await;
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
        if self.setup.is_on_ceph {
            self.ceph(&["down"]);
        }
        for member in self.etcd.iter_mut().flatten() {
            let _ = member.kill();
            let _ = member.wait();
        }
        for node in 0..2 {
            let _ = Command::new("ip").args(["netns", "delete", &self.space(node)]).status();
            let _ = fs::remove_dir_all(PathBuf::from("/etc/netns").join(self.space(node)));
            let link = format!("hgl{}-{node}", self.id);
            let _ =
                Command::new("ip").args(["link", "delete", &link]).stderr(Stdio::null()).status();
        }
        let bridge = format!("hgb{}", self.id);
        let _ = Command::new("ip").args(["link", "delete", &bridge]).status();
    }
}
