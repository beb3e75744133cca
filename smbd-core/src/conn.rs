//! One connection: what was negotiated, which message ids may come, who is logged on, what waits.
//!
//! *Operation.* [`Window`] is the pure machine of MS-SMB2 sections 3.3.1.1, 3.3.4.1.2 and 3.3.5.2.3: which message ids a client
//! may use, and how many credits it gets. [`Conn`] is the rest of section 3.3.1.7.
//!
//! *Memory.* All of it is bounded by `limits`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::Duration;

use mutex::{locked, reading, writing};
use rdma_transport::channel::{Handle, Info, Reply};
use tokio::sync::{Notify, Semaphore};
use vfs::backend::ReadInto;

use crate::auth::Acceptor;
use crate::crypto::preauth::Preauth;
use crate::crypto::seal::Cipher;
use crate::crypto::sign::Algorithm;
use crate::in_flight::InFlight;
use crate::kerberos::User;
use crate::limits::{ASYNC_MAX, CHAIN_MAX, CREDITS_BEFORE_LOGON_MAX, CREDITS_MAX};
use crate::logons::Ticket;
use crate::session::{Channel, Session};
use crate::status::Status;
use crate::wire::negotiate::Dialect;
use crate::wire::rdma::Protection;
use smb_compress::message::Agreed;

/// CANCELs of one chain that are remembered: each command once for its own session and once for another that was named.
const GIVEN_UP_MAX: usize = 2 * CHAIN_MAX;
/// An answer waits no longer than this for the notices that its command has caused.
const NOTICES_MAX: Duration = Duration::from_millis(100);

/// What NEGOTIATE decided.
#[derive(Clone, Debug)]
pub struct Negotiated {
    /// The dialect.
    pub dialect: Dialect,
    /// The client's name for itself; zeros in dialect 2.0.2.
    pub client_guid: [u8; 16],
    /// `Capabilities` of the client.
    pub client_capabilities: u32,
    /// `SecurityMode` of the client.
    pub client_security_mode: u16,
    /// `Dialects` of the client, in its order; empty where it offered them by SMB1.
    pub client_dialects: Vec<u16>,
    /// `Capabilities` of the server, as the client was told.
    pub capabilities: u32,
    /// `SecurityMode` of the server, as the client was told.
    pub security_mode: u16,
    /// Bytes of one READ.
    pub read_max: u32,
    /// Bytes of one WRITE.
    pub write_max: u32,
    /// Bytes of one QUERY, SET, IOCTL or CHANGE_NOTIFY buffer.
    pub transact_max: u32,
    /// What signs.
    pub signing: Algorithm,
    /// What encrypts; `None`: nothing does.
    pub cipher: Option<Cipher>,
    /// How data that travels by RDMA may be protected (`Connection.RDMATransformIds`), in the client's order.
    pub transforms: Vec<Protection>,
    /// How messages may be compressed; without algorithms they may not.
    pub compression: Agreed,
    /// The client uses the POSIX extensions of 3.1.1.
    pub posix: bool,
}

/// What a client does by SESSION_SETUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A new session.
    New,
    /// The user of a session shows again who it is.
    Again,
    /// A session is to use this connection too.
    Bind,
}

/// A logon under way.
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
    /// No id from here on was granted.
    high: u64,
    /// Ids between that were used, as a ring of bits.
    used: [u64; WORDS],
    /// Ids between that were not used.
    free: u64,
}

const WORDS: usize = CREDITS_MAX as usize / 64;

impl Default for Window {
    /// One id, 0, for the NEGOTIATE.
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

    /// Uses `charge` ids (at least one) from `id` on. False when one of them was not granted or was used before.
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

    /// Grants what was asked for, as far as the window may then be `max` ids wide. A client that would have nothing left gets one.
    pub fn grant(&mut self, asked: u16, max: u16) -> u16 {
        let least = u16::from(self.free == 0);
        let width = self.high - self.low;
        let room = u64::from(max.min(CREDITS_MAX)).saturating_sub(width);
        let granted = asked.max(least).min(u16::try_from(room).unwrap_or(u16::MAX)).max(least);
        self.high += u64::from(granted);
        self.free += u64::from(granted);
        granted
    }

    /// Ids that the client may still use.
    pub fn free(&self) -> u64 {
        self.free
    }
}

/// A request that waits, and can be told not to.
#[derive(Debug)]
pub struct Pending {
    /// Names it to the client.
    pub async_id: u64,
    /// As it came.
    pub message_id: u64,
    /// Its session.
    pub session_id: u64,
    /// It goes on when only its connection is lost: its client will ask for its outcome by another one.
    pub(crate) survives: bool,
    /// An interim answer has told the client its name.
    is_async: AtomicBool,
    why: OnceLock<Status>,
    told: Notify,
}

impl Pending {
    /// An interim answer tells the client its name.
    pub(crate) fn go_async(&self) {
        self.is_async.store(true, Ordering::Release);
    }

