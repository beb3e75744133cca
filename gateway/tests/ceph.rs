//! Tests of a share in CephFS over every protocol, and of failures of a cluster daemon or the gateway.
//!
//! Needs the cluster that `tests/ceph/cluster up` starts, smbclient, and the suite that `cargo xtask smbtorture` unpacks;
//! `cargo xtask test --tier third` provides them and runs this test.
#![allow(clippy::unwrap_used)] // A test that cannot go on says so.

mod common;
mod smbtorture;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::connect::{self, Local};
use client::nfs3::{CreateHow, Fh, Nfs3, SetAttr, Stable};
use client::target::Target;
use client::{Credential, Error, NoCallbacks, Volume, mount, nfs4, smb};
use iobuf::Buf;
use tokio::sync::{Mutex, MutexGuard};
use vfs::ceph::{CephBackend, CephConfig};
use vfs::{Backend, Cred};

/// Time limit for every answer of a healthy cluster, including the restart of an MDS.
const SOON: Duration = Duration::from_secs(90);

const PASSWORD: &str = "secret";

/// All tests share one cluster, so each must hold this lock.
static CLUSTER: Mutex<()> = Mutex::const_new(());

/// `nfsstat3` (RFC 1813 section 2.6).
const ACCES: u32 = 13;
const EXIST: u32 = 17;
const NOSPC: u32 = 28;
/// NFS 3 and NFS 4 use the same number.
const DELAY: u32 = 10008;

fn conf() -> String {
    std::env::var("CEPH_CONF").unwrap_or("/var/tmp/headgate-ceph/ceph.conf".into())
}

