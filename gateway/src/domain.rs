//! The Active Directory domain whose tickets the gateway accepts: one for all shares and protocols of the same settings.
//!
//! *Operation.* The first ticket of a user of the realm contains the identifier and the names of the domain. The gateway
//! keeps them in a file of the service, so that owners and access lists mean the same after a restart, before the first
//! logon. A second file has number, identifier and name of the users that have come by tickets: with `map: names` only tickets
//! connect these. It is written some seconds after a new user's logon.
//!
//! *Memory.* As many users as [`Domain`] keeps.
//!
//! *Errors.* If a file is missing or unreadable, its content is unknown until the next ticket arrives.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use config::in_time::{self, LOOK_MAX};
use config::{DomainBy, KerberosMap, Settings};
use mutex::locked;
use vfs::acl::Sid;
use vfs::{Domain, DomainIdentity, Token};

use crate::records::ServiceFiles;
use crate::records::ceph::CephFolder;

/// Name of the file with the identifier and the names, separated by spaces.
const FILE: &str = "domain";

/// Name of the file with a user on each line: number, identifier and name.
const USERS: &str = "domain-users";
/// Time in which logons of new users are collected for one write.
const COLLECTED: Duration = Duration::from_secs(2);

/// Key of a domain: the folder of its file, its realm, the number of its RID 0, and the service that has its numbers.
type Key = (PathBuf, Option<String>, Option<u32>, Option<DomainBy>);
type Domains = HashMap<Key, (Arc<Domain>, Token)>;

static DOMAINS: LazyLock<Mutex<Domains>> = LazyLock::new(Mutex::default);

/// Returns whether a service of this host knows the users of the domain: winbind or SSSD.
pub(crate) fn has_service(settings: &Settings) -> bool {
    matches!(settings.domain_by, Some(DomainBy::Winbind | DomainBy::Sssd))
}

/// Returns the domain of these settings, the same one at each call, if they have `kerberos` or a service. Blocks for some seconds
/// at most.
pub(crate) fn of(settings: &Settings) -> Option<Arc<Domain>> {
    Some(known(settings)?.0)
}

/// Returns the token of callers without a ticket.
pub(crate) fn host_token(settings: &Settings) -> Token {
    known(settings).map(|(_, token)| token).unwrap_or_default()
}

fn known(settings: &Settings) -> Option<(Arc<Domain>, Token)> {
    let kerberos = settings.kerberos.as_ref();
    if kerberos.is_none() && !has_service(settings) {
        return None;
    }
    let base = kerberos.filter(|k| k.map == KerberosMap::Rid).map(|k| k.rid_base);
    let folder = match &settings.records {
        Some(ceph) => CephFolder::path_of(ceph),
        None => settings.state.clone(),
    };
    let realm = kerberos.and_then(|k| k.realm.as_ref()).map(ToString::to_string);
    let by_service = has_service(settings);
    let key = (folder, realm, base, settings.domain_by.filter(|_| by_service));
    if let Some(known) = locked(&DOMAINS).get(&key) {
        return Some(known.clone());
    }
    let files = ServiceFiles::of(settings).ok();
    let kept = files.clone().and_then(read);
    let users = files.map(read_users).unwrap_or_default();
    let make = || {
        let domain = if by_service { Domain::by_service() } else { Domain::new(base) };
        if let Some(identity) = &kept {
            domain.know(identity.clone());
            for (uid, sid, name) in &users {
                domain.know_user(*uid, sid, name);
            }
        }
        let token = Token::of_host(&domain);
        (domain, token)
    };
    Some(locked(&DOMAINS).entry(key).or_insert_with(make).clone())
}

fn read(files: ServiceFiles) -> Option<DomainIdentity> {
    let path = files.path(FILE);
    let read = in_time::ask(&path, LOOK_MAX, move || files.read(FILE)).ok()?;
    let bytes = match read {
        Ok(found) => found?.0,
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "the identifier of the domain cannot be read");
            return None;
        }
    };
    let identity = std::str::from_utf8(&bytes).ok().and_then(parse);
    if identity.is_none() {
        tracing::warn!(file = %path.display(), "the file has no identifier of a domain");
    }
    identity
}

fn parse(text: &str) -> Option<DomainIdentity> {
    let mut words = text.split_whitespace();
    let sid = words.next()?.parse().ok()?;
    let mut name = || words.next().unwrap_or_default().to_owned();
    Some(DomainIdentity { sid, name: name(), dns: name() })
}

/// Reads the users of the second file. Skips other lines.
fn read_users(files: ServiceFiles) -> Vec<(u32, Sid, String)> {
    let path = files.path(USERS);
    let bytes = match in_time::ask(&path, LOOK_MAX, move || files.read(USERS)) {
        Ok(Ok(Some((bytes, _)))) => bytes,
        _ => return Vec::new(),
    };
    let line = |line: &str| {
        let (uid, rest) = line.split_once(' ')?;
        let (sid, name) = rest.split_once(' ')?;
        Some((uid.parse().ok()?, sid.parse().ok()?, name.to_owned()))
    };
    String::from_utf8_lossy(&bytes).lines().filter_map(line).collect()
}

