//! Which node serves what: one owner of each service, elected in etcd.
//!
//! *Operation.* A service is a gateway of its own: addresses, shares, users and records, all in one configuration file. Each node
//! runs [`Runner`]; for every service that it may own it stands for election ([`election`]), and whoever is elected fences the
//! owner before it, attaches the storage, starts the gateway, and takes the addresses, in this order ([`service`]). The number
//! of the election is the epoch of the service: it only grows, and the gateway refuses records of a newer one.
//! etcd decides who *should* serve. What keeps a former owner from writing is the fence, which needs no clock.
//!
//! A node has one lease for all that it owns ([`lease`]) and one watch of the cluster's keys ([`flags`]); each service has a task,
//! which looks at its own keys when the watch has seen one of them change.
//!
//! *Time.* A node's lease in etcd ends no sooner than its TTL after the last renewal was received. The node counts from when it
//! *sent* that renewal and stops a second earlier ([`Hold`]), by a clock that goes on while the machine sleeps.
//!
//! *Memory.* A few kilobytes for each service, whatever etcd answers ([`etcd`] has a limit).
//!
//! *Errors.* Whatever cannot be done is told in the log with the service and what to do, and tried again: a node that cannot
//! fence, or cannot take an address, lets go of the service and stands again after a pause, behind others.

mod announce;
pub mod board;
pub mod election;
pub mod etcd;
mod flags;
mod hold;
mod lease;
mod lifetime;
mod node;
mod outage;
mod probe;
mod program;
mod registration;
pub mod service;
pub mod tickle;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use election::Keys;
use flags::{Flag, Flags};
pub use hold::Hold;
use lease::Leased;
use lifetime::Renewals;
use service::Run;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// So many TTLs a watch is believed: a member of etcd that stands still says nothing, and another is asked then.
const WATCH_BELIEVED: u32 = 2;

/// What this node knows of the cluster.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the cluster: the first part of all its keys in etcd.
    pub name: String,
    /// Name of this node, that no other has.
    pub node: String,
    /// How long etcd keeps an owner that does not renew.
    pub ttl: Duration,
    /// The services that some node is to serve.
    pub services: Vec<Service>,
}

/// A service: what moves between nodes as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name in the cluster.
    pub name: String,
    /// The gateway that serves it: program and arguments. It prints a line that begins with `headgate ready` when it listens.
    pub command: Vec<String>,
    /// Addresses that move with it.
    pub addresses: Vec<Address>,
    /// Nodes that may own it; empty: all.
    pub nodes: Vec<String>,
    /// Keeps the owner before from the storage, for ever: program and arguments. `None` where the storage does it itself.
    pub fence: Option<Vec<String>>,
    /// Makes the storage of the service usable here, and lets go of it; `None` where it always is.
    pub attach: Option<Vec<String>>,
    /// Undoes `attach`.
    pub detach: Option<Vec<String>>,
    /// Where it stands which connections the gateway before had ([`tickle`]); `None`: nowhere.
    pub connections: Option<Connections>,
    /// Its gateway has sessions with the storage that are to be ended where it lets go in order: otherwise the next owner has the
    /// storage end them, which takes a second. It is told to by [`LEAVE`].
    pub has_sessions: bool,
}

/// A file that says which connections a gateway had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connections {
    /// On the storage of the service: the next gateway writes its own there.
    Kept(PathBuf),
    /// On this node: the next gateway brings it before it is ready.
    Brought(PathBuf),
}

/// An address with the device that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of its network.
    pub prefix: u8,
    /// The network device.
    pub device: String,
}

/// What programs are told in their environment: the gateway, `fence`, `attach` and `detach`.
pub mod environment {
    /// The service that a gateway serves. It ends with the process that started it.
    pub const SERVICE: &str = "HEADGATE_SERVICE";
    /// The epoch of the service, a decimal number.
    pub const EPOCH: &str = "HEADGATE_EPOCH";
    /// For a fence: the node to keep from the storage.
    pub const FENCED_NODE: &str = "HEADGATE_FENCED_NODE";
    /// For a fence: the epoch in which that node owned the service.
    pub const FENCED_EPOCH: &str = "HEADGATE_FENCED_EPOCH";
    /// This node.
    pub const NODE: &str = "HEADGATE_NODE";
    /// The process that started a gateway.
    pub const PARENT: &str = "HEADGATE_PARENT";
    /// The cluster.
    pub const CLUSTER: &str = "HEADGATE_CLUSTER";
}

/// The line on the standard input of a gateway that has it end its sessions with the storage, and then itself, without a word to
/// clients ([`Service::has_sessions`]).
pub const LEAVE: &str = "leave";
/// How long it may take for that. Where it takes longer, whoever opens the storage next ends the sessions.
pub const LEAVE_MAX: Duration = Duration::from_secs(2);

/// The services of this node.
#[derive(Debug)]
pub struct Runner {
    plan: Arc<Plan>,
    etcd: Arc<etcd::Etcd>,
    board: Arc<board::Board>,
}

