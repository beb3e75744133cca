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
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::Settings;
use iobuf::{Pool, PoolLimits};
use nfsrdma::context::{Clock, Core};
use nfsrdma::fh::Handles;
use nfsrdma::limits::NEIGHBOURS_REFRESH_SECONDS;
use nfsrdma::server::Server;
use nfsrdma::v4;
use rdma_transport::limits::{RPCRDMA_CREDITS, RPCRDMA_CREDITS_REVERSE};
use tokio::task::JoinSet;
use vfs::keeper::Keeper;
use vfs::namespace::Namespace;

use crate::accept::{self, Front, Shared};
use crate::admin::{self, daemon::Daemon};
use crate::admission::Admission;
use crate::boot::{self, Run};
use crate::listen::{Named, addresses, listen_tcp};
use crate::rdma::doors::{Doors, Heard};
use crate::shares::shares;
use crate::shutdown::Connections;
use crate::users::Book;
use crate::{interfaces, networks, port, portmap, smb};

/// What the ports of RDMA are for.
const NFS_RDMA: &str = "NFS over RDMA";
const SMB_DIRECT: &str = "SMB Direct";

/// How often leases and networks are looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// A gateway that serves. Dropping it ends the listeners; [`Running::stop`] ends everything in order.
#[derive(Debug)]
pub struct Running {
    /// Where NFS over TCP listens.
    pub nfs: Vec<SocketAddr>,
    /// Where NFS over RDMA listens.
    pub nfs_rdma: Vec<SocketAddr>,
    /// Where SMB over TCP listens.
    pub smb: Vec<SocketAddr>,
    /// Where SMB Direct listens.
    pub smb_direct: Vec<SocketAddr>,
    /// Where health, metrics and status are served.
    pub admin: Option<SocketAddr>,
    tasks: JoinSet<()>,
    /// Outlives the listeners, so that the end can be watched.
    _admin: JoinSet<()>,
    connections: Arc<Connections>,
    entered: portmap::Entered,
    _run: Arc<Run>,
}

impl Running {
    /// Answers what is in work, then closes everything. False when some requests took too long.
    pub async fn stop(mut self) -> bool {
        self.tasks.shutdown().await;
        self.entered.take_back().await;
        self.connections.drain().await
    }
}

/// Removes the streams of files that were removed while no gateway ran.
async fn sweep(namespace: Arc<Namespace>) {
    for share in namespace.shares().iter() {
        match vfs::streams::sweep(share).await {
            Ok(0) => {}
            Ok(files) => {
                tracing::info!(share = share.name, files, "streams of removed files are gone")
            }
            Err(e) => {
                tracing::warn!(share = share.name, error = %e, "streams of removed files stay")
            }
        }
    }
}

/// Starts to serve. The error is one line for standard error.
pub async fn start(settings: Settings) -> Result<Running, String> {
    let run = Arc::new(boot::take(&settings)?);
    let namespace =
        Arc::new(Namespace::kept_by(shares(&settings)?, Keeper::with_recall(settings.recall)));
    tokio::spawn(sweep(namespace.clone()));
    let nfs = nfs_server(&settings, &run, namespace.clone())?;
    let smb = smb::server(&settings, &run, namespace.clone())?;
    if let Some((server, _)) = &smb {
        // Before anybody can take what they hold.
        let handles = server.restore().await.map_err(|e| e.to_string())?;
        if handles > 0 {
            tracing::info!(handles, "persistent handles wait for their clients");
        }
    }
    let shared = Arc::new(Shared {
        payload: Pool::new(PoolLimits::of_bytes(usize::try_from(settings.memory).unwrap_or(0))),
        recvs: Pool::new(recv_limits(settings.connections)),
        connections: Arc::new(Connections::default()),
        admission: Admission::new(settings.connections),
        attempts: Arc::default(),
        meters: Arc::default(),
    });
    let mut listeners = Listeners { settings: &settings, shared: &shared, tasks: JoinSet::new() };
    let front = Front::Nfs(nfs.clone());
    let nfs_tcp = ("NFS over TCP", "--nfs-port", settings.nfs_port);
    let nfs_at = listeners.tcp(nfs_tcp, &front)?;
    let nfs_rdma = (NFS_RDMA, "--nfs-rdma-port", settings.nfs_rdma_port);
    let mut by_rdma = vec![(nfs_rdma, front)];
    let entered = portmap::start(&mut listeners, &nfs, &nfs_at).await?;
    // They reclaim as soon as they are told, so what they call is there already.
    listeners.tasks.spawn(nfs.nlm().clone().notify_all());
    let mut smb_at = Vec::new();
    if let Some((server, _)) = &smb {
        let front = Front::Smb(server.clone());
        let (tcp, direct) = (settings.smb.port, settings.smb.direct_port);
        smb_at = listeners.tcp(("SMB over TCP", "--smb-port", tcp), &front)?;
        by_rdma.push(((SMB_DIRECT, "--smb-direct-port", direct), front));
    }
    let doors = Doors::open(&settings, &shared, by_rdma).await?;
    let heard = doors.heard();
    let (nfs_rdma_at, smb_direct_at) = (heard.at(NFS_RDMA), heard.at(SMB_DIRECT));
    if let Some((server, _)) = &smb {
        interfaces::refresh(server, &smb_at, &smb_direct_at);
    }
    listeners.tasks.spawn(doors.follow());
    let mut tasks = listeners.tasks;
    let daemon = Daemon {
        connections: shared.connections.clone(),
        admission: shared.admission.clone(),
        payload: shared.payload.clone(),
        meters: shared.meters.clone(),
        attempts: shared.attempts.clone(),
        namespace,
        nfs_rdma_port: nfs_rdma_at.first().map(SocketAddr::port),
        smb_direct_port: smb_direct_at.first().map(SocketAddr::port),
    };
    let (admin, admin_task) = serve_admin(&settings, daemon).await?;
    let namespace = nfs.core().namespace.clone();
    tasks.spawn(async move { namespace.keeper().mind_outside().await });
    tasks.spawn(housekeeping(nfs, smb, smb_at.clone(), heard));
    Ok(Running {
        nfs: nfs_at,
        nfs_rdma: nfs_rdma_at,
        smb: smb_at,
        smb_direct: smb_direct_at,
        admin,
        _admin: admin_task,
        tasks,
        connections: shared.connections.clone(),
        entered,
        _run: run,
    })
}

