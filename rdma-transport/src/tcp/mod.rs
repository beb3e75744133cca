//! RPC and SMB over a byte stream: record marking (RFC 5531 section 11) or Direct TCP (MS-SMB2 section 2.1) as a
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

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

static ADDRESSES_COME_LATER: AtomicBool = AtomicBool::new(false);

/// Allows sockets to listen on addresses that this machine does not have yet: a cluster moves them here when the node is ready.
/// Otherwise such an address is a configuration error that must be reported.
pub fn listen_before_addresses_come() {
    ADDRESSES_COME_LATER.store(true, Ordering::Relaxed);
}

/// Prepares a listening socket before it is bound to an address.
pub fn before_bind(socket: &impl AsFd, at: SocketAddr) -> io::Result<()> {
    if !ADDRESSES_COME_LATER.load(Ordering::Relaxed) {
        return Ok(());
    }
    let socket = socket2::SockRef::from(socket);
    match at {
        SocketAddr::V4(_) => socket.set_freebind_v4(true),
        SocketAddr::V6(_) => socket.set_freebind_v6(true),
    }
}
