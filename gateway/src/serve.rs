//! The running daemon: its parts, and the order in which they start and end.
//!
//! *Operation.* [`start`] locks the state folder, opens the shares, listens, and returns. Each listener is a task that
//! accepts; each connection is a task that serves it until it ends. [`Running::reload`](crate::reload) applies other
//! settings. [`Running::stop`] ends the listeners, then lets the connections answer their requests in work.
//!
//! *Memory.* One pool for payload, of the configured size, and one for receive buffers, so that requests cannot use up the
//! memory that credits promise. Both allocate memory on demand.
//!
//! *Errors.* A failed start is one line for the user. A connection that fails ends without affecting others, with one line in
//! the log that gives the reason.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::{Portmap, Settings};
use iobuf::Pool;
use nfsrdma::clock::{BEAT, Clock};
use nfsrdma::fh::Handles;
use nfsrdma::rpc::gss::Gss;
use nfsrdma::server::Server;
use nfsrdma::server_state::ServerState;
use nfsrdma::v4;
use rdma_transport::traffic_class::TrafficClass;
use smbd_core::restore::NotRestored;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use vfs::arbiter::Arbiter;
use vfs::local::SealKey;
use vfs::namespace::{Namespace, Share};

use crate::accept::{ProtocolServer, Shared};
use crate::admin::actions::Actions;
use crate::admin::logins::Logins;
use crate::admin::snapshot::SharedSource;
use crate::admin::usage::Spaces;
use crate::admin::{self, daemon::Daemon};
use crate::admission::{Admission, ConnectionLimits};
use crate::announce::Announcer;
use crate::boot::{self, Run};
use crate::client_names::{self, Lookup};
use crate::cluster;
use crate::control::ending::{self, Client, Disconnected, What};
use crate::control::files::{self, HeldFiles};
use crate::control::{Order, Orders};
use crate::descriptors::Descriptors;
use crate::domain_service::NfsNames;
use crate::listeners::{Listeners, Served, Service, Step};
use crate::pools::{payload, rdma_first, rdma_parts, rdma_recv_limits, recvs};
use crate::servers::Servers;
use crate::shares::{OPEN_MAX, SILENT, ShareSet};
use crate::shutdown::Connections;
use crate::stuck::Stuck;
use crate::tickets::tickets;
use crate::tls::Certificate;
use crate::users::UserDb;
use crate::{
    greeting, host_name, interfaces, logs, networks, portmap, pulse, smb, trail, wastebasket,
    writable,
};

/// Divisor: silent NFSv4 clients may keep this part of the descriptors for open files.
const COURTESY_FILES: usize = 8;
/// Interval of the checks of leases and networks.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// A running gateway. Dropping it ends the listeners; [`Running::stop`] ends everything in order.
pub struct Running {
    /// Addresses of NFS over TCP.
    pub nfs: Vec<SocketAddr>,
    /// Addresses of NFS over RDMA.
    pub nfs_rdma: Vec<SocketAddr>,
    /// Addresses of SMB over TCP.
    pub smb: Vec<SocketAddr>,
    /// Addresses of SMB Direct.
    pub smb_direct: Vec<SocketAddr>,
    /// Address of health, metrics and status.
    pub admin: Option<SocketAddr>,
    /// Source of the status.
    pub(crate) source: SharedSource,
    /// Orders to the main loop, and their receiver until the loop takes it.
    pub(crate) orders: Orders,
    pub(crate) received: Option<mpsc::Receiver<Order>>,
    pub(crate) logins: Arc<Logins>,
    pub(crate) settings: Settings,
    pub(crate) shares: ShareSet,
    pub(crate) servers: Arc<Servers>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) listeners: Listeners,
    tasks: JoinSet<()>,
    /// Outlives the listeners, so that the end can be observed.
    _admin: JoinSet<()>,
    pub(crate) mapper: portmap::Mapper,
    /// Configured value of `nfs.portmap`; the settings have what it resolved to.
    pub(crate) portmap_asked: Portmap,
    pub(crate) stuck: Arc<Stuck>,
    pub(crate) run: Arc<Run>,
    pub(crate) announcer: Arc<Announcer>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({})", self.endpoints())
    }
}

impl Running {
    /// Answers the requests in work, then closes everything. Returns false if some requests took longer than `drain` allows.
    pub async fn stop(mut self) -> bool {
        self.drain().await
    }

