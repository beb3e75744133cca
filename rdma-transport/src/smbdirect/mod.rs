//! SMB Direct (MS-SMBD): messages over a queue pair in fragments with credits in both directions, and direct access to the peer's
//! memory.
//!
//! The deciding parts perform no I/O: [`wire`], [`negotiate`], `credits`, `reassembly`, `outgoing` and `timers`.
//! [`SmbDirectChannel`] is the acceptor as [`crate::channel::Channel`], [`SmbDirectCaller`] the initiator as
//! [`crate::messages::Messages`].
//!
//! A server listens on port 5445 (iWARP) or 445 (InfiniBand, RoCE; MS-SMBD section 1.9) and serves accepted connections:
//!
//! ```text
//! let private = incoming.request().await?;
//! let c = incoming.accept(SmbDirectChannel::accept_params(&private)).await?;
//! let channel = SmbDirectChannel::new(c.qp, info, recvs)?;
//! serve(Box::new(channel), service).await
//! ```
//!
//! `recvs` provides receive buffers of 4 KiB: one at the start of the connection, up to 255 after the negotiation; when the pool is
//! empty, they come from the heap. [`crate::channel::Channel::poll_recv`] performs the negotiation; after it
//! [`crate::channel::Info::message_out_max`] is the largest message without RDMA.

mod caller;
mod channel;
mod credits;
pub mod negotiate;
mod outgoing;
mod port;
mod pulls;
mod reassembly;
mod timers;
mod violation;
pub mod wire;

pub use caller::SmbDirectCaller;
pub use channel::SmbDirectChannel;
pub use violation::Violation;
