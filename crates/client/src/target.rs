//! The URL of a share to connect to:
//! `nfs://HOST[:PORT]/SHARE[?version=3|4.1|4.2&transport=tcp|rdma&mountport=PORT&crc=on|off&device=on|off]`, with
//! `sec=krb5|krb5i|krb5p&keytab=PATH` for Kerberos tickets (over TCP; without `keytab` the tickets of `kinit`), or
//! `smb://USER:PASSWORD@HOST[:PORT]/SHARE[?dialect=3.1.1&transport=tcp|rdma&protect=sign|seal&transforms=on|off]`, which also
//! accepts `crc` and `device`. `transforms=off` offers no protection of RDMA payload, `device=on` uses an RDMA device of this host
//! instead of iWARP in user space, and `smb+rdma://` selects the transport as well. Without a port, SMB Direct connects to 5445
//! over iWARP, and to 445 over a RoCE or InfiniBand device.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use gss_sys::Tickets;
use nfs_proto::rpcsec_gss::GssService;
use smb_proto::smb2::negotiate::Dialect;

use crate::gss::Security;
use crate::smb::{Options, User};

/// A version of NFS.
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

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP
    Tcp,
    /// RPC-over-RDMA or SMB Direct, over iWARP in user space or a device.
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

/// A protocol and its settings.
#[derive(Clone, PartialEq, Eq)]
pub enum Protocol {
    /// NFS.
    Nfs {
        version: Version,
        /// TCP port of MOUNT (version 3 only); `None`: query port 111 of the server, otherwise the port of NFS.
        mount_port: Option<u16>,
        /// Kerberos; `None`: AUTH_SYS, which sends user numbers.
        security: Option<Security>,
    },
    /// SMB.
    Smb {
        /// The user that logs on.
        user: User,
        /// The client's settings.
        options: Options,
    },
}

impl Protocol {
    /// Returns the required protection of messages: `none`, `sign` or `seal`.
    pub fn protection(&self) -> &'static str {
        match self {
            Self::Smb { options, .. } if options.seal => "seal",
            Self::Smb { options, .. } if options.sign => "sign",
            Self::Nfs { security: Some(security), .. } => match security.service {
                GssService::None => "none",
                GssService::Integrity => "sign",
                GssService::Privacy => "seal",
            },
            _ => "none",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nfs { version, .. } => write!(f, "NFS {version}"),
            Self::Smb { options, .. } => write!(f, "SMB {}", dialect_name(options.dialect)),
        }
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Returns the usual notation of a dialect.
fn dialect_name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::V202 => "2.0.2",
        Dialect::V210 => "2.1",
        Dialect::V300 => "3.0",
        Dialect::V302 => "3.0.2",
        Dialect::V311 => "3.1.1",
    }
}

/// Port of SMB over TCP, and of SMB Direct over RoCE and InfiniBand, which have a separate port space (MS-SMBD section 1.9).
pub(crate) const SMB_PORT: u16 = 445;
/// Port of SMB Direct over iWARP.
pub(crate) const SMB_DIRECT_IWARP_PORT: u16 = 5445;
/// Default port of NFS over TCP.
pub(crate) const NFS_PORT: u16 = 2049;

/// A share of a server, with protocol and transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name or address of the server.
    pub host: String,
    /// Port of the protocol; 0: the SMB Direct port for the fabric of the device that reaches the server.
    pub port: u16,
    /// Path of the share, beginning with `/`.
    pub path: String,
    pub protocol: Protocol,
    pub transport: Transport,
    /// Request a CRC in every frame over RDMA. The server may require it anyway.
    pub crc: bool,
    /// Use an RDMA device of this host; otherwise iWARP in user space.
    pub device: bool,
}

impl Target {
    /// Resolves the server's address with this port; uses the first address of a name.
    pub(crate) fn address(&self, port: u16) -> Result<SocketAddr, String> {
        (self.host.as_str(), port)
            .to_socket_addrs()
            .map_err(|e| format!("{}: {e}", self.host))?
            .next()
            .ok_or_else(|| format!("{} has no address", self.host))
    }
}

