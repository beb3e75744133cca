//! Which users may do what in a share.

use std::fmt;
use std::str::FromStr;

use crate::reader::shown;

/// Characters of a name at most.
const NAME_MAX: usize = 256;

/// A user, a group, or everyone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// Whoever comes.
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
    /// The number, where it was given.
    pub fn number(&self) -> Option<u32> {
        match self {
            Self::Everyone => None,
            Self::User(name) | Self::Group(name) => name.parse().ok(),
        }
    }
}

/// What a host's name service knows of a user or group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnHost {
    /// A user.
    User {
        /// Its number.
        uid: u32,
        /// The group that it is in first.
        gid: u32,
        /// Further groups.
        groups: Vec<u32>,
    },
    /// A group.
    Group {
        /// Its number.
        gid: u32,
        /// The names of its members.
        members: Vec<Member>,
    },
}

/// A member of a group by name, and what the name service says of it: its number, that there is no such user, or why it cannot
/// tell.
pub type Member = (String, Result<Option<u32>, String>);

/// Who may use a share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Who may read.
    pub read: Vec<Who>,
    /// Who may write, and read.
    pub write: Vec<Who>,
    /// Who may do neither, whatever else is said.
    pub deny: Vec<Who>,
}

impl Access {
    /// Nobody is named who may come: all may but those who are denied.
    pub fn only_denies(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    /// Everybody who is named.
    pub fn principals(&self) -> impl Iterator<Item = &Who> {
        [&self.read, &self.write, &self.deny].into_iter().flatten()
    }
}
