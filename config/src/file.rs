//! Converts a tree of YAML nodes to values: the known keys and the type of each.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use policy::{Cidr, Flavor, Protocols, Rates, SnapshotPattern, Squash};

use crate::access::{Access, Privileges, Who};
use crate::addresses;
use crate::audit::{AuditTo, Audited, DraftAudit};
use crate::ceph::{self, Ceph};
use crate::client::{Client, Whom};
use crate::export::Export;
use crate::kerberos::{DomainBy, DraftKerberos, HostName};
use crate::keys::{
    ACCESS, AUDIT, CEPH, CLIENT, DOMAIN, FORCE, KERBEROS, LIMITS, LOG, MASKS, NFS, PRIVILEGES,
    RDMA, SHARE, SMB, TLS, TOP, USER, USERS_FROM,
};
use crate::ldap::{Dn, DraftUsersFrom, Filter, LdapServer};
use crate::links::Links;
use crate::log::{LogFilter, LogFormat};
use crate::macos::{Model, time_machine};
use crate::rates::{rates_in, rates_of};
use crate::reader::{
    Absolute, Flag, Group, Origin, Report, Secret, Set, Text, groups, parse, parse_list, shown,
};
use crate::rights::{self, Force, List, Masks, Mode, Symlinks};
use crate::sec::Secs;
use crate::settings::{
    Admin, Compression, DirectoryLeases, Discovery, Domain, Durability, Encryption, Identity,
    Names, NfsLocks, Ntlm, Portmap, PrivilegedPorts, Rdma, RdmaCrc, RdmaTransforms,
    RelaxedOrdering, Share, Signing, Source, User, share_name, user_name,
};
use crate::targets::{links, targets};
use crate::tls::{DraftTls, ShareTls};
use crate::tree::{Node, Value};
use crate::units::{Dscp, PasswordLength, Port, Size, Span, Spin};
use crate::wastebasket::wastebasket;

/// A share and the positions of its settings.
#[derive(Clone, Debug)]
pub(crate) struct DraftShare {
    pub(crate) share: Share,
    pub(crate) name_at: Origin,
    pub(crate) source_at: Origin,
    /// Position of `export`, if set.
    pub(crate) export_at: Option<Origin>,
    /// Position of `tls`, if set.
    pub(crate) tls_at: Option<Origin>,
    /// Position of `sec`, if set.
    pub(crate) sec_at: Option<Origin>,
    /// Position of `audit`, if set.
    pub(crate) audit_at: Option<Origin>,
    /// The users and groups that `access` names.
    pub(crate) principals: Vec<Set<Who>>,
}

impl DraftShare {
    /// Builds a draft whose settings all have the same position.
    pub(crate) fn of(share: Share, at: Origin) -> Self {
        Self {
            share,
            name_at: at,
            source_at: at,
            export_at: None,
            tls_at: None,
            sec_at: None,
            audit_at: None,
            principals: Vec::new(),
        }
    }
}

/// A user and the positions of its settings.
#[derive(Clone, Debug)]
pub(crate) struct DraftUser {
    pub(crate) user: User,
    pub(crate) name_at: Origin,
    pub(crate) file_at: Origin,
}

