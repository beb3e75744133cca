//! What to connect to, as one word: `nfs://HOST[:PORT]/SHARE[?version=3|4.1|4.2&transport=tcp|rdma&mountport=PORT&crc=on|off]`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Which version of NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 3
    V3,
    /// 4.1
    V41,
    /// 4.2
    V42,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V3 => "3",
            Self::V41 => "4.1",
            Self::V42 => "4.2",
        })
    }
}

/// Which transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP
    Tcp,
    /// RPC-over-RDMA by iWARP in user space.
    Rdma,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        })
    }
}

/// A share of a server, by a version and a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name or address of the server.
    pub host: String,
    /// Port of NFS.
    pub port: u16,
    /// Port of MOUNT over TCP (version 3 only).
    pub mount_port: u16,
    /// Path of the share, beginning with `/`.
    pub path: String,
    /// Version.
    pub version: Version,
    /// Transport.
    pub transport: Transport,
    /// Over RDMA, ask for a CRC in every frame. The server may insist on it.
    pub crc: bool,
}

impl Target {
    /// The address of this port of the server; the first one, if the name has several.
    pub(crate) fn address(&self, port: u16) -> Result<SocketAddr, String> {
        (self.host.as_str(), port)
            .to_socket_addrs()
            .map_err(|e| format!("{}: {e}", self.host))?
            .next()
            .ok_or_else(|| format!("{} has no address", self.host))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let (port, path) = (self.port, &self.path);
        write!(
            f,
            "nfs://{host}:{port}{path}?version={}&transport={}",
            self.version, self.transport
        )?;
        f.write_str(if self.crc { "" } else { "&crc=off" })
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("`{text}` is not a port"))
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const SHAPE: &str =
            "write nfs://HOST[:PORT]/SHARE[?version=3&transport=rdma&mountport=PORT]";
        let rest = text.strip_prefix("nfs://").ok_or_else(|| SHAPE.to_owned())?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let slash = place.find('/').ok_or_else(|| format!("`{text}` names no share; {SHAPE}"))?;
        let (host, path) = place.split_at(slash);
        let (mut version, mut transport, mut mount_port) = (Version::V3, Transport::Tcp, None);
        let mut crc = true;
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            match pair.split_once('=') {
                Some(("version", "3")) => version = Version::V3,
                Some(("version", "4" | "4.1")) => version = Version::V41,
                Some(("version", "4.2")) => version = Version::V42,
                Some(("version", v)) => {
                    return Err(format!("there is no version `{v}` here; write 3, 4.1 or 4.2"));
                }
                Some(("transport", "tcp")) => transport = Transport::Tcp,
                Some(("transport", "rdma")) => transport = Transport::Rdma,
                Some(("transport", t)) => {
                    return Err(format!("there is no transport `{t}`; write tcp or rdma"));
                }
                Some(("mountport", p)) => mount_port = Some(port(p)?),
                Some(("crc", "on")) => crc = true,
                Some(("crc", "off")) => crc = false,
                _ => {
                    return Err(format!(
                        "`{pair}` is no option of a target; there are version, transport, mountport and crc=on|off"
                    ));
                }
            }
        }
        let (host, given) = match host.strip_prefix('[').and_then(|h| h.split_once(']')) {
            Some((v6, rest)) => (v6, rest.strip_prefix(':')),
            None => match host.split_once(':') {
                Some((name, p)) => (name, Some(p)),
                None => (host, None),
            },
        };
        if host.is_empty() {
            return Err(format!("`{text}` names no host; {SHAPE}"));
        }
        let usual = if transport == Transport::Tcp { 2049 } else { 20049 };
        let port = given.map_or(Ok(usual), port)?;
        // MOUNT over TCP is where NFS over TCP is, unless it is said otherwise.
        let beside = if transport == Transport::Tcp { port } else { 2049 };
        Ok(Self {
            host: host.into(),
            port,
            mount_port: mount_port.unwrap_or(beside),
            path: path.into(),
            version,
            transport,
            crc,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let t: Target = "nfs://gw/data".parse().unwrap();
        assert_eq!((t.host.as_str(), t.port, t.mount_port), ("gw", 2049, 2049));
        assert_eq!(
            (t.path.as_str(), t.version, t.transport),
            ("/data", Version::V3, Transport::Tcp)
        );
        let t: Target = "nfs://[::1]:99/a/b?version=4.2&transport=rdma".parse().unwrap();
        assert_eq!((t.host.as_str(), t.port, t.mount_port), ("::1", 99, 2049));
        assert_eq!(t.to_string(), "nfs://[::1]:99/a/b?version=4.2&transport=rdma");
        let t: Target = "nfs://gw/x?transport=rdma&mountport=7".parse().unwrap();
        assert_eq!((t.port, t.mount_port, t.crc), (20049, 7, true));
        let t: Target = "nfs://gw/x?transport=rdma&crc=off".parse().unwrap();
        assert!(!t.crc);
        assert_eq!(t.to_string(), "nfs://gw:20049/x?version=3&transport=rdma&crc=off");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for text in [
            "",
            "gw:/data",
            "nfs://gw",
            "nfs:///x",
            "nfs://gw:x/d",
            "nfs://gw/d?version=2",
            "nfs://gw/d?transport=udp",
            "nfs://gw/d?v=3",
            "nfs://gw/d?crc=no",
            "nfs://gw/d?mountport=70000",
            "nfs://[::1/d",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
