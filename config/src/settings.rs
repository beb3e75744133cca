//! What the gateway runs by, whole and checked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use policy::{Cidr, Protocols, Squash, words};

use crate::access::{Access, OnHost, Who};
use crate::audit::{Audit, Audited};
use crate::ceph::Ceph;
use crate::client::Client;
use crate::export::Export;
use crate::fault::Fault;
use crate::kerberos::Kerberos;
use crate::log::{LogFilter, LogFormat};
use crate::paths::{USER, real_in_time};
use crate::refer::{self, Refer};
use crate::rights::{Force, List, Masks, Symlinks};
use crate::sec::Secs;
use crate::tls::{ShareTls, Tls};

/// Everything `serve` needs to know. Made by [`crate::load`], or by hand in tests and in `demo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What is served, in the order of the configuration; names and numbers are different.
    pub shares: Vec<Share>,
    /// Addresses to listen on; empty: all of them, IPv4 and IPv6.
    pub bind: Vec<IpAddr>,
    /// Which RDMA provider serves `nfs_rdma_port`.
    pub rdma: Rdma,
    /// When iWARP connections carry a checksum in every frame.
    pub rdma_crc: RdmaCrc,
    /// How long a connection over an RDMA device looks for completions before it sleeps, at most; `None`: by the number of
    /// processors.
    pub rdma_spin: Option<Duration>,
    /// Whether memory is registered at an RDMA device with relaxed ordering.
    pub rdma_relaxed_ordering: RelaxedOrdering,
    /// NFS and MOUNT over TCP; 0: any free port.
    pub nfs_port: u16,
    /// NFS over RPC-over-RDMA; 0: any free port.
    pub nfs_rdma_port: u16,
    /// SMB.
    pub smb: Smb,
    /// TLS for NFS over TCP; `None`: there is none.
    pub tls: Option<Tls>,
    /// With which keys clients prove by tickets who they are; `None`: by passwords alone.
    pub kerberos: Option<Kerberos>,
    /// Where it is recorded who did what; `None`: nowhere.
    pub audit: Option<Audit>,
    /// SMB users that the configuration names, beside those of the database in the state folder.
    pub users: Vec<User>,
    /// Where what must survive a restart is kept.
    pub state: PathBuf,
    /// The folder of a share in CephFS where that is kept of it which moves with a service; `None`: in `state`, too.
    pub records: Option<Ceph>,
    /// NFSv4 lease time.
    pub lease: Duration,
    /// How long after a restart clients may reclaim what they held; at least the lease.
    pub grace: Duration,
    /// How long a silent NFSv4 client keeps what it holds, after its lease, while nobody else wants it.
    pub courtesy: Duration,
    /// How long a client of any protocol has for giving back a delegation, an oplock or a lease that another wants; then it is
    /// taken away.
    pub recall: Duration,
    /// How clients of NFS version 3 find MOUNT and the lock manager.
    pub portmap: Portmap,
    /// NFSv4: the domain in which users and groups have names; without it they are numbers.
    pub domain: Option<Domain>,
    /// Whose users and groups have names.
    pub names: Names,
    /// What the host's name service said of the users and groups that shares name, when it was asked; `None`: there is none.
    pub on_host: BTreeMap<Who, Option<OnHost>>,
    /// Payload memory in bytes, for all connections together.
    pub memory: u64,
    /// Connections held at once; more are closed as they come.
    pub connections: usize,
    /// What one client may have of them, and of other things.
    pub limits: Limits,
    /// Where health, metrics and status are served.
    pub admin: Admin,
    /// Who may read metrics and status besides root and the gateway's own user on this host.
    pub admin_clients: Vec<Cidr>,
    /// Who must call from a port below 1024, by NFS over TCP and UDP.
    pub privileged_ports: PrivilegedPorts,
    /// How long requests in work may take when the gateway is told to stop.
    pub drain: Duration,
    /// Which lines go to the log.
    pub log: LogFilter,
    /// How they are written.
    pub log_format: LogFormat,
    /// What is sound and may still be a mistake.
    pub warnings: Vec<Fault>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            shares: Vec::new(),
            bind: Vec::new(),
            rdma: Rdma::Auto,
            rdma_crc: RdmaCrc::Asked,
            rdma_spin: None,
            rdma_relaxed_ordering: RelaxedOrdering::default(),
            nfs_port: 2049,
            nfs_rdma_port: 20049,
            smb: Smb::default(),
            tls: None,
            kerberos: None,
            audit: None,
            users: Vec::new(),
            state: PathBuf::from("/var/lib/headgate"),
            records: None,
            lease: Duration::from_secs(90),
            grace: Duration::from_secs(90),
            courtesy: Duration::from_secs(24 * 3600),
            recall: Duration::from_secs(35),
            portmap: Portmap::Off,
            domain: None,
            names: Names::Host,
            on_host: BTreeMap::new(),
            memory: 256 << 20,
            connections: 2048,
            limits: Limits::default(),
            admin: Admin::Off,
            admin_clients: Vec::new(),
            privileged_ports: PrivilegedPorts::default(),
            // Less than the ten seconds after which `docker stop` kills.
            drain: Duration::from_secs(8),
            log: LogFilter::default(),
            log_format: LogFormat::default(),
            warnings: Vec::new(),
        }
    }
}

