//! The complete, checked settings of the gateway.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use policy::{Cidr, Protocols, Rates, SnapshotPattern, Squash, words};

use crate::access::{Access, OnHost, Privileges, Who};
use crate::audit::{Audit, Audited};
use crate::ceph::Ceph;
use crate::client::Client;
use crate::export::Export;
use crate::fault::Fault;
use crate::kerberos::{DomainBy, Kerberos};
use crate::ldap::UsersFrom;
use crate::links::Links;
use crate::log::{LogFilter, LogFormat};
use crate::macos::{Model, TimeMachine};
use crate::paths::{USER, real_in_time};
use crate::rates::rates_text;
use crate::refer::{self, Refer};
use crate::rights::{Force, List, Masks, Symlinks};
use crate::sec::Secs;
use crate::tls::{ShareTls, Tls};
use crate::units::{Dscp, PasswordLength};
use crate::wastebasket::Wastebasket;

/// All settings of `serve`. Built by [`crate::load`], or directly in tests and in `demo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Shares in the order of the configuration; names and numbers are unique.
    pub shares: Vec<Share>,
    /// Addresses to listen on; empty: all IPv4 and IPv6 addresses.
    pub bind: Vec<IpAddr>,
    /// RDMA provider for `nfs_rdma_port`.
    pub rdma: Rdma,
    /// When iWARP connections carry a checksum in every frame.
    pub rdma_crc: RdmaCrc,
    /// Maximum time that a connection over an RDMA device polls for completions before it sleeps; `None`: depends on the number of
    /// processors.
    pub rdma_spin: Option<Duration>,
    /// Whether memory is registered at an RDMA device with relaxed ordering.
    pub rdma_relaxed_ordering: RelaxedOrdering,
    /// DSCP of the packets of data connections; `None`: the system's default.
    pub rdma_dscp: Option<Dscp>,
    /// Port of NFS and MOUNT over TCP; 0: any free port.
    pub nfs_port: u16,
    /// Port of NFS over RPC-over-RDMA; 0: any free port.
    pub nfs_rdma_port: u16,
    pub smb: Smb,
    /// TLS for NFS over TCP; `None`: no TLS.
    pub tls: Option<Tls>,
    /// Kerberos keys and names; `None`: clients log on only with passwords.
    pub kerberos: Option<Kerberos>,
    /// The service that maps identities of a domain. `None` outside a domain, or where only `kerberos` says how tickets are mapped.
    pub domain_by: Option<DomainBy>,
    /// Audit trail; `None`: no recording.
    pub audit: Option<Audit>,
    /// SMB users of the configuration, in addition to the database in the state folder.
    pub users: Vec<User>,
    /// A directory with further users and groups; `None`: there are no others.
    pub users_from: Option<UsersFrom>,
    /// Folder for state that must survive a restart.
    pub state: PathBuf,
    /// CephFS folder for the state that moves with a service; `None`: in `state`.
    pub records: Option<Ceph>,
    /// NFSv4 lease time.
    pub lease: Duration,
    /// Time after a restart in which clients may reclaim state; at least the lease time.
    pub grace: Duration,
    /// Time after its lease in which a silent NFSv4 client keeps its state unless another client needs it.
    pub courtesy: Duration,
    /// Time within which a client of any protocol must return a delegation, an oplock or a lease; then it is revoked.
    pub recall: Duration,
    /// How clients of NFS version 3 find MOUNT and the lock manager.
    pub portmap: Portmap,
    /// NFSv4 domain of user and group names; `None`: users and groups are numbers.
    pub domain: Option<Domain>,
    /// The source of user and group names.
    pub names: Names,
    /// SMB users and groups with privileges.
    pub privileges: Privileges,
    /// The name service's answers for the users and groups that shares and privileges name; `None`: no such name.
    pub on_host: BTreeMap<Who, Option<OnHost>>,
    /// Payload memory in bytes, for all connections.
    pub memory: u64,
    /// Maximum number of connections; further ones are closed at once.
    pub connections: usize,
    /// Limits per client.
    pub limits: Limits,
    /// Address of health, metrics and status.
    pub admin: Admin,
    /// Addresses that may read metrics and status, in addition to root and the gateway's user on this host.
    pub admin_clients: Vec<Cidr>,
    /// Callers that must use a source port below 1024, for NFS over TCP and UDP.
    pub privileged_ports: PrivilegedPorts,
    /// Whether the gateway is announced on the networks that it serves. Without a configuration: no.
    pub discovery: Discovery,
    /// Time that requests in progress get to finish after a stop request.
    pub drain: Duration,
    /// Selects the lines of the log.
    pub log: LogFilter,
    /// Format of the log lines.
    pub log_format: LogFormat,
    /// Findings that are valid but may be mistakes.
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
            rdma_dscp: None,
            nfs_port: 2049,
            nfs_rdma_port: 20049,
            smb: Smb::default(),
            tls: None,
            kerberos: None,
            domain_by: None,
            audit: None,
            users: Vec::new(),
            users_from: None,
            state: PathBuf::from("/var/lib/headgate"),
            records: None,
            lease: Duration::from_secs(90),
            grace: Duration::from_secs(90),
            courtesy: Duration::from_secs(24 * 3600),
            recall: Duration::from_secs(35),
            portmap: Portmap::Off,
            domain: None,
            names: Names::Host,
            privileges: Privileges::default(),
            on_host: BTreeMap::new(),
            memory: 256 << 20,
            connections: 2048,
            limits: Limits::default(),
            admin: Admin::Off,
            admin_clients: Vec::new(),
            privileged_ports: PrivilegedPorts::default(),
            discovery: Discovery::Off,
            // Shorter than the ten seconds after which `docker stop` kills.
            drain: Duration::from_secs(8),
            log: LogFilter::default(),
            log_format: LogFormat::default(),
            warnings: Vec::new(),
        }
    }
}

