//! RPC over a byte stream: record marking (RFC 5531 section 11) behind a [`crate::channel::Channel`].

mod caller;
mod channel;
pub mod record;
mod recv;
mod send;

pub use caller::TcpCaller;
pub use channel::TcpChannel;
