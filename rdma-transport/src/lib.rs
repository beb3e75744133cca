//! Queue pairs, RPC-over-RDMA, record-marked TCP, and the [`channel::Channel`] that hides which of them is used.
//!
//! Two levels of transport trait: [`verbs`] for what has one-sided operations (in-process loopback, iWARP in user space,
//! hardware verbs), and [`channel`] for what protocols see, which plain TCP serves too.

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
mod memory_wait;
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
pub mod turn;
mod untaken;
pub mod verbs;
pub mod watchdog;
pub mod xdr;