impl fmt::Display for Target {
    /// Omits the password, because others may read the output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let (port, path, transport) = (self.port, &self.path, self.transport);
        match &self.protocol {
            Protocol::Nfs { version, security, .. } => {
                write!(f, "nfs://{host}:{port}{path}?version={version}&transport={transport}")?;
                if let Some(security) = security {
                    write!(f, "&sec={}", security.name())?;
                }
            }
            Protocol::Smb { user, options } => {
                let dialect = dialect_name(options.dialect);
                write!(f, "smb://{}@{host}", user.name)?;
                if port != 0 {
                    write!(f, ":{port}")?;
                }
                write!(f, "{path}?dialect={dialect}")?;
                write!(f, "&transport={transport}")?;
                match self.protocol.protection() {
                    "none" => {}
                    protection => write!(f, "&protect={protection}")?,
                }
                f.write_str(if options.rdma_transforms { "" } else { "&transforms=off" })?;
            }
        }
        f.write_str(if self.crc { "" } else { "&crc=off" })?;
        f.write_str(if self.device { "&device=on" } else { "" })
    }
}

const SHAPE: &str = "write nfs://HOST[:PORT]/SHARE[?version=3&transport=rdma&mountport=PORT] \
                     or smb://USER:PASSWORD@HOST[:PORT]/SHARE[?dialect=3.1.1&transport=rdma]";

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("`{text}` is not a port"))
}

fn switch(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("`{name}` is on or off, not `{other}`")),
    }
}

/// Splits `HOST[:PORT]`; IPv6 addresses are in brackets.
fn host_and_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let (host, given) = match text.strip_prefix('[').and_then(|h| h.split_once(']')) {
        Some((v6, rest)) => (v6, rest.strip_prefix(':')),
        None => match text.split_once(':') {
            Some((name, p)) => (name, Some(p)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(format!("`{text}` names no host; {SHAPE}"));
    }
    Ok((host, given.map(port).transpose()?))
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|p| !p.is_empty()).map(|p| p.split_once('=').unwrap_or((p, "")))
}

fn transport(value: &str) -> Result<Transport, String> {
    match value {
        "tcp" => Ok(Transport::Tcp),
        "rdma" => Ok(Transport::Rdma),
        t => Err(format!("there is no transport `{t}`; write tcp or rdma")),
    }
}

/// Returns the protection of a flavor; `None` without Kerberos.
fn protection(sec: &str) -> Result<Option<GssService>, String> {
    match sec {
        "sys" => Ok(None),
        "krb5" => Ok(Some(GssService::None)),
        "krb5i" => Ok(Some(GssService::Integrity)),
        "krb5p" => Ok(Some(GssService::Privacy)),
        s => Err(format!("there is no flavor `{s}` here; write sys, krb5, krb5i or krb5p")),
    }
}

fn nfs(place: &str, path: &str, query: &str) -> Result<Target, String> {
    let (mut version, mut way, mut mount_port) = (Version::V3, Transport::Tcp, None);
    let (mut crc, mut device, mut service, mut tickets) = (true, false, None, None);
    for (name, value) in pairs(query) {
        match (name, value) {
            ("sec", sec) => service = protection(sec)?,
            ("keytab", file) => tickets = Some(Tickets::Keytab(file.into())),
            ("version", "3") => version = Version::V3,
            ("version", "4" | "4.1") => version = Version::V41,
            ("version", "4.2") => version = Version::V42,
            ("version", v) => {
                return Err(format!("there is no version `{v}` here; write 3, 4.1 or 4.2"));
            }
            ("transport", t) => way = transport(t)?,
            ("mountport", p) => mount_port = Some(port(p)?),
            ("crc", c) => crc = switch("crc", c)?,
            ("device", d) => device = switch("device", d)?,
            _ => {
                return Err(format!(
                    "`{name}={value}` is no option of a target; there are version, transport, mountport, sec, \
                     keytab, crc and device"
                ));
            }
        }
    }
    let security = match (service, tickets) {
        (None, None) => None,
        (None, Some(_)) => return Err("`keytab` goes with `sec=krb5`, `krb5i` or `krb5p`".into()),
        (Some(_), _) if way == Transport::Rdma => {
            return Err("`sec=krb5` and its like go by transport=tcp here".into());
        }
        (Some(service), tickets) => {
            Some(Security { service, tickets: tickets.unwrap_or(Tickets::Usual) })
        }
    };
    let (host, given) = host_and_port(place)?;
    let usual = if way == Transport::Tcp { NFS_PORT } else { 20049 };
    let port = given.unwrap_or(usual);
    // The service on port 111 does not know a server at a nonstandard port.
    let beside = if way == Transport::Tcp { port } else { NFS_PORT };
    let mount_port = mount_port.or((port != usual).then_some(beside));
    Ok(Target {
        host: host.into(),
        port,
        path: path.into(),
        protocol: Protocol::Nfs { version, mount_port, security },
        transport: way,
        crc,
        device,
    })
}