    /// As [`Running::stop`], but the remaining state can still be queried.
    pub(crate) async fn drain(&mut self) -> bool {
        self.tasks.shutdown().await;
        // Before the listeners close: a client that still finds the gateway would be refused.
        self.announcer.close().await;
        self.listeners.close().await;
        self.mapper.close().await;
        // Requests that wait for a rate would take longer than the drain.
        self.servers.namespace.limits.lift();
        let begun = tokio::time::Instant::now();
        let all_gone = self.shared.connections.drain(self.settings.drain).await;
        // Work that a cut connection left for its client is not awaited either.
        let left = self.settings.drain.saturating_sub(begun.elapsed()).max(STOP_MIN);
        let stopped = tokio::time::timeout(left, self.servers.smb.stop()).await.is_ok();
        let in_time = all_gone && stopped;
        if in_time {
            self.servers.nfs.v4().clients.strike_idle().await;
        }
        in_time
    }

    /// Returns the namespace that is served. A program that embeds the gateway may add shares with its own backends, which last
    /// until the configuration is loaded again.
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.servers.namespace
    }

    /// Returns the text for a person on a terminal: each share, and the command that mounts it.
    pub(crate) fn greeting(&self) -> String {
        greeting::lines(&self.settings, &host_name::kernels(), !self.smb.is_empty())
    }

    /// Returns the open files and their holders.
    pub async fn held_files(&self) -> HeldFiles {
        files::held(&self.servers).await
    }

    /// Sends the open files while the gateway continues to serve.
    pub(crate) fn tell_held_files(&self, answer: oneshot::Sender<HeldFiles>) {
        let servers = self.servers.clone();
        tokio::spawn(async move { drop(answer.send(files::held(&servers).await)) });
    }

    /// Closes the open files that match and returns them.
    pub async fn close(&self, what: &What) -> HeldFiles {
        ending::close(&self.servers, what).await
    }

    /// Disconnects a client and returns what it lost.
    pub async fn disconnect(&self, client: &Client) -> Disconnected {
        ending::disconnect(&self.servers, &self.shared.connections, client).await
    }

    /// As [`Running::close`], in a separate task: it may wait for data that a client has cached.
    pub(crate) fn close_for(&self, what: What, answer: oneshot::Sender<HeldFiles>) {
        let servers = self.servers.clone();
        tokio::spawn(async move { drop(answer.send(ending::close(&servers, &what).await)) });
    }

    /// As [`Running::disconnect`], in a separate task.
    pub(crate) fn disconnect_for(&self, client: Client, answer: oneshot::Sender<Disconnected>) {
        let (servers, shared) = (self.servers.clone(), self.shared.clone());
        tokio::spawn(async move {
            let gone = ending::disconnect(&servers, &shared.connections, &client).await;
            // The client that sent the order may have disconnected.
            let _ = answer.send(gone);
        });
    }

    /// Locks every part that all connections share. If this returns, no part is stuck.
    pub(crate) fn pulse(shared: &Shared, servers: &Servers) -> usize {
        let held = servers.namespace.arbiter().state().nodes() + servers.nfs.v4().clients.len();
        held + servers.smb.core().sessions.count() + shared.connections.count()
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.connections.count()
    }

    /// Waits for a notification that the database of users changed.
    pub async fn users_changed(&self) {
        self.servers.users_changed.notified().await;
    }

    /// Returns true if a share waits for names of users and groups.
    pub(crate) fn is_waiting(&self) -> bool {
        self.shares.is_waiting()
    }

    /// Copies the addresses from the listeners.
    pub(crate) fn note_addresses(&mut self) {
        let served = self.listeners.served();
        self.nfs = served.at(Service::Nfs);
        self.nfs_rdma = served.at(Service::NfsRdma);
        self.smb = served.at(Service::Smb);
        self.smb_direct = served.at(Service::SmbDirect);
        interfaces::refresh(&self.servers.smb, served);
        self.announcer.set(&self.settings);
    }

    /// Returns the addresses for the line that reports that the daemon is ready.
    pub fn endpoints(&self) -> String {
        let lists = [
            (Service::Nfs, &self.nfs),
            (Service::NfsRdma, &self.nfs_rdma),
            (Service::Smb, &self.smb),
            (Service::SmbDirect, &self.smb_direct),
        ];
        let each = |(service, list): (Service, &Vec<SocketAddr>)| {
            let list = list.clone();
            list.into_iter().map(move |at| format!(" {}={at}", service.short()))
        };
        let admin = self.admin.map(|at| format!(" admin={at}"));
        lists.into_iter().flat_map(each).chain(admin).collect()
    }
}

