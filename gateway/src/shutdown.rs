//! The connections of the daemon, and their end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mutex::locked;
use rdma_transport::channel::{Facts, Handle, Info};
use tokio::sync::{Notify, watch};

use crate::admin::protocol::{Protocol, transport_name};
use crate::admin::snapshot::{Around, ConnectionStatus, Moved};
use crate::attempts::Attempts;

/// The open connections, and the totals of the closed ones.
#[derive(Debug)]
pub struct Connections {
    open: Mutex<HashMap<u64, Entry>>,
    /// Traffic of ended connections and number of all connections, by protocol and transport.
    past: Mutex<BTreeMap<Way, (u64, Moved)>>,
    next: AtomicU64,
    gone: Notify,
    /// Notified when a connection is added or removed.
    changed: watch::Sender<()>,
    start: Instant,
    stopping: AtomicBool,
}

/// A protocol and its transport.
type Way = (Protocol, &'static str);

#[derive(Clone, Debug)]
struct Entry {
    protocol: Protocol,
    info: Arc<Info>,
    handle: Handle,
    since: Instant,
}

/// Owner of a connection: the identity that its client sent, or its address.
#[derive(PartialEq, Eq, Hash)]
enum Client {
    Told(String),
    At(std::net::IpAddr),
}

impl Entry {
    fn client(&self) -> Client {
        let told = self.info.facts.get(Facts::CLIENT_ID);
        told.map_or_else(|| Client::At(self.info.peer.ip()), Client::Told)
    }

    fn way(&self) -> Way {
        (self.protocol, transport_name(self.info.transport))
    }
}

/// Guard of an open connection; dropping it removes the connection from the count, however its task ends.
#[derive(Debug)]
pub struct Open {
    connections: Arc<Connections>,
    id: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.end(self.id);
    }
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            past: Mutex::default(),
            next: AtomicU64::new(0),
            gone: Notify::new(),
            changed: watch::Sender::new(()),
            start: Instant::now(),
            stopping: AtomicBool::new(false),
        }
    }
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        locked(&self.open)
    }

    fn past(&self) -> MutexGuard<'_, BTreeMap<Way, (u64, Moved)>> {
        locked(&self.past)
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Returns the addresses of the connected clients.
    pub fn peers(&self) -> HashSet<IpAddr> {
        self.lock().values().map(|e| e.info.peer.ip().to_canonical()).collect()
    }

    /// Returns a receiver that is notified of each connection added or removed.
    pub(crate) fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Calls `end` for each connection and returns its results.
    pub(crate) fn each<T>(&self, end: impl Fn(&Info) -> Option<T>) -> Vec<T> {
        self.lock().values().filter_map(|entry| end(&entry.info)).collect()
    }

    /// Adds a connection.
    pub fn add(self: &Arc<Self>, protocol: Protocol, info: Arc<Info>, handle: Handle) -> Open {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { protocol, info, handle, since: Instant::now() };
        self.past().entry(entry.way()).or_default().0 += 1;
        let handle = entry.handle.clone();
        self.lock().insert(id, entry);
        self.changed.send_replace(());
        // A connection that was set up after [`Self::drain`] began was not included in its request.
        if !self.is_serving() {
            tokio::spawn(async move { handle.shutdown().await });
        }
        Open { connections: self.clone(), id }
    }

    fn end(&self, id: u64) {
        if let Some(entry) = self.lock().remove(&id) {
            let mut past = self.past();
            let total = &mut past.entry(entry.way()).or_default().1;
            *total = total.plus(Moved::of(&entry.info.traffic));
        }
        self.gone.notify_waiters();
        self.changed.send_replace(());
    }

    /// Returns true until [`Self::drain`] is called.
    pub fn is_serving(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }

    /// Returns the seconds since the start.
    pub fn uptime_seconds(&self) -> u64 {
        self.start.elapsed().as_secs()
    }

    /// Returns the open connections, oldest first. `rdma_ports` returns the ports on which clients of a protocol dial it over
    /// RDMA.
    pub fn list(
        &self,
        rdma_ports: impl Fn(Protocol) -> Vec<u16>,
        attempts: &Attempts,
    ) -> Vec<ConnectionStatus> {
        // Clone the entries, which is cheap, so that the lock is not held while their status is described.
        let mut all: Vec<(u64, Entry)> =
            self.lock().iter().map(|(id, e)| (*id, e.clone())).collect();
        all.sort_by_key(|(id, _)| *id);
        let mut on_rdma: HashMap<(Protocol, Client), usize> = HashMap::new();
        for (_, e) in all.iter().filter(|(_, e)| e.info.transport.is_rdma()) {
            *on_rdma.entry((e.protocol, e.client())).or_default() += 1;
        }
        let status = |(id, e): &(u64, Entry)| {
            let around = Around {
                id: *id,
                age_seconds: e.since.elapsed().as_secs(),
                rdma_ports: rdma_ports(e.protocol),
                others_on_rdma: on_rdma.get(&(e.protocol, e.client())).copied().unwrap_or(0),
                failed: attempts.failure(e.protocol, e.info.peer.ip()),
            };
            ConnectionStatus::new(e.protocol, &e.info, around)
        };
        all.iter().map(status).collect()
    }

    /// Returns the number of connections so far and their traffic, by protocol and transport.
    pub fn totals(&self) -> Vec<(String, u64, Moved)> {
        // Holds both locks, so that a connection that ends meanwhile is counted once.
        let open = self.lock();
        let mut totals = self.past().clone();
        for entry in open.values() {
            let total = &mut totals.entry(entry.way()).or_default().1;
            *total = total.plus(Moved::of(&entry.info.traffic));
        }
        let named =
            |((p, t), (opened, moved)): (Way, _)| (format!("{}/{t}", p.name()), opened, moved);
        totals.into_iter().map(named).collect()
    }

    /// Tells the connections for which `which` returns true to answer their requests in work and to close. Does not wait for
    /// them.
    pub fn dismiss(&self, which: impl Fn(Protocol, &Info) -> bool) -> Dismissed {
        let open = self.lock();
        let chosen = open.iter().filter(|(_, e)| which(e.protocol, &e.info));
        let (ids, handles): (_, Vec<Handle>) =
            chosen.map(|(id, e)| (*id, e.handle.clone())).unzip();
        drop(open);
        for handle in handles {
            // A separate task for each: a connection whose command queue is full delays only its own.
            tokio::spawn(async move { handle.shutdown().await });
        }
        Dismissed(ids)
    }

    /// Waits until these connections are closed. Returns false if some are still open after `within`.
    pub async fn wait_for(&self, Dismissed(ids): &Dismissed, within: Duration) -> bool {
        self.gone(within, |open| !ids.iter().any(|id| open.contains_key(id))).await
    }

    /// Tells every connection to answer its requests in work and to close, and waits until all are closed. Returns false if some
    /// are still open after `within`.
    pub async fn drain(&self, within: Duration) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        self.dismiss(|_, _| true);
        self.gone(within, HashMap::is_empty).await
    }

    async fn gone(
        &self,
        within: Duration,
        is_so: impl Fn(&HashMap<u64, Entry>) -> bool + Send,
    ) -> bool {
        let all_gone = async {
            loop {
                let gone = self.gone.notified();
                tokio::pin!(gone);
                // Registers before it checks, so that no end is missed.
                gone.as_mut().enable();
                if is_so(&self.lock()) {
                    return;
                }
                gone.await;
            }
        };
        tokio::time::timeout(within, all_gone).await.is_ok()
    }
}

