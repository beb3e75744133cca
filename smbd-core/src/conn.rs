//! One connection: negotiated parameters, message ids, sessions and waiting requests.
//!
//! *Operation.* [`Window`] is the pure state machine of MS-SMB2 sections 3.3.1.1, 3.3.4.1.2 and 3.3.5.2.3: the message ids that a
//! client may use, and the credits it gets. [`Conn`] is the rest of section 3.3.1.7.
//!
//! *Memory.* All of it is bounded by `limits`.

use ahash::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::Duration;

use mutex::{locked, reading, writing};
use rdma_transport::channel::{Handle, Info, Reply};
use state::Answers;
use tokio::sync::{Notify, Semaphore};
use vfs::backend::ReadInto;

use crate::auth::Acceptor;
use crate::crypto::preauth::Preauth;
use crate::crypto::seal::Cipher;
use crate::crypto::sign::Algorithm;
use crate::in_flight::InFlight;
use crate::kerberos::User;
use crate::limits::{
    ASYNC_MAX, CHAIN_MAX, CREDITS_BEFORE_LOGON_MAX, CREDITS_MAX, CREDITS_PACED_MAX,
};
use crate::logons::Ticket;
use crate::session::{Channel, Session};
use crate::status::Status;
use crate::wire::negotiate::Dialect;
use crate::wire::rdma::Protection;
use smb_compress::message::Agreed;

/// CANCELs of one chain that are remembered: for each command one with its own session and one with another session.
const GIVEN_UP_MAX: usize = 2 * CHAIN_MAX;
/// The longest time that an answer waits for break notifications that its command caused.
const NOTICES_MAX: Duration = Duration::from_millis(100);

/// The outcome of NEGOTIATE.
#[derive(Clone, Debug)]
pub struct Negotiated {
    pub dialect: Dialect,
    /// The client's ClientGuid; zeros in dialect 2.0.2.
    pub client_guid: [u8; 16],
    /// `Capabilities` of the client.
    pub client_capabilities: u32,
    /// `SecurityMode` of the client.
    pub client_security_mode: u16,
    /// `Dialects` of the client, in its order; empty if it offered them in an SMB1 NEGOTIATE.
    pub client_dialects: Vec<u16>,
    /// `Capabilities` of the server, as sent to the client.
    pub capabilities: u32,
    /// `SecurityMode` of the server, as sent to the client.
    pub security_mode: u16,
    /// Most bytes of one READ.
    pub read_max: u32,
    /// Most bytes of one WRITE.
    pub write_max: u32,
    /// Most bytes of one QUERY, SET, IOCTL or CHANGE_NOTIFY buffer.
    pub transact_max: u32,
    /// The signing algorithm.
    pub signing: Algorithm,
    /// The cipher; `None` without encryption.
    pub cipher: Option<Cipher>,
    /// Protections of data sent over RDMA (`Connection.RDMATransformIds`), in the client's order.
    pub transforms: Vec<Protection>,
    /// Agreed compression; no algorithms means no compression.
    pub compression: Agreed,
    /// True if the client uses the POSIX extensions of 3.1.1.
    pub posix: bool,
}

/// Purpose of a SESSION_SETUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    New,
    /// Re-authentication of a session's user.
    Again,
    /// Binds a session to a further connection.
    Bind,
}

/// A logon in progress.
pub(crate) struct Logon {
    pub(crate) purpose: Purpose,
    pub(crate) session: Arc<Session>,
    pub(crate) acceptor: Acceptor<User>,
    pub(crate) preauth: Preauth,
    pub(crate) rounds: u32,
    pub(crate) ticket: Ticket,
}

/// `Connection.CommandSequenceWindow`: the message ids that a client may use, each once.
#[derive(Debug)]
pub struct Window {
    /// All ids below were used.
    low: u64,
    /// Ids from here on were not granted.
    high: u64,
    /// Ring of bits: the used ids between `low` and `high`.
    used: [u64; WORDS],
    /// Number of unused ids between `low` and `high`.
    free: u64,
}

const WORDS: usize = CREDITS_MAX as usize / 64;

impl Default for Window {
    /// Holds one id, 0, for the NEGOTIATE.
    fn default() -> Self {
        Self { low: 0, high: 1, used: [0; WORDS], free: 1 }
    }
}

