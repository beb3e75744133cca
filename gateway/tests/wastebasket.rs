//! The wastebasket from the outside: clients of both protocols, of this project and of others, remove files; the command lists
//! them, gives them back and removes them.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::smb::{Options, Smb};
use client::target::Target;
use client::{Credential, Error, Volume};
use common::{Daemon, PASSWORD};
use iobuf::Buf;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
/// NFS3ERR_STALE and NFS4ERR_STALE.
const STALE: u32 = 70;

struct World {
    daemon: Daemon,
    folder: tempfile::TempDir,
}

impl World {
    fn start(basket: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shares = Self::shares(folder.path(), basket);
        let daemon = Daemon::start(&shares);
        Self { daemon, folder }
    }

    fn shares(folder: &Path, basket: &str) -> String {
        format!(
            "shares:\n  - {{name: team, path: {}, squash: none, wastebasket: {basket}}}\n",
            folder.display()
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn headgate(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        command.arg("wastebasket").args(args).args(["--state", "state", "--config", "gw.yaml"]);
        command.current_dir(&self.daemon.home).output().unwrap()
    }

    fn list(&self, args: &[&str]) -> Vec<Value> {
        let out = self.headgate(&[&["list", "--json"], args].concat());
        assert!(out.status.success(), "{out:?}");
        let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
        answer["files"].as_array().unwrap().clone()
    }

    fn paths(&self, args: &[&str]) -> Vec<String> {
        let path = |file: &Value| file["path"].as_str().unwrap().to_owned();
        let mut paths: Vec<String> = self.list(args).iter().map(path).collect();
        paths.sort();
        paths
    }

    async fn smb(&self) -> Smb {
        self.daemon.smb("team", "alice", PASSWORD, Options::default()).await.unwrap()
    }

    async fn nfs3(&self) -> Volume {
        let at = self.daemon.nfs;
        let target = format!("nfs://{at}/team?version=3&mountport={}", at.port());
        let target: Target = target.parse().unwrap();
        Volume::open(&target, &Local::default(), Credential::sys(0, 0, &[])).await.unwrap()
    }

    fn metric(&self, name: &str) -> u64 {
        let status = self.daemon.told_status();
        status.wastebasket.get(name).copied().unwrap_or_default()
    }
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_files_come_back() {
    let world = World::start("{keep: 1h, exclude: [tmp]}");
    for name in ["by-smb", "marked", "by-nfs3", "by-nfs4", "over", "kept/over", "tmp/x"] {
        world.write(name, name);
    }
    let (smb, v3, v4) =
        (world.smb().await, world.nfs3().await, world.daemon.volume("team").await.unwrap());
    let (old3, old4) = (v3.find("by-smb").await.unwrap(), v4.find("marked").await.unwrap());
    smb.unlink("by-smb").await.unwrap();
    let marked = smb.create("new").await.unwrap();
    smb.rename(&marked, "over", true).await.unwrap();
    smb.close(marked).await.unwrap();
    v3.remove("by-nfs3").await.unwrap();
    v4.remove("by-nfs4").await.unwrap();
    v4.remove("marked").await.unwrap();
    smb.unlink("tmp\\x").await.unwrap();

    // An old handle reads and writes nothing; an open does, as of any removed file.
    let stale = |done: client::Result<u32>| matches!(done, Err(Error::Nfs3(STALE)));
    assert!(stale(v3.write(&old3, 0, vec![Buf::from(b"late".to_vec())]).await));
    assert!(matches!(v3.read(&old3, 0, 9).await, Err(Error::Nfs3(STALE))));
    let (data, _) = v4.read(&old4, 0, 9).await.unwrap();
    assert_eq!(data.concat_bytes(), b"marked");
    v4.close(old4).await.unwrap();

    let all = ["by-nfs3", "by-nfs4", "by-smb", "marked", "over"];
    assert_eq!(world.paths(&[]), all);
    // The account has the number that the NFS clients call by.
    assert_eq!(world.paths(&["team", "--user", "Alice", "--since", "1h"]), all);
    assert_eq!(world.paths(&["team", "--user", "0"]), all);
    assert_eq!(world.paths(&["team", "--user", "bob"]), [""; 0]);
    assert_eq!(world.paths(&["--older", "1h"]), [""; 0]);
    let files = world.list(&["--path", "by-smb"]);
    let file = &files[0];
    assert_eq!((&file["client"], &file["protocol"]), (&"127.0.0.1".into(), &"smb".into()));
    assert_eq!(world.list(&["--path", "over"])[0]["way"], "replaced");
    assert_eq!(world.list(&["--path", "by-nfs3"])[0]["protocol"], "nfs");

    // No client sees or enters the gateway's folder.
    let names = smb.list("").await.unwrap();
    assert!(names.iter().all(|entry| !entry.name.contains("headgate")));
    assert!(smb.list(".headgate\\wastebasket").await.is_err());
    assert!(v4.find(".headgate").await.is_err());

    let out = world.headgate(&["restore", "team", "by-smb"]);
    assert!(out.status.success() && text(&out).contains("restored: /team/by-smb"), "{out:?}");
    assert_eq!(fs::read_to_string(world.path("by-smb")).unwrap(), "by-smb");
    assert!(v3.read(&old3, 0, 9).await.is_ok(), "the handle is good again");
    let out = world.headgate(&["restore", "team", "over"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out).contains("`over` exists"), "{out:?}");
    let id = world.list(&["--path", "over"])[0]["id"].as_str().unwrap().to_owned();
    let out = world.headgate(&["restore", "team", &id, "--to", "made/for/it"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(fs::read_to_string(world.path("made/for/it")).unwrap(), "over");
    let out = world.headgate(&["restore", "team", "no-such-file"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let out = world.headgate(&["empty", "team", "by-nfs3"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(world.paths(&[]), ["by-nfs4", "marked"]);
    assert_eq!(["kept", "restored", "not_supported"].map(|name| world.metric(name)), [5, 2, 0]);
}

/// A removal that the basket cannot take is refused, by the CLOSE that should remove the file as well.
#[tokio::test(flavor = "multi_thread")]
async fn removal_without_basket_is_refused() {
    let world = World::start("{keep: 1h}");
    for name in ["a", "b"] {
        world.write(name, name);
    }
    let smb = world.smb().await;
    smb.unlink("a").await.unwrap();
    let set = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(world.path(".headgate"), mode).unwrap();
    };
    set(0o755);
    let refused = smb.unlink("b").await.unwrap_err();
    assert!(refused.to_string().contains("ACCESS_DENIED"), "{refused}");
    assert!(world.path("b").exists());
    set(0o700);
    smb.unlink("b").await.unwrap();
    assert_eq!(world.paths(&[]), ["a", "b"]);
}

/// A folder comes back with one command; of several files of one path, the newest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folder_comes_back() {
    let world = World::start("{}");
    let smb = world.smb().await;
    for round in ["old", "new"] {
        world.write("d/a", round);
        world.write("d/e/b", round);
        for name in ["d\\a", "d\\e\\b"] {
            smb.unlink(name).await.unwrap();
        }
    }
    fs::remove_dir_all(world.path("d")).unwrap();
    let out = world.headgate(&["restore", "team", "d"]);
    assert!(out.status.success(), "{out:?}");
    for name in ["d/a", "d/e/b"] {
        assert_eq!(fs::read_to_string(world.path(name)).unwrap(), "new");
    }
    let out = world.headgate(&["restore", "team", "d", "--to", "was"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(fs::read_to_string(world.path("was/e/b")).unwrap(), "old");
    assert!(world.list(&[]).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_expire_and_a_stopped_daemon_is_not_needed() {
    let world = World::start("{keep: 1h}");
    let smb = world.smb().await;
    for name in ["a", "b"] {
        world.write(name, name);
        smb.unlink(name).await.unwrap();
    }
    assert_eq!(world.paths(&[]), ["a", "b"]);
    let file = world.daemon.home.path().join("gw.yaml");
    let now = fs::read_to_string(&file).unwrap().replace("keep: 1h", "keep: 1s");
    fs::write(&file, now).unwrap();
    let mut reload = Command::new(env!("CARGO_BIN_EXE_headgate"));
    reload.args(["reload", "--state", "state"]).current_dir(&world.daemon.home);
    assert!(reload.output().unwrap().status.success());
    let since = Instant::now();
    while !world.list(&[]).is_empty() {
        assert!(since.elapsed() < PATIENCE, "they never expire");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(world.metric("expired"), 2);
    let kept = world.path(".headgate/wastebasket/0");
    assert!(kept.is_dir(), "files of user 0 were in its folder");

    // The same without a daemon.
    let now = fs::read_to_string(&file).unwrap().replace("keep: 1s", "keep: 1h");
    fs::write(&file, now).unwrap();
    assert!(reload.output().unwrap().status.success());
    world.write("c", "c");
    smb.unlink("c").await.unwrap();
    let mut drain = Command::new(env!("CARGO_BIN_EXE_headgate"));
    drain.args(["drain", "--state", "state"]).current_dir(&world.daemon.home);
    assert!(drain.output().unwrap().status.success());
    assert_eq!(world.paths(&["team"]), ["c"]);
    let out = world.headgate(&["restore", "team", "c"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(fs::read_to_string(world.path("c")).unwrap(), "c");
}

/// Samba's smbclient removes and replaces; libnfs does by NFS 3 and 4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_clients_remove_and_replace() {
    let world = World::start("{}");
    for name in ["s1", "s2", "s3", "n3a", "n3b", "n3c", "n4a", "n4b", "n4c"] {
        world.write(name, name);
    }
    let port = world.daemon.smb.port().to_string();
    let mut samba = Command::new("smbclient");
    samba.args(["//127.0.0.1/team", "-p", &port, "-U", &format!("alice%{PASSWORD}")]);
    match samba.args(["-c", "del s1; rename s2 s3 -f"]).output() {
        Err(_) => println!("skipped: no smbclient"),
        Ok(done) => {
            assert!(done.status.success(), "{done:?}");
            assert_eq!(world.paths(&["--user", "alice"]), ["s1", "s3"]);
        }
    }
    let at = world.daemon.nfs.port();
    let mut libnfs = Command::new("python3");
    libnfs.args(["-c", LIBNFS, &at.to_string()]);
    let done = libnfs.output();
    let is_there = done.as_ref().is_ok_and(|done| done.status.code() != Some(77));
    if !is_there {
        println!("skipped: no libnfs");
        return;
    }
    let done = done.unwrap();
    assert!(done.status.success(), "{done:?}");
    let nfs: Vec<String> = world
        .list(&[])
        .iter()
        .filter(|file| file["protocol"] == "nfs")
        .map(|file| format!("{} {}", file["path"].as_str().unwrap(), file["way"].as_str().unwrap()))
        .collect();
    assert_eq!(nfs, ["n4c replaced", "n4a removed", "n3c replaced", "n3a removed"]);
}

/// Removes and replaces by libnfs.
const LIBNFS: &str = r#"
import ctypes, sys
for name in ("libnfs.so.14", "libnfs.so.13", "libnfs.so.11"):
    try:
        nfs = ctypes.CDLL(name)
        break
    except OSError:
        continue
else:
    sys.exit(77)
port = sys.argv[1]
for p in ("nfs_init_context", "nfs_parse_url_dir", "nfs_get_error"):
    getattr(nfs, p).restype = ctypes.c_void_p
nfs.nfs_get_error.restype = ctypes.c_char_p
for version in (3, 4):
    c = ctypes.c_void_p(nfs.nfs_init_context())
    url = f"nfs://127.0.0.1/team?version={version}&nfsport={port}&mountport={port}".encode()
    assert nfs.nfs_parse_url_dir(c, url), nfs.nfs_get_error(c)
    nfs.nfs_set_version(c, version)
    def call(name, *args):
        done = getattr(nfs, name)(c, *args)
        assert done == 0, (version, name, nfs.nfs_get_error(c))
    call("nfs_mount", b"127.0.0.1", b"/team")
    n = f"/n{version}".encode()
    call("nfs_unlink", n + b"a")
    call("nfs_rename", n + b"b", n + b"c")
    nfs.nfs_destroy_context(c)
"#;

/// Bytes of a read.
trait Concat {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl Concat for Vec<Buf> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|buf| buf.as_slice().to_vec()).collect()
    }
}