impl Settings {
    /// Some share is served by NFS.
    pub fn by_nfs(&self) -> bool {
        self.shares.iter().any(|s| s.protocols.nfs())
    }

    /// The shares that are served by SMB.
    pub fn by_smb(&self) -> impl Iterator<Item = &Share> {
        self.shares.iter().filter(|s| s.protocols.smb())
    }
}

/// A folder that is served under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Clients see `/NAME`.
    pub name: String,
    /// Where its files live.
    pub source: Source,
    /// The path ends in `{user}`: `source` has a folder for each user of SMB, which sees that one alone.
    pub homes: bool,
    /// By which protocols it is served.
    pub protocols: Protocols,
    /// Nothing may be changed through it.
    pub read_only: bool,
    /// File systems that are mounted inside its folder are served.
    pub cross: bool,
    /// Which users become the anonymous one.
    pub squash: Squash,
    /// By which flavors of RPC clients of NFS use it.
    pub sec: Secs,
    /// Whom locks of NFS clients bind.
    pub nfs_locks: NfsLocks,
    /// When changes of names and attributes are on stable storage.
    pub durability: Durability,
    /// Who may come, and how; `None`: directly attached networks and this host.
    pub clients: Option<Vec<Client>>,
    /// In no list of shares.
    pub hidden: bool,
    /// The path that NFS clients mount; `None`: `/NAME`.
    pub export: Option<Export>,
    /// Which users may do what; `None`: all of them everything.
    pub access: Option<Access>,
    /// Which operations on its files are recorded.
    pub audit: Vec<Audited>,
    /// As whom they act then.
    pub force: Force,
    /// Most that something new gets of its mode.
    pub masks: Masks,
    /// What listings of folders show.
    pub list: List,
    /// SMB: who follows symbolic links.
    pub symlinks: Symlinks,
    /// SMB: data never travels in clear.
    pub encrypt: bool,
    /// NFS: how clients must be protected.
    pub tls: ShareTls,
    /// SMB: whoever has no account may come, as the anonymous user.
    pub guest: bool,
    /// SMB: handles are to survive a restart of the gateway; today they survive a lost connection only.
    pub continuous_availability: bool,
    /// SMB: what browsers show beside the name.
    pub comment: String,
}

impl Share {
    /// A share with everything else as it is when nothing is said.
    pub fn new(name: impl Into<String>, source: Source) -> Self {
        Self {
            name: name.into(),
            source,
            homes: false,
            protocols: Protocols::default(),
            read_only: false,
            cross: true,
            squash: Squash::default(),
            sec: Secs::default(),
            nfs_locks: NfsLocks::default(),
            durability: Durability::default(),
            clients: None,
            hidden: false,
            export: None,
            access: None,
            audit: Vec::new(),
            force: Force::default(),
            masks: Masks::default(),
            list: List::default(),
            symlinks: Symlinks::default(),
            encrypt: false,
            tls: ShareTls::default(),
            guest: false,
            continuous_availability: false,
            comment: String::new(),
        }
    }

