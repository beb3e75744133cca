//! Kills the gateway at random moments under a mixed load and starts it again: all acknowledged work must survive.
//!
//! Machines write records and make them stable over SMB, NFS 4.2 and NFS 3, lock and unlock bytes over SMB, NFS 4.2 and NLM,
//! open and close persistent handles, deny writes to others, hold delegations and write under them. Then comes `kill -9`. NFS
//! clients reclaim their state within the grace period. Afterwards every acknowledged record must be in its file, every lock
//! that a client holds must exclude others, and every open handle must be resumed by its client while no closed one can be.
//! If clients miss the grace period because the machine is too busy, the round proves nothing and is repeated with new
//! clients. `HEADGATE_CRASH_ROUNDS` sets the number of rounds (default 4), `HEADGATE_CRASH_SEED` another series of moments
//! than the default one, and `HEADGATE_CRASH_GRACE` the grace period (`8s`).
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod daemon;
mod nfs4;
mod nlm;
mod orderly;
mod planted;
mod records;
mod smb;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use client::Error;
use client::target::Version;

use tokio::sync::mpsc::{Sender, channel};

use config::Span;
use daemon::{Daemon, grace, home, start};
use records::{Nfs, check_records};
use smb::{Churn, Held, machine, machine_again};

const ROUNDS: u64 = 4;
const HANDLES: usize = 4;
/// Time limit for a restarted gateway, also on a machine that is busy with other tests.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
/// Number of byte ranges that are locked and unlocked at random, and the one that is always locked.
const SLOTS: u64 = 40;
const ALWAYS: u64 = SLOTS;

fn extent(slot: u64) -> (u64, u64) {
    (slot * 16, 10)
}

/// A small generator, so that a failed run can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn guid(&mut self) -> [u8; 16] {
        let halves = [self.roll(u64::MAX), self.roll(u64::MAX)];
        std::array::from_fn(|i| halves[i / 8].to_le_bytes()[i % 8])
    }

    fn own(&mut self) -> Self {
        Self(self.roll(u64::MAX) | 1)
    }
}

/// Returns true if the connection is gone; any other error is a fault of the gateway.
fn is_gone(e: &Error) -> bool {
    match e {
        Error::Down(_) => true,
        other => panic!("{other}"),
    }
}

/// A client returned after the grace period, which shows no fault of the gateway.
#[derive(Debug)]
pub struct TooLate;

/// Checks a refused reclaim: it is correct only if the grace period was over.
fn refused(what: &str, e: &Error, started: Instant) -> TooLate {
    let (after, grace) = (started.elapsed(), grace().parse::<Span>().unwrap().0);
    assert!(after > grace, "reclaim of {what}, {after:?} after the start: {e}");
    TooLate
}

/// Dropped by a worker after it has completed some work, so that no round ends without work.
pub type Idle = Option<Sender<()>>;

/// All clients of one gateway.
struct Load {
    /// The last session of the machine that holds handles.
    session: u64,
    held: Vec<Held>,
    churn: Churn,
    nfs: Vec<Nfs>,
    holder: nfs4::Holder,
    host: nlm::Host,
    /// State found after the last kill.
    found: Found,
    /// Handles that were opened and closed.
    handles: u64,
}

/// Amount of each kind of state that was found again after the kills.
#[derive(Clone, Copy, Default)]
struct Found {
    by_smb: u64,
    by_nfs: u64,
    handles: u64,
    locks: u64,
    delegations: u64,
}

impl Found {
    fn and(self, more: Self) -> Self {
        Self {
            by_smb: self.by_smb + more.by_smb,
            by_nfs: self.by_nfs + more.by_nfs,
            handles: self.handles + more.handles,
            locks: self.locks + more.locks,
            delegations: self.delegations + more.delegations,
        }
    }
}

