//! RPC-over-RDMA version 1 (RFC 8166), with the connection's private data (RFC 8797) and the reverse direction (RFC 8167).
//!
//! [`wire`], [`check`], [`chunks`] and [`plan`] perform no I/O: they take bytes and lists and return decisions. [`RdmaChannel`]
//! drives a queue pair with them for a server, [`RdmaCaller`] for a client.

pub mod answer;
mod caller;
mod channel;
pub mod check;
pub mod chunks;
mod credits;
mod fetch;
pub mod plan;
pub mod wire;

pub use caller::RdmaCaller;
pub use channel::RdmaChannel;
