//! Services that NFS version 3 clients need in addition to the NFS port: MOUNT, NLM and NSM over UDP on the same port number,
//! and a port mapper on port 111 that returns that number.
//!
//! *Operation.* A reply leaves from the address to which the call was sent, also from an address that the host gets later
//! ([`DatagramSocket`]). On port 111 either the host's rpcbind answers, after a registration ([`register`]), or the gateway
//! itself.
//!
//! *Memory.* At most [`DATAGRAMS_MAX`] datagrams are in work, [`OF_ADDRESS_MAX`] of one address, and [`UNKNOWN_MAX`] wait for
//! the name of their sender. Further ones are dropped and counted; clients send them again.
//!
//! *Errors.* Without an rpcbind, or if another program is registered there, the gateway serves anyway and logs the
//! consequences. An rpcbind that starts later is registered with then ([`RPCBIND_COMES_MAX`]).

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::in_time::{self, LOOK_MAX};
use config::{Portmap, Settings};
use iobuf::Buf;
use nfsrdma::portmap::register::{self, Registered};
use nfsrdma::portmap::{Mapping, PORT};
use nfsrdma::served_programs::ServedPrograms;
use nfsrdma::server::Server;
use rdma_transport::channel::{Info, Transport, canonical, host_of};
use rdma_transport::limits::TURN_MAX;
use rdma_transport::parts::{Limit, Part, Parts};
use rdma_transport::{count, lease, turn};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::accept::Shared;
use crate::client_names::Why;
use crate::datagram_socket::{self, DatagramSocket, Received};
use crate::listen::addresses;
use crate::listeners::{Served, Service};
use crate::port;

/// Datagrams in work.
const DATAGRAMS_MAX: usize = 256;
/// Limit for datagrams beyond [`DATAGRAMS_MAX`]; counted like a rule, although no protocol has it.
pub(crate) const DATAGRAMS_IN_WORK: &str = "datagrams-in-work";
/// Datagrams that wait for a look-up of the sender's name. Source addresses can be forged, and forged ones must not use up the
/// datagrams of known clients.
const UNKNOWN_MAX: usize = 64;
/// Maximum of [`UNKNOWN_MAX`] for one address.
const UNKNOWN_OF_ADDRESS_MAX: usize = UNKNOWN_MAX / 4;
/// Name of the limit for datagrams beyond these two.
pub(crate) const DATAGRAMS_UNKNOWN: &str = "datagrams-of-unknown";
/// Datagrams of one address in work.
const OF_ADDRESS_MAX: usize = DATAGRAMS_MAX / 4;
/// Name of the limit for datagrams beyond [`OF_ADDRESS_MAX`].
pub(crate) const DATAGRAMS_OF_ADDRESS: &str = "datagrams-of-address";
/// Maximum size in bytes of a call: an NLM call with all its strings at their maximum is smaller.
const CALL_MAX: usize = 8800;
/// Maximum size in bytes of a reply (RFC 768, without the headers of UDP and IP).
const REPLY_MAX: usize = 65_507;

/// Treatment of port 111, and the reason if the gateway chose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Never [`Portmap::Auto`].
    pub(crate) how: Portmap,
    /// A part of a sentence.
    pub(crate) why: Option<String>,
}

/// Resolves `auto` for this host now. Opens port 111 and closes it at once to see if it is free.
pub(crate) fn choose(settings: &Settings) -> Chosen {
    if settings.portmap != Portmap::Auto {
        return Chosen { how: settings.portmap, why: None };
    }
    let chosen = |how, why: &str| Chosen { how, why: Some(why.to_owned()) };
    if !settings.by_nfs() {
        return chosen(Portmap::Off, "no share is served over NFS");
    }
    // A connect to a socket whose backlog is full blocks until its owner accepts.
    let socket = Path::new(register::SOCKET);
    let answers = in_time::ask(socket, LOOK_MAX, || UnixStream::connect(register::SOCKET).is_ok());
    if answers == Ok(true) {
        return chosen(Portmap::Register, "this host's rpcbind answers there");
    }
    match tried(settings) {
        Ok(()) => chosen(Portmap::Own, "no rpcbind runs, and the gateway answers there itself"),
        Err((at, e)) => {
            let why = port::refused("no rpcbind runs", at, &e, port::PORTMAP_OPTION);
            Chosen { how: Portmap::Register, why: Some(why) }
        }
    }
}

