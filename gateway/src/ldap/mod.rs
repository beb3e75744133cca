//! The LDAP directory that has further users and groups (`users_from`).
//!
//! *Operation.* A logon to a name that is in neither the configuration nor the database asks the directory before the password is
//! checked, and again after it for the groups; [`cache`] has the rules by which earlier answers are enough. Each question has a
//! separate connection ([`ask`]). A thread asks every [`WATCH`] whether a server answers, and every [`WATCH_AWAY`] during
//! silence: meanwhile no logon waits for one. It repeats the question about known users, so that sessions of removed users end, and
//! answers are new when the directory goes away. Answers are kept in a file of the service ([`kept`]).
//!
//! *Memory.* The tables of [`cache`], and the messages that [`guard`] allows for each question. The callers limit the questions at
//! the same time.
//!
//! *Errors.* [`Fault`] with a remedy, for log, status and `check`.

mod ask;
mod cache;
mod entry;
#[cfg(test)]
mod faults_tests;
mod guard;
mod kept;
mod named;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use audit::PeerText;
use config::{LdapServer, Settings, UsersFrom};
use ldap3::Scope;
use mutex::locked;
use smb_auth::{Look, LookedUp};
use smbd_core::users::{Account, rid_of_uid};
use vfs::{Cred, Token};
use zeroize::Zeroizing;

use crate::domain::Later;
use crate::records::ServiceFiles;
use crate::secret_files::in_time;
use crate::trust::check_secret;

use ask::{Access, Fault, Faults, Session};
use cache::{Cache, Change, Lack, Now, cred};
use entry::{Group, Numbers, User};
pub(crate) use named::{Meant, Name, Unresolved, time_for};

/// Time for one question, over all servers: less than the wait of its caller.
const ANSWER_MAX: Duration = Duration::from_millis(2800);
/// Time between two questions of the watch.
const WATCH: Duration = Duration::from_secs(30);
/// The same while no server answers.
const WATCH_AWAY: Duration = Duration::from_secs(2);
/// Equal answers are written again after this time: a later process must know how old they are.
const WRITE_AGAIN: Duration = Duration::from_secs(600);
/// Most known users in one repeated query of the watch, each [`cache::FRESH`], and its longest time limit.
const AGAIN_MAX: usize = 64;
const AGAIN_TIME: Duration = Duration::from_secs(1);
/// Most lines about users that are gone or have other numbers, between two looks at them.
const CHANGES_MAX: usize = 1024;

/// The directories of the settings that were read, by the folder of their answers.
type All = HashMap<(PathBuf, UsersFrom), Arc<Ldap>>;

static ALL: LazyLock<Mutex<All>> = LazyLock::new(Mutex::default);

/// Returns the directory of these settings, the same one at each call. Blocks for some seconds at most.
///
/// # Errors
/// One line: the certificates or the filter cannot be used.
pub(crate) fn of(settings: &Settings) -> Result<Option<Arc<Ldap>>, String> {
    let Some(from) = &settings.users_from else { return Ok(None) };
    let key = (settings.state.clone(), from.clone());
    let known = {
        let mut all = locked(&ALL);
        // What a refused configuration has learned stands still since: users may have been removed.
        if all.values().any(|it| it.is_watched()) {
            all.retain(|_, it| Arc::strong_count(it) > 1);
        }
        all.get(&key).cloned()
    };
    if let Some(known) = known {
        let read = tls(from)?;
        // The one in force has the new certificates only if this configuration comes into force. While its servers cannot be asked,
        // the old ones may be the reason.
        match known.is_watched() && !known.is_away() {
            true => *locked(&known.next_tls) = Some(read),
            false => *locked(&known.tls) = read,
        }
        return Ok(Some(known));
    }
    let made = Arc::new(Ldap::new(from)?);
    // The answers of one that is not watched are not the last ones.
    let is_earlier = |it: &&Arc<Ldap>| it.is_watched() && it.line() == made.line();
    let earlier = locked(&ALL).values().find(is_earlier).cloned();
    match (earlier, ServiceFiles::of(settings)) {
        (Some(earlier), _) => {
            let cache = locked(&earlier.cache).clone();
            *locked(&made.cache) = cache;
        }
        (None, Ok(files)) => {
            let earlier = kept::read(&files, &made.line());
            locked(&made.cache).add_earlier(earlier);
        }
        (None, Err(_)) => {}
    }
    Ok(Some(locked(&ALL).entry(key).or_insert(made).clone()))
}

