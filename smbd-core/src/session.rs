//! Sessions: users, their connections and their trees.
//!
//! *Operation.* [`Sessions`] is `GlobalSessionTable` (MS-SMB2 section 3.3.1.5); a [`Channel`] joins a session to one connection and
//! signs its messages there.
//!
//! *Memory.* Bounded by `limits`.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::Duration;

use ahash::{HashMap, HashSet, RandomState};
use dashmap::DashMap;
use mutex::{locked, reading, writing};
use rdma_transport::parts::Limit;
use state::Millis;
use vfs::Cred;

use crate::conn::Conn;
use crate::crypto::seal::{Opener, Sealer};
use crate::crypto::sign::Signer;
use crate::limits::{CHANNELS_MAX, SESSIONS_MAX, SESSIONS_PER_ADDRESS_MAX, TREES_MAX};
use crate::mac::{Agreed, agreed};
use crate::parts::{Part, Parts};
use crate::session_places::{Full, Limits, Places};
use crate::status::Status;
use crate::tree::Tree;
use crate::wire::negotiate::Dialect;

/// How a user was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A password or a ticket.
    User,
    Guest,
    /// Anonymous: no user name.
    Anonymous,
}

/// The user of a session.
#[derive(Clone, Debug)]
pub struct User {
    /// Name of the account.
    pub name: String,
    pub kind: Kind,
    /// The user's identity for the file system, before a share maps it to another one.
    pub cred: Cred,
    /// Last part of its SID.
    pub rid: u32,
    pub way: LogonWay,
}

/// How a user proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogonWay {
    /// With the password of an account, or as a guest.
    Account,
    /// With a Kerberos ticket.
    Ticket,
    /// With a password, to a controller of its domain.
    Domain,
}

impl User {
    /// Returns whether `other` is the same account, authenticated in the same way.
    pub fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.rid == other.rid && self.name == other.name
    }

    /// Returns whether the user has proved who it is. Guests have not, nor has the Guest account of a domain, which all share.
    pub(crate) fn is_proven(&self) -> bool {
        self.kind == Kind::User && !self.cred.token.is_guest_account()
    }

    /// Returns the user as the audit trail names it.
    pub(crate) fn party(&self) -> audit::Party {
        audit::Party::named(self.name.clone(), self.cred.uid)
    }
}

/// The user of a session; derefs to its name without a copy.
pub(crate) struct Owner(Option<Arc<User>>);

impl std::ops::Deref for Owner {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_ref().map_or("", |user| &user.name)
    }
}

/// `Session.State`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SessionState {
    /// The first logon has not ended.
    InProgress = 0,
    Valid = 1,
    /// The ticket has expired: the user must log on again.
    Expired = 2,
    Gone = 3,
}

/// Keys from authentication and NEGOTIATE; fixed until the session ends.
pub(crate) struct Secrets {
    /// Signs and verifies requests that bind a further connection, for which there is no channel yet.
    pub(crate) signer: Signer,
    /// Encrypts messages of the server.
    pub(crate) sealer: Option<Sealer>,
    /// Decrypts messages of the client.
    pub(crate) opener: Option<Opener>,
}

/// Properties negotiated on the session's first connection, which every further connection must share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) dialect: Dialect,
    pub(crate) client_guid: [u8; 16],
    pub(crate) signing: crate::crypto::sign::Algorithm,
    pub(crate) cipher: Option<crate::crypto::seal::Cipher>,
}

pub struct Session {
    pub id: u64,
    pub(crate) terms: Terms,
    state: AtomicU8,
    /// On the server's clock; `u64::MAX`: never.
    expires: AtomicU64,
    user: RwLock<Option<Arc<User>>>,
    pub(crate) secrets: OnceLock<Secrets>,
    signing_required: AtomicBool,
    encrypt: AtomicBool,
    trees: RwLock<HashMap<u32, Arc<Tree>>>,
    next_tree: AtomicU32,
    /// The number of its trees within the quota of its client's address.
    tree_part: Mutex<Option<Part>>,
    channels: Mutex<Vec<Arc<Channel>>>,
    /// When its client last sent a command, on the server's clock.
    used: AtomicU64,
    /// The audit records of this session so far.
    told: Told,
    /// What its client agreed on if it is macOS.
    pub(crate) mac: Agreed,
}

/// Orders a session's audit records: its end comes after its logon, and without a logon there is no record of the end.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<ToldState>);

