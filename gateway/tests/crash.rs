//! The gateway is killed at any moment under a mixed load and started again: what was acknowledged is there.
//!
//! Machines write records and make them stable by SMB, NFS 4.2 and NFS 3, lock and unlock bytes, open and close persistent
//! handles. Then comes `kill -9`. Afterwards every acknowledged record is in its file, every lock that a client believes in keeps
//! others out, every open handle is taken up by its client and no closed one is. `HEADGATE_CRASH_ROUNDS` says how often; 10
//! without it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::smb::{Caching, OpenHow, Options, Smb, SmbFile, User};
use client::target::{Protocol, Target, Transport, Version};
use client::{Credential, Error, File, Volume};
use iobuf::{Buf, BufMut};
use smbd_core::status::Status;

const ROUNDS: u64 = 10;
const HANDLES: usize = 4;
/// READ and HANDLE caching.
const LEASE_STATE: u32 = 3;
/// Nobody waits longer than this for a gateway that was started again.
const RECOVERY_MAX: Duration = Duration::from_secs(15);
const RECORD: u64 = 64;
/// Locks are below, records from here on.
const RECORDS_AT: u64 = 4096;
const SLOTS: u64 = 40;

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
}

/// The daemon, on the same ports in every run.
struct Daemon {
    child: Child,
    nfs: SocketAddr,
    smb: SocketAddr,
}