/// The settings of file and options, before the rules that combine several values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) shares: Vec<DraftShare>,
    pub(crate) bind: Vec<Set<IpAddr>>,
    pub(crate) rdma: Option<Set<Rdma>>,
    pub(crate) rdma_crc: Option<Set<RdmaCrc>>,
    pub(crate) rdma_spin: Option<Set<Spin>>,
    pub(crate) relaxed_ordering: Option<Set<RelaxedOrdering>>,
    pub(crate) dscp: Option<Set<Dscp>>,
    pub(crate) nfs_port: Option<Set<Port>>,
    pub(crate) nfs_rdma_port: Option<Set<Port>>,
    pub(crate) users: Vec<DraftUser>,
    pub(crate) users_from: DraftUsersFrom,
    pub(crate) smb_port: Option<Set<Port>>,
    pub(crate) smb_direct_port: Option<Set<Port>>,
    pub(crate) signing: Option<Set<Signing>>,
    pub(crate) encryption: Option<Set<Encryption>>,
    pub(crate) rdma_transforms: Option<Set<RdmaTransforms>>,
    pub(crate) directory_leases: Option<Set<DirectoryLeases>>,
    pub(crate) compression: Option<Set<Compression>>,
    pub(crate) tls: DraftTls,
    pub(crate) ntlm: Option<Set<Ntlm>>,
    pub(crate) password_length: Option<Set<PasswordLength>>,
    pub(crate) model: Option<Set<Model>>,
    pub(crate) kerberos: DraftKerberos,
    pub(crate) domain_by: Option<Set<DomainBy>>,
    pub(crate) audit: DraftAudit,
    pub(crate) privileges: Privileges,
    /// The users and groups that `privileges` names.
    pub(crate) privileged: Vec<Set<Who>>,
    pub(crate) state: Option<Set<PathBuf>>,
    pub(crate) records: Option<Set<String>>,
    pub(crate) lease: Option<Set<Span>>,
    pub(crate) grace: Option<Set<Span>>,
    pub(crate) courtesy: Option<Set<Span>>,
    pub(crate) recall: Option<Set<Span>>,
    pub(crate) portmap: Option<Set<Portmap>>,
    pub(crate) domain: Option<Set<Domain>>,
    pub(crate) names: Option<Set<Names>>,
    pub(crate) memory: Option<Set<Size>>,
    pub(crate) connections: Option<Set<usize>>,
    pub(crate) client_connections: Option<Set<usize>>,
    pub(crate) client_memory: Option<Set<Size>>,
    pub(crate) client_opens: Option<Set<usize>>,
    pub(crate) nfs_clients: Option<Set<usize>>,
    pub(crate) introduction: Option<Set<Span>>,
    pub(crate) rates: Rates,
    pub(crate) client_rates: Rates,
    pub(crate) admin: Option<Set<Admin>>,
    pub(crate) admin_clients: Vec<Set<Cidr>>,
    /// `admin.clients` was set, possibly to an empty list.
    pub(crate) admin_clients_said: bool,
    pub(crate) privileged_ports: Option<Set<PrivilegedPorts>>,
    pub(crate) discovery: Option<Set<Discovery>>,
    pub(crate) drain: Option<Set<Span>>,
    pub(crate) log: Option<Set<LogFilter>>,
    pub(crate) log_format: Option<Set<LogFormat>>,
}

struct Comment(String);
impl FromStr for Comment {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.chars().count() > 255 || text.chars().any(char::is_control) {
            return Err("a comment is one line of at most 255 characters".into());
        }
        Ok(Self(text.into()))
    }
}

struct Address(IpAddr);
impl FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        addresses::address(text).map(Self)
    }
}

struct Number(usize);
impl FromStr for Number {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("`{}` is not a whole number", shown(text)))
    }
}

struct Id(u32);
impl FromStr for Id {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        rights::id(text).map(Self)
    }
}

/// The source of a share, and whether the source has a folder for each user.
struct SourcePath((Source, bool));
impl FromStr for SourcePath {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Source::of_path(text.parse::<Absolute>()?.0).map(Self)
    }
}

fn map<T, U>(set: Option<Set<T>>, f: impl FnOnce(T) -> U) -> Option<Set<U>> {
    set.map(|s| Set { value: f(s.value), origin: s.origin })
}