/// Returns what is known of the directory that is in force. Does not wait.
pub(crate) fn seen() -> Option<Seen> {
    let in_force = locked(&ALL).values().find(|it| it.is_watched()).cloned();
    in_force.map(|it| it.seen())
}

/// Returns the TLS of connections to the servers, if any server has it. Blocks for some seconds at most.
fn tls(from: &UsersFrom) -> Result<Option<Arc<rustls::ClientConfig>>, String> {
    let has_tls = from.ldap.iter().any(|server| server.tls);
    match (has_tls, &from.ca) {
        (false, _) => Ok(None),
        (true, Some(ca)) => in_time(ca, |ca| ask::tls(Some(ca))).map(Some),
        (true, None) => ask::tls(None).map(Some),
    }
}

/// The last answer, as seen by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The servers, and the base.
    pub(crate) directory: String,
    /// Why no server answers; `None`: one does, or the first question has not begun.
    pub(crate) away: Option<String>,
    /// Users whose last answers are known.
    pub(crate) users: u64,
    /// Answers about users.
    pub(crate) found: u64,
    /// Answers that a name is no user, or that its entry is unusable.
    pub(crate) unknown: u64,
    /// Questions of logons without an answer.
    pub(crate) unanswered: u64,
}

#[derive(Default)]
struct State {
    /// Why no server answers.
    away: Option<String>,
    /// The time of the last question.
    asked: Option<Instant>,
    /// The last time at which names of configurations had to be resolved again.
    resolved: Option<Instant>,
    /// The reasons of entries that make no users were logged for these names.
    told: HashMap<String, String>,
}

/// The directory.
pub(crate) struct Ldap {
    from: UsersFrom,
    tls: Mutex<Option<Arc<rustls::ClientConfig>>>,
    /// The same of the configuration that was read last.
    next_tls: Mutex<Option<Option<Arc<rustls::ClientConfig>>>>,
    cache: Mutex<Cache>,
    state: Mutex<State>,
    /// Index of the server that answered last.
    first: AtomicUsize,
    /// The files of the gateway that serves with it.
    files: Mutex<Option<ServiceFiles>>,
    /// The present watch.
    watched: Mutex<Option<Arc<()>>>,
    later: Later,
    /// The time of the last write.
    written: Mutex<Option<Instant>>,
    changes: Mutex<Vec<String>>,
    /// A name of a configuration had no answer.
    has_unresolved: AtomicBool,
    /// Names of configurations must be resolved again: a server answers since, or has another answer about one.
    must_resolve: AtomicBool,
    found: AtomicU64,
    unknown: AtomicU64,
    unanswered: AtomicU64,
}

/// A user with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Person {
    user: User,
    groups: Vec<Group>,
}

/// Answer to a question about a user: `Ok(None)` without an entry, an error with the reason if the entry is unusable.
type Told = Result<Option<Person>, String>;
/// The same for a list or setting, which may name a user who cannot log on.
type Named = Result<Option<Cred>, String>;

impl std::fmt::Debug for Ldap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ldap({})", self.from)
    }
}

fn account(user: &User) -> Account {
    Account {
        name: user.name.clone(),
        nt_hash: user.hash.0.clone(),
        rid: rid_of_uid(user.uid),
        cred: cred(user),
    }
}

/// Returns whether a name may be one of the directory: clients invent names.
fn is_askable(name: &str) -> bool {
    config::user_name(name).is_ok()
}

