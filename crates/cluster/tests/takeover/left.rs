//! Programs of an owner that do not end, or whose end was not observed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cluster::Service;
use cluster::election::{Keys, Last, drained};
use tokio::time::sleep;

use crate::world::{Proxy, TTL, World, lives, until};

/// Time for which a node waits for a program to end.
const PROGRAM_ENDS_MAX: Duration = Duration::from_secs(30);

fn sh(text: String) -> Option<Vec<String>> {
    Some(vec!["sh".into(), "-c".into(), text])
}

async fn last(world: &World) -> Last {
    let last = world.etcd().get(&Keys::new("c", "files").last).await.unwrap().unwrap();
    Last::parse(&last.value).unwrap()
}

async fn has_trouble(world: &World) -> bool {
    let key = Keys::new("c", "files").trouble + "gw1";
    world.etcd().get(&key).await.unwrap().is_some()
}

fn machine() -> String {
    fs::read_to_string("/etc/machine-id").unwrap().trim().to_owned()
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

/// Sets the value of `last` that a killed run of gw1 would have set.
async fn set_last(world: &World, attaching: Option<String>) {
    let left = Last {
        node: "gw1".into(),
        machine: machine(),
        epoch: 3,
        ended: false,
        attaching,
        hardware: Vec::new(),
    };
    world.etcd().put(&Keys::new("c", "files").last, &left.to_bytes()).await.unwrap();
}

async fn serves(world: &World) -> bool {
    let takeover = Keys::new("c", "files").takeover;
    world.etcd().get(&takeover).await.unwrap().is_some()
}

/// Builds a program that hangs the first time and survives SIGKILL to its group, as if the kernel could not end it.
fn hangs_once(begun: &Path, end: &Path) -> Option<Vec<String>> {
    let (begun, end) = (begun.display(), end.display());
    let hangs = format!("touch {begun}; until test -e {end}; do sleep 0.1; done");
    sh(format!("test -e {begun} || exec setsid --fork --wait sh -c '{hangs}'"))
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_attachment_blocks_release_and_candidature() {
    let world = World::new().await;
    let (way, etcd) = (Proxy::to(world.member.port).await, world.etcd());
    let [begun, end] = ["begun", "end"].map(|name| world.path(name));
    let attach = hangs_once(&begun, &end);
    let one = world.node("gw1", way.port, Service { attach, ..world.service() });
    until("it attaches", || async { begun.exists() }).await;
    way.set(Proxy::CUT);
    until("its key ends", || async { world.owner("files").await.is_none() }).await;
    way.set(Proxy::OPEN);
    let here = || async { etcd.get("/c/nodes/gw1/here").await.unwrap().is_some() };
    until("it has a lease again", here).await;
    // The node has now waited in vain for its end, and would have campaigned.
    sleep(PROGRAM_ENDS_MAX + 3 * TTL).await;
    assert!(world.owner("files").await.is_none());
    assert!(!last(&world).await.ended);
    // The node should only report, with no other action following at once.
    etcd.put(&drained("c", "gw1"), b"").await.unwrap();
    fs::write(end, b"").unwrap();
    until("it says that it has let go", || async { last(&world).await.ended }).await;
    etcd.delete(&drained("c", "gw1")).await.unwrap();
    assert_eq!(world.line(1).await[..2], ["serves", "gw1"]);
    one.end().await;
}

/// The gateway of a killed run ends with it, unless its storage hangs.
#[tokio::test(flavor = "multi_thread")]
async fn killed_run_ends_with_ready_gateway() {
    let world = World::new().await;
    let port = world.member.port;
    set_last(&world, None).await;
    // The killed run attached it, so attaching it again would fail.
    let attached = world.path("attached");
    fs::create_dir(&attached).unwrap();
    let attach = sh(format!("mkdir {}", attached.display()));
    let detach = sh(format!("rmdir {}", attached.display()));
    let service = Service { attach, detach, ..world.service() };
    let command = sh("exit 1".into()).unwrap();
    let one = world.node("gw1", port, Service { command, ..service.clone() });
    until("it could not serve", || has_trouble(&world)).await;
    assert!(!attached.exists());
    one.end().await;
    let left = last(&world).await;
    assert!(left.epoch > 3 && !left.ended && left.attaching.is_none(), "{left:?}");
    let one = world.node("gw1", port, service);
    until("it serves", || serves(&world)).await;
    one.end().await;
    assert!(last(&world).await.ended);
}

/// It may attach the storage again when another node already has it.
#[tokio::test(flavor = "multi_thread")]
async fn killed_attachment_prevents_release_report() {
    let another = || Some("another boot".to_owned());
    for (left, is_told) in [(another(), true), (Some(boot()), false)] {
        let world = World::new().await;
        set_last(&world, left).await;
        let [begun, end] = ["begun", "end"].map(|name| world.path(name));
        let (began, ends) = (begun.display(), end.display());
        let attach = sh(format!("touch {began}; until test -e {ends}; do sleep 0.1; done"));
        let service = Service { attach, ..world.service() };
        let one = world.node("gw1", world.member.port, service);
        until("it attaches", || async { begun.exists() }).await;
        let now = last(&world).await;
        assert!(now.epoch > 3 && now.attaching == Some(boot()), "{now:?}");
        fs::write(&end, b"").unwrap();
        until("it serves", || serves(&world)).await;
        let here = (!is_told).then(boot);
        assert_eq!(last(&world).await, Last { attaching: here.clone(), ..now.clone() });
        one.end().await;
        assert_eq!(last(&world).await, Last { ended: is_told, attaching: here, ..now });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_never_waits_for_ready_gateway() {
    let world = World::new().await;
    let begun = world.path("begun");
    let command = sh(format!("echo $$ >{}; exec sleep 1000", begun.display())).unwrap();
    let one = world.node("gw1", world.member.port, Service { command, ..world.service() });
    let is_told = || async { fs::read_to_string(&begun).is_ok_and(|pid| pid.ends_with('\n')) };
    until("its gateway begins", is_told).await;
    let began = Instant::now();
    one.end().await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(!lives(fs::read_to_string(&begun).unwrap().trim()));
    assert!(last(&world).await.ended);
    assert!(world.owner("files").await.is_none());
}

/// After a power cut, etcd restarts the TTL of the earlier registration, however long the node has waited for etcd.
#[tokio::test(flavor = "multi_thread")]
async fn node_waits_for_own_old_registration() {
    let world = World::new().await;
    let (way, etcd) = (Proxy::to(world.member.port).await, world.etcd());
    way.set(Proxy::CUT);
    let one = world.node("gw1", way.port, world.service());
    sleep(3 * TTL).await;
    let before = format!("{{\"machine\":\"{}\",\"boot\":\"another\"}}", machine());
    let (here, lease) = ("/c/nodes/gw1/here", etcd.grant(TTL).await.unwrap());
    etcd.create(here, before.as_bytes(), lease, here).await.unwrap();
    way.set(Proxy::OPEN);
    assert_eq!(world.line(1).await[..2], ["serves", "gw1"]);
    one.end().await;
}
