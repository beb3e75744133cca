//! Resolves conflicts of an operation with what clients hold: asks `state`, breaks conflicting rights, and waits a limited time for
//! them.
//!
//! *Operation.* [`Arbiter::check_conflicts`] costs one load when no client restricts the node. Otherwise it carries out the
//! verdict: it tells holders through [`Recall`] to give up rights, releases clients whose lease has lapsed, and the request waits
//! at most [`WAIT_MS`] before its caller must retry.
//!
//! *Memory.* At most [`WAITING_MAX`] requests wait at once; further ones fail at once with [`VfsError::Delay`].
//!
//! *Errors.* [`VfsError::Delay`] while a recall is under way, [`VfsError::Locked`] for an access that a share mode or a mandatory
//! lock forbids, [`VfsError::ShareDenied`] for such an open, [`VfsError::Resources`] when a node has the most holders that it may
//! have.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use state::{
    Break, Caching, ClientId, Deadlines, Holder, HolderId, Limits, LockKind, LockVerdict, Millis,
    Name, NodeId, Opening, Operation, Range, Requester, SmbLockRange, Stage, Table, Verdict,
};
use tokio::sync::Notify;

use crate::backend::{BoxFuture, NodeRef};
use crate::error::{VfsError, VfsResult};
use crate::external_watch::ExternalWatch;
use crate::types::DelegatedTimes;

/// How long a request waits for rights to come back before its client must try again. A healthy client on the same network returns
/// a delegation within a few milliseconds.
pub const WAIT_MS: u64 = 100;
/// Largest number of requests that wait at once.
pub const WAITING_MAX: usize = 256;
/// The same limit for requests that wait without a time limit.
pub const PATIENT_MAX: usize = 16_384;
/// Time in which a holder of any kind must return recalled rights, unless the configuration sets another: the time of Windows
/// (MS-SMB2 section 3.3.2.1).
const ACKNOWLEDGE_MS: u64 = 35_000;
/// Steps of one break, each with a separate time limit for the holder.
const STEPS_MAX: u64 = 3;
/// A request keeps trying for this much longer than the last step takes; then the rights have been revoked.
const GRACE_MS: u64 = 10_000;
/// How long after a break on a node no caching is granted for it.
const COOL_MS: u64 = 30_000;
/// Interval at which watches end for nodes that no client caches any more.
const TIDY: Duration = Duration::from_secs(5);
/// Interval at which a request that waits for the end of the grace period checks for it.
const GRACE_LOOK: Duration = Duration::from_millis(50);
/// Largest number of verdicts for one request before its client must try again, so that many lapsed clients cannot delay it for
/// long.
const ROUNDS_MAX: usize = 16;

/// How a request that may wait long informs its client.
pub trait WaitPolicy: Send + Sync {
    /// Called once when the wait begins. An error ends the wait.
    fn begin(&self) -> BoxFuture<'_, VfsResult<()>>;

    /// Completes when the request should be given up.
    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Returns true while waiting still makes sense.
    fn goes_on(&self) -> bool {
        true
    }

    /// Returns true if the request has waited, so that what it read before may be out of date.
    fn has_waited(&self) -> bool {
        true
    }
}

/// Functions of a front end that `state` needs when one of its clients must return rights. Called without any lock.
pub trait Recall: Send + Sync {
    /// Tells the holder to return rights, or that they are gone ([`Stage::Done`]). Must not wait: the holder answers by
    /// [`Arbiter::acknowledge`].
    fn recall(&self, what: &Break);
    /// Takes the rights away after the holder's time ran out, and reports that to `state`.
    fn revoke(&self, what: &Break);
    /// Releases all state of a client durably, because its lease has lapsed and another client wants a file that it holds. A client
    /// that has returned meanwhile keeps its state.
    fn release(&self, client: ClientId) -> BoxFuture<'_, ()>;
    /// Returns true while its clients may still reclaim state from before a restart; no other client may take that state meanwhile.
    fn in_grace(&self) -> bool {
        false
    }
    /// Returns true if the grace period does not end without help: a record that must be written first cannot be stored.
    fn grace_is_stuck(&self) -> bool {
        false
    }
    /// Returns the files below a directory of a share that clients keep open only for their caches, through this share or through
    /// one that overlaps it.
    fn handles_below(&self, share: u32, dir: &NodeRef) -> BoxFuture<'_, VfsResult<Vec<NodeId>>> {
        let _none = (share, dir);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// Returns the directories below the top of a share of which clients cache the listing, through this share or through one that
    /// overlaps it.
    fn listings_below(&self, share: u32, top: &NodeRef) -> BoxFuture<'_, VfsResult<Vec<NodeId>>> {
        let _none = (share, top);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// Returns true if its clients may remove or rename open files: the front end then needs to know where clients of other front
    /// ends move them.
    fn follows_names(&self) -> bool {
        false
    }
    /// Tells the front end that a client of another front end moved this name; files opened by the old name are now at the new one.
    fn renamed<'a>(
        &'a self,
        node: NodeId,
        from: (&'a NodeRef, &'a [u8]),
        to: (&'a NodeRef, &'a [u8]),
    ) -> BoxFuture<'a, ()> {
        let _nothing_open = (node, from, to);
        Box::pin(std::future::ready(()))
    }
    /// Tells the front end that a client of any front end has given a node a further name.
    fn linked(&self, node: NodeId) {
        let _nothing_open = node;
    }
    /// Asks the holder of a write delegation for the state of the file in its cache; `None` when it does not answer.
    fn delegated_attrs(
        &self,
        holder: (ClientId, HolderId),
    ) -> BoxFuture<'_, Option<DelegatedAttrs>> {
        let _unknown = holder;
        Box::pin(std::future::ready(None))
    }
}