fn start(home: &Path, ports: Option<(u16, u16)>) -> Daemon {
    let (nfs, smb) = ports.unwrap_or((0, 0));
    let data = format!("data={},ca,squash=none", home.join("data").display());
    let user = format!("alice={}", home.join("password").display());
    let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
        .args(["serve", "--bind", "127.0.0.1", "--rdma", "off", "--share", &data, "--user", &user])
        .args(["--nfs-port", &nfs.to_string(), "--smb-port", &smb.to_string()])
        .args(["--lease", "1s", "--grace", "1s", "--state"])
        .arg(home.join("state"))
        .stdout(Stdio::piped())
        .stderr(fs::File::create(home.join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let log = || fs::read_to_string(home.join("log")).unwrap_or_default();
    assert!(line.starts_with("headgate ready"), "{line}{}", log());
    let at = |name: &str| {
        let word = line.split_whitespace().find_map(|w| w.strip_prefix(name)).expect(name);
        word.parse().unwrap()
    };
    Daemon { nfs: at("nfs="), smb: at("smb="), child }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SIGKILL
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn machine(at: SocketAddr, number: u8) -> Smb {
    let user =
        User { name: "alice".into(), domain: String::new(), password: "correct horse".into() };
    let options = Options { machine: Some([number; 16]), ..Options::default() };
    let server = ("127.0.0.1", "data");
    Smb::connect(at, false, server, &user, options, &Local::default()).await.unwrap()
}

fn record(of: &str, n: u64) -> Buf {
    let text = format!("{of} {n} ");
    let bytes: Vec<u8> = text.bytes().cycle().take(usize::try_from(RECORD).unwrap()).collect();
    let mut buf = BufMut::heap(bytes.len());
    buf.append(&bytes);
    buf.freeze()
}

/// What is on the disk of the first `count` records is what was written.
fn check_records(path: &Path, of: &str, count: u64) {
    let bytes = fs::read(path).unwrap_or_default();
    for n in 0..count {
        let at = usize::try_from(RECORDS_AT + n * RECORD).unwrap();
        let want = record(of, n);
        let found = bytes.get(at..at + want.len());
        assert_eq!(found, Some(want.as_slice()), "record {n} of {count} of {of}");
    }
}

/// The connection is gone; anything else is a fault of the gateway.
fn is_gone(e: &Error) -> bool {
    match e {
        Error::Down(_) => true,
        other => panic!("{other}"),
    }
}

/// A persistent handle as its client knows it.
struct Held {
    name: String,
    guid: [u8; 16],
    caching: Caching,
    file: SmbFile,
    records: u64,
    locks: BTreeSet<u64>,
    /// Whose request was under way when the gateway died.
    unsure: BTreeSet<u64>,
}

impl Held {
    fn is_leased(&self) -> bool {
        self.caching != Caching::None
    }

    /// Works until the connection is gone.
    async fn work(mut self, smb: Smb, mut dice: Dice) -> Self {
        loop {
            let slot = dice.roll(SLOTS);
            let extent = (slot * 16, 10);
            let done = match dice.roll(10) {
                0..5 => self.write(&smb).await,
                _ if self.locks.contains(&slot) => {
                    self.locks.remove(&slot);
                    let done = smb.unlock(&self.file, extent).await;
                    done.inspect_err(|_| {
                        self.unsure.insert(slot);
                    })
                }
                _ => match smb.lock(&self.file, extent, true, false).await {
                    Ok(()) => {
                        self.locks.insert(slot);
                        Ok(())
                    }
                    Err(e) => {
                        self.unsure.insert(slot);
                        Err(e)
                    }
                },
            };
            if done.is_err_and(|e| is_gone(&e)) {
                return self;
            }
        }
    }

    async fn write(&mut self, smb: &Smb) -> client::Result<()> {
        let at = RECORDS_AT + self.records * RECORD;
        smb.write(&self.file, at, vec![record(&self.name, self.records)]).await?;
        smb.flush(&self.file).await?;
        self.records += 1;
        Ok(())
    }

    /// What another machine finds before and after this one is back. `back`: it is.
    async fn check_others(&self, other: &Smb, back: bool) {
        let asked = other.open_cached(&self.name, &OpenHow::WRITE).await;
        if self.is_leased() && !back {
            let refused = matches!(asked, Err(Error::Smb(_, Status::FILE_NOT_AVAILABLE)));
            assert!(refused, "{}: {asked:?}", self.name);
            return;
        }
        let (mine, _) = asked.unwrap();
        for slot in (0..SLOTS).filter(|s| !self.unsure.contains(s)) {
            let got = other.lock(&mine, (slot * 16, 10), true, false).await;
            if self.locks.contains(&slot) {
                let denied = matches!(got, Err(Error::Smb(_, Status::LOCK_NOT_GRANTED)));
                assert!(denied, "{} slot {slot} is locked: {got:?}", self.name);
            } else {
                got.unwrap_or_else(|e| panic!("{} slot {slot} is free: {e}", self.name));
                other.unlock(&mine, (slot * 16, 10)).await.unwrap();
            }
        }
        other.close(mine).await.unwrap();
    }

    async fn take_up(&mut self, smb: &Smb) {
        let back = smb.take_up(&self.name, self.guid, Some(&self.file), self.caching).await;
        let (file, granted) = back.unwrap_or_else(|e| panic!("{}: {e}", self.name));
        assert_eq!(granted, if self.is_leased() { LEASE_STATE } else { 0 }, "{}", self.name);
        self.file = file;
        for slot in std::mem::take(&mut self.unsure) {
            match smb.unlock(&self.file, (slot * 16, 10)).await {
                Ok(()) | Err(Error::Smb(_, Status::RANGE_NOT_LOCKED)) => {}
                Err(e) => panic!("{}: {e}", self.name),
            }
        }
    }
}

/// Handles that come and go.
#[derive(Default)]
struct Churn {
    open: Vec<(String, [u8; 16], SmbFile)>,
    closed: Vec<(String, [u8; 16], SmbFile)>,
    /// Whose create or close was under way.
    unsure: Vec<(String, [u8; 16])>,
}

impl Churn {
    async fn work(smb: Smb, mut dice: Dice) -> Self {
        let mut all = Self::default();
        loop {
            let (name, guid) = (format!("churn-{}", dice.roll(8)), dice.guid());
            let file = match smb.open_persistent(&name, guid, Caching::None).await {
                Ok((file, _)) => file,
                Err(e) if is_gone(&e) => {
                    all.unsure.push((name, guid));
                    return all;
                }
                Err(_) => unreachable!(),
            };
            if dice.roll(8) == 0 {
                all.open.push((name, guid, file));
                continue;
            }
            match smb.close(file).await {
                Ok(()) => all.closed.push((name, guid, file)),
                Err(e) if is_gone(&e) => {
                    all.unsure.push((name, guid));
                    return all;
                }
                Err(_) => unreachable!(),
            }
        }
    }

    async fn check(self, smb: &Smb) {
        for (name, guid, file) in &self.open {
            let back = smb.take_up(name, *guid, Some(file), Caching::None).await;
            let (file, _) = back.unwrap_or_else(|e| panic!("{name} was open: {e}"));
            smb.close(file).await.unwrap();
        }
        for (name, guid, file) in self.closed.iter().rev().take(20) {
            let back = smb.take_up(name, *guid, Some(file), Caching::None).await;
            let gone = matches!(back, Err(Error::Smb(_, Status::OBJECT_NAME_NOT_FOUND)));
            assert!(gone, "{name} was closed: {back:?}");
        }
        for (name, guid) in &self.unsure {
            match smb.take_up(name, *guid, None, Caching::None).await {
                Ok((file, _)) => smb.close(file).await.unwrap(),
                Err(Error::Smb(_, Status::OBJECT_NAME_NOT_FOUND)) => {}
                Err(e) => panic!("{name}: {e}"),
            }
        }
    }
}

/// Records by NFS: each is acknowledged when its COMMIT is. Each round has a file of its own.
struct Nfs {
    name: String,
    version: Version,
    rounds: u64,
    records: u64,
    /// Of earlier rounds.
    before: u64,
}

impl Nfs {
    fn next_round(self) -> Self {
        let (rounds, before) = (self.rounds + 1, self.before + self.records);
        let name = format!("nfs-{:?}-{rounds}", self.version);
        Self { name, rounds, before, records: 0, ..self }
    }

    async fn open(&self, at: SocketAddr) -> (Volume, File) {
        let protocol = Protocol::Nfs { version: self.version, mount_port: at.port() };
        let target = Target {
            host: "127.0.0.1".into(),
            port: at.port(),
            path: "/data".into(),
            protocol,
            transport: Transport::Tcp,
            crc: true,
        };
        let root = Credential::sys(0, 0, &[]);
        let volume = Volume::open(&target, &Local::default(), root).await.unwrap();
        loop {
            const GRACE: u32 = 10_013;
            match volume.create(&self.name).await {
                Ok(file) => return (volume, file),
                Err(Error::Nfs4(_, GRACE)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(e) => panic!("{}: {e}", self.name),
            }
        }
    }

    async fn work(mut self, (volume, file): (Volume, File)) -> Self {
        loop {
            let at = RECORDS_AT + self.records * RECORD;
            let data = vec![record(&self.name, self.records)];
            let done = match volume.write(&file, at, data).await {
                Ok(_) => volume.commit(&file).await,
                Err(e) => Err(e),
            };
            match done {
                Ok(()) => self.records += 1,
                Err(e) => {
                    assert!(is_gone(&e));
                    return self;
                }
            }
        }
    }
}

/// All that works on one gateway.
struct Load {
    held: Vec<Held>,
    nfs: Vec<Nfs>,
}

impl Load {
    async fn begin(at: SocketAddr, dice: &mut Dice) -> Self {
        let smb = machine(at, 1).await;
        let mut held = Vec::new();
        for n in 0..HANDLES {
            let (name, guid) = (format!("smb-{n}"), dice.guid());
            let caching = match n % 2 {
                0 => Caching::None,
                _ => Caching::Lease(dice.guid(), LEASE_STATE),
            };
            let (file, _) = smb.open_persistent(&name, guid, caching).await.unwrap();
            let (locks, unsure) = Default::default();
            held.push(Held { name, guid, caching, file, records: 0, locks, unsure });
        }
        // As if the connection had been lost before the first round, too.
        drop(smb);
        let nfs = [Version::V3, Version::V42];
        let nfs = nfs.map(|version| Nfs {
            name: String::new(),
            version,
            rounds: 0,
            records: 0,
            before: 0,
        });
        Self { held, nfs: nfs.into() }
    }

    /// Works until the gateway is killed, a moment after all have begun.
    async fn until_killed(self, mut daemon: Daemon, smb: Smb, dice: &mut Dice) -> (Self, Churn) {
        let at = daemon.nfs;
        let mut nfs = Vec::new();
        for one in self.nfs {
            let one = one.next_round();
            let open = one.open(at).await;
            nfs.push(tokio::spawn(one.work(open)));
        }
        let own = |dice: &mut Dice| Dice(dice.roll(u64::MAX) | 1);
        let held: Vec<_> = self
            .held
            .into_iter()
            .map(|held| tokio::spawn(held.work(smb.clone(), own(dice))))
            .collect();
        let churn = tokio::spawn(Churn::work(smb, own(dice)));
        tokio::time::sleep(Duration::from_millis(30 + dice.roll(400))).await;
        daemon.child.kill().unwrap();
        let mut left = Self { held: Vec::new(), nfs: Vec::new() };
        for one in held {
            left.held.push(one.await.unwrap());
        }
        for one in nfs {
            left.nfs.push(one.await.unwrap());
        }
        (left, churn.await.unwrap())
    }

    fn check_files(&self, data: &Path) {
        self.held.iter().for_each(|h| check_records(&data.join(&h.name), &h.name, h.records));
        self.nfs.iter().for_each(|n| check_records(&data.join(&n.name), &n.name, n.records));
    }

    async fn check_locks(&self, at: SocketAddr, back: bool) {
        let other = machine(at, 2).await;
        for held in &self.held {
            held.check_others(&other, back).await;
        }
    }
}

fn home() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o777)).unwrap();
    let password = home.path().join("password");
    fs::write(&password, "correct horse\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    (home, data)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let rounds = std::env::var("HEADGATE_CRASH_ROUNDS").ok().map(|n| n.parse().unwrap());
    let rounds = rounds.unwrap_or(ROUNDS);
    let (home, data) = home();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let first = start(home.path(), None);
    let ports = Some((first.nfs.port(), first.smb.port()));
    let mut load = Load::begin(first.smb, &mut dice).await;
    drop(first);
    let (mut ready, mut whole) = (Vec::new(), Vec::new());
    let (mut opens, mut churn) = (0, Churn::default());
    for round in 0..=rounds {
        let begun = Instant::now();
        let daemon = start(home.path(), ports);
        ready.push(begun.elapsed());
        let one_round = async {
            let smb = machine(daemon.smb, 1).await;
            load.check_locks(daemon.smb, false).await;
            let begun_again = Instant::now();
            for held in &mut load.held {
                held.take_up(&smb).await;
            }
            whole.push(ready[ready.len() - 1] + begun_again.elapsed());
            load.check_locks(daemon.smb, true).await;
            opens += churn.open.len() + churn.closed.len();
            churn.check(&smb).await;
            load.check_files(&data);
            if round == rounds {
                (load, Churn::default())
            } else {
                load.until_killed(daemon, smb, &mut dice).await
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(90), one_round).await;
        (load, churn) = ended.unwrap_or_else(|_| panic!("round {round} hangs"));
    }
    ready.sort();
    whole.sort();
    let records: u64 = load.held.iter().map(|h| h.records).sum();
    let by_nfs: u64 = load.nfs.iter().map(|n| n.before + n.records).sum();
    let middle = |times: &[Duration]| times[times.len() / 2];
    println!(
        "{rounds} rounds: {records} records by SMB and {by_nfs} by NFS, {opens} handles came and went; ready after {:?} \
         (longest {:?}), all handles back after {:?} (longest {:?})",
        middle(&ready),
        ready[ready.len() - 1],
        middle(&whole),
        whole[whole.len() - 1],
    );
    assert!(records > rounds && by_nfs > rounds && opens as u64 > rounds, "a load that is none");
    assert!(whole[whole.len() - 1] < RECOVERY_MAX);
}