/// Checks that port 111 is free for TCP and UDP.
fn tried(settings: &Settings) -> Result<(), (SocketAddr, io::Error)> {
    for at in addresses(&settings.bind, PORT) {
        let four = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), PORT);
        let both = |at: SocketAddr| {
            let tried = std::net::TcpListener::bind(at).and_then(|_| std::net::UdpSocket::bind(at));
            match tried {
                // The address may be added later, such as those of a cluster's service: no other program can have its port.
                Err(e)
                    if e.kind() == io::ErrorKind::AddrNotAvailable && !at.ip().is_unspecified() =>
                {
                    Ok(())
                }
                tried => tried.map(drop),
            }
        };
        let other =
            |e: io::Error| match settings.bind.is_empty() && e.kind() != io::ErrorKind::AddrInUse {
                // A host without IPv6.
                true => both(four),
                false => Err(e),
            };
        both(at).or_else(other).map_err(|e| (at, e))?;
    }
    Ok(())
}

/// Registrations with the host's rpcbind, which must be removed later.
#[derive(Debug, Default)]
pub(crate) struct Entered(Vec<(Mapping, bool)>);

impl Entered {
    /// Removes the registrations. An rpcbind that ended has already lost them.
    pub(crate) async fn take_back(self) {
        if !self.0.is_empty()
            && let Err(error) = register::unregister(Path::new(register::SOCKET), &self.0).await
        {
            tracing::debug!(%error, "rpcbind still lists this gateway: its entries could not be removed");
        }
    }
}

/// Time for which the gateway looks for an rpcbind that starts after it. Later, the next reload or start registers.
const RPCBIND_COMES_MAX: Duration = Duration::from_secs(600);
/// Longest pause between two looks.
const BETWEEN_LOOKS_MAX: Duration = Duration::from_secs(30);

/// Registers with an rpcbind that was not yet running.
#[derive(Debug)]
struct Later {
    /// Dropping it ends the wait.
    stop: oneshot::Sender<()>,
    task: JoinHandle<Entered>,
}

impl Later {
    fn begin(nfs: &Arc<Server>, six: bool) -> Self {
        let (stop, stopped) = oneshot::channel();
        let nfs = nfs.clone();
        let task = tokio::spawn(async move {
            let found = come(stopped, || tell(&nfs, six)).await;
            found.map_or(Entered::default(), say)
        });
        Self { stop, task }
    }

    /// Ends the wait and returns the registrations. Returns at once, or when a registration in progress has finished.
    async fn end(self) -> Entered {
        drop(self.stop);
        self.task.await.unwrap_or_default()
    }
}

/// Retries until an attempt succeeds, the task is stopped, or the time is over.
async fn come<T, F: Future<Output = io::Result<T>>>(
    mut stopped: oneshot::Receiver<()>,
    mut attempt: impl FnMut() -> F,
) -> Option<T> {
    let until = Instant::now() + RPCBIND_COMES_MAX;
    let mut pause = Duration::from_secs(1);
    while Instant::now() < until {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = &mut stopped => return None,
        }
        if let Ok(done) = attempt().await {
            return Some(done);
        }
        pause = (pause * 2).min(BETWEEN_LOOKS_MAX);
    }
    tracing::warn!(
        waited_s = RPCBIND_COMES_MAX.as_secs(),
        "no rpcbind has started; one that starts later learns of NFSv3 when the gateway starts again"
    );
    None
}

/// The UDP sockets, and the registrations with the host's rpcbind.
#[derive(Debug)]
pub(crate) struct Mapper {
    /// Addresses at which NFS listens over TCP, which the UDP sockets follow.
    at: Vec<SocketAddr>,
    tasks: JoinSet<()>,
    entered: Entered,
    later: Option<Later>,
}