#[derive(Debug, Default)]
enum ToldState {
    #[default]
    Nothing,
    LoggedOn,
    /// The session ended before the logon was recorded: the connection was lost during the lookup of the user.
    Ended(&'static str),
}

impl Told {
    /// Records the logon with `tell`, and with `tell_end` an end that came earlier.
    pub(crate) fn logged_on(&self, tell: impl FnOnce(), tell_end: impl FnOnce(&'static str)) {
        let mut state = locked(&self.0);
        tell();
        if let ToldState::Ended(reason) = std::mem::replace(&mut *state, ToldState::LoggedOn) {
            tell_end(reason);
        }
    }

    /// Records the end with `tell_end`, at once or as soon as the logon is recorded.
    pub(crate) fn ended(&self, reason: &'static str, tell_end: impl FnOnce(&'static str)) {
        let mut state = locked(&self.0);
        match *state {
            ToldState::LoggedOn => tell_end(reason),
            ToldState::Nothing | ToldState::Ended(_) => *state = ToldState::Ended(reason),
        }
    }
}

pub struct Channel {
    pub session: Arc<Session>,
    pub conn: Weak<Conn>,
    /// `Channel.SigningKey`; `None` for guests and anonymous users, which share no secret with the server.
    pub(crate) signer: Option<Signer>,
}

impl Session {
    /// Returns the dialect, which all its connections share.
    pub fn dialect(&self) -> Dialect {
        self.terms.dialect
    }

    /// Returns the client that made it.
    pub fn client_guid(&self) -> [u8; 16] {
        self.terms.client_guid
    }

    /// Returns whether its client is macOS.
    pub(crate) fn is_macos(&self) -> bool {
        self.mac.has(agreed::MACOS)
    }

    /// Returns the state at `now`.
    pub fn state(&self, now: Millis) -> SessionState {
        match self.state.load(Ordering::Acquire) {
            0 => SessionState::InProgress,
            1 if now >= self.expires.load(Ordering::Relaxed) => SessionState::Expired,
            1 => SessionState::Valid,
            _ => SessionState::Gone,
        }
    }

