//! A service on this node, from candidature to candidature.
//!
//! *Operation.* Elected, in this order: fence, record, attach, gateway, addresses. Letting go, in this order: addresses, gateway,
//! storage, record, lease: addresses leave first, so that clients meet silence and then the next owner, and no reset that would
//! make them wait. A gateway that ends by itself is started again here, a few times.
//!
//! *Time.* The lease is renewed all the while; when its time is over ([`Hold`]), addresses and gateway go at once, whatever
//! step is under way. The gateway is told each time until when it may serve, and ends by itself where this process cannot end it;
//! addresses go by themselves where it cannot remove them ([`crate::lifetime`]).
//!
//! *Errors.* See [the crate](crate).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::board::{Board, Takeover, Trouble};
use crate::election::{self, Before, Keys, Last, Stood, Term, Won};
use crate::etcd::{Error, Etcd};
use crate::hold::{Hold, now};
use crate::node::{self, Gateway};
use crate::registration::machine;
use crate::tickle::{self, Flow};
use crate::{Connections, Plan, Service, environment};

/// A gateway that ended by itself is started again so often in an epoch.
const RESTARTS_MAX: u32 = 3;
/// How much sooner than its gateway an address leaves, at most. Less than the margin of a [`Hold`].
const LEAVE_MAX: Duration = Duration::from_millis(300);
/// So many TTLs a watch is believed: a member of etcd that stands still says nothing, and another is asked then.
const WATCHES: u32 = 2;
/// How long the list of connections may take to be read: a service is not kept waiting for it.
const CONNECTIONS_MAX: Duration = Duration::from_secs(1);
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
    /// It does not ask for the service before this time ([`now`]).
    pub(crate) quiet_until: Duration,
}

/// What an owner has.
#[derive(Debug, Default)]
struct Held {
    gateway: Option<Gateway>,
    /// Keeps the addresses.
    addresses: JoinSet<()>,
    is_attached: bool,
    /// The key `last` names this owner: whoever was before has let go or is fenced.
    is_last: bool,
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
    /// Its time is over, or etcd names another.
    Lost,
}

impl Run {
    /// Stands, serves, lets go, and again, until it is told to stop.
    pub(crate) async fn forever(mut self) {
        let service = self.service.name.clone();
        self.board.note(&service, |_| ());
        self.clear().await;
        while !*self.stop.borrow() {
            let pause = match self.once().await {
                Ok(pause) => pause,
                Err(e) => {
                    self.board.note(&service, |s| s.trouble = Some(e.to_string()));
                    tracing::warn!(service, "cannot be a candidate for the service: {e}");
                    self.plan.ttl / 2
                }
            };
            let _ = timeout(pause, self.stop.wait_for(|stop| *stop)).await;
        }
    }

    /// A run before this one may have been killed: its gateways ended with it, its addresses stayed. Not so while this node owns
    /// the service by a run that lives, which needs them.
    async fn clear(&self) {
        while let Ok(Some(owner)) = self.etcd.get(&self.keys.owner).await
            && election::owner_of(&owner.value) == self.plan.node
        {
            if *self.stop.borrow() {
                return;
            }
            sleep(self.plan.ttl / 5).await;
        }
        if let Err(why) = node::release(&self.service.addresses, &mut JoinSet::new()).await {
            let service = &self.service.name;
            tracing::warn!(service, "an address of the service may still be here: {why}");
        }
    }