/// Reads the values of the document.
pub(crate) fn draft(root: &Node, report: &mut Report) -> Draft {
    let mut draft = Draft::default();
    // An empty file is allowed: all settings may come from options.
    if matches!(root.value, Value::Null) {
        return draft;
    }
    let Some(top) = Group::read(root, "the configuration", &TOP, report) else { return draft };
    draft.shares = groups(&top, "shares", "share", share, report);
    draft.users = groups(&top, "users", "user", user, report);
    draft.users_from = top.get("users_from").map(|n| users_from(n, report)).unwrap_or_default();
    if let Some(node) = top.get("bind") {
        draft.bind = parse_list::<Address>(node, report)
            .into_iter()
            .map(|s| Set { value: s.value.0, origin: s.origin })
            .collect();
    }
    rdma(&top, &mut draft, report);
    draft.rdma_crc = top.parse("rdma_crc", report);
    draft.rdma_spin = top.parse("rdma_spin", report);
    draft.state = map(top.parse("state", report), |p: Absolute| p.0);
    draft.records = map(top.parse("records", report), |name: Text| name.0);
    draft.recall = top.parse("recall", report);
    draft.memory = top.parse("memory", report);
    draft.admin = top.parse("admin", report);
    if let Some(node) = top.get("admin_clients") {
        draft.admin_clients = parse_list::<Cidr>(node, report);
        draft.admin_clients_said = true;
    }
    draft.privileged_ports = top.parse("privileged_ports", report);
    draft.discovery = top.parse("discovery", report);
    draft.drain = top.parse("drain", report);
    draft.names = top.parse("names", report);
    if let Some(node) = top.get("log")
        && let Some(log) = Group::read(node, "`log`", &LOG, report)
    {
        draft.log = log.parse("level", report);
        draft.log_format = log.parse("format", report);
    }
    draft.connections = map(top.parse("connections", report), |n: Number| n.0);
    if let Some(node) = top.get("limits")
        && let Some(limits) = Group::read(node, "`limits`", &LIMITS, report)
    {
        draft.client_connections = map(limits.parse("client_connections", report), |n: Number| n.0);
        draft.client_memory = limits.parse("client_memory", report);
        draft.client_opens = map(limits.parse("client_opens", report), |n: Number| n.0);
        draft.nfs_clients = map(limits.parse("nfs_clients", report), |n: Number| n.0);
        draft.introduction = limits.parse("introduction", report);
        draft.rates = rates_of(&limits, report);
        let client = limits.get("client").and_then(|node| rates_in(node, "each client", report));
        draft.client_rates = client.unwrap_or_default();
    }
    if let Some(node) = top.get("nfs")
        && let Some(nfs) = Group::read(node, "`nfs`", &NFS, report)
    {
        draft.nfs_port = nfs.parse("port", report);
        draft.nfs_rdma_port = nfs.parse("rdma_port", report);
        draft.lease = nfs.parse("lease", report);
        draft.grace = nfs.parse("grace", report);
        draft.courtesy = nfs.parse("courtesy", report);
        draft.portmap = nfs.parse("portmap", report);
        draft.domain = nfs.parse("domain", report);
    }
    smb(&top, &mut draft, report);
    draft.kerberos = top.get("kerberos").map(|node| kerberos(node, report)).unwrap_or_default();
    draft.domain_by = domain_by(&top, report);
    draft.tls = top.get("tls").map_or_else(DraftTls::default, |node| tls(node, report));
    if let Some(node) = top.get("audit") {
        draft.audit = audit(node, report);
    }
    (draft.privileges, draft.privileged) = privileges(&top, report);
    draft
}

/// Parses `rdma`, a word or a group.
fn rdma(top: &Group<'_>, draft: &mut Draft, report: &mut Report) {
    match top.get("rdma") {
        Some(node) if matches!(node.value, Value::Map(_)) => {
            let Some(group) = Group::read(node, "`rdma`", &RDMA, report) else { return };
            draft.rdma = group.parse("by", report);
            draft.relaxed_ordering = group.parse("relaxed_ordering", report);
            draft.dscp = group.parse("dscp", report);
        }
        _ => draft.rdma = top.parse("rdma", report),
    }
}

fn tls(node: &Node, report: &mut Report) -> DraftTls {
    let Some(group) = Group::read(node, "`tls`", &TLS, report) else {
        return DraftTls::default();
    };
    let mut path = |key| map(group.parse(key, report), |p: Secret| p.0);
    DraftTls {
        certificate: path("certificate"),
        key: path("key"),
        ca: path("ca"),
        admin_ca: path("admin_ca"),
        admin_token: path("admin_token"),
    }
}

