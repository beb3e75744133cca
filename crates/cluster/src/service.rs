//! A service on this node, from candidature to candidature.
//!
//! *Operation.* Elected, in this order: fence, record, attach, gateway, addresses. Letting go, in this order: addresses, gateway,
//! storage, record with the key `owner`: addresses leave first, so that clients meet silence and then the next owner, and no reset
//! that would make them wait. A gateway that ends by itself is started again here, a few times.
//!
//! *Time.* The lease of the node is renewed all the while ([`crate::lease`]); when its time is over ([`Hold`]), addresses and
//! gateway go at once, whatever step is under way. The gateway is told of each renewal until when it may serve, and ends by itself
//! where this process cannot end it; addresses go by themselves where it cannot remove them ([`crate::lifetime`]).
//!
//! *What does not end.* A gateway or an attachment whose storage hangs may outlive SIGKILL. It is kept, and until it has ended this
//! node neither stands again nor says that it let go: the next owner fences it. A run that was killed may have left as much. Until
//! a gateway of the run after it is ready, which has the state folder then, that one does not say that it let go either; nor ever,
//! in this boot of its machine, where the killed run was attaching storage: `last` says so until that has ended.
//!
//! *Errors.* See [the crate](crate).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::board::{Board, Takeover, Trouble};
use crate::election::{self, Before, Keys, Last, Look, Term, Won};
use crate::etcd::{Change, Entry, Error, Etcd};
use crate::flags::{self, Flag};
use crate::hold::{Hold, now};
use crate::lease::{Lease, Leased};
use crate::lifetime::Renewals;
use crate::node::{self, Gateway};
use crate::outage;
use crate::program::{self, Program, Told};
use crate::registration::{boot, machine};
use crate::tickle::{self, Flow};
use crate::{Connections, Plan, Service, environment};

/// A gateway that ended by itself is started again so often in an epoch.
const RESTARTS_MAX: u32 = 3;
/// How much sooner than its gateway an address leaves, at most. Less than the margin of a [`Hold`].
const ADDRESSES_MAX: Duration = Duration::from_millis(300);
/// How long the list of connections may take to be read: a service is not kept waiting for it.
const CONNECTIONS_MAX: Duration = Duration::from_secs(1);
/// For so long a node that stops tells an etcd that does not answer what it has let go of: no longer than service managers wait.
const TELL_MAX: Duration = Duration::from_secs(20);
/// For so long a node that was chosen and could not serve does not ask for the service: others have it meanwhile.
const FAILED_QUIET: Duration = Duration::from_secs(300);

/// A service for which this node stands.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Arc<Plan>,
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) service: Service,
    pub(crate) keys: Keys,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) board: Arc<Board>,
    /// This node is drained; `None`: that is not known yet.
    pub(crate) drained: watch::Receiver<Option<bool>>,
    pub(crate) leased: Leased,
    pub(crate) renewals: Renewals,
    /// A key of the service has changed that decides who serves it.
    pub(crate) changed: Flag,
    /// Addresses of a run before this one are gone.
    pub(crate) is_cleared: bool,
    /// How many candidatures there were.
    pub(crate) candidatures: u64,
    /// It does not stand before this time ([`now`]).
    pub(crate) stand_from: Duration,
    /// Since when no owner has been seen.
    pub(crate) vacant_since: Option<Duration>,
    /// It does not ask for the service before this time ([`now`]).
    pub(crate) quiet_until: Duration,
    /// What this node has let go of and etcd does not know.
    pub(crate) untold: Option<Untold>,
    /// What this node owned and could not end.
    pub(crate) unended: Option<Unended>,
    /// One reads the list of connections: storage that hangs keeps its thread.
    pub(crate) reader: Arc<Semaphore>,
}

/// The end of an owner that etcd was not told of.
#[derive(Debug)]
pub(crate) struct Untold {
    /// The revision of its key `owner`.
    created: u64,
    /// What it has set `last` to, and what is true now.
    last: Vec<u8>,
    ended: Vec<u8>,
}

/// What is left of an owner that could not let go of all.
#[derive(Debug)]
pub(crate) struct Unended {
    term: Term,
    held: Held,
}

/// What an owner has.
#[derive(Debug, Default)]
struct Held {
    gateway: Option<Gateway>,
    /// Keeps the addresses.
    addresses: JoinSet<()>,
    /// What attaches or detaches the storage, and may still run.
    step: Option<Program>,
    /// Something was attached, be it in part or by a run before this one.
    is_attached: bool,
    /// What names this owner in the key `last`: whoever was before has let go or is fenced.
    last: Option<Vec<u8>>,
    /// A gateway of this node that was not seen to end may still be there.
    has_left: bool,
    /// So may a program that attaches storage, of a run before this one. Nothing here tells when it has ended.
    may_be_attaching: bool,
}

