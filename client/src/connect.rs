//! Connections to a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iobuf::{Account, Pool, PoolLimits};
use rdma_transport::channel::{Info, Traffic, Transport};
use rdma_transport::tcp::TcpCaller;
use tokio::net::TcpStream;

use crate::error::{Error, Result};
use crate::rpc::{Callbacks, Rpc};

/// Longest time to make a connection.
pub const CONNECT_SECONDS_MAX: u64 = 10;

/// Buffers of a client: what it receives, and what it sends from.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Payload.
    pub pool: Pool,
    /// Messages.
    pub recvs: Pool,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            pool: Pool::new(PoolLimits { buffers_max: [4096, 1024, 256] }),
            recvs: Pool::new(PoolLimits { buffers_max: [4096, 1024, 1] }),
        }
    }
}

/// Calls over TCP.
pub async fn tcp(to: SocketAddr, memory: &Memory, callbacks: Arc<dyn Callbacks>) -> Result<Rpc> {
    let limit = Duration::from_secs(CONNECT_SECONDS_MAX);
    let stream = tokio::time::timeout(limit, TcpStream::connect(to))
        .await
        .map_err(|_| Error::Connect(format!("{to} does not answer")))?
        .map_err(|e| Error::Connect(format!("{to}: {e}")))?;
    let local = stream.local_addr().map_err(|e| Error::Connect(e.to_string()))?;
    let info = info(to, local, Transport::Tcp, memory);
    let caller = TcpCaller::new(stream, info, memory.recvs.clone())
        .map_err(|e| Error::Connect(e.to_string()))?;
    Ok(Rpc::over(Box::new(caller), callbacks))
}

pub(crate) fn info(
    peer: SocketAddr,
    local: SocketAddr,
    transport: Transport,
    memory: &Memory,
) -> Arc<Info> {
    Arc::new(Info {
        peer,
        local,
        transport,
        account: Account::new(),
        pool: memory.pool.clone(),
        traffic: Traffic::default(),
    })
}

/// Calls over RPC-over-RDMA, by iWARP in user space.
pub async fn rdma(
    _to: SocketAddr,
    _memory: &Memory,
    _callbacks: Arc<dyn Callbacks>,
) -> Result<Rpc> {
    Err(Error::Connect("this build has no RPC-over-RDMA client".into()))
}
