//! Clients one after the other: each connects over some protocol and transport, works, holds some state, and leaves or is cut
//! off.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::connect::{self, Local};
use client::mount::mount;
use client::nfs3::Nfs3;
use client::nfs4::{LockType4, Minor, Nfs4, OpenHow, Recalls, StableHow4};
use client::nlm::Nlm;
use client::smb::{self, Break, Caching, Options, Smb, User};
use client::{Credential, Error, NoCallbacks, Result, Volume};
use iobuf::Buf;
use smb_proto::NtStatus;
use smb_proto::smb2::create::{Disposition, access, oplock, option};
use smb_proto::smb2::fsctl::code;
use tokio::task::JoinHandle;

use crate::daemon::{Daemon, PASSWORD};
use crate::line::Line;
use crate::{Dice, Tally};

/// Time limit for one client, also on a machine that is busy with other tests.
const LIFE_MAX: Duration = Duration::from_secs(90);
/// Maximum time for which leftovers of another client may block an own file.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of files that all clients compete for.
const COMMON: u64 = 4;
/// Number of files of each worker: a request of a client that was cut off may still run when the next client connects.
const OWN: u64 = 16;
const SIZES: [usize; 5] = [1, 4096, 20_000, 65_536, 300_000];
/// Time that a resilient handle waits for a client that was cut off.
const RESILIENT_MS: u32 = 2_000;
const WANT_READ_DELEG: u32 = 0x0100;
const WANT_WRITE_DELEG: u32 = 0x0200;
/// NFS4ERR_CLIENTID_BUSY
const CLIENTID_BUSY: u32 = 10_074;
const WRITE_LT: LockType4 = LockType4::Write;

#[derive(Clone, Copy, Debug)]
enum Speech {
    V3,
    V4(Minor),
    Smb,
}

/// Protocol and transport of a client, and its share.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    speech: Speech,
    rdma: bool,
    share: &'static str,
}

impl Way {
    pub fn any(dice: &mut Dice) -> Self {
        let speech = [Speech::V3, Speech::V4(Minor::One), Speech::V4(Minor::Two), Speech::Smb];
        Self {
            speech: *dice.of(&speech),
            rdma: dice.roll(2) == 0,
            share: *dice.of(&["data", "scratch", "mem"]),
        }
    }

    /// Returns the name for the tally.
    pub fn name(self) -> String {
        let speech = match self.speech {
            Speech::V3 => "NFS 3",
            Speech::V4(Minor::One) => "NFS 4.1",
            Speech::V4(Minor::Two) => "NFS 4.2",
            Speech::Smb => "SMB",
        };
        format!("{speech} by {}", if self.rdma { "RDMA" } else { "TCP" })
    }

    fn server(self, daemon: &Daemon) -> SocketAddr {
        match (self.speech, self.rdma) {
            (Speech::Smb, false) => daemon.smb,
            (Speech::Smb, true) => daemon.smb_rdma,
            (_, false) => daemon.nfs,
            (_, true) => daemon.nfs_rdma,
        }
    }
}

fn root() -> Credential {
    Credential::sys(0, 0, &[])
}

/// A connected client.
struct Client {
    volume: Volume,
    line: Line,
    giving_back: Option<GivingBack>,
}

/// Task that returns state to other clients on request, while the client is connected.
struct GivingBack(JoinHandle<()>);

impl Drop for GivingBack {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Client {
    async fn come(daemon: &Daemon, way: Way, who: Who<'_>, bytes_max: u64) -> Result<Self> {
        let Who { local, name, dice } = who;
        let from = Ipv4Addr::new(127, 0, 1, 1 + dice.small(60));
        let line = Line::to(way.server(daemon), from, bytes_max).await;
        let line = line.map_err(|e| Error::Connect(e.to_string()))?;
        let (volume, giving_back) = match way.speech {
            Speech::V3 => {
                let rpc = if way.rdma {
                    connect::rdma(line.at, local, Arc::new(NoCallbacks)).await?
                } else {
                    connect::tcp(line.at, local, Arc::new(NoCallbacks)).await?
                };
                // MOUNT is only served over TCP.
                let by = match way.rdma {
                    true => connect::tcp(daemon.nfs, local, Arc::new(NoCallbacks)).await?,
                    false => rpc.clone(),
                };
                let top = mount(&by, &root(), &format!("/{}", way.share)).await?;
                (Volume::V3(Nfs3::new(rpc, root()), top), None)
            }
            Speech::V4(minor) => {
                let (callbacks, mut recalls) = Recalls::new();
                let rpc = if way.rdma {
                    connect::rdma(line.at, local, Arc::new(callbacks)).await?
                } else {
                    connect::tcp(line.at, local, Arc::new(callbacks)).await?
                };
                let boot = dice.roll(u64::MAX).to_le_bytes();
                let nfs = Nfs4::connect(rpc, root(), minor, name.as_bytes(), boot).await?;
                let holder = nfs.clone();
                let task = GivingBack(tokio::spawn(async move {
                    while let Some(recall) = recalls.recv().await {
                        let _ = holder.delegreturn(&recall.fh, recall.stateid).await;
                    }
                }));
                let top = nfs.walk(way.share).await?;
                (Volume::V4(nfs, top), Some(task))
            }
            Speech::Smb => {
                let user =
                    User { name: "alice".into(), domain: String::new(), password: PASSWORD.into() };
                let options = Options {
                    sign: dice.roll(3) == 0,
                    seal: dice.roll(4) == 0,
                    ..Options::default()
                };
                let share = ("127.0.0.1", way.share);
                let smb = Smb::connect(line.at, way.rdma, share, &user, options, local).await?;
                let task = GivingBack(tokio::spawn(give_back(smb.clone())));
                (Volume::Smb(smb), Some(task))
            }
        };
        Ok(Self { volume, line, giving_back })
    }