fn audit(node: &Node, report: &mut Report) -> DraftAudit {
    let Some(group) = Group::read(node, "`audit`", &AUDIT, report) else {
        return DraftAudit::default();
    };
    let said = group.get("to").is_some() || !group.all_known;
    DraftAudit {
        at: (!said).then_some(Origin::Node(node.number)),
        to: group.parse::<AuditTo>("to", report),
        required: map(group.parse("required", report), |f: Flag| f.0),
    }
}

/// Parses the recorded operations of a share without duplicates, and returns their position.
fn audited(group: &Group<'_>, report: &mut Report) -> (Vec<Audited>, Option<Origin>) {
    let Some(node) = group.get("audit") else { return (Vec::new(), None) };
    let mut audited = Vec::new();
    for said in parse_list::<Audited>(node, report) {
        if !audited.contains(&said.value) {
            audited.push(said.value);
        }
    }
    (audited, Some(Origin::Node(node.number)))
}

fn domain_by(top: &Group<'_>, report: &mut Report) -> Option<Set<DomainBy>> {
    Group::read(top.get("domain")?, "`domain`", &DOMAIN, report)?.parse("by", report)
}

fn kerberos(node: &Node, report: &mut Report) -> DraftKerberos {
    let Some(group) = Group::read(node, "`kerberos`", &KERBEROS, report) else {
        return DraftKerberos::default();
    };
    // If a key is misspelt or has a wrong value, the missing key is probably that one, so do not report it as well.
    let said = group.get("keytab").is_some() || !group.all_known;
    DraftKerberos {
        at: (!said).then_some(Origin::Node(node.number)),
        keytab: map(group.parse("keytab", report), |p: Secret| p.0),
        realm: group.parse("realm", report),
        names: group.get("names").map(|n| parse_list::<HostName>(n, report)).unwrap_or_default(),
        map: group.parse("map", report),
        rid_base: map(group.parse("rid_base", report), |n: Id| n.0),
    }
}

fn users_from(node: &Node, report: &mut Report) -> DraftUsersFrom {
    let Some(group) = Group::read(node, "`users_from`", &USERS_FROM, report) else {
        return DraftUsersFrom::default();
    };
    let mut dn = |key| map(group.parse(key, report), |dn: Dn| dn.0);
    let (base, bind_dn) = (dn("base"), dn("bind_dn"));
    let servers = group.get("ldap");
    DraftUsersFrom {
        at: Some(Origin::Node(node.number)),
        all_known: group.all_known,
        ldap: servers.map(|n| parse_list::<LdapServer>(n, report)).unwrap_or_default(),
        ldap_said: servers.is_some(),
        base,
        bind_dn,
        bind_password_file: map(group.parse("bind_password_file", report), |p: Secret| p.0),
        ca: map(group.parse("ca", report), |p: Absolute| p.0),
        filter: map(group.parse("filter", report), |filter: Filter| filter.0),
        keep: group.parse("keep", report),
    }
}

fn user(node: &Node, report: &mut Report) -> Option<DraftUser> {
    let group = Group::read(node, "a user", &USER, report)?;
    if group.get("name").is_none() && group.all_known {
        let help = "add `name: NAME`, as clients type it";
        report.add_help(Origin::Node(group.node.number), "this user has no name", help);
    }
    let name = group.parse::<Text>("name", report)?;
    let checked = match user_name(&name.value.0) {
        Ok(name) => name,
        Err(what) => {
            report.add(name.origin, what);
            return None;
        }
    };
    let file: Option<Set<Secret>> = group.parse("password_file", report);
    let file_at = file.as_ref().map_or(Origin::Nowhere, |f| f.origin);
    let mut id = |key| group.parse::<Id>(key, report).map(|n| n.value.0);
    let (uid, gid) = (id("uid"), id("gid"));
    let groups = group
        .get("groups")
        .map(|n| parse_list::<Id>(n, report).into_iter().map(|n| n.value.0).collect());
    let user = User {
        name: checked,
        password_file: file.map(|f| f.value.0),
        identity: Identity { uid, gid, groups },
        limits: limits(&group, "a user", report),
    };
    Some(DraftUser { user, name_at: name.origin, file_at })
}

/// Parses the rates of a share or user.
fn limits(group: &Group<'_>, whose: &str, report: &mut Report) -> Rates {
    group.get("limits").and_then(|node| rates_in(node, whose, report)).unwrap_or_default()
}

