//! Notifies the clients of a service that the previous owner is gone.
//!
//! *Operation.* A client whose request was accepted by the previous owner but never answered may wait without limit, because its
//! TCP has no data to retransmit. The new owner sends a bare ACK with wrong numbers on each connection of the previous owner. The
//! client's kernel replies with the correct numbers (RFC 9293 section 3.10.7.4), the new owner's kernel does not know the
//! connection and resets it, and the client reconnects at once. A connection established since then also replies, but is
//! unaffected.
//!
//! The gateway writes its connections to [`FILE`] next to its records, and the new owner reads the file before it starts its
//! gateway. If only a gateway can read the storage, the new gateway writes [`BROUGHT`] to its state folder before it is ready.
//!
//! *Memory.* At most [`FLOWS_MAX`] connections.
//!
//! *Errors.* A segment that cannot be sent is skipped and sent in a later round. Invalid lines of the file are ignored.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use tokio::time::sleep;

use crate::announce::internet_checksum;

/// File with the connections of a gateway, in its state folder.
pub const FILE: &str = "connections";
/// File with the connections of the previous owner, in the state folder of a gateway whose records are elsewhere.
pub const BROUGHT: &str = "connections.before";
/// Maximum number of connections that are written and notified; a gateway may have more.
pub const FLOWS_MAX: usize = 65_536;
/// First line of the file.
const HEAD: &str = "headgate connections 1";
/// Maximum length of a line: two IPv6 addresses with ports.
const LINE_MAX: usize = 128;
/// Pauses before the rounds. Linux replies to such segments at most once per half second and connection; neighbours may have to be
/// resolved.
const ROUNDS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_millis(600),
    Duration::from_millis(1200),
];
/// Number of segments sent before yielding to other tasks.
const TURN: usize = 256;

/// A TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Address of the service.
    pub local: SocketAddr,
    /// Address of the client.
    pub peer: SocketAddr,
}

/// Serializes the connections for the file.
pub fn to_bytes(flows: &[Flow]) -> Vec<u8> {
    let mut text = format!("{HEAD}\n");
    for Flow { local, peer } in flows.iter().take(FLOWS_MAX) {
        text.push_str(&format!("{local} {peer}\n"));
    }
    text.into_bytes()
}

/// Parses the connections of such a file; empty if another program wrote it.
pub fn parse(bytes: &[u8]) -> Vec<Flow> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return Vec::new();
    }
    let flow = |line: &str| {
        let (local, peer) = line.split_once(' ')?;
        let flow = Flow { local: local.parse().ok()?, peer: peer.parse().ok()? };
        (flow.local.is_ipv4() == flow.peer.is_ipv4()).then_some(flow)
    };
    lines.filter_map(flow).take(FLOWS_MAX).collect()
}

/// Reads the connections of a file; empty if it does not exist. Blocks.
///
/// # Errors
///
/// Errors of the file system.
pub fn read(file: &Path) -> io::Result<Vec<Flow>> {
    let opened = match File::open(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    let most = u64::try_from(FLOWS_MAX * LINE_MAX).unwrap_or(u64::MAX);
    opened.take(most).read_to_end(&mut bytes)?;
    Ok(parse(&bytes))
}

/// Notifies the clients in several rounds, from addresses of this node. Returns the number of segments sent.
pub(crate) async fn tell(flows: Vec<Flow>, addresses: Vec<IpAddr>) -> usize {
    let mut sent = 0;
    for pause in ROUNDS {
        sleep(pause).await;
        for local in &addresses {
            let of_it = flows.iter().filter(|flow| flow.local.ip() == *local);
            match sender(*local) {
                Ok(socket) => sent += round(&socket, of_it).await,
                Err(why) => tracing::warn!(address = %local, "clients are not told: {why}"),
            }
        }
    }
    sent
}

/// Opens a raw socket that sends from this address and receives nothing.
fn sender(local: IpAddr) -> io::Result<Socket> {
    let domain = if local.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
    // Otherwise it would receive a copy of all TCP packets. BPF_RET | BPF_K: keep zero bytes.
    socket.attach_filter(&[SockFilter::new(6, 0, 0, 0)])?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
    Ok(socket)
}

async fn round(socket: &Socket, flows: impl Iterator<Item = &Flow>) -> usize {
    let mut sent = 0;
    for (i, flow) in flows.enumerate() {
        // Raw sockets have no ports.
        let to = SockAddr::from(SocketAddr::new(flow.peer.ip(), 0));
        sent += usize::from(socket.send_to(&ack(flow), &to).is_ok());
        if i % TURN == TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    sent
}

/// Builds an ACK whose numbers are wrong for the connection.
fn ack(flow: &Flow) -> [u8; 20] {
    const ACK: u8 = 0x10;
    const TCP: u8 = 6;
    let mut segment = [0; 20];
    segment[..2].copy_from_slice(&flow.local.port().to_be_bytes());
    segment[2..4].copy_from_slice(&flow.peer.port().to_be_bytes());
    // Sequence and acknowledgment number are zero; the header is five words long.
    segment[12] = 5 << 4;
    segment[13] = ACK;
    // RFC 9293 section 3.1: the checksum also covers addresses, protocol and length.
    let addresses = match (flow.local.ip(), flow.peer.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => [a.octets(), b.octets()].concat(),
        (IpAddr::V6(a), IpAddr::V6(b)) => [a.octets(), b.octets()].concat(),
        _ => Vec::new(),
    };
    let sum = internet_checksum(&[&addresses, &[0, TCP, 0, 20], &segment]);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(local: &str, peer: &str) -> Flow {
        Flow { local: local.parse().unwrap(), peer: peer.parse().unwrap() }
    }

    #[test]
    fn connection_file_round_trips() {
        let flows = vec![
            flow("192.0.2.10:2049", "192.0.2.1:777"),
            flow("[2001:db8::10]:445", "[2001:db8::1]:50000"),
        ];
        assert_eq!(parse(&to_bytes(&flows)), flows);
        let mut bytes = to_bytes(&flows);
        bytes.extend_from_slice(b"\n1 2\n192.0.2.10:2049 [::1]:1\n192.0.2.10:2049 192.0.2.1:77");
        assert_eq!(parse(&bytes).len(), 3, "a line that was cut is told to somebody else at worst");
        assert_eq!(parse(b"192.0.2.10:2049 192.0.2.1:777\n"), []);
        assert_eq!(parse(&[0xff; 64]), []);
        let many = vec![flows[0]; FLOWS_MAX + 1];
        let bytes = to_bytes(&many);
        assert!(bytes.len() <= FLOWS_MAX * LINE_MAX);
        assert_eq!(parse(&bytes).len(), FLOWS_MAX);
    }

    #[test]
    fn ack_has_valid_checksum() {
        let segment = ack(&flow("192.0.2.10:2049", "192.0.2.1:777"));
        assert_eq!((&segment[..4], segment[13]), (&[8, 1, 3, 9][..], 0x10));
        // The checksum over the segment including its checksum field is zero.
        let pseudo = [192, 0, 2, 10, 192, 0, 2, 1, 0, 6, 0, 20];
        assert_eq!(internet_checksum(&[&pseudo, &segment]), 0);
    }
}