    /// Its files as the configuration names them.
    pub fn files(&self) -> String {
        let source = &self.source;
        if self.homes { format!("{source}/{USER}") } else { source.to_string() }
    }

    /// The servers that it is on; empty where it is served here.
    pub fn refers_to(&self) -> &[Refer] {
        match &self.source {
            Source::Refer(targets) => targets,
            _ => &[],
        }
    }

    /// The path that NFS clients mount, without the first slash.
    pub fn nfs_path(&self) -> &str {
        self.export.as_ref().map_or(&self.name, Export::path)
    }

    /// The squash that leaves some client of NFS the most. Whom `anonuid` makes root is left root.
    pub fn weakest_squash(&self) -> Squash {
        let of = |client: &Client| match client.anonuid {
            Some(0) => Squash::None,
            _ => client.squash.unwrap_or(self.squash),
        };
        let all = self.clients.iter().flatten().filter(|c| c.protocols.nfs()).map(of);
        all.min_by_key(|squash| *squash as u8).unwrap_or(self.squash)
    }
}

/// What one client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections from one address; `None`: three quarters of all.
    pub client_connections: Option<usize>,
    /// Bytes of payload memory for all connections of one address; `None`: three quarters of all.
    pub client_memory: Option<u64>,
    /// Files that one SMB session or one client of NFSv4 may hold open.
    pub client_opens: usize,
    /// Clients of NFSv4, in all; of one address an eighth.
    pub nfs_clients: usize,
    /// How long a connection may take until somebody has logged on or asked for something.
    pub introduction: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            client_connections: None,
            client_memory: None,
            client_opens: 65_536,
            nfs_clients: 16_384,
            introduction: Duration::from_secs(45),
        }
    }
}

/// How SMB is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smb {
    /// A port was named, so SMB is served even while nobody could log on yet.
    pub asked_for: bool,
    /// SMB over TCP; 0: any free port.
    pub port: u16,
    /// SMB Direct; 0: any free port.
    pub direct_port: u16,
    /// Whether messages must be signed.
    pub signing: Signing,
    /// Whether messages are encrypted.
    pub encryption: Encryption,
    /// Whether data that travels by RDMA is signed or encrypted by itself.
    pub rdma_transforms: RdmaTransforms,
    /// Whether clients may log on by passwords.
    pub ntlm: Ntlm,
}

impl Default for Smb {
    fn default() -> Self {
        Self {
            asked_for: false,
            port: 445,
            direct_port: 5445,
            signing: Signing::default(),
            encryption: Encryption::default(),
            rdma_transforms: RdmaTransforms::default(),
            ntlm: Ntlm::default(),
        }
    }
}

/// Whether the writes of an RDMA device may reach memory in any order before their completion (PCI Express: relaxed ordering).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelaxedOrdering {
    /// Where the device takes it.
    #[default]
    On,
    /// Never.
    Off,
}

words!(RelaxedOrdering, "is not a mode of relaxed ordering", "on" => On, "off" => Off);

/// Whether clients that sign or encrypt may have their data placed directly, signed or encrypted by itself (MS-SMB2 section
/// 2.2.43).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RdmaTransforms {
    /// For whoever can do that.
    #[default]
    On,
    /// Never: their data travels inside the messages.
    Off,
}

words!(RdmaTransforms, "is not a mode of RDMA transforms", "on" => On, "off" => Off);

/// Whether clients of SMB may log on by passwords (NTLM version 2), beside Kerberos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ntlm {
    /// They may.
    #[default]
    On,
    /// By tickets of Kerberos alone; no guests either.
    Off,
}

words!(Ntlm, "is not an NTLM mode", "on" => On, "off" => Off);

/// Whether SMB messages must be signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// By everybody with a password.
    #[default]
    Required,
    /// By whoever wants it.
    Offered,
}

words!(Signing, "is not a signing mode", "required" => Required, "offered" => Offered);

/// Whether SMB messages are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// Never.
    Off,
    /// For whoever wants it, and for shares that say `encrypt`.
    #[default]
    Offered,
    /// Always; clients that cannot are refused.
    Required,
}

words!(Encryption, "is not an encryption mode", "off" => Off, "offered" => Offered, "required" => Required);

