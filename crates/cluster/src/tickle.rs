//! Tells the clients of a service that the owner before is gone.
//!
//! *Operation.* A client that has sent a request which the owner before took and never answered waits for as long as it likes: its
//! TCP has nothing to send again. The new owner sends each connection that there was a bare ACK with numbers that are wrong. The
//! client's kernel answers it with the right ones (RFC 9293 section 3.10.7.4), the new owner's kernel knows no such connection and
//! resets it, and the client connects again at once. A connection that was made since answers as well, and nothing happens to it.
//!
//! The gateway writes which connections it has to [`FILE`] beside its records, which the new owner reads before it starts its own;
//! where only a gateway can read that, it leaves [`BROUGHT`] in its state folder before it is ready.
//!
//! *Memory.* At most [`FLOWS_MAX`] connections.
//!
//! *Errors.* A segment that cannot be sent is left out and sent in a later round. What in the file is no connection is left out.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use tokio::time::sleep;

use crate::announce::internet_checksum;

/// The connections of a gateway, in its state folder.
pub const FILE: &str = "connections";
/// Those of the owner before, in the state folder of a gateway whose records are not there.
pub const BROUGHT: &str = "connections.before";
/// As many connections are written and told; a gateway may have more.
pub const FLOWS_MAX: usize = 65_536;
/// The first line of the file.
const HEAD: &str = "headgate connections 1";
/// Two addresses of IPv6 with their ports.
const LINE_MAX: usize = 128;
/// Pauses before the rounds. Linux answers such segments of a connection once in half a second; neighbours may have to be found.
const ROUNDS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_millis(600),
    Duration::from_millis(1200),
];
/// Segments that are sent before others have their turn.
const TURN: usize = 256;

/// A connection of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The service.
    pub local: SocketAddr,
    /// The client.
    pub peer: SocketAddr,
}

/// As they stand in the file.
pub fn to_bytes(flows: &[Flow]) -> Vec<u8> {
    let mut text = format!("{HEAD}\n");
    for Flow { local, peer } in flows.iter().take(FLOWS_MAX) {
        text.push_str(&format!("{local} {peer}\n"));
    }
    text.into_bytes()
}

/// The connections of such a file; none where it is of another program.
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

/// Those in a file; none where there is none. Blocks.
///
/// # Errors
///
/// Those of the file system.
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

/// Tells them, in some rounds, from addresses that this node has. How many segments left.
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

/// A raw socket that sends from this address, and hears nothing.
fn sender(local: IpAddr) -> io::Result<Socket> {
    let domain = if local.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
    // It would be given a copy of all that comes by TCP. BPF_RET | BPF_K: no byte is kept.
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

/// An ACK whose numbers are none of the connection's.
fn ack(flow: &Flow) -> [u8; 20] {
    const ACK: u8 = 0x10;
    const TCP: u8 = 6;
    let mut segment = [0; 20];
    segment[..2].copy_from_slice(&flow.local.port().to_be_bytes());
    segment[2..4].copy_from_slice(&flow.peer.port().to_be_bytes());
    // Sequence and acknowledgment number are zero; the header is five words long.
    segment[12] = 5 << 4;
    segment[13] = ACK;
    // RFC 9293 section 3.1: the sum has the addresses, the protocol and the length, too.
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
    fn the_file_is_read_as_it_was_written_and_nonsense_is_left_out() {
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
    fn an_ack_has_a_sum_that_any_receiver_accepts() {
        let segment = ack(&flow("192.0.2.10:2049", "192.0.2.1:777"));
        assert_eq!((&segment[..4], segment[13]), (&[8, 1, 3, 9][..], 0x10));
        // With the sum in place the whole comes to nothing.
        let pseudo = [192, 0, 2, 10, 192, 0, 2, 1, 0, 6, 0, 20];
        assert_eq!(internet_checksum(&[&pseudo, &segment]), 0);
    }
}
