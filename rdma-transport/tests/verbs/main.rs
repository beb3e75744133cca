//! Tests the contract of queue pairs with an RDMA device: `VERBS_AT` is an address that a device serves, `VERBS_LAX` a forbidden
//! access that it permits. The lab runs this in its guests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../contract/harness.rs"]
#[macro_use]
mod harness;
mod rping;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rdma_transport::ibverbs::{Verbs, VerbsConfig};

fn verbs() -> Verbs {
    // Both ends are kept after the end, so waiting for the peer's disconnect would take the whole of this time.
    let close_time_max = Duration::from_millis(500);
    Verbs::new(VerbsConfig { close_time_max, ..VerbsConfig::default() })
}

/// Devices differ in reporting violations and invalidated memory.
const TELLS_ALL: bool = false;

/// True if the device wrongly permits this access: siw does not check that the source of a Read is readable.
fn is_lax(crime: &str) -> bool {
    std::env::var("VERBS_LAX").is_ok_and(|lax| lax == crime)
}

fn listen_at() -> SocketAddr {
    let at = std::env::var("VERBS_AT").expect("VERBS_AT: an address that an RDMA device serves");
    (at.parse::<IpAddr>().expect("VERBS_AT is an IP address"), 0).into()
}

contract!(verbs, crate::verbs());

/// As on iWARP cards: a request that names memory of another connection's domain fails.
fn separate() -> Verbs {
    let close_time_max = Duration::from_millis(500);
    Verbs::new(VerbsConfig { close_time_max, separate_domains: true, ..VerbsConfig::default() })
}

contract!(separate_domains, crate::separate());

/// Number of files that this process has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn five_hundred_connects_leak_no_resources() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let provider = verbs();
        let mut after_the_first = 0;
        for round in 0..500 {
            let connects = async {
                let (mut client, mut server) = harness::connected(&provider).await;
                client.qp.disconnect();
                harness::until_down(&mut client, &mut server).await;
            };
            tokio::time::timeout(Duration::from_secs(20), connects).await.unwrap();
            if round == 0 {
                after_the_first = open_files();
            }
        }
        assert_eq!(open_files(), after_the_first);
    });
}