/// The file's state reported by the holder of a write delegation (RFC 8881 section 20.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegatedAttrs {
    /// Size in bytes, with data not yet written back.
    pub size: u64,
    /// True if the holder has data not yet written back.
    pub modified: bool,
    /// Times that the holder keeps for the file.
    pub times: DelegatedTimes,
}

type Clock = Box<dyn Fn() -> Millis + Send + Sync>;

/// How often requests had to wait, and how that ended.
#[derive(Debug, Default)]
pub struct Counters {
    /// Breaks that were started.
    pub recalls: AtomicU64,
    /// Holders whose time ran out.
    pub revocations: AtomicU64,
    /// Requests that waited for rights to come back.
    pub waits: AtomicU64,
    /// Requests that failed with [`VfsError::Delay`], so that their clients retry.
    pub delays: AtomicU64,
    /// Accesses and opens refused by a share mode or lock.
    pub denials: AtomicU64,
    /// Requests to holders of write delegations for size and times.
    pub asked: AtomicU64,
}

/// Asks `state` for verdicts and carries them out.
pub struct Arbiter {
    state: Table,
    /// The front end whose clients have leases, and the front end whose opens and leases have separate keys.
    clients: OnceLock<Arc<dyn Recall>>,
    keys: OnceLock<Arc<dyn Recall>>,
    clock: OnceLock<Clock>,
    external_watch: ExternalWatch,
    returned: Notify,
    waiting: AtomicUsize,
    patient: AtomicUsize,
    /// Of the clock that tests pause: it must run with the timers of those who wait for a deadline.
    start: tokio::time::Instant,
    pub counters: Counters,
}

impl Default for Arbiter {
    fn default() -> Self {
        Self::with_recall(Duration::from_millis(ACKNOWLEDGE_MS))
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Denied(HolderId),
    Delay,
    Full,
    Cancelled(VfsError),
}

impl Refusal {
    fn error(self, denied: VfsError) -> VfsError {
        match self {
            Self::Denied(_) => denied,
            Self::Delay => VfsError::Delay,
            Self::Full => VfsError::Resources,
            Self::Cancelled(why) => why,
        }
    }
}

impl Arbiter {
    /// Creates an arbiter with an empty table; holders have this long to return rights that another client wants.
    pub fn with_recall(time: Duration) -> Self {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 8).clamp(1, u64::MAX / 8);
        // Invariant: a positive number multiplied by at least three is larger.
        #[allow(clippy::expect_used)]
        let deadlines =
            Deadlines::new(time, STEPS_MAX * time + GRACE_MS).expect("waiting is longer");
        Self::new(Table::new(deadlines, Limits::default(), COOL_MS))
    }

    /// Creates an arbiter for this table.
    pub fn new(state: Table) -> Self {
        Self {
            state,
            clients: OnceLock::new(),
            keys: OnceLock::new(),
            clock: OnceLock::new(),
            external_watch: ExternalWatch::default(),
            returned: Notify::new(),
            waiting: AtomicUsize::new(0),
            patient: AtomicUsize::new(0),
            start: tokio::time::Instant::now(),
            counters: Counters::default(),
        }
    }

    pub fn state(&self) -> &Table {
        &self.state
    }

