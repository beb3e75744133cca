//! A service on this node: repeated candidatures, and serving in between.
//!
//! *Operation.* After an election, the order is: fence, record, attach, gateway, addresses. When releasing: addresses, gateway,
//! storage, record with the key `owner`. Addresses leave first, so that clients see silence and then the next owner, and not a
//! reset that would make them wait. A gateway that exits unexpectedly is restarted here a few times.
//!
//! *Time.* The node's lease is renewed throughout ([`crate::lease`]). When the hold is over ([`Hold`]), addresses and gateway are
//! removed at once, whatever step is in progress. The gateway is informed of each renewal and exits on its own if this process
//! cannot end it; addresses expire if this process cannot remove them ([`crate::lifetime`]).
//!
//! *Unfinished ends.* A gateway or an attachment on hanging storage may survive SIGKILL. It is remembered, and until it has ended
//! this node neither campaigns again nor reports a release, so the next owner fences it. A killed run may have left the same. The
//! next run does not report a release until its gateway is ready, which proves that it has the state folder; and never during this
//! boot of the machine if the killed run was attaching storage, which `last` records until attaching has finished.
//!
//! *Errors.* See [the crate](crate).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::board::{Board, Takeover, Trouble};
use crate::election::{self, Before, Keys, Last, Look, Term, WonElection};
use crate::etcd::{Change, Entry, Error, Etcd};
use crate::flags::{self, Flag};
use crate::hold::{Hold, now};
use crate::lease::{Lease, LeaseWatch};
use crate::lifetime::Renewals;
use crate::node::{self, Gateway};
use crate::outage;
use crate::program::{self, Program, ProgramEnvironment};
use crate::registration::{boot, machine};
use crate::tickle::{self, Flow};
use crate::{Connections, Plan, Service, environment};

/// Maximum number of restarts of a gateway in one epoch.
const RESTARTS_MAX: u32 = 3;
/// Maximum time by which an address is removed before its gateway. Less than the margin of a [`Hold`].
const ADDRESSES_MAX: Duration = Duration::from_millis(300);
/// Time limit for reading the list of connections, so that it does not delay the service.
const CONNECTIONS_MAX: Duration = Duration::from_secs(1);
/// Time for which a stopping node tries to report its releases to an unresponsive etcd: at most as long as service managers wait.
const TELL_MAX: Duration = Duration::from_secs(20);
/// Time for which a preferred node that failed to run a service does not request it again; other nodes run it meanwhile.
const FAILED_QUIET: Duration = Duration::from_secs(300);

/// A service for which this node campaigns.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Arc<Plan>,
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) service: Service,
    pub(crate) keys: Keys,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) board: Arc<Board>,
    /// Whether this node is drained; `None`: not yet known.
    pub(crate) drained: watch::Receiver<Option<bool>>,
    pub(crate) leased: LeaseWatch,
    pub(crate) renewals: Renewals,
    /// Raised when a key changes that decides which node runs the service.
    pub(crate) changed: Flag,
    /// Addresses of an earlier run were removed.
    pub(crate) is_cleared: bool,
    /// Number of candidatures.
    pub(crate) candidatures: u64,
    /// Time before which this node does not campaign ([`now`]).
    pub(crate) stand_from: Duration,
    /// Time since which no owner was seen.
    pub(crate) vacant_since: Option<Duration>,
    /// Time before which this node does not request the service ([`now`]).
    pub(crate) quiet_until: Duration,
    /// A release that etcd does not know of.
    pub(crate) untold: Option<UnreportedEnd>,
    /// An ownership that this node could not end.
    pub(crate) unended: Option<UnfinishedEnd>,
    /// Allows one reader of the list of connections: hanging storage blocks its thread.
    pub(crate) reader: Arc<Semaphore>,
}

/// The end of an ownership that was not reported to etcd.
#[derive(Debug)]
pub(crate) struct UnreportedEnd {
    /// Revision of its key `owner`.
    created: u64,
    /// The value that it set `last` to, and the current value.
    last: Vec<u8>,
    ended: Vec<u8>,
}

