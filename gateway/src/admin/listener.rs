//! Connections of the admin address: their number and their time limits.
//!
//! *Operation.* A request header must arrive within [`HEADER_SECONDS`], also each further one on a connection that is kept open. A
//! connection gets no further request after [`LIFE_SECONDS`] and is closed [`FINISH_SECONDS`] later, so a client that does not
//! read its answer holds resources no longer than that.
//!
//! Other hosts must use TLS if `tls` names readers ([`crate::tls::AdminTls`]); a handshake has as much time as a header.
//!
//! *Memory.* At most [`CONNECTIONS_MAX`] connections, [`CONNECTIONS_OF_ADDRESS_MAX`] from one address (IPv6: from one /64). At the
//! limit, a new connection evicts the oldest one without a request in work: half requests cannot keep a probe out.
//!
//! *Errors.* A refused or evicted connection is counted as the limit `admin-connections`, one whose header is late as
//! `admin-header`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use mutex::locked;
use rdma_transport::channel::host_of;
use rdma_transport::count;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::access::{ByTls, Peer};
use crate::tls::{AdminTls, Tls};

/// Open connections to the admin address.
pub const CONNECTIONS_MAX: usize = 64;
/// Open connections from one address.
pub const CONNECTIONS_OF_ADDRESS_MAX: usize = 16;
/// Seconds within which a request header must arrive.
pub const HEADER_SECONDS: u64 = 10;
/// Seconds after which a connection must finish its current request.
pub const LIFE_SECONDS: u64 = 60;
/// Seconds between that request to finish and the close.
const FINISH_SECONDS: u64 = 10;
/// Largest request header, in bytes.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Pause after the system refused a connection for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Name of the limit on connections.
const CONNECTIONS: &str = "admin-connections";
/// Name of the limit on the time of a header.
const HEADER: &str = "admin-header";

#[derive(Debug)]
struct Entry {
    host: IpAddr,
    requests: AtomicUsize,
    give_way: Notify,
}

/// The open connections, oldest first.
#[derive(Debug, Default)]
struct Table {
    open: Mutex<(u64, BTreeMap<u64, Arc<Entry>>)>,
}

/// One admitted connection; dropping it frees its entry.
#[derive(Debug)]
struct Admitted {
    table: Arc<Table>,
    id: u64,
    entry: Arc<Entry>,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Arc<Entry>>)> {
        locked(&self.open)
    }

    /// Admits one more connection, and evicts an idle one if needed. Returns `None` if the limit is met and all are busy.
    fn admit(self: &Arc<Self>, from: IpAddr) -> Option<Admitted> {
        let host = host_of(from);
        let mut open = self.lock();
        let (next, open) = &mut *open;
        let of_host = open.values().filter(|e| e.host == host).count();
        let (full, crowded) =
            (open.len() >= CONNECTIONS_MAX, of_host >= CONNECTIONS_OF_ADDRESS_MAX);
        if full || crowded {
            count::limit_met(CONNECTIONS);
            let idle = |e: &Entry| e.requests.load(Ordering::Relaxed) == 0;
            let victim = open.iter().find(|(_, e)| idle(e) && (!crowded || e.host == host));
            let id = *victim?.0;
            // Remove it from the table now; it ends as soon as its task runs.
            open.remove(&id)?.give_way.notify_one();
        }
        let entry =
            Arc::new(Entry { host, requests: AtomicUsize::new(0), give_way: Notify::new() });
        *next += 1;
        open.insert(*next, entry.clone());
        Some(Admitted { table: self.clone(), id: *next, entry })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.table.lock().1.remove(&self.id);
    }
}

/// A request in work; its connection is not evicted.
struct InWork(Arc<Entry>);

impl InWork {
    fn new(entry: &Arc<Entry>) -> Self {
        entry.requests.fetch_add(1, Ordering::Relaxed);
        Self(entry.clone())
    }
}