/// Parses `sec` and returns its position.
fn sec(group: &Group<'_>, report: &mut Report) -> (Secs, Option<Origin>) {
    let Some(node) = group.get("sec") else { return (Secs::default(), None) };
    let at = Origin::Node(node.number);
    let said = parse_list::<Flavor>(node, report);
    if matches!(&node.value, Value::List(list) if list.is_empty()) {
        let what = "no client of NFS may use this share: the list of flavors is empty";
        report.add_help(at, what, "name one, as in `sec: krb5p`, or remove `sec` to allow `sys`");
    }
    let secs = Secs::of(said.into_iter().map(|sec| sec.value).collect());
    (secs.unwrap_or_default(), Some(at))
}

fn share(node: &Node, report: &mut Report) -> Option<DraftShare> {
    let group = Group::read(node, "a share", &SHARE, report)?;
    let name = name(&group, report);
    let source = source(&group, report);
    let mut flag = |key| group.parse::<Flag>(key, report).is_some_and(|f| f.value.0);
    let (read_only, encrypt, guest) = (flag("read_only"), flag("encrypt"), flag("guest"));
    let (continuous_availability, hidden) = (flag("continuous_availability"), flag("hidden"));
    let compress = flag("compress");
    let cross = group.parse::<Flag>("cross", report).is_none_or(|f| f.value.0);
    let comment = group.parse::<Comment>("comment", report).map_or(String::new(), |c| c.value.0);
    let protocols =
        group.parse::<Protocols>("protocols", report).map_or(Protocols::Both, |p| p.value);
    let squash = group.parse::<Squash>("squash", report).map_or(Squash::default(), |s| s.value);
    let (sec, sec_at) = sec(&group, report);
    let (audit, audit_at) = audited(&group, report);
    let nfs_locks =
        group.parse::<NfsLocks>("nfs_locks", report).map_or(NfsLocks::default(), |l| l.value);
    let durability =
        group.parse::<Durability>("durability", report).map_or(Durability::default(), |d| d.value);
    let tls = group.parse::<ShareTls>("tls", report);
    let tls_at = tls.as_ref().map(|t| t.origin);
    let export = group.parse::<Export>("export", report);
    let export_at = export.as_ref().map(|e| e.origin);
    let clients = group.get("clients").map(|n| clients_of_share(n, report));
    let (access, mut principals) = access(&group, report);
    let (force, masks) = (force(&group, &mut principals, report), masks(&group, report));
    let list = group.parse::<List>("list", report).map_or(List::default(), |l| l.value);
    let symlinks =
        group.parse::<Symlinks>("symlinks", report).map_or(Symlinks::default(), |l| l.value);
    let wastebasket = wastebasket(&group, report);
    let time_machine = time_machine(&group, report);
    let links = group.get("links").map_or(Links::default(), |node| links(node, report));
    let snapshots = group.parse::<SnapshotPattern>("snapshots", report);
    let size = group.parse::<Size>("size", report);
    let limits = limits(&group, "a share", report);
    let (name, source) = (name?, source?);
    let (source, source_at) = (source.value, source.origin);
    Some(DraftShare {
        share: Share {
            name: name.value,
            source: source.0,
            homes: source.1,
            protocols,
            read_only,
            cross,
            squash,
            sec,
            nfs_locks,
            durability,
            clients,
            hidden,
            export: export.map(|e| e.value),
            access,
            audit,
            force,
            masks,
            wastebasket,
            time_machine,
            list,
            symlinks,
            links,
            snapshots: snapshots.map(|s| s.value),
            size: size.map(|s| s.value.0),
            limits,
            encrypt,
            compress,
            tls: tls.map_or(ShareTls::default(), |t| t.value),
            guest,
            continuous_availability,
            comment,
        },
        name_at: name.origin,
        source_at,
        export_at,
        tls_at,
        sec_at,
        audit_at,
        principals,
    })
}