    /// One candidature, and what follows; for how long to stand back then.
    async fn once(&mut self) -> Result<Duration, Error> {
        let Plan { ttl, .. } = *self.plan;
        if self.is_elsewhere().await? {
            return Ok(ttl / 5);
        }
        // Most have an owner most of the time: a look costs etcd no write.
        let (entries, seen) = self.etcd.below_at(&self.keys.all).await?;
        let stood = match entries.iter().find(|entry| entry.key == self.keys.owner) {
            Some(owner) => Stood::Other { node: election::owner_of(&owner.value), seen },
            None => election::stand(&self.etcd, &self.keys, &self.plan.node, ttl).await?,
        };
        if now() >= self.quiet_until {
            self.board.note(&self.service.name, |s| s.trouble = None);
        }
        let won = match stood {
            Stood::Won(won) => won,
            Stood::Other { seen, .. } => {
                if now() >= self.quiet_until
                    && self.wanted().await?.is_some_and(|it| it == self.plan.node)
                {
                    election::ask(&self.etcd, &self.keys, &self.plan.node, ttl).await?;
                }
                let mut stop = self.stop.clone();
                tokio::select! {
                    waited = self.etcd.wait(&self.keys.all, seen, WATCHES * ttl) => waited?,
                    _ = stop.wait_for(|stop| *stop) => {}
                }
                return Ok(Duration::ZERO);
            }
        };
        let (service, epoch) = (&self.service.name, won.term.epoch);
        tracing::info!(service, epoch, "elected");
        match self.own(won).await {
            End::HandOver => {
                tracing::info!(service, epoch, "handed over");
                // Whoever is to have it stands first.
                Ok(ttl)
            }
            End::Failed(why) => {
                tracing::error!(service, epoch, "given up, and left to other nodes: {why}");
                self.quiet_until = now() + FAILED_QUIET;
                self.failed(why).await;
                Ok(2 * ttl)
            }
            End::Lost => {
                self.board.note(service, |s| s.lost += 1);
                tracing::error!(service, epoch, "lost: the lease in etcd was not renewed in time");
                Ok(ttl)
            }
        }
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
        let _ =
            self.etcd.put_while(&self.keys.owner, term.created, &self.keys.takeover, &bytes).await;
        let _ = self.etcd.delete(&format!("{}{}", self.keys.trouble, self.plan.node)).await;
    }

    /// This node is drained, or another is chosen and lives.
    async fn is_elsewhere(&self) -> Result<bool, Error> {
        // Not known yet, it does not stand.
        if *self.drained.borrow() != Some(false) {
            return Ok(true);
        }
        let Some(wanted) = self.wanted().await?.filter(|wanted| *wanted != self.plan.node) else {
            return Ok(false);
        };
        if self.etcd.get(&self.keys.owner).await?.is_some() {
            return Ok(false);
        }
        // The chosen node owned it last: it is dead, drained or stopped, and asks for the service when it is back.
        let last = self.etcd.get(&self.keys.last).await?;
        if last.and_then(|it| Last::parse(&it.value)).is_some_and(|last| last.node == wanted) {
            return Ok(false);
        }
        // Its own chance, and then nobody waits for a node that does not come.
        sleep(self.plan.ttl).await;
        Ok(self.etcd.get(&self.keys.owner).await?.is_some())
    }

    /// The node that was chosen.
    async fn wanted(&self) -> Result<Option<String>, Error> {
        let wanted = self.etcd.get(&self.keys.wanted).await?;
        Ok(wanted.map(|entry| String::from_utf8_lossy(&entry.value).into_owned()))
    }

    /// Serves until it must let go, and lets go.
    async fn own(&self, won: Won) -> End {
        let Won { term, lease, hold } = won;
        let epoch = term.epoch;
        self.board.note(&self.service.name, |s| (s.epoch, s.hold) = (Some(epoch), Some(hold)));
        let hold = watch::Sender::new(hold);
        let mut held = Held::default();
        let end = tokio::select! {
            end = self.serve(term, &hold, &mut held) => end,
            () = self.renew(lease, &hold) => End::Lost,
        };
        self.board.note(&self.service.name, |s| {
            (s.epoch, s.hold, s.serves) = (None, None, false);
        });
        let is_last = held.is_last;
        let has_let_go = {
            let mut let_go = std::pin::pin!(self.let_go(epoch, &mut held));
            tokio::select! {
                done = &mut let_go => done,
                // Storage may take longer than a lease to go: whoever is elected meanwhile would fence this node.
                () = self.renew(lease, &hold), if !matches!(end, End::Lost) => let_go.await,
            }
        };
        if let Err(why) = &has_let_go {
            let service = &self.service.name;
            tracing::error!(
                service,
                epoch,
                "has not let go of all: {why}; the next owner will fence this node"
            );
        }
        if !matches!(end, End::Lost) {
            // The record says no more than is true: while this lease lives, nobody else has written there.
            let ended = self.last(epoch, true).to_bytes();
            if has_let_go.is_ok() && is_last {
                let put =
                    self.etcd.put_while(&self.keys.owner, term.created, &self.keys.last, &ended);
                let _ = put.await;
            }
            let _ = self.etcd.revoke(lease).await;
        }
        end
    }

