//! Kerberos findings of `check`: the keys of the keytab, the services that clients will request tickets for, and whether a KDC has
//! the same keys.

mod kdc;

use config::{Kerberos, Settings};
use gss_sys::keytab::Entry;
use serde_json::{Value, json};

use super::Remarks;
use crate::keytab;

/// Keys of one principal, of its newest version.
struct Keys {
    principal: String,
    kvno: u32,
    enctypes: Vec<String>,
    weak: bool,
}

/// Contents of the keytab.
pub(super) struct KeytabInfo {
    path: String,
    keys: Vec<Keys>,
    services: Vec<Service>,
    /// Answers of a KDC, if the keytab has a key.
    answers: Option<kdc::Answers>,
}

/// A service principal that clients will request a ticket for.
struct Service {
    /// `cifs` or `nfs`.
    of: &'static str,
    /// The name of the server.
    name: String,
    /// Set if the keytab has its key.
    has_key: bool,
}

impl Service {
    fn principal(&self) -> String {
        format!("{}/{}", self.of, self.name)
    }

    /// Returns whether this is a key of the service.
    fn is_key(&self, entry: &Entry) -> bool {
        entry.name().eq_ignore_ascii_case(&self.principal())
    }

    /// Returns the principal with its realm, spelled as in the keytab.
    fn in_realm(&self, entries: &[Entry], realm: &str) -> String {
        let known = entries.iter().find(|e| self.is_key(e) && e.realm() == realm);
        known.map_or_else(|| format!("{}@{realm}", self.principal()), |e| e.principal.clone())
    }
}

/// Reads the keytab, if one is configured.
pub(super) fn facts(settings: &Settings, remarks: &mut Remarks) -> Option<KeytabInfo> {
    let kerberos = settings.kerberos.as_ref()?;
    // The configuration is sound, so the keytab was readable a moment ago.
    let entries = keytab::read(&kerberos.keytab).unwrap_or_else(|why| {
        remarks.stop(why);
        Vec::new()
    });
    let keys = newest(&entries);
    for weak in keys.iter().filter(|k| k.weak) {
        remarks.warn(format!(
            "the keytab has only keys of broken ciphers for {}: {}; create new ones with AES (`msDS-SupportedEncryptionTypes` \
             24 for an account of Active Directory)",
            weak.principal,
            weak.enctypes.join(", ")
        ));
    }
    let services = services(settings, kerberos, &entries);
    let answers = kdc::ask(kerberos, &entries, &services);
    let known = kdc::Known::of(settings, kerberos, &entries, &services);
    known.remarks(answers.as_ref()).into_iter().for_each(|why| remarks.warn(why));
    Some(KeytabInfo { path: kerberos.keytab.display().to_string(), keys, services, answers })
}

/// Returns the services that clients will request tickets for.
fn services(settings: &Settings, kerberos: &Kerberos, entries: &[Entry]) -> Vec<Service> {
    let by_nfs = settings.shares.iter().any(|s| s.protocols.nfs() && s.sec.want_kerberos());
    let by_smb = settings.shares.iter().any(|s| s.protocols.smb()) || !by_nfs;
    let asked = [("cifs", by_smb), ("nfs", by_nfs)];
    let asked = || asked.into_iter().filter(|(_, is_asked)| *is_asked).map(|(of, _)| of);
    let of_name = |name: String| {
        let with = move |of| {
            let has_key = has(entries, &format!("{of}/{name}"));
            Service { of, name: name.clone(), has_key }
        };
        asked().map(with)
    };
    names(kerberos).into_iter().flat_map(of_name).collect()
}

/// Returns the server names that clients type: the configured names, or the host's name, long and short.
pub(super) fn names(kerberos: &Kerberos) -> Vec<String> {
    if !kerberos.names.is_empty() {
        return kerberos.names.iter().map(ToString::to_string).collect();
    }
    let host = crate::host_name::kernels().to_lowercase();
    let short = host.split('.').next().unwrap_or_default().to_owned();
    if short == host { vec![host] } else { vec![host, short] }
}

fn has(entries: &[Entry], service: &str) -> bool {
    entries.iter().any(|e| e.name().eq_ignore_ascii_case(service))
}

fn newest_version(entries: &[Entry], principal: &str) -> u32 {
    let own = entries.iter().filter(|e| e.principal == principal);
    own.map(|e| e.kvno).max().unwrap_or_default()
}

