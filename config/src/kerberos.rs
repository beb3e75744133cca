//! `kerberos`: with which keys clients prove by tickets who they are.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use policy::words;

use crate::reader::{Origin, Set, shown};

/// Bytes of a realm or of a host's name at most.
const NAME_MAX: usize = 255;
/// Names of this host at most.
pub(crate) const NAMES_MAX: usize = 64;

/// Kerberos, where it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kerberos {
    /// The file with the keys of this server.
    pub keytab: PathBuf,
    /// The realm whose principals of one component are users of their first component, also where krb5.conf says nothing.
    pub realm: Option<Realm>,
    /// The names by which clients know this host; empty: its own.
    pub names: Vec<HostName>,
    /// Who principals are to the file system.
    pub map: KerberosMap,
    /// With [`KerberosMap::Rid`]: the number of the user whose RID is 0.
    pub rid_base: u32,
}

/// Who principals are to the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KerberosMap {
    /// This host's users of their names.
    #[default]
    Names,
    /// Numbers that are made from those of the domain, which the tickets of Active Directory hold.
    Rid,
}

words!(KerberosMap, "is not a way to map principals to users", "names" => Names, "rid" => Rid);

/// What `rid_base` is when it is not said.
pub(crate) const RID_BASE: u32 = 100_000;
/// Below it are users of the system, and beyond it a RID (at most 2^30) does not fit.
pub(crate) const RID_BASES: std::ops::RangeInclusive<u32> = 1000..=1_000_000_000;

impl Kerberos {
    /// With the keys of this file, and the rest as it is when nothing is said.
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

/// What stands between `@` and the end of a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm(String);

impl Realm {
    /// As it was written.
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
    /// In small letters.
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

/// What file and options say of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftKerberos {
    /// The group is there.
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
    fn realms_and_names_of_hosts() {
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
