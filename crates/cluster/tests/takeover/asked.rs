//! Requests of a preferred node for a service that another node owns.

use cluster::election::{Keys, Last, drained};
use cluster::etcd::{Entry, Etcd};
use tokio::time::sleep;

use crate::world::{PATIENCE, TTL, World, post, until};

/// Owns a service without ever leaving, until its lease is revoked.
async fn own(etcd: &Etcd, keys: &Keys) -> u64 {
    own_as("stays", etcd, keys).await
}

async fn own_as(node: &str, etcd: &Etcd, keys: &Keys) -> u64 {
    let lease = etcd.grant(PATIENCE).await.unwrap();
    let owner = format!("{{\"node\":\"{node}\"}}");
    let owns = || async {
        let made = etcd.create(&keys.owner, owner.as_bytes(), lease, &keys.owner).await;
        made.unwrap()[0].lease == lease
    };
    until("it owns the service", owns).await;
    lease
}

/// Waits until this node requests the service.
async fn asked_by(etcd: &Etcd, keys: &Keys, node: &str) -> Entry {
    let asked = || async { etcd.get(&keys.asked).await.unwrap() };
    until(&format!("{node} asks"), || async {
        asked().await.is_some_and(|asked| asked.value == node.as_bytes())
    })
    .await;
    asked().await.unwrap()
}

async fn until_nobody_asks(etcd: &Etcd, keys: &Keys, why: &str) {
    until(why, || async { etcd.get(&keys.asked).await.unwrap().is_none() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_node_withdraws_all_requests() {
    let world = World::new().await;
    let etcd = world.etcd();
    let names: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
    let keys: Vec<Keys> = names.iter().map(|name| Keys::new("c", name)).collect();
    let services: Vec<_> = names.iter().map(|name| world.named(name)).collect();
    for keys in &keys {
        own(&etcd, keys).await;
        etcd.put(&keys.wanted, b"gw1").await.unwrap();
    }
    let leases = async || {
        let answer = post(world.member.port, "lease/leases", "{}", "").await;
        answer.matches("\"ID\"").count()
    };
    let of_owners = leases().await;
    for ends_in_order in [true, false] {
        let one = world.node_of("gw1", &[world.member.port], &services);
        let here = "/c/nodes/gw1/here";
        until("it is registered", || async { etcd.get(here).await.unwrap().is_some() }).await;
        let lease = etcd.get(here).await.unwrap().unwrap().lease;
        let mut asked = Vec::new();
        for keys in &keys {
            asked.push(asked_by(&etcd, keys, "gw1").await);
        }
        assert!(asked.iter().all(|asked| asked.lease == lease), "{asked:?}");
        assert_eq!(leases().await, of_owners + 1);
        // Waiting costs no requests: the key is written once.
        sleep(TTL).await;
        for (keys, asked) in keys.iter().zip(&asked) {
            assert_eq!(etcd.get(&keys.asked).await.unwrap().as_ref(), Some(asked));
        }
        if ends_in_order {
            one.end().await;
            assert_eq!(etcd.get(&keys[0].asked).await.unwrap(), None);
        } else {
            one.dies();
        }
        for keys in &keys {
            until_nobody_asks(&etcd, keys, "what it asked ends with its lease").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_node_withdraws_request() {
    let world = World::new().await;
    let (etcd, keys) = (world.etcd(), Keys::new("c", "files"));
    own(&etcd, &keys).await;
    let one = world.node("gw1", world.member.port, world.service());
    let two = world.node("gw2", world.member.port, world.service());
    etcd.put(&keys.wanted, b"gw1").await.unwrap();
    asked_by(&etcd, &keys, "gw1").await;
    etcd.put(&drained("c", "gw1"), b"").await.unwrap();
    until_nobody_asks(&etcd, &keys, "it is drained").await;
    etcd.delete(&drained("c", "gw1")).await.unwrap();
    asked_by(&etcd, &keys, "gw1").await;
    etcd.put(&keys.wanted, b"gw3").await.unwrap();
    until_nobody_asks(&etcd, &keys, "another was chosen, which is not there").await;
    etcd.put(&keys.wanted, b"gw2").await.unwrap();
    asked_by(&etcd, &keys, "gw2").await;
    // The request of a node that cannot withdraw it: it is cut off, and its lease has not ended.
    let lease = etcd.grant(PATIENCE).await.unwrap();
    two.end().await;
    etcd.create(&keys.asked, b"gw2", lease, &keys.asked).await.unwrap();
    etcd.put(&keys.wanted, b"gw1").await.unwrap();
    asked_by(&etcd, &keys, "gw1").await;
    one.end().await;
    assert_eq!(world.journal(), [""; 0]);
}

/// Otherwise an owner would leave for it again and again.
#[tokio::test(flavor = "multi_thread")]
async fn failed_node_withdraws_request() {
    let world = World::new().await;
    let (etcd, keys) = (world.etcd(), Keys::new("c", "files"));
    std::fs::write(world.path("no-fence"), b"").unwrap();
    let first = own(&etcd, &keys).await;
    let last = Last {
        node: "stays".into(),
        machine: "another".into(),
        epoch: 1,
        ended: false,
        attaching: None,
        hardware: Vec::new(),
    };
    etcd.put(&keys.last, &last.to_bytes()).await.unwrap();
    etcd.put(&keys.wanted, b"gw1").await.unwrap();
    let one = world.node("gw1", world.member.port, world.service());
    let asked = asked_by(&etcd, &keys, "gw1").await;
    etcd.revoke(first).await.unwrap();
    let trouble = format!("{}gw1", keys.trouble);
    until("it cannot fence", || async { etcd.get(&trouble).await.unwrap().is_some() }).await;
    // The node did not get far enough to delete it.
    assert_eq!(etcd.get(&keys.asked).await.unwrap(), Some(asked));
    own(&etcd, &keys).await;
    until_nobody_asks(&etcd, &keys, "it is quiet for some minutes").await;
    sleep(TTL).await;
    assert_eq!(etcd.get(&keys.asked).await.unwrap(), None);
    one.end().await;
    assert_eq!(world.journal(), [""; 0]);
}

/// After all nodes died and restarted, this would be two changes for each service, when etcd is busiest.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_node_requests_nothing_of_itself() {
    let world = World::new().await;
    let etcd = world.etcd();
    let (own_before, of_another) = (Keys::new("c", "files"), Keys::new("c", "second"));
    own_as("gw1", &etcd, &own_before).await;
    own(&etcd, &of_another).await;
    for keys in [&own_before, &of_another] {
        etcd.put(&keys.wanted, b"gw1").await.unwrap();
    }
    let services = ["files", "second"].map(|name| world.named(name));
    let one = world.node_of("gw1", &[world.member.port], &services);
    asked_by(&etcd, &of_another, "gw1").await;
    sleep(TTL).await;
    assert_eq!(etcd.get(&own_before.asked).await.unwrap(), None);
    one.end().await;
}
