//! The SMB users of the configuration and of the database in the state folder.
//!
//! *Operation.* [`UserDb`] answers the server's queries from memory. [`UserDb::refresh`] reads the database again when the
//! file has changed, so that `headgate user add` works while the gateway runs.
//!
//! *Errors.* A database that is damaged, or that others can read, is rejected. At the start this is fatal; later the users
//! remain unchanged and the error is logged.

mod directory;
mod password;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use config::{Identity, Names, PasswordLength, Settings, User};
use mutex::{locked, reading, writing};
use siphasher::sip::SipHasher13;
use smb_auth::{Look, LookedUp, NtHash};
use smbd_core::domain_engine::Engine;
use smbd_core::users::database::{Database, key};
use smbd_core::users::{Account, Ticketed, Unchanged, Users, rid_of_uid};
use vfs::accounts::{self, Directory};
use vfs::{ANONYMOUS, Cred, Domain, DomainIdentity, Token};
use zeroize::Zeroizing;

use crate::domain;
use crate::domain_service::{self, DomainService, OfHost};
use crate::ldap::Ldap;
use crate::records::{ServiceFiles, Stamp};
pub(crate) use crate::secret_files::in_time;

/// Maximum number of remembered host users who logged on with tickets; as many sessions may be logged on.
const TICKETED_MAX: usize = 65_536;
/// The uid of guests and of squashed NFS users. A user with this uid is rejected, since it would share their files.
const NOBODY: u32 = ANONYMOUS;
/// Uids for users that are unknown to the host: outside the ranges of systemd and SSSD, and small enough for a RID
/// ([`rid_of_uid`]).
const UNKNOWN_UIDS: Range<u32> = 0x7800_0000..0x7fff_0000;

/// Time after which an unreadable database is tried again even if it has not changed: reading it also queries the host's name
/// service, which may be the cause.
const RETRY: Duration = Duration::from_secs(10);

/// Name of the database among the files of the service.
pub(crate) const DATABASE: &str = "smb-users";

/// Reads the database; without a file it is empty.
pub(crate) fn read_database(files: &ServiceFiles) -> Result<Database, String> {
    let path = files.path(DATABASE);
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let Some((bytes, mode)) = files.read(DATABASE).map_err(|e| at(&e))? else {
        return Ok(Database::default());
    };
    let bytes = Zeroizing::new(bytes);
    if mode & 0o077 != 0 {
        return Err(format!(
            "{} can be read by others (mode {:04o}), and anyone can log on with its contents; `chmod 600 {}`",
            path.display(),
            mode & 0o7777,
            path.display()
        ));
    }
    Database::parse(std::str::from_utf8(&bytes).map_err(|e| at(&e))?).map_err(|e| at(&e))
}

/// Changes the database under a lock, so that concurrent commands lose no change; after a crash it has the old content or the
/// new content.
pub(crate) fn change_database<T>(
    files: &ServiceFiles,
    change: impl FnOnce(&mut Database) -> Result<T, String>,
) -> Result<T, String> {
    let files = files.to_change()?;
    // In CephFS the second opener cuts off the first.
    let _lock = match &files {
        ServiceFiles::Local(state) => Some(lock(state)?),
        ServiceFiles::Ceph(_) => None,
    };
    let mut database = read_database(&files)?;
    let result = change(&mut database)?;
    let written = files.replace(DATABASE, database.emit().as_bytes());
    written.map_err(|e| format!("{}: {e}", files.path(DATABASE).display()))?;
    Ok(result)
}

/// Locks the database of a state folder against other commands.
fn lock(state: &Path) -> Result<File, String> {
    let at = |path: &Path, e: io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(state).map_err(|e| at(state, e))?;
    let path = state.join(DATABASE).with_extension("lock");
    let mut how = OpenOptions::new();
    let lock = how.mode(0o600).create(true).write(true).truncate(true).open(&path);
    let lock = lock.map_err(|e| at(&path, e))?;
    lock.lock().map_err(|e| at(&path, e))?;
    Ok(lock)
}

/// As [`read_database`], for at most some seconds.
pub(crate) fn read_database_in_time(files: &ServiceFiles) -> Result<Database, String> {
    let its = files.clone();
    in_time(&files.path(DATABASE), move |_| read_database(&its))
}

