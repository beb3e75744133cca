//! `users_from`: an LDAP directory with users and groups.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::reader::{Origin, Set, shown};
use crate::server;
use crate::units::Span;

/// Maximum number of servers: a logon tries one after another within its time limit.
pub(crate) const SERVERS_MAX: usize = 4;
/// Maximum length of a distinguished name or filter, in bytes.
const TEXT_MAX: usize = 1024;
/// Default of `filter`.
pub(crate) const FILTER: &str = "(objectClass=posixAccount)";
/// Default of `keep`: a week.
pub(crate) const KEEP: Duration = Duration::from_secs(168 * 3600);
/// Longest `keep`: a password that was changed in the directory is valid here for that time.
pub(crate) const KEEP_MAX: Duration = Duration::from_secs(720 * 3600);

/// Schemes of a server: the one with TLS first, then the plain one.
const SCHEMES: [&str; 2] = ["ldaps", "ldap"];

/// A directory with users and groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UsersFrom {
    /// The servers of the directory, the preferred one first; at least one.
    pub ldap: Vec<LdapServer>,
    /// Distinguished name below which users and groups are searched.
    pub base: String,
    /// Distinguished name of the gateway in the directory, and the file with its password; `None`: anonymous.
    pub bind: Option<(String, PathBuf)>,
    /// Authorities for the certificates of the servers; `None` takes the authorities of the system.
    pub ca: Option<PathBuf>,
    /// Filter for entries of users, in addition to the name.
    pub filter: String,
    /// How long the last answer about a user is valid while no server answers.
    pub keep: Duration,
}

impl fmt::Display for UsersFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.ldap.iter().map(ToString::to_string).collect();
        let by = self.bind.as_ref().map_or("anonymous", |(dn, _)| dn);
        let ca = self.ca.as_ref().map_or("of the system".into(), |ca| ca.display().to_string());
        let (servers, base, filter) = (servers.join(", "), &self.base, &self.filter);
        let keep = Span(self.keep);
        write!(f, "{servers} below {base} as {by}, {filter}, ca {ca}, keep {keep}")
    }
}

/// A server of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LdapServer {
    /// `ldaps`; without it only an address of this host is accepted.
    pub tls: bool,
    /// Host name, or address without brackets.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for LdapServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        server::write(f, SCHEMES[usize::from(!self.tls)], &self.host, self.port)
    }
}

impl FromStr for LdapServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is not a server of a directory; write one like `ldaps://ldap.example.org`",
                shown(text)
            )
        };
        let (tls, host, port) = server::parse(text, SCHEMES).ok_or_else(wrong)?;
        if !tls && !host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) {
            return Err(format!(
                "`{}` would send passwords and hashes without encryption; write `ldaps://{}`, or an address of this host like \
                 `ldap://127.0.0.1`",
                shown(text),
                shown(host)
            ));
        }
        let port = port.unwrap_or(if tls { 636 } else { 389 });
        Ok(Self { tls, host: host.into(), port })
    }
}

/// A distinguished name (RFC 4514). Only the server knows whether it exists.
pub(crate) struct Dn(pub(crate) String);

impl FromStr for Dn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = text.contains('=') && !text.contains(char::is_control);
        if !is_name || text.len() > TEXT_MAX {
            return Err(format!(
                "`{}` is not a distinguished name; write one like `dc=example,dc=org`",
                shown(text)
            ));
        }
        Ok(Self(text.into()))
    }
}

/// A filter (RFC 4515), as far as its parentheses show it.
pub(crate) struct Filter(pub(crate) String);

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut depth = 0_usize;
        let mut ends = 0;
        for c in text.chars() {
            match c {
                '(' => depth += 1,
                ')' if depth == 0 => ends = 2,
                ')' => {
                    depth -= 1;
                    ends += usize::from(depth == 0);
                }
                _ => {}
            }
        }
        let is_whole = text.starts_with('(') && text.ends_with(')') && depth == 0 && ends == 1;
        if !is_whole || text.len() > TEXT_MAX || text.contains(char::is_control) {
            return Err(format!(
                "`{}` is not a filter; write one in parentheses, like `{FILTER}`",
                shown(text)
            ));
        }
        Ok(Self(text.into()))
    }
}

/// `users_from` before checking.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftUsersFrom {
    /// Position of the group.
    pub(crate) at: Option<Origin>,
    pub(crate) all_known: bool,
    pub(crate) ldap: Vec<Set<LdapServer>>,
    pub(crate) ldap_said: bool,
    pub(crate) base: Option<Set<String>>,
    pub(crate) bind_dn: Option<Set<String>>,
    pub(crate) bind_password_file: Option<Set<PathBuf>>,
    pub(crate) ca: Option<Set<PathBuf>>,
    pub(crate) filter: Option<Set<String>>,
    pub(crate) keep: Option<Set<Span>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_parse_and_show() {
        for (text, shown) in [
            ("ldaps://ldap.example.org", "ldaps://ldap.example.org:636"),
            ("ldaps://[2001:db8::1]:1636/", "ldaps://[2001:db8::1]:1636"),
            ("ldap://127.0.0.1", "ldap://127.0.0.1:389"),
            ("ldap://[::1]:3890", "ldap://[::1]:3890"),
        ] {
            let server = text.parse::<LdapServer>().unwrap();
            assert_eq!(server.to_string(), shown);
            assert_eq!(shown.parse::<LdapServer>().unwrap(), server);
        }
        for text in ["ldap.example.org", "ldaps://", "ldaps://a b", "ldaps://a:0", "ldaps://a:x"] {
            assert!(text.parse::<LdapServer>().is_err(), "{text}");
        }
        for text in ["ldap://ldap.example.org", "ldap://192.0.2.1", "ldap://localhost"] {
            let why = text.parse::<LdapServer>().unwrap_err();
            assert!(why.contains("without encryption"), "{why}");
        }
    }

    #[test]
    fn names_and_filters_parse() {
        assert!("dc=example,dc=org".parse::<Dn>().is_ok());
        assert!(["", "example.org", "a=\n"].iter().all(|text| text.parse::<Dn>().is_err()));
        let is_filter = |text: &str| text.parse::<Filter>().is_ok();
        assert!(is_filter(FILTER) && is_filter("(&(a=b)(!(c=d)))"));
        for text in ["", "a=b", "(a=b", "(a=b))(", "(a=b)(c=d)", "(a=b)x(c=d)"] {
            assert!(!is_filter(text), "{text}");
        }
    }
}
