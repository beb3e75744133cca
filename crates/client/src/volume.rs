//! A share over any protocol: the few operations that `demo` and `bench` use.

use std::net::SocketAddr;
use std::sync::Arc;

use gss_krb5::Enctype;
use iobuf::Buf;
use nfs_proto::oncrpc::program;
use rdma_transport::channel::Info;

use crate::connect::{self, Local};
use crate::error::{Error, Result};
use crate::nfs3::{CreateHow, Fh, Nfs3, SetAttr, Stable};
use crate::nfs4::{Minor, Nfs4, OpenFile, OpenHow, Stateid};
use crate::rpc::{Callbacks, Credential, NoCallbacks, Rpc};
use crate::smb::{Smb, SmbFile};
use crate::target::{
    NFS_PORT, Protocol, SMB_DIRECT_IWARP_PORT, SMB_PORT, Target, Transport, Version,
};
use crate::{gss, mount, nfs4, portmap};

/// NFS program and version.
const V3_PROGRAM: (u32, u32) = (program::NFS, nfs_proto::nfs3::VERSION);
const V4_PROGRAM: (u32, u32) = (program::NFS, nfs_proto::nfs4::VERSION);

/// Refuse delegations, because this client would not return them.
const UNDELEGATED: OpenHow = OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::READ };

/// A share and the connection to it.
#[derive(Clone)]
pub enum Volume {
    /// NFS version 3.
    V3(Nfs3, Fh),
    /// NFS version 4.1 or 4.2.
    V4(Nfs4, Fh),
    /// SMB.
    Smb(Smb),
}

/// A file of a [`Volume`].
#[derive(Clone, Debug)]
pub struct File(FileKind);

#[derive(Clone, Debug)]
enum FileKind {
    Nfs { fh: Fh, stateid: Stateid },
    Smb(SmbFile),
}

impl File {
    fn nfs(fh: Fh, stateid: Stateid) -> Self {
        Self(FileKind::Nfs { fh, stateid })
    }

    /// Returns the NFS handle and stateid; fails for a file of another volume.
    fn named(&self) -> Result<(&Fh, Stateid)> {
        match &self.0 {
            FileKind::Nfs { fh, stateid } => Ok((fh, *stateid)),
            FileKind::Smb(_) => Err(Error::Protocol("a file of another volume".into())),
        }
    }

    fn smb(&self) -> Result<&SmbFile> {
        match &self.0 {
            FileKind::Smb(file) => Ok(file),
            FileKind::Nfs { .. } => Err(Error::Protocol("a file of another volume".into())),
        }
    }
}

/// Opens a new connection to the target's NFS port.
pub async fn dial(target: &Target, local: &Local, callbacks: Arc<dyn Callbacks>) -> Result<Rpc> {
    let to = target.address(target.port).map_err(Error::Connect)?;
    match target.transport {
        Transport::Tcp => connect::tcp(to, local, callbacks).await,
        Transport::Rdma => connect::rdma(to, local, callbacks).await,
    }
}

/// Returns the SMB address: for a device, the port of its fabric, unless the target names a port.
async fn smb_address(target: &Target, local: &Local) -> Result<SocketAddr> {
    let to = |port| target.address(port).map_err(Error::Connect);
    let Some(provider) = local.rdma.as_ref().filter(|_| target.port == 0) else {
        return to(target.port);
    };
    let at = to(SMB_PORT)?;
    let is_iwarp = provider.shares_tcp_ports(at).await;
    match is_iwarp.map_err(|e| Error::Connect(format!("{}: {e}", at.ip())))? {
        true => to(SMB_DIRECT_IWARP_PORT),
        false => Ok(at),
    }
}

