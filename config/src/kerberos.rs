//! `kerberos`: the keytab and names with which the gateway verifies Kerberos tickets.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use policy::words;

use crate::reader::{Origin, Set, shown};

/// Maximum length of a realm or host name, in bytes.
const NAME_MAX: usize = 255;
/// Maximum number of names of this host.
pub(crate) const NAMES_MAX: usize = 64;

/// The settings of Kerberos.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kerberos {
    /// File with the keys of this server.
    pub keytab: PathBuf,
    /// Realm in which a one-component principal is the user of the same name, regardless of krb5.conf.
    pub realm: Option<Realm>,
    /// Names by which clients address this host; empty: its host name.
    pub names: Vec<HostName>,
    /// How principals are mapped to users of the file system.
    pub map: KerberosMap,
    /// With [`KerberosMap::Rid`]: uid of the user with RID 0.
    pub rid_base: u32,
}

/// How principals are mapped to users of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KerberosMap {
    /// To users of this host with the same name.
    #[default]
    Names,
    /// To numbers computed from the RIDs in Active Directory tickets.
    Rid,
    /// To the numbers that winbind has for the SIDs in Active Directory tickets.
    Winbind,
    /// The same by SSSD.
    Sssd,
}

words!(
    KerberosMap,
    "is not a way to map principals to users",
    "names" => Names,
    "rid" => Rid,
    "winbind" => Winbind,
    "sssd" => Sssd
);

/// The service that maps identities of a domain to names and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DomainBy {
    /// winbind, of which this host is a member.
    Winbind,
    /// SSSD, of which this host is a member; it checks no passwords.
    Sssd,
    /// The gateway, from the RIDs in tickets.
    Rid,
}

words!(
    DomainBy,
    "does not map identities of a domain",
    "winbind" => Winbind,
    "sssd" => Sssd,
    "rid" => Rid
);

/// Default of `rid_base`.
pub(crate) const RID_BASE: u32 = 100_000;
/// Smaller numbers belong to system users; with a larger base, a RID (at most 2^30) would not fit.
pub(crate) const RID_BASES: std::ops::RangeInclusive<u32> = 1000..=1_000_000_000;

impl Kerberos {
    /// Builds settings with this keytab and default values for the rest.
    pub fn new(keytab: impl Into<PathBuf>) -> Self {
        Self {
            keytab: keytab.into(),
            realm: None,
            names: Vec::new(),
            map: KerberosMap::default(),
            rid_base: RID_BASE,
        }
    }
}

impl fmt::Display for Kerberos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.keytab.display())?;
        if let Some(realm) = &self.realm {
            write!(f, " of {realm}")?;
        }
        Ok(())
    }
}

/// The part of a principal after `@`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm(String);

impl Realm {
    /// Returns the realm as written in the configuration.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Realm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !is_name(text) {
            return Err(format!("`{}` is not a realm; write one like `EXAMPLE.ORG`", shown(text)));
        }
        if text.chars().any(|c| c.is_ascii_lowercase()) {
            return Err(format!(
                "the realm `{}` has lower-case letters, and names of realms are case-sensitive; write `{}`",
                shown(text),
                shown(&text.to_uppercase())
            ));
        }
        Ok(Self(text.into()))
    }
}

/// A name of this host, as clients type it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    /// Returns the name in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if is_name(text) && text.parse::<std::net::IpAddr>().is_err() {
            return Ok(Self(text.to_lowercase()));
        }
        Err(format!(
            "`{}` is not a host name; write one that clients type, like `files.example.org`",
            shown(text)
        ))
    }
}

fn is_name(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    text.len() <= NAME_MAX && text.split('.').all(part)
}

/// Kerberos settings from the file and the options, before checking.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftKerberos {
    /// Position of the group if it lacks `keytab`.
    pub(crate) at: Option<Origin>,
    pub(crate) keytab: Option<Set<PathBuf>>,
    pub(crate) realm: Option<Set<Realm>>,
    pub(crate) names: Vec<Set<HostName>>,
    pub(crate) map: Option<Set<KerberosMap>>,
    pub(crate) rid_base: Option<Set<u32>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn realms_and_host_names_parse() {
        assert_eq!("LAB.TEST".parse::<Realm>().unwrap().as_str(), "LAB.TEST");
        let small = "lab.test".parse::<Realm>().unwrap_err();
        assert!(small.ends_with("write `LAB.TEST`"), "{small}");
        assert_eq!("Files.lab".parse::<HostName>().unwrap().as_str(), "files.lab");
        for bad in ["", ".", "A..B", "A B", "A@B", "A/B", &"A".repeat(256)] {
            assert!(bad.parse::<Realm>().is_err() && bad.parse::<HostName>().is_err(), "{bad}");
        }
        assert!("192.0.2.1".parse::<HostName>().is_err());
    }
}
