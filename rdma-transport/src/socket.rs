//! What every TCP socket of a connection is set to.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::limits;

/// Congestion control between programs of one machine. Every kernel has it and lets every process use it.
const WITHIN_THE_MACHINE: &[u8] = b"reno";

/// Small messages leave at once, and a peer that vanished without a word is noticed. Within one machine there is no network
/// to be careful with: an algorithm that paces (BBR, where it is the machine's default) would set a timer for every segment.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(limits::KEEPALIVE_IDLE_SECONDS))
        .with_interval(Duration::from_secs(limits::KEEPALIVE_INTERVAL_SECONDS))
        .with_retries(limits::KEEPALIVE_PROBES_MAX);
    let socket = SockRef::from(stream);
    if stream.peer_addr()?.ip() == stream.local_addr()?.ip() {
        // Refused, it goes on with the machine's own.
        let _ = socket.set_tcp_congestion(WITHIN_THE_MACHINE);
    }
    socket.set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_paced_within_the_machine() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        tune(&stream).unwrap();
        let name = SockRef::from(&stream).tcp_congestion().unwrap();
        let name = name.split(|b| *b == 0).next().unwrap();
        assert_eq!(name, WITHIN_THE_MACHINE);
    }
}