impl Mapper {
    /// Moves the sockets to the addresses at which NFS listens now. An error leaves them unchanged.
    pub(crate) async fn follow(
        &mut self,
        settings: &Settings,
        shared: &Arc<Shared>,
        nfs: &Arc<Server>,
        served: &Served,
    ) -> Result<(), String> {
        if self.at != served.at(Service::Nfs) {
            // The new sockets are open together with the old ones until these are closed.
            let next = start(settings, shared, nfs, served).await?;
            let mut before = std::mem::replace(self, next);
            before.tasks.shutdown().await;
            if let Some(later) = before.later {
                later.end().await;
            }
        }
        Ok(())
    }

    /// Closes the sockets and removes the registrations.
    pub(crate) async fn close(&mut self) {
        self.tasks.shutdown().await;
        std::mem::take(&mut self.entered).take_back().await;
        if let Some(later) = self.later.take() {
            later.end().await.take_back().await;
        }
    }
}

/// Opens the sockets and registers, at the addresses where NFS listens over TCP.
pub(crate) async fn start(
    settings: &Settings,
    shared: &Arc<Shared>,
    nfs: &Arc<Server>,
    served: &Served,
) -> Result<Mapper, String> {
    let (at, mut tasks) = (served.at(Service::Nfs), JoinSet::new());
    let Some(first) = at.first() else {
        return Ok(Mapper { at, tasks, entered: Entered::default(), later: None });
    };
    nfs.ports().set_tcp(first.port());
    let refused = |(at, e)| port::refused("NFS (datagrams)", at, &e, "--nfs-port");
    for socket in sockets(settings, first.port()).map_err(refused)? {
        spawn(&mut tasks, socket, shared, nfs, ServedPrograms::Datagrams);
    }
    nfs.ports().set_udp(first.port());
    let six = at.iter().any(SocketAddr::is_ipv6);
    let entered = match settings.portmap {
        Portmap::Off => Some(Entered::default()),
        Portmap::Own => {
            let refused = |(at, e)| port::refused("port mapper", at, &e, port::PORTMAP_OPTION);
            for socket in sockets(settings, PORT).map_err(refused)? {
                spawn(&mut tasks, socket, shared, nfs, ServedPrograms::Portmap);
            }
            nfs.ports().set_mapper(PORT);
            Some(Entered::default())
        }
        Portmap::Register | Portmap::Auto => enter(nfs, six).await,
    };
    let later = entered.is_none().then(|| Later::begin(nfs, six));
    Ok(Mapper { at, tasks, entered: entered.unwrap_or_default(), later })
}

async fn tell(nfs: &Server, six: bool) -> io::Result<Registered> {
    register::register(Path::new(register::SOCKET), &nfs.ports().served(), six).await
}

/// Registers with the host's rpcbind; `None` if there is none.
async fn enter(nfs: &Server, six: bool) -> Option<Entered> {
    match tell(nfs, six).await {
        Ok(done) => Some(say(done)),
        Err(error) => {
            tracing::info!(
                %error,
                wait_s = RPCBIND_COMES_MAX.as_secs(),
                "NFSv3 is not registered with an rpcbind yet: clients mount with `nolock`; for locks start rpcbind, or give \
                 --portmap own"
            );
            None
        }
    }
}

/// Logs the result of a registration.
fn say(done: Registered) -> Entered {
    for line in &done.taken {
        tracing::warn!(
            "{line}, says this host's rpcbind, and NFSv3 clients that ask it will use that program; stop it, or let them mount \
             with `nolock`"
        );
    }
    tracing::info!(entries = done.entered.len(), "NFSv3 is registered with this host's rpcbind");
    Entered(done.entered)
}

/// Opens a socket for each address.
fn sockets(settings: &Settings, port: u16) -> Result<Vec<DatagramSocket>, (SocketAddr, io::Error)> {
    let mut all = Vec::new();
    for at in addresses(&settings.bind, port) {
        match bind(at) {
            Ok(socket) => all.push(socket),
            // A host without IPv6, as for TCP.
            Err(_) if settings.bind.is_empty() => {
                let four = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), port);
                all.push(bind(four).map_err(|e| (four, e))?);
            }
            Err(e) => return Err((at, e)),
        }
    }
    Ok(all)
}