impl Runner {
    /// Of this plan, by this etcd.
    pub fn new(plan: Plan, etcd: etcd::Etcd) -> Self {
        Self { plan: Arc::new(plan), etcd: Arc::new(etcd), board: Arc::default() }
    }

    /// What it knows of its services while it runs.
    pub fn board(&self) -> Arc<board::Board> {
        self.board.clone()
    }

    /// Stands for all services of this node until `stop` says true; then hands each over. All have ended when it returns.
    ///
    /// # Errors
    ///
    /// This machine may not be the node whose name it has; why.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), String> {
        let Plan { name, node, ttl, .. } = &*self.plan;
        let leased = lease::keep(self.etcd.clone(), *ttl)
            .map_err(|e| format!("cannot start a thread for the lease: {e}"))?;
        let renewals = Renewals::start()
            .map_err(|e| format!("cannot start a thread for the addresses: {e}"))?;
        let mut flags = Flags::default();
        let drained_key = election::drained(name, node);
        let is_registered_anew = flags.of(&[&registration::key(name, node)]);
        let is_drained_anew = flags.of(&[&drained_key]);
        let (end, drained) = (watch::Sender::new(false), watch::Sender::new(None));
        let runs = self.runs((&leased, &renewals), &mut flags, &end, &drained);
        let (told, is_registered) = oneshot::channel();
        let registered = move || {
            // Nobody waits for it once this node is told to stop.
            let _ = told.send(());
        };
        let registering = registration::keep(
            &self.plan,
            &self.etcd,
            leased.clone(),
            is_registered_anew,
            registered,
        );
        let prefix = format!("/{name}/");
        let following = flags.follow(&self.etcd, &prefix, WATCH_BELIEVED * *ttl);
        let looking = self.look_whether_drained(&drained_key, &is_drained_anew, &drained);
        let serving = serve(runs, is_registered, end.subscribe());
        let stopping = async {
            // Whoever could say so has gone: it is to end as well.
            let _ = stop.wait_for(|stop| *stop).await;
            end.send_replace(true);
            std::future::pending::<()>().await;
        };
        tokio::pin!(serving);
        let refused = tokio::select! {
            () = &mut serving => None,
            why = registering => Some(why),
            () = following => None,
            () = looking => None,
            () = stopping => None,
        };
        if refused.is_some() {
            end.send_replace(true);
            serving.await;
        }
        let lease = leased.borrow().map(|lease| lease.id);
        // It is not renewed from here on.
        drop(leased);
        if let Some(lease) = lease {
            let _ = self.etcd.revoke(lease).await;
        }
        refused.map_or(Ok(()), Err)
    }

    /// The services that this node may serve.
    fn runs(
        &self,
        (leased, renewals): (&Leased, &Renewals),
        flags: &mut Flags,
        end: &watch::Sender<bool>,
        drained: &watch::Sender<Option<bool>>,
    ) -> Vec<Run> {
        let Plan { name, node, services, .. } = &*self.plan;
        let may = |it: &&Service| it.nodes.is_empty() || it.nodes.contains(node);
        let mut runs = Vec::new();
        for service in services.iter().filter(may) {
            let keys = Keys::new(name, &service.name);
            runs.push(Run {
                plan: self.plan.clone(),
                etcd: self.etcd.clone(),
                service: service.clone(),
                changed: flags.of(&[&keys.owner, &keys.wanted, &keys.asked]),
                keys,
                stop: end.subscribe(),
                board: self.board.clone(),
                drained: drained.subscribe(),
                leased: leased.clone(),
                renewals: renewals.clone(),
                is_cleared: false,
                candidatures: 0,
                stand_from: Duration::ZERO,
                quiet_until: Duration::ZERO,
                vacant_since: None,
                untold: None,
                unended: None,
                reader: Arc::new(Semaphore::new(1)),
            });
        }
        runs
    }

    /// Looks whether this node is drained, for all its services at once. It does not return.
    async fn look_whether_drained(
        &self,
        key: &str,
        changed: &Flag,
        drained: &watch::Sender<Option<bool>>,
    ) {
        loop {
            // Whether etcd answers is the lease's concern.
            let Ok(entry) = self.etcd.get(key).await else {
                sleep(self.plan.ttl / 10).await;
                continue;
            };
            drained.send_if_modified(|known| {
                let now = Some(entry.is_some());
                std::mem::replace(known, now) != now
            });
            changed.notified().await;
        }
    }
}

/// Stands for these services from when the node is registered; returns when all have ended.
async fn serve(
    runs: Vec<Run>,
    is_registered: oneshot::Receiver<()>,
    mut stop: watch::Receiver<bool>,
) {
    tokio::select! {
        registered = is_registered => if registered.is_err() { return },
        _ = stop.wait_for(|stop| *stop) => return,
    }
    let mut tasks: JoinSet<()> = runs.into_iter().map(Run::forever).collect();
    while tasks.join_next().await.is_some() {}
}
