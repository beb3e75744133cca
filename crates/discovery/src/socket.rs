//! Sockets of the protocols: one for each protocol, version of IP and link.
//!
//! Each socket is bound to the group's address, so it receives packets sent to the group, but no packets sent to an address of this
//! host: hosts beyond the link cannot send questions, and other programs of this host, which share the port (SO_REUSEADDR), receive
//! their own packets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::task::Poll;
use std::time::Duration;

use socket2::{Domain, InterfaceIndexOrAddress, Socket, Type};
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;

use crate::links::{Link, Offer};
use crate::mdns::{self, Family};
use crate::{llmnr, metadata, wsd};

/// Longest wait for room in a socket's buffer.
const SEND_MAX: Duration = Duration::from_millis(50);

/// A protocol by which this host is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Multicast DNS with DNS-SD.
    Mdns,
    /// Link-local multicast name resolution.
    Llmnr,
    /// WS-Discovery.
    Wsd,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 3] = [Self::Mdns, Self::Llmnr, Self::Wsd];

    /// Returns the name for metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mdns => "mdns",
            Self::Llmnr => "llmnr",
            Self::Wsd => "wsd",
        }
    }

    /// Returns the name for people.
    fn title(self) -> &'static str {
        match self {
            Self::Mdns => "mDNS",
            Self::Llmnr => "LLMNR",
            Self::Wsd => "WS-Discovery",
        }
    }

    /// Returns the UDP port.
    pub fn port(self) -> u16 {
        match self {
            Self::Mdns => mdns::PORT,
            Self::Llmnr => llmnr::PORT,
            Self::Wsd => wsd::PORT,
        }
    }

    fn groups(self) -> (Ipv4Addr, Ipv6Addr) {
        match self {
            Self::Mdns => (mdns::GROUP4, mdns::GROUP6),
            Self::Llmnr => (llmnr::GROUP4, llmnr::GROUP6),
            Self::Wsd => (wsd::GROUP4, wsd::GROUP6),
        }
    }

    /// Returns the hops that its packets may make.
    fn hops(self) -> u32 {
        match self {
            // RFC 6762 section 11, RFC 4795 section 2.5.
            Self::Mdns | Self::Llmnr => 255,
            // The group of IPv4 is one that routers may forward.
            Self::Wsd => 1,
        }
    }
}

/// A socket that is a member of its protocol's group on one link.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) protocol: Protocol,
    pub(crate) family: Family,
    group: SocketAddr,
    socket: UdpSocket,
}

impl Member {
    /// Joins the group on the link.
    pub(crate) fn join(protocol: Protocol, family: Family, link: &Link) -> io::Result<Self> {
        let socket = open(protocol, family, link)?;
        socket.set_nonblocking(true)?;
        let (four, six) = protocol.groups();
        let group = match family {
            Family::V4 => SocketAddr::new(four.into(), protocol.port()),
            Family::V6 => SocketAddrV6::new(six, protocol.port(), 0, link.index).into(),
        };
        Ok(Self { protocol, family, group, socket: UdpSocket::from_std(socket.into())? })
    }

    /// Sends a packet, or drops it if the socket has no room soon: packets to hosts that do not exist fill its buffer for seconds,
    /// in which the link would answer nothing.
    pub(crate) async fn send(&self, bytes: &[u8], host: Option<SocketAddr>) -> io::Result<()> {
        let sent = self.socket.send_to(bytes, host.unwrap_or(self.group));
        match tokio::time::timeout(SEND_MAX, sent).await {
            Ok(sent) => sent.map(drop),
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Opens a socket that is a member of the group.
fn open(protocol: Protocol, family: Family, link: &Link) -> io::Result<Socket> {
    let (four, six) = protocol.groups();
    match family {
        Family::V4 => join4(protocol, four, link),
        Family::V6 => join6(protocol, SocketAddrV6::new(six, protocol.port(), 0, link.index), link),
    }
}

/// Returns why protocols could not be used on a link now; opens their sockets and closes them at once.
pub fn tried(link: &Link, offer: &Offer) -> Vec<String> {
    let mut troubles = Vec::new();
    for family in Family::BOTH {
        let served = || offer.addresses.iter().copied().filter(|ip| family.has(*ip));
        if served().next().is_none() {
            continue;
        }
        let protocols =
            Protocol::ALL.into_iter().filter(|it| *it != Protocol::Wsd || offer.smb.is_some());
        let open = protocols
            .filter_map(|it| open(it, family, link).err().map(|error| refused(it, &error)));
        troubles.extend(open);
        let listen = offer.smb.and_then(|_| metadata::at(&offer.addresses, family));
        troubles.extend(listen.and_then(|at| metadata::tried(at, link).err()));
    }
    troubles.sort();
    troubles.dedup();
    troubles
}

fn join4(protocol: Protocol, group: Ipv4Addr, link: &Link) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    // Only what arrives on this link.
    socket.set_multicast_all_v4(false)?;
    bind_device(&socket, link);
    socket.bind(&SocketAddr::new(group.into(), protocol.port()).into())?;
    socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(link.index))?;
    let four = link.addresses.iter().find_map(|own| match own.ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    });
    socket.set_multicast_if_v4(&four.ok_or(io::ErrorKind::AddrNotAvailable)?)?;
    socket.set_multicast_ttl_v4(protocol.hops())?;
    socket.set_ttl_v4(protocol.hops())?;
    Ok(socket)
}

fn join6(protocol: Protocol, group: SocketAddrV6, link: &Link) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    bind_device(&socket, link);
    socket.bind(&group.into())?;
    socket.join_multicast_v6(group.ip(), link.index)?;
    socket.set_multicast_if_v6(link.index)?;
    socket.set_multicast_hops_v6(protocol.hops())?;
    socket.set_unicast_hops_v6(protocol.hops())?;
    Ok(socket)
}

/// Sends replies through the link on which the request came, if the kernel lets any user bind to a device (Linux 5.7).
fn bind_device(socket: &Socket, link: &Link) {
    if let Err(error) = socket.bind_device(Some(link.name.as_bytes())) {
        tracing::debug!(link = link.name, %error, "replies leave by the route to their host");
    }
}

/// Waits for a packet of any of these sockets. Returns the socket's number, the size and the sender.
pub(crate) async fn receive(
    members: &[Member],
    room: &mut [u8],
    first: usize,
) -> (usize, io::Result<(usize, SocketAddr)>) {
    std::future::poll_fn(|context| {
        for n in 0..members.len() {
            // Starts with another socket each time, so that a busy one does not starve the others.
            let n = (first + n) % members.len();
            let mut buffer = ReadBuf::new(room);
            match members[n].socket.poll_recv_from(context, &mut buffer) {
                Poll::Ready(from) => {
                    let size = buffer.filled().len();
                    return Poll::Ready((n, from.map(|from| (size, from))));
                }
                Poll::Pending => {}
            }
        }
        Poll::Pending
    })
    .await
}

/// Returns a line that says why a group could not be joined, and what to do.
pub(crate) fn refused(protocol: Protocol, error: &io::Error) -> String {
    let (name, port) = (protocol.title(), protocol.port());
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "{name} is left to another program of this host, which holds UDP port {port} for itself; stop it, or set \
             `discovery: off`"
        ),
        _ => format!("{name} cannot be used, because the link takes no part in multicast: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_names_the_port() {
        let line = refused(Protocol::Mdns, &io::ErrorKind::AddrInUse.into());
        assert!(line.contains("5353") && line.contains("another program"), "{line}");
        let line = refused(Protocol::Mdns, &io::Error::from_raw_os_error(19));
        assert!(line.contains("multicast"), "{line}");
    }
}
