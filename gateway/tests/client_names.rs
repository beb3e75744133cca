//! Tests that `clients` of a share accepts hosts, patterns, netgroups and protocols, which a running gateway looks up.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use client::smb::Options;
use client::{Credential, Volume};
use common::{Daemon, PASSWORD};

mod common;

/// Returns whether the volume allows creating a file.
async fn writes(volume: &Volume) -> bool {
    volume.create("f").await.is_ok()
}

/// Returns the rights of a client on this host over NFS and over SMB: `None` for no access, else whether it can write.
async fn may(daemon: &Daemon, share: &str) -> [Option<bool>; 2] {
    let nfs = match daemon.volume(share).await {
        Ok(volume) => Some(writes(&volume).await),
        Err(_) => None,
    };
    let smb = match daemon.smb(share, "alice", PASSWORD, Options::default()).await {
        Ok(files) => Some(files.create("g").await.is_ok()),
        Err(_) => None,
    };
    [nfs, smb]
}

/// Changes `clients` of the daemon's only share in its file.
fn write(daemon: &Daemon, old: &str, new: &str) {
    let file = daemon.home.path().join("gw.yaml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(old));
    fs::write(file, text.replace(old, new)).unwrap();
}

/// Runs `headgate` with these arguments.
fn order(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
    command.args(args).args(["--state", "state"]).current_dir(home).output().unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_admitted_by_names_that_lead_back_to_them() {
    if !is_root() {
        println!("skipped: calls of root come from a port below 1024");
        return;
    }
    let share = |name: &str, clients: &str| {
        format!("{{name: {name}, memory: true, squash: none, clients: {clients}}}")
    };
    let shares = [
        share("host", "localhost"),
        share("pattern", "'local*'"),
        share("less", "[{from: 'l?calhos[s-u]', read_only: true}, 0.0.0.0/0]"),
        share("range", "[127.0.0.0/8, {from: 'local*', read_only: true}]"),
        share("other", "'*.example.org'"),
        share("group", "'@headgate-has-no-such-group'"),
        share("smb", "{from: localhost, protocols: smb}"),
        share(
            "nfs",
            "[{from: 'local*', protocols: nfs}, {from: 0.0.0.0/0, read_only: true, protocols: smb}]",
        ),
    ];
    let daemon = Daemon::start(&format!("shares: [{}]", shares.join(", ")));
    for (share, wanted) in [
        ("host", [Some(true), Some(true)]),
        ("pattern", [Some(true), Some(true)]),
        ("less", [Some(false), Some(false)]),
        ("range", [Some(true), Some(true)]),
        ("other", [None, None]),
        ("group", [None, None]),
        ("smb", [None, Some(true)]),
        ("nfs", [Some(true), Some(false)]),
    ] {
        assert_eq!(may(&daemon, share).await, wanted, "{share}\n{}", daemon.log());
    }
    let refused = daemon.status().await.refused;
    // The netgroup is unknown, which is reported like an unavailable name service.
    for (share, rule) in [("other", "share-clients"), ("group", "share-clients-name")] {
        for user in ["uid 0", "alice"] {
            let is_told = |r: &gateway::admin::snapshot::RefusedStatus| {
                (&*r.rule, &*r.share, &*r.user) == (rule, share, user)
            };
            assert!(refused.iter().any(is_told), "{share} {user}: {refused:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_no_name_admits_is_closed_before_it_is_heard() {
    let daemon = Daemon::start("shares: [{name: data, memory: true, clients: '*.example.org'}]");
    assert!(daemon.mount("/data", Credential::none()).await.is_err());
    assert!(daemon.smb("data", "alice", PASSWORD, Options::default()).await.is_err());
    let seen = daemon.status().await;
    let stranger = seen.refused.iter().find(|r| r.rule == "clients").unwrap();
    assert_eq!((&*stranger.client, stranger.count), ("127.0.0.1", 2));
}

/// Returns a command prefix that replaces one database line in nsswitch.conf and one file of /etc, in a separate mount
/// namespace.
fn with_etc(folder: &Path, line: &str, file: &str, text: &str) -> Option<Vec<String>> {
    let at = |name: &str| folder.join(name).display().to_string();
    // A complete copy of /etc, so that no file of the host changes.
    let etc = folder.join("etc");
    let made = Command::new("cp").args(["-a", "/etc"]).arg(&etc).status().ok()?;
    // The file may be a link to a file of the host.
    let _ = fs::remove_file(etc.join(file));
    fs::write(etc.join(file), text).ok()?;
    let switch = fs::read_to_string(etc.join("nsswitch.conf")).ok()?;
    let database = line.split(':').next()?;
    let others = switch.lines().filter(|line| !line.starts_with(database));
    let switch = others.chain([line]).collect::<Vec<_>>().join("\n") + "\n";
    fs::write(etc.join("nsswitch.conf"), switch).ok()?;
    let script = "mount --bind \"$0\" /etc && exec \"$@\"";
    let by = ["unshare", "-m", "sh", "-c", script, &at("etc")].map(str::to_owned).to_vec();
    let works = Command::new(&by[0]).args(&by[1..]).arg("true").status().ok()?.success();
    (made.success() && works).then_some(by)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn netgroups_of_the_host_admit_their_members() {
    let folder = tempfile::tempdir().unwrap();
    let groups = "hosts (localhost,,)\nall hosts (other.lab,,)\naddresses (127.0.0.1,,)\nothers (other.lab,,)\n";
    let by = with_etc(folder.path(), "netgroup: files", "netgroup", groups);
    let Some(by) = by.filter(|_| is_root()) else {
        println!("skipped: it takes root and a mount namespace");
        return;
    };
    let by: Vec<&str> = by.iter().map(String::as_str).collect();
    let share = |name: &str, clients: &str| {
        format!("{{name: {name}, memory: true, squash: none, clients: {clients}}}")
    };
    let shares = [
        share("direct", "'@hosts'"),
        share("nested", "'@all'"),
        share("address", "{from: '@addresses', read_only: true}"),
        share("others", "'@others'"),
        share("first", "['@hosts', {from: 'local*', read_only: true}]"),
    ];
    let daemon = Daemon::start_by(&by, &format!("shares: [{}]", shares.join(", ")));
    for (share, wanted) in [
        ("direct", Some(true)),
        ("nested", Some(true)),
        ("address", Some(false)),
        ("others", None),
        ("first", Some(false)),
    ] {
        assert_eq!(may(&daemon, share).await, [wanted; 2], "{share}\n{}", daemon.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_names_the_first_pattern_cuts_nobody_whom_it_names() {
    let daemon = Daemon::start("shares: [{name: data, memory: true, clients: 127.0.0.0/8}]");
    let files = daemon.smb("data", "alice", PASSWORD, Options::default()).await.unwrap();
    write(&daemon, "clients: 127.0.0.0/8", "clients: 'local*'");
    let told = order(daemon.home.path(), &["reload"]);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("shares changed: data") && !text.contains("ended"), "{text}");
    files.create("f").await.unwrap();
    write(&daemon, "clients: 'local*'", "clients: '*.example.org'");
    let told = order(daemon.home.path(), &["reload"]);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("SMB tree connects ended: 1"), "{text}");
    assert!(files.create("g").await.is_err());
}

/// Starts a DNS server on this address that delays its answer until it is released and then answers with an error. The
/// receiver gets a message with the first query.
fn silent_dns(at: &str) -> Option<(mpsc::Receiver<()>, mpsc::Sender<()>)> {
    let socket = UdpSocket::bind((at, 53)).ok()?;
    let ((tell, told), (go_on, is_let_go)) = (mpsc::channel(), mpsc::channel());
    thread::spawn(move || {
        let mut bytes = [0; 512];
        let (mut length, mut from) = socket.recv_from(&mut bytes).unwrap();
        tell.send(()).unwrap();
        // Released when the sender is dropped.
        let _ = is_let_go.recv();
        loop {
            // RFC 1035 section 4.1.1: QR, and RCODE 2.
            bytes[2] |= 0x80;
            bytes[3] = 2;
            let _ = socket.send_to(&bytes[..length], from);
            (length, from) = socket.recv_from(&mut bytes).unwrap();
        }
    });
    Some((told, go_on))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_waits_for_names_keeps_no_other_order_waiting() {
    let (folder, server) = (tempfile::tempdir().unwrap(), "127.0.0.77");
    let resolver = format!("nameserver {server}\n");
    let by = with_etc(folder.path(), "hosts: files dns", "resolv.conf", &resolver);
    let Some((by, (asked, go_on))) = by.filter(|_| is_root()).zip(silent_dns(server)) else {
        println!("skipped: it takes root, a mount namespace and a port of DNS");
        return;
    };
    let by: Vec<&str> = by.iter().map(String::as_str).collect();
    let daemon =
        Daemon::start_by(&by, "shares: [{name: data, memory: true, clients: 127.0.0.0/8}]");
    write(&daemon, "clients: 127.0.0.0/8", "clients: [127.0.0.0/8, ws.example.org]");
    let home = daemon.home.path().to_owned();
    let reload = thread::spawn(move || order(&home, &["reload"]));
    asked.recv_timeout(Duration::from_secs(60)).unwrap();
    let told = order(daemon.home.path(), &["log", "debug"]);
    assert!(told.status.success(), "{told:?}");
    assert!(!reload.is_finished(), "the order was heard when the reload was over");
    drop(go_on);
    let told = reload.join().unwrap();
    assert!(told.status.success(), "{told:?}\n{}", daemon.log());
}
