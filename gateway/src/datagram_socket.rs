//! A UDP socket that knows at which address of the host each datagram arrived, and answers from that address: clients drop a
//! reply from any other.
//!
//! A reply may be larger than the MTU, as the replies of MOUNT EXPORT and of the portmapper's DUMP are. Such a reply leaves
//! in fragments, which quinn-udp would forbid because QUIC does not allow them.
//!
//! *Memory.* Each socket has a buffer of [`ROOM`] bytes. The kernel may deliver several datagrams of one sender at once.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rdma_transport::channel::canonical;
use rdma_transport::socket::allow_fragments;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Largest size in bytes of one datagram, and of several that the kernel joins.
pub(crate) const ROOM: usize = 1 << 16;

pub(crate) struct DatagramSocket {
    socket: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
}

/// Datagrams of one sender: each has `stride` bytes, the last one the rest of `length`.
pub(crate) struct Received {
    pub(crate) length: usize,
    pub(crate) stride: usize,
    pub(crate) peer: SocketAddr,
    /// Local address at which they arrived, as the kernel reports it.
    arrived: Option<IpAddr>,
}

impl DatagramSocket {
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        let (state, local) =
            (UdpSocketState::new(UdpSockRef::from(&socket))?, socket.local_addr()?);
        allow_fragments(&socket, local.is_ipv6());
        Ok(Self { socket, state, local })
    }

    /// Returns the local address to which the sender sent the datagrams.
    pub(crate) fn asked(&self, received: &Received) -> SocketAddr {
        let ip = received.arrived.unwrap_or(self.local.ip());
        canonical(SocketAddr::new(ip, self.local.port()))
    }

    /// Waits for the next datagrams. `room` must have [`ROOM`] bytes.
    pub(crate) async fn receive(&self, room: &mut [u8]) -> io::Result<Received> {
        let mut meta = [RecvMeta::default()];
        let receive = || {
            let socket = UdpSockRef::from(&self.socket);
            self.state.recv(socket, &mut [IoSliceMut::new(room)], &mut meta)
        };
        self.socket.async_io(Interest::READABLE, receive).await?;
        let [meta] = meta;
        let stride = meta.stride.max(1);
        Ok(Received { length: meta.len, stride, peer: meta.addr, arrived: meta.dst_ip })
    }

    /// Sends the reply from the address to which the request was sent.
    pub(crate) async fn answer(&self, received: &Received, reply: &[u8]) -> io::Result<()> {
        let transmit = Transmit {
            destination: received.peer,
            ecn: None,
            contents: reply,
            segment_size: None,
            src_ip: received.arrived,
        };
        let send = || self.state.try_send(UdpSockRef::from(&self.socket), &transmit);
        self.socket.async_io(Interest::WRITABLE, send).await
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{
        Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu_discover, ipv6_mtu_discover,
    };

    use super::*;

    /// A socket bound to all addresses serves every loopback address without configuration, as it serves addresses added later.
    #[tokio::test]
    async fn replies_leave_from_the_asked_address() {
        for (bound, asked) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "127.0.0.3")] {
            let Ok(socket) = UdpSocket::bind(bound).await else { continue };
            let server = DatagramSocket::new(socket).unwrap();
            let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let asked = SocketAddr::new(asked.parse().unwrap(), server.local.port());
            client.connect(asked).await.unwrap();
            let mut room = vec![0; ROOM];
            for text in [&b"one"[..], b"two"] {
                client.send(text).await.unwrap();
                let received = server.receive(&mut room).await.unwrap();
                assert_eq!((&room[..received.length], server.asked(&received)), (text, asked));
                server.answer(&received, text).await.unwrap();
                let mut reply = [0; 9];
                // A connected socket drops datagrams from other addresses.
                let length = client.recv(&mut reply).await.unwrap();
                assert_eq!(&reply[..length], text);
            }
        }
    }

    #[tokio::test]
    async fn large_replies_may_be_fragmented() {
        for bound in ["127.0.0.1:0", "[::]:0"] {
            let Ok(socket) = UdpSocket::bind(bound).await else { continue };
            let server = DatagramSocket::new(socket).unwrap();
            let found = ip_mtu_discover(&server.socket).unwrap();
            assert_eq!(found, Ipv4PathMtuDiscovery::DONT, "{bound}");
            if server.local.is_ipv6() {
                let found = ipv6_mtu_discover(&server.socket).unwrap();
                assert_eq!(found, Ipv6PathMtuDiscovery::DONT, "{bound}");
            }
        }
    }
}