/// Duration from each start to several events.
#[derive(Default)]
struct Times {
    /// The program reports that it is ready.
    ready: Vec<Duration>,
    /// Every NFS client has reclaimed.
    reclaimed: Vec<Duration>,
    /// Other clients are admitted: the grace period is over.
    open: Vec<Duration>,
    /// Every handle was resumed, without the time that its client waited for checks.
    back: Vec<Duration>,
}

impl Times {
    fn note(&mut self, ready: Duration, reclaimed: Duration, open: Duration, back: Duration) {
        self.ready.push(ready);
        self.reclaimed.push(reclaimed);
        self.open.push(open);
        self.back.push(back);
    }
}

/// Returns the median and the maximum.
fn spread(times: &[Duration]) -> String {
    let mut times = times.to_vec();
    times.sort();
    format!("{:?} (longest {:?})", times[times.len() / 2], times[times.len() - 1])
}

impl Load {
    async fn begin(daemon: &Daemon, dice: &mut Dice) -> Self {
        let smb = machine(daemon.smb, 1).await;
        let mut held = Vec::new();
        for n in 0..HANDLES {
            held.push(Held::new(&smb, n, dice).await);
        }
        Self {
            session: smb.session(),
            held,
            churn: Churn::default(),
            nfs: [Version::V3, Version::V42].map(Nfs::new).into(),
            holder: nfs4::Holder::begin(daemon.nfs).await,
            host: nlm::Host::begin(daemon.nfs).await,
            found: Found::default(),
            handles: 0,
        }
    }

    /// Works until the gateway is killed, some time after all workers have done something.
    async fn until_killed(self, mut daemon: Daemon, dice: &mut Dice) -> Self {
        let smb = machine_again(daemon.smb, 1, self.session).await;
        let session = smb.session();
        let (idle, mut nobody_idle) = channel(1);
        let idle = Some(idle);
        let mut held = Vec::new();
        for mut one in self.held {
            one.take_up(&smb).await;
            held.push(tokio::spawn(one.work(smb.clone(), dice.own(), idle.clone())));
        }
        let mut nfs = Vec::new();
        for one in self.nfs {
            let one = one.next_round();
            let open = one.open(daemon.nfs).await;
            nfs.push(tokio::spawn(one.work(open, idle.clone())));
        }
        let churn = tokio::spawn(Churn::work(smb, dice.own(), idle.clone()));
        let holder = tokio::spawn(self.holder.work(dice.own(), idle.clone()));
        let host = tokio::spawn(self.host.work(dice.own(), idle));
        assert_eq!(nobody_idle.recv().await, None);
        tokio::time::sleep(Duration::from_millis(30 + dice.roll(400))).await;
        daemon.child.kill().unwrap();
        let (mut held_left, mut nfs_left) = (Vec::new(), Vec::new());
        for one in held {
            held_left.push(one.await.unwrap());
        }
        for one in nfs {
            nfs_left.push(one.await.unwrap());
        }
        Self {
            session,
            held: held_left,
            nfs: nfs_left,
            churn: churn.await.unwrap(),
            holder: holder.await.unwrap(),
            host: host.await.unwrap(),
            ..self
        }
    }

    /// Starts the gateway again and checks that each client finds its state.
    async fn recover(
        &mut self,
        home: &Path,
        data: &Path,
        ports: (u16, u16),
        times: &mut Times,
    ) -> Result<Daemon, TooLate> {
        let begun = Instant::now();
        let daemon = start(home, Some(ports));
        let ready = begun.elapsed();
        let intruder = tokio::spawn(nfs4::intrude(machine(daemon.smb, 3).await));
        let back = match self.holder.come_back(daemon.nfs, begun).await {
            Ok(()) => self.host.come_back(daemon.nfs, begun).await,
            late => late,
        };
        if let Err(late) = back {
            // Unreclaimed state is free for the other client.
            intruder.abort();
            return Err(late);
        }
        let reclaimed = begun.elapsed();
        intruder.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
        let open = begun.elapsed();
        let smb = machine_again(daemon.smb, 1, self.session).await;
        self.session = smb.session();
        self.check_handles(daemon.smb, false).await;
        let begun = Instant::now();
        for held in &mut self.held {
            held.take_up(&smb).await;
        }
        let back = ready + begun.elapsed();
        self.check_handles(daemon.smb, true).await;
        self.handles += self.churn.count() as u64;
        std::mem::take(&mut self.churn).check(&smb).await;
        self.held.iter().for_each(|h| check_records(&data.join(&h.name), &h.name, h.records));
        self.nfs.iter().for_each(|n| check_records(&data.join(&n.name), &n.name, n.records));
        let other = machine(daemon.smb, 2).await;
        self.holder.check(&other).await;
        self.host.check(&other).await;
        times.note(ready, reclaimed, open, back);
        self.found = self.all();
        Ok(daemon)
    }

