//! Shares of other servers, to which clients are referred.
//!
//! *Operation.* Such a share has a name, addresses that may learn of it, and no files: its backend is an empty volume in memory,
//! which no protocol shows, because every access to the share fails with [`Refusal::Elsewhere`](crate::namespace::Refusal).

use std::fmt;
use std::net::IpAddr;

/// The name or the address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    Ip(IpAddr),
    /// The server's name in DNS.
    Name(Box<str>),
}

/// A server that has the share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    pub server: Server,
    /// The path that NFS clients mount there, without the first slash.
    pub nfs_path: Box<str>,
    /// The part after the server in an SMB path, without the first backslash.
    pub smb_path: Box<str>,
    /// True if it serves NFS over RDMA, too.
    pub rdma: bool,
    /// True if the share there is the root of a DFS namespace itself.
    pub namespace: bool,
}

/// NFS form (RFC 7530 section 8.8): an IPv6 address without brackets.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Form for `mount`: an IPv6 address in brackets.
impl fmt::Display for Referral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:/{}", self.nfs_path),
            server => write!(f, "{server}:/{}", self.nfs_path),
        }
    }
}

impl Referral {
    /// Returns the location as an SMB path with one backslash in front (MS-DFSC section 2.2.1). An IPv6 address has no colons there
    /// (MS-DFSC section 2.2.1.3, MS-DTYP section 2.2.57).
    pub fn smb_target(&self) -> String {
        let path = &self.smb_path;
        match &self.server {
            Server::Ip(IpAddr::V6(ip)) => {
                format!(r"\{}.ipv6-literal.net\{path}", ip.to_string().replace(':', "-"))
            }
            server => format!(r"\{server}\{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_written_in_each_protocols_form() {
        let of = |server| Referral {
            server,
            nfs_path: "a/b".into(),
            smb_path: r"a\b".into(),
            rdma: false,
            namespace: false,
        };
        let named = of(Server::Name("gw2.example.org".into()));
        assert_eq!(named.server.to_string(), "gw2.example.org");
        assert_eq!(named.smb_target(), r"\gw2.example.org\a\b");
        let v4 = of(Server::Ip("192.0.2.20".parse().unwrap()));
        assert_eq!(v4.smb_target(), r"\192.0.2.20\a\b");
        let v6 = of(Server::Ip("2001:db8::20".parse().unwrap()));
        assert_eq!(v6.server.to_string(), "2001:db8::20");
        assert_eq!(named.to_string(), "gw2.example.org:/a/b");
        assert_eq!(v6.to_string(), "[2001:db8::20]:/a/b");
        assert_eq!(v6.smb_target(), r"\2001-db8--20.ipv6-literal.net\a\b");
    }
}