fn smb(place: &str, path: &str, query: &str, mut way: Transport) -> Result<Target, String> {
    let (who, place) = place.rsplit_once('@').unwrap_or(("", place));
    let (name, password) = who.split_once(':').unwrap_or((who, ""));
    let (domain, name) = name.split_once(';').unwrap_or(("", name));
    let user = User { name: name.into(), domain: domain.into(), password: password.into() };
    let (mut options, mut crc, mut device) = (Options::default(), true, false);
    for (name, value) in pairs(query) {
        match (name, value) {
            ("dialect", d) => {
                let found = Dialect::ALL.into_iter().find(|known| dialect_name(*known) == d);
                let none =
                    || format!("there is no dialect `{d}`; write 2.0.2, 2.1, 3.0, 3.0.2 or 3.1.1");
                options.dialect = found.ok_or_else(none)?;
            }
            ("transport", t) => way = transport(t)?,
            ("protect", "sign") => options.sign = true,
            ("protect", "seal") => options.seal = true,
            ("transforms", t) => options.rdma_transforms = switch("transforms", t)?,
            ("crc", c) => crc = switch("crc", c)?,
            ("device", d) => device = switch("device", d)?,
            _ => {
                return Err(format!(
                    "`{name}={value}` is no option of a target; there are dialect, transport, protect=sign, protect=seal, \
                     transforms, crc and device"
                ));
            }
        }
    }
    let (host, given) = host_and_port(place)?;
    let port = given.unwrap_or(match (way, device) {
        (Transport::Tcp, _) => SMB_PORT,
        (Transport::Rdma, false) => SMB_DIRECT_IWARP_PORT,
        (Transport::Rdma, true) => 0,
    });
    if path.trim_matches('/').contains('/') || path.len() < 2 {
        return Err(format!("`{path}` is not the name of a share; {SHAPE}"));
    }
    let protocol = Protocol::Smb { user, options };
    Ok(Target { host: host.into(), port, path: path.into(), protocol, transport: way, crc, device })
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| SHAPE.to_owned())?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may contain slashes.
        let from = place.rfind('@').unwrap_or(0);
        let slash = place[from..].find('/').map(|at| from + at);
        let slash = slash.ok_or_else(|| format!("the target names no share; {SHAPE}"))?;
        let (place, path) = place.split_at(slash);
        match scheme {
            "nfs" => nfs(place, path, query),
            "smb" => smb(place, path, query, Transport::Tcp),
            "smb+rdma" => smb(place, path, query, Transport::Rdma),
            _ => Err(SHAPE.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nfs_targets_parse() {
        let t: Target = "nfs://gw/data".parse().unwrap();
        let nfs = |version, mount_port| Protocol::Nfs { version, mount_port, security: None };
        assert_eq!((t.host.as_str(), t.port, t.protocol), ("gw", 2049, nfs(Version::V3, None)));
        assert_eq!((t.path.as_str(), t.transport), ("/data", Transport::Tcp));
        let t: Target = "nfs://gw:12049/data".parse().unwrap();
        assert_eq!(t.protocol, nfs(Version::V3, Some(12049)));
        let t: Target = "nfs://[::1]:99/a/b?version=4.2&transport=rdma".parse().unwrap();
        assert_eq!((t.host.as_str(), t.port), ("::1", 99));
        assert_eq!(t.protocol, nfs(Version::V42, Some(2049)));
        assert_eq!(t.to_string(), "nfs://[::1]:99/a/b?version=4.2&transport=rdma");
        let t: Target = "nfs://gw/x?transport=rdma&mountport=7".parse().unwrap();
        assert_eq!((t.port, t.protocol, t.crc), (20049, nfs(Version::V3, Some(7)), true));
        let t: Target = "nfs://gw/x?transport=rdma&device=on".parse().unwrap();
        assert!(t.crc && t.device);
        assert_eq!(t.to_string(), "nfs://gw:20049/x?version=3&transport=rdma&device=on");
        let t: Target = "nfs://gw/x?transport=rdma&crc=off".parse().unwrap();
        assert!(!t.crc && !t.device);
        assert_eq!(t.to_string(), "nfs://gw:20049/x?version=3&transport=rdma&crc=off");
    }

    #[test]
    fn kerberos_targets_parse() {
        let by = |text: &str| match text.parse::<Target>().unwrap().protocol {
            Protocol::Nfs { security, .. } => security,
            Protocol::Smb { .. } => panic!("{text}"),
        };
        assert_eq!(by("nfs://gw/d?sec=sys"), None);
        for (name, service) in [
            ("krb5", GssService::None),
            ("krb5i", GssService::Integrity),
            ("krb5p", GssService::Privacy),
        ] {
            let security = by(&format!("nfs://gw/d?version=4.2&sec={name}")).unwrap();
            assert_eq!(security, Security { service, tickets: Tickets::Usual });
            assert_eq!(security.name(), name);
        }
        let text = "nfs://gw/d?sec=krb5p&keytab=/etc/my.keytab";
        assert_eq!(by(text).unwrap().tickets, Tickets::Keytab("/etc/my.keytab".into()));
        let target: Target = text.parse().unwrap();
        assert_eq!(target.to_string(), "nfs://gw:2049/d?version=3&transport=tcp&sec=krb5p");
        assert_eq!(target.protocol.protection(), "seal");
    }

    #[test]
    fn smb_targets_parse_and_hide_password() {
        let t: Target = "smb://alice:p:w/@x@gw/data".parse().unwrap();
        assert_eq!((t.host.as_str(), t.port, t.path.as_str()), ("gw", 445, "/data"));
        let Protocol::Smb { user, options } = &t.protocol else { panic!("{t}") };
        assert_eq!((user.name.as_str(), user.password.as_str()), ("alice", "p:w/@x"));
        assert_eq!(*options, Options::default());
        assert_eq!(t.to_string(), "smb://alice@gw:445/data?dialect=3.1.1&transport=tcp");
        assert!(!format!("{t:?}").contains("p:w"));
        let t: Target =
            "smb+rdma://DOM;bob@[::1]/d?dialect=3.0.2&protect=sign&transforms=off&crc=off"
                .parse()
                .unwrap();
        assert_eq!((t.port, t.transport, t.crc), (5445, Transport::Rdma, false));
        let Protocol::Smb { user, options } = &t.protocol else { panic!("{t}") };
        assert_eq!((user.domain.as_str(), user.name.as_str()), ("DOM", "bob"));
        assert_eq!((options.dialect, options.sign, options.seal), (Dialect::V302, true, false));
        assert!(!options.rdma_transforms);
        let shown = "smb://bob@[::1]:5445/d?dialect=3.0.2&transport=rdma&protect=sign&transforms=off&crc=off";
        assert_eq!(t.to_string(), shown);
        // The device that reaches the server determines the port.
        let t: Target = "smb+rdma://bob@gw/d?device=on".parse().unwrap();
        assert_eq!((t.port, t.device), (0, true));
        assert_eq!(t.to_string(), "smb://bob@gw/d?dialect=3.1.1&transport=rdma&device=on");
        let t: Target = "smb://bob@gw:5445/d?transport=rdma&device=on".parse().unwrap();
        assert_eq!(t.port, 5445);
    }

    #[test]
    fn invalid_targets_explain_the_fault() {
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
            "nfs://gw/d?sec=krb4",
            "nfs://gw/d?sec=krb5p&transport=rdma",
            "nfs://gw/d?keytab=/etc/krb5.keytab",
            "nfs://[::1/d",
            "cifs://a:b@gw/d",
            "smb://a:b@gw",
            "smb://a:b@gw/",
            "smb://a:b@gw/d/e",
            "smb://a:b@gw/d?dialect=1.0",
            "smb://a:b@gw/d?sign=on",
            "smb://a:b@gw/d?protect=yes",
            "smb://a:b@gw/d?transforms=maybe",
            "smb://a:b@gw/d?version=3",
            "smb://a:b@gw/d?device=rxe0",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
