//! `clients` of a share name hosts, patterns, netgroups and protocols, and a running gateway looks them up.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use client::smb::Options;
use client::{Credential, Volume};
use common::{Daemon, PASSWORD};

mod common;

/// Writes a file, if the volume lets it.
async fn writes(volume: &Volume) -> bool {
    volume.create("f").await.is_ok()
}

/// What a client on this host may do by NFS and by SMB: `None` nothing, else whether it writes.
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
    for share in ["other", "group"] {
        for user in ["uid 0", "alice"] {
            let is_told = |r: &gateway::admin::snapshot::RefusedStatus| {
                (&*r.rule, &*r.share, &*r.user) == ("share-clients", share, user)
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

/// Runs a command where `netgroup: files` holds and this is the file, in a mount namespace of its own.
fn with_netgroups(folder: &std::path::Path, netgroups: &str) -> Option<Vec<String>> {
    let at = |name: &str| folder.join(name).display().to_string();
    // A whole /etc of its own, so that no file has to be made on the host.
    let etc = folder.join("etc");
    let made = Command::new("cp").args(["-a", "/etc"]).arg(&etc).status().ok()?;
    fs::write(etc.join("netgroup"), netgroups).ok()?;
    let switch = fs::read_to_string(etc.join("nsswitch.conf")).ok()?;
    let others = switch.lines().filter(|line| !line.starts_with("netgroup"));
    let switch = others.chain(["netgroup: files"]).collect::<Vec<_>>().join("\n") + "\n";
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
    let Some(by) = with_netgroups(folder.path(), groups).filter(|_| is_root()) else {
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
