//! The running daemon.

use std::net::SocketAddr;

use config::Settings;

/// A gateway that serves.
#[derive(Debug)]
pub struct Running {
    /// Where NFS over TCP listens.
    pub nfs: Vec<SocketAddr>,
    /// Where NFS over RDMA listens.
    pub nfs_rdma: Vec<SocketAddr>,
}

impl Running {
    /// Answers what is in work, then closes everything.
    pub async fn stop(self) {}
}

/// Starts to serve. The error is one line for standard error.
pub async fn start(_settings: Settings) -> Result<Running, String> {
    Err("this build has no server".into())
}

/// Serves until SIGTERM or SIGINT.
pub async fn run(settings: Settings) -> Result<(), String> {
    start(settings).await?.stop().await;
    Ok(())
}
