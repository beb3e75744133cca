//! Sessions: who is logged on, by which connections, to which trees.
//!
//! *Operation.* [`Sessions`] is `GlobalSessionTable` (MS-SMB2 section 3.3.1.5); a [`Channel`] joins a session to one connection
//! and signs its messages there.
//!
//! *Memory.* Bounded by `limits`.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::Duration;

use dashmap::DashMap;
use mutex::{locked, reading, writing};
use rdma_transport::parts::Limit;
use state::Millis;
use vfs::Cred;

use crate::conn::Conn;
use crate::crypto::seal::{Opener, Sealer};
use crate::crypto::sign::Signer;
use crate::limits::{CHANNELS_MAX, SESSIONS_MAX, SESSIONS_PER_ADDRESS_MAX, TREES_MAX};
use crate::parts::{Part, Parts};
use crate::session_places::{Full, Limits, Places};
use crate::status::Status;
use crate::tree::Tree;
use crate::wire::negotiate::Dialect;

/// How a user came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With a password.
    User,
    /// As a guest.
    Guest,
    /// Without a name.
    Anonymous,
}

/// The one who is logged on.
#[derive(Clone, Debug)]
pub struct User {
    /// Name of the account.
    pub name: String,
    /// How it came in.
    pub kind: Kind,
    /// Who it is to the file system, before a share squashes it.
    pub cred: Cred,
    /// Last part of its SID.
    pub rid: u32,
    /// It came by a ticket of Kerberos.
    pub by_ticket: bool,
}

impl User {
    /// The same account, logged on in the same way.
    pub fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.rid == other.rid && self.name == other.name
    }

    /// As the audit trail names it.
    pub(crate) fn party(&self) -> audit::Party {
        audit::Party::named(self.name.clone(), self.cred.uid)
    }
}

/// The user of a session, as a name that costs no copy.
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
    /// Logging on for the first time.
    InProgress = 0,
    /// Logged on.
    Valid = 1,
    /// Its ticket has run out: it must log on again.
    Expired = 2,
    /// It has ended.
    Gone = 3,
}

/// What authentication and NEGOTIATE gave a session; the same until it ends.
pub(crate) struct Secrets {
    /// Signs and verifies where no channel does: the requests that bind a further connection.
    pub(crate) signer: Signer,
    /// Encrypts what the server sends.
    pub(crate) sealer: Option<Sealer>,
    /// Decrypts what the client sends.
    pub(crate) opener: Option<Opener>,
}

/// What was negotiated on the connection that made a session, which every further one must share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) dialect: Dialect,
    pub(crate) client_guid: [u8; 16],
    pub(crate) signing: crate::crypto::sign::Algorithm,
    pub(crate) cipher: Option<crate::crypto::seal::Cipher>,
}

/// A session.
pub struct Session {
    /// Its number.
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
    /// Its trees among those of its client's address.
    tree_part: Mutex<Option<Part>>,
    channels: Mutex<Vec<Arc<Channel>>>,
    /// When its client last sent a command, on the server's clock.
    used: AtomicU64,
    /// What the audit trail was told of it.
    told: Told,
}

/// What the audit trail knows of a session: its end is told behind its logon, and where there was none, not at all.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<ToldState>);

#[derive(Debug, Default)]
enum ToldState {
    #[default]
    Nothing,
    LoggedOn,
    /// It ended before the logon was told: the connection was lost while the user was looked up.
    Ended(&'static str),
}

impl Told {
    /// The logon is told by `tell`; and the end, where it was earlier, by `tell_end`.
    pub(crate) fn logged_on(&self, tell: impl FnOnce(), tell_end: impl FnOnce(&'static str)) {
        let mut state = locked(&self.0);
        tell();
        if let ToldState::Ended(reason) = std::mem::replace(&mut *state, ToldState::LoggedOn) {
            tell_end(reason);
        }
    }

    /// The end is told by `tell_end` where the logon was, or once it is.
    pub(crate) fn ended(&self, reason: &'static str, tell_end: impl FnOnce(&'static str)) {
        let mut state = locked(&self.0);
        match *state {
            ToldState::LoggedOn => tell_end(reason),
            ToldState::Nothing | ToldState::Ended(_) => *state = ToldState::Ended(reason),
        }
    }
}

/// A session on one connection.
pub struct Channel {
    /// The session.
    pub session: Arc<Session>,
    /// The connection.
    pub conn: Weak<Conn>,
    /// `Channel.SigningKey`; `None` for guests and anonymous users, who share no secret with the server.
    pub(crate) signer: Option<Signer>,
}

impl Session {
    /// The dialect, which all its connections share.
    pub fn dialect(&self) -> Dialect {
        self.terms.dialect
    }

    /// The client that made it.
    pub fn client_guid(&self) -> [u8; 16] {
        self.terms.client_guid
    }

