//! Tests that an etcd that lost its data elects in smaller epochs than the records have, until `adopt`.

use std::process::Command;

use crate::world::World;
use crate::{headgate, until};

/// Runs `headgate cluster adopt`; returns whether it succeeded, and its output.
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
    // etcd counts each move; the next epoch is then higher than a new etcd reaches without help.
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
    // The node may become a candidate again at this moment.
    until("it is adopted", || adopt(&world, &["--nobody-serves"]).0).await;
    until("it is served by a later epoch", || {
        world.has_address(0) && world.owner().is_some_and(|(_, epoch)| epoch > before)
    })
    .await;
    // Later epochs are higher as well.
    let (_, adopted) = world.owner().unwrap();
    world.repaired(0).await;
    until("the epochs go on", || world.owner().is_some_and(|(_, epoch)| epoch > adopted)).await;
}