/// Reads a password as [`tools::password`] does, for at most some seconds; warns if others can read the file.
pub(crate) fn read_password_in_time(path: &Path) -> Result<Zeroizing<String>, String> {
    in_time(path, |path| {
        warn_if_open(path);
        tools::password::read_password(path)
    })
}

/// Returns the user's identity in the file system, and whether the host or the configuration defines it. The error is one
/// line: the name service fails, and the user may be in groups that an access list denies.
pub(crate) fn resolve(name: &str, given: &Identity) -> Result<(Cred, bool), String> {
    let asked = || match accounts::by_name(name)? {
        Some(user) => Ok(Some(user)),
        None => accounts::by_name(&name.to_lowercase()),
    };
    let host = asked().map_err(|e: io::Error| {
        format!("user {name}: this host's name service (passwd, group) fails: {e}")
    })?;
    let known = host.is_some() || given.uid.is_some();
    let base = host.unwrap_or_else(|| stranger(name));
    // The host user's groups do not apply if another uid is given, unless they are given too.
    let same = given.uid.is_none_or(|uid| uid == base.uid) && known;
    let uid = given.uid.unwrap_or(base.uid);
    let gid = given.gid.unwrap_or(if same || !known { base.gid } else { uid });
    let groups = match &given.groups {
        Some(groups) => groups.as_slice().into(),
        None if same => base.groups,
        None => Arc::new([]),
    };
    Ok((Cred { uid, gid, groups, token: vfs::Token::NONE }, known))
}

/// Returns whether the user has the uid of guests and is therefore rejected.
pub(crate) fn is_nobody(cred: &Cred) -> bool {
    cred.uid == NOBODY
}

/// Returns whether the uid was derived from the user's name.
pub(crate) fn is_of_name(cred: &Cred) -> bool {
    UNKNOWN_UIDS.contains(&cred.uid)
}

/// Refuses users with the same uid derived from their names: they would share their files. `users` has names, uids, and
/// whether the host or an account defines the uid.
fn refuse_shared_uids<'a>(users: impl Iterator<Item = (&'a str, u32, bool)>) -> Result<(), String> {
    let made = |(_, uid, known): &(&str, u32, bool)| !known && UNKNOWN_UIDS.contains(uid);
    let mut made: Vec<_> = users.filter(made).map(|(name, uid, _)| (uid, name)).collect();
    made.sort_unstable();
    match made.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        None => Ok(()),
        Some(pair) => {
            let (uid, one, other) = (pair[0].0, pair[0].1, pair[1].1);
            Err(format!(
                "users `{one}` and `{other}`: the host knows neither, and the uid made of each name is {uid}, so that each would \
                 have the files of the other; give one of them a uid (`uid` in `users`, `headgate user add {other} --uid NUMBER`), \
                 or add one of them to the host"
            ))
        }
    }
}

/// Returns the reason why this user cannot have an account, and the remedy; `None` if an account is possible.
pub(crate) fn why_no_account(name: &str, (cred, known): (&Cred, bool)) -> Option<String> {
    if is_nobody(cred) {
        return Some(why_nobody(name));
    }
    (!known && is_of_name(cred)).then(|| {
        format!(
            "the host has no user `{name}`, and no uid is given: `headgate user add {name} --uid NUMBER`, or add the user to \
             the host"
        )
    })
}

/// Returns the reason why an account cannot have this uid, and the remedy.
pub(crate) fn why_nobody(name: &str) -> String {
    format!(
        "uid {NOBODY} belongs to guests and to squashed users of NFS, so `{name}` would share its files with them; \
         give another uid (`uid` in `users`, `headgate user add {name} --uid NUMBER`), or add the user to the host"
    )
}

/// Users who can log on, by name in lower case, with their identity and whether it is defined.
pub(crate) type Accounts = HashMap<String, (Cred, bool)>;