impl Settings {
    /// Checks whether any share is served over NFS.
    pub fn by_nfs(&self) -> bool {
        self.shares.iter().any(|s| s.protocols.nfs())
    }

    /// Describes all rates in one line; `none` without any.
    pub fn rates(&self) -> String {
        let (all, client) = ("all".to_owned(), "each client".to_owned());
        let of_all = [(all, self.limits.all), (client, self.limits.client)].into_iter();
        let of_shares = self.shares.iter().map(|s| (format!("share {}", s.name), s.limits));
        let of_users = self.users.iter().map(|u| (format!("user {}", u.name), u.limits));
        let rates = of_all.chain(of_shares).chain(of_users).filter(|(_, rates)| !rates.is_empty());
        let told: Vec<String> =
            rates.map(|(whose, rates)| format!("{whose}: {}", rates_text(&rates))).collect();
        if told.is_empty() { "none".into() } else { told.join("; ") }
    }

    /// Returns the shares that are served over SMB.
    pub fn by_smb(&self) -> impl Iterator<Item = &Share> {
        self.shares.iter().filter(|s| s.protocols.smb())
    }
}

/// A folder that is served under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Clients see `/NAME`.
    pub name: String,
    /// Where the files are stored.
    pub source: Source,
    /// The path ends in `{user}`: `source` has a folder for each SMB user, who sees only that folder.
    pub homes: bool,
    pub protocols: Protocols,
    pub read_only: bool,
    /// Also serve file systems mounted inside the folder.
    pub cross: bool,
    /// The users that are mapped to the anonymous user.
    pub squash: Squash,
    /// RPC security flavors for NFS clients.
    pub sec: Secs,
    /// The operations for which NFS locks are binding.
    pub nfs_locks: NfsLocks,
    /// When changes of names and attributes reach stable storage.
    pub durability: Durability,
    /// Allowed clients and their settings; `None`: directly attached networks and this host.
    pub clients: Option<Vec<Client>>,
    /// Omit from lists of shares.
    pub hidden: bool,
    /// Path that NFS clients mount; `None`: `/NAME`.
    pub export: Option<Export>,
    /// Users and groups with access; `None`: everyone.
    pub access: Option<Access>,
    /// Recorded file operations.
    pub audit: Vec<Audited>,
    /// Identity under which operations run.
    pub force: Force,
    /// Limits of the modes of new files and folders.
    pub masks: Masks,
    /// How removed and replaced files are kept; `None`: not at all.
    pub wastebasket: Option<Wastebasket>,
    /// SMB: offers the share to macOS for backups.
    pub time_machine: Option<TimeMachine>,
    /// The entries that folder listings show.
    pub list: List,
    /// SMB: whether gateway or client follows symbolic links.
    pub symlinks: Symlinks,
    /// Folders that are on other servers.
    pub links: Links,
    /// The folders of the host that are its snapshots.
    pub snapshots: Option<SnapshotPattern>,
    /// Bytes that its folder may hold, by the quota of the folder's project on the host.
    pub size: Option<u64>,
    /// Bytes and operations of its clients in each second.
    pub limits: Rates,
    /// SMB: refuse unencrypted access.
    pub encrypt: bool,
    /// SMB: asks clients to compress.
    pub compress: bool,
    /// NFS: the required protection.
    pub tls: ShareTls,
    /// SMB: clients without an account may connect as the anonymous user.
    pub guest: bool,
    /// SMB: handles should survive a restart of the gateway; at present they survive only a lost connection.
    pub continuous_availability: bool,
    /// SMB: description that browsers show next to the name.
    pub comment: String,
}

