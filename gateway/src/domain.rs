//! The Active Directory domain whose tickets the gateway accepts: one for all shares and protocols of the same settings.
//!
//! *Operation.* The first ticket of a user of the realm contains the identifier and the names of the domain. The gateway
//! keeps them in a file of the service, so that owners and access lists mean the same after a restart, before the first
//! logon.
//!
//! *Errors.* If the file is missing or unreadable, the identifier is unknown until the first ticket arrives.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use config::in_time::{self, LOOK_MAX};
use config::{KerberosMap, Settings};
use mutex::locked;
use vfs::{Domain, DomainIdentity, Token};

use crate::records::ServiceFiles;
use crate::records::ceph::CephFolder;

/// Name of the file with the identifier and the names, separated by spaces.
const FILE: &str = "domain";

/// Key of a domain: the folder of its file, its realm and the number of its RID 0.
type Key = (PathBuf, Option<String>, Option<u32>);
type Domains = HashMap<Key, (Arc<Domain>, Token)>;

static DOMAINS: LazyLock<Mutex<Domains>> = LazyLock::new(Mutex::default);

/// Returns the domain of these settings, the same one at each call; `None` without `kerberos`. Blocks for some seconds at most.
pub(crate) fn of(settings: &Settings) -> Option<Arc<Domain>> {
    Some(known(settings)?.0)
}

/// Returns the token of callers without a ticket.
pub(crate) fn host_token(settings: &Settings) -> Token {
    known(settings).map(|(_, token)| token).unwrap_or_default()
}

fn known(settings: &Settings) -> Option<(Arc<Domain>, Token)> {
    let kerberos = settings.kerberos.as_ref()?;
    let base = match kerberos.map {
        KerberosMap::Names => None,
        KerberosMap::Rid => Some(kerberos.rid_base),
    };
    let folder = match &settings.records {
        Some(ceph) => CephFolder::path_of(ceph),
        None => settings.state.clone(),
    };
    let key = (folder, kerberos.realm.as_ref().map(ToString::to_string), base);
    if let Some(known) = locked(&DOMAINS).get(&key) {
        return Some(known.clone());
    }
    let kept = ServiceFiles::of(settings).ok().and_then(read);
    let make = || {
        let domain = Domain::new(base);
        if let Some(identity) = &kept {
            domain.know(identity.clone());
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