/// Time for closing files at a stop, even if connections used all the time that `drain` allows.
const STOP_MIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Removes the streams of files that were deleted while no gateway served the share, and temporary files that an earlier
/// gateway had not yet renamed into place.
pub(crate) async fn sweep(shares: Vec<Arc<Share>>) {
    for share in &shares {
        match vfs::streams::sweep(share).await {
            Ok(0) => {}
            Ok(files) => {
                tracing::info!(share = share.name, files, "removed the streams of deleted files")
            }
            Err(e) => {
                tracing::warn!(share = share.name, error = %e, "the streams of deleted files could not be removed")
            }
        }
        repair_wastebasket(share).await;
        if let Err(e) = vfs::replace::sweep(share).await {
            tracing::warn!(
                share = share.name,
                error = %e,
                "temporary files of an earlier run in .headgate/new could not be removed"
            )
        }
    }
}

/// Completes removals that an earlier run did not complete.
async fn repair_wastebasket(share: &Share) {
    let Some(basket) = share.backend.basket().filter(|_| !share.read_only) else { return };
    let repaired = tokio::task::spawn_blocking(move || basket.repair()).await;
    match repaired.unwrap_or(Err(vfs::VfsError::Io)) {
        Ok(0) => {}
        Ok(files) => {
            tracing::info!(
                share = share.name,
                files,
                "took back removals that an earlier run did not complete"
            )
        }
        Err(e) => {
            tracing::warn!(share = share.name, error = %e, "the wastebasket could not be looked through")
        }
    }
}

/// Reopens the persistent handles of an earlier run before a client can take conflicting ones.
async fn restore_handles(smb: &smbd_core::server::Server) -> Result<(), String> {
    let handles = smb.restore(OPEN_MAX).await.map_err(|why| match why {
        NotRestored::Store(e) => e.to_string(),
        NotRestored::Silent(share) => format!("share {share}: {SILENT}"),
    })?;
    if handles > 0 {
        tracing::info!(handles, "persistent handles wait for their clients");
    }
    Ok(())
}

/// Starts the gateway. An error is one line for standard error.
pub async fn start(mut settings: Settings) -> Result<Running, String> {
    let portmap_asked = settings.portmap;
    let chosen = portmap::choose(&settings);
    settings.portmap = chosen.how;
    if let Some(why) = chosen.why {
        tracing::info!(how = %chosen.how, "port 111, for NFSv3: {why}");
    }
    // Before the shares are opened, which use descriptors.
    let descriptors = Descriptors::raised(&settings);
    let run = Arc::new(boot::take_in_time(&settings)?);
    let book = users(&settings, &run)?;
    let none = ShareSet::sealed(SealKey::derived(&run.handle_key));
    let lookup = Arc::new(Lookup::new(none.client_names()));
    let shares = none.next(&settings, &|name| book.known(name))?;
    lookup.prepare(&settings, HashSet::new).await;
    lookup.settle(&settings);
    let namespace = namespace_of(&settings, &shares);
    let nfs = nfs_server(&settings, &run, namespace.clone(), book.clone())?;
    let smb = smb::server(&settings, (&*run, shares.holders()), namespace.clone(), book.clone());
    restore_handles(&smb).await?;
    let shared = shared(&settings, ConnectionLimits::of(&settings, descriptors), lookup.clone())?;
    let fronts = (ProtocolServer::Nfs(nfs.clone()), ProtocolServer::Smb(smb.clone()));
    let mut listeners = Listeners::new(shared.clone(), fronts.0, fronts.1, &settings);
    let with_smb = smb::is_wanted(&settings, !book.is_empty());
    let step = prepare(&mut listeners, &mut settings, portmap_asked, with_smb).await?;
    shares.limit_sizes()?;
    let (spaces, stuck) = (Arc::<Spaces>::default(), watch_storage(&settings, &shares, &namespace));
    let announcer = Arc::new(Announcer::new(listeners.served().clone(), &run));
    let source: SharedSource = Arc::new(Daemon {
        connections: shared.connections.clone(),
        admission: shared.admission.clone(),
        payload: shared.payload.clone(),
        meters: shared.meters.clone(),
        attempts: shared.attempts.clone(),
        tls: shared.tls.clone(),
        namespace: namespace.clone(),
        nfs: nfs.clone(),
        smb: smb.clone(),
        store: run.store.clone(),
        served: listeners.served().clone(),
        spaces: spaces.clone(),
        stuck: stuck.clone(),
        announced: announcer.board().clone(),
    });
    let ((orders, received), logins) = (Orders::new(), Arc::<Logins>::default());
    let actions = Actions::new(orders.clone(), logins.clone(), book.clone(), run.files.clone());
    let (admin, admin_task) = serve_admin(&settings, &shared, source.clone(), actions).await?;
    listeners.commit(&settings, with_smb, step, &[]).await;
    let servers = Arc::new(Servers { namespace, nfs, smb, book, users_changed: Notify::new() });
    servers.limit(&settings);
    let mapper = portmap::start(&settings, &shared, &servers.nfs, listeners.served()).await?;
    let mut tasks = background(&servers, &shared, lookup, spaces);
    cluster::connections::keep_where_asked(&mut tasks, &shared.connections, run.files.as_ref());
    keep_house(&mut tasks, (&servers, &shared), listeners.served(), &announcer);
    let mut running = Running {
        nfs: Vec::new(),
        nfs_rdma: Vec::new(),
        smb: Vec::new(),
        smb_direct: Vec::new(),
        admin,
        source,
        orders,
        received: Some(received),
        logins,
        settings,
        shares,
        servers,
        shared,
        listeners,
        tasks,
        _admin: admin_task,
        mapper,
        portmap_asked,
        stuck,
        run,
        announcer,
    };
    running.note_addresses();
    Ok(running)
}