    /// Registers the front end whose clients hold state by leases, and the clock of these leases. False when one is registered
    /// already.
    pub fn attach(
        &self,
        recall: Arc<dyn Recall>,
        clock: impl Fn() -> Millis + Send + Sync + 'static,
    ) -> bool {
        let joined = self.clients.set(recall).is_ok();
        if joined {
            // The clock comes with its front end, so it cannot be set yet.
            let _ = self.clock.set(Box::new(clock));
        }
        joined
    }

    /// Registers the front end whose opens have separate keys ([`ClientId::is_key`]). False when one is registered already.
    pub fn attach_keys(&self, recall: Arc<dyn Recall>) -> bool {
        self.keys.set(recall).is_ok()
    }

    /// Returns true while clients of any protocol may still reclaim state from before a restart.
    pub fn in_grace(&self) -> bool {
        [&self.clients, &self.keys].iter().any(|f| f.get().is_some_and(|f| f.in_grace()))
    }

    fn grace_is_stuck(&self) -> bool {
        [&self.clients, &self.keys].iter().any(|f| f.get().is_some_and(|f| f.grace_is_stuck()))
    }

    /// Waits for the end of the grace period, before a caller takes a right that another client may reclaim. [`VfsError::Delay`]
    /// for a caller without a [`WaitPolicy`], [`VfsError::Resources`] if the period does not end without help.
    pub async fn after_grace(&self, wait_policy: Option<&dyn WaitPolicy>) -> VfsResult<()> {
        if !self.in_grace() {
            return Ok(());
        }
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        let place = wait_policy.and_then(|p| Some((p, self.place(true)?)));
        let Some((wait_policy, _place)) = place else {
            self.counters.delays.fetch_add(1, Ordering::Relaxed);
            return Err(VfsError::Delay);
        };
        wait_policy.begin().await?;
        while self.in_grace() {
            if self.grace_is_stuck() {
                return Err(VfsError::Resources);
            }
            tokio::select! {
                () = tokio::time::sleep(GRACE_LOOK) => {}
                () = wait_policy.ended() => return Err(VfsError::Cancelled),
            }
        }
        Ok(())
    }

    /// Returns the attributes of a node that the holder of a write delegation keeps; `None` without such a holder. A holder that
    /// does not answer in time must return the delegation, and the call waits for that as for any holder.
    pub async fn delegated_attrs(
        &self,
        node: NodeId,
        requester: Option<Requester>,
        wait_policy: Option<&dyn WaitPolicy>,
    ) -> VfsResult<Option<DelegatedAttrs>> {
        let by = requester.map(|w| w.key());
        let Some(holder) = self.state.keeps_back(node, by) else { return Ok(None) };
        // Boxed like every wait: otherwise each read of attributes would carry room for this future.
        Box::pin(self.ask_for_attrs(holder, node, requester, wait_policy)).await
    }

    async fn ask_for_attrs(
        &self,
        holder: (ClientId, HolderId),
        node: NodeId,
        requester: Option<Requester>,
        wait_policy: Option<&dyn WaitPolicy>,
    ) -> VfsResult<Option<DelegatedAttrs>> {
        self.counters.asked.fetch_add(1, Ordering::Relaxed);
        let said = async { self.front(holder.0)?.delegated_attrs(holder).await };
        match tokio::time::timeout(Duration::from_millis(WAIT_MS), said).await {
            Ok(Some(kept)) => Ok(Some(kept)),
            Ok(None) | Err(_) => {
                let all = (Operation::Attributes, Range::ALL);
                self.check_conflicts_waiting(node, requester, all.0, all.1, wait_policy).await?;
                Ok(None)
            }
        }
    }

    /// Called before other clients' locks are read. The holder of a write delegation may have locked locally, so it must return the
    /// delegation with its locks (RFC 8881 section 10.4.2).
    pub async fn locks_known(&self, node: NodeId, requester: Option<Requester>) -> VfsResult<()> {
        match self.state.keeps_back(node, requester.map(|w| w.key())) {
            Some(_) => {
                self.check_conflicts(node, requester, Operation::Attributes, Range::ALL).await
            }
            None => Ok(()),
        }
    }

    fn front(&self, client: ClientId) -> Option<&Arc<dyn Recall>> {
        if client.is_key() { self.keys.get() } else { self.clients.get() }
    }

