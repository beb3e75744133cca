//! One of the two clients of a cell: connected over every protocol, with its holdings and notices.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::nfs3::{self, Nfs3};
use client::nfs4::{
    Delegation, Fh, LockType4, Minor, Nfs4, OpenFile, OpenHow, Recall, Recalls, StableHow4, Stateid,
};
use client::nlm::Nlm;
use client::smb::{Break, Options, Smb, SmbFile, User};
use client::{Credential, Error, NoCallbacks, Result, mount};
use headgate_tests::world::{World, buf};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use crate::kinds::{Kind, R, W, letters, level};

/// Size of every file, and of the locked range.
pub(crate) const LEN: u32 = 5;
pub(crate) const RANGE: (u64, u64) = (0, 10);
/// The delegation wants of Linux in OPEN.
const AS_LINUX: u32 = OpenHow::WANT_DELEG_TIMESTAMPS | OpenHow::WANT_OPEN_XOR_DELEGATION;
/// How long a client retries after a delay status.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which the lease is renewed, as every client does: the other client may be active for longer than a lease.
const RENEW: Duration = Duration::from_secs(3);

static KEYS: AtomicU64 = AtomicU64::new(1);

/// The transport of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Tcp,
    Rdma,
}

/// The folder in which a client works: the way to one folder of the host may lead through several shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) share: &'static str,
    /// A folder of the share; empty for its root.
    pub(crate) folder: &'static str,
    /// The same folder in the world's.
    pub(crate) on_disk: &'static str,
}

/// The root of the usual share.
pub(crate) const DATA: At = At { share: "data", folder: "", on_disk: "" };

/// The connections of one client.
pub(crate) struct Side {
    pub(crate) at: At,
    pub(crate) smb: Smb,
    pub(crate) breaks: Receiver<Break>,
    pub(crate) nfs4: Nfs4,
    pub(crate) recalls: Receiver<Recall>,
    pub(crate) nfs3: Nfs3,
    /// Always over TCP: NLM does not run over RDMA.
    pub(crate) nlm: Nlm,
    pub(crate) root4: Fh,
    pub(crate) root3: Fh,
    pub(crate) folder: PathBuf,
    _renewing: JoinSet<()>,
}

/// A client's holding of a file.
#[derive(Default)]
pub(crate) struct Hold {
    pub(crate) smb: Option<SmbFile>,
    pub(crate) key: [u8; 16],
    pub(crate) v4: Option<OpenFile>,
    pub(crate) lock: Option<Stateid>,
    pub(crate) delegation: Option<(Fh, Delegation)>,
    pub(crate) nlm: Option<nfs3::Fh>,
    /// Lease bits for what the holder may cache.
    pub(crate) caches: u32,
    /// The data that it read last.
    pub(crate) seen: Vec<u8>,
    /// Data written and not sent yet.
    pub(crate) delegated_attrs: Option<Vec<u8>>,
}

/// The result of acquiring a holding.
pub(crate) struct Taken {
    pub(crate) hold: Hold,
    /// The text for the document.
    pub(crate) outcome: String,
    pub(crate) good: bool,
}

/// Repeats a request as long as the server returns a delay status.
pub(crate) async fn patiently<T, F: Future<Output = Result<T>>>(
    mut ask: impl FnMut() -> F,
) -> Result<T> {
    const NFS4ERR_DELAY: u32 = 10008;
    const NFS3ERR_JUKEBOX: u32 = 10008;
    const NLM4_DENIED_GRACE_PERIOD: u32 = 4;
    let until = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(
                Error::Nfs4(_, NFS4ERR_DELAY)
                | Error::Nfs3(NFS3ERR_JUKEBOX)
                | Error::Nlm(NLM4_DENIED_GRACE_PERIOD),
            ) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            other => return other,
        }
    }
}

