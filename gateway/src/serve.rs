//! The running daemon: listeners, connections, and the order in which they begin and end.
//!
//! *Operation.* [`start`] takes the state folder, opens the shares, listens, and returns. Each listener is a task that accepts;
//! each connection is a task that serves it until it ends. [`Running::stop`] ends the listeners, then lets the connections
//! answer what they have in work.
//!
//! *Memory.* One pool for payload, of the configured size, and one for receive buffers, so that requests cannot eat the
//! memory that credits promise. Both take memory as it is needed.
//!
//! *Errors.* What stops the start is one line for the user. A connection that fails ends alone, with one line in the log that
//! says why.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use config::{Rdma, RdmaCrc, Settings, Source};
use iobuf::{Account, Pool, PoolLimits};
use nfsrdma::context::{Clock, Core};
use nfsrdma::fh::Handles;
use nfsrdma::limits::NEIGHBOURS_REFRESH_SECONDS;
use nfsrdma::locate::NfsLocate;
use nfsrdma::server::Server;
use nfsrdma::v4;
use rdma_transport::channel::{Channel, Info, Locate, Traffic, Transport};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use rdma_transport::limits::{RPCRDMA_CREDITS, RPCRDMA_CREDITS_REVERSE};
use rdma_transport::rpcrdma::RdmaChannel;
use rdma_transport::serve::serve;
use rdma_transport::tcp::TcpChannel;
use rdma_transport::verbs::{Incoming, Listener, Provider};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use vfs::Backend;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::mem::MemBackend;

use vfs::namespace::{Cidr, Namespace, Share, Squash};

use crate::boot::{self, Run};
use crate::shutdown::Connections;
use crate::{networks, port};

/// Connections that the kernel holds for a listener until they are accepted.
const BACKLOG: u32 = 1024;
/// How often leases and networks are looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Pause after the system refused a connection for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A gateway that serves. Dropping it ends the listeners; [`Running::stop`] ends everything in order.
#[derive(Debug)]
pub struct Running {
    /// Where NFS over TCP listens.
    pub nfs: Vec<SocketAddr>,
    /// Where NFS over RDMA listens.
    pub nfs_rdma: Vec<SocketAddr>,
    tasks: JoinSet<()>,
    connections: Arc<Connections>,
    _run: Arc<Run>,
}

impl Running {
    /// Answers what is in work, then closes everything. False when some requests took too long.
    pub async fn stop(mut self) -> bool {
        self.tasks.shutdown().await;
        self.connections.drain().await
    }
}

/// What every connection needs.
struct Shared {
    server: Arc<Server>,
    payload: Pool,
    recvs: Pool,
    connections: Arc<Connections>,
    room: Arc<Semaphore>,
    /// Connections that found no room.
    refused: AtomicU64,
    /// The second, plus one, in which that was last logged.
    refused_logged: AtomicU64,
}

/// Starts to serve. The error is one line for standard error.
pub async fn start(settings: Settings) -> Result<Running, String> {
    let run = Arc::new(boot::take(&settings)?);
    let namespace = Arc::new(Namespace::new(shares(&settings)?));
    let core = Core::new(namespace, Handles::new(run.handle_key), run.boot, Clock::real());
    core.neighbours.set(networks::attached());
    let v4 = v4::Options {
        lease: settings.lease,
        grace: settings.grace,
        state_dir: run.folder.clone(),
        ..v4::Options::default()
    };
    let server = Server::with_v4(core, run.replay_key, v4)
        .map_err(|e| format!("state of version 4 clients: {e}"))?;
    let shared = Arc::new(Shared {
        server: server.clone(),
        payload: Pool::new(PoolLimits::of_bytes(usize::try_from(settings.memory).unwrap_or(0))),
        recvs: Pool::new(recv_limits(settings.connections)),
        connections: Arc::new(Connections::default()),
        room: Arc::new(Semaphore::new(settings.connections)),
        refused: AtomicU64::new(0),
        refused_logged: AtomicU64::new(0),
    });
    let mut tasks = JoinSet::new();
    let mut nfs = Vec::new();
    for at in addresses(&settings.bind, settings.nfs_port) {
        let listener = listen_tcp(at, &settings)
            .map_err(|e| port::refused("NFS over TCP", at, &e, "--nfs-port"))?;
        nfs.push(listener.local_addr().map_err(|e| e.to_string())?);
        tasks.spawn(accept_tcp(listener, shared.clone()));
    }
    let mut nfs_rdma = Vec::new();
    if let Some(provider) = provider(&settings)? {
        for at in addresses(&settings.bind, settings.nfs_rdma_port) {
            let listener = listen_rdma(provider.as_ref(), at, &settings)
                .await
                .map_err(|e| port::refused("NFS over RDMA", at, &e, "--nfs-rdma-port"))?;
            nfs_rdma.push(listener.local_addr());
            tasks.spawn(accept_rdma(provider.name(), listener, shared.clone()));
        }
    }
    if let Some(at) = nfs.first() {
        server.set_tcp_port(at.port());
    }
    tasks.spawn(housekeeping(server));
    Ok(Running { nfs, nfs_rdma, tasks, connections: shared.connections.clone(), _run: run })
}