impl Window {
    fn place(id: u64) -> (usize, u64) {
        let bit = id % u64::from(CREDITS_MAX);
        // Invariant: the remainder is below CREDITS_MAX.
        #[allow(clippy::cast_possible_truncation)]
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn is_used(&self, id: u64) -> bool {
        let (word, bit) = Self::place(id);
        self.used[word] & bit != 0
    }

    /// Uses `charge` ids (at least one) from `id` on. Returns false if one of them was not granted or was used before.
    pub fn take(&mut self, id: u64, charge: u16) -> bool {
        let charge = u64::from(charge.max(1));
        let Some(end) = id.checked_add(charge) else { return false };
        if id < self.low || end > self.high || (id..end).any(|i| self.is_used(i)) {
            return false;
        }
        for i in id..end {
            let (word, bit) = Self::place(i);
            self.used[word] |= bit;
        }
        self.free -= charge;
        while self.low < self.high && self.is_used(self.low) {
            let (word, bit) = Self::place(self.low);
            self.used[word] &= !bit;
            self.low += 1;
        }
        true
    }

    /// Grants the requested credits, as far as the window stays at most `max` ids wide. Grants one to a client without any unused
    /// id.
    pub fn grant(&mut self, asked: u16, max: u16) -> u16 {
        let least = u16::from(self.free == 0);
        let width = self.high - self.low;
        let room = u64::from(max.min(CREDITS_MAX)).saturating_sub(width);
        let granted = asked.max(least).min(u16::try_from(room).unwrap_or(u16::MAX)).max(least);
        self.high += u64::from(granted);
        self.free += u64::from(granted);
        granted
    }

    /// Returns how many ids the client may still use.
    pub fn free(&self) -> u64 {
        self.free
    }
}

/// A waiting request that can be ended.
#[derive(Debug)]
pub struct Pending {
    /// The AsyncId of the request.
    pub async_id: u64,
    /// The request's message id.
    pub message_id: u64,
    pub session_id: u64,
    /// True if the request continues after the loss of its connection: its client will ask for the outcome over another one.
    pub(crate) survives: bool,
    /// True once an interim answer has sent the client the AsyncId.
    is_async: AtomicBool,
    why: OnceLock<Status>,
    told: Notify,
}

impl Pending {
    /// Notes that an interim answer sends the client the AsyncId.
    pub(crate) fn go_async(&self) {
        self.is_async.store(true, Ordering::Release);
    }

    /// Returns whether the client knows the AsyncId.
    pub(crate) fn is_async(&self) -> bool {
        self.is_async.load(Ordering::Acquire)
    }

    /// Ends the wait with this status; only the first call counts.
    pub fn end(&self, why: Status) {
        if self.why.set(why).is_ok() {
            self.told.notify_one();
        }
    }

    /// Waits for [`Pending::end`] and returns its status. Only for the task that executes the request.
    pub async fn ended(&self) -> Status {
        loop {
            if let Some(why) = self.why.get() {
                return *why;
            }
            self.told.notified().await;
        }
    }
}

/// The commands of one chain that have not begun. A CANCEL may name them.
#[derive(Debug)]
pub(crate) struct ChainQueue(Mutex<Queued>);

#[derive(Debug)]
struct Queued {
    /// Their message ids.
    later: Vec<u64>,
    /// The cancelled ones, each with the session of the CANCEL.
    given_up: Vec<(u64, u64)>,
}

impl ChainQueue {
    /// Builds the queue of these message ids.
    pub(crate) fn new(later: Vec<u64>) -> Self {
        Self(Mutex::new(Queued { later, given_up: Vec::new() }))
    }

    /// Returns whether all of them have begun.
    pub(crate) fn is_empty(&self) -> bool {
        locked(&self.0).later.is_empty()
    }

    /// Notes that this command begins, and returns whether it was cancelled before.
    pub(crate) fn begins(&self, message_id: u64, session_id: u64) -> bool {
        let mut queued = locked(&self.0);
        queued.later.retain(|id| *id != message_id);
        queued.given_up.contains(&(message_id, session_id))
    }