/// The name of an error, without numbers.
pub(crate) fn refusal(e: &Error) -> String {
    match e {
        Error::Smb(_, status) => format!("STATUS_{status:?}"),
        Error::Nfs4(_, status) => match nfs_proto::nfs4::Nfsstat4::from_u32(*status) {
            Some(name) => format!("NFS4ERR_{}", format!("{name:?}").to_uppercase()),
            None => format!("nfsstat4 {status}"),
        },
        other => {
            let text = other.to_string();
            text.split(" (").next().unwrap_or(&text).to_owned()
        }
    }
}

fn flat(data: &[iobuf::Buf]) -> Vec<u8> {
    data.iter().flat_map(|b| b.to_vec()).collect()
}

impl Side {
    /// Connects over every protocol, as root.
    pub(crate) async fn connect(world: &World, user: &User, way: Way) -> Result<Side> {
        Self::connect_at(world, user, way, DATA).await
    }

    /// Connects over every protocol, as root, to work in this folder.
    pub(crate) async fn connect_at(world: &World, user: &User, way: Way, at: At) -> Result<Side> {
        let local = Local::default();
        let rdma = way == Way::Rdma;
        let (smb_at, nfs_at) = match rdma {
            true => (world.running.smb_direct[0], world.running.nfs_rdma[0]),
            false => (world.running.smb[0], world.running.nfs[0]),
        };
        let share = ("127.0.0.1", at.share);
        let smb = Smb::connect(smb_at, rdma, share, user, Options::default(), &local).await?;
        let breaks = smb.breaks().ok_or(Error::Protocol("asked twice".into()))?;
        let (callbacks, recalls) = Recalls::new();
        let cred = Credential::sys(0, 0, &[]);
        let number = KEYS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let rpc = dial(rdma, nfs_at, &local, Arc::new(callbacks)).await?;
        let nfs4 = Nfs4::connect(rpc, cred.clone(), Minor::Two, &number, number).await?;
        let root4 = nfs4.walk(&format!("/{}/{}", at.share, at.folder)).await?;
        let mounts = world.running.nfs[0];
        let mounts = client::connect::tcp(mounts, &local, Arc::new(NoCallbacks)).await?;
        let top3 = mount::mount(&mounts, &cred, &format!("/{}", at.share)).await?;
        let host = format!("host{}", u64::from_be_bytes(number));
        let nlm = Nlm::new(mounts, cred.clone(), &host);
        let rpc = dial(rdma, nfs_at, &local, Arc::new(NoCallbacks)).await?;
        let nfs3 = Nfs3::new(rpc, cred);
        let root3 = match at.folder {
            "" => top3,
            folder => nfs3.lookup(&top3, folder.as_bytes()).await?.0,
        };
        let mut renewing = JoinSet::new();
        let renewed = nfs4.clone();
        renewing.spawn(async move {
            while renewed.call(renewed.compound()).await.is_ok() {
                tokio::time::sleep(RENEW).await;
            }
        });
        let (folder, _renewing) = (world.folder().join(at.on_disk), renewing);
        Ok(Side { at, smb, breaks, nfs4, recalls, nfs3, nlm, root4, root3, folder, _renewing })
    }

    /// The path of a file for SMB, from the root of the share.
    pub(crate) fn path(&self, name: &str) -> String {
        match self.at.folder {
            "" => name.to_owned(),
            folder => format!("{folder}\\{name}"),
        }
    }

    /// Acquires the holding, and reads if possible; `mark` is the data that a writing kind stores in the file.
    pub(crate) async fn take(&self, kind: Kind, name: &str, mark: &[u8]) -> Taken {
        let mut hold = Hold::default();
        let outcome = match kind {
            Kind::ReadDelegation | Kind::WriteDelegation | Kind::V4Deny | Kind::V4Lock => {
                self.take_v4(kind, name, &mut hold).await
            }
            Kind::NlmLock => self.take_nlm(name, &mut hold).await,
            Kind::V3Read | Kind::V3Write => self.take_v3(kind, name, mark, &mut hold).await,
            Kind::LocalRead | Kind::LocalWrite => {
                self.take_local(kind, name, mark, &mut hold).await
            }
            _ => self.take_smb(kind, name, &mut hold).await,
        };
        match outcome {
            Ok(outcome) => Taken { hold, outcome, good: true },
            Err(e) => Taken { hold, outcome: refusal(&e), good: false },
        }
    }