    async fn leave(self) -> Result<()> {
        let Self { volume, line, giving_back } = self;
        match volume.leave().await {
            // It still holds state, which expires with its lease (RFC 8881 section 18.50.3).
            Ok(()) | Err(Error::Nfs4(_, CLIENTID_BUSY)) => {}
            Err(e) => return Err(e),
        }
        drop(giving_back);
        line.end().await;
        Ok(())
    }
}

/// Acknowledges breaks of leases. Breaks of oplocks time out in the gateway.
async fn give_back(smb: Smb) {
    let Some(mut breaks) = smb.breaks() else { return };
    while let Some(told) = breaks.recv().await {
        if let Break::LeaseNotice(notice) = told
            && notice.acknowledge
        {
            let _ = smb.acknowledge_lease(notice.key, notice.to).await;
        }
    }
}

/// Identity of a client.
struct Who<'a> {
    local: &'a Local,
    name: &'a str,
    dice: &'a mut Dice,
}

/// Returns true for errors that no client may ever get.
fn is_fault(e: &Error, cut: bool) -> bool {
    match e {
        Error::Down(_) | Error::Connect(_) => !cut,
        Error::Rpc(_) | Error::Kerberos(_) | Error::Reply(_) | Error::Protocol(_) => true,
        // NFS3ERR_IO, NFS3ERR_SERVERFAULT and their equivalents in version 4.
        Error::Nfs3(status) | Error::Nfs4(_, status) => matches!(status, 5 | 10_006),
        Error::Smb(_, status) => {
            matches!(*status, NtStatus::INTERNAL_ERROR | NtStatus::UNEXPECTED_IO_ERROR)
        }
        Error::Mount(_) | Error::Nlm(_) => false,
    }
}

/// Returns true if another client holds a conflicting state for the moment.
fn is_in_the_way(e: &Error) -> bool {
    match e {
        // NFS3ERR_JUKEBOX, NFS4ERR_DELAY, GRACE and SHARE_DENIED.
        Error::Nfs3(status) | Error::Nfs4(_, status) => matches!(status, 10_008 | 10_013 | 10_015),
        Error::Smb(_, status) => matches!(
            *status,
            NtStatus::SHARING_VIOLATION | NtStatus::FILE_NOT_AVAILABLE | NtStatus::DELETE_PENDING
        ),
        _ => false,
    }
}

/// Retries while another client holds a conflicting state.
async fn waiting<T, F: Future<Output = Result<T>>>(what: impl Fn() -> F) -> Result<T> {
    let begun = Instant::now();
    loop {
        match what().await {
            Err(e) if is_in_the_way(&e) && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => return other,
        }
    }
}

/// Runs one client of worker `me`.
pub async fn live(
    daemon: &Daemon,
    local: &Local,
    me: u64,
    turn: u64,
    dice: &mut Dice,
    tally: &Tally,
) {
    let way = Way::any(dice);
    let named = format!("{} in {}, life {turn} of worker {me}", way.name(), way.share);
    let one = async {
        // Some clients return under their old name, as after a crash.
        let name = format!("soak-{me}-{}", dice.roll(3));
        let who = Who { local, name: &name, dice };
        let client = Client::come(daemon, way, who, u64::MAX).await?;
        let is_cut = work(&client, daemon, local, (me, turn), dice).await;
        match is_cut {
            Ok(true) => {
                client.line.cut();
                tally.cut(&way.name());
            }
            Ok(false) => {
                client.leave().await?;
                tally.left(&way.name());
            }
            Err(e) => return Err(e),
        }
        Ok(())
    };
    match tokio::time::timeout(LIFE_MAX, one).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tally.fault(format!("{named}: {e}")),
        Err(_) => tally.fault(format!("{named}: hangs")),
    }
}

