//! Kerberos findings of `check`: the keys of the keytab, and the services that clients will request tickets for.

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
    /// Service principals that clients will request from a KDC, and whether the keytab has them.
    asked_for: Vec<(String, bool)>,
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
    let mut asked_for = Vec::new();
    let by_nfs = settings.shares.iter().any(|s| s.protocols.nfs() && s.sec.want_kerberos());
    let services =
        [("cifs", settings.shares.iter().any(|s| s.protocols.smb()) || !by_nfs), ("nfs", by_nfs)];
    for (service, name) in names(kerberos).iter().flat_map(|name| {
        let asked = services.into_iter().filter(|(_, is_asked)| *is_asked);
        asked.map(move |(service, _)| (service, name))
    }) {
        let principal = format!("{service}/{name}");
        let there = has(&entries, &principal);
        if !there {
            remarks.warn(missing(&entries, service, name));
        }
        asked_for.push((principal, there));
    }
    Some(KeytabInfo { path: kerberos.keytab.display().to_string(), keys, asked_for })
}

/// Returns the server names that clients type: the configured names, or the host's name, long and short.
fn names(kerberos: &Kerberos) -> Vec<String> {
    if !kerberos.names.is_empty() {
        return kerberos.names.iter().map(ToString::to_string).collect();
    }
    let host = crate::host_name::kernels().to_lowercase();
    let short = host.split('.').next().unwrap_or_default().to_owned();
    if short == host { vec![host] } else { vec![host, short] }
}

fn has(entries: &[Entry], service: &str) -> bool {
    let of = |e: &Entry| e.principal.rsplit_once('@').map(|(name, _)| name.to_lowercase());
    entries.iter().any(|e| of(e).as_deref() == Some(service))
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
        let kvno = own().map(|e| e.kvno).max().unwrap_or_default();
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
    let asked: Vec<&str> = facts.asked_for.iter().map(|(service, _)| service.as_str()).collect();
    words.push(format!("  clients will ask for {}", asked.join(", ")));
    words
}

/// Formats the findings as JSON.
pub(super) fn json(facts: Option<&KeytabInfo>) -> Value {
    let Some(facts) = facts else { return Value::Null };
    let keys = |k: &Keys| json!({"principal": k.principal, "kvno": k.kvno, "enctypes": k.enctypes});
    let asked = |(service, there): &(String, bool)| json!({"service": service, "key": there});
    json!({
        "keytab": facts.path,
        "keys": facts.keys.iter().map(keys).collect::<Vec<_>>(),
        "asked_for": facts.asked_for.iter().map(asked).collect::<Vec<_>>(),
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