/// Describes a missing key. If `cifs/NAME` is missing, a Windows KDC uses the computer's key, and other KDCs issue no ticket.
/// `nfs/NAME` must be a name of the computer's account.
fn missing(entries: &[Entry], service: &str, name: &str) -> String {
    let short = name.split('.').next().unwrap_or_default();
    let machine = entries.iter().any(|e| {
        e.service().strip_suffix('$').is_some_and(|account| account.eq_ignore_ascii_case(short))
    });
    if machine && service == "nfs" {
        return format!(
            "the keytab has no key of nfs/{name}: clients get a ticket only if the account of the computer has this name, by \
             `setspn -S nfs/{name} {short}` or `net ads keytab add_update_ads nfs`"
        );
    }
    // A Windows KDC issues tickets for most services of a computer with one key; other KDCs accept `host/` only for SMB.
    if machine || service == "cifs" && has(entries, &format!("host/{name}")) {
        return format!(
            "the keytab has no key of {service}/{name}: clients in Active Directory get tickets under the key of the computer, \
             clients of MIT Kerberos and FreeIPA get none"
        );
    }
    format!(
        "the keytab has no key of {service}/{name}: clients that connect to `{name}` get no ticket, or one that the gateway \
         refuses; add the key to the keytab, or set `kerberos.names` to the name that clients type"
    )
}

/// Returns the newest keys of each principal.
fn newest(entries: &[Entry]) -> Vec<Keys> {
    let of = |principal: String| {
        let own = || entries.iter().filter(|e| e.principal == principal);
        let kvno = newest_version(entries, &principal);
        let current: Vec<&Entry> = own().filter(|e| e.kvno == kvno).collect();
        Keys {
            kvno,
            weak: current.iter().all(|e| e.is_weak()),
            enctypes: current.iter().map(|e| e.enctype_name()).collect(),
            principal,
        }
    };
    keytab::principals(entries).into_iter().map(of).collect()
}

/// Formats the findings for people.
pub(super) fn words(facts: &KeytabInfo) -> Vec<String> {
    let mut words = vec![format!("Kerberos with the keys of {}:", facts.path)];
    for keys in &facts.keys {
        let enctypes = keys.enctypes.join(", ");
        words.push(format!("  {} (version {}): {enctypes}", keys.principal, keys.kvno));
    }
    let asked: Vec<String> = facts.services.iter().map(Service::principal).collect();
    words.push(format!("  clients will ask for {}", asked.join(", ")));
    let answers = facts.answers.iter().flat_map(|answers| &answers.all);
    let good: Vec<String> = facts
        .services
        .iter()
        .zip(answers)
        .filter(|(_, answer)| matches!(answer, Some(Ok(()))))
        .map(|(service, _)| service.principal())
        .collect();
    if !good.is_empty() {
        words.push(format!(
            "  the KDC has the same keys: these open its tickets for {}",
            good.join(", ")
        ));
    }
    if let Some(first) = facts.services.first() {
        words.push(format!(
            r"  clients get tickets only for a name: `\\{}\SHARE`, no address",
            first.name
        ));
    }
    words
}

/// Formats the findings as JSON.
pub(super) fn json(facts: Option<&KeytabInfo>) -> Value {
    let Some(facts) = facts else { return Value::Null };
    let keys = |k: &Keys| json!({"principal": k.principal, "kvno": k.kvno, "enctypes": k.enctypes});
    let answer = |at: usize| facts.answers.as_ref()?.all.get(at)?.as_ref();
    let asked = |(at, service): (usize, &Service)| {
        json!({
            "service": service.principal(),
            "key": service.has_key,
            "kdc": answer(at).map(kdc::word),
            "kdc_says": answer(at).and_then(|answer| Some(&answer.as_ref().err()?.1)),
        })
    };
    json!({
        "keytab": facts.path,
        "keys": facts.keys.iter().map(keys).collect::<Vec<_>>(),
        "asked_as": facts.answers.as_ref().map(|answers| &answers.client),
        "asked_for": facts.services.iter().enumerate().map(asked).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(principal: &str, kvno: u32, enctype: u16) -> Entry {
        Entry { principal: principal.into(), kvno, enctype }
    }

    #[test]
    fn the_newest_keys_count_and_what_is_missing_is_told_by_its_remedy() {
        let entries = [
            entry("cifs/gw.lab@LAB", 2, 23),
            entry("cifs/gw.lab@LAB", 3, 18),
            entry("cifs/gw.lab@LAB", 3, 17),
            entry("GW$@LAB", 1, 23),
            entry("host/old.lab@LAB", 1, 18),
        ];
        let keys = newest(&entries);
        assert_eq!((keys[0].kvno, keys[0].enctypes.len(), keys[0].weak), (3, 2, false));
        assert!(keys[1].weak);
        assert!(has(&entries, "cifs/gw.lab") && !has(&entries, "cifs/gw"));
        let told = |service, name| missing(&entries, service, name);
        assert!(told("cifs", "gw").contains("Active Directory"));
        assert!(told("nfs", "gw").contains("only if the account of the computer has this name"));
        assert!(told("cifs", "files.lab").contains("`kerberos.names`"));
        assert!(told("cifs", "old.lab").contains("Active Directory"));
        assert!(told("nfs", "old.lab").contains("`kerberos.names`"), "a host's key is none of NFS");
    }
}