impl Ldap {
    fn new(from: &UsersFrom) -> Result<Self, String> {
        if ldap3::parse_filter(&from.filter).is_err() {
            return Err(format!("users_from: filter: `{}` is no filter (RFC 4515)", from.filter));
        }
        Ok(Self {
            from: from.clone(),
            tls: Mutex::new(tls(from)?),
            next_tls: Mutex::default(),
            cache: Mutex::default(),
            state: Mutex::default(),
            first: AtomicUsize::new(0),
            files: Mutex::default(),
            watched: Mutex::default(),
            later: Later::default(),
            written: Mutex::default(),
            changes: Mutex::default(),
            has_unresolved: AtomicBool::new(false),
            must_resolve: AtomicBool::new(false),
            found: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
        })
    }

    /// Returns the line that identifies answers of this directory.
    fn line(&self) -> String {
        format!("headgate 1 {:?} {:?}", self.from.base, self.from.filter)
    }

    /// Takes the certificates that were read last, watches the servers, and keeps answers in these files, until [`Self::stop`].
    pub(crate) fn start(self: &Arc<Self>, files: Option<&ServiceFiles>) {
        self.start_by(files, |work| {
            thread::Builder::new().name("ldap".into()).spawn(work).map(drop)
        });
    }

    /// Like [`Self::start`], with a function that starts a thread.
    fn start_by(
        self: &Arc<Self>,
        files: Option<&ServiceFiles>,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<()>,
    ) {
        *locked(&self.files) = files.cloned();
        if let Some(next) = locked(&self.next_tls).take() {
            *locked(&self.tls) = next;
        }
        let mut watched = locked(&self.watched);
        if watched.is_some() {
            return;
        }
        let (it, turn) = (Arc::downgrade(self), Arc::new(()));
        *watched = Some(turn.clone());
        if let Err(error) = spawn(Box::new(move || watch(&it, &turn))) {
            // The next reload tries again.
            *watched = None;
            tracing::warn!(%error, "the directory of users is not watched");
        }
    }

    /// Ends the watch: the configuration no longer names this directory. Its answers are not used again, since nothing keeps them
    /// new.
    pub(crate) fn stop(&self) {
        locked(&ALL).retain(|_, it| !std::ptr::eq(&raw const **it, self));
        *locked(&self.watched) = None;
    }

    fn is_watched(&self) -> bool {
        locked(&self.watched).is_some()
    }

    /// Returns what is known without a question.
    pub(crate) fn seen(&self) -> Seen {
        let servers: Vec<String> = self.from.ldap.iter().map(ToString::to_string).collect();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Seen {
            directory: format!("{} below {}", servers.join(", "), self.from.base),
            away: locked(&self.state).away.clone(),
            users: locked(&self.cache).len() as u64,
            found: count(&self.found),
            unknown: count(&self.unknown),
            unanswered: count(&self.unanswered),
        }
    }

    fn is_away(&self) -> bool {
        locked(&self.state).away.is_some()
    }

    /// Returns whether no question is needed to know that no server answers. Without the watch nothing else would ask again.
    fn is_known_away(&self) -> bool {
        let is_watched = self.is_watched();
        let state = locked(&self.state);
        let is_recent = || state.asked.is_some_and(|asked| asked.elapsed() < WATCH_AWAY);
        state.away.is_some() && (is_watched || is_recent())
    }

    /// Returns a user who may log on now. Does not wait.
    pub(crate) fn account_for_logon(&self, name: &str) -> Option<Account> {
        let cache = locked(&self.cache);
        cache.find_for_logon(name, self.from.keep, Now::real()).map(account)
    }

    /// Returns a user whose sessions may go on. Does not wait.
    pub(crate) fn account(&self, name: &str) -> Option<Account> {
        let how = (self.is_away(), self.from.keep);
        locked(&self.cache).find(name, how, Now::real()).map(account)
    }

