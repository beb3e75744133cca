//! The running daemon: what it is made of, and the order in which its parts begin and end.
//!
//! *Operation.* [`start`] takes the state folder, opens the shares, listens, and returns. Each listener is a task that accepts;
//! each connection is a task that serves it until it ends. [`Running::reload`](crate::reload) goes over to other settings.
//! [`Running::stop`] ends the listeners, then lets the connections answer what they have in work.
//!
//! *Memory.* One pool for payload, of the configured size, and one for receive buffers, so that requests cannot eat the
//! memory that credits promise. Both take memory as it is needed.
//!
//! *Errors.* What stops the start is one line for the user. A connection that fails ends alone, with one line in the log that
//! says why.

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
use crate::boot::{self, Run};
use crate::client_names::{self, Lookup};
use crate::cluster;
use crate::control::ending::{self, Client, Disconnected, What};
use crate::control::files::{self, HeldFiles};
use crate::control::{Order, Orders};
use crate::descriptors::Descriptors;
use crate::listeners::{Listeners, Served, Service, Step};
use crate::pools::{payload, rdma_first, rdma_parts, rdma_recv_limits, recvs};
use crate::servers::Servers;
use crate::shares::{OPEN_MAX, SILENT, ShareSet};
use crate::shutdown::Connections;
use crate::stuck::Stuck;
use crate::tickets::tickets;
use crate::tls::Certificate;
use crate::users::UserDb;
use crate::{greeting, interfaces, logs, networks, portmap, smb, trail, writable};

/// Silent NFSv4 clients may keep this part of the descriptors for files open.
const COURTESY_FILES: usize = 8;
/// How often leases and networks are looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// A gateway that serves. Dropping it ends the listeners; [`Running::stop`] ends everything in order.
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
    /// What it is doing.
    pub(crate) source: SharedSource,
    /// The way to the main loop, and its other end until there is one.
    pub(crate) orders: Orders,
    pub(crate) received: Option<mpsc::Receiver<Order>>,
    pub(crate) logins: Arc<Logins>,
    pub(crate) settings: Settings,
    pub(crate) shares: ShareSet,
    pub(crate) servers: Arc<Servers>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) listeners: Listeners,
    tasks: JoinSet<()>,
    /// Outlives the listeners, so that the end can be watched.
    _admin: JoinSet<()>,
    pub(crate) mapper: portmap::Mapper,
    /// `nfs.portmap` as it was asked for; the settings say what was made of it.
    pub(crate) portmap_asked: Portmap,
    pub(crate) stuck: Arc<Stuck>,
    pub(crate) run: Arc<Run>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({})", self.endpoints())
    }
}

impl Running {
    /// Answers what is in work, then closes everything. False when some requests took longer than `drain` allows.
    pub async fn stop(mut self) -> bool {
        self.drain().await
    }

    /// As [`Running::stop`], and what is left can still be asked for.
    pub(crate) async fn drain(&mut self) -> bool {
        self.tasks.shutdown().await;
        self.listeners.close().await;
        self.mapper.close().await;
        let begun = tokio::time::Instant::now();
        let all_gone = self.shared.connections.drain(self.settings.drain).await;
        // What a connection that is cut leaves waiting for its client is not waited for either.
        let left = self.settings.drain.saturating_sub(begun.elapsed()).max(STOP_MIN);
        let stopped = tokio::time::timeout(left, self.servers.smb.stop()).await.is_ok();
        let in_time = all_gone && stopped;
        if in_time {
            self.servers.nfs.v4().clients.strike_idle().await;
        }
        in_time
    }