fn cluster(args: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ceph/cluster");
    let done = Command::new(script).args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A gateway with one share, a new folder of the cluster that every user may write.
struct Gateway {
    child: Child,
    /// The share's folder in the file system.
    folder: String,
    home: tempfile::TempDir,
    nfs: std::net::SocketAddr,
    smb: std::net::SocketAddr,
    _alone: MutexGuard<'static, ()>,
}

impl Gateway {
    async fn new() -> Self {
        Self::with("").await
    }

    /// Starts a gateway with these options of the share's folder, each after a comma.
    async fn with(words: &str) -> Self {
        let alone = CLUSTER.lock().await;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("g{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let whole = CephConfig { conf: Some(conf().into()), ..CephConfig::new("fs", "/") };
        let (root, set) = (Cred::root(), vfs::SetAttr { mode: Some(0o777), ..Default::default() });
        let top = CephBackend::open(&whole).unwrap().root();
        top.mkdir(vfs::Acting::caller(&root), name.as_bytes(), set).await.unwrap();
        drop(top);
        let home = tempfile::tempdir().unwrap();
        let password = home.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
        let text = format!(
            "bind: 127.0.0.1\nadmin: 127.0.0.1:0\nrdma: off\nnfs: {{port: 0, portmap: off}}\nsmb: {{port: 0}}\n\
             privileged_ports: off\nusers: [{{name: alice, password_file: {}, uid: 1000, gid: 1000}}]\nshares:\n  \
             - {{name: data, squash: none, ceph: {{filesystem: fs, path: /{name}, config: {}{words}}}}}\n",
            password.display(),
            conf()
        );
        fs::write(home.path().join("gw.yaml"), text).unwrap();
        let (child, [nfs, smb]) = Self::serve(home.path());
        Self { child, folder: format!("/{name}"), home, nfs, smb, _alone: alone }
    }

    fn serve(home: &Path) -> (Child, [std::net::SocketAddr; 2]) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
            .args(["serve", "--config", "gw.yaml", "--state", "state"])
            .current_dir(home)
            .stdout(Stdio::piped())
            .stderr(File::create(home.join("log")).unwrap())
            .spawn()
            .unwrap();
        let [nfs, smb, _] = common::listening(&mut child, home);
        (child, [nfs, smb])
    }

    /// Kills the gateway with SIGKILL and starts it on the same state folder.
    fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let (child, [nfs, smb]) = Self::serve(self.home.path());
        (self.child, self.nfs, self.smb) = (child, nfs, smb);
    }

    /// Opens the same folder with another client of the cluster.
    fn beside(&self) -> Beside {
        let mount = ceph_sys::Mount::open(&ceph_sys::Options {
            conf: Some(Path::new(&conf())),
            fs: "fs",
            root: &self.folder,
            ..ceph_sys::Options::default()
        });
        let mount = mount.unwrap();
        let perm = ceph_sys::Perm::new(&mount, 0, 0, &[]).unwrap();
        Beside { root: mount.root().unwrap(), perm }
    }

    /// Runs `headgate` with these arguments for this gateway and returns its output.
    fn told(&self, args: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        let done = command.args(args).args(["--state", "state"]).current_dir(&self.home).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    async fn volume(&self, by: &str) -> Volume {
        let (nfs, smb) = (self.nfs, self.smb);
        let at = match by {
            "smb" => format!("smb://alice:{PASSWORD}@{smb}/data"),
            version => format!("nfs://{nfs}/data?version={version}&mountport={}", nfs.port()),
        };
        let target: Target = at.parse().unwrap();
        Volume::open(&target, &Local::default(), Credential::sys(1000, 1000, &[])).await.unwrap()
    }

    /// Runs these commands in smbclient and returns its output.
    async fn client(&self, words: &str) -> String {
        let (port, home) = (self.smb.port().to_string(), self.home.path());
        let mut command = tokio::process::Command::new("smbclient");
        command.args(["//127.0.0.1/data", "-p", &port, "-U", &format!("alice%{PASSWORD}")]);
        let done = command.args(["-c", words]).current_dir(home).output().await.unwrap();
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    }

    /// Returns the times of the previous versions of this name, in the client's spelling.
    async fn versions(&self, name: &str) -> Vec<String> {
        let told = self.client(&format!("allinfo {name}")).await;
        told.lines().filter(|line| line.starts_with("@GMT-")).map(str::to_owned).collect()
    }

    /// Connects over NFS 3 as this user and returns the share's folder too.
    async fn nfs3(&self, uid: u32) -> (Nfs3, Fh) {
        let (local, cred) = (Local::default(), Credential::sys(uid, uid, &[]));
        let rpc = connect::tcp(self.nfs, &local, Arc::new(NoCallbacks)).await.unwrap();
        let root = mount::mount(&rpc, &cred, "/data").await.unwrap();
        (Nfs3::new(rpc, cred), root)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Stops it in order, so that its session ends at once and other tests do not wait for it.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("{}", fs::read_to_string(self.home.path().join("log")).unwrap_or_default());
        }
    }
}

/// `O_RDWR` and `O_TRUNC`.
const WRITE_ANEW: i32 = 0o1002;

/// A client of the cluster that does not know the gateway.
struct Beside {
    root: ceph_sys::Inode,
    perm: ceph_sys::Perm,
}

fn named(name: &str) -> ceph_sys::Name {
    ceph_sys::Name::new(name.as_bytes()).unwrap()
}

impl Beside {
    fn write(&self, name: &str, data: &[u8]) {
        let (inode, _) = self.root.lookup(&named(name), &self.perm).unwrap();
        let file = Arc::new(inode).open(WRITE_ANEW, &self.perm).unwrap();
        assert_eq!(file.write(0, &[std::io::IoSlice::new(data)]), Ok(data.len()));
        file.fsync(false).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let (inode, stat) = self.root.lookup(&named(name), &self.perm).unwrap();
        let file = Arc::new(inode).open(0, &self.perm).unwrap();
        let mut data = vec![0; usize::try_from(stat.stx_size).unwrap()];
        let n = file.read(0, &mut [std::io::IoSliceMut::new(&mut data)]).unwrap();
        data.truncate(n);
        data
    }