    /// The client knows its name.
    pub(crate) fn is_async(&self) -> bool {
        self.is_async.load(Ordering::Acquire)
    }

    /// Tells it to end with this status; the first one counts.
    pub fn end(&self, why: Status) {
        if self.why.set(why).is_ok() {
            self.told.notify_one();
        }
    }

    /// Waits until it is told, and gives the status. For the one task that does the request.
    pub async fn ended(&self) -> Status {
        loop {
            if let Some(why) = self.why.get() {
                return *why;
            }
            self.told.notified().await;
        }
    }
}

/// The commands of one chain whose turn has not come. A CANCEL may name them.
#[derive(Debug)]
pub(crate) struct ChainQueue(Mutex<Queued>);

#[derive(Debug)]
struct Queued {
    /// Their message ids.
    later: Vec<u64>,
    /// Those of them that were given up, each with the session of the CANCEL.
    given_up: Vec<(u64, u64)>,
}

impl ChainQueue {
    /// Of these message ids.
    pub(crate) fn new(later: Vec<u64>) -> Self {
        Self(Mutex::new(Queued { later, given_up: Vec::new() }))
    }

    /// The turn of all of them has come.
    pub(crate) fn is_empty(&self) -> bool {
        locked(&self.0).later.is_empty()
    }

    /// The turn of this command has come: whether it was given up before.
    pub(crate) fn begins(&self, message_id: u64, session_id: u64) -> bool {
        let mut queued = locked(&self.0);
        queued.later.retain(|id| *id != message_id);
        queued.given_up.contains(&(message_id, session_id))
    }

    /// A CANCEL names one.
    fn give_up(&self, message_id: u64, session_id: u64) {
        let mut queued = locked(&self.0);
        let named = (message_id, session_id);
        let room = queued.given_up.len() < GIVEN_UP_MAX;
        if room && queued.later.contains(&message_id) && !queued.given_up.contains(&named) {
            queued.given_up.push(named);
        }
    }
}

/// One connection.
pub struct Conn {
    /// Different from all others of this run.
    pub id: u64,
    /// The peer, the transport, the pool.
    pub info: Arc<Info>,
    /// Sends notices; ends the connection.
    pub handle: Handle,
    /// Where the buffers for its reads come from.
    pub read_into: ReadInto,
    /// The same for data that leaves as it is, where the connection takes pages.
    pub(crate) paged: ReadInto,
    pub(crate) negotiated: OnceLock<Negotiated>,
    pub(crate) window: Mutex<Window>,
    /// `Connection.SessionTable`.
    channels: RwLock<HashMap<u64, Arc<Channel>>>,
    used: Notify,
    /// `Connection.PreauthIntegrityHashValue`
    preauth: Mutex<Preauth>,
    /// Logons under way, by session.
    pub(crate) logons: Mutex<HashMap<u64, Logon>>,
    /// By `AsyncId`: at most one for each message in work, in the serve loop or apart from it.
    pending: Mutex<HashMap<u64, Arc<Pending>>>,
    next_async: AtomicU64,
    /// Chains of which a command waits, those behind it for their turn.
    chains: Mutex<Vec<Weak<ChainQueue>>>,
    /// Messages that may go on apart from the serve loop after an interim answer.
    pub(crate) apart: Arc<Semaphore>,
    pub(crate) reported: AtomicU32,
    /// A READ has asked for a compressed answer, so that the client is known to expand them.
    pub(crate) wants_compressed: AtomicBool,
    /// Break notices that have no place yet among the messages to be sent.
    pub(crate) notices: Arc<InFlight>,
}

