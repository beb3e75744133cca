//! Resources that the services of a node share, the lease and the watch, and those that they do not share.

use cluster::election::{Keys, Last, drained};
use tokio::time::sleep;

use crate::world::{Proxy, TTL, World, compact, etcd, leader, lives, start_etcd, until};

const BOTH: [&str; 2] = ["files", "second"];

/// Returns the lease of a node.
async fn lease_of(world: &World, node: &str) -> u64 {
    world.etcd().get(&format!("/c/nodes/{node}/here")).await.unwrap().unwrap().lease
}

#[tokio::test(flavor = "multi_thread")]
async fn services_share_lease_but_move_separately() {
    let world = World::new().await;
    let (etcd, port) = (world.etcd(), world.member.port);
    let services = BOTH.map(|name| world.named(name));
    let one = world.node_of("gw1", &[port], &services);
    let first = world.line_of("files", 1).await;
    world.line_of("second", 1).await;
    let lease = lease_of(&world, "gw1").await;
    for name in BOTH {
        assert_eq!(world.owner(name).await.unwrap().lease, lease, "{name}");
    }
    let two = world.node_of("gw2", &[port], &services);
    etcd.put(&Keys::new("c", "second").wanted, b"gw2").await.unwrap();
    assert_eq!(world.line_of("second", 2).await[..2], ["serves", "gw2"]);
    assert_eq!(world.owner("second").await.unwrap().lease, lease_of(&world, "gw2").await);
    // It returns under the same lease, in a later epoch.
    etcd.put(&Keys::new("c", "second").wanted, b"gw1").await.unwrap();
    let third = world.line_of("second", 3).await;
    let owner = world.owner("second").await.unwrap();
    assert_eq!((third[1].as_str(), owner.lease), ("gw1", lease));
    assert_eq!(third[2], owner.created.to_string());
    let owner = world.owner("files").await.unwrap();
    assert_eq!((owner.lease, owner.created.to_string()), (lease, first[2].clone()));
    assert!(lives(&first[3]), "the other was served all the time");
    one.end().await;
    for (name, number) in [("files", 2), ("second", 4)] {
        assert_eq!(world.line_of(name, number).await[..2], ["serves", "gw2"]);
    }
    two.end().await;
    let all = BOTH.map(|name| world.journal_of(name)).concat();
    assert!(all.iter().all(|line| !line.starts_with("fenced")), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_lease_ends_all_services() {
    let world = World::new().await;
    let way = Proxy::to(world.member.port).await;
    let services = BOTH.map(|name| world.named(name));
    let one = world.node_of("gw1", &[way.port], &services);
    let first = [world.line_of("files", 1).await, world.line_of("second", 1).await];
    let lease = lease_of(&world, "gw1").await;
    let two = world.node_of("gw2", &[world.member.port], &services);
    way.set(Proxy::CUT);
    for (name, first) in BOTH.into_iter().zip(&first) {
        // The lock of the journal would detect an owner that had not stopped.
        assert_eq!(world.line_of(name, 2).await, ["fenced", "gw1", &first[2]]);
        assert!(!lives(&first[3]), "{name} stopped by its own clock");
        assert_eq!(world.line_of(name, 3).await[..2], ["serves", "gw2"]);
    }
    way.set(Proxy::OPEN);
    two.end().await;
    for name in BOTH {
        assert_eq!(world.line_of(name, 4).await[..2], ["serves", "gw1"]);
        let again = world.owner(name).await.unwrap().lease;
        assert_eq!(again, lease_of(&world, "gw1").await);
        assert_ne!(again, lease, "another follows the lease that was lost");
    }
    one.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_lease_is_replaced() {
    let world = World::new().await;
    let services = BOTH.map(|name| world.named(name));
    let one = world.node_of("gw1", &[world.member.port], &services);
    let first = [world.line_of("files", 1).await, world.line_of("second", 1).await];
    let lease = lease_of(&world, "gw1").await;
    world.etcd().revoke(lease).await.unwrap();
    for (name, first) in BOTH.into_iter().zip(&first) {
        let again = world.line_of(name, 2).await;
        assert_eq!(again[..2], ["serves", "gw1"]);
        assert!(again[2].parse::<u64>().unwrap() > first[2].parse().unwrap());
        assert_ne!(world.owner(name).await.unwrap().lease, lease);
    }
    one.end().await;
}

/// Simulates an etcd restored from a backup that knows the node's lease but not its later ownerships.
#[tokio::test(flavor = "multi_thread")]
async fn owner_without_key_stops() {
    let world = World::new().await;
    let services = BOTH.map(|name| world.named(name));
    let one = world.node_of("gw1", &[world.member.port], &services);
    let first = world.line_of("files", 1).await;
    let second = world.line_of("second", 1).await;
    world.etcd().delete(&Keys::new("c", "second").owner).await.unwrap();
    let again = world.line_of("second", 2).await;
    assert_eq!(again[1], "gw1");
    assert!(!lives(&second[3]) && again[2].parse::<u64>().unwrap() > second[2].parse().unwrap());
    assert!(lives(&first[3]));
    one.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_storage_delays_no_other_service() {
    let world = World::new().await;
    let port = world.member.port;
    let (hangs, goes_on) = (world.path("hangs"), world.path("goes-on"));
    let attach = format!(
        "touch {}; while test ! -e {}; do sleep 0.1; done",
        hangs.display(),
        goes_on.display()
    );
    let mut hanging = world.named("files");
    hanging.attach = Some(vec!["sh".into(), "-c".into(), attach]);
    hanging.nodes = vec!["gw1".into()];
    let services = [hanging, world.named("second")];
    let one = world.node_of("gw1", &[port], &services);
    let first = world.line_of("second", 1).await;
    until("the storage hangs", || async { hangs.exists() }).await;
    // If renewals had stopped, both would have ended, and would campaign again.
    sleep(2 * TTL).await;
    let owner = world.owner("second").await.unwrap();
    assert!(lives(&first[3]) && owner.created.to_string() == first[2]);
    let two = world.node_of("gw2", &[port], &services);
    world.etcd().put(&Keys::new("c", "second").wanted, b"gw2").await.unwrap();
    assert_eq!(world.line_of("second", 2).await[..2], ["serves", "gw2"]);
    std::fs::write(goes_on, b"").unwrap();
    let served = world.line_of("files", 1).await;
    assert_eq!(served[..2], ["serves", "gw1"]);
    assert_eq!(served[2], world.owner("files").await.unwrap().created.to_string());
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_election_reply_wins_once() {
    let world = World::new().await;
    let (etcd, way) = (world.etcd(), Proxy::to(world.member.port).await);
    let keys = Keys::new("c", "files");
    // Another node owns it until this node has registered; this node first tries the member that will not reply.
    etcd.put(&keys.owner, b"{\"node\":\"gw2\"}").await.unwrap();
    let one = world.node_of("gw1", &[way.port, world.member.port], &[world.service()]);
    let here = || async { etcd.get("/c/nodes/gw1/here").await.unwrap().is_some() };
    until("it has registered", here).await;
    way.set(Proxy::UNANSWERED);
    etcd.delete(&keys.owner).await.unwrap();
    let served = world.line(1).await;
    let owner = world.owner("files").await.unwrap();
    assert_eq!((served[1].as_str(), &served[2]), ("gw1", &owner.created.to_string()));
    assert_eq!(owner.lease, lease_of(&world, "gw1").await);
    assert!(way.kept_back() > 0, "the first answer was lost");
    one.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_candidature_blocks_no_node() {
    let world = World::new().await;
    let (etcd, way) = (world.etcd(), Proxy::to(world.member.port).await);
    let one = world.node("gw1", way.port, world.service());
    let first = world.line(1).await;
    // It releases the service, and campaigns again without ever learning that it was elected.
    way.set(Proxy::UNANSWERED);
    let owner = world.owner("files").await.unwrap();
    assert_eq!(first[2], owner.created.to_string());
    etcd.delete(&Keys::new("c", "files").owner).await.unwrap();
    until("it was elected", || async { world.owner("files").await.is_some() }).await;
    let again = world.owner("files").await.unwrap();
    assert_eq!(again.lease, owner.lease);
    assert!(!lives(&first[3]));
    // It deletes the key without getting a reply either: none of these requests may affect a later owner.
    etcd.put(&drained("c", "gw1"), b"").await.unwrap();
    until("it has let go", || async { world.owner("files").await.is_none() }).await;
    let two = world.node("gw2", world.member.port, world.service());
    // The release of the first owner was reported as well.
    let second = world.line(2).await;
    assert_eq!(second[..2], ["serves", "gw2"]);
    sleep(2 * TTL).await;
    assert!(lives(&second[3]));
    assert_eq!(world.owner("files").await.unwrap().created.to_string(), second[2]);
    way.set(Proxy::OPEN);
    one.end().await;
    two.end().await;
    assert_eq!(world.journal().len(), 2, "{:?}", world.journal());
}

/// A peer of an earlier version has one lease per service, and no number of its candidature.
#[tokio::test(flavor = "multi_thread")]
async fn older_version_interoperates() {
    let world = World::new().await;
    let etcd = world.etcd();
    let keys = Keys::new("c", "files");
    let minute = std::time::Duration::from_secs(60);
    let own = async || {
        let lease = etcd.grant(minute).await.unwrap();
        let made = etcd.create(&keys.owner, b"{\"node\":\"old\"}", lease, &keys.owner).await;
        let owner = made.unwrap().remove(0);
        (owner.lease == lease).then_some(owner)
    };
    let old = own().await.unwrap();
    let last = Last {
        node: "old".into(),
        machine: "another".into(),
        epoch: old.created,
        ended: false,
        attaching: None,
        hardware: Vec::new(),
    };
    etcd.put(&keys.last, &last.to_bytes()).await.unwrap();
    let one = world.node("gw1", world.member.port, world.service());
    sleep(TTL).await;
    assert_eq!(world.journal(), [""; 0]);
    etcd.revoke(old.lease).await.unwrap();
    assert_eq!(world.line(1).await, ["fenced", "old", &old.created.to_string()]);
    let served = world.line(2).await;
    assert_eq!(served[..2], ["serves", "gw1"]);
    // It requests the service, and gets it.
    etcd.put(&keys.wanted, b"old").await.unwrap();
    let lease = etcd.grant(minute).await.unwrap();
    etcd.create(&keys.asked, b"old", lease, &keys.asked).await.unwrap();
    until("it is handed over", || async { own().await.is_some() }).await;
    assert!(!lives(&served[3]));
    let last = Last::parse(&etcd.get(&keys.last).await.unwrap().unwrap().value).unwrap();
    assert_eq!((last.node.as_str(), last.ended), ("gw1", true));
    sleep(TTL).await;
    assert_eq!(world.journal().len(), 2, "{:?}", world.journal());
    one.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_before_watch_are_seen() {
    for is_compacted in [false, true] {
        let world = World::new().await;
        let (etcd, way) = (world.etcd(), Proxy::to(world.member.port).await);
        let one = world.node("gw1", way.port, world.service());
        let first = world.line(1).await;
        let two = world.node("gw2", world.member.port, world.service());
        way.set(Proxy::UNWATCHED);
        etcd.put(&Keys::new("c", "files").wanted, b"gw2").await.unwrap();
        // If it had been notified, it would have left long ago.
        sleep(TTL).await;
        assert!(lives(&first[3]), "its lease is renewed");
        if is_compacted {
            compact(world.member.port).await;
        }
        way.set(Proxy::OPEN);
        assert_eq!(world.line(2).await[..2], ["serves", "gw2"], "compacted: {is_compacted}");
        one.end().await;
        two.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn services_survive_etcd_leader_loss() {
    let world = World::new().await;
    let dir = tempfile::tempdir().unwrap();
    let mut members = start_etcd(dir.path(), 3).await;
    let ports: Vec<u16> = members.iter().map(|member| member.port).collect();
    let services = BOTH.map(|name| world.named(name));
    let one = world.node_of("gw1", &ports, &services);
    world.line_of("files", 1).await;
    world.line_of("second", 1).await;
    let two = world.node_of("gw2", &ports, &services);
    let lost = leader(&members).await;
    members[lost].kill();
    let left: Vec<u16> = ports.iter().copied().filter(|port| *port != ports[lost]).collect();
    let etcd = etcd(&left);
    for (name, to) in [("files", "gw2"), ("second", "gw2"), ("files", "gw1"), ("second", "gw1")] {
        let keys = Keys::new("c", name);
        until("etcd has a leader again", || async {
            etcd.put(&keys.wanted, to.as_bytes()).await.is_ok()
        })
        .await;
        until(&format!("{name} is served by {to}"), || async {
            let journal = world.journal_of(name);
            let last = journal.iter().rfind(|line| line.starts_with("serves")).unwrap();
            last.starts_with(&format!("serves {to} ")) && lives(last.rsplit(' ').next().unwrap())
        })
        .await;
    }
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_node_keys_expire_with_lease() {
    let world = World::new().await;
    let port = world.member.port;
    let services = BOTH.map(|name| world.named(name));
    let one = world.node_of("gw1", &[port], &services);
    let first = [world.line_of("files", 1).await, world.line_of("second", 1).await];
    let two = world.node_of("gw2", &[port], &services);
    one.dies();
    for (name, first) in BOTH.into_iter().zip(&first) {
        assert_eq!(world.line_of(name, 2).await, ["fenced", "gw1", &first[2]]);
        assert_eq!(world.line_of(name, 3).await[..2], ["serves", "gw2"]);
    }
    two.end().await;
}