/// Parses the settings of SMB.
fn smb(top: &Group<'_>, draft: &mut Draft, report: &mut Report) {
    if let Some(node) = top.get("smb")
        && let Some(smb) = Group::read(node, "`smb`", &SMB, report)
    {
        draft.smb_port = smb.parse("port", report);
        draft.smb_direct_port = smb.parse("direct_port", report);
        draft.signing = smb.parse("signing", report);
        draft.encryption = smb.parse("encryption", report);
        draft.rdma_transforms = smb.parse("rdma_transforms", report);
        draft.directory_leases = smb.parse("directory_leases", report);
        draft.compression = smb.parse("compression", report);
        draft.ntlm = smb.parse("ntlm", report);
        draft.password_length = smb.parse("password_length", report);
        draft.model = smb.parse("model", report);
    }
}

/// Parses the name of a share; `None` if it is missing or invalid.
fn name(share: &Group<'_>, report: &mut Report) -> Option<Set<String>> {
    if share.get("name").is_none() && share.all_known {
        let help = "add `name: NAME`; clients see `/NAME`";
        report.add_help(Origin::Node(share.node.number), "this share has no name", help);
    }
    let text = share.get("name").and_then(|_| share.parse::<Text>("name", report))?;
    let named = share_name(&text.value.0).map_err(|what| report.add(text.origin, what));
    named.ok().map(|value| Set { value, origin: text.origin })
}

/// Parses the clients of a share and refuses an empty list.
fn clients_of_share(node: &Node, report: &mut Report) -> Vec<Client> {
    let found = clients(node, report);
    if found.is_empty()
        && let Node { number, value: Value::List(list) } = node
        && list.is_empty()
    {
        report.add_help(
            Origin::Node(*number),
            "no client may use this share: the list of clients is empty",
            "name clients, or remove `clients` to allow directly attached networks",
        );
    }
    found
}

/// Parses the user and group under which all operations run.
fn force(share: &Group<'_>, principals: &mut Vec<Set<Who>>, report: &mut Report) -> Force {
    let group = share.get("force").and_then(|n| Group::read(n, "`force`", &FORCE, report));
    let Some(group) = group else { return Force::default() };
    let mut named = |key, make: fn(String) -> Who| {
        let set = group.parse::<Text>(key, report)?;
        let name = set.value.0.strip_prefix('@').unwrap_or(&set.value.0);
        // Reuse the rule for names.
        match name.parse::<Who>() {
            Ok(Who::User(name)) => {
                let who = Set { value: make(name), origin: set.origin };
                if who.value.number() == Some(rights::NO_ID) {
                    report.add(set.origin, rights::is_no_id(&set.value.0));
                    return None;
                }
                principals.push(who.clone());
                Some(who.value)
            }
            _ => {
                report.add(
                    set.origin,
                    format!("`{}` is not a single user or group", shown(&set.value.0)),
                );
                None
            }
        }
    };
    Force { user: named("user", Who::User), group: named("group", Who::Group) }
}

/// Parses the limits of the modes of new files and folders.
fn masks(share: &Group<'_>, report: &mut Report) -> Masks {
    let group = share.get("masks").and_then(|n| Group::read(n, "`masks`", &MASKS, report));
    let Some(group) = group else { return Masks::default() };
    let mut mask = |key, known: u32, help: &str| {
        let set = group.parse::<Mode>(key, report)?;
        if set.value.0 & !known != 0 {
            let what = format!("{} is not a mask for new {key}s", set.value);
            report.add_help(set.origin, what, help);
            return None;
        }
        Some(set.value)
    };
    let file = mask("file", 0o777, "write only permission bits, like `0660`");
    let folder = mask(
        "folder",
        0o3777,
        "write permission bits, 1000 (sticky) and 2000 (set-group-id), like `2770`",
    );
    Masks { file, folder }
}