impl Conn {
    /// Of a channel.
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
            wants_compressed: AtomicBool::new(false),
            notices: Arc::default(),
        }
    }

    /// What NEGOTIATE decided; `None` before.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.get()
    }

    /// Server and client can use several connections for one session.
    pub fn has_multichannel(&self) -> bool {
        let has = |n: &Negotiated| n.capabilities & crate::wire::negotiate::CAP_MULTI_CHANNEL != 0;
        self.negotiated.get().is_some_and(has)
    }

    /// The dialect; 2.0.2 before it was decided.
    pub fn dialect(&self) -> Dialect {
        self.negotiated.get().map_or(Dialect::V202, |n| n.dialect)
    }

    /// Uses the message ids of a request. Dialect 2.0.2 has no charge, and neither has what comes before the dialect.
    pub(crate) fn take_ids(&self, id: u64, charge: u16) -> bool {
        let charge = if self.dialect() == Dialect::V202 { 1 } else { charge };
        locked(&self.window).take(id, charge)
    }

    /// Grants credits.
    pub(crate) fn grant(&self, asked: u16) -> u16 {
        let max = if self.is_used() { CREDITS_MAX } else { CREDITS_BEFORE_LOGON_MAX };
        locked(&self.window).grant(asked, max)
    }

    /// Sends a message that answers no request that the serve loop still has.
    pub(crate) async fn push(&self, reply: Reply) -> Result<(), Status> {
        self.handle.push(reply).await.map_err(|_gone| Status::NETWORK_NAME_DELETED)
    }

    /// Waits until its break notices have a place among the messages to be sent, so that an answer goes behind those that its
    /// command has caused. A peer that takes neither is not waited for.
    pub(crate) async fn notices_placed(&self) {
        if !self.notices.is_settled() {
            let _ = tokio::time::timeout(NOTICES_MAX, self.notices.settled()).await;
        }
    }

    /// The session of this number, where it was set up or bound on this connection.
    pub fn channel(&self, session: u64) -> Option<Arc<Channel>> {
        reading(&self.channels).get(&session).cloned()
    }

    /// Whether somebody is logged on.
    pub fn is_used(&self) -> bool {
        !reading(&self.channels).is_empty()
    }

    /// How many sessions use it.
    pub(crate) fn sessions(&self) -> usize {
        reading(&self.channels).len()
    }

    /// Takes the logon to this session, if one is under way.
    pub(crate) fn take_logon(&self, session: u64) -> Option<Logon> {
        locked(&self.logons).remove(&session)
    }

    /// The logon under way that began first, where there are so many; its session.
    pub(crate) fn oldest_logon(&self, of: usize) -> Option<u64> {
        let all = locked(&self.logons);
        let oldest = || all.iter().min_by_key(|(_, logon)| logon.ticket.number);
        if all.len() < of { None } else { oldest().map(|(session, _)| *session) }
    }

    /// The numbers of the sessions that were set up or bound on this connection.
    pub(crate) fn session_ids(&self) -> Vec<u64> {
        reading(&self.channels).keys().copied().collect()
    }

    pub(crate) fn add_channel(&self, channel: Arc<Channel>) {
        let mut all = writing(&self.channels);
        all.insert(channel.session.id, channel);
        self.info.introduction.note();
        self.used.notify_one();
    }

    /// Waits until somebody is logged on. For one task.
    pub(crate) async fn logged_on(&self) {
        self.used.notified().await;
    }

    pub(crate) fn remove_channel(&self, session: u64) {
        writing(&self.channels).remove(&session);
        locked(&self.logons).remove(&session);
    }

    /// Takes every session off this connection.
    pub(crate) fn take_channels(&self) -> Vec<Arc<Channel>> {
        let mut all = writing(&self.channels);
        all.drain().map(|(_, channel)| channel).collect()
    }

    /// Takes the sessions that were still logging on for the first time.
    pub(crate) fn take_logons(&self) -> Vec<Arc<Session>> {
        let all = std::mem::take(&mut *locked(&self.logons));
        all.into_values().filter(|l| l.purpose == Purpose::New).map(|l| l.session).collect()
    }

    /// Continues the hash of the connection with a message.
    pub(crate) fn hash(&self, message: &[&[u8]]) {
        locked(&self.preauth).update(message);
    }

    /// Continues the hash of a logon with a message.
    pub(crate) fn hash_logon(&self, session: u64, message: &[&[u8]]) {
        if let Some(logon) = locked(&self.logons).get_mut(&session) {
            logon.preauth.update(message);
        }
    }

    /// `Connection.PreauthIntegrityHashValue`, where the hash of a logon begins.
    pub(crate) fn preauth(&self) -> Preauth {
        *locked(&self.preauth)
    }

    /// A request begins to wait. No client knows its name before [`Pending::go_async`].
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

    /// A command of this chain waits, and others behind it.
    pub(crate) fn note_chain(&self, queue: &Arc<ChainQueue>) {
        let mut chains = locked(&self.chains);
        chains.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), &**queue));
        chains.push(Arc::downgrade(queue));
    }

    /// A CANCEL may name a command that has not begun.
    pub(crate) fn give_up(&self, message_id: u64, session_id: u64) {
        let chains: Vec<_> = locked(&self.chains).iter().filter_map(Weak::upgrade).collect();
        chains.iter().for_each(|chain| chain.give_up(message_id, session_id));
    }

    /// The message ids of requests that wait.
    #[cfg(test)]
    pub(crate) fn waiting_ids(&self) -> Vec<u64> {
        locked(&self.pending).values().map(|p| p.message_id).collect()
    }

    /// A request of this session waits.
    pub(crate) fn has_wait_of(&self, session_id: u64) -> bool {
        locked(&self.pending).values().any(|p| p.session_id == session_id)
    }

    /// How many requests wait.
    pub(crate) fn waits(&self) -> usize {
        locked(&self.pending).len()
    }

    /// A request waits no more.
    pub(crate) fn end_wait(&self, pending: &Pending) {
        locked(&self.pending).remove(&pending.async_id);
    }

    /// Tells every waiting request for which this holds to end.
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
        /// Some ids from this far above the lowest.
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
        /// Beside a set of the ids that may be used.
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

    /// Each CANCEL is free for its sender.
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