impl Volume {
    /// Connects and finds the share. `cred` is the caller if the target has no `sec`.
    pub async fn open(target: &Target, local: &Local, cred: Credential) -> Result<Self> {
        let (version, mount_port, security) = match &target.protocol {
            Protocol::Nfs { version, mount_port, security } => (*version, *mount_port, security),
            Protocol::Smb { user, options } => {
                let to = smb_address(target, local).await?;
                let rdma = target.transport == Transport::Rdma;
                let share = (target.host.as_str(), target.path.trim_matches('/'));
                let smb = Smb::connect(to, rdma, share, user, *options, local).await?;
                return Ok(Self::Smb(smb));
            }
        };
        let minor = match version {
            Version::V3 => {
                let mount_port = match mount_port {
                    Some(port) => port,
                    None => portmap::port_of_mount(target, local).await.unwrap_or(NFS_PORT),
                };
                let mount_at = target.address(mount_port).map_err(Error::Connect)?;
                let rpc = connect::tcp(mount_at, local, Arc::new(NoCallbacks)).await;
                let rpc = rpc.map_err(|e| match e {
                    Error::Connect(why) => Error::Connect(format!(
                        "{why}; that is where MOUNT was looked for, `mountport=PORT` names another one"
                    )),
                    other => other,
                })?;
                let root = mount::mount(&rpc, &cred, &target.path).await?;
                let rpc = dial(target, local, Arc::new(NoCallbacks)).await?;
                let cred = match security {
                    // Call MOUNT with AUTH_SYS like mount(8): its replies are no secret.
                    Some(s) => gss::establish(&rpc, V3_PROGRAM, &target.host, s).await?,
                    None => cred,
                };
                return Ok(Self::V3(Nfs3::new(rpc, cred), root));
            }
            Version::V41 => Minor::One,
            Version::V42 => Minor::Two,
        };
        let (callbacks, _recalls) = nfs4::Recalls::new();
        let rpc = dial(target, local, Arc::new(callbacks)).await?;
        let cred = match security {
            Some(s) => gss::establish(&rpc, V4_PROGRAM, &target.host, s).await?,
            None => cred,
        };
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(|e| Error::Connect(e.to_string()))?;
        let nfs = Nfs4::connect(rpc, cred, minor, &name, name).await?;
        let root = nfs.walk(&target.path).await?;
        Ok(Self::V4(nfs, root))
    }

    /// Returns information about the connection.
    pub fn info(&self) -> &Arc<Info> {
        match self {
            Self::V3(nfs, _) => nfs.rpc().info(),
            Self::V4(nfs, _) => nfs.rpc().info(),
            Self::Smb(smb) => smb.info(),
        }
    }

    /// Returns the encryption type of its Kerberos context; `None` without Kerberos.
    pub fn enctype(&self) -> Option<Enctype> {
        match self {
            Self::V3(nfs, _) => nfs.cred().enctype(),
            Self::V4(nfs, _) => nfs.cred().enctype(),
            Self::Smb(_) => None,
        }
    }

