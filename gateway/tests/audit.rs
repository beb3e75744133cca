//! Tests of the audit trail with clients of both protocols.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use client::connect::Local;
use client::nfs3::{CreateHow, SetAttr, Stable};
use client::nfs4::Stateid;
use client::smb::{Options, Smb};
use client::target::Target;
use client::{Credential, Volume};
use common::{Daemon, PASSWORD};
use gateway::admin::show::fetch;
use gateway::admin::snapshot::AuditStatus;
use iobuf::Buf;
use serde_json::Value;
use smb_proto::fscc::ea::FullEa;
use smb_proto::fscc::set::Set;
use smb_proto::smb2::create::{Disposition, access};

mod common;
#[path = "audit/reparse.rs"]
mod reparse;
#[path = "audit/tls.rs"]
mod tls;

/// Time limit for every record.
const SOON: Duration = Duration::from_secs(30);

/// A gateway with an audit trail.
struct World {
    daemon: Daemon,
    folder: tempfile::TempDir,
    /// The folder as the daemon sees it, if that differs.
    inside: Option<PathBuf>,
}

impl World {
    /// Starts a gateway; `audit` has further keys after `to`.
    fn start(audit: &str, configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("audit.jsonl");
        let audit = format!("audit: {{to: {}{audit}}}", at.display());
        let daemon = Daemon::start(&format!("{audit}\n{configuration}"));
        Self { daemon, folder, inside: None }
    }

    /// Starts a gateway whose trail is on a separate file system of 128 KiB. `None` if this user gets no mount namespace.
    fn small(audit: &str, configuration: &str) -> Option<Self> {
        let probe = Command::new("unshare").args(["--mount", "true"]).output().unwrap();
        if !probe.status.success() {
            println!("skipped: no mount namespace for this user");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_str().unwrap().to_owned();
        let mount = "mount -t tmpfs -o size=128K,mode=0700 small \"$0\" && exec \"$@\"";
        let by = ["unshare", "--mount", "sh", "-c", mount, &at];
        let audit = format!("audit: {{to: {at}/audit.jsonl{audit}}}");
        let daemon = Daemon::start_by(&by, &format!("{audit}\n{configuration}"));
        let inside = format!("/proc/{}/root{at}", daemon.pid());
        Some(Self { daemon, folder, inside: Some(inside.into()) })
    }

    fn path(&self) -> PathBuf {
        let folder = self.inside.as_deref().unwrap_or(self.folder.path());
        folder.join("audit.jsonl")
    }

    /// Fills the file system and returns the file that did.
    fn fill(&self) -> PathBuf {
        let path = self.path().with_extension("filler");
        let mut file = fs::File::create(&path).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        path
    }

    fn headgate(&self, words: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        command.args(words).args(["--state", "state"]).current_dir(&self.daemon.home);
        assert!(command.output().unwrap().status.success(), "{words:?}");
    }

    /// Waits for a record that satisfies `is`.
    fn wait(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        wait(&self.path(), what, is)
    }

    /// Waits for an event with these fields.
    fn event(&self, event: &str, fields: &[(&str, &str)]) -> Value {
        self.wait(&format!("{event} {fields:?}"), |r| {
            r["event"] == event && fields.iter().all(|(key, value)| is(&r[*key], value))
        })
    }
}

fn is(found: &Value, value: &str) -> bool {
    match found {
        Value::String(text) => text == value,
        other => format!("{other}") == value,
    }
}

/// Returns each complete line; the last one may be half written.
fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect()
}