/// Returns the users who can log on.
pub(crate) fn accounts(settings: &Settings) -> Result<Accounts, String> {
    let files = ServiceFiles::of(settings);
    let database = files.and_then(|files| read_database_in_time(&files)).unwrap_or_default();
    let of_database = database
        .entries()
        .map(|e| (e.name.clone(), Identity { uid: e.uid, gid: e.gid, groups: e.groups.clone() }));
    let configured = settings.users.iter().map(|u| (u.name.clone(), u.identity.clone()));
    // The configuration takes precedence over the database.
    let accounts = of_database
        .chain(configured)
        .map(|(name, identity)| Ok((name.to_lowercase(), resolve(&name, &identity)?)))
        .collect::<Result<Accounts, String>>()?;
    refuse_shared_uids(accounts.iter().map(|(name, (cred, known))| (&**name, cred.uid, *known)))?;
    Ok(accounts)
}

/// Returns the identity of guests.
pub(crate) fn guest() -> Cred {
    Cred { uid: NOBODY, gid: NOBODY, groups: Arc::new([]), token: vfs::Token::NONE }
}

/// Returns the identity of a user without a uid from the host or an account: the user that runs the gateway, or for root a
/// number derived from the name.
fn stranger(name: &str) -> Cred {
    let (uid, gid) = match fs::metadata("/proc/self") {
        Ok(m) if m.uid() != 0 => (m.uid(), m.gid()),
        _ => (uid_of_name(name), uid_of_name(name)),
    };
    Cred { uid, gid, groups: Arc::new([]), token: vfs::Token::NONE }
}

/// Returns the uid of a user that is unknown to the host: the same at each start and on each gateway, and unique to the user,
/// so that the user shares no files with guests or other users.
fn uid_of_name(name: &str) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(name.to_lowercase().as_bytes());
    let number = hasher.finish() % u64::from(UNKNOWN_UIDS.end - UNKNOWN_UIDS.start);
    UNKNOWN_UIDS.start + u32::try_from(number).unwrap_or_default()
}

/// Warns without refusing: secrets in a container can often be read by every process in it.
fn warn_if_open(password: &Path) {
    if fs::metadata(password).is_ok_and(|m| m.mode() & 0o077 != 0) {
        let file = password.display();
        tracing::warn!(%file, "this password file can be read by others: `chmod 600 {file}`");
    }
}

/// An account, whether the host or the configuration defines its identity, and the part of it that was given.
type Row = (Account, bool, Identity);

/// Rows by name in lower case.
type Table = HashMap<String, Row>;

/// Compares names and identities of two tables, but not passwords.
fn are_same(a: &Table, b: &Table) -> bool {
    let is_in_b = |(name, (a, ..)): (&String, &Row)| {
        b.get(name).is_some_and(|(b, ..)| a.name == b.name && a.cred == b.cred)
    };
    a.len() == b.len() && a.iter().all(is_in_b)
}

fn names(table: &Table) -> BTreeSet<String> {
    table.values().map(|(a, ..)| a.name.clone()).collect()
}

/// Describes added and removed users, and those with another password or identity, one line for each kind.
fn differences(old: &Table, new: &Table) -> Vec<String> {
    let missing_in = |a: &Table, b: &Table| -> BTreeSet<String> {
        a.iter()
            .filter(|(key, _)| !b.contains_key(*key))
            .map(|(_, (a, ..))| a.name.clone())
            .collect()
    };
    let is_same = |a: &Account, b: &Account| a.nt_hash == b.nt_hash && a.cred == b.cred;
    let changed = new
        .iter()
        .filter(|(key, (now, ..))| old.get(*key).is_some_and(|(before, ..)| !is_same(before, now)));
    let changed = changed.map(|(_, (now, ..))| now.name.clone()).collect();
    let kinds = [
        ("users added", missing_in(new, old)),
        ("users removed", missing_in(old, new)),
        ("users changed", changed),
    ];
    let told = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    told.map(|(what, names)| format!("{what}: {}", Vec::from_iter(names).join(", "))).collect()
}

fn account(name: &str, hash: NtHash, identity: Identity) -> Result<Row, String> {
    let (cred, known) = resolve(name, &identity)?;
    if is_nobody(&cred) {
        let why = why_nobody(name);
        tracing::warn!(user = name, why, "the logons of this user are refused");
    } else if !known {
        tracing::warn!(
            user = name,
            uid = cred.uid,
            gid = cred.gid,
            "the host has no user of this name, and the account has no uid"
        );
    }
    let rid = rid_of_uid(cred.uid);
    Ok((Account { name: name.to_owned(), nt_hash: hash.0, rid, cred }, known, identity))
}

