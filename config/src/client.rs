//! The clients of a share: where they connect from and which settings apply to them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use policy::{Cidr, Protocols, Squash};

use crate::reader::shown;

/// Maximum length of a host name, in bytes (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 253;

/// Selects clients by address or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Clients in this address range.
    Range(Cidr),
    /// The host with this name.
    Host(String),
    /// Hosts with names that match this pattern, which contains `*`, `?` or `[...]`.
    Pattern(String),
    /// Hosts of this netgroup.
    Netgroup(String),
}

impl Whom {
    /// Returns the address range, if this is one.
    pub fn range(&self) -> Option<Cidr> {
        match self {
            Self::Range(range) => Some(*range),
            _ => None,
        }
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(range) => range.fmt(f),
            Self::Host(name) | Self::Pattern(name) => f.write_str(name),
            Self::Netgroup(name) => write!(f, "@{name}"),
        }
    }
}

impl FromStr for Whom {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let in_host = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let fits = !text.is_empty() && text.len() <= NAME_MAX;
        if let Some(group) = text.strip_prefix('@') {
            let good = |c: char| c.is_ascii_graphic() && !"(),@".contains(c);
            return match fits && !group.is_empty() && group.chars().all(good) {
                true => Ok(Self::Netgroup(group.to_owned())),
                false => {
                    Err(format!("`{}` is not a netgroup; write one like `\"@hosts\"`", shown(text)))
                }
            };
        }
        // A name contains letters. An address has letters only as hexadecimal digits of IPv6, which contains colons.
        if !text.contains(['/', ':']) && text.chars().any(|c| c.is_ascii_alphabetic()) {
            let in_pattern = |c: char| in_host(c) || "*?[]^!".contains(c);
            if fits
                && text.chars().all(in_host)
                && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            {
                return Ok(Self::Host(text.to_ascii_lowercase()));
            }
            if fits && text.chars().all(in_pattern) && text.contains(['*', '?', '[']) {
                return Ok(Self::Pattern(text.to_ascii_lowercase()));
            }
        }
        text.parse().map(Self::Range).map_err(|why| match text {
            "*" => "`*` does not match every client; write `0.0.0.0/0` and `::/0`".to_owned(),
            _ if text.contains('*') => {
                format!("`{}` is not a pattern of host names; write a range of addresses", shown(text))
            }
            _ if text.split('/').next().is_some_and(|addr| addr.parse::<IpAddr>().is_ok()) => why,
            _ => format!(
                "`{}` is not a client; write a range like `10.0.0.0/8` or `fd00::/8`, a host like `ws1.example.org`, a pattern \
                 like `*.example.org`, or a netgroup like `\"@hosts\"`",
                shown(text)
            ),
        })
    }
}

/// One entry of `clients`. If several entries match a client, the most specific one applies: host name or full address, then the
/// range with the longest prefix, then name pattern, then netgroup, then the entry for all clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub from: Whom,
    /// The protocols for which the entry applies.
    pub protocols: Protocols,
    /// Read only over every protocol.
    pub read_only: bool,
    /// NFS: the users that are mapped to the anonymous user, by default as the share says.
    pub squash: Option<Squash>,
    /// NFS: the user to which squashed callers are mapped; `None`: 65534.
    pub anonuid: Option<u32>,
    /// NFS: the group to which squashed callers are mapped.
    pub anongid: Option<u32>,
}

impl From<Cidr> for Client {
    fn from(from: Cidr) -> Self {
        Self::from(Whom::Range(from))
    }
}

impl From<Whom> for Client {
    fn from(from: Whom) -> Self {
        let protocols = Protocols::Both;
        Self { from, protocols, read_only: false, squash: None, anonuid: None, anongid: None }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.from)?;
        let id = |key: &str, id: Option<u32>| id.map(|id| format!("{key}={id}"));
        let said = [
            (self.protocols != Protocols::Both).then(|| self.protocols.to_string()),
            self.read_only.then(|| "ro".to_owned()),
            self.squash.map(|squash| format!("squash={squash}")),
            id("anonuid", self.anonuid),
            id("anongid", self.anongid),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        if said.is_empty() { Ok(()) } else { write!(f, "({})", said.join(",")) }
    }
}

/// Parses a client without further settings.
impl FromStr for Client {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<Whom>().map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_entry_parses_every_form() {
        for (text, wanted) in [
            ("10.0.0.0/8", Whom::Range("10.0.0.0/8".parse().unwrap())),
            ("fd00::/8", Whom::Range("fd00::/8".parse().unwrap())),
            ("fd::beef", Whom::Range("fd::beef".parse().unwrap())),
            ("WS1.Example.org", Whom::Host("ws1.example.org".into())),
            ("3com", Whom::Host("3com".into())),
            ("*.example.org", Whom::Pattern("*.example.org".into())),
            ("ws[1-9]?.lab", Whom::Pattern("ws[1-9]?.lab".into())),
            ("@hosts", Whom::Netgroup("hosts".into())),
            ("@Lab-hosts", Whom::Netgroup("Lab-hosts".into())),
        ] {
            let read: Whom = text.parse().unwrap();
            assert_eq!(read, wanted, "{text}");
            assert_eq!(read.to_string().parse(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn invalid_client_suggests_a_fix() {
        for (text, what) in [
            ("*", "`0.0.0.0/0` and `::/0`"),
            ("192.168.1.*", "write a range of addresses"),
            ("@", "`\"@hosts\"`"),
            ("@a(b)", "`\"@hosts\"`"),
            ("a b", "`ws1.example.org`"),
            ("", "`ws1.example.org`"),
            ("-a.b", "`ws1.example.org`"),
            ("host/24", "`10.0.0.0/8`"),
            ("10.0.0.0/33", "longest is /32"),
            (&"x".repeat(254), "`ws1.example.org`"),
        ] {
            let why = text.parse::<Whom>().unwrap_err();
            assert!(why.contains(what), "{text}: {why}");
        }
    }
}
