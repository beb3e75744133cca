//! The servers to which a share refers its clients.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::export::Export;
use crate::reader::shown;

/// Maximum number of servers of a share: clients try them in this order, and their buffers hold no more.
pub(crate) const TARGETS_MAX: usize = 16;
/// Maximum length of a host name (RFC 1035 section 2.3.4) and of a label in it, in bytes.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// A server, by address or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferHost {
    Ip(IpAddr),
    /// Its DNS name.
    Name(String),
}

impl FromStr for ReferHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is not a server; write a name like `gw2.example.org` or an address like `192.0.2.20`",
                shown(text)
            )
        };
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            if ip.is_unspecified() || ip.is_multicast() || is_link_local(ip) {
                return Err(format!("{ip} is not the address of a server"));
            }
            return Ok(Self::Ip(ip));
        }
        let good = |label: &str| {
            (1..=LABEL_MAX).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // The last label of a name is not a number (RFC 1123 section 2.1), so this is a misspelt address.
        let is_number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
        let last = text.rsplit('.').next().unwrap_or_default();
        match text.len() <= NAME_MAX && text.split('.').all(good) && !is_number(last) {
            true => Ok(Self::Name(text.to_ascii_lowercase())),
            false => Err(wrong()),
        }
    }
}

/// Checks for an address that denotes a different machine on each link.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Formats as NFS and DNS do: IPv6 addresses without brackets.
impl fmt::Display for ReferHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A server and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refer {
    pub host: ReferHost,
    /// The path that NFS clients mount.
    pub path: Export,
    /// The share name for SMB clients; `None`: the path.
    pub share: Option<String>,
    /// The server also serves NFS over RDMA.
    pub rdma: bool,
    /// The share there is a DFS namespace itself.
    pub namespace: bool,
}

impl Refer {
    /// Returns the part of an SMB path after the server name, without the first backslash.
    pub fn smb_path(&self) -> String {
        self.share.clone().unwrap_or_else(|| self.path.path().replace('/', r"\"))
    }
}

/// Parses `HOST:/PATH` with IPv6 addresses in brackets, as `mount` does.
impl FromStr for Refer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((host, path)) = text.split_once(":/") else {
            return Err(format!(
                "`{}` is not a server with a path; write it like `gw2.example.org:/archive`",
                shown(text)
            ));
        };
        if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) {
            return Err(format!("write the address in brackets: `[{host}]:/{path}`"));
        }
        Ok(Self {
            host: host.parse()?,
            path: format!("/{path}").parse()?,
            share: None,
            rdma: false,
            namespace: false,
        })
    }
}

impl fmt::Display for Refer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            ReferHost::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.path),
            host => write!(f, "{host}:{}", self.path),
        }
    }
}

/// Lists the servers for a message about where a share's files are.
pub(crate) fn listed(targets: &[Refer]) -> String {
    targets.iter().map(Refer::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refer_parses_server_and_path() {
        for (text, shown, smb) in [
            ("gw2.example.org:/archive", "gw2.example.org:/archive", "archive"),
            ("GW2:/a/b/", "gw2:/a/b", r"a\b"),
            ("192.0.2.20:/archive", "192.0.2.20:/archive", "archive"),
            ("[2001:db8::20]:/archive", "[2001:db8::20]:/archive", "archive"),
            ("3com.example:/a:/b", "3com.example:/a:/b", r"a:\b"),
        ] {
            let refer: Refer = text.parse().unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!((refer.to_string().as_str(), refer.smb_path().as_str()), (shown, smb));
            assert_eq!(refer.to_string().parse(), Ok(refer));
        }
    }

    #[test]
    fn invalid_server_suggests_a_fix() {
        for (text, what) in [
            ("", "write it like `gw2.example.org:/archive`"),
            ("gw2", "write it like `gw2.example.org:/archive`"),
            ("/archive", "write it like `gw2.example.org:/archive`"),
            ("gw2:archive", "write it like `gw2.example.org:/archive`"),
            (":/archive", "is not a server"),
            ("a b:/archive", "is not a server"),
            ("-a:/archive", "is not a server"),
            ("a..b:/archive", "is not a server"),
            ("192.0.2.300:/archive", "is not a server"),
            ("2001:db8::20:/archive", "in brackets: `[2001:db8::20]:/archive`"),
            ("0.0.0.0:/archive", "is not the address of a server"),
            ("[fe80::1]:/archive", "is not the address of a server"),
            ("224.0.0.1:/archive", "is not the address of a server"),
            ("gw2:/", "name a path below it"),
            ("gw2:/a/../b", "`..`"),
        ] {
            let why = text.parse::<Refer>().unwrap_err();
            assert!(why.contains(what), "{text}: {why}");
        }
        let long = format!("{}:/a", ["x"; 200].join("."));
        assert!(long.parse::<Refer>().is_err());
    }
}