impl Drop for InWork {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts connections for as long as the task runs.
pub(super) async fn serve(listener: TcpListener, routes: Router, tls: Arc<Tls>) {
    let table = Arc::new(Table::default());
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                if let Some(place) = table.admit(from.ip()) {
                    tokio::spawn(connection(stream, from, routes.clone(), place, tls.admin()));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the admin address could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    routes: Router,
    place: Admitted,
    tls: Option<AdminTls>,
) {
    let Ok(local) = stream.local_addr() else { return };
    let peer = Peer::new(from, local);
    let Some(tls) = tls.filter(|_| !peer.is_here()) else {
        return converse(stream, peer, routes, place).await;
    };
    let handshake = TlsAcceptor::from(tls.server).accept(stream);
    let handshake = tokio::time::timeout(Duration::from_secs(HEADER_SECONDS), handshake);
    let stream = tokio::select! {
        () = place.entry.give_way.notified() => return,
        done = handshake => match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::info!(peer = %from, %error, "connection to the admin address without TLS; other hosts must use `https`");
                return;
            }
            Err(_) => return count::limit_met(HEADER),
        },
    };
    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
    let peer = peer.by_tls(ByTls { has_certificate, token: tls.token });
    converse(stream, peer, routes, place).await;
}

/// Answers requests until the connection ends.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Peer,
    routes: Router,
    place: Admitted,
) {
    let routes = TowerToHyperService::new(routes.layer(axum::Extension(ConnectInfo(peer))));
    let entry = place.entry.clone();
    let service = service_fn(move |request| {
        let (in_work, answer) = (InWork::new(&entry), routes.call(request));
        async move {
            let answer = answer.await;
            drop(in_work);
            answer
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(HEADER_SECONDS));
    http.max_buf_size(HEADER_BYTES_MAX);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => Some(ended),
        () = place.entry.give_way.notified() => return,
        () = tokio::time::sleep(Duration::from_secs(LIFE_SECONDS)) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            served.as_mut().graceful_shutdown();
            let finish = Duration::from_secs(FINISH_SECONDS);
            tokio::time::timeout(finish, served).await.unwrap_or(Ok(()))
        }
    };
    // Other errors mean that the client went away.
    if ended.is_err_and(|e| e.is_timeout()) {
        count::limit_met(HEADER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_with(n: usize, from: IpAddr) -> (Arc<Table>, Vec<Admitted>) {
        let table = Arc::new(Table::default());
        let places = (0..n).map(|_| table.admit(from).unwrap()).collect();
        (table, places)
    }

    #[tokio::test]
    async fn the_oldest_connection_without_a_request_gives_way_to_a_new_one() {
        let from: IpAddr = [192, 0, 2, 1].into();
        let (table, places) = table_with(CONNECTIONS_OF_ADDRESS_MAX, from);
        let busy = InWork::new(&places[0].entry);
        let newest = table.admit(from).unwrap();
        // `Notify` stores the wake-up, so this returns at once.
        places[1].entry.give_way.notified().await;
        assert_eq!(table.lock().1.len(), CONNECTIONS_OF_ADDRESS_MAX);
        assert!(table.lock().1.contains_key(&places[0].id), "it answers a request");
        assert!(table.admit([192, 0, 2, 2].into()).is_some(), "another address is not concerned");
        drop((places, newest, busy));
        assert!(table.lock().1.is_empty());
    }

    #[test]
    fn nobody_gives_way_while_all_answer_and_a_network_of_version_6_counts_as_one() {
        let from: IpAddr = "2001:db8::1".parse().unwrap();
        let (table, places) = table_with(CONNECTIONS_OF_ADDRESS_MAX, from);
        let busy: Vec<InWork> = places.iter().map(|p| InWork::new(&p.entry)).collect();
        assert!(table.admit("2001:db8::ffff:1".parse().unwrap()).is_none(), "the same /64");
        assert!(table.admit("2001:db8:0:1::1".parse().unwrap()).is_some());
        drop(busy);
        assert!(table.admit(from).is_some());
    }

    #[test]
    fn there_are_no_more_than_that_from_all_addresses() {
        let table = Arc::new(Table::default());
        let from = |n: u8| IpAddr::from([192, 0, 2, n]);
        let places: Vec<Admitted> = (0..64).map(|n| table.admit(from(n)).unwrap()).collect();
        assert_eq!(places.len(), CONNECTIONS_MAX);
        let _one_more = table.admit(from(64)).unwrap();
        assert_eq!(table.lock().1.len(), CONNECTIONS_MAX);
        assert!(!table.lock().1.contains_key(&places[0].id), "the oldest gave way");
    }
}
