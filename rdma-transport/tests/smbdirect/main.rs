//! SMB Direct over loopback and iWARP: an acceptor against an initiator controlled by the test, and against our own initiator.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

#[path = "../common/mod.rs"]
mod common;
mod credits;
mod data;
mod direct;
mod harness;
mod negotiate;
mod pair;