/// The rest of an ownership that could not be released completely.
#[derive(Debug)]
pub(crate) struct UnfinishedEnd {
    term: Term,
    held: OwnedResources,
}

/// The resources of an owner.
#[derive(Debug, Default)]
struct OwnedResources {
    gateway: Option<Gateway>,
    /// Renews the addresses.
    addresses: JoinSet<()>,
    /// The program that attaches or detaches the storage, which may still run.
    step: Option<Program>,
    /// Storage was attached, possibly only in part or by an earlier run.
    is_attached: bool,
    /// The value of `last` that names this owner, set once the previous owner was released or fenced.
    last: Option<Vec<u8>>,
    /// A gateway of this node whose end was not observed may still run.
    has_left: bool,
    /// A program of an earlier run that attaches storage may still run. Its end cannot be observed here.
    may_be_attaching: bool,
}

impl OwnedResources {
    /// Runs a program to its end; the inner result is whether it succeeded. Keeps a program that did not exit in time.
    async fn step(
        &mut self,
        words: &[String],
        told: &ProgramEnvironment,
    ) -> Result<Result<(), String>, String> {
        let ended = self.step.insert(Program::start(words, told)).ended_in_time().await?;
        self.step = None;
        Ok(ended)
    }

    /// Checks whether a started program has not ended.
    fn runs(&self) -> bool {
        self.gateway.is_some() || self.step.is_some()
    }

    /// Checks whether another run of this node may have left running programs.
    fn is_not_alone(&self) -> bool {
        self.has_left || self.may_be_attaching
    }
}

/// The result of the steps before a gateway starts.
#[derive(Debug, Default)]
struct Preparation {
    /// The previous owner, if it had to be fenced.
    fenced: Option<Last>,
    fence: Duration,
    attach: Duration,
}

/// The reason why an owner releases a service.
#[derive(Debug)]
enum End {
    /// On request: another node may have it at once.
    HandOver,
    /// This node cannot run it.
    Failed(String),
    /// The hold is over, or etcd names another owner; describes which.
    Lost(&'static str),
}

impl Run {
    /// Campaigns, serves and releases repeatedly, until it must stop and etcd knows all releases.
    pub(crate) async fn forever(mut self) {
        let service = self.service.name.clone();
        self.board.note(&service, |_| ());
        while !*self.stop.borrow() {
            if let Err(e) = self.once().await {
                self.board.note(&service, |s| s.trouble = Some(e.to_string()));
                if outage::is_news("candidate", &service) {
                    tracing::warn!(service, "cannot be a candidate for the service: {e}");
                }
                let _ = timeout(self.plan.ttl / 2, self.stop.wait_for(|stop| *stop)).await;
            }
        }
        let until_it_is = async {
            while let Err(e) = self.tell_end().await {
                if outage::is_news("end", &service) {
                    tracing::warn!(
                        service,
                        "etcd does not know yet that the gateway has ended: {e}"
                    );
                }
                sleep(self.plan.ttl / 20).await;
            }
        };
        if timeout(TELL_MAX, until_it_is).await.is_err() {
            tracing::error!(
                service,
                "etcd was not told that the gateway has ended; the next owner will fence this node"
            );
        }
    }

    /// Reports an unreported release to etcd, so that the next owner need not fence this node.
    async fn tell_end(&self) -> Result<(), Error> {
        match &self.untold {
            // Another owner has changed it meanwhile, and has fenced this node.
            Some(UnreportedEnd { last, ended, .. }) => {
                self.etcd.replace(&self.keys.last, last, ended).await.map(drop)
            }
            None => Ok(()),
        }
    }