    async fn take_smb(&self, kind: Kind, name: &str, hold: &mut Hold) -> Result<String> {
        hold.key[..8].copy_from_slice(&KEYS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let how = kind.smb(hold.key).ok_or(Error::Protocol("not of SMB".into()))?;
        let (file, granted) = self.smb.open_cached(&self.path(name), &how).await?;
        hold.smb = Some(file);
        let outcome = match kind {
            Kind::Lease(_) => {
                hold.caches = granted;
                format!("has {}", letters(granted))
            }
            Kind::Oplock(_) => {
                let granted = u8::try_from(granted).unwrap_or(u8::MAX);
                hold.caches = Kind::Oplock(granted).caches();
                format!("has {}", level(granted))
            }
            Kind::RangeLock => {
                self.smb.lock(&file, RANGE, true, false).await?;
                "has the lock".into()
            }
            _ => "opened".into(),
        };
        match self.smb.read(&file, 0, LEN).await {
            Ok(data) => hold.seen = flat(&data),
            Err(e) => return Ok(format!("{outcome}, reading: {}", refusal(&e))),
        }
        Ok(outcome)
    }

    async fn take_v4(&self, kind: Kind, name: &str, hold: &mut Hold) -> Result<String> {
        let owner = KEYS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let how = match kind {
            Kind::V4Deny => OpenHow { deny: 3, ..OpenHow::READ },
            Kind::V4Lock => OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::WRITE },
            // The delegation replaces the open, as for a Linux client.
            Kind::WriteDelegation => OpenHow { want: AS_LINUX, ..OpenHow::WRITE },
            _ => OpenHow { want: AS_LINUX, ..OpenHow::READ },
        };
        let opening = || self.nfs4.open(&self.root4, name.as_bytes(), &owner, how);
        let file = patiently(opening).await?;
        hold.v4 = file.is_open().then(|| file.clone());
        if let Some(delegation) = file.delegation {
            hold.delegation = Some((file.fh.clone(), delegation));
            hold.caches = if delegation.write { Kind::Lease(7).caches() } else { kind.caches() };
        }
        let outcome = match kind {
            Kind::V4Lock => {
                let lock =
                    patiently(|| self.nfs4.lock(&file, &owner, LockType4::Write, RANGE)).await?;
                hold.lock = Some(lock);
                "has the lock"
            }
            Kind::V4Deny => "opened",
            _ if file.delegation.is_some() => "has the delegation",
            _ => "opened, no delegation",
        };
        let stateid = hold.lock.unwrap_or(file.io());
        match patiently(|| self.nfs4.read(&file.fh, stateid, 0, LEN)).await {
            Ok((data, _)) => hold.seen = flat(&data),
            Err(e) => return Ok(format!("{outcome}, reading: {}", refusal(&e))),
        }
        Ok(outcome.into())
    }

    async fn take_nlm(&self, name: &str, hold: &mut Hold) -> Result<String> {
        let (fh, _) = self.nfs3.lookup(&self.root3, name.as_bytes()).await?;
        patiently(|| self.nlm.lock(&fh, RANGE, true)).await?;
        hold.nlm = Some(fh.clone());
        let read = patiently(|| self.nfs3.read(&fh, 0, LEN)).await?;
        hold.seen = flat(&read.data);
        Ok("has the lock".into())
    }

    async fn take_v3(
        &self,
        kind: Kind,
        name: &str,
        mark: &[u8],
        hold: &mut Hold,
    ) -> Result<String> {
        let (fh, _) = self.nfs3.lookup(&self.root3, name.as_bytes()).await?;
        if kind == Kind::V3Write {
            let write = || self.nfs3.write(&fh, 0, vec![buf(mark)], nfs3::Stable::File);
            patiently(write).await?;
            hold.seen = mark.to_vec();
            return Ok("written".into());
        }
        let read = patiently(|| self.nfs3.read(&fh, 0, LEN)).await?;
        hold.seen = flat(&read.data);
        Ok("read".into())
    }