    fn snapshots(&self) -> ceph_sys::Inode {
        self.root.lookup(&named(".snap"), &self.perm).unwrap().0
    }
}

/// Returns bytes that differ by position.
fn pattern(seed: u8, n: usize) -> Vec<u8> {
    let byte = |i: usize| (i as u64).wrapping_mul(131).wrapping_add(i as u64 >> 8).to_le_bytes()[0];
    (0..n).map(|i| byte(i) ^ seed).collect()
}

/// Repeats the call like a client that receives NFS3ERR_JUKEBOX or NFS4ERR_DELAY.
async fn again<T>(call: impl AsyncFn() -> client::Result<T>) -> T {
    let began = Instant::now();
    loop {
        match call().await {
            Err(Error::Nfs3(DELAY) | Error::Nfs4(_, DELAY)) if began.elapsed() < SOON => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => return other.unwrap(),
        }
    }
}

async fn write(volume: &Volume, name: &str, data: &[u8]) {
    let file = again(async || volume.create(name).await).await;
    let mut at = 0;
    while at < data.len() {
        let some = &data[at..data.len().min(at + (1 << 20))];
        let write = async || volume.write(&file, at as u64, vec![Buf::from(some.to_vec())]).await;
        at += again(write).await as usize;
    }
    again(async || volume.commit(&file).await).await;
    volume.close(file).await.unwrap();
}

async fn read(volume: &Volume, name: &str) -> Vec<u8> {
    let file = again(async || volume.find(name).await).await;
    let size = usize::try_from(again(async || volume.size(&file).await).await).unwrap();
    let mut all = Vec::new();
    while all.len() < size {
        let count = u32::try_from((size - all.len()).min(1 << 20)).unwrap();
        let (data, _) = again(async || volume.read(&file, all.len() as u64, count).await).await;
        let before = all.len();
        data.iter().for_each(|buf| all.extend_from_slice(buf));
        assert!(all.len() > before, "nothing at {before} of {size}");
    }
    volume.close(file).await.unwrap();
    all
}

const PROTOCOLS: [&str; 3] = ["3", "4.1", "smb"];