/// Returns the namespace with the shares and the arbiter between their clients, and starts to remove leftovers of earlier
/// runs from the shares.
fn namespace_of(settings: &Settings, shares: &ShareSet) -> Arc<Namespace> {
    let arbiter = Arbiter::with_recall(settings.recall);
    let namespace = Namespace::with_arbiter(Vec::new(), arbiter);
    namespace.set_shares(shares.shares());
    tokio::spawn(sweep(shares.shares().to_vec()));
    Arc::new(namespace)
}

/// Opens the listeners of the settings. If another program took port 111 after the check, uses that program to register
/// instead, and records this in the settings.
async fn prepare(
    listeners: &mut Listeners,
    settings: &mut Settings,
    asked: Portmap,
    with_smb: bool,
) -> Result<Step, String> {
    match listeners.prepare(settings, with_smb).await {
        Err(_) if (asked, settings.portmap) == (Portmap::Auto, Portmap::Own) => {
            settings.portmap = Portmap::Register;
            listeners.prepare(settings, with_smb).await
        }
        prepared => prepared,
    }
}

/// Returns the state that every connection needs.
fn shared(
    settings: &Settings,
    most: ConnectionLimits,
    lookup: Arc<Lookup>,
) -> Result<Arc<Shared>, String> {
    let (payload, recvs) = (payload(settings), recvs(settings));
    let shared = Shared {
        payload: payload.clone(),
        recvs: recvs.clone(),
        rdma_recvs: Pool::new(rdma_recv_limits(settings)),
        rdma_receives: rdma_parts(settings),
        rdma_first: rdma_first(settings),
        connections: Arc::new(Connections::default()),
        admission: Admission::new(most, payload, recvs),
        attempts: Arc::default(),
        meters: Arc::default(),
        lookup,
        tls: Arc::default(),
        class: TrafficClass::default(),
    };
    shared.tls.set(settings.tls.as_ref().map(Certificate::load_in_time).transpose()?);
    Ok(Arc::new(shared))
}

/// Starts the tasks that run while the gateway serves.
fn background(
    servers: &Arc<Servers>,
    shared: &Shared,
    lookup: Arc<Lookup>,
    spaces: Arc<Spaces>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    // Clients reclaim right after the notification, so the servers they call must already exist.
    tasks.spawn(servers.nfs.nlm().clone().notify_all());
    let watched = servers.namespace.clone();
    tasks.spawn(async move { watched.arbiter().follow_external_changes().await });
    tasks.spawn(spaces.keep(servers.namespace.clone()));
    tasks.spawn(wastebasket::turns::keep(servers.namespace.clone()));
    tasks.spawn(keep_time(servers.nfs.clone()));
    tasks.spawn(client_names::keep(lookup, shared.connections.clone(), servers.smb.clone()));
    tasks
}

/// Watches the folders of the shares for storage that does not answer, and for files that others may write.
fn watch_storage(settings: &Settings, shares: &ShareSet, namespace: &Namespace) -> Arc<Stuck> {
    let stuck = Stuck::start();
    stuck.watch(shares.folders());
    writable::watch(settings, namespace.shares().to_vec());
    stuck
}

/// Opens the database of users and starts the audit trail, if configured: operations are recorded from here on.
fn users(settings: &Settings, run: &Run) -> Result<Arc<UserDb>, String> {
    let book = Arc::new(UserDb::open(settings, run.files.as_ref())?);
    trail::start(settings.audit.as_ref(), &book)?;
    Ok(book)
}

