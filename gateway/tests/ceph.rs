//! A share in CephFS by every protocol, and what becomes of it when a daemon of the cluster or the gateway itself dies.
//!
//! It wants the cluster that `tests/ceph/cluster up` starts; `cargo xtask test --tier third` does that, and runs this.
#![allow(clippy::unwrap_used)] // A test that cannot go on says so.

mod common;

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
use client::{Credential, Error, NoCallbacks, Volume, mount};
use iobuf::Buf;
use tokio::sync::{Mutex, MutexGuard};
use vfs::ceph::{CephBackend, CephConfig};
use vfs::{Backend, Cred};

/// No answer of a cluster that is whole is later than this; an MDS that starts again takes some of it.
const SOON: Duration = Duration::from_secs(90);

const PASSWORD: &str = "secret";

/// There is one cluster: what becomes of it concerns all tests.
static CLUSTER: Mutex<()> = Mutex::const_new(());

/// `nfsstat3` (RFC 1813 section 2.6).
const ACCES: u32 = 13;
const NOSPC: u32 = 28;
/// The same number by either version.
const DELAY: u32 = 10008;

fn conf() -> String {
    std::env::var("CEPH_CONF").unwrap_or("/var/tmp/headgate-ceph/ceph.conf".into())
}

fn cluster(args: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ceph/cluster");
    let done = Command::new(script).args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A gateway with one share, a new folder of the cluster that everybody may write.
struct Gateway {
    child: Child,
    home: tempfile::TempDir,
    nfs: std::net::SocketAddr,
    smb: std::net::SocketAddr,
    _alone: MutexGuard<'static, ()>,
}

impl Gateway {
    async fn new() -> Self {
        let alone = CLUSTER.lock().await;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("g{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let whole = CephConfig { conf: Some(conf().into()), ..CephConfig::new("fs", "/") };
        let (root, set) = (Cred::root(), vfs::SetAttr { mode: Some(0o777), ..Default::default() });
        let top = CephBackend::open(&whole).unwrap().root();
        top.mkdir(&root, name.as_bytes(), set).await.unwrap();
        drop(top);
        let home = tempfile::tempdir().unwrap();
        let password = home.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
        let text = format!(
            "bind: 127.0.0.1\nadmin: 127.0.0.1:0\nrdma: off\nnfs: {{port: 0, portmap: off}}\nsmb: {{port: 0}}\n\
             privileged_ports: off\nusers: [{{name: alice, password_file: {}, uid: 1000, gid: 1000}}]\nshares:\n  \
             - {{name: data, squash: none, ceph: {{filesystem: fs, path: /{name}, config: {}}}}}\n",
            password.display(),
            conf()
        );
        fs::write(home.path().join("gw.yaml"), text).unwrap();
        let (child, [nfs, smb]) = Self::serve(home.path());
        Self { child, home, nfs, smb, _alone: alone }
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

    /// SIGKILL, and a start on the same state folder.
    fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let (child, [nfs, smb]) = Self::serve(self.home.path());
        (self.child, self.nfs, self.smb) = (child, nfs, smb);
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

    /// NFS 3 for this user, and the share's folder.
    async fn nfs3(&self, uid: u32) -> (Nfs3, Fh) {
        let (local, cred) = (Local::default(), Credential::sys(uid, uid, &[]));
        let rpc = connect::tcp(self.nfs, &local, Arc::new(NoCallbacks)).await.unwrap();
        let root = mount::mount(&rpc, &cred, "/data").await.unwrap();
        (Nfs3::new(rpc, cred), root)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // In order, so that its session ends at once and other tests need not wait for it.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("{}", fs::read_to_string(self.home.path().join("log")).unwrap_or_default());
        }
    }
}

/// Bytes that tell their place.
fn pattern(seed: u8, n: usize) -> Vec<u8> {
    let byte = |i: usize| (i as u64).wrapping_mul(131).wrapping_add(i as u64 >> 8).to_le_bytes()[0];
    (0..n).map(|i| byte(i) ^ seed).collect()
}

/// As a client does that is told to come back (NFS3ERR_JUKEBOX, NFS4ERR_DELAY).
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
    // Unstable, and nobody commits it.
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

/// Nobody is told an error: what is asked meanwhile waits, and goes on when an MDS is there again.
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