impl Share {
    /// Builds a share with default values for all other settings.
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
            wastebasket: None,
            time_machine: None,
            list: List::default(),
            symlinks: Symlinks::default(),
            links: Links::default(),
            snapshots: None,
            size: None,
            limits: Rates::default(),
            encrypt: false,
            compress: false,
            tls: ShareTls::default(),
            guest: false,
            continuous_availability: false,
            comment: String::new(),
        }
    }

    /// Returns the location of the files as written in the configuration.
    pub fn files(&self) -> String {
        let source = &self.source;
        if self.homes { format!("{source}/{USER}") } else { source.to_string() }
    }

    /// Returns the servers of a referred share; empty if it is served here.
    pub fn refers_to(&self) -> &[Refer] {
        match &self.source {
            Source::Refer(targets) => targets,
            _ => &[],
        }
    }

    /// Returns the path that NFS clients mount, without the first slash.
    pub fn nfs_path(&self) -> &str {
        self.export.as_ref().map_or(&self.name, Export::path)
    }

    /// Returns the weakest squash of any NFS client. A client with `anonuid: 0` counts as not squashed, since its callers become
    /// root.
    pub fn weakest_squash(&self) -> Squash {
        let of = |client: &Client| match client.anonuid {
            Some(0) => Squash::None,
            _ => client.squash.unwrap_or(self.squash),
        };
        let all = self.clients.iter().flatten().filter(|c| c.protocols.nfs()).map(of);
        all.min_by_key(|squash| *squash as u8).unwrap_or(self.squash)
    }
}

/// Limits per client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections from one address; `None`: three quarters of all.
    pub client_connections: Option<usize>,
    /// Payload memory of all connections of one address, in bytes; `None`: three quarters of all.
    pub client_memory: Option<u64>,
    /// Open files of one SMB session or one NFSv4 client.
    pub client_opens: usize,
    /// NFSv4 clients in total; one address may have an eighth of them.
    pub nfs_clients: usize,
    /// Time within which a new connection must log on or send its first request.
    pub introduction: Duration,
    /// Bytes and operations of all clients together in each second.
    pub all: Rates,
    /// Bytes and operations of each client address in each second.
    pub client: Rates,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            client_connections: None,
            client_memory: None,
            client_opens: 65_536,
            nfs_clients: 16_384,
            introduction: Duration::from_secs(45),
            all: Rates::default(),
            client: Rates::default(),
        }
    }
}

