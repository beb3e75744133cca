//! Tests the contract of queue pairs with providers that need only this process.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
mod harness;

use std::net::SocketAddr;
use std::time::Duration;

use rdma_transport::iwarp::{Iwarp, IwarpConfig};

fn iwarp(all: bool) -> Iwarp {
    // Both ends are kept after the end, so the last bytes would wait for the whole of this time.
    let close_time_max = Duration::from_millis(100);
    let usual = IwarpConfig::default();
    Iwarp::new(IwarpConfig { crc: all, large_fpdus: all, close_time_max, ..usual })
}

/// These providers report violated rules and invalidated handles.
const TELLS_ALL: bool = true;

/// True if a provider wrongly permits this access.
fn is_lax(_crime: &str) -> bool {
    false
}

fn listen_at() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

contract!(loopback, rdma_transport::loopback::Loopback);
contract!(iwarp, crate::iwarp(true));
contract!(iwarp_without_crc, crate::iwarp(false));
