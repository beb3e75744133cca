//! A share by whichever version: the few operations that `demo` and `bench` measure.

use std::sync::Arc;

use iobuf::Buf;
use rdma_transport::channel::Info;

use crate::connect::{self, Local};
use crate::error::{Error, Result};
use crate::nfs3::{CreateHow, Fh, Nfs3, SetAttr, Stable};
use crate::nfs4::{Minor, Nfs4, OpenFile, OpenHow, Stateid};
use crate::rpc::{Callbacks, Credential, NoCallbacks, Rpc};
use crate::target::{Target, Transport, Version};
use crate::{mount, nfs4};

/// A share, and the connection to it.
#[derive(Clone)]
pub enum Volume {
    /// By version 3.
    V3(Nfs3, Fh),
    /// By version 4.1 or 4.2.
    V4(Nfs4, Fh),
}

/// A file of a [`Volume`].
#[derive(Clone, Debug)]
pub struct File {
    fh: Fh,
    stateid: Stateid,
}

/// A new connection to the target's NFS port.
pub async fn dial(target: &Target, local: &Local, callbacks: Arc<dyn Callbacks>) -> Result<Rpc> {
    let to = target.address(target.port).map_err(Error::Connect)?;
    match target.transport {
        Transport::Tcp => connect::tcp(to, local, callbacks).await,
        Transport::Rdma => connect::rdma(to, local, callbacks).await,
    }
}

impl Volume {
    /// Connects and finds the share.
    pub async fn open(target: &Target, local: &Local, cred: Credential) -> Result<Self> {
        let minor = match target.version {
            Version::V3 => {
                let mount_at = target.address(target.mount_port).map_err(Error::Connect)?;
                let rpc = connect::tcp(mount_at, local, Arc::new(NoCallbacks)).await?;
                let root = mount::mount(&rpc, &cred, &target.path).await?;
                let rpc = dial(target, local, Arc::new(NoCallbacks)).await?;
                return Ok(Self::V3(Nfs3::new(rpc, cred), root));
            }
            Version::V41 => Minor::One,
            Version::V42 => Minor::Two,
        };
        let (callbacks, _recalls) = nfs4::Recalls::new();
        let rpc = dial(target, local, Arc::new(callbacks)).await?;
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(|e| Error::Connect(e.to_string()))?;
        let nfs = Nfs4::connect(rpc, cred, minor, &name, name).await?;
        let root = nfs.walk(&target.path).await?;
        Ok(Self::V4(nfs, root))
    }

    /// What is known of the connection.
    pub fn info(&self) -> &Arc<Info> {
        match self {
            Self::V3(nfs, _) => nfs.rpc().info(),
            Self::V4(nfs, _) => nfs.rpc().info(),
        }
    }

    /// Makes an empty file.
    pub async fn create(&self, name: &str) -> Result<File> {
        match self {
            Self::V3(nfs, root) => {
                let set = SetAttr { mode: Some(0o644), size: Some(0), ..SetAttr::default() };
                let (fh, _) = nfs.create(root, name.as_bytes(), CreateHow::Unchecked(set)).await?;
                Ok(File { fh, stateid: Stateid::ANONYMOUS })
            }
            Self::V4(nfs, root) => {
                let how = OpenHow::create(0o644);
                let open = nfs.open(root, name.as_bytes(), name.as_bytes(), how).await?;
                Ok(File { fh: open.fh, stateid: open.stateid })
            }
        }
    }

    /// Finds and opens a file.
    pub async fn find(&self, name: &str) -> Result<File> {
        match self {
            Self::V3(nfs, root) => {
                let (fh, _) = nfs.lookup(root, name.as_bytes()).await?;
                Ok(File { fh, stateid: Stateid::ANONYMOUS })
            }
            Self::V4(nfs, root) => {
                let open = nfs.open(root, name.as_bytes(), name.as_bytes(), OpenHow::READ).await?;
                Ok(File { fh: open.fh, stateid: open.stateid })
            }
        }
    }

    /// Reads: the bytes, in pieces, and whether the end of the file is reached.
    pub async fn read(&self, file: &File, offset: u64, count: u32) -> Result<(Vec<Buf>, bool)> {
        match self {
            Self::V3(nfs, _) => {
                let read = nfs.read(&file.fh, offset, count).await?;
                Ok((read.data, read.eof))
            }
            Self::V4(nfs, _) => nfs.read(&file.fh, file.stateid, offset, count).await,
        }
    }

    /// Writes without asking for stability; gives the bytes taken.
    pub async fn write(&self, file: &File, offset: u64, data: Vec<Buf>) -> Result<u32> {
        match self {
            Self::V3(nfs, _) => {
                Ok(nfs.write(&file.fh, offset, data, Stable::Unstable).await?.count)
            }
            Self::V4(nfs, _) => Ok(nfs.write(&file.fh, file.stateid, offset, data, 0).await?.count),
        }
    }

    /// Makes what was written stable.
    pub async fn commit(&self, file: &File) -> Result<()> {
        match self {
            Self::V3(nfs, _) => nfs.commit(&file.fh, 0, 0).await.map(drop),
            Self::V4(nfs, _) => nfs.commit(&file.fh, 0, 0).await.map(drop),
        }
    }

    /// Asks for the attributes; gives the size.
    pub async fn size(&self, file: &File) -> Result<u64> {
        match self {
            Self::V3(nfs, _) => Ok(nfs.getattr(&file.fh).await?.size),
            Self::V4(nfs, _) => Ok(nfs.getattr(&file.fh).await?.size),
        }
    }

    /// The names in the share's root.
    pub async fn list(&self) -> Result<Vec<Vec<u8>>> {
        match self {
            Self::V3(nfs, root) => {
                let names = nfs.list(root).await?.into_iter().map(|e| e.name);
                Ok(names.filter(|n| n != b"." && n != b"..").collect())
            }
            Self::V4(nfs, root) => Ok(nfs.list(root).await?.into_iter().map(|e| e.name).collect()),
        }
    }

    /// Closes what version 4 has opened.
    pub async fn close(&self, file: File) -> Result<()> {
        match self {
            Self::V3(..) => Ok(()),
            Self::V4(nfs, _) => {
                let File { fh, stateid } = file;
                nfs.close(&OpenFile { fh, stateid, delegation: None }).await
            }
        }
    }

    /// Removes a file.
    pub async fn remove(&self, name: &str) -> Result<()> {
        match self {
            Self::V3(nfs, root) => nfs.remove(root, name.as_bytes()).await,
            Self::V4(nfs, root) => nfs.remove(root, name.as_bytes()).await,
        }
    }

    /// Ends the session, if there is one.
    pub async fn leave(self) -> Result<()> {
        match self {
            Self::V3(..) => Ok(()),
            Self::V4(nfs, _) => nfs.destroy().await,
        }
    }
}