impl Held {
    /// Runs a program to its end; inside, whether that was a good one. One that has not ended in time is kept.
    async fn step(&mut self, words: &[String], told: &Told) -> Result<Result<(), String>, String> {
        let ended = self.step.insert(Program::start(words, told)).ended_in_time().await?;
        self.step = None;
        Ok(ended)
    }

    /// Something that was started has not ended.
    fn runs(&self) -> bool {
        self.gateway.is_some() || self.step.is_some()
    }

    /// What another run of this node has left may not have ended.
    fn is_not_alone(&self) -> bool {
        self.has_left || self.may_be_attaching
    }
}

/// What was done before a gateway could start.
#[derive(Debug, Default)]
struct Prepared {
    /// The owner before, where it had to be fenced.
    fenced: Option<Last>,
    fence: Duration,
    attach: Duration,
}

/// Why an owner lets go.
#[derive(Debug)]
enum End {
    /// It is told to: another node may have it at once.
    HandOver,
    /// It cannot serve it.
    Failed(String),
    /// Its time is over, or etcd names another; which of the two.
    Lost(&'static str),
}

impl Run {
    /// Stands, serves, lets go, and again, until it is told to stop and etcd knows what has ended.
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

    /// Tells etcd that this node has let go of what it owned, where that is not known: the next owner need not fence it.
    async fn tell_end(&self) -> Result<(), Error> {
        match &self.untold {
            // Another owner has changed it meanwhile, and has fenced this node.
            Some(Untold { last, ended, .. }) => {
                self.etcd.replace(&self.keys.last, last, ended).await.map(drop)
            }
            None => Ok(()),
        }
    }

    /// Ends what could not be ended before, as far as that can be done until this node is to stop.
    async fn end_what_is_left(&mut self) {
        let Some(Unended { term, mut held }) = self.unended.take() else { return };
        let mut stop = self.stop.clone();
        let ended = tokio::select! {
            ended = self.let_go(term.epoch, &mut held, None) => ended,
            _ = stop.wait_for(|stop| *stop) => Err("this node stops".into()),
        };
        let (service, epoch) = (&self.service.name, term.epoch);
        if held.runs() {
            let why = ended.err().unwrap_or_default();
            tracing::warn!(service, epoch, "this node does not stand for the service: {why}");
            self.board.note(service, |s| s.trouble = Some(why));
            self.unended = Some(Unended { term, held });
            return;
        }
        match &ended {
            Ok(()) => tracing::info!(service, epoch, "what had not ended has ended"),
            Err(why) => tracing::error!(service, epoch, "has not let go of all: {why}"),
        }
        self.untold = self.untold(term, ended.is_ok(), &mut held);
    }

    /// Takes addresses away that a killed run before this one has left, whose gateways ended with it. Not so while the service is
    /// owned by a run of this node that lives, which needs them.
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

    /// Waits until there is a reason to look again, at most until `until` ([`now`]). `lease` is what the node had at the last look.
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

