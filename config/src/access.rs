//! The users and groups that may read or write a share.

use std::fmt;
use std::str::FromStr;

use crate::reader::shown;

/// Maximum length of a name, in characters.
const NAME_MAX: usize = 256;

/// A user, a group, or everyone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    Everyone,
    /// A user, by name or number.
    User(String),
    /// A group, by name or number.
    Group(String),
}

impl FromStr for Who {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Everyone);
        }
        let group = text.strip_prefix('@');
        let name = group.unwrap_or(text);
        let too_long = name.chars().count() > NAME_MAX;
        if name.is_empty() || too_long || name.trim() != name || name.contains(char::is_control) {
            return Err(format!(
                "`{}` is not a user or a group; write a user like `alice`, a group like `\"@staff\"`, or `\"*\"` for everyone",
                shown(text)
            ));
        }
        Ok(if group.is_some() { Self::Group(name.into()) } else { Self::User(name.into()) })
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone => f.write_str("*"),
            Self::User(name) => f.write_str(name),
            Self::Group(name) => write!(f, "@{name}"),
        }
    }
}

impl Who {
    /// Returns the name, or number, without the mark of groups.
    pub fn name(&self) -> &str {
        match self {
            Self::Everyone => "*",
            Self::User(name) | Self::Group(name) => name,
        }
    }

    /// Returns the text of a SID, if the configuration gave one.
    pub fn sid(&self) -> Option<&str> {
        let is_sid = |name: &&str| name.len() > 4 && name[..4].eq_ignore_ascii_case("S-1-");
        Some(self.name()).filter(|name| name.is_char_boundary(4)).filter(is_sid)
    }

    /// Returns the name and the domain of `alice@example.org` and `EXAMPLE\alice`.
    pub fn in_domain(&self) -> Option<(&str, &str)> {
        let name = self.name();
        let split = name.split_once('\\').map(|(domain, name)| (name, domain));
        let split = split.or_else(|| name.rsplit_once('@'));
        split.filter(|(name, domain)| !name.is_empty() && !domain.is_empty())
    }

    /// Returns the number, if the configuration gave one.
    pub fn number(&self) -> Option<u32> {
        match self {
            Self::Everyone => None,
            Self::User(name) | Self::Group(name) => name.parse().ok(),
        }
    }
}

/// A user or group as the host's name service knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnHost {
    User {
        uid: u32,
        /// The primary group.
        gid: u32,
        groups: Vec<u32>,
        /// The name service shows the group of this name as a user, as winbind does.
        shows_group: bool,
    },
    Group {
        gid: u32,
        /// The members, by name.
        members: Vec<Member>,
    },
}

/// A member of a group: its name, and its number as the name service returned it; an unknown user has no number. The error is a
/// failure of the service.
pub type Member = (String, Result<Option<u32>, String>);

/// The users and groups that may use a share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// SMB users with all rights to its files.
    pub admin: Vec<Who>,
    pub read: Vec<Who>,
    /// May read and write.
    pub write: Vec<Who>,
    /// May not use the share; takes precedence over `read` and `write`.
    pub deny: Vec<Who>,
}

impl Access {
    /// Checks that `read` and `write` are empty, so that everyone except the denied users may write.
    pub fn only_denies(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    /// Iterates over every user and group in its lists.
    pub fn principals(&self) -> impl Iterator<Item = &Who> {
        [&self.admin, &self.read, &self.write, &self.deny].into_iter().flatten()
    }
}

/// SMB users and groups with privileges of Windows, in all shares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// SeBackupPrivilege.
    pub backup: Vec<Who>,
    /// SeRestorePrivilege.
    pub restore: Vec<Who>,
    /// SeSecurityPrivilege.
    pub security: Vec<Who>,
    /// SeTakeOwnershipPrivilege.
    pub take_ownership: Vec<Who>,
}

impl Privileges {
    /// Returns the lists with their names.
    pub fn lists(&self) -> [(&'static str, &[Who]); 4] {
        [
            ("backup", &self.backup),
            ("restore", &self.restore),
            ("security", &self.security),
            ("take_ownership", &self.take_ownership),
        ]
    }

    /// Iterates over every user and group in its lists.
    pub fn principals(&self) -> impl Iterator<Item = &Who> {
        self.lists().into_iter().flat_map(|(_, list)| list)
    }
}

impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |(name, list): (&str, &[Who])| {
            let names: Vec<String> = list.iter().map(ToString::to_string).collect();
            (!list.is_empty()).then(|| format!("{name}: {}", names.join(", ")))
        };
        let lists: Vec<String> = self.lists().into_iter().filter_map(of).collect();
        f.write_str(if lists.is_empty() { "none" } else { "" })?;
        f.write_str(&lists.join("; "))
    }
}
