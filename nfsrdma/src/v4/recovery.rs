//! Durable data of the NFSv4 server: the names of clients with state, and the name of this server.
//!
//! *Operation.* Records of the store. A client is entered before it takes any state, and struck out before other clients may take
//! what it held (RFC 8881 section 8.4.2.1). The record of a Kerberos client contains its principal, and only that principal may
//! reclaim ([`Owner`]). A record without principal, as earlier versions wrote them, belongs to any client of its name.
//!
//! *Memory.* The names: one for each client, of which there are at most `limits.nfs_clients`.
//!
//! *Errors.* The caller gets the error of a record that cannot be written.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard};

use mutex::locked;
use recovery::{Change, Kind, Pending, Store};

const SCOPE: &[u8] = b"nfs4-scope";

/// The only principal that may reclaim by a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The [fingerprint](crate::rpc::gss::fingerprint) of the principal.
    pub(super) principal: u128,
    /// The client's state is bound to the principal (SP4_MACH_CRED), so its calls must be protected.
    pub(super) is_bound: bool,
}

impl Owner {
    /// The first byte of a record with an owner.
    const VERSION: u8 = 1;

    /// Encodes the value of a record.
    fn emit(this: Option<Self>) -> Vec<u8> {
        let Some(Self { principal, is_bound }) = this else { return Vec::new() };
        let head = [Self::VERSION, is_bound.into()];
        [&head[..], &principal.to_be_bytes()].concat()
    }

    /// Decodes the value of a record.
    fn parse(value: &[u8]) -> Option<Self> {
        let [Self::VERSION, bound, principal @ ..] = value else { return None };
        let principal = u128::from_be_bytes(principal.try_into().ok()?);
        Some(Self { principal, is_bound: *bound != 0 })
    }
}

/// The state of a record.
#[derive(Debug, Default)]
struct Record {
    owner: Option<Owner>,
    /// The record certainly exists; otherwise it may or may not.
    is_durable: bool,
    /// Number of the last change submitted.
    last: u64,
    /// Number of the first of the latest changes that all enter the same owner; `None` after a strike.
    entered_since: Option<u64>,
}

/// The durable set of clients; without a store it exists in memory only.
#[derive(Debug)]
pub(super) struct Recovery {
    store: Option<Store>,
    /// Names that have, or may have, a record.
    names: Mutex<HashMap<Box<[u8]>, Record>>,
    /// The server's name, constant over restarts (`server_scope`, `so_major_id`).
    pub(super) scope: Vec<u8>,
}

impl Recovery {
    /// Opens the set and returns the names in it. Reads the disk.
    ///
    /// `run` differs in each run of the server: without a store it is the server's name.
    pub(super) fn open(store: Option<Store>, run: u64) -> io::Result<(Self, Vec<Box<[u8]>>)> {
        let Some(store) = store else {
            let scope = format!("headgate-{run:016x}").into_bytes();
            return Ok((Self { store: None, names: Mutex::default(), scope }, Vec::new()));
        };
        let records = store.read(Kind::NfsClient)?;
        let names = records.iter().map(|(name, _)| name.clone()).collect();
        let scope = scope(&store)?;
        let durable = |value: &[u8]| Record {
            owner: Owner::parse(value),
            is_durable: true,
            ..Record::default()
        };
        let known = records.into_iter().map(|(name, value)| (name, durable(&value))).collect();
        Ok((Self { store: Some(store), names: Mutex::new(known), scope }, names))
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Record>> {
        locked(&self.names)
    }

    /// Submits a change: a record of this owner, or its removal. Changes of one name take effect in order of submission.
    fn submit(&self, store: &Store, name: &[u8], enters: Option<Option<Owner>>) -> (u64, Pending) {
        let change = match enters {
            Some(owner) => Change::put(Kind::NfsClient, name, &Owner::emit(owner)),
            None => Change::remove(Kind::NfsClient, name),
        };
        let mut names = self.names();
        let record = names.entry(name.into()).or_default();
        let is_repeated = record.entered_since.is_some() && enters == Some(record.owner);
        record.last += 1;
        if !is_repeated {
            record.owner = enters.unwrap_or(record.owner);
            record.is_durable = false;
            record.entered_since = enters.map(|_| record.last);
        }
        (record.last, store.submit(vec![change]))
    }

    /// Enters a client durably, replacing another one of its name.
    pub(super) async fn enter(&self, name: &[u8], owner: Option<Owner>) -> io::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        if self.has(name, owner) {
            return Ok(());
        }
        let (number, done) = self.submit(store, name, Some(owner));
        done.await?;
        self.note_entered(name, number);
        Ok(())
    }