/// Runs the operations of a client. Returns `true` if it must be cut off with its state.
async fn work(
    client: &Client,
    daemon: &Daemon,
    local: &Local,
    (me, turn): (u64, u64),
    dice: &mut Dice,
) -> Result<bool> {
    let is_cut = dice.roll(2) == 0;
    own_file(&client.volume, me, turn, dice).await?;
    for _ in 0..1 + dice.roll(6) {
        let name = format!("common-{}", dice.roll(COMMON));
        let done = match &client.volume {
            Volume::V3(nfs, top) => by_v3(nfs, top, &name, daemon, local, dice).await,
            Volume::V4(nfs, top) => by_v4(nfs, top, &name, dice).await,
            Volume::Smb(smb) => by_smb(smb, &name, dice).await,
        };
        match done {
            Err(e) if is_fault(&e, false) => return Err(e),
            // Other clients work on the same files.
            _ => {}
        }
    }
    if is_cut && dice.roll(2) == 0 {
        // Cuts the client off during an operation.
        let (volume, name) = (client.volume.clone(), format!("own-{me}-middle"));
        let under_way = tokio::spawn(async move {
            let file = volume.create(&name).await?;
            loop {
                volume.write(&file, 0, vec![Buf::from(vec![7; 100_000])]).await?;
                volume.commit(&file).await?;
            }
        });
        tokio::time::sleep(Duration::from_millis(dice.roll(60))).await;
        client.line.cut();
        let ended: Result<()> = under_way.await.unwrap();
        return match ended {
            Err(e) if is_fault(&e, true) => Err(e),
            _ => Ok(true),
        };
    }
    Ok(is_cut)
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    std::iter::repeat_with(|| dice.roll(u64::MAX).to_le_bytes()).flatten().take(length).collect()
}

/// Checks that a file of this client alone has the data that was written.
async fn own_file(volume: &Volume, me: u64, turn: u64, dice: &mut Dice) -> Result<()> {
    let name = format!("own-{me}-{}", turn % OWN);
    let file = waiting(|| volume.create(&name)).await?;
    let mut wanted: Vec<u8> = Vec::new();
    for _ in 0..1 + dice.roll(3) {
        let piece = pattern(dice.roll(u64::MAX), *dice.of(&SIZES));
        let at = wanted.len() as u64;
        let taken = volume.write(&file, at, vec![Buf::from(piece.clone())]).await?;
        wanted.extend(&piece[..usize::try_from(taken).unwrap()]);
    }
    volume.commit(&file).await?;
    let mut found = Vec::new();
    while found.len() < wanted.len() {
        let (data, _) = volume.read(&file, found.len() as u64, 1 << 20).await?;
        let before = found.len();
        data.iter().for_each(|piece| found.extend_from_slice(piece));
        if found.len() == before {
            break;
        }
    }
    assert!(found == wanted, "{name} differs: {} bytes, wanted {}", found.len(), wanted.len());
    volume.close(file).await?;
    if dice.roll(2) == 0 {
        volume.remove(&name).await?;
    }
    Ok(())
}

/// Creates missing files and removes existing ones; the results do not matter.
async fn by_v3(
    nfs: &Nfs3,
    top: &client::nfs3::Fh,
    name: &str,
    daemon: &Daemon,
    local: &Local,
    dice: &mut Dice,
) -> Result<()> {
    let volume = Volume::V3(nfs.clone(), top.clone());
    match dice.roll(5) {
        0 => volume.list().await.map(drop),
        1 => volume.remove(name).await,
        2 => nfs.rename(top, name.as_bytes(), top, b"common-0").await,
        3 => {
            // NLM locks remain until the host reports a restart, so this client is not cut off between the two calls.
            let rpc = connect::tcp(daemon.nfs, local, Arc::new(NoCallbacks)).await?;
            let nlm = Nlm::new(rpc, root(), &format!("soak-{}", dice.roll(8)));
            let (fh, _) = nfs.lookup(top, name.as_bytes()).await?;
            let range = (dice.roll(16), 1);
            nlm.lock(&fh, range, true).await?;
            nlm.unlock(&fh, range).await
        }
        _ => {
            let file = volume.create(name).await?;
            volume.write(&file, dice.roll(9000), vec![Buf::from(vec![3; 5000])]).await.map(drop)
        }
    }
}