    /// What is served. A program around this one may serve shares of backends of its own, until the configuration is loaded again.
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.servers.namespace
    }

    /// For a person on a terminal: each share, and what a client types.
    pub(crate) fn greeting(&self) -> String {
        greeting::lines(&self.settings, &smb::host(), !self.smb.is_empty())
    }

    /// Who holds which file.
    pub async fn held_files(&self) -> HeldFiles {
        files::held(&self.servers).await
    }

    /// Tells it, while everything goes on.
    pub(crate) fn tell_held_files(&self, answer: oneshot::Sender<HeldFiles>) {
        let servers = self.servers.clone();
        tokio::spawn(async move { drop(answer.send(files::held(&servers).await)) });
    }

    /// Closes what is held so; what that was.
    pub async fn close(&self, what: &What) -> HeldFiles {
        ending::close(&self.servers, what).await
    }

    /// Ends a client; what it lost.
    pub async fn disconnect(&self, client: &Client) -> Disconnected {
        ending::disconnect(&self.servers, &self.shared.connections, client).await
    }

    /// As [`Running::close`], while everything goes on: what a client keeps back may be waited for.
    pub(crate) fn close_for(&self, what: What, answer: oneshot::Sender<HeldFiles>) {
        let servers = self.servers.clone();
        tokio::spawn(async move { drop(answer.send(ending::close(&servers, &what).await)) });
    }

    /// As [`Running::disconnect`], while everything goes on.
    pub(crate) fn disconnect_for(&self, client: Client, answer: oneshot::Sender<Disconnected>) {
        let (servers, shared) = (self.servers.clone(), self.shared.clone());
        tokio::spawn(async move {
            let gone = ending::disconnect(&servers, &shared.connections, &client).await;
            // Whoever asked may have gone.
            let _ = answer.send(gone);
        });
    }

    /// Asks every part that all connections share for something: none of them is stuck when this comes back.
    pub(crate) fn pulse(shared: &Shared, servers: &Servers) -> usize {
        let held = servers.namespace.arbiter().state().nodes() + servers.nfs.v4().clients.len();
        held + servers.smb.core().sessions.count() + shared.connections.count()
    }

    /// What it runs by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.connections.count()
    }

    /// Waits until users came or went in the database of users.
    pub async fn users_changed(&self) {
        self.servers.users_changed.notified().await;
    }

    /// Takes the addresses over from the listeners.
    pub(crate) fn note_addresses(&mut self) {
        let served = self.listeners.served();
        self.nfs = served.at(Service::Nfs);
        self.nfs_rdma = served.at(Service::NfsRdma);
        self.smb = served.at(Service::Smb);
        self.smb_direct = served.at(Service::SmbDirect);
        interfaces::refresh(&self.servers.smb, served);
    }

    /// What it listens on, for the line that says that it is ready.
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

/// For what files have to go at a stop there is so much time, also when connections took all that `drain` allows.
const STOP_MIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Removes the streams of files that were removed while no gateway served the share, and what a gateway that ended was about to put
/// in its place.
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
        if let Err(e) = vfs::replace::sweep(share).await {
            tracing::warn!(
                share = share.name,
                error = %e,
                "temporary files of an earlier run in .headgate/new could not be removed"
            )
        }
    }
}

/// Opens the persistent handles of an earlier run again, before anybody can take what they hold.
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

/// Starts to serve. The error is one line for standard error.
pub async fn start(mut settings: Settings) -> Result<Running, String> {
    let portmap_asked = settings.portmap;
    let chosen = portmap::choose(&settings);
    settings.portmap = chosen.how;
    if let Some(why) = chosen.why {
        tracing::info!(how = %chosen.how, "port 111, for NFSv3: {why}");
    }
    // Before the shares are opened, which take of them.
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
    let smb = smb::server(&settings, &run, namespace.clone(), book.clone());
    restore_handles(&smb).await?;
    let shared = shared(&settings, ConnectionLimits::of(&settings, descriptors), lookup.clone())?;
    let fronts = (ProtocolServer::Nfs(nfs.clone()), ProtocolServer::Smb(smb.clone()));
    let mut listeners = Listeners::new(shared.clone(), fronts.0, fronts.1, &settings);
    let with_smb = smb::is_wanted(&settings, !book.is_empty());
    let step = prepare(&mut listeners, &mut settings, portmap_asked, with_smb).await?;
    let spaces = Arc::new(Spaces::default());
    let stuck = Stuck::start();
    stuck.watch(shares.folders());
    writable::watch(&settings, namespace.shares().to_vec());
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
    keep_house(&mut tasks, &servers, &shared, listeners.served());
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
    };
    running.note_addresses();
    Ok(running)
}