/// Serves until SIGTERM or SIGINT; a second one ends without waiting.
pub async fn run(settings: Settings) -> Result<(), String> {
    use tokio::signal::unix::{SignalKind, signal};
    start_log();
    let no_signals = |e: io::Error| format!("cannot wait for signals: {e}");
    let mut term = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut int = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let running = start(settings).await?;
    println!("headgate ready{}", endpoints(&running));
    // Whoever started this program may not be a service manager.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    tracing::info!("stopping: no more connections, requests in work are answered");
    tokio::select! {
        drained = running.stop() => if !drained {
            tracing::warn!("some requests took too long and were given up");
        },
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

/// Log lines go to standard error; `HEADGATE_LOG` chooses how many.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("HEADGATE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Only a test can have set one before.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .try_init();
}

fn endpoints(running: &Running) -> String {
    let one = |name: &'static str| move |at: &SocketAddr| format!(" {name}={at}");
    let tcp = running.nfs.iter().map(one("nfs"));
    tcp.chain(running.nfs_rdma.iter().map(one("nfs-rdma"))).collect()
}

fn shares(settings: &Settings) -> Result<Vec<Share>, String> {
    let open = |s: &config::Share| {
        let backend: Arc<dyn Backend> = match &s.source {
            Source::Memory => MemBackend::with(memory_volume_max(), s.read_only)
                .map_err(|e| format!("share {}: {e}", s.name))?,
            Source::Folder(path) => {
                let mut local = LocalConfig::new(path.clone());
                local.read_only = s.read_only;
                LocalBackend::open(local)
                    .map_err(|e| format!("share {}: {}: {e}", s.name, path.display()))?
            }
        };
        let ranges =
            |c: &Vec<config::Cidr>| c.iter().map(|c| Cidr { addr: c.addr, bits: c.bits }).collect();
        Ok(Share {
            name: s.name.clone(),
            id: Share::id_of(&s.name),
            backend,
            read_only: s.read_only,
            squash: match s.squash {
                config::Squash::None => Squash::None,
                config::Squash::Root => Squash::Root,
                config::Squash::All => Squash::All,
            },
            clients: s.clients.as_ref().map(ranges),
        })
    };
    settings.shares.iter().map(open).collect()
}

/// Bytes of a volume in memory: half of the machine's, as with tmpfs.
fn memory_volume_max() -> u64 {
    let kib = |text: String| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(kib);
    total.map_or(1 << 30, |kib| kib * 512)
}

/// Receives of every connection that may be open, over RDMA or TCP, and some reserve.
fn recv_limits(connections: usize) -> PoolLimits {
    let small = usize::from(RPCRDMA_CREDITS + RPCRDMA_CREDITS_REVERSE) + 4;
    PoolLimits { buffers_max: [connections * small, connections * 2, 1] }
}

/// Which provider serves RDMA here.
fn provider(settings: &Settings) -> Result<Option<Box<dyn Provider>>, String> {
    match settings.rdma {
        Rdma::Off => Ok(None),
        Rdma::Auto | Rdma::Iwarp => {
            let crc = settings.rdma_crc == RdmaCrc::Always;
            Ok(Some(Box::new(Iwarp::new(IwarpConfig { crc, ..IwarpConfig::default() }))))
        }
        Rdma::Verbs => Err("this build has no hardware verbs; use --rdma iwarp".into()),
    }
}

fn addresses(bind: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    match bind {
        [] => vec![SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)],
        some => some.iter().map(|ip| SocketAddr::new(*ip, port)).collect(),
    }
}

/// Without `--bind`, a host that has no IPv6 is served on all its IPv4 addresses.
fn fallback(at: SocketAddr, settings: &Settings, e: &io::Error) -> Option<SocketAddr> {
    let taken = e.kind() == io::ErrorKind::AddrInUse;
    (settings.bind.is_empty() && at.is_ipv6() && !taken)
        .then(|| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), at.port()))
}

fn listen_tcp(at: SocketAddr, settings: &Settings) -> io::Result<TcpListener> {
    let listen = |at: SocketAddr| {
        let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A gateway that was killed comes back at once.
        socket.set_reuseaddr(true)?;
        socket.bind(at)?;
        socket.listen(BACKLOG)
    };
    listen(at).or_else(|e| fallback(at, settings, &e).map_or(Err(e), listen))
}

async fn listen_rdma(
    provider: &dyn Provider,
    at: SocketAddr,
    settings: &Settings,
) -> io::Result<Box<dyn Listener>> {
    match provider.listen(at).await {
        Ok(listener) => Ok(listener),
        Err(e) => match fallback(at, settings, &e) {
            Some(other) => provider.listen(other).await,
            None => Err(e),
        },
    }
}

