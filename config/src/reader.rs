//! Parsing helpers shared by all groups of the file: keys, values, and faults with their positions.

use std::path::PathBuf;
use std::str::FromStr;

use crate::keys;
use crate::suggest::nearest;
use crate::tree::{Node, Value};

/// The position at which a value was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The node of this number.
    Node(usize),
    /// This option.
    Option(&'static str),
    /// No position: the value is the default or is missing.
    Nowhere,
}

/// A value and the position at which it was set.
#[derive(Clone, Debug)]
pub(crate) struct Set<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// A fault whose position is not yet resolved.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) at: Origin,
    pub(crate) what: String,
    pub(crate) help: Option<String>,
}

/// Collects faults.
#[derive(Debug, Default)]
pub(crate) struct Report(pub(crate) Vec<Finding>);

impl Report {
    pub(crate) fn add(&mut self, at: Origin, what: impl Into<String>) {
        self.0.push(Finding { at, what: what.into(), help: None });
    }

    pub(crate) fn add_help(
        &mut self,
        at: Origin,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.0.push(Finding { at, what: what.into(), help: Some(help.into()) });
    }
}

/// The keys of one group, checked for duplicates and unknown names.
pub(crate) struct Group<'a> {
    pub(crate) node: &'a Node,
    /// All keys were known. If not, a missing key is probably one that was misspelt.
    pub(crate) all_known: bool,
    pairs: Vec<(&'static str, &'a Node)>,
}

impl<'a> Group<'a> {
    /// Reads a group; `what` is its name in messages, with the article.
    pub(crate) fn read(
        node: &'a Node,
        what: &str,
        known: &keys::Group,
        report: &mut Report,
    ) -> Option<Self> {
        let known = known.names();
        let at = Origin::Node(node.number);
        let Value::Map(map) = &node.value else {
            report.add_help(
                at,
                format!("{what} is a group of keys, not {}", node.value.kind()),
                format!("the keys are {}", listed(&known)),
            );
            return None;
        };
        let mut pairs: Vec<(&'static str, &Node)> = Vec::new();
        let mut all_known = true;
        for (key, value) in map {
            let at = Origin::Node(key.number);
            let Value::Scalar(name) = &key.value else {
                report.add(at, format!("a key of {what} is a word, not {}", key.value.kind()));
                continue;
            };
            let Some(known_name) = known.iter().find(|k| *k == name) else {
                let help = match nearest(name, &known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the keys are {}", listed(&known)),
                };
                all_known = false;
                report.add_help(at, format!("{what} has no key `{}`", shown(name)), help);
                continue;
            };
            if pairs.iter().any(|(k, _)| k == known_name) {
                report.add_help(at, format!("`{name}` is set twice"), "remove one of the two");
                continue;
            }
            pairs.push((known_name, value));
        }
        Some(Self { node, all_known, pairs })
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Node> {
        self.pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    /// Iterates over the keys except `known`.
    pub(crate) fn all_but(&self, known: &[&str]) -> impl Iterator<Item = (&'static str, &'a Node)> {
        self.pairs.iter().copied().filter(|(key, _)| !known.contains(key))
    }

    pub(crate) fn parse<T: FromStr<Err = String>>(
        &self,
        key: &str,
        report: &mut Report,
    ) -> Option<Set<T>> {
        parse(self.get(key)?, report)
    }
}

fn listed(words: &[&str]) -> String {
    words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ")
}

/// Formats text from the file for a message, shortened to fit a line.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]).escape_debug().to_string(),
        None => text.escape_debug().to_string(),
    }
}

/// Parses a single value.
pub(crate) fn parse<T: FromStr<Err = String>>(node: &Node, report: &mut Report) -> Option<Set<T>> {
    let origin = Origin::Node(node.number);
    let Value::Scalar(text) = &node.value else {
        report.add(origin, format!("expected a single value, found {}", node.value.kind()));
        return None;
    };
    match text.parse() {
        Ok(value) => Some(Set { value, origin }),
        Err(what) => {
            report.add(origin, what);
            None
        }
    }
}

/// Parses a list; a single value counts as a list of one.
pub(crate) fn parse_list<T: FromStr<Err = String>>(
    node: &Node,
    report: &mut Report,
) -> Vec<Set<T>> {
    match &node.value {
        Value::List(list) => list.iter().filter_map(|n| parse(n, report)).collect(),
        _ => parse(node, report).into_iter().collect(),
    }
}

pub(crate) struct Text(pub(crate) String);
impl FromStr for Text {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(text.into()))
    }
}

pub(crate) struct Flag(pub(crate) bool);
impl FromStr for Flag {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(Self(true)),
            "false" => Ok(Self(false)),
            _ => Err(format!("`{}` is neither `true` nor `false`", shown(text))),
        }
    }
}

pub(crate) struct Absolute(pub(crate) PathBuf);
impl FromStr for Absolute {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        if path.is_absolute() {
            Ok(Self(path))
        } else {
            Err(format!("`{}` is not an absolute path; begin it with `/`", shown(text)))
        }
    }
}

/// A file with a key or password: by path, or as a systemd credential (systemd.exec(5), `LoadCredential=`).
pub(crate) struct Secret(pub(crate) PathBuf);
impl FromStr for Secret {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(name) = text.strip_prefix(CREDENTIAL) else {
            return text.parse::<Absolute>().map(|path| Self(path.0));
        };
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(format!(
                "`{}` is not the name of a credential; write one like `{CREDENTIAL}tls-key`",
                shown(name)
            ));
        }
        match std::env::var_os("CREDENTIALS_DIRECTORY") {
            Some(folder) => Ok(Self(PathBuf::from(folder).join(name))),
            None => Err(format!(
                "systemd gave this process no credentials ($CREDENTIALS_DIRECTORY is not set), so there is no `{0}`; write \
                 `LoadCredential={0}:/PATH` into the unit, or an absolute path here",
                shown(name)
            )),
        }
    }
}

/// Prefix of a credential's name.
const CREDENTIAL: &str = "credential:";

/// Parses a list of groups. A key without value is an empty list, which happens if all its entries are commented out.
pub(crate) fn groups<T>(
    top: &Group<'_>,
    key: &str,
    one: &str,
    read: fn(&Node, &mut Report) -> Option<T>,
    report: &mut Report,
) -> Vec<T> {
    match top.get(key) {
        None | Some(Node { value: Value::Null, .. }) => Vec::new(),
        Some(Node { value: Value::List(list), .. }) => {
            list.iter().filter_map(|n| read(n, report)).collect()
        }
        Some(node) => {
            report.add_help(
                Origin::Node(node.number),
                format!("`{key}` is a list, not {}", node.value.kind()),
                format!("begin each {one} with `- name: NAME`"),
            );
            Vec::new()
        }
    }
}