#[tokio::test(flavor = "multi_thread")]
async fn every_size_is_the_same_by_every_protocol() {
    const MIB: usize = 1 << 20;
    let gateway = Gateway::new().await;
    let mut volumes = Vec::new();
    for by in PROTOCOLS {
        volumes.push((by, gateway.volume(by).await));
    }
    let sizes = [0, 1, 4095, 4096, 4097, 64 << 10, MIB, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1];
    for (n, size) in sizes.into_iter().enumerate() {
        let (by, writer) = &volumes[n % volumes.len()];
        let (name, data) = (format!("f{size}"), pattern(n.to_le_bytes()[0], size));
        write(writer, &name, &data).await;
        for (and, reader) in &volumes {
            assert!(read(reader, &name).await == data, "{size} by {by}, read by {and}: it differs");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_its_own_rights_alone() {
    let gateway = Gateway::new().await;
    let ((ann, root), (bob, _)) = (gateway.nfs3(1001).await, gateway.nfs3(1002).await);
    let private = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let (file, attr) = ann.create(&root, b"f", CreateHow::Guarded(private)).await.unwrap();
    assert_eq!(attr.map(|a| (a.uid, a.gid)), Some((1001, 1001)));
    ann.write(&file, 0, vec![Buf::from(b"data".to_vec())], Stable::File).await.unwrap();
    assert!(matches!(bob.read(&file, 0, 4).await, Err(Error::Nfs3(ACCES))));
    let data = vec![Buf::from(b"DATA".to_vec())];
    assert!(matches!(bob.write(&file, 0, data, Stable::Unstable).await, Err(Error::Nfs3(ACCES))));
    let open = SetAttr { mode: Some(0o604), ..SetAttr::default() };
    ann.setattr(&file, &open).await.unwrap();
    let some = bob.read(&file, 0, 4).await.unwrap();
    assert!(some.data.iter().flat_map(|buf| buf.iter()).eq(b"data"));
    let (folder, _) = ann.mkdir(&root, b"d", 0o700).await.unwrap();
    assert!(matches!(bob.lookup(&folder, b"x").await, Err(Error::Nfs3(ACCES))));
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_and_data_stay_when_the_gateway_is_killed() {
    let mut gateway = Gateway::new().await;
    let (nfs, root) = gateway.nfs3(1000).await;
    let (folder, _) = nfs.mkdir(&root, b"d", 0o755).await.unwrap();
    let new = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::default() });
    let (file, _) = nfs.create(&folder, b"f", new).await.unwrap();
    // Unstable writes without a COMMIT.
    let data = pattern(7, 1 << 20);
    for at in 0..4_u64 {
        let done =
            nfs.write(&file, at << 20, vec![Buf::from(data.clone())], Stable::Unstable).await;
        let done = done.unwrap();
        assert_eq!((done.count, done.committed), (1 << 20, 1), "it is DATA_SYNC at least");
    }
    let began = Instant::now();
    gateway.kill_and_start();
    println!("ready {:?} after the kill", began.elapsed());
    let (nfs, again) = gateway.nfs3(1000).await;
    assert_eq!(again.as_bytes(), root.as_bytes());
    assert_eq!(nfs.getattr(&file).await.unwrap().size, 4 << 20);
    for at in 0..4_u64 {
        let read = nfs.read(&file, at << 20, 1 << 20).await.unwrap();
        assert!(read.data.iter().flat_map(|buf| buf.iter()).eq(&data), "{at}: it differs");
    }
    nfs.rename(&folder, b"f", &root, b"g").await.unwrap();
    assert_eq!(nfs.lookup(&root, b"g").await.unwrap().0.as_bytes(), file.as_bytes());
}

/// A client whose create was executed but not answered sends it again.
#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_create_is_repeated_when_the_gateway_was_killed() {
    let mut gateway = Gateway::new().await;
    let (nfs, root) = gateway.nfs3(1000).await;
    let mine = || CreateHow::Exclusive(*b"verifier");
    let (file, _) = nfs.create(&root, b"f", mine()).await.unwrap();
    gateway.kill_and_start();
    let (nfs, root) = gateway.nfs3(1000).await;
    let create = async |how| nfs.create(&root, b"f", how).await.map(|(file, _)| file);
    let other = create(CreateHow::Exclusive(*b"Verifier")).await;
    assert!(matches!(other, Err(Error::Nfs3(EXIST))), "{other:?}");
    assert_eq!(create(mine()).await.unwrap().as_bytes(), file.as_bytes());
    // After the answer the client sets the times (RFC 1813 section 3.3.8).
    let now = Some((1_700_000_000, 0));
    let times = SetAttr { mtime: now, atime: now, ..SetAttr::default() };
    nfs.setattr(&file, &times).await.unwrap();
    assert!(matches!(create(mine()).await, Err(Error::Nfs3(EXIST))));
}

/// Clients get no error: their requests wait, and continue when an MDS is available again.
#[tokio::test(flavor = "multi_thread")]
async fn an_mds_that_dies_is_waited_for() {
    let gateway = Gateway::new().await;
    let done = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicU64::new(0));
    let mut workers = Vec::new();
    for by in PROTOCOLS {
        let volume = gateway.volume(by).await;
        let (done, stop) = (done.clone(), stop.clone());
        let work = async move || {
            let mut n = 0_u32;
            while stop.load(Ordering::Relaxed) == 0 {
                let (name, data) = (format!("{by}-{n}"), pattern(n.to_le_bytes()[0], 5000));
                write(&volume, &name, &data).await;
                assert!(read(&volume, &name).await == data, "{name} differs");
                n += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let own = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        workers.push(std::thread::spawn(move || own().block_on(work())));
    }
    let until = async |count: u64| {
        let began = Instant::now();
        while done.load(Ordering::Relaxed) < count {
            assert!(began.elapsed() < SOON, "nothing goes on");
            assert!(workers.iter().all(|w| !w.is_finished()), "one has failed");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    until(20).await;
    tokio::task::spawn_blocking(|| cluster(&["stop", "mds"])).await.unwrap();
    tokio::task::spawn_blocking(|| cluster(&["start", "mds"])).await.unwrap();
    until(done.load(Ordering::Relaxed) + 30).await;
    stop.store(1, Ordering::Relaxed);
    for worker in workers {
        tokio::task::spawn_blocking(move || worker.join()).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_is_no_space() {
    let gateway = Gateway::new().await;
    let (nfs, root) = gateway.nfs3(1000).await;
    let new = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::default() });
    let (file, _) = nfs.create(&root, b"f", new).await.unwrap();
    let write = async |at: u64| {
        let data = vec![Buf::from(pattern(3, 1 << 16))];
        nfs.write(&file, at << 16, data, Stable::Unstable).await.map(drop)
    };
    write(0).await.unwrap();
    cluster(&["ceph", "osd", "pool", "set-quota", "data", "max_bytes", "1"]);
    let began = Instant::now();
    let mut at = 1;
    let refused = loop {
        match write(at).await {
            Ok(()) if began.elapsed() < SOON => at += 1,
            other => break other,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    cluster(&["ceph", "osd", "pool", "set-quota", "data", "max_bytes", "0"]);
    assert!(matches!(refused, Err(Error::Nfs3(NOSPC))), "{refused:?}");
    while let Err(e) = write(at).await {
        assert!(matches!(e, Error::Nfs3(NOSPC)) && began.elapsed() < 2 * SOON, "{e:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let read = nfs.read(&file, 0, 1 << 16).await.unwrap();
    assert!(read.data.iter().flat_map(|buf| buf.iter()).eq(&pattern(3, 1 << 16)), "it differs");
}

/// Lists and reads the previous versions with an independent client.
#[tokio::test(flavor = "multi_thread")]
async fn previous_versions_are_those_of_snapshots() {
    let gateway = Gateway::new().await;
    let volume = gateway.volume("smb").await;
    let beside = gateway.beside();
    let (folder, _) = beside.root.mkdir(&named("d"), 0o777, &beside.perm).unwrap();
    write(&volume, "d\\f", b"monday").await;
    // A write after the snapshot is visible to the client.
    beside.snapshots().mkdir(&named("a"), 0o755, &beside.perm).unwrap();
    let client = async |words: String| gateway.client(&words).await;
    let versions = async |name: &str| gateway.versions(name).await;
    let all = versions("d\\f").await;
    let [monday] = &all[..] else { panic!("{all:?}") };
    write(&volume, "d\\f", b"tuesday").await;
    write(&volume, "d\\new", b"new").await;
    assert_eq!(versions("d\\new").await, [""; 0], "it was not there then");
    assert_eq!(versions("d").await, all);
    let got = async |name: &str| {
        let told = client(format!("get \"{name}\" got")).await;
        let data = fs::read(gateway.home.path().join("got")).map_err(|_| told);
        let _ = fs::remove_file(gateway.home.path().join("got"));
        data
    };
    assert_eq!(got(&format!("{monday}\\d\\f")).await.unwrap(), b"monday");
    assert_eq!(got("d\\f").await.unwrap(), b"tuesday");
    // Deleted names, and a name in a deleted folder.
    for name in ["f", "new"] {
        folder.unlink(&named(name), &beside.perm).unwrap();
    }
    beside.root.rmdir(&named("d"), &beside.perm).unwrap();
    assert_eq!(got(&format!("{monday}\\d\\f")).await.unwrap(), b"monday");
    let never = got("@GMT-2001.01.01-00.00.00\\d\\f").await.unwrap_err();
    assert!(never.contains("NT_STATUS_OBJECT_NAME_NOT_FOUND"), "{never}");
    let changed = client(format!("del \"{monday}\\d\\f\"")).await;
    assert!(changed.contains("NT_STATUS_"), "{changed}");
    assert_eq!(got(&format!("{monday}\\d\\f")).await.unwrap(), b"monday");
    beside.snapshots().rmdir(&named("a"), &beside.perm).unwrap();
    let gone = got(&format!("{monday}\\d\\f")).await.unwrap_err();
    assert!(gone.contains("NT_STATUS_OBJECT_NAME_NOT_FOUND"), "{gone}");
}

/// Runs Samba's suite on a file, one of its streams, and the share's folder.
#[tokio::test(flavor = "multi_thread")]
async fn smbtorture_of_previous_versions() {
    let gateway = Gateway::new().await;
    let volume = gateway.volume("smb").await;
    let beside = gateway.beside();
    write(&volume, "f", b"monday").await;
    write(&volume, "f:s", b"stream").await;
    beside.snapshots().mkdir(&named("a"), 0o755, &beside.perm).unwrap();
    let [monday] = &gateway.versions("f").await[..] else { panic!("one snapshot, one version") };
    let suite = smbtorture::suite();
    let mut failures = Vec::new();
    for test in smbtorture::of("ceph") {
        let mut command = smbtorture::command(&suite, gateway.home.path());
        let port = gateway.smb.port().to_string();
        command.args(["//127.0.0.1/data", "-p", &port, "-U", &format!("alice%{PASSWORD}")]);
        let told = [format!("snapshot={monday}"), "file=f".into(), "stream=s".into()];
        command.args(told.map(|what| format!("--option=torture:twrp_{what}")));
        command.arg("--option=torture:twrp_stream_size=6");
        failures.extend(smbtorture::failure(command, test));
    }
    beside.snapshots().rmdir(&named("a"), &beside.perm).unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Returns whether SMB and NFS clients of the gateway may cache this file.
async fn cacheable(gateway: &Gateway, name: &str) -> (u32, bool) {
    let (smb, nfs) = (gateway.volume("smb").await, gateway.volume("4.1").await);
    let (Volume::Smb(smb), Volume::V4(nfs, root)) = (&smb, &nfs) else { unreachable!() };
    // READ_CACHING and HANDLE_CACHING.
    let how = smb::OpenHow { caching: smb::Caching::Lease([7; 16], 3), ..smb::OpenHow::READ };
    let (file, lease) = smb.open_cached(name, &how).await.unwrap();
    smb.close(file).await.unwrap();
    let open = nfs.open(root, name.as_bytes(), b"owner", nfs4::OpenHow::READ).await.unwrap();
    (lease, open.delegation.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_cache_where_no_other_client_of_the_cluster_writes() {
    let gateway = Gateway::new().await;
    write(&gateway.volume("3").await, "f", b"data").await;
    assert_eq!(cacheable(&gateway, "f").await, (3, true));
}

/// No client caches, and each reads the other's writes at once.
#[tokio::test(flavor = "multi_thread")]
async fn another_client_of_the_cluster_writes_beside() {
    let gateway = Gateway::with(", exclusive: false").await;
    let beside = gateway.beside();
    let mut volumes = Vec::new();
    for by in PROTOCOLS {
        volumes.push((by, gateway.volume(by).await));
    }
    write(&volumes[0].1, "f", b"first").await;
    assert_eq!(cacheable(&gateway, "f").await, (0, false));
    for round in 0..8 {
        let theirs = pattern(round, 100 + usize::from(round));
        beside.write("f", &theirs);
        for (by, volume) in &volumes {
            assert_eq!(read(volume, "f").await, theirs, "{round} by {by}");
        }
        let (by, volume) = &volumes[usize::from(round) % volumes.len()];
        let ours = pattern(!round, 50 + usize::from(round));
        write(volume, "f", &ours).await;
        assert_eq!(beside.read("f"), ours, "{round} by {by}");
        // The same for names.
        let name = format!("d{round}");
        beside.root.mkdir(&named(&name), 0o755, &beside.perm).unwrap();
        let (nfs, root) = gateway.nfs3(1000).await;
        let (found, _) = nfs.lookup(&root, name.as_bytes()).await.unwrap();
        beside.root.rmdir(&named(&name), &beside.perm).unwrap();
        assert!(nfs.lookup(&root, name.as_bytes()).await.is_err());
        assert!(nfs.getattr(&found).await.is_err());
    }
}

/// Every operation fails at once, the status gives the reason, and a reload mounts the folder again.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_the_cluster_has_cut_off_says_so() {
    const IO: u32 = 5;
    let gateway = Gateway::new().await;
    let (nfs, root) = gateway.nfs3(1000).await;
    let new = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::default() });
    let (file, _) = nfs.create(&root, b"f", new).await.unwrap();
    let data = || vec![Buf::from(b"data".to_vec())];
    nfs.write(&file, 0, data(), Stable::File).await.unwrap();
    assert!(!gateway.told(&["status"]).contains("cut this gateway off"));
    let address = address_of(&gateway.folder);
    cluster(&["ceph", "osd", "blocklist", "add", &address, "600"]);
    let began = Instant::now();
    let refused = loop {
        match nfs.write(&file, 4, data(), Stable::Unstable).await {
            Ok(_) if began.elapsed() < SOON => tokio::time::sleep(Duration::from_millis(20)).await,
            other => break other.map(drop),
        }
    };
    assert!(matches!(refused, Err(Error::Nfs3(IO))), "{refused:?}");
    let all = async {
        assert!(matches!(nfs.read(&file, 0, 4).await.map(drop), Err(Error::Nfs3(IO))));
        assert!(matches!(nfs.getattr(&file).await.map(drop), Err(Error::Nfs3(IO))));
        assert!(matches!(nfs.lookup(&root, b"f").await.map(drop), Err(Error::Nfs3(IO))));
        assert!(matches!(nfs.mkdir(&root, b"d", 0o755).await.map(drop), Err(Error::Nfs3(IO))));
    };
    tokio::time::timeout(Duration::from_secs(10), all).await.unwrap();
    let status = gateway.told(&["status"]);
    assert!(status.contains("share data: the cluster has cut this gateway off"), "{status}");
    let log = fs::read_to_string(gateway.home.path().join("log")).unwrap();
    assert_eq!(log.matches("the cluster has cut this gateway off").count(), 1, "{log}");
    // The new mount has another address.
    gateway.told(&["reload"]);
    let (nfs, root) = gateway.nfs3(1000).await;
    let (file, _) = nfs.lookup(&root, b"f").await.unwrap();
    let read = nfs.read(&file, 0, 4).await.unwrap();
    assert!(read.data.iter().flat_map(|buf| buf.iter()).eq(b"data"));
    assert!(!gateway.told(&["status"]).contains("cut this gateway off"));
    cluster(&["ceph", "osd", "blocklist", "rm", &address]);
}

/// Returns the cluster's address of the client that has mounted this folder.
fn address_of(folder: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ceph/cluster");
    let list = Command::new(script).args(["ceph", "tell", "mds.a", "session", "ls"]).output();
    let list: serde_json::Value = serde_json::from_slice(&list.unwrap().stdout).unwrap();
    let sessions = list.as_array().unwrap();
    let its = sessions.iter().find(|s| s["client_metadata"]["root"] == folder).unwrap();
    let entity = &its["entity"]["addr"];
    format!("{}/{}", entity["addr"].as_str().unwrap(), entity["nonce"])
}