fn bind(at: SocketAddr) -> io::Result<DatagramSocket> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    // After a change of the configuration the new socket is opened before the old one is closed.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    rdma_transport::tcp::before_bind(&socket, at)?;
    socket.bind(&at.into())?;
    DatagramSocket::new(UdpSocket::from_std(socket.into())?)
}

fn spawn(
    tasks: &mut JoinSet<()>,
    socket: DatagramSocket,
    shared: &Arc<Shared>,
    nfs: &Arc<Server>,
    offer: ServedPrograms,
) {
    tasks.spawn(datagrams(Arc::new(socket), shared.clone(), nfs.clone(), offer));
}

/// Limits on datagrams in work.
#[derive(Clone)]
struct Places {
    known: Arc<Parts>,
    unknown: Arc<Parts>,
}

impl Default for Places {
    fn default() -> Self {
        let of_address = |most| Limit::new(DATAGRAMS_OF_ADDRESS, most);
        let known = [Limit::new(DATAGRAMS_IN_WORK, DATAGRAMS_MAX), of_address(OF_ADDRESS_MAX)];
        let unknown =
            [Limit::new(DATAGRAMS_UNKNOWN, UNKNOWN_MAX), of_address(UNKNOWN_OF_ADDRESS_MAX)];
        Self { known: Parts::new(known), unknown: Parts::new(unknown) }
    }
}

impl Places {
    /// Takes a slot for a datagram of this sender, from the smaller limit if the sender's name must be looked up. `None`: no slot
    /// is free, which is counted.
    fn take(&self, is_unknown: bool, peer: SocketAddr) -> Option<Part> {
        let places = if is_unknown { &self.unknown } else { &self.known };
        match places.take(canonical(peer).ip()) {
            Ok(place) => Some(place),
            Err(limit) if limit.name == DATAGRAMS_IN_WORK => {
                count::broken(DATAGRAMS_IN_WORK, "dropped", canonical(peer));
                None
            }
            Err(limit) => {
                count::limit_met(limit.name);
                None
            }
        }
    }
}

/// Answers datagrams while the daemon runs.
async fn datagrams(
    socket: Arc<DatagramSocket>,
    shared: Arc<Shared>,
    nfs: Arc<Server>,
    offer: ServedPrograms,
) {
    let places = Places::default();
    let mut room = vec![0; datagram_socket::ROOM];
    let mut began = Instant::now();
    loop {
        // As for connections: yields the thread to other tasks even if datagrams never stop.
        if began.elapsed() >= TURN_MAX {
            tokio::task::yield_now().await;
            began = Instant::now();
        }
        let received = match socket.receive(&mut room).await {
            Ok(received) => Arc::new(received),
            Err(error) => {
                // An ICMP error about an earlier reply.
                tracing::debug!(%error, "a datagram could not be received");
                continue;
            }
        };
        lease::check();
        for call in room[..received.length].chunks(received.stride) {
            // Longer datagrams cannot be calls.
            if call.len() <= CALL_MAX {
                let context = (socket.clone(), received.clone(), places.clone());
                take(context, &shared, (nfs.clone(), offer), call);
            }
        }
    }
}

/// Starts to answer one datagram, if a slot is free.
fn take(
    (socket, received, places): (Arc<DatagramSocket>, Arc<Received>, Places),
    shared: &Shared,
    (nfs, offer): (Arc<Server>, ServedPrograms),
    call: &[u8],
) {
    let (lookup, peer) = (shared.lookup.clone(), received.peer);
    let ip = canonical(peer).ip();
    let is_unknown = lookup.is_asked_for(ip);
    let Some(place) = places.take(is_unknown, peer) else { return };
    let info = Info::new(peer, socket.asked(&received), Transport::Tcp, shared.payload.clone());
    let body = Buf::from(call.to_vec());
    tokio::spawn(turn::in_turns(host_of(ip), async move {
        let mut place = place;
        if is_unknown {
            lookup.client(ip, Why::Datagram).await;
            let Some(known) = places.take(false, peer) else { return };
            place = known;
        }
        let _place = place;
        let Some(reply) = nfs.datagram(Arc::new(info), body, offer).await else { return };
        let whole: Vec<u8> = reply.pieces().flatten().copied().collect();
        lease::check();
        if whole.len() <= REPLY_MAX
            && let Err(error) = socket.answer(&received, &whole).await
        {
            tracing::debug!(%peer, %error, "a reply could not be sent");
        }
    }));
}

