//! Connections: from the listener that accepts one to its last log line.
//!
//! *Operation.* Each listener is a task ([`tcp`], [`rdma`]); each connection is a task that serves it until it ends. A
//! [`ProtocolServer`] says which protocol a port serves. A connection from an address that no share admits is closed before the
//! gateway reads from it.
//!
//! *Errors.* A connection that fails affects no other one, and leaves one line in the log that says why.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use audit::PeerText;
use iobuf::Pool;
use nfsrdma::locate::NfsLocate;
use nfsrdma::served_programs::ServedPrograms;
use nfsrdma::source_port::SourcePorts;
use rdma_transport::channel::{
    Channel, ChannelError, Facts, Info, PayloadLocator, Service, Transport, canonical,
};
use rdma_transport::count;
use rdma_transport::iwarp::Iwarp;
use rdma_transport::meter::{self, Meters};
use rdma_transport::parts::{Part, Parts};
use rdma_transport::receives::Receives;
use rdma_transport::refused::{self, Refused};
use rdma_transport::rpcrdma::RdmaChannel;
use rdma_transport::serve::serve_until;
use rdma_transport::smbdirect::SmbDirectChannel;
use rdma_transport::tcp::{Framing, TcpChannel};
use rdma_transport::traffic_class::TrafficClass;
use rdma_transport::verbs::{Connected, Incoming, Listener};
use smbd_core::locate::SmbLocate;
use tokio::net::{TcpListener, TcpStream};
use vfs::namespace::{By, Cidr, Refusal};

use crate::admin::protocol::{Protocol, transport_name};
use crate::admission::{Admission, AdmissionPermit};
use crate::attempts::Attempts;
use crate::client_names::{Lookup, Why};
use crate::pools::FIRST_RECEIVES;
use crate::shutdown::Connections;
use crate::tls::Tls;
use crate::{local_user, networks};

/// Pause after the system refused a connection for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Name of the limit that a client meets when the device has no further queue pair for it.
const DEVICE_FULL: &str = "rdma-device";

/// State that all connections share.
pub struct Shared {
    /// Memory for payload.
    pub payload: Pool,
    /// Memory for unsolicited messages over TCP.
    pub recvs: Pool,
    /// Memory for unsolicited messages over RDMA.
    pub rdma_recvs: Pool,
    /// Limits Receives beyond the first few of a connection, in total and for each address.
    pub rdma_receives: Arc<Parts>,
    /// Limits the first few Receives of connections, in total and for each address.
    pub rdma_first: Arc<Parts>,
    /// The open connections.
    pub connections: Arc<Connections>,
    /// Decides which clients may connect.
    pub admission: Arc<Admission>,
    /// Outcomes of clients that tried RDMA.
    pub attempts: Arc<Attempts>,
    /// Counts the operations of clients.
    pub meters: Arc<Meters>,
    /// Looks up the names of clients.
    pub(crate) lookup: Arc<Lookup>,
    /// TLS for clients of NFS over TCP that request it.
    pub tls: Arc<Tls>,
    /// The traffic class of new connections.
    pub class: TrafficClass,
}

/// The server behind a port.
#[derive(Clone)]
pub enum ProtocolServer {
    /// NFS, MOUNT, NLM, NSM and a port mapper.
    Nfs(Arc<nfsrdma::server::Server>),
    /// Only the port mapper.
    Portmap(Arc<nfsrdma::server::Server>),
    Smb(smbd_core::server::Server),
}

impl ProtocolServer {
    fn protocol(&self) -> Protocol {
        match self {
            Self::Nfs(_) | Self::Portmap(_) => Protocol::Nfs,
            Self::Smb(_) => Protocol::Smb,
        }
    }

    /// Checks whether some share admits a client with this address that is connected to `local`, as far as is known yet. The error
    /// says why no share does, or that the decision depends on the client's name, which is still unknown.
    fn admits(&self, peer: IpAddr, local: Option<IpAddr>) -> Result<(), Refusal> {
        match self {
            Self::Nfs(server) | Self::Portmap(server) => server.core().admits(peer, local),
            Self::Smb(server) => {
                let ip = peer.to_canonical();
                let shares = server.core().namespace.shares();
                let by_smb = shares.iter().filter(|s| s.protocols.smb());
                let mut why = Refusal::Address;
                for share in by_smb {
                    match share.client(ip, By::Smb) {
                        Ok(_) => return Ok(()),
                        Err(Refusal::NameUnknown) => why = Refusal::NameUnknown,
                        Err(_) => {}
                    }
                }
                Err(why)
            }
        }
    }

