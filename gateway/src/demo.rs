//! The gateway of `headgate demo`.

use std::net::SocketAddr;

use config::Settings;
use tools::demo::{Addresses, Gateway};

use crate::serve::{self, Running};

impl Gateway for Running {
    async fn start(settings: Settings) -> Result<Self, String> {
        serve::start(settings).await
    }

    fn addresses(&self) -> Result<Addresses, String> {
        let first = |list: &[SocketAddr], what| {
            list.first().copied().ok_or_else(|| format!("the gateway does not listen for {what}"))
        };
        Ok(Addresses {
            nfs: first(&self.nfs, "NFS over TCP")?,
            nfs_rdma: first(&self.nfs_rdma, "NFS over RDMA")?,
            smb: first(&self.smb, "SMB over TCP")?,
            smb_direct: first(&self.smb_direct, "SMB Direct")?,
        })
    }

    async fn stop(self) {
        Running::stop(self).await;
    }
}