    /// Milliseconds on the clock of the leases.
    pub fn now(&self) -> Millis {
        match self.clock.get() {
            Some(clock) => clock(),
            None => u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Checks for conflicts before an access, and waits a short time for rights that must come back first.
    pub async fn check_conflicts(
        &self,
        node: NodeId,
        requester: Option<Requester>,
        op: Operation,
        range: Range,
    ) -> VfsResult<()> {
        self.check_conflicts_waiting(node, requester, op, range, None).await
    }

    /// Returns true if no conflict exists and the access can proceed.
    pub(crate) fn passes(
        &self,
        node: NodeId,
        requester: Option<Requester>,
        op: Operation,
        range: Range,
    ) -> bool {
        // Fast path: no conflict, so skip the clock read.
        let passes = !self.state.is_used() || self.state.is_free(node, requester, op, range);
        if passes {
            self.had_turn(node, requester.map(|w| w.client), &[op]);
        }
        passes
    }

    /// Like [`Arbiter::check_conflicts`], without a time limit.
    pub async fn check_conflicts_waiting(
        &self,
        node: NodeId,
        requester: Option<Requester>,
        op: Operation,
        range: Range,
        wait_policy: Option<&dyn WaitPolicy>,
    ) -> VfsResult<()> {
        if self.passes(node, requester, op, range) {
            return Ok(());
        }
        let client = requester.map(|w| w.client);
        let denied = if op == Operation::Names { VfsError::InUse } else { VfsError::Locked };
        let ask = |now| self.state.check_conflicts(node, requester, op, range, now);
        let done = Box::pin(self.settle(ask, wait_policy)).await;
        self.note_turn(node, client, &[op], done);
        done.map_err(|why| why.error(denied))
    }

    /// Recalls cached handles before a directory is renamed: a client that caches the handle of a file below it would keep using
    /// the old path. It notifies all holders before the first wait.
    pub async fn check_moved(
        &self,
        share: u32,
        dir: &NodeRef,
        requester: Option<Requester>,
        wait_policy: Option<&dyn WaitPolicy>,
    ) -> VfsResult<()> {
        let Some(front) = self.keys.get() else { return Ok(()) };
        let below = front.handles_below(share, dir).await?;
        for node in &below {
            self.tell(*node, requester, Operation::Handles);
        }
        for node in below {
            self.check_conflicts_waiting(
                node,
                requester,
                Operation::Handles,
                Range::ALL,
                wait_policy,
            )
            .await?;
        }
        Ok(())
    }

    /// Reports that all listings of a share may have changed. Clients that cache only names, as those of NFS do, need no notice.
    pub(crate) async fn listings_changed(&self, share: u32, top: &NodeRef) -> VfsResult<()> {
        self.tell(top.id(), None, Operation::Contents);
        let Some(front) = self.keys.get() else { return Ok(()) };
        for node in front.listings_below(share, top).await? {
            self.tell(node, None, Operation::Contents);
        }
        Ok(())
    }

    /// Opens a node for a holder, or widens what it has open.
    pub async fn open(
        &self,
        node: NodeId,
        party: &Holder,
        how: impl Into<Opening>,
    ) -> VfsResult<()> {
        self.open_waiting(node, party, how.into(), None).await
    }

    /// Like [`Arbiter::open`], without a time limit.
    pub async fn open_waiting(
        &self,
        node: NodeId,
        party: &Holder,
        how: Opening,
        wait_policy: Option<&dyn WaitPolicy>,
    ) -> VfsResult<()> {
        let done = self.settle(|now| self.state.open(node, party, how, now), wait_policy).await;
        // The open may wait for a cached handle as well, whose share mode conflicts with it.
        let ops = [how.operation(), Operation::Handles];
        self.note_turn(node, Some(party.client()), &ops, done);
        done.map_err(|why| why.error(VfsError::ShareDenied))
    }

    /// Gives a client that must retry a turn, and ends the turn of one that proceeds.
    fn note_turn(
        &self,
        node: NodeId,
        client: Option<ClientId>,
        ops: &[Operation],
        done: Result<(), Refusal>,
    ) {
        match done {
            Ok(()) => self.had_turn(node, client, ops),
            Err(Refusal::Delay) => {
                let now = self.now();
                ops.iter().for_each(|op| self.state.sent_away(node, client, *op, now));
            }
            Err(_) => {}
        }
    }

    /// Costs one load while no client has a turn to come.
    fn had_turn(&self, node: NodeId, client: Option<ClientId>, ops: &[Operation]) {
        if self.state.has_turns(node) {
            let now = self.now();
            ops.iter().for_each(|op| self.state.had_turn(node, client, *op, now));
        }
    }

    /// Locks bytes for an SMB open. With `wait_policy` it waits until they are free, for as long as its caller wants; without it
    /// fails at once with [`VfsError::Locked`].
    pub async fn lock(
        &self,
        node: NodeId,
        party: &Holder,
        lock_range: SmbLockRange,
        kind: LockKind,
        wait_policy: Option<&dyn WaitPolicy>,
    ) -> VfsResult<()> {
        let mut place = None;
        let mut rounds = 0;
        loop {
            let mut returned = std::pin::pin!(self.returned.notified());
            returned.as_mut().enable();
            match self.state.lock_smb(node, party, lock_range, kind, self.now()) {
                LockVerdict::Go => return Ok(()),
                LockVerdict::Full(_) => return Err(VfsError::Resources),
                LockVerdict::Lapsed(clients) if rounds < ROUNDS_MAX => {
                    rounds += 1;
                    self.release(&clients).await;
                }
                // These clients cannot be released now, so their locks still count.
                LockVerdict::Lapsed(_) => return Err(VfsError::Locked),
                LockVerdict::Denied(_) => {
                    let Some(wait_policy) = wait_policy else {
                        self.counters.denials.fetch_add(1, Ordering::Relaxed);
                        return Err(VfsError::Locked);
                    };
                    if place.is_none() {
                        place = Some(self.place(true).ok_or(VfsError::Locked)?);
                        self.counters.waits.fetch_add(1, Ordering::Relaxed);
                        wait_policy.begin().await?;
                    }
                    if !wait_policy.goes_on() {
                        return Err(VfsError::Cancelled);
                    }
                    returned.await;
                }
            }
        }
    }

    /// Releases a lock of an SMB open. False when no lock of exactly this range is held.
    pub fn unlock(&self, node: NodeId, party: &Holder, lock_range: SmbLockRange) -> bool {
        let held = self.state.unlock_smb(node, party, lock_range);
        self.returned.notify_waiters();
        held
    }

    /// Releases the lock of this range and kind that [`Arbiter::lock`] granted last. False when no such lock exists.
    pub fn undo_lock(
        &self,
        node: NodeId,
        party: &Holder,
        lock_range: SmbLockRange,
        kind: LockKind,
    ) -> bool {
        let held = self.state.undo_smb(node, party, lock_range, kind);
        self.returned.notify_waiters();
        held
    }

    /// Records that a holder keeps `to` and returns the rest of its caching. False when it has none.
    pub fn acknowledge(&self, node: NodeId, holder: HolderId, to: Caching) -> bool {
        let done = self.state.acknowledge(node, holder, to, self.now());
        if let Some(next) = done.next {
            self.pursue(&[next]);
        }
        self.returned.notify_waiters();
        done.held
    }

    /// Like [`Arbiter::acknowledge`], for a front end that itself tells the holder of the next step.
    pub fn acknowledged(&self, node: NodeId, holder: HolderId, to: Caching) -> Option<Break> {
        let done = self.state.acknowledge(node, holder, to, self.now());
        self.returned.notify_waiters();
        done.next
    }

    /// Takes the caching of a holder away that did not return it in time. False when this break is over.
    pub fn revoke(&self, what: &Break) -> bool {
        let revoked = self.state.revoke(what, self.now());
        self.returned.notify_waiters();
        revoked
    }

    /// Releases everything that a holder has of a node.
    pub fn close(&self, node: NodeId, holder: HolderId) {
        self.state.release(node, holder);
        self.returned.notify_waiters();
    }

    /// As [`Arbiter::close`], by the holder's own client: an answer to a break of its caching.
    pub fn give_back(&self, node: NodeId, holder: HolderId) {
        self.state.give_back(node, holder, self.now());
        self.returned.notify_waiters();
    }

    /// Wakes waiting requests after a release other than an acknowledgement.
    pub fn released(&self) {
        self.returned.notify_waiters();
    }

    /// Completes when rights are released after this was enabled. It serves callers that ask `state` themselves.
    pub fn returned(&self) -> tokio::sync::futures::Notified<'_> {
        self.returned.notified()
    }

    /// Sets the names of a node that wait to be removed, in place of the earlier ones.
    pub fn set_pending_deletes(&self, node: NodeId, names: Vec<Name>) {
        self.state.set_pending_deletes(node, names);
        self.returned.notify_waiters();
    }

    /// Called before a client whose protocol knows no pending delete opens a file, or changes it without an open: waits briefly for
    /// a name with a pending delete; fails with [`VfsError::InUse`] if the name is still there. True when it had to wait: earlier
    /// lookups may be out of date. `name`: the directory and the name by which the file was found; `links`: the number of its
    /// names.
    pub async fn after_delete(
        &self,
        node: NodeId,
        name: Option<(NodeId, &[u8])>,
        links: u32,
    ) -> VfsResult<bool> {
        if !self.state.is_delete_pending(node, name, links) {
            return Ok(false);
        }
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        let until = Instant::now() + Duration::from_millis(WAIT_MS);
        let place = self.place(false);
        while place.is_some() {
            // Enabled before the question, so that a release between the two is not missed.
            let mut returned = std::pin::pin!(self.returned.notified());
            returned.as_mut().enable();
            if !self.state.is_delete_pending(node, name, links) {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let _ = tokio::time::timeout(left, returned).await;
        }
        self.counters.denials.fetch_add(1, Ordering::Relaxed);
        Err(VfsError::InUse)
    }

    /// Returns true if the protocol that removes files by name must learn of renamed ones, because the file may be open or wait for
    /// removal.
    pub(crate) fn follows_names(&self) -> bool {
        self.state.pending_deletes() > 0 || self.keys.get().is_some_and(|f| f.follows_names())
    }

    /// Tells the protocol that may remove a file by name that the name was changed.
    pub(crate) async fn renamed(
        &self,
        node: NodeId,
        from: (&NodeRef, &[u8]),
        to: (&NodeRef, &[u8]),
    ) {
        if let Some(front) = self.keys.get() {
            front.renamed(node, from, to).await;
        }
    }

    /// Tells the protocol that may remove a file by name that the node has a further name.
    pub(crate) fn linked(&self, node: NodeId) {
        if let Some(front) = self.keys.get() {
            front.linked(node);
        }
    }

    /// Releases clients whose lease has lapsed, for a caller that asks `state` itself.
    pub async fn release(&self, clients: &[ClientId]) {
        for client in clients {
            if let Some(front) = self.front(*client) {
                front.release(*client).await;
            }
        }
    }

    /// Watches a node that a client now caches for changes by other processes of this host. False when the kernel does not report
    /// them.
    pub fn watch_external(&self, node: &NodeRef) -> bool {
        self.external_watch.add(node)
    }

    /// Returns true if no node is watched.
    pub(crate) fn has_no_external_watch(&self) -> bool {
        self.external_watch.is_empty()
    }

    /// Ends the watch of a node that lost its last name.
    pub(crate) fn end_external_watch(&self, node: NodeId) {
        self.external_watch.forget(node);
    }

    /// Tells clients that cache a node about changes by other processes; never returns. Run once for all protocols.
    pub async fn follow_external_changes(&self) {
        let mut tidy = tokio::time::interval(TIDY);
        loop {
            tokio::select! {
                changed = self.external_watch.changes() => {
                    for (node, ops) in changed {
                        ops.into_iter().for_each(|op| self.changed_externally(node, op));
                    }
                }
                _ = tidy.tick() => self.external_watch.tidy(|node| self.state.is_cached(node)),
            }
        }
    }

    /// Breaks the clients' caching of a node that was changed without [`FileOps`](crate::namespace::FileOps), and does not wait.
    pub fn changed_externally(&self, node: NodeId, op: Operation) {
        let breaks = self.state.changed(node, op, self.now());
        self.pursue(&breaks);
    }

    /// Breaks caching after a change, without waiting: `requester` changed a directory that other clients cache.
    pub fn tell(&self, node: NodeId, requester: Option<Requester>, op: Operation) {
        if !self.state.is_used() || self.state.is_free(node, requester, op, Range::ALL) {
            return;
        }
        let verdict = self.state.check_conflicts(node, requester, op, Range::ALL, self.now());
        if let Verdict::WaitFor(breaks) | Verdict::Tell(breaks) = verdict {
            self.pursue(&breaks);
        }
    }

    async fn settle(
        &self,
        mut ask: impl FnMut(Millis) -> Verdict,
        wait_policy: Option<&dyn WaitPolicy>,
    ) -> Result<(), Refusal> {
        let mut began = None;
        let mut place = None;
        let mut rounds = 0;
        // Subscribe to wake-ups only after the first conflict.
        let mut listening = false;
        while rounds < ROUNDS_MAX || wait_policy.is_some() {
            rounds += 1;
            // Enabled before the question, so that an answer between the two is not missed.
            let mut returned = std::pin::pin!(self.returned.notified());
            if listening {
                returned.as_mut().enable();
            }
            match ask(self.now()) {
                Verdict::Go => return Ok(()),
                Verdict::Tell(breaks) => {
                    self.pursue(&breaks);
                    return Ok(());
                }
                Verdict::Denied { by } => {
                    self.counters.denials.fetch_add(1, Ordering::Relaxed);
                    return Err(Refusal::Denied(by));
                }
                Verdict::Full(_) => return Err(Refusal::Full),
                Verdict::Lapsed(clients) if rounds < ROUNDS_MAX => self.release(&clients).await,
                Verdict::Lapsed(_) => break,
                Verdict::WaitFor(breaks) => {
                    if self.pursue(&breaks) || !listening {
                        listening = true;
                        continue;
                    }
                    if began.is_none() {
                        place = self.place(wait_policy.is_some());
                        if place.is_none() {
                            break;
                        }
                        if let Some(wait_policy) = wait_policy {
                            wait_policy.begin().await.map_err(Refusal::Cancelled)?;
                        }
                        self.counters.waits.fetch_add(1, Ordering::Relaxed);
                    }
                    let began = *began.get_or_insert_with(|| (Instant::now(), self.now()));
                    let left = self.left(began, wait_policy.is_some());
                    if left.is_zero() {
                        break;
                    }
                    // After the wait, asks once more: the holder's time may have run out too.
                    let wait = tokio::time::timeout(left, returned);
                    let ended = async {
                        match wait_policy {
                            Some(wait_policy) => wait_policy.ended().await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        _ = wait => {}
                        () = ended => return Err(Refusal::Cancelled(VfsError::Cancelled)),
                    }
                }
            }
        }
        drop(place);
        self.counters.delays.fetch_add(1, Ordering::Relaxed);
        Err(Refusal::Delay)
    }

    /// How much longer a request waits that began at this time, which is given by both clocks. A wait without a time limit uses the
    /// clock of the deadlines, which may pause.
    fn left(&self, (at, at_ms): (Instant, Millis), patient: bool) -> Duration {
        match patient {
            true => {
                let passed = self.now().saturating_sub(at_ms);
                Duration::from_millis(self.state.deadlines().wait_ms().saturating_sub(passed))
            }
            false => Duration::from_millis(WAIT_MS).saturating_sub(at.elapsed()),
        }
    }

    /// Sends the breaks. True when rights were revoked, so that the caller should ask again at once.
    fn pursue(&self, breaks: &[Break]) -> bool {
        let mut forced = false;
        for b in breaks {
            let Some(front) = self.front(b.client) else { continue };
            match b.stage {
                Stage::Started | Stage::Done => {
                    self.counters.recalls.fetch_add(1, Ordering::Relaxed);
                    front.recall(b);
                }
                Stage::UnderWay => {}
                Stage::Overdue => {
                    self.counters.revocations.fetch_add(1, Ordering::Relaxed);
                    front.revoke(b);
                    forced = true;
                }
            }
        }
        forced
    }

    /// Takes a place among the waiting requests; `None` when all are taken.
    fn place(&self, patient: bool) -> Option<WaitSlot<'_>> {
        let (count, max) = match patient {
            true => (&self.patient, PATIENT_MAX),
            false => (&self.waiting, WAITING_MAX),
        };
        let place = WaitSlot(count);
        (count.fetch_add(1, Ordering::Relaxed) < max).then_some(place)
    }
}

/// A place among the waiting requests, given back also when the request is dropped.
struct WaitSlot<'a>(&'a AtomicUsize);

impl Drop for WaitSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use state::{Lease, Rights, Share, Terms};

