//! A connection between a client and the gateway that can be cut: both then see a reset, without an orderly end.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// Maximum time that a client, after an orderly end, waits for the gateway to close the connection.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// Carries one connection. Dropping it cuts the connection if the client still uses it.
pub struct Line {
    /// Address to which the client connects.
    pub at: SocketAddr,
    carrying: JoinHandle<()>,
}

impl Line {
    /// Connects to the gateway at `server`, which sees a client at `from`. Cuts the connection after `bytes_max` bytes towards
    /// the gateway.
    pub async fn to(server: SocketAddr, from: Ipv4Addr, bytes_max: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let at = listener.local_addr()?;
        let carrying = tokio::spawn(async move {
            // The client notices every kind of end on its connection.
            let _ = carry(listener, server, from, bytes_max).await;
        });
        Ok(Self { at, carrying })
    }

    pub fn cut(&self) {
        self.carrying.abort();
    }

    /// Ends the line after the client has left, when its last bytes are delivered.
    pub async fn end(mut self) {
        let _ = tokio::time::timeout(2 * GOODBYE_MAX, &mut self.carrying).await;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn carry(
    listener: TcpListener,
    server: SocketAddr,
    from: Ipv4Addr,
    bytes_max: u64,
) -> io::Result<()> {
    let (mut near, _) = listener.accept().await?;
    drop(listener);
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut far = socket.connect(server).await?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
        reset_at_end(stream, true)?;
    }
    let ((near_in, mut near_out), (mut far_in, mut far_out)) = (near.split(), far.split());
    let mut near_in = near_in.take(bytes_max);
    let is_whole = tokio::select! {
        up = copy(&mut near_in, &mut far_out) => up? < bytes_max,
        down = copy(&mut far_in, &mut near_out) => down.map(|_| false)?,
    };
    if is_whole {
        reset_at_end(&far, false)?;
        far.shutdown().await?;
        let _ = tokio::time::timeout(GOODBYE_MAX, copy(&mut far, &mut tokio::io::sink())).await;
    }
    Ok(())
}

/// A socket that is closed with a linger time of zero sends RST instead of FIN.
fn reset_at_end(stream: &TcpStream, on: bool) -> io::Result<()> {
    SockRef::from(stream).set_linger(on.then_some(Duration::ZERO))
}
