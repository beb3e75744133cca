//! Opens the sockets on which the daemon listens.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use config::Settings;
use rdma_transport::verbs::{Listener, Provider};
use tokio::net::{TcpListener, TcpSocket};

use crate::rdma::plan::Fabrics;

/// Connections that the kernel queues for a listener until they are accepted.
const BACKLOG: u32 = 1024;

/// Purpose of a port, the option that sets it, and its number.
pub type Named = (&'static str, &'static str, u16);

/// A port of a protocol over RDMA, and the fabrics whose clients dial it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaPort {
    /// Purpose of the port, with its number.
    pub named: Named,
    /// Fabrics whose clients dial it.
    pub(crate) fabrics: Fabrics,
}

/// Returns the addresses on which to listen.
pub fn addresses(bind: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    match bind {
        [] => vec![SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)],
        some => some.iter().map(|ip| SocketAddr::new(*ip, port)).collect(),
    }
}

/// Returns the IPv4 wildcard address if `--bind` is not given and the host has no IPv6.
fn fallback(at: SocketAddr, settings: &Settings, e: &io::Error) -> Option<SocketAddr> {
    let taken = e.kind() == io::ErrorKind::AddrInUse;
    (settings.bind.is_empty() && at.is_ipv6() && !taken)
        .then(|| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), at.port()))
}

pub fn listen_tcp(at: SocketAddr, settings: &Settings) -> io::Result<TcpListener> {
    let listen = |at: SocketAddr| {
        let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A gateway that was killed can restart at once.
        socket.set_reuseaddr(true)?;
        rdma_transport::tcp::before_bind(&socket, at)?;
        socket.bind(at)?;
        socket.listen(BACKLOG)
    };
    listen(at).or_else(|e| fallback(at, settings, &e).map_or(Err(e), listen))
}

pub async fn listen_rdma(
    provider: &dyn Provider,
    at: SocketAddr,
    settings: &Settings,
) -> io::Result<Box<dyn Listener>> {
    match provider.listen(at).await {
        Ok(listener) => Ok(listener),
        Err(e) => match fallback(at, settings, &e) {
            Some(other) => provider.listen(other).await,
            None => Err(e),
        },
    }
}