fn wait(path: &Path, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + SOON;
    loop {
        let all = records(path);
        if let Some(found) = all.iter().find(|r| is(r)) {
            return found.clone();
        }
        assert!(Instant::now() < until, "no {what} in {all:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const SHARES: &str = "shares: [{name: team, memory: true, squash: none}, \
    {name: closed, memory: true, clients: [192.0.2.0/24]}]\nprivileged_ports: off";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logons_mounts_and_refusals_are_recorded_by_both_protocols() {
    let world = World::start("", SHARES);
    let started = world.event("start", &[]);
    assert_eq!(started["seq"], 1);
    let files = world.daemon.smb("team", "ALICE", PASSWORD, Options::default()).await.unwrap();
    let logon = world.event("logon", &[("user", "alice"), ("how", "password"), ("purpose", "new")]);
    assert_eq!(
        (&logon["peer"], &logon["uid"], &logon["dialect"], &logon["protection"]),
        (&"127.0.0.1".into(), &0.into(), &"3.1.1".into(), &"signed".into())
    );
    let session = logon["session"].to_string();
    world.event("share", &[("share", "team"), ("user", "alice"), ("access", "write")]);
    drop(files);
    world.event("logoff", &[("session", &session), ("user", "alice")]);

    let refused = [("alice", "wrong", "wrong password"), ("mallory", "any", "no such user")];
    for (user, password, reason) in refused {
        assert!(world.daemon.smb("team", user, password, Options::default()).await.is_err());
        world.event("logon-refused", &[("user", user), ("reason", reason)]);
    }
    assert!(world.daemon.smb("closed", "alice", PASSWORD, Options::default()).await.is_err());
    let rule = ("rule", "share-clients");
    world.event("refused", &[("user", "alice"), ("share", "closed"), rule]);

    world.daemon.mount("/team", Credential::sys(0, 0, &[])).await.unwrap();
    world.event("mount", &[("version", "3"), ("share", "team"), ("user", "alice"), ("uid", "0")]);
    world.daemon.unmount("/team", Credential::sys(0, 0, &[])).await.unwrap();
    let unmount = world.event("unmount", &[("path", "/team"), ("user", "alice"), ("uid", "0")]);
    assert_eq!(unmount["peer"], "127.0.0.1");
    world.daemon.mount("/closed", Credential::sys(7, 7, &[])).await.unwrap_err();
    world.event("refused", &[("user", "uid 7"), ("share", "closed"), rule]);
    world.daemon.volume("team").await.unwrap();
    world.event("mount", &[("version", "4"), ("share", "team"), ("user", "alice")]);

    let text = fs::read_to_string(world.path()).unwrap();
    assert!(!text.contains(PASSWORD) && !text.contains("wrong\""), "{text}");
    let numbers: Vec<u64> =
        records(&world.path()).iter().map(|r| r["seq"].as_u64().unwrap()).collect();
    assert!(numbers.iter().zip(1..).all(|(seq, n)| *seq == n), "{numbers:?}");
}

/// A client can mount a share again and again over AUTH_SYS, which verifies no identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mounts_without_end_have_one_record_of_each_user_and_version() {
    let world = World::start("", SHARES);
    for _ in 0..20 {
        world.daemon.mount("/team", Credential::sys(0, 0, &[])).await.unwrap();
        world.daemon.volume("team").await.unwrap();
    }
    let last = world.daemon.mount("/team", Credential::sys(7, 7, &[])).await;
    last.unwrap();
    world.event("mount", &[("version", "3"), ("uid", "7")]);
    let of = |version: &str, uid: u64| {
        let is_it =
            |r: &&Value| r["event"] == "mount" && r["version"] == version && r["uid"] == uid;
        records(&world.path()).iter().filter(is_it).count()
    };
    assert_eq!((of("3", 0), of("4", 0), of("3", 7)), (1, 1, 1));
    assert_whole(&world);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administrators_and_configurations_are_recorded_and_the_file_rotates() {
    let world = World::start("", SHARES);
    world.event("start", &[]);
    world.headgate(&["log", "debug"]);
    let by = ("by", "control socket");
    world.event("administrator", &[("act", "log"), by, ("on", "debug"), ("result", "ok")]);
    world.headgate(&["admin-token"]);
    world.event("administrator", &[("act", "admin-token"), by]);

    let (old, file) = (world.folder.path().join("old"), world.daemon.home.path().join("gw.yaml"));
    fs::rename(world.path(), &old).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("closed", "shut")).unwrap();
    world.headgate(&["reload"]);
    let changed = world.event("configuration", &[("result", "ok")]);
    assert_eq!(
        changed["changes"],
        serde_json::json!(["shares added: shut", "shares removed: closed"])
    );
    assert!(records(&old).iter().all(|r| r["event"] != "configuration"));
    assert_eq!(records(&old).len() as u64 + 1, records(&world.path())[0]["seq"].as_u64().unwrap());

    fs::write(&file, "shares: [{nam: data}]").unwrap();
    let mut reload = Command::new(env!("CARGO_BIN_EXE_headgate"));
    reload.args(["reload", "--state", "state"]).current_dir(&world.daemon.home);
    assert!(!reload.output().unwrap().status.success());
    let refused = world
        .wait("a refused configuration", |r| r["event"] == "configuration" && r["result"] != "ok");
    assert!(refused["result"].as_str().unwrap().contains("has no key `nam`"), "{refused}");
    world.wait("a refused reload", |r| r["act"] == "reload" && r["result"] != "ok");

    let password = world.daemon.home.path().join("password");
    world.headgate(&[
        "user",
        "add",
        "bob",
        "--uid",
        "7",
        "--password-file",
        password.to_str().unwrap(),
    ]);
    let users = |what: &str| {
        let expected = serde_json::json!([what]);
        world.wait(what, |r| r["changes"] == expected);
    };
    users("users added: bob");
    world.headgate(&["user", "remove", "bob"]);
    users("users removed: bob");
    world.headgate(&["drain"]);
    world.event("administrator", &[("act", "drain"), by]);
    world.event("stop", &[]);
}

/// Logs on until the gateway notices that the trail is broken.
async fn break_it(world: &World) -> AuditStatus {
    let until = Instant::now() + SOON;
    loop {
        // Another record may still fit behind the existing ones.
        drop(world.daemon.smb("team", "alice", PASSWORD, Options::default()).await);
        let told = world.daemon.status().await.audit.unwrap();
        if told.broken.is_some() {
            return told;
        }
        assert!(Instant::now() < until, "{told:?}\n{}", world.daemon.log());
    }
}

/// Checks that no record up to the last one is missing.
fn assert_whole(world: &World) {
    let numbers: Vec<u64> =
        records(&world.path()).iter().map(|r| r["seq"].as_u64().unwrap()).collect();
    assert!(numbers.iter().zip(1..).all(|(seq, n)| *seq == n), "{numbers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_nothing_and_is_told() {
    let Some(world) = World::small("", SHARES) else { return };
    world.event("start", &[]);
    let filler = world.fill();
    let told = break_it(&world).await;
    assert!(told.broken.unwrap().contains("No space left") && !told.required);
    for _ in 0..3 {
        world.daemon.smb("team", "alice", PASSWORD, Options::default()).await.unwrap();
    }
    world.daemon.mount("/team", Credential::sys(0, 0, &[])).await.unwrap();
    assert_eq!(fetch(world.daemon.admin, "/readyz").await.unwrap().trim(), "ready");
    let metrics = fetch(world.daemon.admin, "/metrics").await.unwrap();
    assert!(metrics.contains("headgate_audit_writable 0\n"), "{metrics}");
    assert!(world.daemon.log().contains("the audit trail cannot be written"));
    fs::remove_file(filler).unwrap();
    world.event("mount", &[]);
    assert!(world.daemon.log().contains("the audit trail is written again"));
    assert_whole(&world);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_what_must_be_recorded_where_the_trail_is_required() {
    let Some(world) = World::small(", required: true", SHARES) else { return };
    world.event("start", &[]);
    // Opened while there was space; the client uses its files meanwhile.
    let files = world.daemon.smb("team", "alice", PASSWORD, Options::default()).await.unwrap();
    let filler = world.fill();
    assert!(break_it(&world).await.required);
    let smb = world.daemon.smb("team", "alice", PASSWORD, Options::default()).await;
    assert!(format!("{:?}", smb.err().unwrap()).contains("AUDIT_FAILED"));
    let mounted = world.daemon.mount("/team", Credential::sys(0, 0, &[])).await.unwrap_err();
    assert!(format!("{mounted:?}").contains("10006"), "MNT3ERR_SERVERFAULT: {mounted:?}");
    assert!(world.daemon.volume("team").await.is_err());
    let ready = fetch(world.daemon.admin, "/readyz").await.unwrap_err();
    assert!(ready.contains("503") && ready.contains("No space left"), "{ready}");
    let met = "headgate_limits_met_total{limit=\"audit-queue\"} ";
    let metrics = fetch(world.daemon.admin, "/metrics").await.unwrap();
    assert!(metrics.contains(met) && !metrics.contains(&format!("{met}0")), "{metrics}");
    files.create("made meanwhile").await.unwrap();
    // Orders of administrators are not rejected.
    world.headgate(&["log", "info"]);
    fs::remove_file(filler).unwrap();
    world.event("administrator", &[("act", "log")]);
    let until = Instant::now() + SOON;
    while fetch(world.daemon.admin, "/readyz").await.is_err() {
        assert!(Instant::now() < until);
    }
    world.daemon.mount("/team", Credential::sys(0, 0, &[])).await.unwrap();
    world.event("mount", &[]);
    assert_whole(&world);
}

#[test]
fn a_trail_that_is_required_and_cannot_be_had_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("audit.jsonl");
    std::os::unix::fs::symlink("no/such/file", &at).unwrap();
    let serve = |more: &str, command: &str| {
        let file = folder.path().join("gw.yaml");
        let audit = format!("audit: {{to: {}{more}}}", at.display());
        fs::write(&file, format!("shares: [{{name: data, memory: true}}]\nadmin: off\n{audit}\n"))
            .unwrap();
        // A gateway that starts successfully would not end without `timeout`.
        let mut run = Command::new("timeout");
        run.args(["60", env!("CARGO_BIN_EXE_headgate"), command])
            .arg("--config")
            .arg(file)
            .arg("--state")
            .arg(folder.path().join("state"));
        let done = run
            .args(["--nfs-port", "0", "--nfs-rdma-port", "0", "--portmap", "off"])
            .output()
            .unwrap();
        (
            done.status.code(),
            String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned(),
        )
    };
    let (code, text) = serve(", required: true", "serve");
    assert!(code == Some(1) && text.contains("the audit trail cannot be written to"), "{text}");
    let (code, text) = serve(", required: true", "check");
    assert!(code == Some(1) && text.contains("the audit trail cannot be written to"), "{text}");
    let (code, text) = serve("", "check");
    assert!(
        code == Some(0) && text.contains("until it can be written, records are lost"),
        "{text}"
    );
    let (code, text) = serve(", requird: true", "check");
    assert!(
        code == Some(2) && text.contains(":3:") && text.contains("did you mean `required`"),
        "{text}"
    );
}

/// Every operation on the files of `team` is recorded, but only changes on `quiet`.
const AUDITED: &str = "shares: [{name: team, memory: true, squash: none, audit: [changes, reads, writes]}, \
    {name: plain, memory: true, squash: none}]\nprivileged_ports: off";

fn file<'a>(protocol: &'a str, path: &'a str) -> [(&'a str, &'a str); 6] {
    [
        ("protocol", protocol),
        ("path", path),
        ("share", "team"),
        ("user", "alice"),
        ("result", "ok"),
        ("peer", "127.0.0.1"),
    ]
}

fn and<'a>(of: [(&'a str, &'a str); 6], more: (&'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
    of.into_iter().chain([more]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_to_files_by_nfs_is_recorded() {
    let world = World::start("", AUDITED);
    let volume = |version: &str| {
        let at = format!(
            "nfs://{0}/team?version={version}&mountport={1}",
            world.daemon.nfs,
            world.daemon.nfs.port()
        );
        let target: Target = at.parse().unwrap();
        async move {
            Volume::open(&target, &Local::default(), Credential::sys(0, 0, &[])).await.unwrap()
        }
    };
    let Volume::V3(nfs, root) = volume("3").await else { panic!() };
    let (dir, _) = nfs.mkdir(&root, b"d", 0o755).await.unwrap();
    world.event("create", &and(file("nfs", "d"), ("kind", "folder")));
    let (f, _) = nfs.create(&dir, b"f", CreateHow::Guarded(SetAttr::default())).await.unwrap();
    world.event("create", &and(file("nfs", "d/f"), ("kind", "file")));
    for at in [0, 1] {
        nfs.write(&f, at, vec![Buf::from(b"x".to_vec())], Stable::File).await.unwrap();
    }
    world.event("open", &and(file("nfs", "d/f"), ("access", "write")));
    nfs.symlink(&dir, b"l", b"f").await.unwrap();
    world.event("create", &and(file("nfs", "d/l"), ("kind", "link")));
    nfs.link(&f, &dir, b"n").await.unwrap();
    world.event("create", &and(file("nfs", "d/n"), ("kind", "name")));
    nfs.rename(&dir, b"n", &root, b"o").await.unwrap();
    world.event("rename", &and(file("nfs", "d/n"), ("to", "o")));
    nfs.setattr(&f, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).await.unwrap();
    world.event("permissions", &[("what", "mode"), ("share", "team"), ("user", "alice")]);
    nfs.remove(&dir, b"l").await.unwrap();
    world.event("delete", &file("nfs", "d/l"));
    nfs.rmdir(&root, b"d").await.unwrap_err();
    world.event("delete", &[("path", "d"), ("result", "not empty")]);

    let volume = volume("4.2").await;
    let f = volume.create("v4").await.unwrap();
    world.event("create", &and(file("nfs", "v4"), ("kind", "file")));
    let opened = and(file("nfs", "v4"), ("access", "read and write"));
    let seq = world.event("open", &opened)["seq"].as_u64().unwrap();
    for at in 0..20 {
        volume.write(&f, at, vec![Buf::from(b"x".to_vec())]).await.unwrap();
        volume.read(&f, at, 1).await.unwrap();
    }
    volume.remove("v4").await.unwrap();
    let removed = world.event("delete", &file("nfs", "v4"));
    let between = |r: &&Value| {
        (seq + 1..removed["seq"].as_u64().unwrap()).contains(&r["seq"].as_u64().unwrap())
    };
    assert!(
        !records(&world.path()).iter().any(|r| between(&r) && r["event"] == "open"),
        "one record an open"
    );
    let writes = records(&world.path()).iter().filter(|r| r["access"] == "write").count();
    assert_eq!(writes, 1, "of two writes by version 3");
    assert_whole(&world);
}

/// Changes the attributes and streams of `f`. Times and the attribute `archive` are not recorded, because every copy by
/// Windows sets them.
async fn attributes_and_streams(world: &World, files: &Smb) {
    let rights = access::WRITE_EA | access::READ_ATTRIBUTES | access::WRITE_ATTRIBUTES;
    let f = files.open("f", rights, Disposition::Open, 0).await.unwrap();
    let count = || records(&world.path()).iter().filter(|r| r["event"] == "attributes").count();
    let extended = |value: &[u8]| {
        Set::FullEa(FullEa { flags: 0, name: b"NOTE".to_vec(), value: value.to_vec() }.emit())
    };
    for (what, done) in [
        ("extended", files.set_info(&f, &extended(b"1")).await),
        // An empty value removes the attribute.
        ("extended", files.set_info(&f, &extended(b"")).await),
        ("windows", files.set_attributes(&f, 2).await),
        ("", files.set_attributes(&f, 0x22).await),
        ("", files.set_attributes(&f, 2).await),
        ("windows", files.set_attributes(&f, 0x80).await),
    ] {
        done.unwrap();
        if !what.is_empty() {
            world.event("attributes", &and(file("smb", "f"), ("what", what)));
        }
    }
    files.close(f).await.unwrap();
    let stream = files.create("f:s").await.unwrap();
    world.event("create", &and(file("smb", "f:s"), ("kind", "stream")));
    world.event("open", &and(file("smb", "f:s"), ("access", "read and write")));
    files.rename(&stream, ":t", false).await.unwrap();
    world.event("rename", &and(file("smb", "f:s"), ("to", "f:t")));
    files.delete_on_close(&stream).await.unwrap();
    files.close(stream).await.unwrap();
    world.event("delete", &file("smb", "f:t"));
    assert_eq!(count(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_to_files_by_smb_is_recorded() {
    let world = World::start("", AUDITED);
    let connect =
        |share: &'static str| world.daemon.smb(share, "alice", PASSWORD, Options::default());
    let files = connect("team").await.unwrap();
    let f = files.create("f").await.unwrap();
    world.event("create", &and(file("smb", "f"), ("kind", "file")));
    let opened = world.event("open", &file("smb", "f"));
    assert!(opened["access"].as_str().unwrap().contains("write"));
    files.write(&f, 0, vec![Buf::from(b"x".to_vec())]).await.unwrap();
    // Sets the file's existing access list again.
    const DACL: u32 = 4;
    let rights = access::READ_CONTROL | access::WRITE_DAC | access::READ_ATTRIBUTES;
    let by_rights = files.open("f", rights, Disposition::Open, 0).await.unwrap();
    let sd = files.security(&by_rights, DACL).await.unwrap();
    files.set_security(&by_rights, DACL, sd).await.unwrap();
    world.event("permissions", &and(file("smb", "f"), ("what", "list")));
    files.close(by_rights).await.unwrap();
    attributes_and_streams(&world, &files).await;
    files.delete_on_close(&f).await.unwrap();
    // The end of the connection replaces the CLOSE.
    drop(files);
    world.event("delete", &file("smb", "f"));

    let plain = connect("plain").await.unwrap();
    plain.create("unseen").await.unwrap();
    drop(plain);
    let mut by_samba = Command::new("smbclient");
    let port = world.daemon.smb.port().to_string();
    by_samba.args(["//127.0.0.1/team", "-p", &port, "-U", &format!("alice%{PASSWORD}")]);
    by_samba.args([
        "-c",
        "mkdir e; put Cargo.toml e/a; rename e/a e/b; get e/b /dev/null; del e/b; rmdir e",
    ]);
    match by_samba.output() {
        Err(_) => println!("skipped: no smbclient"),
        Ok(done) => {
            assert!(done.status.success(), "{done:?}");
            world.event("create", &and(file("smb", "e"), ("kind", "folder")));
            world.event("create", &and(file("smb", "e/a"), ("kind", "file")));
            world.event("rename", &and(file("smb", "e/a"), ("to", "e/b")));
            world.event("open", &and(file("smb", "e/b"), ("access", "read")));
            world.event("delete", &file("smb", "e/b"));
            world.event("delete", &file("smb", "e"));
        }
    }
    assert!(records(&world.path()).iter().all(|r| r["share"] != "plain" || r["event"] == "share"));
    assert_whole(&world);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_denied_a_file_is_recorded_by_both_protocols() {
    let world = World::start("", AUDITED);
    let root = world.daemon.volume("team").await.unwrap();
    let secret = root.create("secret").await.unwrap();
    root.close(secret).await.unwrap();
    let Volume::V4(nfs, top) = &root else { panic!() };
    let (fh, _) = nfs.lookup(top, b"secret").await.unwrap();
    nfs.setattr(&fh, Stateid::ANONYMOUS, Some(0o600), None).await.unwrap();
    nfs.setattr(top, Stateid::ANONYMOUS, Some(0o755), None).await.unwrap();
    let password = world.daemon.home.path().join("password");
    let password = password.to_str().unwrap();
    world.headgate(&[
        "user",
        "add",
        "bob",
        "--uid",
        "7",
        "--gid",
        "7",
        "--password-file",
        password,
    ]);
    let added = serde_json::json!(["users added: bob"]);
    world.wait("bob", |r| r["changes"] == added);

    let files = world.daemon.smb("team", "bob", PASSWORD, Options::default()).await.unwrap();
    assert!(files.find("secret").await.is_err());
    let denied = |protocol| {
        let of = [("protocol", protocol), ("path", "secret"), ("user", "bob"), ("uid", "7")];
        world.event("open", &[&of[..], &[("result", "denied")]].concat());
    };
    denied("smb");
    let at = format!("nfs://{}/team?version=4.1", world.daemon.nfs);
    let bob = Credential::sys(7, 7, &[]);
    let volume = Volume::open(&at.parse().unwrap(), &Local::default(), bob).await.unwrap();
    assert!(volume.find("secret").await.is_err());
    denied("nfs");
    volume.remove("secret").await.unwrap_err();
    world.event("delete", &[("path", "secret"), ("user", "bob"), ("result", "denied")]);
    assert!(volume.create("new").await.is_err());
    world.event("create", &[("path", "new"), ("user", "bob"), ("result", "denied")]);
}

/// Connects a client of this version and user.
async fn volume_by(world: &World, version: &str, uid: u32) -> Volume {
    let nfs = world.daemon.nfs;
    let at = format!("nfs://{nfs}/team?version={version}&mountport={}", nfs.port());
    let target: Target = at.parse().unwrap();
    Volume::open(&target, &Local::default(), Credential::sys(uid, uid, &[])).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_without_an_open_is_recorded_also_after_one_that_failed() {
    let world = World::start("", AUDITED);
    let Volume::V3(root, top) = volume_by(&world, "3", 0).await else { panic!() };
    let Volume::V3(bob, _) = volume_by(&world, "3", 7).await else { panic!() };
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let make = async |name: &'static [u8], bits| {
        root.create(&top, name, CreateHow::Guarded(mode(bits))).await.unwrap().0
    };
    let told = |path, result| {
        let of = [("path", path), ("uid", "7"), ("access", "write"), ("result", result)];
        world.event("open", &of);
    };
    let f = make(b"f", 0o644).await;
    let write = async || bob.write(&f, 0, vec![Buf::from(b"x".to_vec())], Stable::File).await;
    for _ in 0..3 {
        write().await.unwrap_err();
    }
    told("f", "denied");
    root.setattr(&f, &mode(0o666)).await.unwrap();
    for _ in 0..3 {
        write().await.unwrap();
    }
    told("f", "ok");
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    bob.setattr(&make(b"cut", 0o666).await, &cut).await.unwrap();
    told("cut", "ok");
    make(b"v4", 0o666).await;
    let Volume::V4(nfs, top) = volume_by(&world, "4.2", 7).await else { panic!() };
    let (fh, _) = nfs.lookup(&top, b"v4").await.unwrap();
    nfs.setattr(&fh, Stateid::ANONYMOUS, None, Some(5)).await.unwrap();
    told("v4", "ok");
    let opens = records(&world.path()).iter().filter(|r| r["event"] == "open").count();
    assert_eq!(opens, 4, "each once");
    assert_whole(&world);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_not_changed_unseen_where_the_trail_is_required() {
    let Some(world) = World::small(", required: true", AUDITED) else { return };
    world.event("start", &[]);
    let volume = world.daemon.volume("team").await.unwrap();
    let open = volume.create("open").await.unwrap();
    let files = world.daemon.smb("team", "alice", PASSWORD, Options::default()).await.unwrap();
    let plain = world.daemon.volume("plain").await.unwrap();
    let filler = world.fill();
    break_it(&world).await;
    let told = |done: client::Result<()>| format!("{:?}", done.unwrap_err());
    let nfs = told(volume.create("by-nfs").await.map(drop));
    assert!(nfs.contains("10006"), "NFS4ERR_SERVERFAULT: {nfs}");
    let smb = told(files.create("by-smb").await.map(drop));
    assert!(smb.contains("AUDIT_FAILED"), "{smb}");
    assert!(volume.remove("open").await.is_err());
    // Files opened before remain usable, and so does a share that is not audited.
    volume.write(&open, 0, vec![Buf::from(b"x".to_vec())]).await.unwrap();
    plain.create("f").await.unwrap();
    fs::remove_file(filler).unwrap();
    let until = Instant::now() + SOON;
    while fetch(world.daemon.admin, "/readyz").await.is_err() {
        assert!(Instant::now() < until);
    }
    let names = volume.list().await.unwrap();
    assert_eq!(names, [b"open".to_vec()], "what was refused was not done");
    files.create("by-smb").await.unwrap();
    world.event("create", &file("smb", "by-smb"));
    assert_whole(&world);
}
