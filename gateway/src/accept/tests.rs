//! Connections that a device has no room for.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use rdma_transport::loopback::Loopback;
use rdma_transport::verbs::{BoxFuture, ConnectParams, Provider};
use rustix::net;

use super::*;
use crate::rdma::listeners::tests::{nfs, shared};

const WHY: &str = "RDMA device mlx5_0 gives no further queue pair";

/// An incoming connection for which the device has no queue pair.
struct TooMany(SocketAddr);

impl Incoming for TooMany {
    fn peer(&self) -> SocketAddr {
        self.0
    }
    fn request(&mut self) -> BoxFuture<'_, io::Result<Bytes>> {
        Box::pin(async { Ok(Bytes::new()) })
    }
    fn accept(self: Box<Self>, _: ConnectParams) -> BoxFuture<'static, io::Result<Connected>> {
        Box::pin(async { Err(io::Error::new(io::ErrorKind::QuotaExceeded, WHY)) })
    }
    fn reject(self: Box<Self>, _: Bytes) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

/// A listener that returns the [`TooMany`] connection first.
struct Crowded(Option<TooMany>, Box<dyn Listener>);

impl Listener for Crowded {
    fn local_addr(&self) -> SocketAddr {
        self.1.local_addr()
    }
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        match self.0.take() {
            Some(first) => Box::pin(async { Ok(Box::new(first) as Box<dyn Incoming>) }),
            None => self.1.accept(),
        }
    }
}

#[tokio::test]
async fn a_device_that_is_full_is_told_of_and_the_next_client_is_served() {
    let met = || count::limits_met().iter().any(|(limit, n)| *limit == DEVICE_FULL && *n > 0);
    assert!(!met());
    let shared = shared();
    let peer: SocketAddr = "127.0.0.7:1023".parse().unwrap();
    let inner = Loopback.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let at = inner.local_addr();
    let way = Way { provider: "loopback", device: None };
    let crowded = Box::new(Crowded(Some(TooMany(peer)), inner));
    let served = tokio::spawn(rdma(way, crowded, shared.clone(), ProtocolServer::Nfs(nfs())));
    let next = Loopback.connect(at, RdmaChannel::accept_params()).await;
    assert!(next.is_ok());
    while shared.attempts.failure(Protocol::Nfs, peer.ip()).is_none() || !met() {
        tokio::task::yield_now().await;
    }
    assert_eq!(shared.attempts.failure(Protocol::Nfs, peer.ip()), Some(WHY.into()));
    served.abort();
}

#[tokio::test]
async fn a_user_of_this_host_who_cannot_be_found_is_not_believed() {
    let (shared, front) = (shared(), ProtocolServer::Nfs(nfs()));
    let way = Way { provider: Iwarp::NAME, device: None };
    let (peer, local) = ("127.0.0.8:1".parse().unwrap(), "127.0.0.8:2".parse().unwrap());
    assert!(front.is_local_user(&way, peer, local, &shared.attempts).await.unwrap());
    let why = shared.attempts.failure(Protocol::Nfs, peer.ip()).unwrap();
    assert!(why.contains("does not list this connection"), "{why}");
}

#[tokio::test]
async fn an_address_that_this_host_has_just_gained_is_its_own() {
    let ports = SourcePorts::default();
    let (peer, local) = ("192.0.2.9:1".parse().unwrap(), "192.0.2.1:2".parse().unwrap());
    let seen = |now| user_here(&ports, peer, local, std::future::ready(now));
    assert_eq!(seen(Ok(false)).await.unwrap(), None);
    let looked_for = seen(Ok(true)).await.unwrap_err();
    assert_eq!(looked_for.kind(), io::ErrorKind::NotFound);
    let unreadable = seen(Err(io::ErrorKind::PermissionDenied.into())).await.unwrap_err();
    assert_eq!(unreadable.kind(), io::ErrorKind::PermissionDenied);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_had_time_to_look_at_ends() {
    let shared = shared();
    let mut listener = Loopback.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let at = listener.local_addr();
    let client =
        tokio::spawn(async move { Loopback.connect(at, RdmaChannel::accept_params()).await });
    let incoming = listener.accept().await.unwrap();
    let peer = canonical(incoming.peer());
    let place = shared.admission.admit(peer).unwrap();
    // The loopback address belongs to this host, so the owner of the connection is looked up.
    let turns = local_user::IWARP.all_turns().await;
    let way = Way { provider: Iwarp::NAME, device: None };
    let channel = set_up(way, incoming, &shared, &ProtocolServer::Nfs(nfs()), &place).await;
    drop(turns);
    assert!(channel.is_none());
    assert!(client.await.unwrap().is_ok(), "it had been connected");
    let limit = "rdma-local-user";
    assert!(count::limits_met().iter().any(|(name, n)| *name == limit && *n > 0));
    let why = shared.attempts.failure(Protocol::Nfs, peer.ip()).unwrap();
    assert!(why.contains(limit), "{why}");
    assert!(
        refused::list()
            .iter()
            .any(|row| row.refused.rule == limit && row.refused.peer == peer.ip())
    );
}

/// Connects as this user, from a separate thread.
fn connect_as(uid: u32, from: IpAddr, to: SocketAddr) -> OwnedFd {
    let work = move || {
        let uid = rustix::fs::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddr::new(from, 0)).unwrap();
        net::connect(&socket, &to).unwrap();
        socket
    };
    std::thread::spawn(work).join().unwrap()
}

#[tokio::test]
async fn a_user_of_this_host_is_one_from_each_of_its_addresses() {
    let of_interface = |own: &vfs::namespace::Cidr| {
        own.bits == 32 && own.addr.is_ipv4() && !own.addr.is_loopback()
    };
    let from = networks::own().unwrap().into_iter().find(of_interface);
    // Only root can act as another user.
    let Some(from) = from.filter(|_| rustix::process::geteuid().is_root()) else { return };
    let (shared, front) = (shared(), ProtocolServer::Nfs(nfs()));
    let way = Way { provider: Iwarp::NAME, device: None };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    // This server's list of addresses is empty.
    for (user, is_local_user) in [(0, false), (1234, true)] {
        let _open = connect_as(user, from.addr, to);
        let (_open, peer) = listener.accept().unwrap();
        let seen = front.is_local_user(&way, peer, to, &shared.attempts).await.unwrap();
        assert_eq!(seen, is_local_user, "{user}");
        assert_eq!(shared.attempts.failure(Protocol::Nfs, peer.ip()), None);
    }
}