    /// Cancels a command that has not begun.
    fn give_up(&self, message_id: u64, session_id: u64) {
        let mut queued = locked(&self.0);
        let named = (message_id, session_id);
        let room = queued.given_up.len() < GIVEN_UP_MAX;
        if room && queued.later.contains(&message_id) && !queued.given_up.contains(&named) {
            queued.given_up.push(named);
        }
    }
}

pub struct Conn {
    /// Unique within this run of the server.
    pub id: u64,
    /// The peer, the transport and the buffer pool.
    pub info: Arc<Info>,
    /// Sends notifications; ends the connection.
    pub handle: Handle,
    /// Allocates the buffers for its reads.
    pub read_into: ReadInto,
    /// The same for data that is sent unchanged, if the connection takes pages.
    pub(crate) paged: ReadInto,
    pub(crate) negotiated: OnceLock<Negotiated>,
    pub(crate) window: Mutex<Window>,
    /// `Connection.SessionTable`.
    channels: RwLock<HashMap<u64, Arc<Channel>>>,
    used: Notify,
    /// `Connection.PreauthIntegrityHashValue`
    preauth: Mutex<Preauth>,
    /// Logons in progress, by session.
    pub(crate) logons: Mutex<HashMap<u64, Logon>>,
    /// Waiting requests by `AsyncId`: at most one per message being processed, in the serve loop or outside it.
    pending: Mutex<HashMap<u64, Arc<Pending>>>,
    next_async: AtomicU64,
    /// Chains with a waiting command and further commands behind it.
    chains: Mutex<Vec<Weak<ChainQueue>>>,
    /// Permits for messages that continue outside the serve loop after an interim answer.
    pub(crate) apart: Arc<Semaphore>,
    pub(crate) reported: AtomicU32,
    /// Requests without a rate for which it still gets fewer credits, since one met a rate.
    pub(crate) paced_for: AtomicU32,
    /// Set once a READ has requested a compressed answer, which shows that the client can expand it.
    pub(crate) wants_compressed: AtomicBool,
    /// Break notifications that are not queued for sending yet.
    pub(crate) notices: Arc<InFlight>,
    /// Whether its client answers breaks of leases and oplocks that it opened over this connection.
    pub(crate) answers: OnceLock<Arc<Answers>>,
}

impl Conn {
    /// Builds the state of a connection.
    pub fn new(info: Arc<Info>, handle: Handle) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (pool, account) = (info.pool.clone(), info.account);
        let backpressure = Some(info.backpressure.clone());
        let read_into = ReadInto { pool, account, backpressure, pages: false, attributes: false };
        let pages = info.takes_pages.load(Ordering::Relaxed);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            paged: ReadInto { pages, ..read_into.clone() },
            read_into,
            info,
            handle,
            negotiated: OnceLock::new(),
            window: Mutex::default(),
            channels: RwLock::default(),
            used: Notify::new(),
            preauth: Mutex::default(),
            logons: Mutex::default(),
            pending: Mutex::default(),
            next_async: AtomicU64::new(1),
            chains: Mutex::default(),
            apart: Arc::new(Semaphore::new(ASYNC_MAX)),
            reported: AtomicU32::new(0),
            paced_for: AtomicU32::new(0),
            wants_compressed: AtomicBool::new(false),
            notices: Arc::default(),
            answers: OnceLock::new(),
        }
    }

    /// Returns the outcome of NEGOTIATE; `None` before.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.get()
    }

    /// Returns whether server and client support several connections for one session.
    pub fn has_multichannel(&self) -> bool {
        let has = |n: &Negotiated| n.capabilities & crate::wire::negotiate::CAP_MULTI_CHANNEL != 0;
        self.negotiated.get().is_some_and(has)
    }

    /// Returns the dialect; 2.0.2 before NEGOTIATE.
    pub fn dialect(&self) -> Dialect {
        self.negotiated.get().map_or(Dialect::V202, |n| n.dialect)
    }

    /// Uses the message ids of a request. Dialect 2.0.2 has no credit charge, nor has a request before the dialect is known.
    pub(crate) fn take_ids(&self, id: u64, charge: u16) -> bool {
        let charge = if self.dialect() == Dialect::V202 { 1 } else { charge };
        locked(&self.window).take(id, charge)
    }

    pub(crate) fn grant(&self, asked: u16) -> u16 {
        let max = match self.is_used() {
            false => CREDITS_BEFORE_LOGON_MAX,
            true if self.paced_for.load(Ordering::Relaxed) > 0 => CREDITS_PACED_MAX,
            true => CREDITS_MAX,
        };
        locked(&self.window).grant(asked, max)
    }

    /// Sends a message other than the answer to a request in the serve loop.
    pub(crate) async fn push(&self, reply: Reply) -> Result<(), Status> {
        self.handle.push(reply).await.map_err(|_gone| Status::NETWORK_NAME_DELETED)
    }

    /// Waits until this connection's break notifications are queued, so that an answer follows those that its command caused. Does
    /// not wait for a peer that takes no messages.
    pub(crate) async fn notices_placed(&self) {
        if !self.notices.is_settled() {
            let _ = tokio::time::timeout(NOTICES_MAX, self.notices.settled()).await;
        }
    }

    /// Returns the channel of this session, if it was set up or bound on this connection.
    pub fn channel(&self, session: u64) -> Option<Arc<Channel>> {
        reading(&self.channels).get(&session).cloned()
    }

    /// Returns whether a user is logged on.
    pub fn is_used(&self) -> bool {
        !reading(&self.channels).is_empty()
    }

    /// Returns how many sessions use it.
    pub(crate) fn sessions(&self) -> usize {
        reading(&self.channels).len()
    }

    /// Takes the logon to this session, if one is in progress.
    pub(crate) fn take_logon(&self, session: u64) -> Option<Logon> {
        locked(&self.logons).remove(&session)
    }

    /// Returns the session of the oldest logon in progress, if there are at least `of` of them.
    pub(crate) fn oldest_logon(&self, of: usize) -> Option<u64> {
        let all = locked(&self.logons);
        let oldest = || all.iter().min_by_key(|(_, logon)| logon.ticket.number);
        if all.len() < of { None } else { oldest().map(|(session, _)| *session) }
    }

    /// Returns the numbers of the sessions that were set up or bound on this connection.
    pub(crate) fn session_ids(&self) -> Vec<u64> {
        reading(&self.channels).keys().copied().collect()
    }

    pub(crate) fn add_channel(&self, channel: Arc<Channel>) {
        let mut all = writing(&self.channels);
        all.insert(channel.session.id, channel);
        self.info.introduction.note();
        self.used.notify_one();
    }

    /// Waits until a user is logged on. Only for one task.
    pub(crate) async fn logged_on(&self) {
        self.used.notified().await;
    }

    pub(crate) fn remove_channel(&self, session: u64) {
        writing(&self.channels).remove(&session);
        locked(&self.logons).remove(&session);
    }

    /// Removes and returns all sessions of this connection.
    pub(crate) fn take_channels(&self) -> Vec<Arc<Channel>> {
        let mut all = writing(&self.channels);
        all.drain().map(|(_, channel)| channel).collect()
    }

    /// Removes and returns the sessions whose first logon is in progress.
    pub(crate) fn take_logons(&self) -> Vec<Arc<Session>> {
        let all = std::mem::take(&mut *locked(&self.logons));
        all.into_values().filter(|l| l.purpose == Purpose::New).map(|l| l.session).collect()
    }

    /// Adds a message to the hash of the connection.
    pub(crate) fn hash(&self, message: &[&[u8]]) {
        locked(&self.preauth).update(message);
    }

    /// Adds a message to the hash of a logon.
    pub(crate) fn hash_logon(&self, session: u64, message: &[&[u8]]) {
        if let Some(logon) = locked(&self.logons).get_mut(&session) {
            logon.preauth.update(message);
        }
    }

    /// Returns `Connection.PreauthIntegrityHashValue`, with which the hash of a logon begins.
    pub(crate) fn preauth(&self) -> Preauth {
        *locked(&self.preauth)
    }

    /// Registers a waiting request. The client learns its AsyncId only after [`Pending::go_async`].
    pub(crate) fn begin_wait(
        &self,
        message_id: u64,
        session_id: u64,
        survives: bool,
    ) -> Arc<Pending> {
        let pending = Arc::new(Pending {
            async_id: self.next_async.fetch_add(1, Ordering::Relaxed),
            message_id,
            session_id,
            survives,
            is_async: AtomicBool::new(false),
            why: OnceLock::new(),
            told: Notify::new(),
        });
        locked(&self.pending).insert(pending.async_id, pending.clone());
        pending
    }

    /// Notes that a command of this chain waits with others behind it.
    pub(crate) fn note_chain(&self, queue: &Arc<ChainQueue>) {
        let mut chains = locked(&self.chains);
        chains.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), &**queue));
        chains.push(Arc::downgrade(queue));
    }

    /// Cancels a command that has not begun.
    pub(crate) fn give_up(&self, message_id: u64, session_id: u64) {
        let chains: Vec<_> = locked(&self.chains).iter().filter_map(Weak::upgrade).collect();
        chains.iter().for_each(|chain| chain.give_up(message_id, session_id));
    }

    /// Returns the message ids of waiting requests.
    #[cfg(test)]
    pub(crate) fn waiting_ids(&self) -> Vec<u64> {
        locked(&self.pending).values().map(|p| p.message_id).collect()
    }

    /// Returns whether a request of this session waits.
    pub(crate) fn has_wait_of(&self, session_id: u64) -> bool {
        locked(&self.pending).values().any(|p| p.session_id == session_id)
    }

    /// Returns how many requests wait.
    pub(crate) fn waits(&self) -> usize {
        locked(&self.pending).len()
    }

    /// Removes a request that no longer waits.
    pub(crate) fn end_wait(&self, pending: &Pending) {
        locked(&self.pending).remove(&pending.async_id);
    }

    /// Ends every waiting request that `which` accepts.
    pub(crate) fn end_waits(&self, why: Status, which: impl Fn(&Pending) -> bool) {
        let told: Vec<_> = locked(&self.pending).values().filter(|p| which(p)).cloned().collect();
        told.iter().for_each(|p| p.end(why));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        /// Uses ids starting this far above the lowest.
        Take(u64, u16),
        Grant(u16, u16),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let one = prop_oneof![
            4 => (0_u64..40, 0_u16..6).prop_map(|(at, charge)| Step::Take(at, charge)),
            1 => (any::<u64>(), any::<u16>()).prop_map(|(at, charge)| Step::Take(at, charge)),
            3 => (0_u16..40, 1_u16..64).prop_map(|(asked, max)| Step::Grant(asked, max)),
            1 => (any::<u16>(), any::<u16>()).prop_map(|(asked, max)| Step::Grant(asked, max)),
        ];
        prop::collection::vec(one, 1..200)
    }

    proptest! {
        /// Compares the window with a set of the ids that may be used.
        #[test]
        fn the_window_is_what_was_granted_and_not_used(steps in steps()) {
            let mut window = Window::default();
            let mut free: BTreeSet<u64> = [0].into();
            let mut next = 1;
            for step in steps {
                match step {
                    Step::Take(above, charge) => {
                        let id = free.first().copied().unwrap_or(next).saturating_add(above);
                        let Some(end) = id.checked_add(u64::from(charge.max(1))) else {
                            prop_assert!(!window.take(id, charge));
                            continue;
                        };
                        let may = end <= next && (id..end).all(|i| free.contains(&i));
                        prop_assert_eq!(window.take(id, charge), may);
                        if may {
                            free.retain(|i| !(id..end).contains(i));
                        }
                    }
                    Step::Grant(asked, max) => {
                        let width = next - free.first().copied().unwrap_or(next);
                        let granted = u64::from(window.grant(asked, max));
                        prop_assert!(!free.is_empty() || granted > 0, "a client is never stuck");
                        prop_assert!(granted <= u64::from(asked.max(1)));
                        prop_assert!(width + granted <= u64::from(CREDITS_MAX));
                        free.extend(next..next + granted);
                        next += granted;
                    }
                }
                prop_assert_eq!(window.free(), free.len() as u64);
            }
        }
    }

    /// A CANCEL costs its sender no credit.
    #[test]
    fn a_chain_remembers_so_many_cancels_and_no_more() {
        let queue = ChainQueue::new(vec![7]);
        for session in 0..10_000 {
            queue.give_up(7, session);
        }
        assert_eq!(locked(&queue.0).given_up.len(), GIVEN_UP_MAX);
    }

    #[test]
    fn what_waits_is_told_once() {
        let conn = Conn::new(
            Arc::new(Info::new(
                ([127, 0, 0, 1], 1).into(),
                ([127, 0, 0, 1], 445).into(),
                rdma_transport::channel::Transport::Tcp,
                iobuf::Pool::new(iobuf::PoolLimits { buffers_max: [1, 1, 1] }),
            )),
            Handle::detached(),
        );
        let all = [0, 1].map(|id| conn.begin_wait(id, 1, true));
        let one = all[0].clone();
        conn.end_waits(Status::CANCELLED, |p| p.async_id == one.async_id);
        conn.end_waits(Status::USER_SESSION_DELETED, |_| true);
        let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(rt.block_on(one.ended()), Status::CANCELLED, "the first word counts");
        assert_eq!(rt.block_on(all[1].ended()), Status::USER_SESSION_DELETED);
        conn.end_wait(&one);
        assert_eq!(conn.waiting_ids(), [1]);
    }
}
