//! A share by whichever protocol: the few operations that `demo` and `bench` measure.

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

/// NFS, by its versions.
const V3_PROGRAM: (u32, u32) = (program::NFS, nfs_proto::nfs3::VERSION);
const V4_PROGRAM: (u32, u32) = (program::NFS, nfs_proto::nfs4::VERSION);

/// Nobody here would give a delegation back.
const UNDELEGATED: OpenHow = OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::READ };

/// A share, and the connection to it.
#[derive(Clone)]
pub enum Volume {
    /// By version 3.
    V3(Nfs3, Fh),
    /// By version 4.1 or 4.2.
    V4(Nfs4, Fh),
    /// By SMB.
    Smb(Smb),
}

/// A file of a [`Volume`].
#[derive(Clone, Debug)]
pub struct File(Opened);

#[derive(Clone, Debug)]
enum Opened {
    Nfs { fh: Fh, stateid: Stateid },
    Smb(SmbFile),
}

impl File {
    fn nfs(fh: Fh, stateid: Stateid) -> Self {
        Self(Opened::Nfs { fh, stateid })
    }

    /// As NFS names it; nothing for a file of another volume.
    fn named(&self) -> Result<(&Fh, Stateid)> {
        match &self.0 {
            Opened::Nfs { fh, stateid } => Ok((fh, *stateid)),
            Opened::Smb(_) => Err(Error::Protocol("a file of another volume".into())),
        }
    }

    fn smb(&self) -> Result<&SmbFile> {
        match &self.0 {
            Opened::Smb(file) => Ok(file),
            Opened::Nfs { .. } => Err(Error::Protocol("a file of another volume".into())),
        }
    }
}

/// A new connection to the target's NFS port.
pub async fn dial(target: &Target, local: &Local, callbacks: Arc<dyn Callbacks>) -> Result<Rpc> {
    let to = target.address(target.port).map_err(Error::Connect)?;
    match target.transport {
        Transport::Tcp => connect::tcp(to, local, callbacks).await,
        Transport::Rdma => connect::rdma(to, local, callbacks).await,
    }
}

/// Where SMB dials: by a device on the port of its fabric, unless the target names one.
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
    /// Connects and finds the share. `cred` is who calls where the target does not say `sec`.
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
                    // MOUNT is asked by number, as mount(8) does it: what it says is no secret of the share's.
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

    /// What is known of the connection.
    pub fn info(&self) -> &Arc<Info> {
        match self {
            Self::V3(nfs, _) => nfs.rpc().info(),
            Self::V4(nfs, _) => nfs.rpc().info(),
            Self::Smb(smb) => smb.info(),
        }
    }

    /// The encryption type that protects its calls by Kerberos; `None` without.
    pub fn enctype(&self) -> Option<Enctype> {
        match self {
            Self::V3(nfs, _) => nfs.cred().enctype(),
            Self::V4(nfs, _) => nfs.cred().enctype(),
            Self::Smb(_) => None,
        }
    }

    /// Makes an empty file.
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
            Self::Smb(smb) => smb.create(name).await.map(|f| File(Opened::Smb(f))),
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
            Self::Smb(smb) => smb.find(name).await.map(|f| File(Opened::Smb(f))),
        }
    }

    /// Reads: the bytes, in pieces, and whether the end of the file is reached.
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
                // SMB does not say so; a READ that is not full met the end.
                Ok((data, u32::try_from(len).is_ok_and(|n| n < count)))
            }
        }
    }

    /// Writes without asking for stability; gives the bytes taken.
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

    /// Makes what was written stable.
    pub async fn commit(&self, file: &File) -> Result<()> {
        match self {
            Self::V3(nfs, _) => nfs.commit(file.named()?.0, 0, 0).await.map(drop),
            Self::V4(nfs, _) => nfs.commit(file.named()?.0, 0, 0).await.map(drop),
            Self::Smb(smb) => smb.flush(file.smb()?).await,
        }
    }

    /// Asks for the attributes; gives the size.
    pub async fn size(&self, file: &File) -> Result<u64> {
        match self {
            Self::V3(nfs, _) => Ok(nfs.getattr(file.named()?.0).await?.size),
            Self::V4(nfs, _) => Ok(nfs.getattr(file.named()?.0).await?.size),
            Self::Smb(smb) => smb.size(file.smb()?).await,
        }
    }

    /// Bytes that are free for this caller on the share's file system; `None` where the server does not say.
    pub async fn free(&self) -> Result<Option<u64>> {
        match self {
            Self::V3(nfs, root) => Ok(Some(nfs.fsstat(root).await?.abytes)),
            Self::V4(nfs, root) => nfs.free(root).await,
            Self::Smb(smb) => smb.free().await.map(Some),
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
            Self::Smb(smb) => {
                Ok(smb.list("").await?.into_iter().map(|e| e.name.into_bytes()).collect())
            }
        }
    }

    /// Closes; version 3 has nothing to close.
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

    /// Ends the session and the context of Kerberos, if there are such.
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