    /// Creates an empty file.
    pub async fn create(&self, name: &str) -> Result<File> {
        match self {
            Self::V3(nfs, root) => {
                let set = SetAttr { mode: Some(0o644), size: Some(0), ..SetAttr::default() };
                let (fh, _) = nfs.create(root, name.as_bytes(), CreateHow::Unchecked(set)).await?;
                Ok(File::nfs(fh, Stateid::ANONYMOUS))
            }
            Self::V4(nfs, root) => {
                let how = OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::create(0o644) };
                let open = nfs.open(root, name.as_bytes(), name.as_bytes(), how).await?;
                Ok(File::nfs(open.fh, open.stateid))
            }
            Self::Smb(smb) => smb.create(name).await.map(|f| File(FileKind::Smb(f))),
        }
    }

    /// Finds and opens a file.
    pub async fn find(&self, name: &str) -> Result<File> {
        match self {
            Self::V3(nfs, root) => {
                let (fh, _) = nfs.lookup(root, name.as_bytes()).await?;
                Ok(File::nfs(fh, Stateid::ANONYMOUS))
            }
            Self::V4(nfs, root) => {
                let open = nfs.open(root, name.as_bytes(), name.as_bytes(), UNDELEGATED).await?;
                Ok(File::nfs(open.fh, open.stateid))
            }
            Self::Smb(smb) => smb.find(name).await.map(|f| File(FileKind::Smb(f))),
        }
    }

    /// Reads data; returns the bytes in pieces, and whether the end of the file was reached.
    pub async fn read(&self, file: &File, offset: u64, count: u32) -> Result<(Vec<Buf>, bool)> {
        match self {
            Self::V3(nfs, _) => {
                let read = nfs.read(file.named()?.0, offset, count).await?;
                Ok((read.data, read.eof))
            }
            Self::V4(nfs, _) => {
                let (fh, stateid) = file.named()?;
                nfs.read(fh, stateid, offset, count).await
            }
            Self::Smb(smb) => {
                let data = smb.read(file.smb()?, offset, count).await?;
                let len: usize = data.iter().map(Buf::len).sum();
                // SMB does not report the end of the file; a short READ has reached it.
                Ok((data, u32::try_from(len).is_ok_and(|n| n < count)))
            }
        }
    }

    /// Writes data without requesting stability; returns the number of bytes written.
    pub async fn write(&self, file: &File, offset: u64, data: Vec<Buf>) -> Result<u32> {
        match self {
            Self::V3(nfs, _) => {
                let (fh, _) = file.named()?;
                Ok(nfs.write(fh, offset, data, Stable::Unstable).await?.count)
            }
            Self::V4(nfs, _) => {
                let (fh, stateid) = file.named()?;
                Ok(nfs.write(fh, stateid, offset, data, nfs4::StableHow4::Unstable).await?.count)
            }
            Self::Smb(smb) => smb.write(file.smb()?, offset, data).await,
        }
    }

    /// Makes written data stable.
    pub async fn commit(&self, file: &File) -> Result<()> {
        match self {
            Self::V3(nfs, _) => nfs.commit(file.named()?.0, 0, 0).await.map(drop),
            Self::V4(nfs, _) => nfs.commit(file.named()?.0, 0, 0).await.map(drop),
            Self::Smb(smb) => smb.flush(file.smb()?).await,
        }
    }

    /// Queries the attributes and returns the size.
    pub async fn size(&self, file: &File) -> Result<u64> {
        match self {
            Self::V3(nfs, _) => Ok(nfs.getattr(file.named()?.0).await?.size),
            Self::V4(nfs, _) => Ok(nfs.getattr(file.named()?.0).await?.size),
            Self::Smb(smb) => smb.size(file.smb()?).await,
        }
    }

    /// Queries the free bytes for this caller on the share's file system; `None` if the server does not report them.
    pub async fn free(&self) -> Result<Option<u64>> {
        match self {
            Self::V3(nfs, root) => Ok(Some(nfs.fsstat(root).await?.abytes)),
            Self::V4(nfs, root) => nfs.free(root).await,
            Self::Smb(smb) => smb.free().await.map(Some),
        }
    }

    /// Returns the names in the share's root.
    pub async fn list(&self) -> Result<Vec<Vec<u8>>> {
        match self {
            Self::V3(nfs, root) => {
                let names = nfs.list(root).await?.into_iter().map(|e| e.name);
                Ok(names.filter(|n| n != b"." && n != b"..").collect())
            }
            Self::V4(nfs, root) => Ok(nfs.list(root).await?.into_iter().map(|e| e.name).collect()),
            Self::Smb(smb) => {
                Ok(smb.list("").await?.into_iter().map(|e| e.name.into_bytes()).collect())
            }
        }
    }

    /// Closes the file; version 3 has no close.
    pub async fn close(&self, file: File) -> Result<()> {
        match self {
            Self::V3(..) => Ok(()),
            Self::V4(nfs, _) => {
                let (fh, stateid) = file.named()?;
                nfs.close(&OpenFile { fh: fh.clone(), stateid, delegation: None }).await
            }
            Self::Smb(smb) => smb.close(*file.smb()?).await,
        }
    }

    /// Removes a file.
    pub async fn remove(&self, name: &str) -> Result<()> {
        match self {
            Self::V3(nfs, root) => nfs.remove(root, name.as_bytes()).await,
            Self::V4(nfs, root) => nfs.remove(root, name.as_bytes()).await,
            Self::Smb(smb) => smb.unlink(name).await,
        }
    }

    /// Ends the session and the Kerberos context, if they exist.
    pub async fn leave(self) -> Result<()> {
        match self {
            Self::V3(nfs, _) => gss::end(nfs.rpc(), nfs.cred(), V3_PROGRAM).await,
            Self::V4(nfs, _) => {
                let (rpc, cred) = (nfs.rpc().clone(), nfs.cred().clone());
                nfs.destroy().await?;
                gss::end(&rpc, &cred, V4_PROGRAM).await
            }
            Self::Smb(smb) => smb.leave().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rdma_transport::verbs::{BoxFuture, ConnectParams, Connected, Listener, Provider};

    use super::*;

    /// A device of one fabric.
    struct Device {
        is_iwarp: bool,
    }

    impl Provider for Device {
        fn name(&self) -> &'static str {
            "device"
        }
        fn listen(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
        fn connect(&self, _: SocketAddr, _: ConnectParams) -> BoxFuture<'_, io::Result<Connected>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
        fn shares_tcp_ports(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<bool>> {
            Box::pin(async { Ok(self.is_iwarp) })
        }
    }

    #[tokio::test]
    async fn smb_direct_dials_by_fabric() {
        let device = |is_iwarp| Arc::new(Device { is_iwarp }) as Arc<dyn Provider>;
        for (target, is_iwarp, port) in [
            ("smb+rdma://u@127.0.0.1/d?device=on", true, 5445),
            ("smb+rdma://u@127.0.0.1/d?device=on", false, 445),
            ("smb+rdma://u@127.0.0.1:6445/d?device=on", false, 6445),
            ("smb+rdma://u@127.0.0.1/d", true, 5445),
            ("smb://u@127.0.0.1/d", true, 445),
        ] {
            let local = Local { rdma: Some(device(is_iwarp)), ..Local::default() };
            let at = smb_address(&target.parse().unwrap(), &local).await.unwrap();
            assert_eq!(at.port(), port, "{target} {is_iwarp}");
        }
    }
}
