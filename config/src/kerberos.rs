//! `kerberos`: with which keys clients prove by tickets who they are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::file::Draft;
use crate::reader::{Origin, Report, Set, shown};
use crate::settings::{Ntlm, Source};
use crate::words::words;

/// Bytes of a realm or of a host's name at most.
const NAME_MAX: usize = 255;
/// Names of this host at most.
const NAMES_MAX: usize = 64;

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
const RID_BASE: u32 = 100_000;
/// Below it are users of the system, and beyond it a RID (at most 2^30) does not fit.
const RID_BASES: std::ops::RangeInclusive<u32> = 1000..=1_000_000_000;

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

/// The keytab is one, no share has it, and without NTLM there is something else.
pub(crate) fn check(
    draft: &Draft,
    proven: fn(&Path) -> Result<(), String>,
    report: &mut Report,
) -> Option<Kerberos> {
    let kerberos = &draft.kerberos;
    if let Some(ntlm) = draft.ntlm.as_ref().filter(|ntlm| ntlm.value == Ntlm::Off)
        && kerberos.keytab.is_none()
    {
        report.add_help(
            ntlm.origin,
            "no user could log on by SMB: NTLM is off, and Kerberos has no keytab",
            "set `kerberos: {keytab: FILE}`, or `ntlm: on`",
        );
    }
    let Some(keytab) = &kerberos.keytab else {
        if let Some(at) = kerberos.at {
            report.add_help(
                at,
                "Kerberos needs a keytab with the keys of this server",
                "add `keytab: /etc/headgate/krb5.keytab`",
            );
        }
        return None;
    };
    if let Some(second) = kerberos.names.get(NAMES_MAX) {
        report.add(second.origin, format!("`names` has more than {NAMES_MAX} entries"));
    }
    let path = &keytab.value;
    let inside = |s: &&crate::file::DraftShare| match &s.share.source {
        Source::Folder(folder) => crate::paths::real(path).starts_with(crate::paths::real(folder)),
        Source::Memory | Source::Ceph(_) | Source::Refer(_) => false,
    };
    if let Some(share) = draft.shares.iter().find(inside) {
        let what = format!(
            "the keytab {} is inside the share `{}`, where clients could read it",
            path.display(),
            share.share.name
        );
        report.add_help(keytab.origin, what, "choose a file outside of every share");
    } else if let Err(what) = proven(path) {
        report.add(keytab.origin, what);
    }
    let map = kerberos.map.as_ref().map(|map| map.value).unwrap_or_default();
    if let Some(said) = kerberos.map.as_ref().filter(|map| map.value == KerberosMap::Rid)
        && kerberos.realm.is_none()
    {
        report.add_help(
            said.origin,
            "`map: rid` numbers the users of one domain, and `realm` does not say which",
            "add `realm: EXAMPLE.ORG`",
        );
    }
    let rid_base = kerberos.rid_base.as_ref().map_or(RID_BASE, |base| base.value);
    if let Some(base) = kerberos.rid_base.as_ref().filter(|b| !RID_BASES.contains(&b.value)) {
        let (least, most) = (RID_BASES.start(), RID_BASES.end());
        let what = format!("`rid_base: {}` is out of range", base.value);
        report.add_help(base.origin, what, format!("choose one from {least} to {most}"));
    }
    Some(Kerberos {
        map,
        rid_base,
        keytab: path.clone(),
        realm: kerberos.realm.as_ref().map(|r| r.value.clone()),
        names: kerberos.names.iter().map(|n| n.value.clone()).collect(),
    })
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
