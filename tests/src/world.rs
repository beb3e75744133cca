//! A gateway in this process, and clients of every version over every transport.

pub mod smb;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use client::connect::Local;
use client::target::{Protocol, Target, Transport, Version};

use client::{Credential, File, Result, Volume};
use config::{Ceph, PrivilegedPorts, Settings, Share, Source, Squash};
use gateway::serve::{self, Running};
use iobuf::{Buf, BufMut};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use tempfile::TempDir;

/// All combinations of version and transport that our client supports.
pub const WAYS: [(Version, Transport); 6] = [
    (Version::V3, Transport::Tcp),
    (Version::V3, Transport::Rdma),
    (Version::V41, Transport::Tcp),
    (Version::V41, Transport::Rdma),
    (Version::V42, Transport::Tcp),
    (Version::V42, Transport::Rdma),
];

/// A running gateway that serves a folder as `/data` and memory as `/mem`, on free ports of the loopback address. With
/// `HEADGATE_ON_CEPH` the folder is on CephFS.
pub struct World {
    /// The gateway with its addresses.
    pub running: Running,
    folder: PathBuf,
    _dir: TempDir,
}

/// True if the tests run on CephFS.
pub fn is_on_ceph() -> bool {
    std::env::var_os("HEADGATE_ON_CEPH").is_some()
}

/// A folder of CephFS: its path below `HEADGATE_ON_CEPH`, where another client of the cluster has mounted the file system `fs`, and
/// the source for a share. `None` if the tests do not run on CephFS.
fn on_ceph() -> Option<(PathBuf, Source)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mount = std::env::var_os("HEADGATE_ON_CEPH")?;
    let name = format!("w{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    // The gateway notices changes by the mount at its next check, because the share is not exclusive.
    let config = std::env::var_os("CEPH_CONF").map(PathBuf::from);
    let ceph: Ceph = format!("fs/{name}/data").parse().ok()?;
    let ceph = Ceph { config, exclusive: false, ..ceph };
    Some((Path::new(&mount).join(name).join("data"), Source::Ceph(ceph)))
}

impl World {
    /// Starts a gateway with the usual settings.
    pub async fn start() -> World {
        Self::with(|_| ()).await
    }

    /// Starts a gateway with changed settings.
    #[allow(clippy::expect_used)] // Without a gateway the test fails.
    pub async fn with(change: impl FnOnce(&mut Settings)) -> World {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let local = || (dir.path().join("data"), Source::Folder(dir.path().join("data")));
        let (folder, source) = on_ceph().unwrap_or_else(local);
        std::fs::create_dir_all(&folder).expect("the share's folder");
        let share = |name: &str, source| Share { squash: Squash::None, ..Share::new(name, source) };
        let mut settings = Settings {
            shares: vec![share("data", source), share("mem", Source::Memory)],
            bind: vec![[127, 0, 0, 1].into()],
            nfs_port: 0,
            nfs_rdma_port: 0,
            state: dir.path().join("state"),
            // Clients that run as root use ports below 1024.
            privileged_ports: match rustix::process::geteuid().is_root() {
                true => PrivilegedPorts::Local,
                false => PrivilegedPorts::Off,
            },
            ..Settings::default()
        };
        change(&mut settings);
        let running = serve::start(settings).await.expect("the gateway starts");
        World { running, folder, _dir: dir }
    }

    /// The folder behind `/data`.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    /// The target of a share for a client.
    pub fn target(&self, share: &str, (version, transport): (Version, Transport)) -> Target {
        let tcp = self.running.nfs[0].port();
        // No port exists if RDMA is off.
        let rdma = self.running.nfs_rdma.first().map_or(0, |at| at.port());
        let port = if transport == Transport::Rdma { rdma } else { tcp };
        let (host, path) = ("127.0.0.1".into(), format!("/{share}"));
        let protocol = Protocol::Nfs { version, mount_port: Some(tcp), security: None };
        Target { host, port, path, protocol, transport, crc: true, device: false }
    }

    /// Connects a new client to a share, as root.
    pub async fn client(&self, share: &str, way: (Version, Transport)) -> Result<Volume> {
        let rdma = Arc::new(Iwarp::new(IwarpConfig::default()));
        let local = Local { rdma: Some(rdma), ..Local::default() };
        Volume::open(&self.target(share, way), &local, Credential::sys(0, 0, &[])).await
    }
}

/// Bytes that only a file of this name has.
pub fn pattern(name: &str, len: usize) -> Vec<u8> {
    let mut x = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// A buffer that holds these bytes.
pub fn buf(bytes: &[u8]) -> Buf {
    let mut buf = BufMut::heap(bytes.len());
    buf.append(bytes);
    buf.freeze()
}

/// Writes a whole file, in calls of at most 1 MiB, and commits it.
pub async fn write_all(volume: &Volume, name: &str, data: &[u8]) -> Result<()> {
    let file = volume.create(name).await?;
    let mut at = 0;
    while at < data.len() {
        let piece = &data[at..data.len().min(at + (1 << 20))];
        at += volume.write(&file, at as u64, vec![buf(piece)]).await? as usize;
    }
    volume.commit(&file).await?;
    volume.close(file).await
}

/// Reads a whole file.
pub async fn read_all(volume: &Volume, name: &str) -> Result<Vec<u8>> {
    let file = volume.find(name).await?;
    let data = read_open(volume, &file).await?;
    volume.close(file).await?;
    Ok(data)
}

/// Reads a whole file that is open.
pub async fn read_open(volume: &Volume, file: &File) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let (pieces, end) = volume.read(file, data.len() as u64, 1 << 20).await?;
        let before = data.len();
        pieces.iter().for_each(|p| data.extend_from_slice(p));
        if end || data.len() == before {
            return Ok(data);
        }
    }
}