    use super::*;

    const N: NodeId = NodeId(3);

    /// A front end that notes each call and answers at once, late, or never.
    #[derive(Default)]
    struct Front {
        told: Mutex<Vec<Break>>,
        revoked: Mutex<Vec<Break>>,
        released: Mutex<Vec<ClientId>>,
        says: Mutex<Option<((ClientId, HolderId), DelegatedAttrs)>>,
        arbiter: OnceLock<Arc<Arbiter>>,
        now: Arc<AtomicU64>,
    }

    impl Recall for Front {
        fn recall(&self, what: &Break) {
            self.told.lock().unwrap().push(*what);
        }

        fn revoke(&self, what: &Break) {
            self.revoked.lock().unwrap().push(*what);
            assert!(self.arbiter.get().unwrap().revoke(what));
        }

        fn delegated_attrs(
            &self,
            holder: (ClientId, HolderId),
        ) -> BoxFuture<'_, Option<DelegatedAttrs>> {
            let said = self.says.lock().unwrap().take().filter(|s| s.0 == holder).map(|s| s.1);
            Box::pin(std::future::ready(said))
        }

        fn release(&self, client: ClientId) -> BoxFuture<'_, ()> {
            Box::pin(async move {
                self.released.lock().unwrap().push(client);
                // The test has one holder per client, with the same number.
                self.arbiter.get().unwrap().state().release(N, HolderId(client.0));
            })
        }
    }

    fn arbiter() -> (Arc<Arbiter>, Arc<Front>) {
        let deadlines = Deadlines::new(10_000, 20_000).unwrap();
        let k = Arc::new(Arbiter::new(Table::new(deadlines, Limits::default(), 0)));
        let f = Arc::new(Front::default());
        let now = f.now.clone();
        assert!(f.arbiter.set(k.clone()).is_ok());
        assert!(k.attach(f.clone(), move || now.load(Ordering::Relaxed)));
        (k, f)
    }

    fn party(client: u64) -> Holder {
        let terms = Terms { lease_ms: 1_000, courtesy_ms: 1_000 };
        Holder {
            holder: HolderId(client),
            lease: Arc::new(Lease::new(ClientId(client), terms, 0)),
            via: 0,
        }
    }

    fn block_on<T>(f: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(f)
    }

    #[test]
    fn write_waits_for_returned_delegation() {
        let (k, f) = arbiter();
        let a = party(1);
        assert!(k.state().delegate(N, &a, Caching::READ_HANDLE, 0));
        block_on(async {
            let write = k.check_conflicts(N, None, Operation::Write, Range::ALL);
            let give_back = async {
                while f.told.lock().unwrap().is_empty() {
                    tokio::task::yield_now().await;
                }
                assert!(k.acknowledge(N, a.holder, Caching::NONE));
            };
            assert_eq!(futures(write, give_back).await, Ok(()));
        });
        assert_eq!(f.told.lock().unwrap().len(), 1);
        assert_eq!(k.counters.waits.load(Ordering::Relaxed), 1);
    }

    async fn futures<T>(a: impl Future<Output = T>, b: impl Future<Output = ()>) -> T {
        let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
        let mut b_done = false;
        std::future::poll_fn(move |cx| {
            b_done = b_done || b.as_mut().poll(cx).is_ready();
            a.as_mut().poll(cx)
        })
        .await
    }

    #[test]
    fn write_retries_until_delegation_revoked() {
        let (k, f) = arbiter();
        let a = party(1);
        assert!(k.state().delegate(N, &a, Caching::READ_HANDLE, 0));
        let write = || block_on(k.check_conflicts(N, None, Operation::Write, Range::ALL));
        assert_eq!(write(), Err(VfsError::Delay));
        assert_eq!(write(), Err(VfsError::Delay));
        assert_eq!(f.told.lock().unwrap().len(), 1, "told once");
        a.lease.renew(10_000);
        f.now.store(10_000, Ordering::Relaxed);
        assert_eq!(write(), Ok(()));
        assert_eq!(f.revoked.lock().unwrap().len(), 1);
        assert_eq!(k.state().nodes(), 0);
    }

    #[test]
    fn silent_delegation_holder_must_return_it() {
        let (k, f) = arbiter();
        let a = party(1);
        assert!(k.state().delegate(N, &a, Caching::ALL, 0));
        let times = DelegatedTimes::default();
        let kept = DelegatedAttrs { size: 7, modified: true, times };
        *f.says.lock().unwrap() = Some(((ClientId(1), a.holder), kept));
        assert_eq!(
            block_on(k.delegated_attrs(N, Some(a.requester()), None)),
            Ok(None),
            "not asked itself"
        );
        assert_eq!(block_on(k.delegated_attrs(N, None, None)), Ok(Some(kept)));
        assert!(f.told.lock().unwrap().is_empty(), "it keeps its delegation");
        assert_eq!(block_on(k.delegated_attrs(N, None, None)), Err(VfsError::Delay));
        assert_eq!(f.told.lock().unwrap().len(), 1, "it says nothing: recalled");
        k.acknowledge(N, a.holder, Caching::NONE);
        assert_eq!(block_on(k.delegated_attrs(N, None, None)), Ok(None));
        assert_eq!(k.counters.asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn lapsed_client_released_on_first_conflict() {
        let (k, f) = arbiter();
        let (a, b) = (party(1), party(2));
        let all = Share::new(Rights::BOTH, Rights::BOTH);
        assert_eq!(block_on(k.open(N, &a, all)), Ok(()));
        assert_eq!(block_on(k.open(N, &b, all)), Err(VfsError::ShareDenied));
        assert_eq!(
            block_on(k.check_conflicts(N, None, Operation::Read, Range::ALL)),
            Err(VfsError::Locked)
        );
        f.now.store(1_001, Ordering::Relaxed);
        b.lease.renew(1_001);
        assert_eq!(block_on(k.open(N, &b, all)), Ok(()));
        assert_eq!(*f.released.lock().unwrap(), [ClientId(1)]);
    }
}
