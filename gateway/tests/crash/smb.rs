//! SMB machines: handles that are held with locks and leases over all rounds, and handles that are opened and closed.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use client::Error;
use client::connect::Local;
use client::smb::{Caching, OpenHow, Options, Smb, SmbFile, User};
use smb_proto::NtStatus;

use crate::records::{RECORD, RECORDS_AT, record};
use crate::{ALWAYS, Dice, Idle, SLOTS, extent, is_gone};

/// READ and HANDLE caching.
const LEASE_STATE: u32 = 3;

pub async fn machine(at: SocketAddr, number: u8) -> Smb {
    machine_again(at, number, 0).await
}

/// Connects the machine after it lost the connection of this session, which the gateway may not have noticed yet.
pub async fn machine_again(at: SocketAddr, number: u8, previous_session: u64) -> Smb {
    let user =
        User { name: "alice".into(), domain: String::new(), password: "correct horse".into() };
    let options = Options { machine: Some([number; 16]), previous_session, ..Options::default() };
    let server = ("127.0.0.1", "data");
    Smb::connect(at, false, server, &user, options, &Local::default()).await.unwrap()
}

/// A persistent handle as its client knows it.
pub struct Held {
    pub name: String,
    guid: [u8; 16],
    caching: Caching,
    file: SmbFile,
    pub records: u64,
    locks: BTreeSet<u64>,
    /// Slots whose request was unanswered at the kill.
    unsure: BTreeSet<u64>,
}

impl Held {
    /// Opens a file, odd numbers with a lease, and locks the slot that is always locked.
    pub async fn new(smb: &Smb, n: usize, dice: &mut Dice) -> Self {
        let (name, guid) = (format!("smb-{n}"), dice.guid());
        let caching = match n % 2 {
            0 => Caching::None,
            _ => Caching::Lease(dice.guid(), LEASE_STATE),
        };
        let (file, _) = smb.open_persistent(&name, guid, caching).await.unwrap();
        smb.lock(&file, extent(ALWAYS), true, false).await.unwrap();
        let (locks, unsure) = (BTreeSet::from([ALWAYS]), BTreeSet::new());
        Self { name, guid, caching, file, records: 0, locks, unsure }
    }

    fn is_leased(&self) -> bool {
        self.caching != Caching::None
    }

