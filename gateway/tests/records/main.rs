//! Records in CephFS: what was acknowledged is there, whatever ends the process, the session, a daemon of the cluster or its room;
//! and whoever opens them is the only one.
//!
//! It wants the cluster that `tests/ceph/cluster up` starts; `cargo xtask test --tier third` does that, and runs this.
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub)] // A test that cannot go on says so.

mod cost;
mod daemons;
mod serve;
mod store;
mod world;