    /// Logs a user on, for the first time or again. `expires` is on the server's clock.
    pub(crate) fn log_on(&self, user: User, expires: Option<Millis>) {
        *writing(&self.user) = Some(Arc::new(user));
        self.expires.store(expires.unwrap_or(u64::MAX), Ordering::Relaxed);
        // A session that has ended in the meantime remains ended.
        let _ = self.state.compare_exchange(
            SessionState::InProgress as u8,
            SessionState::Valid as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// Ends the session. Returns true for the first caller only.
    pub(crate) fn end(&self) -> bool {
        self.state.swap(SessionState::Gone as u8, Ordering::AcqRel) != SessionState::Gone as u8
    }

    /// Returns the user; `None` before the logon.
    pub fn user(&self) -> Option<Arc<User>> {
        reading(&self.user).clone()
    }

    /// Returns the name of its user, which distinguishes its leases and handles from those of other users; empty before the logon.
    pub(crate) fn owner(&self) -> Owner {
        Owner(self.user())
    }

    /// Returns its user, for the audit trail.
    pub(crate) fn party(&self) -> audit::Party {
        self.user().map_or_else(audit::Party::default, |user| user.party())
    }

    /// Records the logon of its user in the audit trail.
    pub(crate) fn tell_logon(&self, tell: impl FnOnce()) {
        self.told.logged_on(tell, |reason| self.record_end(reason));
    }

    /// Records its end in the audit trail.
    pub(crate) fn tell_end(&self, reason: &'static str) {
        self.told.ended(reason, |reason| self.record_end(reason));
    }

    /// Records in the audit trail that the session has disconnected from the share of this tree and continues without it.
    pub(crate) fn tell_tree_end(&self, tree: &Tree, reason: &'static str) {
        if tree.share().is_some() {
            audit::record(|| audit::Event::ShareEnd {
                party: self.party(),
                share: tree.name.as_str().into(),
                session: self.id,
                reason,
            });
        }
    }

    fn record_end(&self, reason: &'static str) {
        let (party, session) = (self.party(), self.id);
        audit::record(|| audit::Event::Logoff { party, session, reason });
    }

    /// Notes that its client has sent a command.
    pub(crate) fn note_used(&self, now: Millis) {
        self.used.store(now, Ordering::Relaxed);
    }

    /// Returns how long its client has sent no command.
    pub(crate) fn idle(&self, now: Millis) -> Duration {
        Duration::from_millis(now.saturating_sub(self.used.load(Ordering::Relaxed)))
    }

    /// Returns whether its messages must be signed.
    pub fn signing_required(&self) -> bool {
        self.signing_required.load(Ordering::Relaxed)
    }

    /// Returns whether its messages must be encrypted.
    pub fn encrypts(&self) -> bool {
        self.encrypt.load(Ordering::Relaxed)
    }

    pub(crate) fn require(&self, signing: bool, encryption: bool) {
        self.signing_required.store(signing, Ordering::Relaxed);
        self.encrypt.store(encryption, Ordering::Relaxed);
    }

    pub fn tree(&self, id: u32) -> Option<Arc<Tree>> {
        reading(&self.trees).get(&id).cloned()
    }

    /// Adds a tree under a number that the session chooses. Returns `None` at the limit of trees.
    pub(crate) fn add_tree(&self, make: impl FnOnce(u32) -> Tree) -> Option<Arc<Tree>> {
        let mut trees = writing(&self.trees);
        if trees.len() >= TREES_MAX {
            return None;
        }
        // Zero and all ones have special meanings; numbers in use are skipped.
        let id = loop {
            let id = self.next_tree.fetch_add(1, Ordering::Relaxed);
            if id != 0 && id != u32::MAX && !trees.contains_key(&id) {
                break id;
            }
        };
        let tree = Arc::new(make(id));
        trees.insert(id, tree.clone());
        Some(tree)
    }

    /// Reserves one more tree in the quota of its client's address.
    pub(crate) fn room_for_a_tree(&self, all: &Parts, peer: SocketAddr) -> Result<(), Status> {
        let count = reading(&self.trees).len() + 1;
        locked(&self.tree_part).get_or_insert_with(|| all.of(peer)).set(count)
    }

    /// Releases the quota of trees that it no longer has.
    fn count_trees(&self) {
        let count = reading(&self.trees).len();
        if let Some(part) = &mut *locked(&self.tree_part) {
            // A smaller count never exceeds a limit.
            let _ = part.set(count);
        }
    }

    pub(crate) fn remove_tree(&self, id: u32) -> Option<Arc<Tree>> {
        let tree = writing(&self.trees).remove(&id);
        self.count_trees();
        tree
    }

    pub fn trees(&self) -> Vec<Arc<Tree>> {
        reading(&self.trees).values().cloned().collect()
    }

    /// Takes all trees out.
    pub(crate) fn take_trees(&self) -> Vec<Arc<Tree>> {
        let all = writing(&self.trees).drain().map(|(_, tree)| tree).collect();
        self.count_trees();
        all
    }

    pub fn channels(&self) -> Vec<Arc<Channel>> {
        locked(&self.channels).clone()
    }

    /// Returns the addresses of its connections.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let conns =
            locked(&self.channels).iter().filter_map(|c| c.conn.upgrade()).collect::<Vec<_>>();
        conns.iter().map(|conn| conn.info.peer.ip()).collect()
    }

    /// Adds a connection. Returns false at the limit of connections per session.
    pub(crate) fn add_channel(&self, channel: Arc<Channel>) -> bool {
        let mut channels = locked(&self.channels);
        if channels.len() >= CHANNELS_MAX {
            return false;
        }
        channels.push(channel);
        true
    }

    /// Removes a connection. Returns true if it was the last one.
    pub(crate) fn remove_channel(&self, conn: &Arc<Conn>) -> bool {
        let mut channels = locked(&self.channels);
        channels.retain(|c| !std::ptr::eq(c.conn.as_ptr(), Arc::as_ptr(conn)));
        channels.is_empty()
    }
}

/// All sessions of the server.
pub struct Sessions {
    all: DashMap<u64, Arc<Session>, RandomState>,
    /// Sessions by `ClientGuid`: a client has few of them, even with many connections.
    by_client: DashMap<[u8; 16], HashSet<u64>, RandomState>,
    /// Places of logged-on sessions, at most [`SESSIONS_MAX`]. [`crate::logons`] bounds the number of sessions that are still
    /// logging on.
    places: Mutex<Places>,
    /// Counts of logons by outcome.
    pub logons: LogonCounts,
}

impl Default for Sessions {
    fn default() -> Self {
        let places = Limits {
            of_all: Limit::new("sessions", SESSIONS_MAX),
            of_address: Limit::new("sessions-of-address", SESSIONS_PER_ADDRESS_MAX),
        };
        Self {
            all: DashMap::default(),
            by_client: DashMap::default(),
            places: Mutex::new(Places::new(places)),
            logons: LogonCounts::default(),
        }
    }
}

/// Counts of logons by outcome, including those that bind a connection to a session.
#[derive(Debug, Default)]
pub struct LogonCounts {
    /// Logons of users, with a password or a ticket.
    pub user: AtomicU64,
    /// Logons as a guest.
    pub guest: AtomicU64,
    /// Logons without a user name.
    pub anonymous: AtomicU64,
    /// Refused logons.
    pub refused: AtomicU64,
}

impl LogonCounts {
    pub(crate) fn granted(&self, kind: Kind) {
        let counter = match kind {
            Kind::User => &self.user,
            Kind::Guest => &self.guest,
            Kind::Anonymous => &self.anonymous,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Sessions {
    pub fn get(&self, id: u64) -> Option<Arc<Session>> {
        self.all.get(&id).map(|s| s.clone())
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the sessions of a ClientGuid. A ClientGuid is not authenticated.
    pub(crate) fn of_client(&self, client: [u8; 16]) -> Vec<Arc<Session>> {
        let ids = self.by_client.get(&client).map(|ids| ids.iter().copied().collect::<Vec<_>>());
        ids.unwrap_or_default().into_iter().filter_map(|id| self.get(id)).collect()
    }

    /// Returns every session that `which` accepts. Visits all sessions.
    pub fn all(&self, which: impl Fn(&Session) -> bool) -> Vec<Arc<Session>> {
        self.all.iter().filter(|s| which(s)).map(|s| s.clone()).collect()
    }

    /// Makes a session with an unpredictable number.
    pub(crate) fn begin(&self, terms: Terms) -> Result<Arc<Session>, Status> {
        loop {
            // 32 bits as with other servers, because some clients store no more. A number is useless without the session's keys.
            let id = u64::from(getrandom::u32().map_err(|_| Status::INSUFFICIENT_RESOURCES)?);
            if id == 0 || id == u64::from(u32::MAX) {
                continue;
            }
            if let dashmap::Entry::Vacant(place) = self.all.entry(id) {
                let session = Arc::new(Session {
                    id,
                    terms,
                    state: AtomicU8::new(SessionState::InProgress as u8),
                    expires: AtomicU64::new(u64::MAX),
                    user: RwLock::default(),
                    secrets: OnceLock::new(),
                    signing_required: AtomicBool::new(false),
                    encrypt: AtomicBool::new(false),
                    trees: RwLock::default(),
                    next_tree: AtomicU32::new(1),
                    tree_part: Mutex::default(),
                    channels: Mutex::default(),
                    used: AtomicU64::new(0),
                    told: Told::default(),
                    mac: Agreed::default(),
                });
                place.insert(session.clone());
                self.by_client.entry(terms.client_guid).or_default().insert(id);
                return Ok(session);
            }
        }
    }

    /// Returns the limit that rejects a further session of this address, if there is one.
    pub(crate) fn full(&self, from: IpAddr) -> Option<Full> {
        locked(&self.places).full(from)
    }

    /// Returns up to `most` sessions of an address, chosen round-robin.
    pub(crate) fn next_of(&self, host: IpAddr, most: usize) -> Vec<Arc<Session>> {
        let ids = locked(&self.places).next_of(host, most);
        ids.into_iter().filter_map(|id| self.get(id)).collect()
    }

    /// Reserves a place for a session whose user is about to log on from this address.
    pub(crate) fn admit(&self, session: &Session, from: IpAddr) -> Result<(), Limit> {
        locked(&self.places).add(session.id, from)
    }

    pub(crate) fn remove(&self, id: u64) {
        let Some((_, session)) = self.all.remove(&id) else { return };
        locked(&self.places).remove(id);
        let client = session.client_guid();
        if let Some(mut ids) = self.by_client.get_mut(&client) {
            ids.remove(&id);
        }
        self.by_client.remove_if(&client, |_, ids| ids.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Returns the records that a session leaves after these calls.
    fn trail(what: impl FnOnce(&dyn Fn(&'static str), &Told)) -> Vec<&'static str> {
        let (told, records) = (Told::default(), RefCell::new(Vec::new()));
        what(&|record| records.borrow_mut().push(record), &told);
        records.into_inner()
    }

    #[test]
    fn the_end_of_a_session_is_told_behind_its_logon() {
        let usual = trail(|add, told| {
            told.logged_on(|| add("logon"), add);
            told.logged_on(|| add("again"), add);
            told.ended("logoff", add);
        });
        assert_eq!(usual, ["logon", "again", "logoff"]);
        // The connection was lost before the logon was recorded.
        let early = trail(|add, told| {
            told.ended("connection", add);
            told.logged_on(|| add("logon"), add);
        });
        assert_eq!(early, ["logon", "connection"]);
    }

    /// The configuration has changed, or the client may not join: no logon was recorded.
    #[test]
    fn a_session_without_a_logon_has_no_end() {
        assert!(trail(|add, told| told.ended("configuration", add)).is_empty());
    }
}