    /// Tries to end programs that could not be ended before, until this node must stop.
    async fn end_what_is_left(&mut self) {
        let Some(UnfinishedEnd { term, mut held }) = self.unended.take() else { return };
        let mut stop = self.stop.clone();
        let ended = tokio::select! {
            ended = self.let_go(term.epoch, &mut held, None) => ended,
            _ = stop.wait_for(|stop| *stop) => Err("this node stops".into()),
        };
        let (service, epoch) = (&self.service.name, term.epoch);
        if held.runs() {
            let why = ended.err().unwrap_or_default();
            tracing::warn!(service, epoch, "this node is not a candidate for the service: {why}");
            self.board.note(service, |s| s.trouble = Some(why));
            self.unended = Some(UnfinishedEnd { term, held });
            return;
        }
        match &ended {
            Ok(()) => tracing::info!(service, epoch, "what had not ended has ended"),
            Err(why) => tracing::error!(service, epoch, "has not let go of all: {why}"),
        }
        self.untold = self.untold(term, ended.is_ok(), &mut held);
    }

    /// Removes addresses that a killed earlier run left; its gateways ended with it. Does nothing while a live run of this node
    /// owns the service and needs the addresses.
    async fn clear(&mut self, look: &Look) {
        let is_own = |owner: &Entry| election::owner_of(&owner.value) == self.plan.node;
        if self.is_cleared || look.owner.as_ref().is_some_and(is_own) {
            return;
        }
        self.is_cleared = true;
        if let Err(why) = node::release(&self.service.addresses, &mut JoinSet::new()).await {
            let service = &self.service.name;
            tracing::warn!(service, "an address of the service may still be here: {why}");
        }
    }

