//! Decides which node runs which service: each service has one owner, elected through etcd.
//!
//! *Operation.* Start with [`Runner`]. A service is a gateway with its addresses, shares, users and records in one configuration
//! file. Each node runs a [`Runner`], which campaigns for every service that it may own ([`election`]). The elected node
//! fences the previous owner, attaches the storage, starts the gateway and takes the addresses, in this order ([`service`]). The
//! number of the election is the epoch of the service: it only grows, and the gateway refuses records of a newer epoch. etcd
//! decides which node *should* run a service; the fence, which does not depend on clocks, keeps a former owner from writing.
//!
//! A node has one lease for all its services ([`lease`]) and one watch of the cluster's keys ([`flags`]). Each service has a task,
//! which reads its keys when the watch reports a change.
//!
//! *Time.* A node's lease in etcd ends no earlier than its TTL after etcd received the last renewal. The node counts from when it
//! *sent* that renewal and stops a second earlier ([`Hold`]), on a clock that includes sleep.
//!
//! *Memory.* A few kilobytes per service; [`etcd`] limits the size of replies.
//!
//! *Errors.* Failures are logged with the service and a remedy, and retried: a node that cannot fence the previous owner or take an
//! address releases the service, and campaigns again after a pause, behind other nodes.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

mod announce;
pub mod board;
pub mod election;
pub mod etcd;
mod flags;
mod hold;
mod lease;
mod lifetime;
pub mod netlink;
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
use lease::LeaseWatch;
use lifetime::Renewals;
use service::Run;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Number of TTLs after which a watch is renewed on another member, because a frozen member reports no error.
const WATCH_BELIEVED: u32 = 2;

/// The configuration of this node's cluster.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the cluster: the first part of all its keys in etcd.
    pub name: String,
    /// Unique name of this node.
    pub node: String,
    /// Time after which etcd drops an owner that does not renew.
    pub ttl: Duration,
    /// The services of the cluster.
    pub services: Vec<Service>,
}

/// A service, the unit that moves between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Name in the cluster.
    pub name: String,
    /// The gateway that runs it: program and arguments. The gateway prints a line that begins with `headgate ready` when it
    /// listens.
    pub command: Vec<String>,
    /// Addresses that move with it.
    pub addresses: Vec<Address>,
    /// Nodes that may own it; empty: all.
    pub nodes: Vec<String>,
    /// Permanently keeps the previous owner from the storage: program and arguments. `None` if the storage does this itself.
    pub fence: Option<Vec<String>>,
    /// Makes the storage of the service usable on this node: program and arguments; `None` if it always is.
    pub attach: Option<Vec<String>>,
    /// Undoes `attach`.
    pub detach: Option<Vec<String>>,
    /// The list of the previous gateway's connections ([`tickle`]); `None`: no list.
    pub connections: Option<Connections>,
    /// Whether its gateway should end its sessions with the storage when it is stopped normally, on the command [`LEAVE`].
    /// Otherwise the next owner has the storage end them, which takes a second.
    pub has_sessions: bool,
}

/// A file with the connections of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connections {
    /// On the storage of the service: the next gateway overwrites it with its own list.
    Kept(PathBuf),
    /// On this node: the next gateway fetches it before it is ready.
    Brought(PathBuf),
}

/// An address and the device that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    /// Prefix length of the address.
    pub prefix: u8,
    pub device: String,
}

/// Environment variables of the gateway and of the programs `fence`, `attach` and `detach`.
pub mod environment {
    /// The service of a gateway. The gateway exits with the process that started it.
    pub const SERVICE: &str = "HEADGATE_SERVICE";
    /// The epoch of the service, a decimal number.
    pub const EPOCH: &str = "HEADGATE_EPOCH";
    /// In a fence: the node to cut off from the storage.
    pub const FENCED_NODE: &str = "HEADGATE_FENCED_NODE";
    /// In a fence: the epoch in which that node owned the service.
    pub const FENCED_EPOCH: &str = "HEADGATE_FENCED_EPOCH";
    /// The name of this node.
    pub const NODE: &str = "HEADGATE_NODE";
    /// The process that started a gateway.
    pub const PARENT: &str = "HEADGATE_PARENT";
    /// The name of the cluster.
    pub const CLUSTER: &str = "HEADGATE_CLUSTER";
}

/// Line on a gateway's standard input that makes it end its sessions with the storage and then exit, without notifying clients
/// ([`Service::has_sessions`]).
pub const LEAVE: &str = "leave";
/// Time limit for that. If it is exceeded, the next gateway that opens the storage ends the sessions.
pub const LEAVE_MAX: Duration = Duration::from_secs(2);

/// Runs the services of this node.
#[derive(Debug)]
pub struct Runner {
    plan: Arc<Plan>,
    etcd: Arc<etcd::Etcd>,
    board: Arc<board::Board>,
}

impl Runner {
    /// Creates a runner for this plan and etcd.
    pub fn new(plan: Plan, etcd: etcd::Etcd) -> Self {
        Self { plan: Arc::new(plan), etcd: Arc::new(etcd), board: Arc::default() }
    }

    /// Returns the state of its services.
    pub fn board(&self) -> Arc<board::Board> {
        self.board.clone()
    }

    /// Campaigns for all services of this node until `stop` is true; then hands each over. All services have ended when it returns.
    ///
    /// # Errors
    ///
    /// Another machine may be using this node's name; describes the conflict.
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
            // No receiver is left if this node is stopping.
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
            // If the sender is gone, stop as well.
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
        // The lease is not renewed from here on.
        drop(leased);
        if let Some(lease) = lease {
            let _ = self.etcd.revoke(lease).await;
        }
        refused.map_or(Ok(()), Err)
    }

    /// Returns the services that this node may run.
    fn runs(
        &self,
        (leased, renewals): (&LeaseWatch, &Renewals),
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

    /// Checks for all services of this node whether it is drained. Never returns.
    async fn look_whether_drained(
        &self,
        key: &str,
        changed: &Flag,
        drained: &watch::Sender<Option<bool>>,
    ) {
        loop {
            // The lease handles an unresponsive etcd.
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

/// Campaigns for these services once the node is registered; returns when all have ended.
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
