//! The keys of smb.conf(5): their names, and the rights that each gives to clients or takes from them.
//!
//! [`TABLE`] has all keys of Samba 4.17 to 4.24 and of ksmbd. If a key restricts clients and `import` does not carry it over,
//! its share becomes a comment.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Other names of keys.
const SYNONYMS: [(&str, &str); 24] = [
    ("createmode", "createmask"),
    ("directorymode", "directorymask"),
    ("group", "forcegroup"),
    ("directory", "path"),
    ("writeable", "writable"),
    ("writeok", "writable"),
    ("public", "guestok"),
    ("allowhosts", "hostsallow"),
    ("denyhosts", "hostsdeny"),
    ("browsable", "browseable"),
    ("serversmbencrypt", "smbencrypt"),
    ("minprotocol", "serverminprotocol"),
    ("maxprotocol", "servermaxprotocol"),
    ("protocol", "servermaxprotocol"),
    ("smb3encryption", "smbencrypt"),
    ("tcpport", "smbports"),
    ("user", "username"),
    ("users", "username"),
    ("onlyguest", "guestonly"),
    ("exec", "preexec"),
    ("vfsobject", "vfsobjects"),
    ("printok", "printable"),
    ("root", "rootdirectory"),
    ("rootdir", "rootdirectory"),
];

/// The keys of a domain.
pub(super) const OF_WINBIND: &str = "it stays in smb.conf, which winbind reads: users of the domain log on with \
                                     `domain: {by: winbind}` and `kerberos: {keytab: FILE}`";

const OF_NEW_FILES: &str = "not carried over: new files get the mode that the client asks for, and default ACLs of the folder";

/// Keys that do not affect rights.
const HARMLESS: &[(&str, &str)] = &[
    ("workgroup", "not needed: clients name the server by its address or by DNS"),
    ("netbiosname", "not needed: there is no NetBIOS"),
    ("serverstring", "not needed"),
    ("serverrole", "not needed: headgate is a standalone server; there is no domain"),
    ("maptoguest", "not needed: users without an account are guests of shares with `guest`"),
    ("passdbbackend", "not carried over: give each user a password with `headgate user add NAME`"),
    ("accessbasedshareenum", "not needed: lists show each user the shares that it may use"),
    ("streams", "not needed: streams are kept as they are"),
    ("storedosattributes", "not needed: DOS attributes are kept"),
    ("easupport", "not needed: extended attributes are served where the file system has them"),
    ("serversupport", "not needed"),
    ("servermultichannelsupport", "not needed: clients may always use several connections"),
    ("locking", "not carried over: locks are always kept"),
    ("strictlocking", "not needed: byte-range locks are always enforced"),
    ("posixlocking", "not needed: locks of SMB and NFS clients always exclude each other"),
    (
        "adminusers",
        "not carried over: users can do no more without it; `access: {admin: [NAMES]}` of a share is its counterpart",
    ),
    ("dedicatedkeytabfile", "write it as `kerberos: {keytab: FILE}`"),
    ("inheritpermissions", OF_NEW_FILES),
    ("inheritacls", OF_NEW_FILES),
    ("include", "NOT READ: what that file says is missing here; write it into this one"),
];

/// Modules whose function the gateway has built in.
pub(super) const BUILT_IN: [&str; 9] = [
    "acl_xattr",
    "aio_pthread",
    "fruit",
    "io_uring",
    "posix_eadb",
    "recycle",
    "shadow_copy2",
    "streams_depot",
    "streams_xattr",
];

/// Modules that restrict clients: they forbid changes, or keep rights where the gateway does not look.
const RESTRICTING: [&str; 9] = [
    "worm",
    "readonly",
    "read_only",
    "acl_tdb",
    "nfs4acl_xattr",
    "zfsacl",
    "gpfs",
    // Refuse infected files.
    "virusfilter",
    "scannedonly",
];

/// Modules whose `path` is not a folder of this host: a local folder with the same name may contain anything.
const ELSEWHERE: [&str; 3] = ["ceph", "ceph_new", "glusterfs"];