    /// Works until the connection is gone.
    pub async fn work(mut self, smb: Smb, mut dice: Dice, mut idle: Idle) -> Self {
        let before = self.records;
        loop {
            idle.take_if(|_| self.records > before);
            let slot = dice.roll(SLOTS);
            let done = match dice.roll(10) {
                0..5 => self.write(&smb).await,
                _ if self.locks.contains(&slot) => {
                    self.locks.remove(&slot);
                    let done = smb.unlock(&self.file, extent(slot)).await;
                    done.inspect_err(|_| {
                        self.unsure.insert(slot);
                    })
                }
                _ => match smb.lock(&self.file, extent(slot), true, false).await {
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

    pub async fn write(&mut self, smb: &Smb) -> client::Result<()> {
        let at = RECORDS_AT + self.records * RECORD;
        smb.write(&self.file, at, vec![record(&self.name, self.records)]).await?;
        smb.flush(&self.file).await?;
        self.records += 1;
        Ok(())
    }

    /// Checks from another machine, before (`back` is false) and after this one has returned.
    pub async fn check_others(&self, other: &Smb, back: bool) {
        let asked = other.open_cached(&self.name, &OpenHow::WRITE).await;
        if self.is_leased() && !back {
            let refused = matches!(asked, Err(Error::Smb(_, NtStatus::FILE_NOT_AVAILABLE)));
            assert!(refused, "{}: {asked:?}", self.name);
            return;
        }
        let (mine, _) = asked.unwrap();
        other.close(mine).await.unwrap();
        if self.is_leased() {
            check_reads(other, &self.name, &self.locks, &self.unsure).await;
        } else {
            check_locks(other, &self.name, &self.locks, &self.unsure).await;
        }
    }

    pub async fn take_up(&mut self, smb: &Smb) {
        let back = smb.take_up(&self.name, self.guid, Some(&self.file), self.caching).await;
        let (file, granted) = back.unwrap_or_else(|e| panic!("{}: {e}", self.name));
        assert_eq!(granted, if self.is_leased() { LEASE_STATE } else { 0 }, "{}", self.name);
        self.file = file;
        for slot in std::mem::take(&mut self.unsure) {
            match smb.unlock(&self.file, extent(slot)).await {
                Ok(()) | Err(Error::Smb(_, NtStatus::RANGE_NOT_LOCKED)) => {}
                Err(e) => panic!("{}: {e}", self.name),
            }
        }
    }
}

/// Checks that the locked slots exclude another machine, and the others do not.
pub async fn check_locks(other: &Smb, name: &str, locks: &BTreeSet<u64>, unsure: &BTreeSet<u64>) {
    let file = other.open_cached(name, &OpenHow::WRITE).await;
    let (file, _) = file.unwrap_or_else(|e| panic!("{name} cannot be opened: {e}"));
    for slot in (0..=ALWAYS).filter(|s| !unsure.contains(s)) {
        let got = other.lock(&file, extent(slot), true, false).await;
        if locks.contains(&slot) {
            let denied = matches!(got, Err(Error::Smb(_, NtStatus::LOCK_NOT_GRANTED)));
            assert!(denied, "{name} slot {slot} is locked: {got:?}");
        } else {
            got.unwrap_or_else(|e| panic!("{name} slot {slot} is free: {e}"));
            other.unlock(&file, extent(slot)).await.unwrap();
        }
    }
    other.close(file).await.unwrap();
}

/// As [`check_locks`], with reads: they break no lease for reading and for handles, so that the next round finds the whole
/// lease.
async fn check_reads(other: &Smb, name: &str, locks: &BTreeSet<u64>, unsure: &BTreeSet<u64>) {
    let file = other.open_cached(name, &OpenHow::READ).await;
    let (file, _) = file.unwrap_or_else(|e| panic!("{name} cannot be opened: {e}"));
    for slot in (0..=ALWAYS).filter(|s| !unsure.contains(s)) {
        let got = other.read(&file, extent(slot).0, 1).await;
        let denied = matches!(got, Err(Error::Smb(_, NtStatus::FILE_LOCK_CONFLICT)));
        let free = matches!(got, Ok(_) | Err(Error::Smb(_, NtStatus::END_OF_FILE)));
        assert!(if locks.contains(&slot) { denied } else { free }, "{name} slot {slot}: {got:?}");
    }
    other.close(file).await.unwrap();
}

/// Handles that are opened and closed.
#[derive(Default)]
pub struct Churn {
    open: Vec<(String, [u8; 16], SmbFile)>,
    closed: Vec<(String, [u8; 16], SmbFile)>,
    /// Handles whose create or close was unanswered at the kill.
    unsure: Vec<(String, [u8; 16])>,
}

impl Churn {
    pub async fn work(smb: Smb, mut dice: Dice, mut idle: Idle) -> Self {
        let mut all = Self::default();
        loop {
            idle.take_if(|_| all.count() > 1);
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

    /// Returns the number of opened handles.
    pub fn count(&self) -> usize {
        self.open.len() + self.closed.len()
    }

    pub async fn check(self, smb: &Smb) {
        for (name, guid, file) in &self.open {
            let back = smb.take_up(name, *guid, Some(file), Caching::None).await;
            let (file, _) = back.unwrap_or_else(|e| panic!("{name} was open: {e}"));
            smb.close(file).await.unwrap();
        }
        for (name, guid, file) in self.closed.iter().rev().take(20) {
            let back = smb.take_up(name, *guid, Some(file), Caching::None).await;
            let gone = matches!(back, Err(Error::Smb(_, NtStatus::OBJECT_NAME_NOT_FOUND)));
            assert!(gone, "{name} was closed: {back:?}");
        }
        for (name, guid) in &self.unsure {
            match smb.take_up(name, *guid, None, Caching::None).await {
                Ok((file, _)) => smb.close(file).await.unwrap(),
                Err(Error::Smb(_, NtStatus::OBJECT_NAME_NOT_FOUND)) => {}
                Err(e) => panic!("{name}: {e}"),
            }
        }
    }
}
