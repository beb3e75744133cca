//! Tests COMPOUNDs on a server with memory volumes.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

mod attr_table;
mod attrs;
mod client;
mod data;
mod delegated;
mod delegations;
mod directories;
mod exports;
mod harness;
mod histories;
mod leases;
mod links;
mod locks;
mod machine;
mod minor0;
mod names;
mod opens;
mod rates;
mod readdir;
mod referrals;
mod room;
mod rules;
mod sessions;
mod v42;