    async fn check_handles(&self, at: SocketAddr, back: bool) {
        let other = machine(at, 2).await;
        for held in &self.held {
            held.check_others(&other, back).await;
        }
    }

    fn all(&self) -> Found {
        Found {
            by_smb: self.held.iter().map(|h| h.records).sum(),
            by_nfs: self.nfs.iter().map(|n| n.before + n.records).sum(),
            handles: self.handles,
            locks: self.holder.reclaimed + self.host.reclaimed,
            delegations: self.holder.delegations,
        }
    }
}

fn report(rounds: u64, late: u64, found: &Found, times: &Times) {
    let Found { by_smb, by_nfs, handles, locks, delegations } = *found;
    println!(
        "{rounds} rounds, and {late} that proved nothing: {by_smb} records by SMB and {by_nfs} by NFS, {handles} handles came \
         and went, {locks} locks and {delegations} delegations were reclaimed; ready after {}, NFS reclaimed after {}, open to \
         all after {}, all handles back after {}",
        spread(&times.ready),
        spread(&times.reclaimed),
        spread(&times.open),
        spread(&times.back),
    );
    let least = [by_smb, by_nfs, handles, locks, delegations];
    assert!(least.iter().all(|n| *n > rounds), "a load that is none");
}

/// Creates a new folder and starts a load; returns the gateway's ports too.
async fn world(dice: &mut Dice) -> (tempfile::TempDir, PathBuf, Load, Daemon) {
    let (home, data) = home();
    let daemon = start(home.path(), None);
    let load = Load::begin(&daemon, dice).await;
    (home, data, load, daemon)
}

fn ports(daemon: &Daemon) -> (u16, u16) {
    (daemon.nfs.port(), daemon.smb.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let given = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    let rounds = given("HEADGATE_CRASH_ROUNDS").unwrap_or(ROUNDS);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ given("HEADGATE_CRASH_SEED").unwrap_or(0));
    let (mut home, mut data, mut load, mut daemon) = world(&mut dice).await;
    let (mut times, mut found, mut late, mut round) = (Times::default(), Found::default(), 0, 0);
    while round < rounds {
        let ports = ports(&daemon);
        let one_round = async {
            let mut load = load.until_killed(daemon, &mut dice).await;
            let daemon = load.recover(home.path(), &data, ports, &mut times).await;
            (load, daemon)
        };
        let ended = tokio::time::timeout(Duration::from_secs(90), one_round).await;
        let (left, back) = ended.unwrap_or_else(|_| panic!("round {round} hangs"));
        load = left;
        if let Ok(again) = back {
            (daemon, round) = (again, round + 1);
            continue;
        }
        late += 1;
        assert!(late <= ROUNDS.max(rounds), "no client of NFS comes back within the grace period");
        found = found.and(load.found);
        (home, data, load, daemon) = world(&mut dice).await;
    }
    report(rounds, late, &found.and(load.found), &times);
    let longest = times.open.iter().chain(&times.back).max();
    assert!(longest.is_some_and(|t| *t < RECOVERY_MAX));
}
