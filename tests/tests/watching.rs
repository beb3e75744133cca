//! Data of the admin address: operation counters by share and protocol, and for each connection why it does not use RDMA.

#![allow(clippy::unwrap_used)]
use std::sync::Arc;
use std::time::Duration;

use client::Error;
use client::connect::Local;
use client::smb::{Options, Smb};
use client::target::{Transport, Version};
use config::{Admin, Limits, Rdma, Settings};
use gateway::admin::protocol::Protocol;
use gateway::admin::show;
use gateway::admin::snapshot::{ConnectionStatus, Snapshot};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf};
use rdma_transport::channel::Facts;
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use smb_proto::NtStatus;
use smb_proto::smb2::negotiate::Dialect;
use tokio::io::AsyncWriteExt;

async fn world(change: impl FnOnce(&mut Settings)) -> (World, tempfile::TempDir) {
    with_alice(|settings| {
        settings.admin = Admin::At(([127, 0, 0, 1], 0).into());
        change(settings);
    })
    .await
}

async fn look(world: &World) -> Snapshot {
    show::snapshot(world.running.admin.unwrap()).await.unwrap()
}

async fn smb(world: &World, rdma: bool, options: Options) -> Smb {
    let provider = Arc::new(Iwarp::new(IwarpConfig::default()));
    let local = Local { rdma: Some(provider), ..Local::default() };
    let at = if rdma { world.running.smb_direct[0] } else { world.running.smb[0] };
    Smb::connect(at, rdma, ("127.0.0.1", "data"), &alice(), options, &local).await.unwrap()
}