    async fn take_local(
        &self,
        kind: Kind,
        name: &str,
        mark: &[u8],
        hold: &mut Hold,
    ) -> Result<String> {
        let (path, mark) = (self.folder.join(name), mark.to_vec());
        let writes = kind == Kind::LocalWrite;
        let done = tokio::task::spawn_blocking(move || local(&path, &mark, writes)).await;
        let done = done.map_err(|e| Error::Protocol(e.to_string()))?;
        hold.seen = done.map_err(|e| Error::Protocol(e.to_string()))?;
        Ok(if writes { "written" } else { "read" }.into())
    }

    /// The file's present content as this holding sees it; `None` if it may not be read.
    pub(crate) async fn look(&self, hold: &Hold, name: &str) -> Option<Vec<u8>> {
        if let Some(file) = &hold.smb {
            return self.smb.read(file, 0, LEN).await.ok().map(|d| flat(&d));
        }
        let (fh, _) = self.nfs3.lookup(&self.root3, name.as_bytes()).await.ok()?;
        let read = patiently(|| self.nfs3.read(&fh, 0, LEN)).await.ok()?;
        Some(flat(&read.data))
    }

    /// Sends data kept back.
    pub(crate) async fn flush(&self, hold: &mut Hold) -> Result<()> {
        let Some(data) = hold.delegated_attrs.take() else { return Ok(()) };
        if let Some(file) = &hold.smb {
            self.smb.write(file, 0, vec![buf(&data)]).await?;
        }
        if let Some((fh, d)) = &hold.delegation {
            const FILE_SYNC: StableHow4 = StableHow4::FileSync;
            self.nfs4.write(fh, d.stateid, 0, vec![buf(&data)], FILE_SYNC).await?;
        }
        hold.seen = data;
        Ok(())
    }

    /// Releases the open, locks and delegations of this holding.
    pub(crate) async fn leave(&self, hold: &mut Hold) -> Result<()> {
        if hold.caches & W != 0 {
            self.flush(hold).await?;
        }
        if let Some((fh, d)) = hold.delegation.take() {
            self.nfs4.delegreturn(&fh, d.stateid).await?;
        }
        if let Some(fh) = hold.nlm.take() {
            self.nlm.unlock(&fh, RANGE).await?;
        }
        if let (Some(file), Some(lock)) = (&hold.v4, hold.lock.take()) {
            self.nfs4.unlock(&file.fh, lock, LockType4::Write, RANGE).await?;
        }
        if let Some(file) = hold.v4.take() {
            patiently(|| self.nfs4.close(&file)).await?;
        }
        if let Some(file) = hold.smb.take() {
            self.smb.close(file).await?;
        }
        hold.caches &= !(R | W);
        Ok(())
    }
}

async fn dial(
    rdma: bool,
    at: std::net::SocketAddr,
    local: &Local,
    callbacks: Arc<dyn client::Callbacks>,
) -> Result<client::Rpc> {
    match rdma {
        true => client::connect::rdma(at, local, callbacks).await,
        false => client::connect::tcp(at, local, callbacks).await,
    }
}

/// Accesses the file as a process on the host.
fn local(path: &std::path::Path, mark: &[u8], writes: bool) -> std::io::Result<Vec<u8>> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    if writes {
        // The gateway runs in this process, so another process must do it.
        let to = format!("of={}", path.display());
        let mut dd = Command::new("dd")
            .args([to.as_str(), "conv=notrunc", "status=none"])
            .stdin(Stdio::piped())
            .spawn()?;
        if let Some(mut pipe) = dd.stdin.take() {
            pipe.write_all(mark)?;
        }
        let done = dd.wait()?;
        if !done.success() {
            return Err(std::io::Error::other(format!("dd: {done}")));
        }
    }
    let mut data = std::fs::read(path)?;
    data.truncate(mark.len());
    Ok(data)
}
