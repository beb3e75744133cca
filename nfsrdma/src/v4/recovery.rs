//! What must survive a restart: the names of the clients that hold something, and the name of this server.
//!
//! *Operation.* Records of the store. A client is entered before it may take anything new and struck out before others may take
//! what it held (RFC 8881 section 8.4.2.1).
//!
//! *Memory.* The set of names; a client brings at most [`super::limits::CLIENTS_MAX`] of them.
//!
//! *Errors.* A record that cannot be written is the caller's error.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use recovery::{Change, Kind, Store};

const SCOPE: &[u8] = b"nfs4-scope";

/// The durable set of clients; without a store it is only in memory and nothing survives.
#[derive(Debug)]
pub(super) struct Recovery {
    store: Option<Store>,
    /// Names that are durable.
    names: Mutex<HashSet<Box<[u8]>>>,
    /// Names this server through restarts (`server_scope`, `so_major_id`).
    pub(super) scope: Vec<u8>,
}

impl Recovery {
    /// Opens the set, and gives the names that it held. Blocks on the disk.
    ///
    /// `run` is different in each run of the server: without a store it names the server.
    pub(super) fn open(store: Option<Store>, run: u64) -> io::Result<(Self, Vec<Box<[u8]>>)> {
        let Some(store) = store else {
            let scope = format!("headgate-{run:016x}").into_bytes();
            return Ok((Self { store: None, names: Mutex::default(), scope }, Vec::new()));
        };
        let names: Vec<_> =
            store.read(Kind::NfsClient)?.into_iter().map(|(name, _)| name).collect();
        let scope = scope(&store)?;
        let known = names.iter().cloned().collect();
        Ok((Self { store: Some(store), names: Mutex::new(known), scope }, names))
    }

    fn names(&self) -> MutexGuard<'_, HashSet<Box<[u8]>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a client, durably.
    pub(super) async fn enter(&self, name: &[u8]) -> io::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        if self.has(name) {
            return Ok(());
        }
        store.submit(vec![Change::put(Kind::NfsClient, name, b"")]).await?;
        self.names().insert(name.into());
        Ok(())
    }

    /// The client is in the set, so entering it needs no disk.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.store.is_none() || self.names().contains(name)
    }

    /// Strikes a client out, durably.
    pub(super) async fn strike(&self, name: &[u8]) -> io::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        if self.names().remove(name) {
            store.submit(vec![Change::remove(Kind::NfsClient, name)]).await?;
        }
        Ok(())
    }

    /// As [`Recovery::strike`]. Blocks on the disk.
    pub(super) fn strike_blocking(&self, name: &[u8]) -> io::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        if self.names().remove(name) {
            store.commit_blocking(vec![Change::remove(Kind::NfsClient, name)])?;
        }
        Ok(())
    }
}

/// The name of the server, made at its first start.
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
    use super::*;

    #[tokio::test]
    async fn names_and_scope_survive() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Recovery::open(Some(Store::open(folder.path()).unwrap()), 1).unwrap();
        let (r, names) = open();
        assert!(names.is_empty());
        for name in [&b"one"[..], b"two", b"one"] {
            r.enter(name).await.unwrap();
        }
        assert!(r.has(b"one") && !r.has(b"three"));
        r.strike(b"two").await.unwrap();
        r.strike(b"never").await.unwrap();
        r.enter(b"four").await.unwrap();
        r.strike_blocking(b"four").unwrap();
        r.enter(b"three").await.unwrap();
        let scope = r.scope.clone();
        drop(r);
        let (r, names) = open();
        assert_eq!(names, [Box::from(&b"one"[..]), Box::from(&b"three"[..])]);
        assert_eq!(r.scope, scope);
    }

    #[tokio::test]
    async fn without_a_store_nothing_is_kept_and_nothing_fails() {
        let (r, names) = Recovery::open(None, 1).unwrap();
        assert!(names.is_empty() && r.has(b"x"));
        r.enter(b"x").await.unwrap();
        r.strike(b"x").await.unwrap();
        r.strike_blocking(b"x").unwrap();
        assert!(r.scope.starts_with(b"headgate-"));
    }
}
