//! The servers to which a share refers its clients.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use crate::export::Export;
use crate::fault::Faults;
use crate::file::{DraftShare, draft};
use crate::keys::REFER;
use crate::reader::{Finding, Flag, Group, Origin, Report, Set, parse_list, shown};
use crate::rules;
use crate::settings::{Protocols, Rdma, Settings, Share, Source, share_name};
use crate::text;
use crate::tree::{Node, Value};
use crate::units::Port;

/// Servers of one share: a client tries them in this order, and its buffers hold no more.
pub(crate) const TARGETS_MAX: usize = 16;
/// Bytes of a host name at most (RFC 1035 section 2.3.4), and of a label in it.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// A server, by address or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferHost {
    /// Its address.
    Ip(IpAddr),
    /// Its name in DNS.
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
        // The last label of a name is no number (RFC 1123 section 2.1): this is an address that is misspelt.
        let is_number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
        let last = text.rsplit('.').next().unwrap_or_default();
        match text.len() <= NAME_MAX && text.split('.').all(good) && !is_number(last) {
            true => Ok(Self::Name(text.to_ascii_lowercase())),
            false => Err(wrong()),
        }
    }
}

/// An address that means another machine on each link.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// As NFS and DNS write it: an address of IPv6 without brackets.
impl fmt::Display for ReferHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A server and the share there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refer {
    /// The server.
    pub host: ReferHost,
    /// What clients of NFS mount there.
    pub path: Export,
    /// The name of the share there, to clients of SMB; `None`: the path.
    pub share: Option<String>,
    /// It serves NFS by RDMA, too.
    pub rdma: bool,
}