    /// One look, and what follows from it.
    async fn once(&mut self) -> Result<(), Error> {
        // Before others can be elected, if etcd was away for all.
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
            // Of a candidature whose answer was lost, or not given up in time. Kept, it would keep the service from every node for
            // as long as this one lives.
            let left = left.filter(|left| left.created == owner.created);
            let changes = given_up(&self.keys, left.map(|left| &*left.ended));
            self.etcd.change_while(&self.keys.owner, owner.created, &changes).await?;
            return Ok(());
        }
        if self.unended.is_some() {
            self.end_what_is_left().await;
            if self.unended.is_none() {
                // Said first.
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

    /// Asks another owner for the service where this node was chosen, and takes back what it asked where it would not stand now.
    async fn ask(&self, lease: Lease, look: &Look, is_quiet: bool) -> Result<(), Error> {
        let Self { etcd, keys, .. } = self;
        let node = &*self.plan.node;
        let is_chosen = look.chosen() == Some(node.as_bytes());
        // One of this name has it already: another run, or the one before this, whose lease ends.
        let owner = look.owner.as_ref().map(|owner| election::owner_of(&owner.value));
        let is_owner = owner.as_deref() == Some(node);
        // Not known yet, it neither asks nor takes back.
        let Some(is_drained) = *self.drained.borrow() else { return Ok(()) };
        let waits = is_chosen && !is_owner && !is_quiet && !is_drained;
        match &look.asked {
            None if waits => election::ask(etcd, keys, node, lease).await,
            // Its own, or that of a node which was chosen before: where that has gone, there is news, and this node asks.
            Some(asked) if waits != (asked.value == node.as_bytes()) => {
                election::take_back(etcd, keys, asked).await
            }
            _ => Ok(()),
        }
    }

    /// Stands, where it is this node's turn.
    async fn stand_in_turn(&mut self, lease: Lease, look: Look) -> Result<(), Error> {
        let plan = self.plan.clone();
        let Plan { ttl, ref node, .. } = *plan;
        let since = *self.vacant_since.get_or_insert_with(now);
        if self.unended.is_some() {
            self.news(Some(lease), Some(now() + ttl)).await;
            return Ok(());
        }
        // Not known yet, it does not stand.
        if *self.drained.borrow() != Some(false) {
            self.news(Some(lease), None).await;
            return Ok(());
        }
        let last = look.last.as_ref().and_then(|entry| Last::parse(&entry.value));
        let mut from = self.stand_from;
        if let Some(chosen) = look.chosen().filter(|chosen| *chosen != node.as_bytes())
            // A chosen node that owned it last is dead, drained or stopped, and asks for the service when it is back.
            && last.is_none_or(|last| last.node.as_bytes() != chosen)
        {
            // The other's own chance, and then nobody waits for a node that does not come.
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
                // Whoever is to have it stands first.
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

    /// Says why this node could not serve: to its metrics, and to those who ask etcd.
    async fn failed(&self, why: String) {
        let trouble = Trouble { why: why.clone(), at: seconds() };
        let key = format!("{}{}", self.keys.trouble, self.plan.node);
        let _ = self.etcd.put(&key, &trouble.to_bytes()).await;
        self.board.note(&self.service.name, |s| {
            s.failed += 1;
            s.trouble = Some(why);
        });
    }

    /// Says that this node serves, and what it took, to its metrics and to those who ask etcd. `began`: when it was elected.
    async fn serves(&self, term: Term, prepared: &Prepared, began: Duration) {
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
        // For those who look alone: the service goes on without it.
        let trouble = format!("{}{}", self.keys.trouble, self.plan.node);
        let changes = [Change::Put(&self.keys.takeover, &bytes), Change::Delete(&trouble)];
        let _ = self.etcd.change_while(&self.keys.owner, term.created, &changes).await;
    }

    /// Serves until it must let go, and lets go.
    async fn own(&mut self, won: Won) -> End {
        let Won { term, lease: Lease { id, hold }, last } = won;
        let epoch = term.epoch;
        self.board.note(&self.service.name, |s| (s.epoch, s.hold) = (Some(epoch), Some(hold)));
        let hold = watch::Sender::new(hold);
        let mut held = Held::default();
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
                // The record says no more than is true: while the key lives, nobody else has written there.
                done = self.give_up(term, untold.as_ref().map(|it| &*it.ended)) => done,
                // The key ends with the lease.
                () = self.follow(id, &hold) => false,
            };
        self.untold = untold.filter(|_| !is_given_up);
        self.unended = held.runs().then_some(Unended { term, held });
        end
    }

    /// What etcd is to be told of the end of an owner; nothing where it has not let go of all, or may not be the last of this node.
    fn untold(&self, term: Term, has_let_go: bool, held: &mut Held) -> Option<Untold> {
        let is_known = has_let_go && !held.is_not_alone();
        let last = held.last.take_if(|_| is_known)?;
        let ended = Last { ended: true, ..self.last(term.epoch) }.to_bytes();
        Some(Untold { created: term.created, last, ended })
    }

    /// Deletes the key `owner`, with what `last` says from then on. Tries again for a TTL; false: the next look finds the key.
    async fn give_up(&self, term: Term, ended: Option<&[u8]>) -> bool {
        let changes = given_up(&self.keys, ended);
        let until_it_is = async {
            // Where all services of the node leave at once, the last would wait for longer than that for its turn.
            while let Err(e) =
                self.etcd.change_now_while(&self.keys.owner, term.created, &changes).await
            {
                tracing::warn!(service = self.service.name, "not handed over yet: {e}");
                sleep(self.plan.ttl / 20).await;
            }
        };
        timeout(self.plan.ttl, until_it_is).await.is_ok()
    }

    /// Follows the renewals of the lease until its time is over.
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

    /// All steps to a service that is there, and waiting for its end.
    async fn serve(
        &self,
        (term, last): (Term, Option<Entry>),
        hold: &watch::Sender<Hold>,
        held: &mut Held,
    ) -> End {
        let epoch = term.epoch;
        let began = now();
        let prepared = match self.prepare(term, last, held).await {
            Ok(prepared) => prepared,
            Err(why) => return End::Failed(why),
        };
        let fenced = prepared.fenced.as_ref().map_or(&[][..], |last| &last.hardware);
        // Asked once: from here on this node announces them.
        let mut free = Some(node::free(&self.service.addresses, fenced));
        let mut is_first = true;
        let told = node::told(&self.plan.name, &self.plan.node, &self.service.name, epoch);
        for _ in 0..=RESTARTS_MAX {
            // The next gateway writes its own there.
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
            // It has the state folder, which no other gateway has then.
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
            // Ends with what follows: later this node may not speak for the service.
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
                // Beside them: etcd may take long.
                end = telling_others => return end,
            }
            // Clients wait for less where nobody answers than where there is an address and no server.
            if let Err(why) = node::release(&self.service.addresses, &mut held.addresses).await {
                return End::Failed(why);
            }
        }
        End::Failed("the gateway ends again and again".into())
    }

    /// Those of the gateway before, where what lists them stays at its place.
    async fn connections_kept(&self) -> Vec<Flow> {
        match &self.service.connections {
            Some(Connections::Kept(file)) => self.connections_before(file).await,
            Some(Connections::Brought(_)) | None => Vec::new(),
        }
    }

    /// The connections that the gateway before had, as far as its storage says so in time.
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

    /// Tells the clients of these connections that the owner before is gone, until what it returns is dropped.
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

    /// Fences who was before, says so, and attaches the storage. What that took.
    async fn prepare(
        &self,
        term: Term,
        last: Option<Entry>,
        held: &mut Held,
    ) -> Result<Prepared, String> {
        let epoch = term.epoch;
        let last = match last {
            None => None,
            Some(entry) => Some(Last::parse(&entry.value).ok_or_else(|| {
                format!("the key {} in etcd is not of this program, or of a newer one", entry.key)
            })?),
        };
        let mut prepared = Prepared::default();
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
        // Even where the answer is lost: the owner before has let go or is fenced.
        held.last = Some(mine.clone());
        // Whoever asked for it has it, or asks again.
        let changes = [Change::Put(&self.keys.last, &mine), Change::Delete(&self.keys.asked)];
        let put = self.etcd.change_while(&self.keys.owner, term.created, &changes).await;
        if !put.map_err(|e| e.to_string())? {
            return Err("etcd names another owner meanwhile".into());
        }
        if let Some(attach) = &self.service.attach {
            let told = node::told(&self.plan.name, &self.plan.node, &self.service.name, epoch);
            // Even what fails may have been done in part.
            held.is_attached = true;
            let began = now();
            // What a run that was killed has attached is there already: to attach it again would fail.
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

    /// Says that what attaches the storage has ended. Where that is not heard, `last` says more than is true, which is safe.
    async fn no_longer_attaches(&self, term: Term, held: &mut Held) {
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

    /// Fences an owner; how long that took.
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

    /// Returns when another node is to have the service, or has it.
    async fn told_to_leave(&self, term: Term) -> End {
        loop {
            match election::look(&self.etcd, &self.keys).await {
                // An etcd that was restored from a backup may know the lease of the node, and another owner.
                Ok(look) if look.owner.as_ref().map(|it| it.created) != Some(term.created) => {
                    return End::Lost("etcd does not name this node as the owner any more");
                }
                Ok(look) if look.is_asked_for(&self.plan.node) => return End::HandOver,
                Ok(_) => self.changed.notified().await,
                // Whether etcd answers is the lease's concern.
                Err(_) => sleep(self.plan.ttl / 10).await,
            }
        }
    }

    /// Returns when this node is to serve nothing any more.
    async fn told_to_stop(&self) {
        let (mut stop, mut drained) = (self.stop.clone(), self.drained.clone());
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            // Or the runner that looks has ended: so does all of it.
            _ = drained.wait_for(|drained| *drained == Some(true)) => {}
        }
    }

    /// Addresses first, then the gateway, then the storage. A gateway does not wait for addresses that do not go. `lease`: the one
    /// that gives it time for its sessions; `None`: that is over.
    async fn let_go(&self, epoch: u64, held: &mut Held, lease: Option<u64>) -> Result<(), String> {
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
        // What still has an address does not keep its storage from being detached.
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
            // It may be what ends a program that goes on.
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

/// What gives a service up; `ended` is what `last` says from then on.
fn given_up<'a>(keys: &'a Keys, ended: Option<&'a [u8]>) -> Vec<Change<'a>> {
    let ended = ended.map(|ended| Change::Put(&keys.last, ended));
    ended.into_iter().chain([Change::Delete(&keys.owner)]).collect()
}

/// Seconds since 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
