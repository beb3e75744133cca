//! SMB Direct (MS-SMBD): whole messages over a queue pair, in fragments with credits both ways, and memory that the peers read
//! and write directly.
//!
//! The parts that decide are pure: [`wire`], [`negotiate`], `credits`, `reassembly`, `outgoing` and `timers`. [`SmbDirectChannel`]
//! is the acceptor behind [`crate::channel::Channel`], [`SmbDirectCaller`] the initiator behind [`crate::messages::Messages`].
//!
//! A server listens on port 5445 (iWARP) or 445 (InfiniBand, RoCE; MS-SMBD section 1.9) and serves what it accepts:
//!
//! ```text
//! let private = incoming.request().await?;
//! let c = incoming.accept(SmbDirectChannel::accept_params(&private)).await?;
//! let channel = SmbDirectChannel::new(c.qp, info, recvs)?;
//! serve(Box::new(channel), service).await
//! ```
//!
//! `recvs` lends receive buffers of 4 KiB: one as the connection begins, up to 255 once it is negotiated; what the pool does
//! not have then comes from the heap. The negotiation is part of [`crate::channel::Channel::poll_recv`]; after it
//! [`crate::channel::Info::message_out_max`] says how large a message may be that goes by Send alone.

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
