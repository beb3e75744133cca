//! RPC and SMB over a byte stream: record marking (RFC 5531 section 11) or Direct TCP (MS-SMB2 section 2.1) behind a
//! [`crate::channel::Channel`].

mod caller;
mod channel;
pub mod direct;
mod framing;
mod messages;
pub mod record;
mod recv;
mod send;
mod stream;

pub use caller::TcpCaller;
pub use channel::{TLS_HANDSHAKE, TcpChannel};
pub use framing::{Framing, Violation};
pub use messages::TcpMessages;