    /// Marks the change of this number, which enters a client, as durable. Later changes that enter the same owner do not affect
    /// that: several first requests of a client may run concurrently.
    fn note_entered(&self, name: &[u8], number: u64) {
        if let Some(record) = self.names().get_mut(name)
            && record.entered_since.is_some_and(|since| since <= number)
        {
            record.is_durable = true;
        }
    }

    /// True if the client is certainly in the set, so that entering it needs no disk access.
    pub(super) fn has(&self, name: &[u8], owner: Option<Owner>) -> bool {
        let is_it = |record: &Record| record.is_durable && record.owner == owner;
        self.store.is_none() || self.names().get(name).is_some_and(is_it)
    }

    /// The owner in the record of this name, if a record exists (or may exist) and has one.
    pub(super) fn owner(&self, name: &[u8]) -> Option<Owner> {
        self.names().get(name)?.owner
    }

    /// True if the client has, or may have, a record.
    pub(super) fn knows(&self, name: &[u8]) -> bool {
        self.names().contains_key(name)
    }

    /// Starts to strike a client out; the returned future completes when that is durable. `None` if there is no record. After an
    /// error the record may or may not exist: it can be struck again, and must be entered again.
    pub(super) fn strike(
        &self,
        name: &[u8],
    ) -> Option<impl Future<Output = io::Result<()>> + use<'_>> {
        let store = self.store.as_ref().filter(|_| self.knows(name))?;
        let (number, done) = self.submit(store, name, None);
        let name: Box<[u8]> = name.into();
        Some(async move {
            done.await?;
            let mut names = self.names();
            if names.get(&name).is_some_and(|r| r.last == number) {
                names.remove(&name);
            }
            Ok(())
        })
    }
}

/// Reads the server's name, or creates it at the first start.
fn scope(store: &Store) -> io::Result<Vec<u8>> {
    let known = store.read(Kind::Server)?.into_iter().find(|(key, _)| **key == *SCOPE);
    if let Some((_, scope)) = known {
        return Ok(scope.into());
    }
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
    let scope = format!("headgate-{:032x}", u128::from_be_bytes(random)).into_bytes();
    store.commit_blocking(vec![Change::put(Kind::Server, SCOPE, &scope)])?;
    Ok(scope)
}

#[cfg(test)]
mod tests {
    use recovery::faults::{Disk, Fault};

    use super::*;

    async fn strike(r: &Recovery, name: &[u8]) -> io::Result<()> {
        match r.strike(name) {
            Some(strike) => strike.await,
            None => Ok(()),
        }
    }