    /// Waits for a reason to check again, at most until `until` ([`now`]). `lease` is the node's lease at the last check.
    async fn news(&mut self, lease: Option<Lease>, until: Option<Duration>) {
        let Self { changed, stop, drained, leased, .. } = self;
        let id = |lease: &Option<Lease>| lease.map(|lease| lease.id);
        let lease = id(&lease);
        let timed = async {
            match until {
                Some(until) => sleep(until.saturating_sub(now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed.notified() => {}
            _ = stop.wait_for(|stop| *stop) => {}
            _ = drained.changed() => {}
            _ = leased.wait_for(|now| id(now) != lease) => {}
            () = timed => {}
        }
    }

    /// Checks the keys once and acts on them.
    async fn once(&mut self) -> Result<(), Error> {
        // Report first, before others can be elected after an outage of etcd.
        let is_told = self.tell_end().await.is_ok();
        let lease = *self.leased.borrow();
        let Some(lease) = lease else {
            self.news(None, None).await;
            return Ok(());
        };
        flags::lower(&self.changed).await;
        let look = election::look(&self.etcd, &self.keys).await?;
        self.clear(&look).await;
        if now() >= self.quiet_until && self.unended.is_none() {
            self.board.note(&self.service.name, |s| s.trouble = None);
        }
        let left = self.untold.take_if(|_| is_told);
        let left = left.as_ref().or(self.untold.as_ref());
        if let Some(owner) = look.owner.as_ref().filter(|owner| owner.lease == lease.id) {
            // The key remains from a candidature whose reply was lost, or that was not given up in time. It would block the service
            // for every node as long as this one lives.
            let left = left.filter(|left| left.created == owner.created);
            let changes = given_up(&self.keys, left.map(|left| &*left.ended));
            self.etcd.change_while(&self.keys.owner, owner.created, &changes).await?;
            return Ok(());
        }
        if self.unended.is_some() {
            self.end_what_is_left().await;
            if self.unended.is_none() {
                // Report it first.
                return Ok(());
            }
        }
        if look.owner.is_none() {
            return self.stand_in_turn(lease, look).await;
        }
        self.vacant_since = None;
        let is_quiet = now() < self.quiet_until;
        self.ask(lease, &look, is_quiet || self.unended.is_some()).await?;
        let again = self.unended.as_ref().map(|_| now() + self.plan.ttl);
        self.news(Some(lease), again.or(is_quiet.then_some(self.quiet_until))).await;
        Ok(())
    }

    /// Requests the service from another owner if this node is preferred, and withdraws the request if this node would not campaign
    /// now.
    async fn ask(&self, lease: Lease, look: &Look, is_quiet: bool) -> Result<(), Error> {
        let Self { etcd, keys, .. } = self;
        let node = &*self.plan.node;
        let is_chosen = look.chosen() == Some(node.as_bytes());
        // An owner with this node's name is another run, or an earlier one whose lease will end.
        let owner = look.owner.as_ref().map(|owner| election::owner_of(&owner.value));
        let is_owner = owner.as_deref() == Some(node);
        // Neither request nor withdraw until it is known whether the node is drained.
        let Some(is_drained) = *self.drained.borrow() else { return Ok(()) };
        let waits = is_chosen && !is_owner && !is_quiet && !is_drained;
        match &look.asked {
            None if waits => election::ask(etcd, keys, node, lease).await,
            // This node's own request, or the request of a node that was preferred before; when that one withdraws, the keys change
            // and this node requests.
            Some(asked) if waits != (asked.value == node.as_bytes()) => {
                election::take_back(etcd, keys, asked).await
            }
            _ => Ok(()),
        }
    }

    /// Campaigns for the service when this node's place in the order has come.
    async fn stand_in_turn(&mut self, lease: Lease, look: Look) -> Result<(), Error> {
        let plan = self.plan.clone();
        let Plan { ttl, ref node, .. } = *plan;
        let since = *self.vacant_since.get_or_insert_with(now);
        if self.unended.is_some() {
            self.news(Some(lease), Some(now() + ttl)).await;
            return Ok(());
        }
        // Do not campaign until it is known that the node is not drained.
        if *self.drained.borrow() != Some(false) {
            self.news(Some(lease), None).await;
            return Ok(());
        }
        let last = look.last.as_ref().and_then(|entry| Last::parse(&entry.value));
        let mut from = self.stand_from;
        if let Some(chosen) = look.chosen().filter(|chosen| *chosen != node.as_bytes())
            // A preferred node that owned it last is dead, drained or stopped, and requests the service when it is back.
            && last.is_none_or(|last| last.node.as_bytes() != chosen)
        {
            // Give the preferred node a chance, then do not wait for it any longer.
            from = from.max(since + ttl);
        }
        if now() < from {
            self.news(Some(lease), Some(from)).await;
            return Ok(());
        }
        self.candidatures += 1;
        let candidature = (&**node, self.candidatures);
        let Some(won) = election::stand(&self.etcd, &self.keys, candidature, lease).await? else {
            self.news(Some(lease), None).await;
            return Ok(());
        };
        let (service, epoch) = (self.service.name.clone(), won.term.epoch);
        tracing::info!(service, epoch, "elected");
        let back = match self.own(won).await {
            End::HandOver => {
                tracing::info!(service, epoch, "handed over");
                // The preferred node campaigns first.
                ttl
            }
            End::Failed(why) => {
                tracing::error!(service, epoch, "given up, and left to other nodes: {why}");
                self.quiet_until = now() + FAILED_QUIET;
                self.failed(why).await;
                2 * ttl
            }
            End::Lost(why) => {
                self.board.note(&service, |s| s.lost += 1);
                tracing::error!(service, epoch, "lost: {why}");
                ttl
            }
        };
        self.stand_from = now() + back;
        self.vacant_since = None;
        Ok(())
    }

    /// Reports to metrics and etcd why this node could not run the service.
    async fn failed(&self, why: String) {
        let trouble = Trouble { why: why.clone(), at: seconds() };
        let key = format!("{}{}", self.keys.trouble, self.plan.node);
        let _ = self.etcd.put(&key, &trouble.to_bytes()).await;
        self.board.note(&self.service.name, |s| {
            s.failed += 1;
            s.trouble = Some(why);
        });
    }

    /// Reports to metrics and etcd that this node runs the service, and the durations. `began`: time of the election.
    async fn serves(&self, term: Term, prepared: &Preparation, began: Duration) {
        let takeover = Takeover {
            node: self.plan.node.clone(),
            epoch: term.epoch,
            fenced: prepared.fenced.as_ref().map(|last| last.node.clone()),
            at: seconds(),
            fence: prepared.fence,
            attach: prepared.attach,
            total: now().saturating_sub(began),
        };
        let bytes = takeover.to_bytes();
        self.board.note(&self.service.name, |s| {
            s.serves = true;
            s.trouble = None;
            s.takeovers += 1;
            s.last = Some(takeover);
        });
        // Only for information: the service does not depend on it.
        let trouble = format!("{}{}", self.keys.trouble, self.plan.node);
        let changes = [Change::Put(&self.keys.takeover, &bytes), Change::Delete(&trouble)];
        let _ = self.etcd.change_while(&self.keys.owner, term.created, &changes).await;
    }

    /// Runs the service until it must be released, and releases it.
    async fn own(&mut self, won: WonElection) -> End {
        let WonElection { term, lease: Lease { id, hold }, last } = won;
        let epoch = term.epoch;
        self.board.note(&self.service.name, |s| (s.epoch, s.hold) = (Some(epoch), Some(hold)));
        let hold = watch::Sender::new(hold);
        let mut held = OwnedResources::default();
        let end = tokio::select! {
            end = self.serve((term, last), &hold, &mut held) => end,
            () = self.follow(id, &hold) => End::Lost("the lease in etcd was not renewed in time"),
        };
        self.board.note(&self.service.name, |s| {
            (s.epoch, s.hold, s.serves) = (None, None, false);
        });
        let is_in_order = !matches!(end, End::Lost(_));
        let has_let_go = self.let_go(epoch, &mut held, is_in_order.then_some(id)).await;
        if let Err(why) = &has_let_go {
            let service = &self.service.name;
            tracing::error!(
                service,
                epoch,
                "has not let go of all: {why}; the next owner will fence this node"
            );
        }
        let untold = self.untold(term, has_let_go.is_ok(), &mut held);
        let is_given_up = is_in_order
            && tokio::select! {
                // The record is accurate: while the key lives, no other node has written to the storage.
                done = self.give_up(term, untold.as_ref().map(|it| &*it.ended)) => done,
                // The key ends with the lease.
                () = self.follow(id, &hold) => false,
            };
        self.untold = untold.filter(|_| !is_given_up);
        self.unended = held.runs().then_some(UnfinishedEnd { term, held });
        end
    }

    /// Returns the release record for etcd; `None` if the owner has not released everything, or an earlier run of this node might
    /// still hold resources.
    fn untold(
        &self,
        term: Term,
        has_let_go: bool,
        held: &mut OwnedResources,
    ) -> Option<UnreportedEnd> {
        let is_known = has_let_go && !held.is_not_alone();
        let last = held.last.take_if(|_| is_known)?;
        let ended = Last { ended: true, ..self.last(term.epoch) }.to_bytes();
        Some(UnreportedEnd { created: term.created, last, ended })
    }

    /// Deletes the key `owner` and sets `last`. Retries for a TTL; returns false if the next check must handle the key.
    async fn give_up(&self, term: Term, ended: Option<&[u8]>) -> bool {
        let changes = given_up(&self.keys, ended);
        let until_it_is = async {
            // If all services of the node leave at once, the last would wait for longer than that in the queue.
            while let Err(e) =
                self.etcd.change_now_while(&self.keys.owner, term.created, &changes).await
            {
                tracing::warn!(service = self.service.name, "not handed over yet: {e}");
                sleep(self.plan.ttl / 20).await;
            }
        };
        timeout(self.plan.ttl, until_it_is).await.is_ok()
    }

    /// Follows the renewals of the lease until the hold is over.
    async fn follow(&self, lease: u64, hold: &watch::Sender<Hold>) {
        let mut leased = self.leased.clone();
        loop {
            let renewed = leased.borrow_and_update().filter(|now| now.id == lease);
            let Some(Lease { hold: renewed, .. }) = renewed else { return };
            hold.send_replace(renewed);
            self.board.note(&self.service.name, |s| s.hold = s.hold.map(|_| renewed));
            let left = renewed.left(now());
            if left.is_zero() || matches!(timeout(left, leased.changed()).await, Ok(Err(_))) {
                return;
            }
        }
    }

    /// Performs all steps until the service runs, and waits for its end.
    async fn serve(
        &self,
        (term, last): (Term, Option<Entry>),
        hold: &watch::Sender<Hold>,
        held: &mut OwnedResources,
    ) -> End {
        let epoch = term.epoch;
        let began = now();
        let prepared = match self.prepare(term, last, held).await {
            Ok(prepared) => prepared,
            Err(why) => return End::Failed(why),
        };
        let fenced = prepared.fenced.as_ref().map_or(&[][..], |last| &last.hardware);
        // Check only once: from here on this node announces the addresses.
        let mut free = Some(node::free(&self.service.addresses, fenced));
        let mut is_first = true;
        let told = node::told(&self.plan.name, &self.plan.node, &self.service.name, epoch);
        for _ in 0..=RESTARTS_MAX {
            // Read it now, because the next gateway overwrites the list.
            let mut before = self.connections_kept().await;
            let ready = match Gateway::start(&self.service.command, &told, hold.subscribe()) {
                Ok(started) => held.gateway.insert(started).ready(),
                Err(why) => return End::Failed(why),
            };
            let free = async {
                match free.take() {
                    Some(free) => free.await,
                    None => Ok(()),
                }
            };
            let (ready, free) = tokio::select! {
                both = async { tokio::join!(ready, free) } => both,
                () = self.told_to_stop() => return End::HandOver,
            };
            // The gateway has the state folder, so no other gateway does.
            held.has_left &= ready.is_err();
            if let Err(why) = ready.and(free) {
                return End::Failed(why);
            }
            let (until, kept) = (hold.subscribe(), &mut held.addresses);
            let taken = node::take(&self.service.addresses, &until, &self.renewals, kept).await;
            if let Err(why) = taken {
                return End::Failed(why);
            }
            tracing::info!(service = self.service.name, epoch, "serves");
            if let Some(Connections::Brought(file)) = &self.service.connections {
                before = self.connections_before(file).await;
            }
            // Dropped with this scope: later this node may not speak for the service.
            let _telling = self.tell(before);
            let telling_others = async {
                if std::mem::take(&mut is_first) {
                    self.serves(term, &prepared, began).await;
                }
                std::future::pending().await
            };
            let ended = async {
                match &mut held.gateway {
                    Some(gateway) => gateway.ended().await,
                    None => Ok(std::process::ExitStatus::default()),
                }
            };
            tokio::select! {
                ended = ended => {
                    let ended = ended.map_or_else(|e| e.to_string(), |status| status.to_string());
                    tracing::error!(service = self.service.name, epoch, "the gateway ended: {ended}");
                    self.board.note(&self.service.name, |s| s.ended += 1);
                }
                end = self.told_to_leave(term) => return end,
                () = self.told_to_stop() => return End::HandOver,
                // Reported in parallel: etcd may be slow.
                end = telling_others => return end,
            }
            // Clients recover faster from silence than from an address without a server.
            if let Err(why) = node::release(&self.service.addresses, &mut held.addresses).await {
                return End::Failed(why);
            }
        }
        End::Failed("the gateway ends again and again".into())
    }

    /// Returns the connections of the previous gateway if the list is on the service's storage.
    async fn connections_kept(&self) -> Vec<Flow> {
        match &self.service.connections {
            Some(Connections::Kept(file)) => self.connections_before(file).await,
            Some(Connections::Brought(_)) | None => Vec::new(),
        }
    }

    /// Returns the connections of the previous gateway, if the storage delivers the list in time.
    async fn connections_before(&self, file: &Path) -> Vec<Flow> {
        let (file, reader) = (file.to_owned(), self.reader.clone());
        let read = async {
            let reads = reader.acquire_owned().await;
            let read = move || (tickle::read(&file), reads).0;
            tokio::task::spawn_blocking(read).await
        };
        let why = match timeout(CONNECTIONS_MAX, read).await {
            Ok(Ok(Ok(flows))) => return flows,
            Ok(Ok(Err(e))) => e.to_string(),
            Ok(Err(e)) => e.to_string(),
            Err(_) => "its storage does not respond".into(),
        };
        tracing::warn!(
            service = self.service.name,
            "the connections of the previous owner are not known: {why}"
        );
        Vec::new()
    }

    /// Notifies the clients of these connections that the previous owner is gone, until the result is dropped.
    fn tell(&self, flows: Vec<Flow>) -> JoinSet<()> {
        let mut telling = JoinSet::new();
        let connections = flows.len();
        if connections > 0 {
            let addresses = self.service.addresses.iter().map(|address| address.ip).collect();
            let service = self.service.name.clone();
            telling.spawn(async move {
                let segments = tickle::tell(flows, addresses).await;
                tracing::info!(
                    service,
                    connections,
                    segments,
                    "clients were told to connect again"
                );
            });
        }
        telling
    }

    /// Fences the previous owner, records that, and attaches the storage. Returns the durations.
    async fn prepare(
        &self,
        term: Term,
        last: Option<Entry>,
        held: &mut OwnedResources,
    ) -> Result<Preparation, String> {
        let epoch = term.epoch;
        let last = match last {
            None => None,
            Some(entry) => Some(Last::parse(&entry.value).ok_or_else(|| {
                format!("the key {} in etcd is not of this program, or of a newer one", entry.key)
            })?),
        };
        let mut prepared = Preparation::default();
        match Before::of(last, &self.plan.node, &machine()) {
            Before::Gone => {}
            Before::OwnLeft(last) => {
                held.has_left = true;
                held.may_be_attaching = last.attaching == Some(boot());
                held.is_attached = self.service.attach.is_some();
            }
            Before::SameName(last) => {
                return Err(format!(
                    "two nodes are named {}: another machine owned the service in epoch {}; \
                     give each node a name of its own",
                    last.node, last.epoch
                ));
            }
            Before::Fence(last) => {
                prepared.fence = self.fence(&last, epoch).await?;
                prepared.fenced = Some(last);
            }
        }
        let attaching = (self.service.attach.is_some() || held.may_be_attaching).then(boot);
        let mine = Last { attaching, ..self.last(epoch) }.to_bytes();
        // Valid even if the reply is lost: the previous owner was released or fenced.
        held.last = Some(mine.clone());
        // The node that requested it has it, or requests it again.
        let changes = [Change::Put(&self.keys.last, &mine), Change::Delete(&self.keys.asked)];
        let put = self.etcd.change_while(&self.keys.owner, term.created, &changes).await;
        if !put.map_err(|e| e.to_string())? {
            return Err("etcd names another owner meanwhile".into());
        }
        if let Some(attach) = &self.service.attach {
            let told = node::told(&self.plan.name, &self.plan.node, &self.service.name, epoch);
            // Even a failed attachment may be partial.
            held.is_attached = true;
            let began = now();
            // Storage that a killed run attached is still attached; attaching it again would fail.
            if let Some(detach) = self.service.detach.as_ref().filter(|_| held.has_left)
                && let Err(why) = held.step(detach, &told).await?
            {
                tracing::info!(service = self.service.name, epoch, "nothing was attached: {why}");
            }
            let attached = held.step(attach, &told).await?;
            self.no_longer_attaches(term, held).await;
            attached?;
            prepared.attach = now().saturating_sub(began);
        }
        Ok(prepared)
    }

    /// Records that attaching the storage has finished. If the record is lost, `last` claims too much, which is safe.
    async fn no_longer_attaches(&self, term: Term, held: &mut OwnedResources) {
        if held.may_be_attaching {
            return;
        }
        let mine = self.last(term.epoch).to_bytes();
        let changes = [Change::Put(&self.keys.last, &mine)];
        let put = self.etcd.change_while(&self.keys.owner, term.created, &changes).await;
        if matches!(put, Ok(true)) {
            held.last = Some(mine);
        }
    }

    /// Fences an owner; returns the duration.
    async fn fence(&self, last: &Last, epoch: u64) -> Result<Duration, String> {
        let Some(fence) = &self.service.fence else {
            tracing::info!(
                service = self.service.name,
                node = last.node,
                "its storage fences the owner before"
            );
            return Ok(Duration::ZERO);
        };
        let mut told = node::told(&self.plan.name, &self.plan.node, &self.service.name, epoch);
        told.0.push((environment::FENCED_NODE, last.node.clone()));
        told.0.push((environment::FENCED_EPOCH, last.epoch.to_string()));
        let began = now();
        program::run(fence, &told)
            .await
            .map_err(|why| format!("{} cannot be fenced, and may still write: {why}", last.node))?;
        let took = now().saturating_sub(began);
        tracing::info!(service = self.service.name, node = last.node, ?took, "fenced");
        Ok(took)
    }

    /// Returns when another node should have, or has, the service.
    async fn told_to_leave(&self, term: Term) -> End {
        loop {
            match election::look(&self.etcd, &self.keys).await {
                // An etcd restored from a backup may know the node's lease but another owner.
                Ok(look) if look.owner.as_ref().map(|it| it.created) != Some(term.created) => {
                    return End::Lost("etcd does not name this node as the owner any more");
                }
                Ok(look) if look.is_asked_for(&self.plan.node) => return End::HandOver,
                Ok(_) => self.changed.notified().await,
                // The lease handles an unresponsive etcd.
                Err(_) => sleep(self.plan.ttl / 10).await,
            }
        }
    }

    /// Returns when this node must not run any service.
    async fn told_to_stop(&self) {
        let (mut stop, mut drained) = (self.stop.clone(), self.drained.clone());
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            // The runner that checks may also have ended, which ends everything.
            _ = drained.wait_for(|drained| *drained == Some(true)) => {}
        }
    }

    /// Releases addresses first, then the gateway, then the storage. The gateway does not wait for addresses that cannot be
    /// removed. `lease` gives the gateway time for its sessions; `None`: the hold is over.
    async fn let_go(
        &self,
        epoch: u64,
        held: &mut OwnedResources,
        lease: Option<u64>,
    ) -> Result<(), String> {
        let addresses = &self.service.addresses;
        let left = timeout(ADDRESSES_MAX, node::release(addresses, &mut held.addresses)).await;
        let ended = match &mut held.gateway {
            Some(gateway) if self.service.has_sessions => {
                let leased = self.leased.borrow().filter(|now| Some(now.id) == lease);
                gateway.leave(leased.map_or(Duration::ZERO, |it| it.hold.left(now()))).await
            }
            Some(gateway) => gateway.kill().await,
            None => Ok(()),
        };
        // Detach the storage even if an address could not be removed.
        let left = match left {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => node::release(addresses, &mut held.addresses).await,
        };
        ended?;
        held.gateway = None;
        let told = node::told(&self.plan.name, &self.plan.node, &self.service.name, epoch);
        let killed = match &mut held.step {
            Some(step) => step.kill().await,
            None => Ok(()),
        };
        match &self.service.detach {
            // Detaching may end a program that hangs.
            Some(detach) if killed.is_err() => drop(program::run(detach, &told).await),
            Some(detach) if held.is_attached => held.step(detach, &told).await??,
            Some(_) | None => {}
        }
        killed?;
        held.step = None;
        left
    }

    fn last(&self, epoch: u64) -> Last {
        Last {
            node: self.plan.node.clone(),
            machine: machine(),
            epoch,
            ended: false,
            attaching: None,
            hardware: node::hardware_of(&self.service.addresses),
        }
    }
}

/// Returns the changes that give a service up; `ended` is the new value of `last`.
fn given_up<'a>(keys: &'a Keys, ended: Option<&'a [u8]>) -> Vec<Change<'a>> {
    let ended = ended.map(|ended| Change::Put(&keys.last, ended));
    ended.into_iter().chain([Change::Delete(&keys.owner)]).collect()
}

/// Returns the seconds since 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