/// Writes the second file. This call blocks.
fn write_users(files: &ServiceFiles, domain: &Domain) {
    let is_line = |name: &str| !name.contains(char::is_control);
    let users = domain.known_users().into_iter().filter(|(_, _, name)| is_line(name));
    let text: String = users.map(|(uid, sid, name)| format!("{uid} {sid} {name}\n")).collect();
    if let Err(error) = files.replace(USERS, text.as_bytes()) {
        let file = files.path(USERS);
        tracing::warn!(file = %file.display(), %error, "the users of the domain cannot be kept");
    }
}

/// Writes the second file after new users have logged on.
#[derive(Default)]
pub(crate) struct UserKeeper(Later);

impl UserKeeper {
    /// Writes some seconds later.
    pub(crate) fn keep(&self, files: &ServiceFiles, domain: &Arc<Domain>) {
        let (files, domain) = (files.clone(), domain.clone());
        self.0.run("domain-users", move || write_users(&files, &domain));
    }
}

/// Writes a file after changes, from one thread at a time, also while the state folder does not answer.
#[derive(Default)]
pub(crate) struct Later(Arc<Keeping>);

#[derive(Default)]
struct Keeping {
    has_thread: AtomicBool,
    /// Something has changed since the thread looked.
    wanted: AtomicBool,
}

impl Later {
    /// Starts the thread, unless it runs: then it writes once more.
    pub(crate) fn run(&self, name: &str, write: impl Fn() + Send + 'static) {
        self.0.wanted.store(true, Ordering::SeqCst);
        if self.0.has_thread.swap(true, Ordering::SeqCst) {
            return;
        }
        let keeping = self.0.clone();
        let work = move || {
            loop {
                while keeping.wanted.swap(false, Ordering::SeqCst) {
                    thread::sleep(COLLECTED);
                    write();
                }
                keeping.has_thread.store(false, Ordering::SeqCst);
                // Something may have changed between the two.
                if !keeping.wanted.load(Ordering::SeqCst)
                    || keeping.has_thread.swap(true, Ordering::SeqCst)
                {
                    return;
                }
            }
        };
        if let Err(error) = thread::Builder::new().name(name.into()).spawn(work) {
            self.0.has_thread.store(false, Ordering::SeqCst);
            tracing::warn!(%error, file = name, "changes cannot be kept");
        }
    }
}

/// Writes the file. This call blocks.
pub(crate) fn keep(files: &ServiceFiles, identity: &DomainIdentity) {
    let DomainIdentity { sid, name, dns } = identity;
    if let Err(error) = files.replace(FILE, format!("{sid} {name} {dns}\n").as_bytes()) {
        let file = files.path(FILE);
        tracing::warn!(file = %file.display(), %error, "the identifier of the domain cannot be kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_identities_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let files = ServiceFiles::Local(dir.path().to_owned());
        assert_eq!(read(files.clone()), None);
        let sid = "S-1-5-21-1-2-3".parse().unwrap();
        let identity = DomainIdentity { sid, name: "LAB".into(), dns: "lab.test".into() };
        keep(&files, &identity);
        assert_eq!(read(files), Some(identity));
        assert_eq!(parse("no identifier"), None);
    }

    #[test]
    fn users_are_known_after_restart() {
        let dir = tempfile::tempdir().unwrap();
        let files = ServiceFiles::Local(dir.path().to_owned());
        assert_eq!(read_users(files.clone()), []);
        let domain = Domain::new(None);
        let of: Sid = "S-1-5-21-1-2-3".parse().unwrap();
        let identity = DomainIdentity { sid: of.clone(), name: "LAB".into(), dns: "lab".into() };
        domain.know(identity.clone());
        let alice = of.child(1103).unwrap();
        domain.know_user(1001, &alice, "Alice B");
        domain.know_user(1002, &of.child(1104).unwrap(), "two\nlines");
        write_users(&files, &domain);
        assert_eq!(read_users(files.clone()), [(1001, alice.clone(), "Alice B".to_owned())]);
        keep(&files, &identity);
        std::fs::write(dir.path().join(USERS), format!("x\n1001 {alice} Alice B\n7 S-1 x\n"))
            .unwrap();
        let mut settings = Settings { state: dir.path().to_owned(), ..Settings::default() };
        settings.kerberos = Some(config::Kerberos::new("keytab"));
        let again = super::of(&settings).unwrap();
        assert_eq!(
            (again.sid_of_user(1001), again.user_named("alice b")),
            (Some(alice.clone()), Some(alice))
        );
    }

    #[test]
    fn the_same_settings_have_the_same_domain() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings { state: dir.path().to_owned(), ..Settings::default() };
        assert!(of(&settings).is_none() && host_token(&settings).is_none());
        settings.kerberos = Some(config::Kerberos::new("keytab"));
        let domain = of(&settings).unwrap();
        assert!(Arc::ptr_eq(&domain, &of(&settings).unwrap()));
        assert_eq!(host_token(&settings), Token::of_host(&domain));
        if let Some(kerberos) = &mut settings.kerberos {
            kerberos.map = KerberosMap::Rid;
        }
        assert_eq!(of(&settings).unwrap().base(), Some(100_000));
    }
}