    /// Returns the networks whose clients a share without a list admits. `None` if each share has a list, or if a share without a
    /// list admits every network.
    fn near(&self) -> Option<Vec<Cidr>> {
        match self {
            Self::Nfs(server) | Self::Portmap(server) => {
                let core = server.core();
                let shares = core.namespace.shares();
                let mut by_nfs = shares.iter().filter(|s| s.protocols.nfs());
                let is_any_open = by_nfs.any(|share| share.clients.is_none());
                is_any_open.then(|| core.local_subnets.networks())
            }
            Self::Smb(_) => None,
        }
    }

    /// Returns whether an unprivileged user of this host could have opened the connection while the protocol trusts the identity
    /// that a client claims (AUTH_SYS). Only user-space iWARP is affected: it is a TCP connection, which any user can open, whereas
    /// the host controls access to an RDMA device. Fails if the owner lookup got no turn in time.
    async fn is_local_user(
        &self,
        way: &Way,
        peer: SocketAddr,
        local: SocketAddr,
        attempts: &Attempts,
    ) -> io::Result<bool> {
        let (Self::Nfs(server) | Self::Portmap(server)) = self else { return Ok(false) };
        if way.provider != Iwarp::NAME {
            return Ok(false);
        }
        let ports = &server.core().source_ports;
        match user_here(ports, peer, local, networks::is_own_now(peer.ip())).await {
            Ok(None) => Ok(false),
            Ok(Some(user)) => Ok(user != 0 && user != rustix::process::geteuid().as_raw()),
            Err(error) if local_user::no_turn(&error).is_some() => Err(error),
            // Any user can cause this error by disconnecting at once.
            Err(error) => {
                let why = format!("its owner on this host cannot be determined: {error}");
                attempts.failed(self.protocol(), peer.ip(), &why);
                tracing::info!(%peer, %error, "the owner of an RDMA connection from this host cannot be determined: it counts \
                                               as an unprivileged user");
                Ok(true)
            }
        }
    }

    fn tcp(&self) -> (Arc<dyn PayloadLocator>, Framing) {
        match self {
            Self::Nfs(_) | Self::Portmap(_) => (Arc::new(NfsLocate), Framing::Record),
            Self::Smb(_) => (Arc::new(SmbLocate), Framing::Direct),
        }
    }
}

/// Returns the user of this host at the other end of a TCP connection, or `None` if the peer is another host. Awaits `is_own_now`
/// if the list of addresses lacks the peer's, because that list is only as fresh as its last update.
async fn user_here(
    ports: &SourcePorts,
    peer: SocketAddr,
    local: SocketAddr,
    is_own_now: impl Future<Output = io::Result<bool>>,
) -> io::Result<Option<u32>> {
    if !ports.is_own(peer.ip(), local.ip()) && !is_own_now.await? {
        return Ok(None);
    }
    local_user::IWARP.owner(peer, local).await.map(Some)
}

/// Accepts from a byte-stream listener for as long as the daemon runs.
pub async fn tcp(listener: TcpListener, shared: Arc<Shared>, front: ProtocolServer) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let peer = canonical(peer);
                let local = stream.local_addr().ok().map(|at| at.ip());
                if let Some(place) = shared.admit(peer, local, &front) {
                    tokio::spawn(one_tcp(stream, peer, shared.clone(), front.clone(), place));
                }
            }
            Err(error) => not_accepted(&error).await,
        }
    }
}

/// Provider and device of an RDMA listener.
#[derive(Clone, Debug)]
pub struct Way {
    pub provider: &'static str,
    /// The device, if the provider has one.
    pub device: Option<String>,
}