/// Prefixes of keys about printing, logging, speed and names of old networks.
const HARMLESS_BEGINNINGS: &[(&str, &str)] = &[
    ("log", "not needed: logs go to standard error"),
    ("maxlog", "not needed: logs go to standard error"),
    ("syslog", "not needed: logs go to standard error"),
    ("debug", "not needed: logs go to standard error"),
    ("print", "not needed: there is no printing"),
    ("cups", "not needed: there is no printing"),
    ("loadprinters", "not needed: there is no printing"),
    ("disablespoolss", "not needed: there is no printing"),
    ("disablenetbios", "not needed: there is no NetBIOS"),
    ("idmap", OF_WINBIND),
    ("winbind", OF_WINBIND),
    ("wins", "not needed: there is no NetBIOS"),
    ("dnsproxy", "not needed: there is no NetBIOS"),
    ("socketoptions", "not needed"),
    ("aio_ratelimit:", "not carried over: write it as `limits` of the share"),
    ("aio", "not needed: reads and writes never block each other"),
    ("usesendfile", "not needed"),
    ("oplocks", "not needed: oplocks and leases are always on, and NFS clients take part in them"),
    ("level2oplocks", "not needed: oplocks and leases are always on"),
    ("widelinks", "not carried over: links are followed inside the share, and never out of it"),
    ("kerneloplocks", "not needed: oplocks and leases are always on"),
    ("unixpasswordsync", "not needed: passwords here are those of `headgate user add`"),
    ("passwd", "not needed: passwords here are those of `headgate user add`"),
    ("pampasswordchange", "not needed: passwords here are those of `headgate user add`"),
    ("obeypamrestrictions", "not needed: there is no PAM"),
    ("panicaction", "not needed"),
    ("usershare", "not needed: shares are in the configuration file only"),
];

/// Each key with its class, and the values with which it restricts no client.
const TABLE: &str = include_str!("keys.txt");

/// Effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// `import` has a counterpart for it, or gives its own reason.
    Carried,
    /// It restricts clients, except with these values.
    Takes(&'static str),
    /// It restricts logons, except with these values.
    Logon(&'static str),
    /// It allows clients more.
    Gives,
    /// It does not affect the rights of clients.
    Neither,
}

/// Parses a row of [`TABLE`].
fn row(line: &'static str) -> Option<(String, Effect)> {
    let (class, rest) = line.split_once(' ')?;
    let (name, values) = rest.split_once(" | ").unwrap_or((rest, ""));
    let effect = match class {
        "carried" => Effect::Carried,
        "takes" => Effect::Takes(values),
        "logon" => Effect::Logon(values),
        "gives" => Effect::Gives,
        "neither" => Effect::Neither,
        _ => return None,
    };
    Some((main_name(name), effect))
}

/// Returns the effect of a key, given by its main name; Returns `None` for a key that Samba lacks.
pub(super) fn effect(key: &str) -> Option<Effect> {
    static ROWS: LazyLock<HashMap<String, Effect>> =
        LazyLock::new(|| TABLE.lines().filter_map(row).collect());
    // Samba 4.20 and later veto and hide files for single users and groups: `veto files : NAME`.
    let of_one = key.split_once(':').map(|(key, _)| key);
    ROWS.get(of_one.filter(|key| ["vetofiles", "hidefiles"].contains(key)).unwrap_or(key)).copied()
}

/// Returns whether the key with this value restricts clients. An empty list, such as `//` of `veto files`, restricts no
/// client.
pub(super) fn takes(key: &str, value: &str) -> bool {
    matches!(effect(key), Some(Effect::Takes(values)) if !is_harmless(key, value, values))
}

/// Returns whether the key with this value restricts logons.
pub(super) fn limits_logons(key: &str, value: &str) -> bool {
    matches!(effect(key), Some(Effect::Logon(values)) if !is_harmless(key, value, values))
}

/// Returns whether the key with this value restricts no client; `harmless` are the values from its row.
fn is_harmless(key: &str, value: &str, harmless: &str) -> bool {
    let is_empty = value.chars().all(|c| c.is_whitespace() || matches!(c, '/' | '"' | ','));
    let harmless: Vec<String> = words(harmless);
    let is_harmless = match truth(value) {
        Some(on) if harmless.iter().any(|v| truth(v) == Some(on)) => true,
        _ => !harmless.is_empty() && words(value).iter().all(|word| harmless.contains(word)),
    };
    // A list of algorithms restricts clients if it lacks one of the defaults.
    let lacks_one = key.ends_with("algorithms") && words(value).len() < harmless.len();
    is_empty || is_harmless && !lacks_one
}

fn words(list: &str) -> Vec<String> {
    let words = list.split([' ', ',', '\t']).filter(|word| !word.is_empty());
    words.map(str::to_uppercase).collect()
}

/// Returns why a VFS module of Samba excludes its share.
pub(super) fn module_restricts(module: &str) -> Option<&'static str> {
    let name = module.to_lowercase();
    if RESTRICTING.contains(&name.as_str()) {
        return Some("headgate has no such restriction");
    }
    let is_elsewhere = ELSEWHERE.contains(&name.as_str());
    is_elsewhere.then_some("the files are in a cluster, not in a folder of this host")
}