    /// Calls `each` with all users who may log on. Does not wait.
    pub(crate) fn each(&self, each: &mut dyn FnMut(Account)) {
        let how = (self.is_away(), self.from.keep);
        let all: Vec<Account> = locked(&self.cache).all(how, Now::real()).map(account).collect();
        all.into_iter().for_each(each);
    }

    /// Returns a user who may log on and has this uid: of those whose names `may` takes, the first. Does not wait, and copies one
    /// user only: clients ask about many uids in one call.
    pub(crate) fn by_uid(&self, uid: u32, may: &dyn Fn(&str) -> bool) -> Option<Account> {
        let how = (self.is_away(), self.from.keep);
        let cache = locked(&self.cache);
        let of_uid = cache.of_uid(uid, how, Now::real()).filter(|user| may(&user.name));
        of_uid.min_by(|a, b| a.name.cmp(&b.name)).map(account)
    }

    /// Returns whether a logon must query the directory about a name for this reason. Does not wait.
    pub(crate) fn must_look_up(&self, name: &str, why: Look) -> bool {
        is_askable(name) && locked(&self.cache).must_look_up(name, why, Now::real())
    }

    /// Asks about a user, for [`Self::account`]. Blocks for some seconds at most.
    pub(crate) fn look_up(self: &Arc<Self>, name: &str) -> LookedUp {
        if self.is_known_away() {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            return LookedUp::Away;
        }
        let began = Now::real();
        match self.ask_user(name) {
            Ok(told) => {
                self.take(name, told, began);
                LookedUp::Answered
            }
            Err(faults) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                if !is_loaded(&faults) {
                    return LookedUp::Away;
                }
                let why = reasons(&faults);
                self.tell(
                    name,
                    Some(why),
                    "the directory has no time to find the groups of a user",
                );
                LookedUp::Busy
            }
        }
    }

    /// Keeps an answer about a user to a question that began at this time, unless one to a later question is kept.
    fn take(self: &Arc<Self>, name: &str, told: Told, now: Now) {
        let (person, why) = match told {
            Ok(person) => (person, None),
            Err(why) => (None, Some(why)),
        };
        let lack = if why.is_some() { Lack::Unusable } else { Lack::NoEntry };
        self.tell(name, why, "an entry of the directory makes no user");
        let is_known = person.is_some();
        let change = match person {
            Some(Person { user, .. }) => {
                self.found.fetch_add(1, Ordering::Relaxed);
                locked(&self.cache).keep(name, user, now)
            }
            None => {
                self.unknown.fetch_add(1, Ordering::Relaxed);
                locked(&self.cache).keep_none(name, lack, now)
            }
        };
        // A user who is made later must not pass a `deny` that means the host's user of the name.
        if locked(&self.cache).means_other(name) {
            self.must_resolve.store(true, Ordering::Relaxed);
        }
        let what = match change {
            Change::None | Change::New => None,
            Change::Other => Some("users changed"),
            Change::Gone => Some("users removed"),
        };
        if let Some(what) = what {
            let mut changes = locked(&self.changes);
            if changes.len() < CHANGES_MAX {
                changes.push(format!("{what}: {name}, of the directory"));
            }
        }
        // Names that clients invent cause no write, and equal answers seldom do.
        let is_old = locked(&self.written).is_none_or(|at| at.elapsed() >= WRITE_AGAIN);
        if change != Change::None || is_known && is_old {
            self.write_later();
        }
    }

    /// Logs why a name has no user, once for each reason.
    fn tell(&self, name: &str, why: Option<String>, what: &str) {
        let mut state = locked(&self.state);
        let key = smbd_core::users::database::key(name);
        match why {
            None => drop(state.told.remove(&key)),
            Some(why) if state.told.get(&key) == Some(&why) => {}
            Some(why) => {
                tracing::warn!(user = name, error = why, "{what}");
                if state.told.len() >= cache::NONE_MAX {
                    state.told.clear();
                }
                state.told.insert(key, why);
            }
        }
    }

    /// Takes the users that are gone or have other numbers since the last call; `None` if also no name of a configuration has to be
    /// resolved again.
    pub(crate) fn take_changes(&self) -> Option<Vec<String>> {
        let must_resolve = self.must_resolve.swap(false, Ordering::Relaxed);
        let changes = std::mem::take(&mut *locked(&self.changes));
        (must_resolve || !changes.is_empty()).then_some(changes)
    }

    fn write_later(self: &Arc<Self>) {
        let Some(files) = locked(&self.files).clone() else { return };
        *locked(&self.written) = Some(Instant::now());
        let it = self.clone();
        self.later.run("ldap-users", move || {
            let answers = locked(&it.cache).kept_for_later(it.from.keep, Now::real());
            kept::write(&files, &it.line(), &answers);
        });
    }

    fn access(&self) -> Result<Access, Fault> {
        let bind = match &self.from.bind {
            None => (String::new(), Zeroizing::default()),
            Some((name, file)) => {
                let password = in_time(file, |file| {
                    check_secret("password file", file)?;
                    tools::password::read_password(file)
                });
                (name.clone(), password.map_err(Fault::Own)?)
            }
        };
        Ok(Access { tls: locked(&self.tls).clone(), bind, resolver: ask::resolve })
    }

    /// Asks the servers, and notes whether one answers. Blocks for some seconds at most.
    fn ask<T>(
        &self,
        question: impl AsyncFn(&mut Session) -> Result<T, Fault>,
    ) -> Result<T, Faults> {
        let first = self.first.load(Ordering::Relaxed);
        let asked = match self.access() {
            Ok(access) => ask::ask((&self.from.ldap, first), &access, ANSWER_MAX, question),
            Err(fault) => Err(self.from.ldap.iter().map(|s| (s.clone(), fault.clone())).collect()),
        };
        let mut state = locked(&self.state);
        state.asked = Some(Instant::now());
        match asked {
            Ok((answer, index)) => {
                self.first.store(index, Ordering::Relaxed);
                if state.away.take().is_some() {
                    tracing::info!(server = %self.from.ldap[index], "the directory of users answers");
                }
                // A name that never has an answer causes few reloads.
                let may_resolve = state.resolved.is_none_or(|at| at.elapsed() >= cache::FRESH);
                if may_resolve && self.has_unresolved.swap(false, Ordering::Relaxed) {
                    state.resolved = Some(Instant::now());
                    self.must_resolve.store(true, Ordering::Relaxed);
                }
                Ok(answer)
            }
            // A server answers, and may do so about others.
            Err(faults) if is_loaded(&faults) => Err(faults),
            Err(faults) => {
                let why = reasons(&faults);
                if state.away.as_ref() != Some(&why) {
                    let remedy = faults.first().map_or("", |(_, fault)| fault.remedy());
                    tracing::warn!(
                        error = why,
                        remedy,
                        "the directory of users does not answer: earlier answers decide about logons"
                    );
                }
                state.away = Some(why);
                Err(faults)
            }
        }
    }

    /// Asks about a user on a connection. A fault of this user alone is an unusable entry, and the connection may be over then.
    async fn user_in(&self, session: &mut Session, name: &str) -> Result<(Told, Named), Fault> {
        let unusable = |why: String| Ok((Err(why.clone()), Err(why)));
        let (base, filter) = (&self.from.base, entry::user_filter(&self.from.filter, name));
        let attributes = &entry::USER_ATTRIBUTES;
        let rows = match session.search(base, Scope::Subtree, &filter, attributes, 1).await {
            Err(Fault::TooLarge(why)) => return unusable(format!("the entry is too large: {why}")),
            rows => rows.map_err(Fault::of_all)?,
        };
        let user = entry::user(&rows, name);
        let Numbers { names, uid, gid } = match entry::numbers(&rows, name) {
            Ok(Some(numbers)) => numbers,
            Ok(None) => return Ok((user.map(|_| None), Ok(None))),
            Err(why) => return Ok((user.and(Err(why.clone())), Err(why))),
        };
        let dn = rows.first().map_or("", |row| &row.dn);
        let filter = entry::groups_filter(&names, dn);
        let (attributes, most) = (&entry::GROUP_ATTRIBUTES, entry::GROUPS_MAX);
        let rows = match session.search(base, Scope::Subtree, &filter, attributes, most).await {
            Err(Fault::TooLarge(why) | Fault::Limit(why)) => {
                return unusable(format!("the groups of the user cannot be read: {why}"));
            }
            // The groups of a user that may not log on are not needed to say so.
            Err(fault @ Fault::Loaded(_)) => return user.map_or_else(unusable, |_| Err(fault)),
            rows => rows?,
        };
        let groups = match entry::groups(&rows) {
            Ok(groups) => groups,
            Err(why) => return unusable(why),
        };
        let gids = || groups.iter().map(|group| group.gid);
        let others = gids().filter(|other| *other != gid).collect();
        let named = Cred { uid, gid, groups: others, token: Token::NONE };
        let told = user.map(|user| {
            let user = User { groups: gids().collect(), ..user? };
            Some(Person { user, groups: groups.clone() })
        });
        Ok((told, Ok(Some(named))))
    }

    fn ask_user(&self, name: &str) -> Result<Told, Faults> {
        let asked = self.ask(async |session: &mut Session| self.user_in(session, name).await);
        asked.map(|(told, _)| told)
    }

    /// Asks again about known users whose answers are the oldest. Returns false without such users. Blocks for some seconds at
    /// most.
    fn ask_again(self: &Arc<Self>) -> bool {
        let names = locked(&self.cache).oldest(AGAIN_MAX, Now::real());
        if names.is_empty() {
            return false;
        }
        let told = self.ask_some(&names, async |session: &mut Session, name: &String| {
            locked(&self.cache).note_try(name, Now::real());
            self.user_in(session, name).await
        });
        for (name, ((told, _), began)) in names.iter().zip(told) {
            self.take(name, told, began);
        }
        true
    }

    /// Asks about the first of these, as many as have answers within [`again_time`] on one connection. Returns their answers, each
    /// with the begin of its question. Blocks for some seconds at most.
    fn ask_some<K, T>(
        &self,
        all: &[K],
        one: impl AsyncFn(&mut Session, &K) -> Result<T, Fault>,
    ) -> Vec<(T, Now)> {
        // Answers before a late one are kept.
        let answers = RefCell::new(Vec::new());
        let asked = self.ask(async |session: &mut Session| {
            answers.borrow_mut().clear();
            for it in all {
                let began = Now::real();
                let told = one(session, it).await;
                let is_first = answers.borrow().is_empty();
                match told {
                    // The limits are for one question, and these are the answers to several.
                    _ if session.is_over() && !is_first => break,
                    Ok(told) => answers.borrow_mut().push((told, began)),
                    Err(fault) if is_first => return Err(fault),
                    Err(_) => break,
                }
                // The next turn asks about the others.
                if session.is_over() || session.age() >= again_time(self.from.ldap.len()) {
                    break;
                }
            }
            Ok(())
        });
        // The reason is logged.
        drop(asked);
        answers.into_inner()
    }

    /// Asks about a user for `check`: the names of its groups with their numbers, or why its entry is unusable. Blocks for some
    /// seconds at most.
    pub(crate) fn person(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Option<(Cred, Vec<String>)>, String> {
        if !is_askable(name) {
            return Ok(None);
        }
        match self.ask_user(name) {
            Ok(told) => {
                let Some(Person { user, groups }) = told? else { return Ok(None) };
                let named = |group: &Group| {
                    let name = PeerText::from(&*group.name);
                    format!("{} ({})", name.as_str(), group.gid)
                };
                Ok(Some((cred(&user), groups.iter().map(named).collect())))
            }
            Err(faults) => {
                let kept = self.account(name);
                let old = "names unknown: this is the last answer of the directory".to_owned();
                let why =
                    || format!("the directory of users does not answer: {}", reasons(&faults));
                kept.map_or_else(|| Err(why()), |kept| Ok(Some((kept.cred, vec![old]))))
            }
        }
    }

    /// Tries each server separately for `check`. Returns a line for each that does not answer, with its remedy, and, if any
    /// answers, whether one shows a user with a hash. Blocks for some seconds.
    pub(crate) fn probe(&self) -> (Vec<String>, Option<bool>) {
        let (mut lines, mut has_hash) = (Vec::new(), None);
        let access = match self.access() {
            Ok(access) => access,
            Err(fault) => return (vec![format!("{fault}; {}", fault.remedy())], None),
        };
        let (base, filter) = (&self.from.base, &self.from.filter);
        let filter = format!("(&{filter}(|(sambaNTPassword=*)(ipaNTHash=*)))");
        for server in &self.from.ldap {
            let one = std::slice::from_ref(server);
            let asked = ask::ask((one, 0), &access, ANSWER_MAX, async |session: &mut Session| {
                session.search(base, Scope::Base, "(objectClass=*)", &["1.1"], 1).await?;
                let attributes = ["uid", "sambaNTPassword", "ipaNTHash"];
                // A server may count entries whose hashes it does not show.
                let rows = session.search(base, Scope::Subtree, &filter, &attributes, 1).await?;
                let is_hash = |name: &str| ["sambantpassword", "ipanthash"].contains(&name);
                Ok(rows.iter().any(|row| row.values.keys().any(|name| is_hash(name))))
            });
            match asked {
                Ok((has, _)) => has_hash = Some(has || has_hash.unwrap_or(false)),
                Err(faults) => lines.extend(
                    faults.iter().map(|(server, f)| format!("{server}: {f}; {}", f.remedy())),
                ),
            }
        }
        (lines, has_hash)
    }
}

