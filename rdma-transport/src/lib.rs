//! Queue pairs, RPC-over-RDMA, record-marked TCP, and the [`channel::Channel`] that hides the transport from protocols.
//!
//! There are two levels of transport traits: [`verbs`] for transports with one-sided operations (in-process loopback, user-space
//! iWARP, hardware verbs), and [`channel`] for the protocols, which plain TCP implements too.

// The crate is not published; a doc comment that repeats a name helps no reader.
#![allow(missing_docs)]

pub mod caller;
mod calls;
pub mod channel;
pub mod count;
pub mod devices;
pub mod fault;
pub mod ibverbs;
pub mod iwarp;
pub mod lease;
pub mod limits;
mod link;
pub mod loopback;
pub mod memory_wait;
pub mod messages;
pub mod meter;
mod moves;
pub mod parts;
pub mod receives;
pub mod refused;
pub mod rpcrdma;
pub mod serve;
pub mod smbdirect;
pub mod socket;
mod stall;
pub mod tcp;
pub mod tls;
pub mod traffic_class;
pub mod turn;
pub mod turns;
mod untaken;
pub mod verbs;
pub mod watchdog;
pub mod xdr;