    /// Renews the lease until that does not help any more.
    async fn renew(&self, lease: u64, hold: &watch::Sender<Hold>) {
        let left = || hold.borrow().left(now());
        let mut pause = self.plan.ttl / 3;
        loop {
            if left().is_zero() {
                return;
            }
            sleep(pause.min(left())).await;
            let sent = now();
            match timeout(left(), self.etcd.keep_alive(lease)).await {
                Ok(Ok(true)) => {
                    hold.send_modify(|hold| hold.renewed(sent));
                    let renewed = *hold.borrow();
                    self.board.note(&self.service.name, |s| {
                        s.hold = s.hold.map(|_| renewed);
                    });
                    pause = self.plan.ttl / 3;
                }
                // etcd has ended it: another may be elected already.
                Ok(Ok(false)) => return,
                Ok(Err(e)) => {
                    tracing::warn!(service = self.service.name, "the lease was not renewed: {e}");
                    pause = self.plan.ttl / 20;
                }
                Err(_) => return,
            }
        }
    }

    /// All steps to a service that is there, and waiting for its end.
    async fn serve(&self, term: Term, hold: &watch::Sender<Hold>, held: &mut Held) -> End {
        let epoch = term.epoch;
        let began = now();
        let prepared = match self.prepare(term, held).await {
            Ok(prepared) => prepared,
            Err(why) => return End::Failed(why),
        };
        let fenced = prepared.fenced.as_ref().map_or(&[][..], |last| &last.hardware);
        // Asked once: from here on this node announces them.
        let mut free = Some(node::free(&self.service.addresses, fenced));
        let mut is_first = true;
        let told = node::told(&self.plan.name, &self.plan.node, &self.service.name, epoch);
        for _ in 0..=RESTARTS_MAX {
            let mut before = match &self.service.connections {
                // The next gateway writes its own there.
                Some(Connections::Kept(file)) => self.connections_before(file).await,
                Some(Connections::Brought(_)) | None => Vec::new(),
            };
            let started = Gateway::start(&self.service.command, &told, hold.subscribe());
            let (started, free) = match free.take() {
                Some(free) => tokio::join!(started, free),
                None => (started.await, Ok(())),
            };
            match started {
                Ok(started) => held.gateway = Some(started),
                Err(why) => return End::Failed(why),
            }
            if let Err(why) = free {
                return End::Failed(why);
            }
            match node::take(&self.service.addresses, &hold.subscribe()).await {
                Ok(kept) => held.addresses = kept,
                Err(why) => return End::Failed(why),
            }
            tracing::info!(service = self.service.name, epoch, "serves");
            if let Some(Connections::Brought(file)) = &self.service.connections {
                before = self.connections_before(file).await;
            }
            // Ends with what follows: later this node may not speak for the service.
            let _telling = self.tell(before);
            if std::mem::take(&mut is_first) {
                self.serves(term, &prepared, began).await;
            }
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
                () = self.told_to_leave() => return End::HandOver,
            }
            // Clients wait for less where nobody answers than where there is an address and no server.
            if let Err(why) = node::release(&self.service.addresses, &mut held.addresses).await {
                return End::Failed(why);
            }
        }
        End::Failed("the gateway ends again and again".into())
    }

    /// The connections that the gateway before had, as far as its storage says so in time.
    async fn connections_before(&self, file: &Path) -> Vec<Flow> {
        let file = file.to_owned();
        let read = tokio::task::spawn_blocking(move || tickle::read(&file));
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
    async fn prepare(&self, term: Term, held: &mut Held) -> Result<Prepared, String> {
        let epoch = term.epoch;
        let last = self.etcd.get(&self.keys.last).await.map_err(|e| e.to_string())?;
        let last = match last {
            None => None,
            Some(entry) => Some(Last::parse(&entry.value).ok_or_else(|| {
                format!("the key {} in etcd is not of this program, or of a newer one", entry.key)
            })?),
        };
        let mut prepared = Prepared::default();
        match Before::of(last, &self.plan.node, &machine()) {
            Before::Gone => {}
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
        let mine = self.last(epoch, false).to_bytes();
        let put = self.etcd.put_while(&self.keys.owner, term.created, &self.keys.last, &mine).await;
        if !put.map_err(|e| e.to_string())? {
            return Err("etcd names another owner meanwhile".into());
        }
        held.is_last = true;
        // Whoever asked for it has it, or asks again.
        let _ = self.etcd.delete(&self.keys.asked).await;
        if let Some(attach) = &self.service.attach {
            let told = node::told(&self.plan.name, &self.plan.node, &self.service.name, epoch);
            // Even what failed may have been done in part.
            held.is_attached = true;
            let began = now();
            node::run(attach, &told).await?;
            prepared.attach = now().saturating_sub(began);
        }
        Ok(prepared)
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
        node::run(fence, &told)
            .await
            .map_err(|why| format!("{} cannot be fenced, and may still write: {why}", last.node))?;
        let took = now().saturating_sub(began);
        tracing::info!(service = self.service.name, node = last.node, ?took, "fenced");
        Ok(took)
    }

    /// Another node was chosen, is there and waits; and the revision at which that was so, or was not.
    async fn is_wanted_elsewhere(&self) -> Result<(bool, u64), Error> {
        let (entries, seen) = self.etcd.below_at(&self.keys.all).await?;
        let value = |key: &str| entries.iter().find(|entry| entry.key == key).map(|it| &it.value);
        let wanted = value(&self.keys.wanted).filter(|it| **it != self.plan.node.as_bytes());
        Ok((wanted.is_some() && wanted == value(&self.keys.asked), seen))
    }

    /// Returns when the service is to leave this node.
    async fn told_to_leave(&self) {
        let (mut stop, mut drained) = (self.stop.clone(), self.drained.clone());
        let asked = async {
            loop {
                let waited = match self.is_wanted_elsewhere().await {
                    Ok((true, _)) => return,
                    Ok((false, seen)) => {
                        self.etcd.wait(&self.keys.all, seen, WATCHES * self.plan.ttl).await
                    }
                    Err(e) => Err(e),
                };
                // Whether etcd answers is the lease's concern.
                if waited.is_err() {
                    sleep(self.plan.ttl / 10).await;
                }
            }
        };
        tokio::select! {
            () = asked => {}
            _ = stop.wait_for(|stop| *stop) => {}
            drained = drained.wait_for(|drained| *drained == Some(true)) => {
                // The runner that looks has ended: so does all of it.
                let _ = drained;
            }
        }
    }

    /// Addresses first, then the gateway, then the storage. A gateway does not wait for addresses that do not go.
    async fn let_go(&self, epoch: u64, held: &mut Held) -> Result<(), String> {
        let addresses = &self.service.addresses;
        let left = timeout(LEAVE_MAX, node::release(addresses, &mut held.addresses)).await;
        let ended = match &mut held.gateway {
            Some(gateway) => gateway.kill().await,
            None => Ok(()),
        };
        if !matches!(left, Ok(Ok(()))) {
            node::release(addresses, &mut held.addresses).await?;
        }
        ended?;
        held.gateway = None;
        match &self.service.detach {
            Some(detach) if held.is_attached => {
                let told = node::told(&self.plan.name, &self.plan.node, &self.service.name, epoch);
                node::run(detach, &told).await
            }
            _ => Ok(()),
        }
    }

    fn last(&self, epoch: u64, ended: bool) -> Last {
        let hardware = node::hardware_of(&self.service.addresses);
        Last { node: self.plan.node.clone(), machine: machine(), epoch, ended, hardware }
    }
}

/// Seconds since 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