/// Returns whether a server lacks time for this question alone.
fn is_loaded(faults: &Faults) -> bool {
    faults.iter().any(|(_, fault)| matches!(fault, Fault::Loaded(_)))
}

/// Formats why each server gives no answer.
fn reasons(faults: &[(LdapServer, Fault)]) -> String {
    let lines: Vec<String> =
        faults.iter().map(|(server, fault)| format!("{server}: {fault}")).collect();
    lines.join("; ")
}

/// Returns the time limit of a repeated query, from the begin of its connection: half of what a server has where none of so many
/// answers, so that the last answer comes in time as well.
fn again_time(servers: usize) -> Duration {
    AGAIN_TIME.min(ANSWER_MAX / u32::try_from(servers).unwrap_or(u32::MAX).max(1) / 2)
}

/// Asks from time to time whether a server answers, unless a logon has just asked.
fn watch(of: &Weak<Ldap>, turn: &Arc<()>) {
    let mut again = Instant::now();
    loop {
        thread::sleep(WATCH_AWAY);
        let Some(it) = of.upgrade() else { return };
        // Another watch may have begun since.
        if !locked(&it.watched).as_ref().is_some_and(|now| Arc::ptr_eq(now, turn)) {
            return;
        }
        if !it.is_away() && again.elapsed() >= cache::FRESH {
            again = Instant::now();
            it.ask_again();
        }
        let is_due = {
            let state = locked(&it.state);
            let since = state.asked.map(|asked| asked.elapsed());
            state.away.is_some() || since.is_none_or(|since| since >= WATCH)
        };
        if is_due {
            let base = &it.from.base;
            let asked = it.ask(async |session: &mut Session| {
                let found = session.search(base, Scope::Base, "(objectClass=*)", &["1.1"], 1).await;
                found.map_err(Fault::of_all)
            });
            // The reason is logged.
            drop(asked);
        }
    }
}