/// Users that were read and are not yet in force.
pub struct Next {
    table: Table,
    configured: Vec<User>,
    /// Stamp of the database before it was read.
    seen: Stamp,
    /// Number of passwords that users had changed before.
    changes: u64,
}

impl Next {
    /// Returns true if no user can log on.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub fn names(&self) -> BTreeSet<String> {
        names(&self.table)
    }

    /// Returns the identity of an account, and whether the host or the configuration defines it.
    pub(crate) fn known(&self, name: &str) -> Option<(Cred, bool)> {
        self.table.get(&key(name)).map(|(a, known, _)| (a.cred.clone(), *known))
    }
}

/// A database file that could not be read.
#[derive(Debug)]
struct Unread {
    stamp: Stamp,
    why: String,
    at: Instant,
}

pub struct UserDb {
    table: RwLock<Arc<Table>>,
    configured: Mutex<Vec<User>>,
    /// Location of the database.
    files: Option<ServiceFiles>,
    /// Stamp of the file at the last successful reading.
    seen: Mutex<Stamp>,
    /// A later version that could not be read. Held while a changed database is read, or a password in it is changed, so that
    /// neither puts back what the other has replaced.
    unread: Mutex<Option<Unread>>,
    /// The file system of the database did not respond at the last look.
    is_silent: AtomicBool,
    /// Directory for names that are not accounts.
    others: &'static dyn Directory,
    names: Names,
    /// Identity of host users at their latest logon with a ticket, by name.
    ticketed: Mutex<HashMap<String, Cred>>,
    /// The domain whose tickets are accepted.
    domain: RwLock<Option<Arc<Domain>>>,
    /// The token of accounts in this domain.
    token: RwLock<Token>,
    keeper: domain::UserKeeper,
    /// The service that knows the users of the domain.
    engine: RwLock<Option<Arc<DomainService>>>,
    /// The directory with further users.
    directory: RwLock<Option<Arc<Ldap>>>,
    /// Fewest characters of new passwords.
    password_least: AtomicU16,
    /// Number of passwords that users have changed.
    changes: AtomicU64,
}

impl UserDb {
    /// Reads all users. `files` has the database, if it exists.
    pub fn open(settings: &Settings, files: Option<&ServiceFiles>) -> Result<Self, String> {
        let book = Self {
            table: RwLock::default(),
            configured: Mutex::default(),
            files: files.cloned(),
            seen: Mutex::default(),
            unread: Mutex::default(),
            is_silent: AtomicBool::new(false),
            others: match settings.names {
                Names::Host => &accounts::Host,
                Names::Own => &accounts::Nobody,
            },
            names: settings.names,
            ticketed: Mutex::default(),
            domain: RwLock::new(domain::of(settings)),
            token: RwLock::new(Token::of_account(domain::of(settings).as_ref())),
            keeper: domain::UserKeeper::default(),
            engine: RwLock::new(domain_service::start(settings, domain::of(settings))),
            directory: RwLock::default(),
            password_least: AtomicU16::new(settings.smb.password_length.0),
            changes: AtomicU64::new(0),
        };
        book.set(book.next(&settings.users)?);
        book.open_directory(settings)?;
        Ok(book)
    }

    /// Reads the users for this configuration without putting them in force. Blocks.
    pub fn next(&self, configured: &[User]) -> Result<Next, String> {
        let changes = self.changes.load(Ordering::SeqCst);
        let seen = self.files.as_ref().map(|files| {
            let its = files.clone();
            in_time(&files.path(DATABASE), move |_| Ok(its.stamp(DATABASE)))
        });
        let seen = seen.transpose()?.flatten();
        let table = self.load(configured)?;
        Ok(Next { table, configured: configured.to_owned(), seen, changes })
    }

    /// Puts these users in force; returns true if one was added, removed or has another identity. Users that have changed since
    /// they were read are found by [`UserDb::refresh`].
    pub fn set(&self, next: Next) -> bool {
        let _turn = locked(&self.unread);
        self.install(next)
    }

