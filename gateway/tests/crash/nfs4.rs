//! An NFS 4.2 client that lives through all rounds: it holds opens, locks and delegations, for reading and for writing, and
//! reclaims them after every kill.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::connect::{self, Local};
use client::nfs4::ops::{ExistLockOwner4, Lock, Locker4, OpenToLockOwner4};
use client::nfs4::{
    Delegation, LockType4, Minor, Nfs4, OpenFile, OpenHow, Recall, Recalls, StableHow4,
    StateOwner4, Stateid,
};
use client::smb::{self, Smb};
use client::{Credential, Error};
use smb_proto::NtStatus;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;

use crate::smb::check_locks;
use crate::{ALWAYS, Dice, Idle, SLOTS, TooLate, extent, is_gone, refused};

const NAME: &[u8] = b"crash";
const VERIFIER: [u8; 8] = *b"one boot";
const LOCKED: &str = "nfs4-locked";
const DENIED: &str = "nfs4-denied";
/// Denies writes to other clients.
const DENY_WRITE: u32 = 2;
const WANT_READ_DELEG: u32 = 0x0100;
/// Requests a delegation as Linux does: with the times, and in place of the open.
const WANT_ALONE: u32 = OpenHow::WANT_DELEG_TIMESTAMPS | OpenHow::WANT_OPEN_XOR_DELEGATION;
const FILE_SYNC: StableHow4 = StableHow4::FileSync;
const WRITE_LT: LockType4 = LockType4::Write;
/// Interval well below the lease.
const RENEW: Duration = Duration::from_millis(250);

fn shared() -> OpenHow {
    OpenHow { create: Some(0o666), want: OpenHow::WANT_NO_DELEG, ..OpenHow::WRITE }
}

fn denying() -> OpenHow {
    OpenHow { deny: DENY_WRITE, ..shared() }
}

/// Ways to open a file for delegation: for reading together with an open, for writing in place of it.
const DELEGATED: [OpenHow; 2] = [
    OpenHow { want: WANT_READ_DELEG, ..OpenHow::READ },
    OpenHow { want: WANT_ALONE, ..OpenHow::WRITE },
];

/// A delegation that the client holds.
struct Delegated {
    name: String,
    how: OpenHow,
    file: OpenFile,
    /// Acknowledged data that it wrote under the delegation.
    written: Vec<u8>,
}

/// State that the client believes to hold.
pub struct Holder {
    locked: OpenFile,
    denied: OpenFile,
    delegated: Vec<Delegated>,
    /// Number of files for delegations: each uses a new file, because a file is not delegated again soon after a recall.
    files: u64,
    locks: BTreeSet<u64>,
    /// Number of delegations that were held at a kill and recalled by another client afterwards.
    pub delegations: u64,
    /// Number of reclaimed locks.
    pub reclaimed: u64,
    run: Run,
}

/// The client's session with one run of the gateway.
struct Run {
    nfs: Nfs4,
    recalls: Receiver<Recall>,
    renewing: JoinHandle<()>,
    /// Stateids of lock owners that this run knows.
    stateids: BTreeMap<u64, Stateid>,
}

impl Run {
    async fn begin(at: SocketAddr) -> Self {
        let (callbacks, recalls) = Recalls::new();
        let rpc = connect::tcp(at, &Local::default(), Arc::new(callbacks)).await.unwrap();
        let root = Credential::sys(0, 0, &[]);
        let nfs = Nfs4::to_reclaim(rpc, root, Minor::Two, NAME, VERIFIER).await.unwrap();
        let renewed = nfs.clone();
        let renewing = tokio::spawn(async move {
            while renewed.call(renewed.compound()).await.is_ok() {
                tokio::time::sleep(RENEW).await;
            }
        });
        Self { nfs, recalls, renewing, stateids: BTreeMap::new() }
    }

