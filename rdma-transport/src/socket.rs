//! What every TCP socket of a connection is set to.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::limits;

/// Small messages leave at once, and a peer that vanished without a word is noticed.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(limits::KEEPALIVE_IDLE_SECONDS))
        .with_interval(Duration::from_secs(limits::KEEPALIVE_INTERVAL_SECONDS))
        .with_retries(limits::KEEPALIVE_PROBES_MAX);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