    /// Like [`UserDb::set`], for a caller that holds the lock of `unread`.
    fn install(&self, mut next: Next) -> bool {
        let mut table = writing(&self.table);
        if self.changes.load(Ordering::SeqCst) != next.changes {
            // A user has changed its password since they were read, and the old one must stay invalid. The next look reads all.
            next.seen = Stamp::default();
            for (key, (account, ..)) in &mut next.table {
                if let Some((now, ..)) = table.get(key) {
                    account.nt_hash = now.nt_hash.clone();
                }
            }
        }
        *locked(&self.configured) = next.configured;
        *locked(&self.seen) = next.seen;
        let others = !are_same(&table, &next.table);
        *table = Arc::new(next.table);
        others
    }

    /// Changes the domain of accepted tickets to that in these settings.
    pub(crate) fn follow_domain(&self, settings: &Settings) {
        let domain = domain::of(settings);
        *writing(&self.token) = Token::of_account(domain.as_ref());
        *writing(&self.domain) = domain;
        *writing(&self.engine) = domain_service::start(settings, domain::of(settings));
    }

    /// Returns the service that knows the users of the domain.
    pub(crate) fn service(&self) -> Option<Arc<DomainService>> {
        reading(&self.engine).clone()
    }

    #[cfg(test)]
    pub(crate) fn set_service(&self, service: Arc<DomainService>) {
        *writing(&self.engine) = Some(service);
    }

    pub fn names(&self) -> BTreeSet<String> {
        names(&self.current())
    }

    /// Returns true if no user can log on.
    pub fn is_empty(&self) -> bool {
        self.current().is_empty()
    }

    /// Returns the identity of an account, and whether the host or the configuration defines it.
    pub(crate) fn known(&self, name: &str) -> Option<(Cred, bool)> {
        self.current().get(&key(name)).map(|(a, known, _)| (a.cred.clone(), *known))
    }

    /// Reads the database again if it has changed; returns the differences, one line for each kind, and those of users of the
    /// directory since the last call. Blocks for at most some seconds.
    pub fn refresh(&self) -> Option<Vec<String>> {
        match (self.refresh_at(Instant::now()), self.changes_of_directory()) {
            (None, None) => None,
            (own, others) => Some([own, others].into_iter().flatten().flatten().collect()),
        }
    }

    fn refresh_at(&self, at: Instant) -> Option<Vec<String>> {
        let files = self.files.as_ref()?;
        let (path, its) = (files.path(DATABASE), files.clone());
        let looked = in_time(&path, move |_| Ok(its.stamp(DATABASE)));
        let is_silent = looked.is_err();
        if is_silent != self.is_silent.swap(is_silent, Ordering::Relaxed) {
            match &looked {
                Err(error) => {
                    tracing::error!(%error, "the SMB users could not be read again and stay as they were")
                }
                Ok(_) => {
                    tracing::info!(file = %path.display(), "the database of SMB users can be read again")
                }
            }
        }
        let now = looked.ok()?;
        if *locked(&self.seen) == now {
            return None;
        }
        let mut unread = locked(&self.unread);
        let is_later = |it: &Unread| it.stamp != now || at >= it.at + RETRY;
        if !unread.as_ref().is_none_or(is_later) {
            return None;
        }
        let configured = locked(&self.configured).clone();
        let next = match self.next(&configured) {
            Ok(next) => next,
            Err(why) => {
                if unread.as_ref().is_none_or(|before| before.why != why) {
                    tracing::error!(error = %why, "the SMB users could not be read again and stay as they were");
                }
                // A removed user can log on until the file is read.
                *unread = Some(Unread { stamp: now, why, at });
                return None;
            }
        };
        *unread = None;
        let changes = differences(&self.current(), &next.table);
        self.install(next);
        tracing::info!(users = self.current().len(), "the SMB users have been read again");
        Some(changes)
    }