/// Returns what happens to a key without a counterpart.
pub(super) fn meaning(key: &str) -> &'static str {
    let is_of_tool = key.starts_with("full_audit:");
    if is_of_tool {
        return "not carried over: `audit` of a share selects what the trail records";
    }
    let exact = HARMLESS.iter().find(|(name, _)| key == *name);
    let begins = HARMLESS_BEGINNINGS.iter().find(|(start, _)| key.starts_with(start));
    let unknown = match effect(key) {
        None if !key.contains(':') => {
            "not carried over: smb.conf(5) has no such key, and Samba ignores it"
        }
        Some(Effect::Gives) => "not carried over: users can do no more without it",
        _ => "not carried over: headgate has no such key",
    };
    exact.or(begins).map_or(unknown, |(_, meaning)| meaning)
}

/// Returns the main name of a key, without blanks and in lower case.
pub(super) fn main_name(key: &str) -> String {
    let plain: String = key.chars().filter(|c| !c.is_whitespace()).collect();
    let plain = plain.to_lowercase();
    SYNONYMS
        .iter()
        .find(|(other, _)| *other == plain)
        .map_or(plain.clone(), |(_, m)| (*m).to_owned())
}

/// Reads a boolean of smb.conf(5).
pub(super) fn truth(value: &str) -> Option<bool> {
    match value.to_lowercase().as_str() {
        "yes" | "true" | "1" | "on" => Some(true),
        "no" | "false" | "0" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_table_is_read() {
        let rows: Vec<&str> =
            TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let read: HashMap<String, Effect> = rows.iter().filter_map(|line| row(line)).collect();
        let twice = ["smb encrypt", "smb3 encryption", "tcp port"];
        assert_eq!(read.len(), rows.len() - twice.len(), "a row is wrong, or a key has two");
        for (name, main) in SYNONYMS {
            assert!(effect(main).is_some(), "{name}: {main} is not in the table");
        }
        for (key, _) in HARMLESS.iter().filter(|(key, _)| !OTHERS.contains(key)) {
            assert!(effect(key).is_some(), "{key} is not in the table");
        }
    }

    /// Keys of older versions.
    const OTHERS: [&str; 2] = ["streams", "serversupport"];

    #[test]
    fn values_that_restrict_no_client_are_known() {
        for (key, value, restricts) in [
            ("vetofiles", "", false),
            ("vetofiles", "//", false),
            ("vetofiles", " / / ", false),
            ("vetofiles", "/*.exe/", true),
            ("vetofiles:bob", "/*.exe/", true),
            ("hidefiles:@staff", "//", false),
            ("hidespecialfiles", "No", false),
            ("hidespecialfiles", "0", false),
            ("hidespecialfiles", "yes", true),
            ("ntaclsupport", "no", true),
            ("ntaclsupport", "True", false),
            ("maxconnections", "0", false),
            ("maxconnections", "10", true),
            ("hidenewfilestimeout", "3600", true),
            ("rootdirectory", "/", false),
            ("rootdirectory", "/srv", true),
            ("securitymask", "0777", false),
            ("securitymask", "0700", true),
            ("inheritowner", "unix only", true),
            ("usernamemap", "/etc/samba/users", true),
            ("serversmb3encryptionalgorithms", "AES-256-GCM", true),
            (
                "serversmb3encryptionalgorithms",
                "aes-128-gcm, aes-128-ccm, aes-256-gcm, aes-256-ccm",
                false,
            ),
            ("adminusers", "bob", false),
        ] {
            assert_eq!(takes(key, value), restricts, "{key} = {value}");
        }
    }

    #[test]
    fn keys_that_limit_logons_are_known() {
        for (key, value, limits) in [
            ("obeypamrestrictions", "yes", true),
            ("obeypamrestrictions", "No", false),
            ("allowtrusteddomains", "no", true),
            ("allowtrusteddomains", "1", false),
            ("mindomainuid", "1000", true),
            ("mindomainuid", "1", true),
            ("mindomainuid", "0", false),
            ("mindomainuid", "", false),
            ("vetofiles", "/*.exe/", false),
        ] {
            assert_eq!(limits_logons(key, value), limits, "{key} = {value}");
            assert!(!takes(key, value) || key == "vetofiles", "{key} = {value}");
        }
    }
}