/// An SMB user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name that clients type; the case of its letters does not matter.
    pub name: String,
    /// The file whose first line is the password; `None`: the password is in the database of the state folder.
    pub password_file: Option<PathBuf>,
    /// Who it is to the file system.
    pub identity: Identity,
}

/// Who an SMB user is to the file system. What is not said comes from the host's user of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: Option<u32>,
    /// Primary group.
    pub gid: Option<u32>,
    /// Further groups.
    pub groups: Option<Vec<u32>>,
}

/// A name that Windows can type (the characters are those that it refuses in account names).
pub fn user_name(text: &str) -> Result<String, String> {
    const FORBIDDEN: &str = "\"/\\[]:;|=,+*?<>@";
    if text.is_empty() {
        return Err("a user needs a name".into());
    }
    if text.chars().count() > 64 {
        return Err("a user name has at most 64 characters".into());
    }
    if let Some(c) = text.chars().find(|c| c.is_control() || FORBIDDEN.contains(*c)) {
        return Err(format!(
            "the user name {text:?} holds {c:?}, which Windows does not allow there"
        ));
    }
    if text.trim() != text || text.ends_with('.') {
        return Err(format!(
            "the user name {text:?} begins or ends with a space, or ends with a dot"
        ));
    }
    Ok(text.into())
}

/// Where the files of a share live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a folder of this host, by its absolute path.
    Folder(PathBuf),
    /// In memory, gone at exit.
    Memory,
    /// In a folder of CephFS.
    Ceph(Ceph),
    /// On other servers, to which clients are referred: one at least.
    Refer(Vec<Refer>),
}

impl Source {
    /// The folder, and whether the path says that it has one for each user.
    pub(crate) fn of_path(path: PathBuf) -> Result<(Self, bool), String> {
        let of_each = path.file_name().is_some_and(|name| name == USER);
        let above = path.parent().filter(|_| of_each).map(PathBuf::from);
        let folder = above.unwrap_or(path);
        if folder.to_string_lossy().contains(USER) {
            return Err(format!(
                "`{USER}` must be the whole last part of a path, as in `/home/{USER}`"
            ));
        }
        Ok((Self::Folder(folder), of_each))
    }

    /// The paths of a folder of this host: as it is configured, and without symbolic links where that differs.
    pub fn folders(&self) -> Vec<PathBuf> {
        let Self::Folder(folder) = self else { return Vec::new() };
        let mut paths = vec![folder.clone(), real_in_time(folder)];
        paths.dedup();
        paths
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::Memory => f.write_str("mem:"),
            Self::Ceph(ceph) => ceph.fmt(f),
            Self::Refer(targets) => f.write_str(&refer::listed(targets)),
        }
    }
}

/// Who must call from a port below 1024, by NFS over TCP and UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivilegedPorts {
    /// Callers from this host's own addresses.
    #[default]
    Local,
    /// Everybody.
    Required,
    /// Nobody.
    Off,
}

words!(PrivilegedPorts, "is not a mode of privileged ports", "local" => Local, "required" => Required, "off" => Off);

/// Whom byte-range locks of NFS clients bind. Among those clients they are advice, and they exclude locks of SMB clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NfsLocks {
    /// Reads and writes of SMB clients, too.
    #[default]
    Enforced,
    /// Nobody but those who ask for locks.
    Advisory,
}

/// When changes of names and attributes are on stable storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before they are answered: by NFS, and by SMB where the share is continuously available.
    #[default]
    Strict,
    /// When the host's file system writes them.
    Relaxed,
}

words!(Durability, "is not a durability mode", "strict" => Strict, "relaxed" => Relaxed);

words!(NfsLocks, "is not a mode of NFS locks", "enforced" => Enforced, "advisory" => Advisory);

/// The domain of NFSv4 names, as in `alice@example.org` (RFC 8881 section 5.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain(pub String);

