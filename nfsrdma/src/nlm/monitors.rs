//! The durable list of hosts to notify after a restart. In the store, the key is the host's address and name, and the value is the
//! server address that the host uses.

use std::io;
use std::net::IpAddr;

use recovery::{Change, Kind, Record, Store};

use super::hosts::Key;

/// Separates address and name in a key; no address contains it.
const BETWEEN: u8 = b' ';

/// A host to notify after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Monitored {
    pub(crate) key: Key,
    /// The server address that the host uses.
    pub(crate) local: IpAddr,
}

/// The list. The list is empty if no store is configured, and no host is notified after a restart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Monitors(Option<Store>);

impl Monitors {
    pub(crate) fn new(store: Option<Store>) -> Self {
        Self(store)
    }

    /// Reads the list that the previous run left. Reads the disk.
    pub(crate) fn all(&self) -> io::Result<Vec<Monitored>> {
        let Some(store) = &self.0 else { return Ok(Vec::new()) };
        let records = store.read(Kind::NlmMonitor)?;
        let read = |record: &Record| {
            decode(record)
                .ok_or_else(|| io::Error::other("a record of a host with NFSv3 locks is damaged"))
        };
        records.iter().map(read).collect()
    }

    /// Adds a host durably.
    pub(crate) async fn enter(&self, host: &Monitored) -> io::Result<()> {
        let Some(store) = &self.0 else { return Ok(()) };
        let (key, value) = encode(host);
        Ok(store.submit(vec![Change::Put(Kind::NlmMonitor, key, value)]).await?)
    }

    /// Removes a host durably.
    pub(crate) async fn strike(&self, key: &Key) -> io::Result<()> {
        let Some(store) = &self.0 else { return Ok(()) };
        Ok(store.submit(vec![Change::Remove(Kind::NlmMonitor, record_key(key))]).await?)
    }
}

fn record_key(key: &Key) -> Box<[u8]> {
    let mut out = key.ip.to_string().into_bytes();
    out.push(BETWEEN);
    out.extend_from_slice(&key.name);
    out.into()
}

fn encode(host: &Monitored) -> Record {
    (record_key(&host.key), host.local.to_string().into_bytes().into())
}

fn decode((key, value): &Record) -> Option<Monitored> {
    let at = key.iter().position(|b| *b == BETWEEN)?;
    let address = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<IpAddr>().ok();
    let key = Key { ip: address(&key[..at])?, name: key[at + 1..].into() };
    Some(Monitored { key, local: address(value)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &[u8], ip: &str) -> Monitored {
        let key = Key { name: name.into(), ip: ip.parse().unwrap() };
        Monitored { key, local: "10.77.0.1".parse().unwrap() }
    }

    #[tokio::test]
    async fn host_list_survives_reopen() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Monitors::new(Some(Store::open(dir.path()).unwrap()));
        let m = open();
        assert!(m.all().unwrap().is_empty());
        let (a, b) = (host(b"a b", "10.77.0.2"), host(b"\xff ", "fe80::2"));
        m.enter(&a).await.unwrap();
        m.enter(&b).await.unwrap();
        let moved = Monitored { local: "10.77.0.3".parse().unwrap(), ..a.clone() };
        m.enter(&moved).await.unwrap();
        drop(m);
        let m = open();
        assert_eq!(m.all().unwrap(), [moved, b.clone()]);
        m.strike(&a.key).await.unwrap();
        m.strike(&a.key).await.unwrap();
        assert_eq!(m.all().unwrap(), [b]);
    }

    #[tokio::test]
    async fn damaged_record_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        for (key, value) in [("10.0.0.1", "10.0.0.2"), ("x name", "10.0.0.2"), ("10.0.0.1 n", "")] {
            let put = Change::put(Kind::NlmMonitor, key.as_bytes(), value.as_bytes());
            store.commit_blocking(vec![put]).unwrap();
            assert!(Monitors::new(Some(store.clone())).all().is_err(), "{key}");
            let remove = Change::remove(Kind::NlmMonitor, key.as_bytes());
            store.commit_blocking(vec![remove]).unwrap();
        }
        assert!(Monitors::default().all().unwrap().is_empty());
    }
}