    /// Returns the host's user of this name, with the host's spelling of the name. Blocks.
    fn of_host(&self, name: &str) -> Result<Option<Ticketed>, String> {
        if self.names == Names::Own {
            return Ok(None);
        }
        let Some(cred) = accounts::by_name(name).map_err(|e| e.to_string())? else {
            return Ok(None);
        };
        // In a directory that ignores case, the spellings of a name are one user, who must get one folder.
        let known = accounts::name_of(cred.uid).map_err(|e| e.to_string())?;
        let name = known.filter(|known| key(known) == key(name)).unwrap_or_else(|| name.to_owned());
        Ok(Some(Ticketed { name, rid: rid_of_uid(cred.uid), cred, named: false }))
    }

    fn load(&self, configured: &[User]) -> Result<Table, String> {
        let database = match &self.files {
            Some(files) => read_database_in_time(files)?,
            None => Database::default(),
        };
        let mut table = Table::new();
        for e in database.entries() {
            let identity = Identity { uid: e.uid, gid: e.gid, groups: e.groups.clone() };
            table.insert(key(&e.name), account(&e.name, e.hash.clone(), identity)?);
        }
        // The configuration takes precedence over the database.
        for user in configured {
            let hash = match (&user.password_file, database.get(&user.name)) {
                (Some(path), _) => NtHash::of(&read_password_in_time(path)?),
                (None, Some(entry)) => entry.hash.clone(),
                (None, None) => {
                    return Err(format!(
                        "user {}: no password; set one with `headgate user add {}`, or set `password_file`",
                        user.name, user.name
                    ));
                }
            };
            table.insert(key(&user.name), account(&user.name, hash, user.identity.clone())?);
        }
        refuse_shared_uids(table.values().map(|(a, known, _)| (&*a.name, a.cred.uid, *known)))?;
        Ok(table)
    }

    /// Sets the fewest characters of new passwords.
    pub(crate) fn set_password_least(&self, least: PasswordLength) {
        self.password_least.store(least.0, Ordering::Relaxed);
    }

    pub(crate) fn password_least(&self) -> PasswordLength {
        PasswordLength(self.password_least.load(Ordering::Relaxed))
    }

    /// Returns the identity of a logon to this account with its password.
    fn by_password(&self, cred: Cred) -> Cred {
        Cred { token: reading(&self.token).clone(), ..cred }
    }

    /// Returns the account of this name, of the configuration or the database.
    fn own(&self, name: &str) -> Option<Account> {
        self.current().get(&key(name)).map(|(account, ..)| account.clone())
    }

    /// Returns such an account with this uid: always the same one of several, and never a guest.
    fn own_by_uid(&self, uid: u32) -> Option<Account> {
        let table = self.current();
        let accounts = table.values().map(|(account, ..)| account);
        accounts
            .filter(|a| a.cred.uid == uid && !is_nobody(&a.cred))
            .min_by_key(|a| a.name.clone())
            .cloned()
    }

    fn current(&self) -> Arc<Table> {
        reading(&self.table).clone()
    }
}

impl Users for UserDb {
    fn find(&self, name: &str) -> Option<Account> {
        let found = self.own(name).or_else(|| self.directory()?.account(name))?;
        Some(Account { cred: self.by_password(found.cred), ..found })
    }

    fn find_own(&self, name: &str) -> Option<Account> {
        let found = self.own(name)?;
        Some(Account { cred: self.by_password(found.cred), ..found })
    }

    fn find_for_logon(&self, name: &str) -> Option<Account> {
        let found = self.own(name).or_else(|| self.directory()?.account_for_logon(name))?;
        Some(Account { cred: self.by_password(found.cred), ..found })
    }

    fn has_directory(&self) -> bool {
        self.directory().is_some()
    }

    fn must_look_up(&self, name: &str, why: Look) -> bool {
        self.directory_of(name).is_some_and(|directory| directory.must_look_up(name, why))
    }

    fn look_up(&self, name: &str) -> LookedUp {
        self.directory_of(name).map_or(LookedUp::Answered, |directory| directory.look_up(name))
    }

    /// Principals are case-sensitive, so of two that differ only in case only one is the account.
    fn by_ticket(&self, name: &str) -> Result<Option<Ticketed>, String> {
        self.look_again(name);
        if let Some(a) = self.own(name).filter(|a| a.name == name) {
            return Ok(Some(Ticketed { name: a.name, cred: a.cred, rid: a.rid, named: true }));
        }
        let found = self.of_host(name)?;
        if let Some(user) = &found {
            self.remember(user);
        }
        Ok(found)
    }