impl FromStr for Domain {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let good = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if text.is_empty() || text.len() > 128 || !text.chars().all(good) {
            return Err(format!(
                "`{}` is not a domain; write at most 128 letters, digits, `.`, `-` and `_`, like `example.org`",
                text.escape_debug()
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose users and groups have names, beside the users of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// This host's.
    Host,
    /// Nobody else's.
    Own,
}

words!(Names, "is not a source of names", "host" => Host, "own" => Own);

/// How clients of NFS version 3 find MOUNT and the lock manager: they ask port 111 of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portmap {
    /// The host's rpcbind is told where there is one; where there is none and the gateway may have port 111, it answers itself.
    Auto,
    /// The host's rpcbind is told, if there is one.
    Register,
    /// The gateway answers on port 111 itself.
    Own,
    /// They do not: clients name the ports, and mount with `nolock`.
    Off,
}

words!(Portmap, "is not a portmap mode", "auto" => Auto, "register" => Register, "own" => Own, "off" => Off);

/// Which RDMA provider is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rdma {
    /// Hardware verbs where a device serves the address, else iWARP in user space.
    #[default]
    Auto,
    /// iWARP in user space.
    Iwarp,
    /// Hardware verbs only.
    Verbs,
    /// No RDMA.
    Off,
}

words!(Rdma, "is not an RDMA provider", "auto" => Auto, "iwarp" => Iwarp, "verbs" => Verbs, "off" => Off);

/// When an iWARP connection carries a CRC32C in every frame (RFC 5044 section 7.1). TCP's own checksum is always there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RdmaCrc {
    /// When the client asks. Hardware does; the kernel's software device does not, and pays for it with its CPU.
    #[default]
    Asked,
    /// Always.
    Always,
}

words!(RdmaCrc, "is not a CRC mode", "asked" => Asked, "always" => Always);

/// Where health, metrics and status are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admin {
    /// Nowhere.
    Off,
    /// At [`Admin::USUAL`], unless somebody else is there: files are served all the same.
    #[default]
    Usual,
    /// Here.
    At(SocketAddr),
}

impl Admin {
    /// On this host only, at the port that is told in the documentation.
    pub const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
}

impl FromStr for Admin {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().map(|at| Self::At(canonical(at))).map_err(|_| {
                format!("`{text}` is not an address with a port; write `127.0.0.1:9464`, or `off`")
            }),
        }
    }
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Usual => Self::USUAL.fmt(f),
            Self::At(at) => at.fmt(f),
        }
    }
}

/// IPv4 in IPv6's clothes is IPv4's: nobody shows it otherwise.
fn canonical(at: SocketAddr) -> SocketAddr {
    match at.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, at.port()),
        IpAddr::V6(_) => at,
    }
}

/// What the name of a share can be, in words.
const SHARE_NAMES: &str = "a name has 1 to 80 bytes, no space at its ends, no control character and none of \
                           / \\ : * ? \" < > | , =";

/// A name that NFS and SMB clients can both type.
pub(crate) fn share_name(text: &str) -> Result<String, String> {
    const FORBIDDEN: &[char] = &['/', '\\', ':', '*', '?', '"', '<', '>', '|', ',', '='];
    if text.is_empty() {
        return Err("a share needs a name".into());
    }
    if text.len() > 80 {
        return Err(format!("the share name has {} bytes; at most 80 are allowed", text.len()));
    }
    if text == "." || text == ".." || text.eq_ignore_ascii_case("IPC$") {
        return Err(format!("`{text}` cannot be the name of a share"));
    }
    if let Some(c) = text.chars().find(|c| c.is_control() || FORBIDDEN.contains(c)) {
        return Err(format!("the share name {text:?} holds {c:?}; {SHARE_NAMES}"));
    }
    if text.trim() != text {
        return Err(format!("the share name {text:?} begins or ends with a space"));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users() {
        for name in ["alice", "Größe", "a b", "x.y-z_1"] {
            assert!(user_name(name).is_ok(), "{name:?}");
        }
        for name in ["", " a", "a ", "a.", "a:b", "DOM\\a", "a@b", "a\n", &"x".repeat(65)] {
            assert!(user_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn names_of_shares() {
        assert!(share_name("data-1_x.y").is_ok());
        assert!(share_name("größe").is_ok());
        for name in ["", ".", "..", "a/b", "a\\b", "a\0", " a", "a\n", &"x".repeat(81)] {
            assert!(share_name(name).is_err(), "{name:?}");
        }
    }
}