async fn serve_admin(
    settings: &Settings,
    daemon: Daemon,
) -> Result<(Option<SocketAddr>, JoinSet<()>), String> {
    let mut task = JoinSet::new();
    let Some(listener) = admin::listen(settings.admin).await? else { return Ok((None, task)) };
    let at = listener.local_addr().map_err(|e| e.to_string())?;
    let access = admin::access::Access::new(&settings.admin_clients);
    task.spawn(admin::serve(listener, Arc::new(daemon), access));
    Ok((Some(at), task))
}

fn nfs_server(
    settings: &Settings,
    run: &Run,
    namespace: Arc<Namespace>,
) -> Result<Arc<Server>, String> {
    let core = Core::new(namespace, Handles::new(run.handle_key), run.boot, Clock::real());
    core.neighbours.set(networks::attached());
    let v4 = v4::Options {
        lease: settings.lease,
        grace: settings.grace,
        store: run.store.clone(),
        ..v4::Options::default()
    };
    Server::with_v4(core, run.replay_key, v4)
        .map_err(|e| format!("state of version 4 clients: {e}"))
}

/// Opens listeners, each with a task of its own.
pub(crate) struct Listeners<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) tasks: JoinSet<()>,
}

impl Listeners<'_> {
    pub(crate) fn tcp(
        &mut self,
        (what, option, number): Named,
        front: &Front,
    ) -> Result<Vec<SocketAddr>, String> {
        let mut all = Vec::new();
        for at in addresses(&self.settings.bind, number) {
            let listener =
                listen_tcp(at, self.settings).map_err(|e| port::refused(what, at, &e, option))?;
            all.push(listener.local_addr().map_err(|e| e.to_string())?);
            self.tasks.spawn(accept::tcp(listener, self.shared.clone(), front.clone()));
        }
        Ok(all)
    }
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
    let lists = [
        ("nfs", &running.nfs),
        ("nfs-rdma", &running.nfs_rdma),
        ("smb", &running.smb),
        ("smb-direct", &running.smb_direct),
    ];
    let each = |(name, list): (&'static str, &Vec<SocketAddr>)| {
        let list = list.clone();
        list.into_iter().map(move |at| format!(" {name}={at}"))
    };
    let admin = running.admin.map(|at| format!(" admin={at}"));
    lists.into_iter().flat_map(each).chain(admin).collect()
}

/// Receives of every connection that may be open, over RDMA or TCP, and some reserve.
fn recv_limits(connections: usize) -> PoolLimits {
    let small = usize::from(RPCRDMA_CREDITS + RPCRDMA_CREDITS_REVERSE) + 4;
    PoolLimits { buffers_max: [connections * small, connections * 2, 1] }
}

/// What has to happen although nobody calls: leases end, networks and users come and go.
async fn housekeeping(
    nfs: Arc<Server>,
    smb: Option<(smbd_core::server::Server, Arc<Book>)>,
    smb_at: Vec<SocketAddr>,
    heard: Heard,
) {
    let mut ticks = tokio::time::interval(HOUSEKEEPING);
    let mut networks_at = tokio::time::Instant::now();
    let mut direct_at = Vec::new();
    loop {
        let now = ticks.tick().await;
        nfs.v4().clients.tick().await;
        nfs.nlm().tick().await;
        if let Some((server, book)) = &smb {
            server.tick().await;
            let book = book.clone();
            // What cannot be read is said in the log.
            let _ = tokio::task::spawn_blocking(move || book.refresh()).await;
        }
        let direct_now = heard.at(SMB_DIRECT);
        if now >= networks_at || direct_at != direct_now {
            direct_at = direct_now;
            networks_at = now + Duration::from_secs(NEIGHBOURS_REFRESH_SECONDS);
            nfs.core().neighbours.set(networks::attached());
            if let Some((server, _)) = &smb {
                interfaces::refresh(server, &smb_at, &direct_at);
            }
        }
    }
}
