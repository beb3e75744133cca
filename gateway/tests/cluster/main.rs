//! Tests of two nodes, each in a separate network namespace on one bridge, with a real etcd, and clients while the service
//! moves: by an order, after a kill, after a link failure, or because the node is stopped and continues.
//!
//! Needs root, `ip` and `etcd` (packages iproute2, etcd-server): the tier `third` installs them and runs this test.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

mod adopt;
mod alone;
mod bad;
mod cephfs;
mod elsewhere;
mod late;
mod lease;
mod load;
mod moves;
mod random;
mod tickle;
mod two;
mod watch;
mod world;

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Seconds of the owner's lease in etcd.
const TTL: u64 = 3;
/// Time limit for steps that need almost no time, on a machine under load.
const PATIENCE: Duration = Duration::from_secs(60);

fn headgate() -> &'static str {
    env!("CARGO_BIN_EXE_headgate")
}

async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Retries until an attempt succeeds.
async fn until_ok<T, E: std::fmt::Debug>(
    what: &str,
    mut tries: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let began = Instant::now();
    loop {
        match tries().await {
            Ok(done) => return done,
            Err(e) => assert!(began.elapsed() < PATIENCE, "waited in vain until {what}: {e:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}
