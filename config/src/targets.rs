//! Reads the servers to which shares refer clients, and the links of shares.

use std::str::FromStr;

use crate::export::Export;
use crate::keys::{LINK, REFER};
use crate::links::{Link, Links};
use crate::reader::{Flag, Group, Origin, Report, Set, parse, parse_list, shown};
use crate::refer::{Refer, ReferHost, TARGETS_MAX};
use crate::settings::share_name;
use crate::tree::{Node, Value};

/// Maximum number of links of a share: the gateway keeps each of their folders open.
const LINKS_MAX: usize = 256;

/// The name of a share on another server.
struct ShareThere(String);

impl FromStr for ShareThere {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        share_name(text).map(Self)
    }
}

/// Parses the servers of a share or link; `None` if one is wrong or the list is empty.
pub(crate) fn targets(node: &Node, of: &str, report: &mut Report) -> Option<Vec<Refer>> {
    let faults = report.0.len();
    let nodes = match &node.value {
        Value::List(list) => list.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut targets: Vec<Refer> = Vec::new();
    for node in nodes {
        let at = Origin::Node(node.number);
        let found = match &node.value {
            Value::Map(_) => refer(node, report),
            _ => parse_list::<Refer>(node, report).pop().map(|set| set.value),
        };
        let Some(found) = found else { continue };
        if targets.iter().any(|one| one.host == found.host && one.path == found.path) {
            report.add_help(at, format!("{found} is named twice"), "remove one of the two");
        } else if targets.len() == TARGETS_MAX {
            report.add(at, format!("a {of} has at most {TARGETS_MAX} servers"));
            break;
        }
        targets.push(found);
    }
    if nodes.is_empty() {
        let key = if of == "share" { "refer" } else { "to" };
        let help = format!("name one, as in `{key}: gw2.example.org:/archive`");
        report.add_help(
            Origin::Node(node.number),
            format!("this {of} has no server: the list is empty"),
            help,
        );
    }
    (report.0.len() == faults).then_some(targets)
}

fn refer(node: &Node, report: &mut Report) -> Option<Refer> {
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
    let namespace = group.parse::<Flag>("namespace", report).is_some_and(|set| set.value.0);
    Some(Refer { host: host?.value, path: path?.value, share, rdma, namespace })
}

/// A path in a share.
struct InShare(String);

impl FromStr for InShare {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            let below = text.trim_start_matches('/');
            return Err(format!(
                "a link is below the folder of the share; write `{}`",
                shown(below)
            ));
        }
        if text.contains('\\') {
            return Err(format!("`{}` is separated by `\\`; write `/`", shown(text)));
        }
        // The same rules as for a path that NFS clients mount.
        let path = format!("/{text}").parse::<Export>()?;
        Ok(Self(path.path().to_owned()))
    }
}

/// `msdfs`, the word for links in the style of Samba.
struct Msdfs;

impl FromStr for Msdfs {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "msdfs" => Ok(Self),
            _ => Err(format!(
                "`{}` is not a link; write `msdfs`, or entries like `{{at: projects/old, to: gw2.example.org:/archive}}`",
                shown(text)
            )),
        }
    }
}

/// Parses `links`: the word `msdfs`, links, or a list of both.
pub(crate) fn links(node: &Node, report: &mut Report) -> Links {
    let nodes = match &node.value {
        Value::List(list) => list.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut links = Links::default();
    if nodes.is_empty() {
        let help = "write one, as in `links: [{at: projects/old, to: gw2.example.org:/archive}]`";
        report.add_help(
            Origin::Node(node.number),
            "this share has no link: the list is empty",
            help,
        );
    }
    for node in nodes {
        let at = Origin::Node(node.number);
        if !matches!(node.value, Value::Map(_)) {
            links.msdfs |= parse::<Msdfs>(node, report).is_some();
        } else if links.list.len() == LINKS_MAX {
            report.add(at, format!("a share has at most {LINKS_MAX} links"));
            break;
        } else if let Some(one) = link(node, report) {
            add(&mut links.list, one, report);
        }
    }
    links
}

fn link(node: &Node, report: &mut Report) -> Option<Set<Link>> {
    let group = Group::read(node, "a link", &LINK, report)?;
    let origin = Origin::Node(node.number);
    for (key, help) in [("at", "`at: projects/old`"), ("to", "`to: gw2.example.org:/archive`")] {
        if group.get(key).is_none() && group.all_known {
            report.add_help(origin, format!("this link has no `{key}`"), format!("add {help}"));
        }
    }
    let at = group.parse::<InShare>("at", report);
    let to = group.get("to").and_then(|node| targets(node, "link", report));
    let at = at?;
    Some(Set { value: Link { at: at.value.0, to: to? }, origin: at.origin })
}

/// Adds a link whose path differs from all others and is not below one. SMB ignores case.
fn add(list: &mut Vec<Link>, one: Set<Link>, report: &mut Report) {
    let folder = |path: &str| format!("{}/", path.to_lowercase());
    let new = folder(&one.value.at);
    for other in list.iter() {
        let old = folder(&other.at);
        if new == old {
            let what = format!("there are two links at `{}`", other.at);
            return report.add_help(
                one.origin,
                what,
                "remove one of the two; a link may have several servers",
            );
        }
        if new.starts_with(&old) || old.starts_with(&new) {
            let what = format!(
                "the links at `{}` and `{}` are one below the other",
                other.at, one.value.at
            );
            return report.add_help(
                one.origin,
                what,
                "remove one of the two: below a link, the other server decides",
            );
        }
    }
    list.push(one.value);
}