/// Connections that must close.
#[derive(Debug, Default)]
pub struct Dismissed(Vec<u64>);

impl Dismissed {
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> Arc<Info> {
        let at = ([192, 0, 2, 1], 2049).into();
        let pool = iobuf::Pool::new(iobuf::PoolLimits { buffers_max: [1, 1, 1] });
        Arc::new(Info::new(at, at, rdma_transport::channel::Transport::Tcp, pool))
    }

    #[test]
    fn what_a_connection_moved_is_kept_when_it_ends() {
        let connections = Arc::new(Connections::default());
        let (a, b) = (info(), info());
        let first = connections.add(Protocol::Nfs, a.clone(), Handle::detached());
        let _second = connections.add(Protocol::Nfs, b.clone(), Handle::detached());
        a.traffic.requests.store(3, Ordering::Relaxed);
        b.traffic.requests.store(4, Ordering::Relaxed);
        let total = || connections.totals()[0].clone();
        assert_eq!((total().0.as_str(), total().1, total().2.requests), ("nfs/tcp", 2, 7));
        drop(first);
        assert_eq!((total().1, total().2.requests), (2, 7));
        assert_eq!(connections.list(|_| Vec::new(), &Attempts::default()).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_drain_ends_with_the_last_connection_or_its_time() {
        let within = Duration::from_secs(10);
        let connections = Arc::new(Connections::default());
        assert!(connections.drain(within).await);
        let add = || connections.add(Protocol::Nfs, info(), Handle::detached());
        let open = add();
        let drain = tokio::spawn({
            let connections = connections.clone();
            async move { connections.drain(within).await }
        });
        tokio::task::yield_now().await;
        assert!(!drain.is_finished());
        drop(open);
        assert!(drain.await.unwrap());
        let _stays = add();
        assert!(!connections.drain(within).await);
        assert_eq!(connections.count(), 1);
    }
}