/// Parses the list of clients: ranges and names, or groups with a `from` key.
fn clients(node: &Node, report: &mut Report) -> Vec<Client> {
    let list = match &node.value {
        Value::List(list) => list.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut all: Vec<Client> = Vec::new();
    for node in list {
        let found = match &node.value {
            Value::Map(_) => client(node, report),
            _ => parse::<Whom>(node, report).map(|s| Client::from(s.value)),
        };
        let Some(found) = found else { continue };
        let both = |c: &Client| {
            let (a, b) = (c.protocols, found.protocols);
            a.nfs() && b.nfs() || a.smb() && b.smb()
        };
        if all.iter().any(|c| c.from == found.from && both(c)) {
            let what = format!("{} is named twice", found.from);
            report.add_help(Origin::Node(node.number), what, "remove one of the two");
        }
        all.push(found);
    }
    all
}

fn client(node: &Node, report: &mut Report) -> Option<Client> {
    let group = Group::read(node, "a client", &CLIENT, report)?;
    if group.get("from").is_none() && group.all_known {
        let help = "add `from: CLIENT`, like `from: 10.0.0.0/8` or `from: ws1.example.org`";
        report.add_help(Origin::Node(node.number), "this entry names no client", help);
    }
    let from = group.parse::<Whom>("from", report);
    let protocols =
        group.parse::<Protocols>("protocols", report).map_or(Protocols::Both, |p| p.value);
    let read_only = group.parse::<Flag>("read_only", report).is_some_and(|f| f.value.0);
    let squash = group.parse::<Squash>("squash", report).map(|s| s.value);
    let mut id = |key| group.parse::<Id>(key, report).map(|n| n.value.0);
    let (anonuid, anongid) = (id("anonuid"), id("anongid"));
    Some(Client { from: from?.value, protocols, read_only, squash, anonuid, anongid })
}

/// Parses the users and groups of a share, and returns their positions.
fn access(share: &Group<'_>, report: &mut Report) -> (Option<Access>, Vec<Set<Who>>) {
    let group = share.get("access").and_then(|n| Group::read(n, "`access`", &ACCESS, report));
    let Some(group) = group else { return (None, Vec::new()) };
    let faults = report.0.len();
    let mut named = Vec::new();
    let admin = group.get("admin").map(|n| named_list(n, report)).unwrap_or_default();
    let mut list = |key| {
        let list = group.get(key).map(|n| parse_list::<Who>(n, report)).unwrap_or_default();
        named.extend(list.iter().cloned());
        list.into_iter().map(|s| s.value).collect::<Vec<_>>()
    };
    let (read, write, deny) = (list("read"), list("write"), list("deny"));
    named.extend(admin.iter().cloned());
    let admin = admin.into_iter().map(|s| s.value).collect();
    let access = Access { admin, read, write, deny };
    if named.is_empty() && group.all_known && report.0.len() == faults {
        report.add_help(
            Origin::Node(group.node.number),
            "`access` names no user and no group",
            "name users and groups, as in `access: {read: [alice, \"@staff\"], write: [bob]}`, or remove `access`",
        );
    }
    (Some(access), named)
}

/// Parses users and groups that get more than the rights of files. Everyone would include guests.
fn named_list(node: &Node, report: &mut Report) -> Vec<Set<Who>> {
    let mut list = parse_list::<Who>(node, report);
    for one in list.extract_if(.., |one| one.value == Who::Everyone) {
        report.add_help(
            one.origin,
            "`*` cannot be here",
            "name users like `alice` and groups like `\"@staff\"`",
        );
    }
    list
}

/// Parses the users and groups with privileges, and returns their positions.
fn privileges(top: &Group<'_>, report: &mut Report) -> (Privileges, Vec<Set<Who>>) {
    let group =
        top.get("privileges").and_then(|n| Group::read(n, "`privileges`", &PRIVILEGES, report));
    let Some(group) = group else { return (Privileges::default(), Vec::new()) };
    let mut named = Vec::new();
    let mut list = |key| {
        let list = group.get(key).map(|n| named_list(n, report)).unwrap_or_default();
        named.extend(list.iter().cloned());
        list.into_iter().map(|s| s.value).collect::<Vec<_>>()
    };
    let privileges = Privileges {
        backup: list("backup"),
        restore: list("restore"),
        security: list("security"),
        take_ownership: list("take_ownership"),
    };
    (privileges, named)
}

struct FileSystem(String);
impl FromStr for FileSystem {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        ceph::file_system(text).map(Self)
    }
}