/// The settings of SMB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smb {
    /// A port was configured, so SMB is served even if no user can log on yet.
    pub asked_for: bool,
    /// Port of SMB over TCP; 0: any free port.
    pub port: u16,
    /// Port of SMB Direct; 0: any free port.
    pub direct_port: u16,
    pub signing: Signing,
    pub encryption: Encryption,
    /// Whether data that is placed through RDMA is signed or encrypted separately.
    pub rdma_transforms: RdmaTransforms,
    /// The clients that get directory leases.
    pub directory_leases: DirectoryLeases,
    /// Whether messages may be compressed.
    pub compression: Compression,
    /// Whether clients may log on with passwords.
    pub ntlm: Ntlm,
    pub password_length: PasswordLength,
    /// The model that the gateway shows itself as to macOS.
    pub model: Model,
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
            directory_leases: DirectoryLeases::default(),
            compression: Compression::default(),
            ntlm: Ntlm::default(),
            password_length: PasswordLength::default(),
            model: Model::default(),
        }
    }
}

/// Whether the gateway is announced on the networks that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// Announces the gateway by mDNS, LLMNR and WS-Discovery.
    On,
    Off,
}

words!(Discovery, "is not a mode of discovery", "on" => On, "off" => Off);

/// Whether an RDMA device's writes may reach memory in any order before their completion (PCI Express relaxed ordering).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelaxedOrdering {
    /// If the device supports it.
    #[default]
    On,
    Off,
}

words!(RelaxedOrdering, "is not a mode of relaxed ordering", "on" => On, "off" => Off);

/// Whether clients that sign or encrypt may place data directly through RDMA, signed or encrypted separately (MS-SMB2 section
/// 2.2.43).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RdmaTransforms {
    /// Used by clients that support it.
    #[default]
    On,
    /// Never: such clients send data inside messages.
    Off,
}

words!(RdmaTransforms, "is not a mode of RDMA transforms", "on" => On, "off" => Off);

/// Whether SMB messages may be compressed (MS-SMB2 section 2.2.42).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Compresses for clients that ask for it.
    #[default]
    On,
    /// Never.
    Off,
}

words!(Compression, "is not a mode of compression", "on" => On, "off" => Off);

/// Whether SMB clients may log on with passwords (NTLM version 2) in addition to Kerberos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ntlm {
    /// Allowed.
    #[default]
    On,
    /// Only Kerberos tickets; guests are refused too.
    Off,
}

words!(Ntlm, "is not an NTLM mode", "on" => On, "off" => Off);

/// The SMB clients that may cache the listings of folders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectoryLeases {
    /// All but those that negotiate the POSIX extensions: Linux shows old listings.
    #[default]
    On,
    /// None.
    Off,
}

words!(DirectoryLeases, "is not a mode of directory leases", "on" => On, "off" => Off);

/// Whether SMB messages must be signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// Required of all users with a password.
    #[default]
    Required,
    /// If the client requests it.
    Offered,
}

words!(Signing, "is not a signing mode", "required" => Required, "offered" => Offered);

/// Whether SMB messages are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    Off,
    /// If the client requests it, and for shares with `encrypt`.
    #[default]
    Offered,
    /// Always; other clients are refused.
    Required,
}

words!(Encryption, "is not an encryption mode", "off" => Off, "offered" => Offered, "required" => Required);

/// An SMB user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name that clients type; case is ignored.
    pub name: String,
    /// File whose first line is the password; `None`: the password is in the database of the state folder.
    pub password_file: Option<PathBuf>,
    /// Identity in the file system.
    pub identity: Identity,
    /// Its bytes and operations in each second, over all protocols and shares.
    pub limits: Rates,
}

/// The identity of an SMB user in the file system. Missing values come from the host's user of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Option<Vec<u32>>,
}

/// Checks that Windows accepts the user name (Windows forbids these characters in account names).
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

/// Where the files of a share are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder of this host, by absolute path.
    Folder(PathBuf),
    /// Memory; lost at exit.
    Memory,
    /// A folder of CephFS.
    Ceph(Ceph),
    /// Other servers, to which clients are referred; at least one.
    Refer(Vec<Refer>),
}

impl Source {
    /// Splits a path into the folder and whether it has a folder for each user.
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

    /// Returns the paths of a folder of this host: as configured and, if different, with symbolic links resolved.
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

/// Callers that must use a source port below 1024, for NFS over TCP and UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivilegedPorts {
    /// Callers from this host's own addresses.
    #[default]
    Local,
    /// All callers.
    Required,
    /// No caller.
    Off,
}