async fn by_v4(nfs: &Nfs4, top: &client::nfs4::Fh, name: &str, dice: &mut Dice) -> Result<()> {
    match dice.roll(5) {
        0 => nfs.list(top).await.map(drop),
        1 => nfs.remove(top, name.as_bytes()).await,
        2 => nfs.rename(top, name.as_bytes(), top, b"common-0").await,
        what => {
            let want = *dice.of(&[0, WANT_READ_DELEG, WANT_WRITE_DELEG, OpenHow::WANT_NO_DELEG]);
            let how = OpenHow { create: Some(0o666), want, ..OpenHow::WRITE };
            let owner = dice.roll(u64::MAX).to_le_bytes();
            let file = nfs.open(top, name.as_bytes(), &owner, how).await?;
            let range = (dice.roll(16), 1);
            let locked = nfs.lock(&file, &owner, WRITE_LT, range).await?;
            nfs.write(
                &file.fh,
                file.io(),
                dice.roll(9000),
                vec![Buf::from(vec![4; 5000])],
                StableHow4::Unstable,
            )
            .await?;
            if what == 3 {
                // Held until the client leaves, or longer.
                return Ok(());
            }
            nfs.unlock(&file.fh, locked, WRITE_LT, range).await?;
            nfs.close(&file).await?;
            match file.delegation {
                Some(delegation) => nfs.delegreturn(&file.fh, delegation.stateid).await,
                None => Ok(()),
            }
        }
    }
}

async fn by_smb(smb: &Smb, name: &str, dice: &mut Dice) -> Result<()> {
    match dice.roll(5) {
        0 => smb.list("").await.map(drop),
        1 => smb.unlink(name).await,
        2 => {
            let mask = access::DELETE | access::READ_ATTRIBUTES;
            let file = smb.open(name, mask, Disposition::Open, option::NON_DIRECTORY_FILE).await?;
            let done = smb.rename(&file, "common-0", true).await;
            smb.close(file).await?;
            done
        }
        what => {
            let key = std::array::from_fn(|_| dice.small(250));
            let caching = *dice.of(&[
                Caching::None,
                Caching::Oplock(oplock::BATCH),
                Caching::Oplock(oplock::II),
                Caching::Lease(key, 7),
                Caching::Lease(key, 3),
            ]);
            let how = smb::OpenHow { disposition: Disposition::OpenIf, ..smb::OpenHow::WRITE };
            let (file, _) = smb.open_cached(name, &how.cached(caching)).await?;
            if dice.roll(4) == 0 {
                let input = [RESILIENT_MS.to_le_bytes(), [0; 4]].concat();
                smb.control(&file, code::LMR_REQUEST_RESILIENCY, &input).await?;
            }
            let range = (dice.roll(16), 1);
            let locked = smb.lock(&file, range, true, false).await;
            smb.write(&file, 16 + dice.roll(9000), vec![Buf::from(vec![5; 5000])])
                .await
                .map(drop)?;
            if what == 3 {
                return Ok(());
            }
            if locked.is_ok() {
                smb.unlock(&file, range).await?;
            }
            smb.close(file).await
        }
    }
}

/// Cuts clients off before they are connected: during negotiation, logon, session setup or mount.
pub async fn storm(daemon: &Daemon, local: &Local, dice: &mut Dice, number: usize) {
    let mut halves: Vec<Dice> = (0..number).map(|_| dice.own()).collect();
    let come = halves.iter_mut().enumerate().map(|(n, dice)| async move {
        let way = Way::any(dice);
        let bytes = dice.roll(1500);
        let name = format!("storm-{n}");
        let who = Who { local, name: &name, dice };
        // The progress of the client does not matter.
        let come = Client::come(daemon, way, who, bytes);
        let _ = tokio::time::timeout(Duration::from_secs(10), come).await;
    });
    futures_util::future::join_all(come).await;
}

/// Removes every file that the clients have left.
pub async fn tidy(daemon: &Daemon, local: &Local, dice: &mut Dice) {
    for share in ["data", "scratch", "mem"] {
        let way = Way { speech: Speech::V4(Minor::Two), rdma: false, share };
        let who = Who { local, name: "tidy", dice };
        let client = Client::come(daemon, way, who, u64::MAX).await.unwrap();
        for name in waiting(|| client.volume.list()).await.unwrap() {
            let name = String::from_utf8(name).unwrap();
            waiting(|| client.volume.remove(&name)).await.unwrap();
        }
        client.leave().await.unwrap();
    }
}