impl Refer {
    /// What follows the server's name in a path of SMB, without the first backslash.
    pub fn smb_path(&self) -> String {
        self.share.clone().unwrap_or_else(|| self.path.path().replace('/', r"\"))
    }
}

/// `HOST:/PATH`, with an address of IPv6 in brackets, as `mount` takes it.
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

/// All of them, as a message shows where the files of a share are.
pub(crate) fn listed(targets: &[Refer]) -> String {
    targets.iter().map(Refer::to_string).collect::<Vec<_>>().join(", ")
}

/// What may be said of a share that is on another server: all else is said there.
const BESIDE: [&str; 7] = ["name", "refer", "protocols", "clients", "hidden", "export", "comment"];

/// The name of a share of another server.
struct ShareThere(String);

impl FromStr for ShareThere {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        share_name(text).map(Self)
    }
}

/// The servers of a share that has no folder here.
pub(crate) fn source(
    share: &Group<'_>,
    node: &Node,
    report: &mut Report,
) -> Option<Set<(Source, bool)>> {
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
    let nodes = match &node.value {
        Value::List(list) => list.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut targets: Vec<Refer> = Vec::new();
    for node in nodes {
        let at = Origin::Node(node.number);
        let found = match &node.value {
            Value::Map(_) => group(node, report),
            _ => parse_list::<Refer>(node, report).pop().map(|set| set.value),
        };
        let Some(found) = found else { continue };
        if targets.iter().any(|one| one.host == found.host && one.path == found.path) {
            report.add_help(at, format!("{found} is named twice"), "remove one of the two");
        } else if targets.len() == TARGETS_MAX {
            report.add(at, format!("a share has at most {TARGETS_MAX} servers"));
            break;
        }
        targets.push(found);
    }
    if nodes.is_empty() {
        let help = "name one, as in `refer: gw2.example.org:/archive`";
        report.add_help(origin, "this share has no server: the list is empty", help);
    }
    (report.0.len() == faults).then_some(Set { value: (Source::Refer(targets), false), origin })
}

fn group(node: &Node, report: &mut Report) -> Option<Refer> {
    let group = Group::read(node, "`refer`", &REFER, report)?;
    for (key, help) in [("host", "`host: gw2.example.org`"), ("path", "`path: /archive`")] {
        if group.get(key).is_none() && group.all_known {
            let at = Origin::Node(node.number);
            report.add_help(at, format!("this server has no `{key}`"), format!("add {help}"));
        }
    }
    let host = group.parse::<ReferHost>("host", report);
    let path = group.parse::<Export>("path", report);
    let share = group.parse::<ShareThere>("share", report).map(|set| set.value.0);
    let rdma = group.parse::<Flag>("rdma", report).is_some_and(|set| set.value.0);
    Some(Refer { host: host?.value, path: path?.value, share, rdma })
}

/// The shares of another service of the cluster.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// Its name.
    service: String,
    /// Its shares as those of other servers; the error says why they are not known.
    shares: Result<Vec<Share>, String>,
}

impl Elsewhere {
    /// Of a service of this name that clients find at these hosts, by the file of its gateway. What lies in its folders is not
    /// looked at: its storage is on another node.
    pub fn of(service: &str, file: &Path, hosts: &[ReferHost]) -> Self {
        let faults = |faults: Faults| match faults.0.first() {
            Some(fault) => format!("{}: {}", file.display(), fault.what),
            None => format!("cannot read {}", file.display()),
        };
        let shares = text::text_of(file).and_then(|text| of_text(file, &text, hosts));
        Self { service: service.to_owned(), shares: shares.map_err(faults) }
    }
}

fn of_text(file: &Path, text: &str, hosts: &[ReferHost]) -> Result<Vec<Share>, Faults> {
    let root = text::root(file, text)?;
    let mut report = Report::default();
    let draft = draft(&root, &mut report);
    if !report.0.is_empty() {
        return Err(text::faults(file, text, report));
    }
    let usual = Settings::default();
    // Clients that are sent elsewhere take the usual ports.
    let by_port =
        |port: &Option<Set<Port>>, usual| port.as_ref().is_none_or(|p| p.value.0 == usual);
    let by_nfs = by_port(&draft.nfs_port, usual.nfs_port);
    let by_smb = by_port(&draft.smb_port, usual.smb.port);
    let rdma = draft.rdma.as_ref().is_none_or(|rdma| rdma.value != Rdma::Off)
        && by_port(&draft.nfs_rdma_port, usual.nfs_rdma_port);
    let of = |DraftShare { share, .. }: DraftShare| {
        let protocols = match (by_nfs && share.protocols.nfs(), by_smb && share.protocols.smb()) {
            (true, true) => Protocols::Both,
            (true, false) => Protocols::Nfs,
            (false, true) => Protocols::Smb,
            (false, false) => return None,
        };
        let path: Export = format!("/{}", share.nfs_path()).parse().ok()?;
        let target = |host: &ReferHost| Refer {
            host: host.clone(),
            path: path.clone(),
            share: Some(share.name.clone()),
            rdma,
        };
        // One that it refers to a third server is there.
        let source = match share.source {
            Source::Refer(targets) => Source::Refer(targets),
            _ => Source::Refer(hosts.iter().take(TARGETS_MAX).map(target).collect()),
        };
        let export = share.export.filter(|_| protocols.nfs());
        let (clients, hidden, comment) = (share.clients, share.hidden, share.comment);
        let bare = Share::new(share.name, source);
        Some(Share { protocols, clients, hidden, export, comment, ..bare })
    };
    Ok(draft.shares.into_iter().filter_map(of).collect())
}

/// Puts shares of other services beside those that are served here. One that has no place is told of, and left out: what another
/// service says keeps this one from nothing.
pub(crate) fn join(
    shares: &mut Vec<DraftShare>,
    others: Vec<Elsewhere>,
    share_id: fn(&str) -> u32,
    warnings: &mut Vec<Finding>,
) {
    let mut warn = |what: String, help: &str| {
        let help = Some(help.to_owned());
        warnings.push(Finding { at: Origin::Nowhere, what, help });
    };
    for Elsewhere { service, shares: known } in others {
        let known = known.unwrap_or_else(|why| {
            let what = format!("the shares of the service `{service}` are not shown here: {why}");
            warn(what, "copy the file of each service to each node, and reload");
            Vec::new()
        });
        for share in known {
            let one = DraftShare::of(share, Origin::Nowhere);
            match rules::beside(shares, &one, share_id) {
                Ok(()) => shares.push(one),
                Err(why) => warn(
                    format!(
                        "the share `{}` of the service `{service}` is not shown here: {why}",
                        one.share.name
                    ),
                    "give each share of a cluster a name and a path of its own",
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_with_a_path() {
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
    fn what_names_no_server_says_what_to_write() {
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