/// Count, errors and bytes of an operation.
fn counted(s: &Snapshot, key: (&str, Protocol, &str, &str)) -> (u64, u64, u64) {
    let found = s.operations.iter().find(|o| o.key() == key);
    found.map_or((0, 0, 0), |o| {
        assert_eq!(o.histogram().count(), o.count);
        assert!(o.nanoseconds > 0);
        (o.count, o.errors, o.bytes)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn shares_and_users_are_reported() {
    let (world, _dir) = world(|_| ()).await;
    let share =
        |s: &Snapshot, name: &str| s.shares.iter().find(|s| s.name == name).cloned().unwrap();
    until(async || {
        let s = look(&world).await;
        s.shares.iter().all(|s| s.space.is_some_and(|space| space.total_bytes > 0))
    })
    .await;
    let before = look(&world).await;
    assert_eq!((share(&before, "data").trees, before.users.len()), (0, 0));
    let one = smb(&world, false, Options::default()).await;
    let two = smb(&world, true, Options::default()).await;
    let seen = look(&world).await;
    assert_eq!((share(&seen, "data").trees, share(&seen, "mem").trees), (2, 0));
    let [user] = &seen.users[..] else { panic!("{:?}", seen.users) };
    assert_eq!((&*user.name, user.guest, user.sessions), ("alice", false, 2));
    assert_eq!(
        (&user.clients[..], &user.shares[..]),
        (&["127.0.0.1".into()][..], &["data".into()][..])
    );
    let text = show::show(&seen, false);
    let row = |first: &str| {
        let line = text.lines().find(|l| l.trim_start().starts_with(first)).unwrap_or(&text);
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("alice "), ["alice", "127.0.0.1", "data", "2"]);
    assert_eq!(row("data ").last().map(String::as_str), Some("2"));
    drop((one, two));
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_counted_by_share() {
    let (world, _dir) = world(|_| ()).await;
    for (version, transport) in [
        (Version::V3, Transport::Tcp),
        (Version::V3, Transport::Rdma),
        (Version::V42, Transport::Tcp),
        (Version::V42, Transport::Rdma),
    ] {
        let name = if transport == Transport::Tcp { "tcp" } else { "iwarp" };
        let before = look(&world).await;
        let volume = world.client("mem", (version, transport)).await.unwrap();
        let file = volume.create("f").await.unwrap();
        for _ in 0..3 {
            assert_eq!(volume.write(&file, 0, vec![buf(&[7; 10_000])]).await.unwrap(), 10_000);
        }
        for _ in 0..5 {
            volume.read(&file, 0, 4096).await.unwrap();
        }
        volume.find("nowhere").await.unwrap_err();
        let after = look(&world).await;
        let since = |operation| {
            let key = ("mem", Protocol::Nfs, name, operation);
            let (a, b) = (counted(&after, key), counted(&before, key));
            (a.0 - b.0, a.1 - b.1, a.2 - b.2)
        };
        assert_eq!(since("WRITE"), (3, 0, 30_000), "{version} {name}");
        assert_eq!(since("READ"), (5, 0, 5 * 4096), "{version} {name}");
        let lookup = if version == Version::V3 { "LOOKUP" } else { "OPEN" };
        assert_eq!(since(lookup).1, 1, "{version} {name}");
        let elsewhere = ("data", Protocol::Nfs, name, "READ");
        assert_eq!(counted(&after, elsewhere), (0, 0, 0));
        volume.close(file).await.unwrap();
        volume.leave().await.unwrap();
    }
    for rdma in [false, true] {
        let name = if rdma { "iwarp" } else { "tcp" };
        let smb = smb(&world, rdma, Options::default()).await;
        let file = smb.create("g").await.unwrap();
        smb.write(&file, 0, vec![buf(&[7; 10_000])]).await.unwrap();
        smb.read(&file, 0, 4096).await.unwrap();
        smb.find("nowhere").await.unwrap_err();
        let s = look(&world).await;
        let of = |share, operation| counted(&s, (share, Protocol::Smb, name, operation));
        assert_eq!(of("data", "WRITE"), (1, 0, 10_000), "{name}");
        assert_eq!(of("data", "READ"), (1, 0, 4096), "{name}");
        assert_eq!(of("data", "CREATE"), (2, 1, 0), "{name}");
        assert_eq!(of("", "NEGOTIATE"), (1, 0, 0), "{name}");
        assert_eq!(of("", "SESSION_SETUP").1, 0, "the first half of a logon is no error");
        smb.close(file).await.unwrap();
    }
    world.running.stop().await;
}

/// Connections with this protocol and transport, newest first.
fn of<'a>(s: &'a Snapshot, protocol: Protocol, transport: &str) -> Vec<&'a ConnectionStatus> {
    let wanted = |c: &&ConnectionStatus| c.protocol == protocol && c.transport == transport;
    s.connections.iter().rev().filter(wanted).collect()
}

/// The reason for the newest connection. A client that has connected without a request may not be accepted yet.
async fn reason(world: &World, protocol: Protocol, transport: &str) -> String {
    let accepted = async {
        loop {
            let s = look(world).await;
            if let Some(c) = of(&s, protocol, transport).first() {
                return c.why_not.as_ref().map_or_else(|| "none".into(), |w| w.reason.clone());
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), accepted).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rdma_is_the_reason() {
    let (world, _dir) = world(|s| s.rdma = Rdma::Off).await;
    let _nfs = world.client("mem", (Version::V3, Transport::Tcp)).await.unwrap();
    assert_eq!(reason(&world, Protocol::Nfs, "tcp").await, "off");
    let _smb = smb(&world, false, Options::default()).await;
    assert_eq!(reason(&world, Protocol::Smb, "tcp").await, "off");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reasons_without_rdma_are_reported() {
    let (world, _dir) = world(|_| ()).await;
    let tcp = (Version::V42, Transport::Tcp);
    let nfs = world.client("mem", tcp).await.unwrap();
    assert_eq!(reason(&world, Protocol::Nfs, "tcp").await, "mounted-tcp");

    let old = smb(&world, false, Options { dialect: Dialect::V210, ..Options::default() }).await;
    assert_eq!(reason(&world, Protocol::Smb, "tcp").await, "dialect");
    old.leave().await.unwrap();
    let single = smb(&world, false, Options::default()).await;
    assert_eq!(reason(&world, Protocol::Smb, "tcp").await, "no-multichannel");
    single.leave().await.unwrap();

    let multi = Options { multichannel: true, ..Options::default() };
    let can = smb(&world, false, multi).await;
    assert_eq!(reason(&world, Protocol::Smb, "tcp").await, "not-asked");
    can.interfaces().await.unwrap();
    // A loopback client gets no RDMA address: no device reaches it there.
    assert_eq!(reason(&world, Protocol::Smb, "tcp").await, "none-told");

    // A client without iWARP connects to the RDMA port from the same address.
    for (protocol, at) in
        [(Protocol::Smb, world.running.smb_direct[0]), (Protocol::Nfs, world.running.nfs_rdma[0])]
    {
        let mut stranger = tokio::net::TcpStream::connect(at).await.unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\nhost: nobody\r\n\r\n").await.unwrap();
        until(async || reason(&world, protocol, "tcp").await == "attempt-failed").await;
    }
    let s = look(&world).await;
    let why = of(&s, Protocol::Smb, "tcp")[0].why_not.clone().unwrap();
    assert!(why.text.contains("failed: "), "{}", why.text);
    // The client implementation, from its data at logon.
    let client = |c: &ConnectionStatus| c.facts.iter().any(|(name, _)| name == Facts::CLIENT);
    assert!(client(of(&s, Protocol::Smb, "tcp")[0]), "{s:?}");

    // A client that succeeds uses RDMA, and its TCP connection is the first of its session.
    let direct = smb(&world, true, Options::default()).await;
    assert_eq!(reason(&world, Protocol::Smb, "iwarp").await, "none");
    let rdma = world.client("mem", (Version::V42, Transport::Rdma)).await.unwrap();
    assert_eq!(reason(&world, Protocol::Nfs, "iwarp").await, "none");
    assert_eq!(reason(&world, Protocol::Nfs, "tcp").await, "elsewhere-on-rdma");
    rdma.leave().await.unwrap();
    direct.leave().await.unwrap();

    for (options, expected) in [
        (Options { sign: true, rdma_transforms: false, ..Options::default() }, "signed"),
        (Options { seal: true, rdma_transforms: false, ..Options::default() }, "encrypted"),
        (Options { sign: true, ..Options::default() }, "none"),
        (Options { seal: true, ..Options::default() }, "none"),
    ] {
        let direct = smb(&world, true, options).await;
        assert_eq!(reason(&world, Protocol::Smb, "iwarp").await, expected);
        direct.leave().await.unwrap();
    }
    can.leave().await.unwrap();
    nfs.leave().await.unwrap();
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_limits_are_reported_by_name() {
    let (world, _dir) = world(|s| {
        s.limits = Limits { client_connections: Some(12), client_opens: 3, ..s.limits };
    })
    .await;
    let met = async |name: &str| look(&world).await.limits.get(name).copied().unwrap_or(0);
    let (one, other) = (
        smb(&world, false, Options::default()).await,
        smb(&world, false, Options::default()).await,
    );
    let mut files = Vec::new();
    for n in 0..3 {
        files.push(one.create(&format!("f{n}")).await.unwrap());
    }
    let why = one.create("f3").await.unwrap_err();
    let Error::Smb(_, status) = why else { panic!("{why}") };
    assert_eq!(status, NtStatus::TOO_MANY_OPENED_FILES);
    assert!(!world.folder().join("f3").exists(), "it was not even made");
    assert_eq!(met("opens-of-session").await, 1);
    other.create("f3").await.unwrap();
    one.close(files.remove(0)).await.unwrap();
    one.create("f4").await.unwrap();

    // An open of version 4 may be accompanied by three states.
    let nfs = world.client("mem", (Version::V42, Transport::Tcp)).await.unwrap();
    let mut opened = 0;
    let why = loop {
        match nfs.create(&format!("g{opened}")).await {
            Ok(_) => opened += 1,
            Err(why) => break why,
        }
    };
    const NFS4ERR_DELAY: u32 = 10_008;
    assert!(matches!(why, Error::Nfs4(_, NFS4ERR_DELAY)), "{why}");
    assert!((3..=12).contains(&opened), "{opened}");
    assert!(met("opens-of-client").await > 0);

    // Three connections are open; each further one is closed at once.
    let at = world.running.nfs[0];
    let mut streams = Vec::new();
    let refused = async || met("connections-of-address").await > 0;
    while !refused().await {
        assert!(streams.len() < 12, "more than the limit");
        streams.push(tokio::net::TcpStream::connect(at).await.unwrap());
        until(async || world.running.connections() == 3 + streams.len() || refused().await).await;
    }
    let mut last = streams.pop().unwrap();
    let end = tokio::io::AsyncReadExt::read(&mut last, &mut [0]).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    assert_eq!(streams.len(), 12 - 3);
    world.running.stop().await;
}

async fn until(is: impl AsyncFn() -> bool) {
    let wait = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn held_files_are_reported_for_protocols() {
    let (world, _dir) = world(|_| ()).await;
    assert_eq!(world.running.held_files().await.to_string(), "no client holds a file");
    let smb = smb(&world, false, Options::default()).await;
    let by_smb = smb.create("by smb").await.unwrap();
    let nfs = world.client("mem", (Version::V42, Transport::Tcp)).await.unwrap();
    let by_nfs = nfs.create("by nfs").await.unwrap();
    let held = world.running.held_files().await;
    let of = |share: &str, path: &str| {
        let found: Vec<_> = held
            .files
            .iter()
            .filter(|f| f.share == share && f.path.as_deref() == Some(path))
            .collect();
        assert!(!found.is_empty(), "{path} in\n{held}");
        found
    };
    let [one] = of("data", "by smb")[..] else { panic!("{held}") };
    assert_eq!((one.protocol.as_str(), one.user.as_deref()), ("smb", Some("alice")));
    assert!(one.client.starts_with("127.0.0.1:") && one.how.contains("write"), "{held}");
    assert!(
        of("mem", "by nfs").iter().any(|f| f.protocol == "nfs" && f.how.starts_with("open to"))
    );
    // A renamed file, and a removed one.
    smb.rename(&by_smb, "renamed", false).await.unwrap();
    nfs.remove("by nfs").await.unwrap();
    let held = world.running.held_files().await;
    let at = |path: Option<&str>| held.files.iter().any(|f| f.path.as_deref() == path);
    assert!(at(Some("renamed")) && !at(Some("by smb")) && !at(Some("by nfs")), "{held}");
    smb.close(by_smb).await.unwrap();
    nfs.close(by_nfs).await.unwrap();
    world.running.stop().await;
}
