//! An etcd that has lost what it knew elects in smaller epochs than the records have seen.

use std::process::Command;

use crate::world::World;
use crate::{headgate, until};

/// What `headgate cluster adopt` says, and whether it did it.
fn adopt(world: &World, more: &[&str]) -> (bool, String) {
    let done = Command::new(headgate())
        .args(["cluster", "adopt", "files", "--config"])
        .arg(world.path("gw0.yaml"))
        .args(more)
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_adopted_where_etcd_counts_anew() {
    let mut world = World::new().await;
    until("the service is served", || world.has_address(0)).await;
    let (done, said) = adopt(&world, &["--nobody-serves"]);
    assert!(!done && said.contains("is served by gw0"), "{said}");
    // etcd counts each of these; then an epoch begins that a new etcd does not come to by itself.
    for _ in 0..40 {
        world.ask(0, &["move", "files", "gw0"]).unwrap();
    }
    world.repaired(0).await;
    until("it is served again", || world.has_address(0)).await;
    let (_, before) = world.owner().unwrap();
    assert!(before > 40, "{before}");
    world.signal(0, "-9");
    world.forget();
    until("the new etcd answers", || world.ask(0, &["status"]).is_some()).await;
    world.repaired(0).await;
    until("the records are refused", || {
        let logs = world.logs();
        logs.contains(&format!("are of epoch {before}, and this node was elected in epoch"))
            && logs.contains("headgate cluster adopt")
    })
    .await;
    until("it has let go", || world.owner().is_none()).await;
    let (done, said) = adopt(&world, &[]);
    assert!(!done && said.contains("give `--nobody-serves`"), "{said}");
    // It may be a candidate again at this very moment.
    until("it is adopted", || adopt(&world, &["--nobody-serves"]).0).await;
    until("it is served by a later epoch", || {
        world.has_address(0) && world.owner().is_some_and(|(_, epoch)| epoch > before)
    })
    .await;
    // And so are the next.
    let (_, adopted) = world.owner().unwrap();
    world.repaired(0).await;
    until("the epochs go on", || world.owner().is_some_and(|(_, epoch)| epoch > adopted)).await;
}
