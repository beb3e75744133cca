//! SMB Direct over the loopback provider and over iWARP: an acceptor against an initiator that is played by hand, and against
//! our own.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

#[path = "../common/mod.rs"]
mod common;
mod credits;
mod data;
mod direct;
mod harness;
mod negotiate;
mod pair;