/// Accepts from an RDMA listener for as long as the daemon runs.
pub async fn rdma(
    way: Way,
    mut listener: Box<dyn Listener>,
    shared: Arc<Shared>,
    front: ProtocolServer,
) {
    loop {
        match listener.accept().await {
            Ok(incoming) => {
                let at = Some(listener.local_addr().ip()).filter(|ip| !ip.is_unspecified());
                if let Some(place) = shared.admit(canonical(incoming.peer()), at, &front) {
                    let (way, shared, front) = (way.clone(), shared.clone(), front.clone());
                    tokio::spawn(one_rdma(way, incoming, shared, front, place));
                }
            }
            Err(error) => not_accepted(&error).await,
        }
    }
}

/// Logs a failed accept and pauses: either the connection ended before it was accepted, or descriptors ran out for a moment.
async fn not_accepted(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

async fn one_tcp(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    front: ProtocolServer,
    place: AdmissionPermit,
) {
    let Ok(local) = stream.local_addr() else { return };
    if !shared.is_admitted(peer, local.ip(), &front).await {
        return;
    }
    shared.class.mark(&stream, local.is_ipv6());
    let info = Arc::new(shared.info(peer, local, Transport::Tcp, &front, &place));
    let (locate, framing) = front.tcp();
    match TcpChannel::new(stream, info, place.recvs().clone(), locate, framing) {
        Ok(channel) => shared.connection(Box::new(channel), front, place).await,
        Err(error) => tracing::info!(%peer, %error, "connection could not be set up"),
    }
}

async fn one_rdma(
    way: Way,
    incoming: Box<dyn Incoming>,
    shared: Arc<Shared>,
    front: ProtocolServer,
    place: AdmissionPermit,
) {
    // Boxed, so that the memory of the set-up is freed before the connection is served.
    let channel = Box::pin(set_up(way, incoming, &shared, &front, &place)).await;
    if let Some(channel) = channel {
        shared.connection(channel, front, place).await;
    }
}

/// Makes the channel of an incoming RDMA connection.
async fn set_up(
    way: Way,
    mut incoming: Box<dyn Incoming>,
    shared: &Shared,
    front: &ProtocolServer,
    place: &AdmissionPermit,
) -> Option<Box<dyn Channel>> {
    let peer = canonical(incoming.peer());
    let first = shared.first_receives(peer)?;
    let connected = match incoming.request().await {
        Ok(private) => {
            let params = match front {
                ProtocolServer::Nfs(_) | ProtocolServer::Portmap(_) => RdmaChannel::accept_params(),
                ProtocolServer::Smb(_) => SmbDirectChannel::accept_params(&private),
            };
            incoming.accept(params).await
        }
        Err(e) => Err(e),
    };
    let c = match connected {
        Ok(c) => c,
        Err(error) => {
            shared.attempts.failed(front.protocol(), peer.ip(), &error.to_string());
            not_set_up(peer, &error);
            return None;
        }
    };
    if !shared.is_admitted(c.peer, c.local.ip(), front).await {
        return None;
    }
    let mut info = shared.info(c.peer, c.local, Transport::Rdma(way.provider), front, place);
    let beyond = Receives::counted(shared.rdma_receives.of(peer.ip()));
    info.receives = Some(Box::new(beyond.with_first(first)));
    match front.is_local_user(&way, c.peer, c.local, &shared.attempts).await {
        Ok(is_local_user) => info.is_local_user = is_local_user,
        // Refuse rather than treat it as a local user for its whole life: it may belong to another host. The client reconnects.
        Err(error) => {
            shared.attempts.failed(front.protocol(), peer.ip(), &error.to_string());
            not_looked_at(peer, &error);
            return None;
        }
    }
    match shared.channel(way, c, info, front) {
        Ok(channel) => Some(channel),
        Err(error) => {
            shared.attempts.failed(front.protocol(), peer.ip(), &error.to_string());
            tracing::info!(%peer, %error, "RDMA connection could not be set up");
            None
        }
    }
}

/// Logs why a connection could not be set up. A device without room for connections concerns the administrator, and the error names
/// the remedy; other errors are the client's.
fn not_set_up(peer: SocketAddr, error: &io::Error) {
    if error.kind() == io::ErrorKind::QuotaExceeded {
        count::limit_met(DEVICE_FULL);
        if keep_refusal(peer, DEVICE_FULL, "see the log: the RDMA device holds no more connections")
        {
            tracing::warn!(%peer, %error, "RDMA connection could not be set up");
        }
    } else {
        tracing::info!(%peer, %error, "RDMA connection could not be set up");
    }
}

/// Logs that the lookup of a connection's owner got no turn. The limit was counted where the lookup failed.
fn not_looked_at(peer: SocketAddr, error: &io::Error) {
    let remedy =
        "the client reconnects; find the client that sets up many RDMA connections at once";
    let Some(limit) = local_user::no_turn(error) else { return };
    if keep_refusal(peer, limit, remedy) {
        tracing::warn!(%peer, %error, limit, "RDMA connection refused: too many look-ups of owners of connections");
    }
}

impl Shared {
    /// Reserves the first Receives of an RDMA connection. Returns `None` if its address has used its share or all are taken; the
    /// connection is then refused.
    fn first_receives(&self, peer: SocketAddr) -> Option<Part> {
        let mut first = self.rdma_first.of(peer.ip());
        let taken = first.set(FIRST_RECEIVES);
        taken.map_err(|limit| count::limited(limit.name, limit.most, peer)).ok()?;
        Some(first)
    }

    /// Reserves a connection if the limits allow it and a share admits the address, or may admit it once the name is known.
    fn admit(
        &self,
        peer: SocketAddr,
        local: Option<IpAddr>,
        front: &ProtocolServer,
    ) -> Option<AdmissionPermit> {
        if front.admits(peer.ip(), local) == Err(Refusal::Address) {
            self.admission.refuse_stranger(peer, front.near().as_deref());
            return None;
        }
        self.admission.admit(peer)
    }

    /// Looks up the client's name if shares require it. Returns false, after a log line, if no share admits the client.
    async fn is_admitted(&self, peer: SocketAddr, local: IpAddr, front: &ProtocolServer) -> bool {
        self.lookup.client(peer.ip(), Why::Connection).await;
        match front.admits(peer.ip(), Some(local)) {
            Ok(()) => true,
            Err(Refusal::NameUnknown) => {
                let (user, share) = (PeerText::default(), PeerText::default());
                let (rule, remedy) = (Refusal::NameUnknown.name(), Refusal::NameUnknown.remedy());
                refused::note(Refused {
                    peer: peer.ip(),
                    user,
                    share,
                    rule,
                    remedy: remedy.into(),
                });
                false
            }
            Err(_) => {
                self.admission.refuse_stranger(peer, front.near().as_deref());
                false
            }
        }
    }

    fn info(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        transport: Transport,
        front: &ProtocolServer,
        place: &AdmissionPermit,
    ) -> Info {
        let mut info = Info::new(peer, local, transport, place.payload().clone());
        if transport == Transport::Tcp
            && matches!(front, ProtocolServer::Nfs(_))
            && let Some(server) = self.tls.server()
        {
            info.tls.offer(server);
        }
        let (protocol, transport) = (front.protocol().name(), transport_name(transport));
        info.meter = self.meters.of(meter::Way { protocol, transport });
        info
    }

    fn channel(
        &self,
        way: Way,
        c: Connected,
        info: Info,
        front: &ProtocolServer,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let info = Arc::new(info);
        if let Some(device) = way.device {
            info.facts.note("device", device);
        }
        let recvs = self.rdma_recvs.clone();
        Ok(match front {
            ProtocolServer::Nfs(_) | ProtocolServer::Portmap(_) => {
                Box::new(RdmaChannel::new(c.qp, info, recvs, &c.private_data)?)
            }
            ProtocolServer::Smb(_) => {
                let channel = SmbDirectChannel::new(c.qp, info, recvs)?;
                Box::new(channel.locating(Arc::new(SmbLocate)))
            }
        })
    }

    /// Serves one connection from its first request to its end.
    async fn connection(
        &self,
        channel: Box<dyn Channel>,
        front: ProtocolServer,
        mut place: AdmissionPermit,
    ) {
        let info = channel.info().clone();
        let handle = channel.handle();
        let _open = self.connections.add(front.protocol(), info.clone(), handle.clone());
        let transport = transport_name(info.transport);
        let which = front.protocol();
        let protocol = which.name();
        tracing::info!(peer = %info.peer, local = %info.local, protocol, transport, "connection open");
        let end = match front {
            ProtocolServer::Nfs(server) => {
                place.serving(info.clone(), || false);
                let session = server.session(info.clone(), handle.clone());
                self.rpc(channel, Arc::new(session), place).await
            }
            ProtocolServer::Portmap(server) => {
                place.serving(info.clone(), || false);
                let session =
                    server.session_of(info.clone(), handle.clone(), ServedPrograms::Portmap);
                self.rpc(channel, Arc::new(session), place).await
            }
            ProtocolServer::Smb(server) => {
                let connection = server.connection(info.clone(), handle);
                let asked = connection.clone();
                place.serving(info.clone(), move || asked.holds_opens());
                let served = serve_until(channel, connection.clone(), place.cut());
                tokio::pin!(served);
                let end = tokio::select! {
                    end = &mut served => end,
                    () = self.logon(&connection, &mut place) => served.await,
                };
                connection.end().await;
                end
            }
        };
        self.note_attempt(which, &info, &end);
        log_end(&info, protocol, transport, &end);
    }

    /// Serves a connection of ONC RPC. The client has introduced itself once a share has admitted one of its calls.
    async fn rpc(
        &self,
        channel: Box<dyn Channel>,
        session: Arc<dyn Service>,
        mut place: AdmissionPermit,
    ) -> ChannelError {
        let (info, handle) = (channel.info().clone(), channel.handle());
        let limit = self.admission.introduction();
        let served = serve_until(channel, session, place.cut());
        tokio::pin!(served);
        let first = tokio::time::timeout(limit, info.introduction.wait());
        tokio::select! {
            end = &mut served => return end,
            heard = first => match heard {
                Ok(()) => place.established(),
                Err(_) => {
                    too_late(&info, "first-request", limit);
                    // Spawned because the channel's own task must carry out the shutdown, and this is that task.
                    tokio::spawn(async move { handle.shutdown().await });
                }
            },
        }
        served.await
    }

    /// Waits for a logon, and ends the connection if that takes too long.
    async fn logon(&self, connection: &smbd_core::server::Connection, place: &mut AdmissionPermit) {
        let limit = self.admission.introduction();
        match tokio::time::timeout(limit, connection.logged_on()).await {
            Ok(()) => place.established(),
            Err(_) => {
                too_late(&connection.conn().info, "logon", limit);
                connection.end_silent().await;
            }
        }
    }

    /// Records the outcome of an RDMA connection: one that ended before its first request counts as a failed attempt.
    fn note_attempt(&self, protocol: Protocol, info: &Info, end: &ChannelError) {
        if !info.transport.is_rdma() {
            return;
        }
        match info.traffic.requests.load(Ordering::Relaxed) {
            0 => self.attempts.failed(protocol, info.peer.ip(), &end.to_string()),
            _ => self.attempts.succeeded(protocol, info.peer.ip()),
        }
    }
}

/// Records a refusal for `headgate status`. Returns true if the caller should also log it.
fn keep_refusal(peer: SocketAddr, rule: &'static str, remedy: &'static str) -> bool {
    let (peer, user, share) = (peer.ip(), PeerText::default(), PeerText::default());
    refused::record(Refused { peer, user, share, rule, remedy: remedy.into() })
}

/// Counts and logs a client that did not introduce itself in time.
fn too_late(info: &Info, limit: &'static str, most: Duration) {
    count::limit_met(limit);
    if keep_refusal(info.peer, limit, "raise `limits.introduction` if the client is slow") {
        tracing::info!(
            peer = %info.peer, limit, ?most,
            "connection closed: no logon or admitted call in time; raise `limits.introduction` if the client is slow"
        );
    }
}

fn log_end(info: &Info, protocol: &str, transport: &str, end: &ChannelError) {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let t = &info.traffic;
    let (rule, reason) = match end {
        ChannelError::Closed(why) => (None, why),
        ChannelError::Violation(rule, detail) => (Some(*rule), detail),
    };
    tracing::info!(
        peer = %info.peer,
        protocol,
        transport,
        requests = read(&t.requests),
        rdma_write = read(&t.rdma_write),
        rdma_read = read(&t.rdma_read),
        inline_in = read(&t.inline_in),
        inline_out = read(&t.inline_out),
        invalidations = read(&t.invalidations),
        protection = info.facts.get(Facts::PROTECTION),
        rule,
        reason,
        "connection end"
    );
}

#[cfg(test)]
mod tests;