words!(PrivilegedPorts, "is not a mode of privileged ports", "local" => Local, "required" => Required, "off" => Off);

/// The operations for which NFS byte-range locks are binding. Among NFS clients they are always advisory; they conflict with SMB
/// locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NfsLocks {
    /// Lock requests, and reads and writes of SMB clients.
    #[default]
    Enforced,
    /// Lock requests only.
    Advisory,
}

/// When changes of names and attributes reach stable storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before the reply: for NFS, and for SMB if the share is continuously available.
    #[default]
    Strict,
    /// When the host's file system writes them.
    Relaxed,
}

words!(Durability, "is not a durability mode", "strict" => Strict, "relaxed" => Relaxed);

words!(NfsLocks, "is not a mode of NFS locks", "enforced" => Enforced, "advisory" => Advisory);

/// The NFSv4 domain of user and group names, as in `alice@example.org` (RFC 8881 section 5.9).
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

/// The source of user and group names, in addition to the users of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// The name service of this host.
    Host,
    /// No further source.
    Own,
}

words!(Names, "is not a source of names", "host" => Host, "own" => Own);

/// How clients of NFS version 3 find MOUNT and the lock manager: they query port 111 of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portmap {
    /// Registers with the host's rpcbind if it runs; otherwise answers on port 111 if the gateway may bind it.
    Auto,
    /// Registers with the host's rpcbind if it runs.
    Register,
    /// The gateway answers on port 111 itself.
    Own,
    /// Not at all: clients must name the ports and mount with `nolock`.
    Off,
}

words!(Portmap, "is not a portmap mode", "auto" => Auto, "register" => Register, "own" => Own, "off" => Off);

/// The RDMA provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rdma {
    /// Hardware verbs if a device serves the address, otherwise iWARP in user space.
    #[default]
    Auto,
    Iwarp,
    Verbs,
    /// No RDMA.
    Off,
}

words!(Rdma, "is not an RDMA provider", "auto" => Auto, "iwarp" => Iwarp, "verbs" => Verbs, "off" => Off);

/// When an iWARP connection carries a CRC32C in every frame (RFC 5044 section 7.1). The checksum of TCP always applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RdmaCrc {
    /// If the client requests it. Hardware clients do; the kernel's software device does not, since it computes the CRC on the CPU.
    #[default]
    Asked,
    Always,
}

words!(RdmaCrc, "is not a CRC mode", "asked" => Asked, "always" => Always);

/// The address of health, metrics and status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admin {
    Off,
    /// At [`Admin::USUAL`]. If that address is in use, files are served without an admin address.
    #[default]
    Usual,
    /// At this address.
    At(SocketAddr),
}

impl Admin {
    /// Reachable only from this host, at the documented port.
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

/// Converts IPv4-mapped IPv6 addresses to IPv4, which is how other tools show them.
fn canonical(at: SocketAddr) -> SocketAddr {
    match at.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, at.port()),
        IpAddr::V6(_) => at,
    }
}

/// Describes valid share names, for messages.
const SHARE_NAMES: &str = "a name has 1 to 80 bytes, no space at its ends, no control character and none of \
                           / \\ : * ? \" < > | , =";

/// Checks that NFS and SMB clients can both type the share name.
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
    fn user_names_follow_windows_rules() {
        for name in ["alice", "Größe", "a b", "x.y-z_1"] {
            assert!(user_name(name).is_ok(), "{name:?}");
        }
        for name in ["", " a", "a ", "a.", "a:b", "DOM\\a", "a@b", "a\n", &"x".repeat(65)] {
            assert!(user_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn share_names_suit_both_protocols() {
        assert!(share_name("data-1_x.y").is_ok());
        assert!(share_name("größe").is_ok());
        for name in ["", ".", "..", "a/b", "a\\b", "a\0", " a", "a\n", &"x".repeat(81)] {
            assert!(share_name(name).is_err(), "{name:?}");
        }
    }
}