struct CephFolder(String);
impl FromStr for CephFolder {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        ceph::folder(text).map(Self)
    }
}

struct CephUser(String);
impl FromStr for CephUser {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        ceph::user(text).map(Self)
    }
}

/// Parses a folder of CephFS.
fn ceph(node: &Node, report: &mut Report) -> Option<Ceph> {
    let group = Group::read(node, "`ceph`", &CEPH, report)?;
    if group.get("filesystem").is_none() && group.all_known {
        let help = "add `filesystem: NAME`, as `ceph fs ls` names it";
        report.add_help(Origin::Node(node.number), "this share names no file system", help);
    }
    let fs = group.parse::<FileSystem>("filesystem", report);
    let path = match group.get("path") {
        Some(_) => group.parse::<CephFolder>("path", report)?.value.0,
        None => "/".into(),
    };
    let faults = report.0.len();
    let user = group.parse::<CephUser>("user", report).map(|u| u.value.0);
    let mut file = |key| group.parse::<Absolute>(key, report).map(|p| p.value.0);
    let (config, keyring) = (file("config"), file("keyring"));
    let exclusive = match group.get("exclusive") {
        Some(_) => group.parse::<Flag>("exclusive", report).is_none_or(|flag| flag.value.0),
        None => true,
    };
    if report.0.len() > faults {
        return None;
    }
    Some(Ceph { user, config, keyring, exclusive, ..Ceph::new(fs?.value.0, path) })
}

/// Parses the source of a share, and whether it has a folder for each user.
fn source(group: &Group<'_>, report: &mut Report) -> Option<Set<(Source, bool)>> {
    if let Some(node) = group.get("refer") {
        return referred(group, node, report);
    }
    let memory = match group.get("memory") {
        Some(_) => Some(group.parse::<Flag>("memory", report)?),
        None => None,
    };
    let in_memory = memory.filter(|f| f.value.0);
    if let Some(node) = group.get("ceph") {
        let at = Origin::Node(node.number);
        if group.get("path").is_some() || in_memory.is_some() {
            let help = "remove `ceph`, or `path` and `memory`; the folder in CephFS is `ceph.path`";
            report.add_help(at, "this share has `ceph`, and `path` or `memory` too", help);
            return None;
        }
        return ceph(node, report).map(|c| Set { value: (Source::Ceph(c), false), origin: at });
    }
    match (group.get("path"), in_memory) {
        (Some(_), None) => map(group.parse("path", report), |p: SourcePath| p.0),
        (None, Some(flag)) => Some(Set { value: (Source::Memory, false), origin: flag.origin }),
        (Some(_), Some(flag)) => {
            report.add_help(
                flag.origin,
                "this share has both `path` and `memory`",
                "remove `path` or `memory`",
            );
            None
        }
        (None, None) => {
            if group.all_known {
                let help = "add `path: /FOLDER`, `ceph: {filesystem: NAME}` for one in CephFS, `memory: true`, or \
                            `refer: HOST:/PATH`";
                report.add_help(Origin::Node(group.node.number), "this share has no folder", help);
            }
            None
        }
    }
}

/// The keys that a share with `refer` may have; all others must be set on the server that it refers to.
const BESIDE: [&str; 7] = ["name", "refer", "protocols", "clients", "hidden", "export", "comment"];

/// Parses the servers of a share that has no folder here.
fn referred(share: &Group<'_>, node: &Node, report: &mut Report) -> Option<Set<(Source, bool)>> {
    let origin = Origin::Node(node.number);
    let faults = report.0.len();
    for (key, node) in share.all_but(&BESIDE) {
        let at = Origin::Node(node.number);
        match key {
            "path" | "ceph" | "memory" => report.add_help(
                at,
                format!("this share has both `refer` and `{key}`"),
                format!("remove `refer` or `{key}`"),
            ),
            _ => report.add_help(
                at,
                format!(
                    "this share is on another server, which has `{key}` in its own configuration"
                ),
                format!("remove `{key}`"),
            ),
        }
    }
    let targets = targets(node, "share", report);
    (report.0.len() == faults).then_some(Set { value: (Source::Refer(targets?), false), origin })
}
