//! Forwards connections to a server, and can stop forwarding the server's data: to the server its client is then connected but
//! takes no data.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Receive buffer of the socket to the server, in bytes.
const HELD: u32 = 16 << 10;

/// Forwards connections to one server. Ends them when dropped.
pub struct Relay {
    /// The address for clients.
    pub at: SocketAddr,
    deaf: Arc<watch::Sender<bool>>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Starts a relay to this server.
    pub async fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let at = listener.local_addr()?;
        let deaf = Arc::new(watch::Sender::new(false));
        let told = deaf.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let deaf = told.subscribe();
                open.spawn(async move { pass_on(client, server, deaf).await.unwrap_or_default() });
            }
        });
        Ok(Self { at, deaf, _tasks: tasks })
    }

    /// Stops reading from the server.
    pub fn be_deaf(&self) {
        self.deaf.send_replace(true);
    }
}

async fn pass_on(
    client: tokio::net::TcpStream,
    server: SocketAddr,
    mut deaf: watch::Receiver<bool>,
) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(HELD)?;
    let server = socket.connect(server).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let ((mut from_server, mut to_server), (mut from_client, mut to_client)) =
        (server.into_split(), client.into_split());
    let up = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let down = async {
        let mut some = vec![0; 64 << 10];
        loop {
            let n = tokio::select! {
                biased;
                _ = deaf.wait_for(|deaf| *deaf) => break,
                n = from_server.read(&mut some) => n?,
            };
            match n {
                0 => return to_client.shutdown().await,
                n => to_client.write_all(&some[..n]).await?,
            }
        }
        std::future::pending().await
    };
    tokio::try_join!(up, down).map(|_| ())
}
