//! Tests of records in CephFS: acknowledged records survive the end of the process or the session, a cluster daemon's failure
//! and a full cluster, and an opener excludes all others.
//!
//! Needs the cluster that `tests/ceph/cluster up` starts; `cargo xtask test --tier third` does that and runs this test.
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub)] // A test that cannot go on says so.

mod cost;
mod daemons;
mod serve;
mod store;
mod world;