    #[tokio::test]
    async fn names_and_scope_survive() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Recovery::open(Some(Store::open(folder.path()).unwrap()), 1).unwrap();
        let (r, names) = open();
        assert!(names.is_empty());
        for name in [&b"one"[..], b"two", b"one"] {
            r.enter(name, None).await.unwrap();
        }
        assert!(r.has(b"one", None) && !r.has(b"three", None));
        strike(&r, b"two").await.unwrap();
        strike(&r, b"never").await.unwrap();
        r.enter(b"four", None).await.unwrap();
        strike(&r, b"four").await.unwrap();
        r.enter(b"three", None).await.unwrap();
        let scope = r.scope.clone();
        drop(r);
        let (r, names) = open();
        assert_eq!(names, [Box::from(&b"one"[..]), Box::from(&b"three"[..])]);
        assert_eq!(r.scope, scope);
    }

    #[tokio::test]
    async fn record_restricts_reclaim_to_owner() {
        let folder = tempfile::tempdir().unwrap();
        let store = || Store::open(folder.path()).unwrap();
        let before = store();
        before.commit_blocking(vec![Change::put(Kind::NfsClient, b"old", b"")]).unwrap();
        drop(before);
        let open = || Recovery::open(Some(store()), 1).unwrap().0;
        let (one, bound) = (
            Owner { principal: 1 << 100 | 7, is_bound: false },
            Owner { principal: 8, is_bound: true },
        );
        let r = open();
        r.enter(b"one", Some(one)).await.unwrap();
        r.enter(b"two", Some(one)).await.unwrap();
        assert!(!r.has(b"two", Some(bound)) && !r.has(b"two", None));
        r.enter(b"two", Some(bound)).await.unwrap();
        drop(r);
        let r = open();
        assert_eq!((r.owner(b"one"), r.owner(b"two")), (Some(one), Some(bound)));
        assert!(r.has(b"old", None) && r.owner(b"old").is_none());
        r.enter(b"old", Some(one)).await.unwrap();
        drop(r);
        assert_eq!(open().owner(b"old"), Some(one));
        for wrong in [&[2, 0][..], &[1], &[1, 0, 5], &[1; 19]] {
            assert_eq!(Owner::parse(wrong), None);
        }
    }

    #[tokio::test]
    async fn failed_strike_can_be_repeated() {
        let disk = Disk::default();
        let (r, _) = Recovery::open(Some(disk.store().unwrap()), 1).unwrap();
        r.enter(b"one", None).await.unwrap();
        for fault in [Fault::Full, Fault::Broken] {
            disk.set(fault);
            assert!(strike(&r, b"one").await.is_err());
            assert!(r.knows(b"one") && !r.has(b"one", None), "it may be there or not");
            assert!(strike(&r, b"one").await.is_err(), "it is tried again");
        }
        disk.set(Fault::None);
        strike(&r, b"one").await.unwrap();
        assert!(!r.knows(b"one"));
        drop(r);
        let (_, names) = Recovery::open(Some(disk.store().unwrap()), 2).unwrap();
        assert!(names.is_empty());
    }

    #[tokio::test]
    async fn entries_at_once_are_all_durable() {
        let disk = Disk::default();
        let (r, _) = Recovery::open(Some(disk.store().unwrap()), 1).unwrap();
        let store = r.store.as_ref().unwrap();
        let enter = |owner| r.submit(store, b"one", Some(owner));
        let ((first, done), (second, done_too)) = (enter(None), enter(None));
        done.await.unwrap();
        r.note_entered(b"one", first);
        assert!(r.has(b"one", None), "the second changes nothing");
        done_too.await.unwrap();
        r.note_entered(b"one", second);
        assert!(r.has(b"one", None));
        // A strike, or another owner, between two entries ends the series.
        let other = Some(Owner { principal: 7, is_bound: false });
        let ((last, done), strike) = (enter(None), r.strike(b"one").unwrap());
        done.await.unwrap();
        r.note_entered(b"one", last);
        assert!(!r.has(b"one", None), "struck meanwhile");
        let ((one, _), (two, done)) = (enter(None), enter(other));
        strike.await.unwrap();
        done.await.unwrap();
        r.note_entered(b"one", one);
        assert!(!r.has(b"one", None) && !r.has(b"one", other), "the other's entry came later");
        r.note_entered(b"one", two);
        assert!(r.has(b"one", other));
    }

    #[tokio::test]
    async fn entry_during_strike_wins() {
        let disk = Disk::default();
        let (r, _) = Recovery::open(Some(disk.store().unwrap()), 1).unwrap();
        r.enter(b"one", None).await.unwrap();
        let strike = r.strike(b"one").unwrap();
        assert!(!r.has(b"one", None));
        r.enter(b"one", None).await.unwrap();
        strike.await.unwrap();
        assert!(r.has(b"one", None));
        drop(r);
        let (_, names) = Recovery::open(Some(disk.store().unwrap()), 2).unwrap();
        assert_eq!(names, [Box::from(&b"one"[..])]);
    }

    #[tokio::test]
    async fn missing_store_keeps_no_records() {
        let (r, names) = Recovery::open(None, 1).unwrap();
        assert!(names.is_empty() && r.has(b"x", None));
        r.enter(b"x", None).await.unwrap();
        assert!(r.strike(b"x").is_none() && !r.knows(b"x"));
        assert!(r.scope.starts_with(b"headgate-"));
    }
}