/// The shares, with what decides between their clients; what earlier runs left in them is removed beside.
fn namespace_of(settings: &Settings, shares: &ShareSet) -> Arc<Namespace> {
    let arbiter = Arbiter::with_recall(settings.recall);
    let namespace = Namespace::with_arbiter(Vec::new(), arbiter);
    namespace.set_shares(shares.shares());
    tokio::spawn(sweep(shares.shares().to_vec()));
    Arc::new(namespace)
}

/// Listens at what the settings say. Where another program took port 111 since it was tried, it is asked to tell of us instead, and
/// the settings say so.
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

/// What every connection needs.
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
    };
    shared.tls.set(settings.tls.as_ref().map(Certificate::load_in_time).transpose()?);
    Ok(Arc::new(shared))
}

/// Starts what goes on for as long as the gateway serves.
fn background(
    servers: &Arc<Servers>,
    shared: &Shared,
    lookup: Arc<Lookup>,
    spaces: Arc<Spaces>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    // They reclaim as soon as they are told, so what they call is there already.
    tasks.spawn(servers.nfs.nlm().clone().notify_all());
    let watched = servers.namespace.clone();
    tasks.spawn(async move { watched.arbiter().follow_external_changes().await });
    tasks.spawn(spaces.keep(servers.namespace.clone()));
    tasks.spawn(keep_time(servers.nfs.clone()));
    tasks.spawn(client_names::keep(lookup, shared.connections.clone(), servers.smb.clone()));
    tasks
}

/// Who may log on; from here on it is recorded what is done, where that is asked for.
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
    // As long as the host's addresses are not known, everybody may be on it.
    core.source_ports.set_own(networks::ALL.to_vec());
    note_networks(&core);
    let v4 = v4::Options {
        lease: settings.lease,
        grace: settings.grace,
        courtesy: settings.courtesy,
        courtesy_files: vfs::local::descriptors_max() / COURTESY_FILES,
        store: run.store.clone(),
        domain: settings.domain.as_ref().map(|d| Arc::new(v4::Domain::new(&d.0, book))),
        ..v4::Options::default()
    };
    Server::with_v4(core, run.replay_key, v4)
        .map_err(|e| format!("state of version 4 clients: {e}"))
}

/// Tells what this host is attached to, and which addresses are its own; where that cannot be read, it stays as it was.
fn note_networks(core: &ServerState) {
    core.local_subnets.set(networks::attached());
    if let Ok(own) = networks::own() {
        core.source_ports.set_own(own);
    }
}

/// Leases and deadlines do not run while this process does not.
async fn keep_time(nfs: Arc<Server>) {
    let mut beats = tokio::time::interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        let held_up = nfs.core().clock.beat();
        if !held_up.is_zero() {
            tracing::warn!(
                ?held_up,
                "this process was suspended; leases and deadlines are extended by that time"
            );
        }
    }
}

/// Starts what goes on beside the listeners.
fn keep_house(
    tasks: &mut JoinSet<()>,
    servers: &Arc<Servers>,
    shared: &Arc<Shared>,
    served: &Arc<Served>,
) {
    tasks.spawn(housekeeping(servers.clone(), shared.clone(), served.clone()));
    let (servers, served) = (servers.clone(), served.clone());
    tasks.spawn(networks::follow(move || {
        note_networks(servers.nfs.core());
        interfaces::refresh(&servers.smb, &served);
    }));
}

/// What has to happen although nobody calls: leases end, users and listeners come and go.
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
        // What cannot be read is said in the log.
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