/// What has to happen although nobody calls: leases end, networks come and go.
async fn housekeeping(server: Arc<Server>) {
    let mut ticks = tokio::time::interval(HOUSEKEEPING);
    let mut networks_at = tokio::time::Instant::now();
    loop {
        let now = ticks.tick().await;
        server.v4().clients.tick().await;
        if now >= networks_at {
            networks_at = now + Duration::from_secs(NEIGHBOURS_REFRESH_SECONDS);
            server.core().neighbours.set(networks::attached());
        }
    }
}

async fn accept_tcp(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Some(permit) = shared.admit(peer) {
                    tokio::spawn(tcp(stream, peer, shared.clone(), permit));
                }
            }
            Err(error) => refused(&error).await,
        }
    }
}

async fn accept_rdma(name: &'static str, mut listener: Box<dyn Listener>, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok(incoming) => {
                if let Some(permit) = shared.admit(incoming.peer()) {
                    tokio::spawn(rdma(name, incoming, shared.clone(), permit));
                }
            }
            Err(error) => refused(&error).await,
        }
    }
}

/// An accept that fails is the end of a connection that never was, or a want of descriptors that passes.
async fn refused(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

async fn tcp(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    _held: OwnedSemaphorePermit,
) {
    let Ok(local) = stream.local_addr() else { return };
    let info = shared.info(peer, local, Transport::Tcp);
    let locate: Arc<dyn Locate> = Arc::new(NfsLocate);
    match TcpChannel::new(stream, info, shared.recvs.clone(), locate) {
        Ok(channel) => shared.connection(Box::new(channel)).await,
        Err(error) => tracing::info!(%peer, %error, "connection ended as it began"),
    }
}

async fn rdma(
    name: &'static str,
    mut incoming: Box<dyn Incoming>,
    shared: Arc<Shared>,
    _held: OwnedSemaphorePermit,
) {
    let peer = incoming.peer();
    let connected = match incoming.request().await {
        Ok(_private) => incoming.accept(RdmaChannel::accept_params()).await,
        Err(e) => Err(e),
    };
    let c = match connected {
        Ok(c) => c,
        Err(error) => return tracing::info!(%peer, %error, "RDMA connection was not set up"),
    };
    let info = shared.info(c.peer, c.local, Transport::Rdma(name));
    match RdmaChannel::new(c.qp, info, shared.recvs.clone(), &c.private_data) {
        Ok(channel) => shared.connection(Box::new(channel)).await,
        Err(error) => tracing::info!(%peer, %error, "RDMA connection ended as it began"),
    }
}

impl Shared {
    /// Room for one more connection.
    fn admit(&self, peer: SocketAddr) -> Option<OwnedSemaphorePermit> {
        let permit = self.room.clone().try_acquire_owned().ok();
        if permit.is_none() {
            self.note_refusal(peer);
        }
        permit
    }

    /// At most one line a second, however many knock.
    fn note_refusal(&self, peer: SocketAddr) {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let second = self.server.core().clock.now().as_secs() + 1;
        if self.refused_logged.swap(second, Ordering::Relaxed) != second {
            let open = self.connections.count();
            tracing::warn!(%peer, open, refused, "connection refused: the limit is reached");
        }
    }

    fn info(&self, peer: SocketAddr, local: SocketAddr, transport: Transport) -> Arc<Info> {
        Arc::new(Info {
            peer,
            local,
            transport,
            account: Account::new(),
            pool: self.payload.clone(),
            traffic: Traffic::default(),
        })
    }

    /// One connection from its first request to its end.
    async fn connection(&self, channel: Box<dyn Channel>) {
        let info = channel.info().clone();
        let handle = channel.handle();
        let _open = self.connections.add(handle.clone());
        let transport = match info.transport {
            Transport::Tcp => "tcp",
            Transport::Rdma(name) => name,
        };
        tracing::info!(peer = %info.peer, local = %info.local, transport, "connection open");
        let session = self.server.session(info.clone(), handle);
        let end = serve(channel, Arc::new(session)).await;
        log_end(&info, transport, &end);
    }
}

fn log_end(info: &Info, transport: &str, end: &rdma_transport::channel::ChannelError) {
    use rdma_transport::channel::ChannelError;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let t = &info.traffic;
    let (rule, reason) = match end {
        ChannelError::Closed(why) => (None, why),
        ChannelError::Violation(rule, detail) => (Some(*rule), detail),
    };
    tracing::info!(
        peer = %info.peer,
        transport,
        requests = read(&t.requests),
        rdma_write = read(&t.rdma_write),
        rdma_read = read(&t.rdma_read),
        inline_in = read(&t.inline_in),
        inline_out = read(&t.inline_out),
        invalidations = read(&t.invalidations),
        rule,
        reason,
        "connection end"
    );
}