    /// Locks a slot with a separate owner.
    async fn lock(&mut self, file: &OpenFile, slot: u64, reclaim: bool) -> client::Result<()> {
        let (offset, length) = extent(slot);
        let owner = slot.to_be_bytes();
        let locker = match self.stateids.get(&slot) {
            Some(known) => Locker4::Exist(ExistLockOwner4 { lock_stateid: *known, lock_seqid: 0 }),
            None => Locker4::Open(OpenToLockOwner4 {
                open_seqid: 0,
                open_stateid: file.stateid,
                lock_seqid: 0,
                lock_owner: StateOwner4 { clientid: self.nfs.clientid(), owner: &owner },
            }),
        };
        let args = Lock { locktype: WRITE_LT, reclaim, offset, length, locker };
        let stateid = self.nfs.lock_by(&file.fh, args).await?;
        self.stateids.insert(slot, stateid);
        Ok(())
    }

    async fn unlock(&mut self, file: &OpenFile, slot: u64) -> client::Result<()> {
        let stateid = self.stateids[&slot];
        self.nfs.unlock(&file.fh, stateid, WRITE_LT, extent(slot)).await?;
        // LOCKU increments the stateid (RFC 8881 section 8.2.2); 0 means the newest.
        self.stateids.insert(slot, Stateid { seqid: 0, ..stateid });
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl Holder {
    pub async fn begin(at: SocketAddr) -> Self {
        let mut run = Run::begin(at).await;
        run.nfs.reclaim_complete().await.unwrap();
        let root = run.nfs.walk("/data").await.unwrap();
        let open = |name: &'static str, how| {
            let (nfs, root) = (run.nfs.clone(), root.clone());
            async move { nfs.open(&root, name.as_bytes(), name.as_bytes(), how).await.unwrap() }
        };
        let (locked, denied) = (open(LOCKED, shared()).await, open(DENIED, denying()).await);
        run.lock(&locked, ALWAYS, false).await.unwrap();
        let locks = BTreeSet::from([ALWAYS]);
        let delegated = Vec::new();
        Self { locked, denied, delegated, files: 0, locks, delegations: 0, reclaimed: 0, run }
    }

    /// Gets delegations, then locks, unlocks and writes until the connection is gone.
    pub async fn work(mut self, mut dice: Dice, mut idle: Idle) -> Self {
        for how in DELEGATED {
            if self.take_delegation(how).await.is_err_and(|e| is_gone(&e)) {
                return self;
            }
        }
        loop {
            idle.take_if(|_| self.locks.len() > 1);
            if self.write(&mut dice).await.is_err_and(|e| is_gone(&e)) {
                return self;
            }
            let slot = dice.roll(SLOTS);
            // An operation that is unanswered at the kill does not count.
            let done = if self.locks.remove(&slot) {
                self.run.unlock(&self.locked, slot).await
            } else {
                let got = self.run.lock(&self.locked, slot, false).await;
                if got.is_ok() {
                    self.locks.insert(slot);
                }
                got
            };
            if done.is_err_and(|e| is_gone(&e)) {
                return self;
            }
        }
    }

    async fn take_delegation(&mut self, how: OpenHow) -> client::Result<()> {
        let nfs = &self.run.nfs;
        let root = nfs.walk("/data").await?;
        self.files += 1;
        let name = format!("nfs4-delegated-{}", self.files);
        let plain = nfs.open(&root, name.as_bytes(), b"maker", shared()).await?;
        nfs.close(&plain).await?;
        let file = nfs.open(&root, name.as_bytes(), name.as_bytes(), how).await?;
        assert!(file.delegation.is_some(), "{name}: nobody else has it");
        self.delegated.push(Delegated { name, how, file, written: Vec::new() });
        Ok(())
    }

    /// Writes once under each write delegation.
    async fn write(&mut self, dice: &mut Dice) -> client::Result<()> {
        for one in self.delegated.iter_mut().filter(|d| d.how.access == OpenHow::WRITE.access) {
            let data = dice.roll(u64::MAX).to_be_bytes();
            let at = one.written.len() as u64;
            let buf = vec![iobuf::Buf::from(data.to_vec())];
            self.run.nfs.write(&one.file.fh, one.file.io(), at, buf, FILE_SYNC).await?;
            one.written.extend(data);
        }
        Ok(())
    }

    /// Reclaims all state from the gateway that was restarted at this time.
    pub async fn come_back(&mut self, at: SocketAddr, started: Instant) -> Result<(), TooLate> {
        self.run = Run::begin(at).await;
        let nfs = self.run.nfs.clone();
        for (file, how) in [(&mut self.locked, shared()), (&mut self.denied, denying())] {
            let name = if how.deny == 0 { LOCKED } else { DENIED };
            let back = nfs.reclaim(file, name.as_bytes(), how).await;
            *file = back.map_err(|e| refused(name, &e, started))?;
        }
        for Delegated { name, how, file, .. } in &mut self.delegated {
            let (before, open) = (file.delegation, file.is_open());
            let back = nfs.reclaim(file, name.as_bytes(), *how).await;
            *file = back.map_err(|e| refused(name, &e, started))?;
            let sort = |d: Delegation| (d.write, d.times);
            assert_eq!(file.delegation.map(sort), before.map(sort), "{name}: the same again");
            assert_eq!(file.is_open(), open, "{name}: beside an open or in its place, as before");
        }
        for slot in &self.locks {
            let got = self.run.lock(&self.locked, *slot, true).await;
            got.map_err(|e| refused(&format!("{LOCKED} slot {slot}"), &e, started))?;
            self.reclaimed += 1;
        }
        nfs.reclaim_complete().await.unwrap();
        Ok(())
    }

    /// Checks with another machine that locks and the share mode exclude it, and that its open recalls the delegation.
    pub async fn check(&mut self, other: &Smb) {
        check_locks(other, LOCKED, &self.locks, &BTreeSet::new()).await;
        let asked = other.open_cached(DENIED, &smb::OpenHow::WRITE).await;
        let refused = matches!(asked, Err(Error::Smb(_, NtStatus::SHARING_VIOLATION)));
        assert!(refused, "{DENIED}: {asked:?}");
        for one in std::mem::take(&mut self.delegated) {
            self.give_back(one, other).await;
        }
    }

    /// Opens the file from another machine; all data written under the delegation must be visible, including cached data.
    async fn give_back(&mut self, one: Delegated, other: &Smb) {
        let Delegated { name, how, file, mut written } = one;
        let stateid = file.delegation.unwrap().stateid;
        let (nfs, recalls) = (self.run.nfs.clone(), &mut self.run.recalls);
        let at = written.len() as u64;
        let last = if how.access == OpenHow::WRITE.access { b"the last".to_vec() } else { vec![] };
        written.extend(&last);
        let give_back = async {
            let recall = recalls.recv().await.expect("a connection");
            assert_eq!(recall.stateid.other, stateid.other);
            if !last.is_empty() {
                let buf = vec![iobuf::Buf::from(last)];
                nfs.write(&file.fh, stateid, at, buf, FILE_SYNC).await.unwrap();
            }
            nfs.delegreturn(&file.fh, stateid).await.unwrap();
        };
        let open = other.open_cached(&name, &smb::OpenHow::WRITE);
        let (asked, ()) = tokio::join!(open, give_back);
        let asked = asked.unwrap().0;
        let length = u32::try_from(written.len()).unwrap();
        let found = match length {
            0 => Vec::new(),
            _ => other.read(&asked, 0, length.min(1 << 16)).await.unwrap(),
        };
        let found: Vec<u8> = found.iter().flat_map(|b| b.to_vec()).collect();
        assert!(written.starts_with(&found), "{name}: what was acknowledged is not there");
        assert_eq!(found.len(), written.len().min(1 << 16), "{name}: less than was acknowledged");
        other.close(asked).await.unwrap();
        if file.is_open() {
            nfs.close(&file).await.unwrap();
        }
        self.delegations += 1;
    }
}

/// Another machine that tries to lock the slot that is always locked, from the moment that it is admitted.
pub async fn intrude(smb: Smb) {
    check_locks(&smb, LOCKED, &BTreeSet::from([ALWAYS]), &(0..SLOTS).collect()).await;
}