/// Returns true if NFSv3 clients can find this gateway's lock manager with this treatment of port 111.
pub(crate) fn locks_are_found(how: Portmap) -> bool {
    match how {
        Portmap::Own => true,
        Portmap::Register | Portmap::Auto => Path::new(register::SOCKET).exists(),
        Portmap::Off => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn senders_that_nobody_knows_take_no_place_of_others() {
        let (places, peer) = (Places::default(), SocketAddr::from(([192, 0, 2, 7], 700)));
        let met = || {
            let met = count::limits_met();
            let of = |limit| met.iter().find(|(l, _)| *l == limit).map_or(0, |(_, n)| *n);
            (of(DATAGRAMS_UNKNOWN), of(DATAGRAMS_OF_ADDRESS))
        };
        let mut unknown: Vec<_> = (0..1000).filter_map(|_| places.take(true, peer)).collect();
        let most = UNKNOWN_OF_ADDRESS_MAX;
        assert_eq!((unknown.len(), met()), (most, (0, (1000 - most) as u64)));
        for n in 100..200 {
            unknown.extend(places.take(true, SocketAddr::from(([192, 0, 2, n], 700))));
        }
        assert_eq!((unknown.len(), met().0), (UNKNOWN_MAX, (100 + most - UNKNOWN_MAX) as u64));
        let known: Vec<_> = (0..1000).filter_map(|_| places.take(false, peer)).collect();
        assert_eq!(known.len(), OF_ADDRESS_MAX, "an address leaves room for others");
        let from = |n: u8| SocketAddr::from(([192, 0, 2, n], 700));
        let others = (10..60).filter_map(|n| places.take(false, from(n))).count();
        assert_eq!(others, 50);
        let all: Vec<_> = (10..20).flat_map(|n| vec![from(n); 64]).collect();
        let all: Vec<_> = all.into_iter().filter_map(|at| places.take(false, at)).collect();
        assert_eq!(all.len() + known.len(), DATAGRAMS_MAX);
        drop(unknown);
        assert!(places.take(true, peer).is_some());
    }

    fn missing() -> io::Result<u8> {
        Err(io::ErrorKind::NotFound.into())
    }

    #[tokio::test(start_paused = true)]
    async fn an_rpcbind_that_comes_later_is_told_once() {
        let ((_stop, stopped), looks) = (oneshot::channel(), Cell::new(0));
        let attempt = || {
            looks.set(looks.get() + 1);
            let answer = if looks.get() < 8 { missing() } else { Ok(7) };
            async { answer }
        };
        let began = Instant::now();
        assert_eq!(come(stopped, attempt).await, Some(7));
        // 1 + 2 + 4 + 8 + 16, then 30 s each.
        assert_eq!((looks.get(), began.elapsed().as_secs()), (8, 31 + 3 * 30));
    }

    #[tokio::test(start_paused = true)]
    async fn an_rpcbind_that_never_comes_is_given_up() {
        let ((_stop, stopped), looks) = (oneshot::channel(), Cell::new(0));
        let attempt = || {
            looks.set(looks.get() + 1);
            async { missing() }
        };
        let began = Instant::now();
        assert_eq!(come(stopped, attempt).await, None);
        assert!(began.elapsed() <= RPCBIND_COMES_MAX + BETWEEN_LOOKS_MAX);
        assert_eq!(looks.get(), 24);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_gateway_does_not_wait_for_it() {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(come(stopped, || async { missing() }));
        drop(stop);
        let began = Instant::now();
        assert_eq!(task.await.unwrap(), None);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