async fn serve_admin(
    settings: &Settings,
    shared: &Shared,
    source: SharedSource,
    actions: Actions,
) -> Result<(Option<SocketAddr>, JoinSet<()>), String> {
    let mut task = JoinSet::new();
    let Some(listener) = admin::listen(settings.admin).await? else { return Ok((None, task)) };
    let at = listener.local_addr().map_err(|e| e.to_string())?;
    let access = admin::access::Access::new(&settings.admin_clients);
    let tls = shared.tls.clone();
    task.spawn(admin::serve(listener, source, (access, tls), actions));
    Ok((Some(at), task))
}

fn nfs_server(
    settings: &Settings,
    run: &Run,
    namespace: Arc<Namespace>,
    book: Arc<UserDb>,
) -> Result<Arc<Server>, String> {
    let mut core =
        ServerState::new(namespace, Handles::new(run.handle_key), run.boot, Clock::real());
    let kerberos = settings.kerberos.as_ref();
    let accept = kerberos.map(|kerberos| tickets(kerberos, book.clone()));
    core.gss = Gss::new(accept, run.replay_key);
    // Every address may be one of the host's own until those are known.
    core.source_ports.set_own(networks::ALL.to_vec());
    note_networks(&core);
    let v4 = v4::Options {
        lease: settings.lease,
        grace: settings.grace,
        courtesy: settings.courtesy,
        courtesy_files: vfs::local::descriptors_max() / COURTESY_FILES,
        store: run.store.clone(),
        domain: settings.domain.as_ref().map(|domain| {
            let names = NfsNames::new(book, &domain.0);
            Arc::new(v4::Domain::new(&domain.0, Arc::new(names)))
        }),
        ..v4::Options::default()
    };
    Server::with_v4(core, run.replay_key, v4)
        .map_err(|e| format!("state of version 4 clients: {e}"))
}

/// Updates the attached networks and the host's own addresses; keeps the earlier addresses if they cannot be read.
fn note_networks(core: &ServerState) {
    core.local_subnets.set(networks::attached());
    if let Ok(own) = networks::own() {
        core.source_ports.set_own(own);
    }
}

/// Stops the clocks of leases and deadlines while this process is stopped.
async fn keep_time(nfs: Arc<Server>) {
    let mut beats = tokio::time::interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pulse = pulse::Beats::default();
    loop {
        beats.tick().await;
        let held_up = nfs.core().clock.beat();
        // The process may also have run before it was stopped, since the last beat.
        match (held_up.is_zero(), pulse.ran_for(BEAT + held_up / 2)) {
            (true, _) => {}
            (false, true) => tracing::warn!(
                ?held_up,
                "all workers were busy or waited for storage; leases and deadlines are extended by that time"
            ),
            (false, false) => tracing::warn!(
                ?held_up,
                "this process was suspended; leases and deadlines are extended by that time"
            ),
        }
    }
}

/// Starts the periodic tasks.
fn keep_house(
    tasks: &mut JoinSet<()>,
    (servers, shared): (&Arc<Servers>, &Arc<Shared>),
    served: &Arc<Served>,
    announcer: &Arc<Announcer>,
) {
    tasks.spawn(housekeeping(servers.clone(), shared.clone(), served.clone()));
    let (servers, served, announcer) = (servers.clone(), served.clone(), announcer.clone());
    tasks.spawn(networks::follow(move || {
        note_networks(servers.nfs.core());
        interfaces::refresh(&servers.smb, &served);
        announcer.refresh();
    }));
}

/// Does the work that no request triggers: expires leases, and follows changes of users and listeners.
async fn housekeeping(servers: Arc<Servers>, shared: Arc<Shared>, served: Arc<Served>) {
    let Servers { nfs, smb, book, users_changed, .. } = &*servers;
    let mut ticks = tokio::time::interval(HOUSEKEEPING);
    let mut direct_at = Vec::new();
    loop {
        ticks.tick().await;
        nfs.v4().clients.tick().await;
        nfs.nlm().tick().await;
        smb.tick().await;
        let reader = book.clone();
        // Read errors are logged.
        if let Ok(Some(changes)) = tokio::task::spawn_blocking(move || reader.refresh()).await {
            if !changes.is_empty() {
                trail::users(changes);
            }
            nfs.core().gss.forget();
            let taken = smb.reauthorize().await;
            tracing::info!(
                sessions = taken.sessions,
                "ended the sessions of users that have changed"
            );
            users_changed.notify_one();
        }
        let direct_now = served.dialled_at(Service::SmbDirect);
        if direct_at != direct_now {
            direct_at = direct_now;
            interfaces::refresh(smb, &served);
        }
        shared.admission.tell_held_back();
        shared.admission.observe();
        logs::tell_left_out();
    }
}
