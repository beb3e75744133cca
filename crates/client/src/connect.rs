//! Connections to a server.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use iobuf::{Pool, PoolLimits};
use rdma_transport::channel::{Info, Transport};
use rdma_transport::ibverbs::{Verbs, VerbsConfig};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use rdma_transport::rpcrdma::RdmaCaller;
use rdma_transport::tcp::TcpCaller;
use rdma_transport::verbs::Provider;
use tokio::net::{TcpSocket, TcpStream};

use crate::error::{Error, Result};
use crate::rpc::{Callbacks, Rpc};

/// Time limit for connecting, in seconds.
pub const CONNECT_SECONDS_MAX: u64 = 10;

/// Resources and settings of a client.
#[derive(Clone)]
pub struct Local {
    /// Buffers for payload.
    pub pool: Pool,
    /// Buffers for messages.
    pub recvs: Pool,
    /// Makes RDMA connections.
    pub rdma: Option<Arc<dyn Provider>>,
    /// Use a source port below 1024 for NFS over TCP if this process may, like `mount`: most servers refuse others.
    pub reserved_port: bool,
    /// Source address of TCP connections; `None`: chosen by the host's routes.
    pub from: Option<IpAddr>,
}

impl Local {
    /// Uses iWARP with a CRC in every frame, or leaves the CRC to the server.
    pub fn asking_for_crc(crc: bool) -> Self {
        Self {
            pool: Pool::new(PoolLimits { buffers_max: [4096, 1024, 256] }),
            recvs: Pool::new(PoolLimits { buffers_max: [4096, 1024, 1] }),
            rdma: Some(Arc::new(Iwarp::new(IwarpConfig { crc, ..IwarpConfig::default() }))),
            reserved_port: true,
            from: None,
        }
    }

    /// Uses the RDMA devices of this host.
    pub fn by_device() -> Self {
        let rdma: Arc<dyn Provider> = Arc::new(Verbs::new(VerbsConfig::default()));
        Self { rdma: Some(rdma), ..Self::default() }
    }
}

impl Default for Local {
    fn default() -> Self {
        Self::asking_for_crc(true)
    }
}

/// Connects over TCP.
pub async fn tcp(to: SocketAddr, local: &Local, callbacks: Arc<dyn Callbacks>) -> Result<Rpc> {
    let limit = Duration::from_secs(CONNECT_SECONDS_MAX);
    let stream = tokio::time::timeout(limit, stream(to, local))
        .await
        .map_err(|_| Error::Connect(format!("{to} does not answer")))?
        .map_err(|e| Error::Connect(format!("{to}: {e}")))?;
    let from = stream.local_addr().map_err(|e| Error::Connect(e.to_string()))?;
    let info = info(to, from, Transport::Tcp, local);
    let caller = TcpCaller::new(stream, info, local.recvs.clone())
        .map_err(|e| Error::Connect(e.to_string()))?;
    Ok(Rpc::over(Box::new(caller), callbacks))
}

/// Ports below 1024 with few registered services.
const RESERVED: std::ops::RangeInclusive<u16> = 665..=1023;

/// Creates a socket for a connection to `to`, and returns its source address.
fn socket(to: SocketAddr, local: &Local) -> io::Result<(TcpSocket, IpAddr)> {
    let (socket, any) = match to {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, IpAddr::from([0; 4])),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, IpAddr::from([0u16; 8])),
    };
    Ok((socket, local.from.unwrap_or(any)))
}

/// Connects from any port.
pub(crate) async fn plain(to: SocketAddr, local: &Local) -> io::Result<TcpStream> {
    if local.from.is_none() {
        return TcpStream::connect(to).await;
    }
    let (socket, from) = socket(to, local)?;
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(to).await
}

async fn stream(to: SocketAddr, local: &Local) -> io::Result<TcpStream> {
    let ports = RESERVED.rev().filter(|_| local.reserved_port);
    for port in ports {
        let (socket, from) = socket(to, local)?;
        // Remains of an earlier connection from this port to another address do not matter.
        socket.set_reuseaddr(true)?;
        match socket.bind(SocketAddr::new(from, port)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => break,
            Err(_) => continue,
        }
        match socket.connect(to).await {
            // A connection with these addresses exists, or is in TIME_WAIT.
            Err(e)
                if [io::ErrorKind::AddrNotAvailable, io::ErrorKind::AddrInUse]
                    .contains(&e.kind()) => {}
            done => return done,
        }
    }
    plain(to, local).await
}

fn info(peer: SocketAddr, from: SocketAddr, transport: Transport, local: &Local) -> Arc<Info> {
    Arc::new(Info::new(peer, from, transport, local.pool.clone()))
}

/// Connects over RPC-over-RDMA.
pub async fn rdma(to: SocketAddr, local: &Local, callbacks: Arc<dyn Callbacks>) -> Result<Rpc> {
    let provider = local
        .rdma
        .as_ref()
        .ok_or_else(|| Error::Connect("this client has no RDMA provider".into()))?;
    let limit = Duration::from_secs(CONNECT_SECONDS_MAX);
    let done = tokio::time::timeout(limit, provider.connect(to, RdmaCaller::connect_params()))
        .await
        .map_err(|_| Error::Connect(format!("{to} does not answer")))?
        .map_err(|e| Error::Connect(format!("{to}: {e}")))?;
    let info = info(to, done.local, Transport::Rdma(provider.name()), local);
    let caller = RdmaCaller::new(done.qp, info, local.recvs.clone(), &done.private_data)?;
    Ok(Rpc::over(Box::new(caller), callbacks))
}