    /// How it stands now.
    pub fn state(&self, now: Millis) -> SessionState {
        match self.state.load(Ordering::Acquire) {
            0 => SessionState::InProgress,
            1 if now >= self.expires.load(Ordering::Relaxed) => SessionState::Expired,
            1 => SessionState::Valid,
            _ => SessionState::Gone,
        }
    }

    /// Logs a user on, for the first time or again. `expires` on the server's clock.
    pub(crate) fn log_on(&self, user: User, expires: Option<Millis>) {
        *writing(&self.user) = Some(Arc::new(user));
        self.expires.store(expires.unwrap_or(u64::MAX), Ordering::Relaxed);
        // A session that ended meanwhile stays so.
        let _ = self.state.compare_exchange(
            SessionState::InProgress as u8,
            SessionState::Valid as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// Ends it. True for the one who did.
    pub(crate) fn end(&self) -> bool {
        self.state.swap(SessionState::Gone as u8, Ordering::AcqRel) != SessionState::Gone as u8
    }

    /// Who is logged on; `None` before.
    pub fn user(&self) -> Option<Arc<User>> {
        reading(&self.user).clone()
    }

    /// Name of its user, by which what it holds is told from what others hold; empty before the logon.
    pub(crate) fn owner(&self) -> Owner {
        Owner(self.user())
    }

    /// Its user, for the audit trail.
    pub(crate) fn party(&self) -> audit::Party {
        self.user().map_or_else(audit::Party::default, |user| user.party())
    }

    /// Tells the audit trail that its user has logged on.
    pub(crate) fn tell_logon(&self, tell: impl FnOnce()) {
        self.told.logged_on(tell, |reason| self.record_end(reason));
    }

    /// Tells the audit trail that it has ended.
    pub(crate) fn tell_end(&self, reason: &'static str) {
        self.told.ended(reason, |reason| self.record_end(reason));
    }

    /// Tells the audit trail that it goes on and is no longer connected to the share of this tree.
    pub(crate) fn tell_tree_end(&self, tree: &Tree, reason: &'static str) {
        if tree.share().is_some() {
            audit::record(|| audit::Event::ShareEnd {
                party: self.party(),
                share: tree.name.clone(),
                session: self.id,
                reason,
            });
        }
    }

    fn record_end(&self, reason: &'static str) {
        let (party, session) = (self.party(), self.id);
        audit::record(|| audit::Event::Logoff { party, session, reason });
    }

    /// Its client has sent a command.
    pub(crate) fn note_used(&self, now: Millis) {
        self.used.store(now, Ordering::Relaxed);
    }

    /// For how long its client has sent no command.
    pub(crate) fn idle(&self, now: Millis) -> Duration {
        Duration::from_millis(now.saturating_sub(self.used.load(Ordering::Relaxed)))
    }

    /// Its messages must be signed.
    pub fn signing_required(&self) -> bool {
        self.signing_required.load(Ordering::Relaxed)
    }

    /// Its messages must be encrypted.
    pub fn encrypts(&self) -> bool {
        self.encrypt.load(Ordering::Relaxed)
    }

    pub(crate) fn require(&self, signing: bool, encryption: bool) {
        self.signing_required.store(signing, Ordering::Relaxed);
        self.encrypt.store(encryption, Ordering::Relaxed);
    }

    /// The tree of this number.
    pub fn tree(&self, id: u32) -> Option<Arc<Tree>> {
        reading(&self.trees).get(&id).cloned()
    }

    /// Adds a tree; its number is given by the session. `None` when there are too many.
    pub(crate) fn add_tree(&self, make: impl FnOnce(u32) -> Tree) -> Option<Arc<Tree>> {
        let mut trees = writing(&self.trees);
        if trees.len() >= TREES_MAX {
            return None;
        }
        // Zero and all ones mean something else; numbers in use are passed over.
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

    /// A place for one more tree among those of the address of its client.
    pub(crate) fn room_for_a_tree(&self, all: &Parts, peer: SocketAddr) -> Result<(), Status> {
        let count = reading(&self.trees).len() + 1;
        locked(&self.tree_part).get_or_insert_with(|| all.of(peer)).set(count)
    }

    /// Gives back the places of trees that it has no more.
    fn count_trees(&self) {
        let count = reading(&self.trees).len();
        if let Some(part) = &mut *locked(&self.tree_part) {
            // Fewer than before are never too many.
            let _ = part.set(count);
        }
    }

    pub(crate) fn remove_tree(&self, id: u32) -> Option<Arc<Tree>> {
        let tree = writing(&self.trees).remove(&id);
        self.count_trees();
        tree
    }

    /// Its trees.
    pub fn trees(&self) -> Vec<Arc<Tree>> {
        reading(&self.trees).values().cloned().collect()
    }

    /// Takes all trees.
    pub(crate) fn take_trees(&self) -> Vec<Arc<Tree>> {
        let all = writing(&self.trees).drain().map(|(_, tree)| tree).collect();
        self.count_trees();
        all
    }

    /// Its connections.
    pub fn channels(&self) -> Vec<Arc<Channel>> {
        locked(&self.channels).clone()
    }

    /// Where its connections come from.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let conns =
            locked(&self.channels).iter().filter_map(|c| c.conn.upgrade()).collect::<Vec<_>>();
        conns.iter().map(|conn| conn.info.peer.ip()).collect()
    }

    /// One more connection. False when it has all it may have.
    pub(crate) fn add_channel(&self, channel: Arc<Channel>) -> bool {
        let mut channels = locked(&self.channels);
        if channels.len() >= CHANNELS_MAX {
            return false;
        }
        channels.push(channel);
        true
    }

    /// A connection is gone. True when none is left.
    pub(crate) fn remove_channel(&self, conn: &Arc<Conn>) -> bool {
        let mut channels = locked(&self.channels);
        channels.retain(|c| !std::ptr::eq(c.conn.as_ptr(), Arc::as_ptr(conn)));
        channels.is_empty()
    }
}

/// All sessions.
pub struct Sessions {
    all: DashMap<u64, Arc<Session>>,
    /// By `ClientGuid`: a client with many connections has few of them.
    by_client: DashMap<[u8; 16], HashSet<u64>>,
    /// Of those whose users have logged on: at most [`SESSIONS_MAX`]. How many are still logging on is bounded by
    /// [`crate::logons`].
    places: Mutex<Places>,
    /// How logons ended.
    pub logons: LogonCounts,
}

impl Default for Sessions {
    fn default() -> Self {
        let places = Limits {
            of_all: Limit::new("sessions", SESSIONS_MAX),
            of_address: Limit::new("sessions-of-address", SESSIONS_PER_ADDRESS_MAX),
        };
        Self {
            all: DashMap::new(),
            by_client: DashMap::new(),
            places: Mutex::new(Places::new(places)),
            logons: LogonCounts::default(),
        }
    }
}

/// How logons ended so far, those that bind a connection to a session among them.
#[derive(Debug, Default)]
pub struct LogonCounts {
    /// Of a user, with a password or a ticket.
    pub user: AtomicU64,
    /// As a guest.
    pub guest: AtomicU64,
    /// Without a name.
    pub anonymous: AtomicU64,
    /// Refused.
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
    /// The session of this number.
    pub fn get(&self, id: u64) -> Option<Arc<Session>> {
        self.all.get(&id).map(|s| s.clone())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The sessions of a client. Anybody may call itself by its name.
    pub(crate) fn of_client(&self, client: [u8; 16]) -> Vec<Arc<Session>> {
        let ids = self.by_client.get(&client).map(|ids| ids.iter().copied().collect::<Vec<_>>());
        ids.unwrap_or_default().into_iter().filter_map(|id| self.get(id)).collect()
    }

    /// Every session for which this holds. Looks at all of them.
    pub fn all(&self, which: impl Fn(&Session) -> bool) -> Vec<Arc<Session>> {
        self.all.iter().filter(|s| which(s)).map(|s| s.clone()).collect()
    }

    /// A new session, with a number that nobody can guess.
    pub(crate) fn begin(&self, terms: Terms) -> Result<Arc<Session>, Status> {
        loop {
            // 32 bits as with other servers: some clients keep no more. Only who holds the keys can use a number.
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
                });
                place.insert(session.clone());
                self.by_client.entry(terms.client_guid).or_default().insert(id);
                return Ok(session);
            }
        }
    }

    /// The limit that keeps a further session of this address out, if there is one.
    pub(crate) fn full(&self, from: IpAddr) -> Option<Full> {
        locked(&self.places).full(from)
    }

    /// Some sessions of an address, which are looked at again after all others.
    pub(crate) fn next_of(&self, host: IpAddr, most: usize) -> Vec<Arc<Session>> {
        let ids = locked(&self.places).next_of(host, most);
        ids.into_iter().filter_map(|id| self.get(id)).collect()
    }

    /// The user of a session is about to be logged on from this address.
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

    /// A trail that was told these things of one session.
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
        // Its connection was lost before the logon was told.
        let early = trail(|add, told| {
            told.ended("connection", add);
            told.logged_on(|| add("logon"), add);
        });
        assert_eq!(early, ["logon", "connection"]);
    }

    /// The configuration has changed, or its client may not join: nobody was told that it had logged on.
    #[test]
    fn a_session_without_a_logon_has_no_end() {
        assert!(trail(|add, told| told.ended("configuration", add)).is_empty());
    }
}