    fn remember(&self, user: &Ticketed) {
        let mut all = locked(&self.ticketed);
        if all.len() >= TICKETED_MAX
            && !all.contains_key(&user.name)
            && let Some(any) = all.keys().next().cloned()
        {
            all.remove(&any);
        }
        // Only its numbers are compared later. The identifiers of a ticket may take many kilobytes.
        all.insert(user.name.clone(), Cred { token: Token::NONE, ..user.cred.clone() });
    }

    fn domain(&self) -> Option<Arc<Domain>> {
        reading(&self.domain).clone()
    }

    fn engine(&self) -> Option<Arc<dyn Engine>> {
        let engine = reading(&self.engine).clone()?;
        Some(Arc::new(OfHost(engine)))
    }

    fn keep_domain(&self, identity: &DomainIdentity) {
        if let Some(files) = &self.files {
            domain::keep(files, identity);
        }
    }

    fn keep_identities(&self) {
        if let (Some(files), Some(domain)) = (&self.files, self.domain()) {
            self.keeper.keep(files, &domain);
        }
    }

    fn cred(&self, name: &str) -> Option<Cred> {
        let remembered = || locked(&self.ticketed).get(name).cloned();
        let of_directory = || Some(self.by_password(self.directory()?.account(name)?.cred));
        let own = self.own(name).map(|a| self.by_password(a.cred));
        own.or_else(remembered).or_else(of_directory)
    }

    fn has_groups_of_host(&self, name: &str) -> bool {
        self.current().get(&key(name)).is_some_and(|(.., identity)| identity.groups.is_none())
    }

    fn look_again(&self, name: &str) {
        let Some((before, was_known, identity)) = self.current().get(&key(name)).cloned() else {
            return;
        };
        let (cred, known) = match resolve(&before.name, &identity) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "the groups of a user stay as they were");
                return;
            }
        };
        if cred == before.cred && known == was_known {
            return;
        }
        // A user with another uid must first be compared with the other users.
        if cred.uid == before.cred.uid
            && let Some((now, ..)) = Arc::make_mut(&mut writing(&self.table)).get_mut(&key(name))
            && now.cred == before.cred
        {
            now.cred = cred;
        }
        // The next look at the database reads everything again, and the tasks that depend on it run. No file has this stamp.
        *locked(&self.seen) = Some((0, 0, 0, 0));
    }

    fn password_length(&self) -> u16 {
        self.password_least().0
    }

    fn change_password(&self, name: &str, old: &NtHash, new: &str) -> Result<(), Unchanged> {
        self.replace_password(name, old, new)
    }

    fn by_uid(&self, uid: u32) -> Option<Account> {
        self.own_by_uid(uid).or_else(|| self.of_directory_by_uid(uid))
    }

    fn each(&self, each: &mut dyn FnMut(&str, &Cred)) {
        let table = self.current();
        let accounts = table.values().map(|(account, ..)| account);
        accounts.filter(|a| !is_nobody(&a.cred)).for_each(|a| each(&a.name, &a.cred));
        self.each_of_directory(each);
    }

    fn guest(&self) -> Cred {
        self.by_password(guest())
    }

    fn others(&self) -> &dyn Directory {
        self.others
    }
}

/// Accounts take precedence over other users with their name. Users of a directory are those that the host knows by its own means.
impl Directory for UserDb {
    fn uid(&self, name: &str) -> Option<u32> {
        let account = self.own(name).filter(|a| !is_nobody(&a.cred));
        account.map(|a| a.cred.uid).or_else(|| self.others.uid(name))
    }

    fn gid(&self, name: &str) -> Option<u32> {
        self.others.gid(name)
    }

    fn user(&self, uid: u32) -> Option<String> {
        self.own_by_uid(uid).map(|a| a.name).or_else(|| self.others.user(uid))
    }

    fn group(&self, gid: u32) -> Option<String> {
        self.others.group(gid)
    }
}

#[cfg(test)]
mod tests;
