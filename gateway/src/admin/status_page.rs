//! docs/status.md: every key of `headgate status --json`, generated from the types of the answer and compared with a real answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use rdma_transport::channel::{FactKind, Facts};
use serde_json::Value;

use super::testing;

/// Sources of the types. The first one contains the type of the answer itself.
const SOURCES: [&str; 6] = [
    include_str!("snapshot.rs"),
    include_str!("usage.rs"),
    include_str!("operations.rs"),
    include_str!("process.rs"),
    include_str!("reloads.rs"),
    include_str!("why.rs"),
];
const ANSWER: &str = "Snapshot";

/// A key: its name, its Rust type, its description.
type Field = (String, String, String);

/// Returns the fields of a type; empty if [`SOURCES`] do not define it.
fn fields(of: &str) -> Vec<Field> {
    let begin = format!("pub struct {of} {{\n");
    let body = SOURCES.iter().find_map(|source| source.split_once(&begin)).map(|(_, rest)| rest);
    let Some((body, _)) = body.and_then(|rest| rest.split_once("\n}\n")) else { return Vec::new() };
    let (mut fields, mut says) = (Vec::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            let gap = if says.is_empty() { "" } else { " " };
            says += &format!("{gap}{words}");
        } else if let Some((name, kind)) =
            line.strip_prefix("pub ").and_then(|l| l.split_once(": "))
        {
            let kind = kind.trim_end_matches(',').to_owned();
            fields.push((name.to_owned(), kind, std::mem::take(&mut says)));
        }
    }
    fields
}

/// Describes a type in words, and returns the type of [`SOURCES`] inside it.
fn words(kind: &str) -> (String, Option<&str>) {
    let inner = |prefix: &str| kind.strip_prefix(prefix).and_then(|k| k.strip_suffix('>'));
    if let Some(of) = inner("Option<") {
        let (of, further) = words(of);
        return (format!("{of}, or null"), further);
    }
    if let Some(of) = inner("Vec<") {
        let (of, further) = words(of);
        return (format!("list: {of}"), further);
    }
    if let Some(of) = inner("BTreeMap<String, ") {
        let (of, further) = words(of);
        return (format!("group, by name: {of}"), further);
    }
    match kind {
        "u64" | "u8" => ("number".into(), None),
        "bool" => ("true or false".into(), None),
        "String" | "PeerText" => ("text".into(), None),
        "(String, String)" | "(String, PeerText)" => ("[text, text]".into(), None),
        "(u8, u64)" => ("[number, number]".into(), None),
        "Protocol" => ("`nfs` or `smb`".into(), None),
        further => (format!("[{further}](#{})", further.to_lowercase()), Some(further)),
    }
}

/// Returns the types of an answer, the answer itself first.
fn types() -> Vec<String> {
    let mut all = vec![ANSWER.to_owned()];
    let mut at = 0;
    while let Some(one) = all.get(at) {
        let further: Vec<String> = fields(one)
            .iter()
            .filter_map(|(_, kind, _)| words(kind).1.map(str::to_owned))
            .collect();
        for name in further {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        at += 1;
    }
    all
}

/// Writes a key with its type in brackets, which numbers go without.
fn entry(name: &str, kind: &str, says: &str) -> String {
    let kind = kind.strip_prefix("number").map_or(kind, |rest| rest.trim_start_matches(", "));
    let gap = if kind.is_empty() { String::new() } else { format!(" ({kind})") };
    format!("* `{name}`{gap}: {says}\n")
}

fn page() -> String {
    let mut out = String::from(
        "# What `headgate status --json` says\n\n\
         <!-- Made by `HEADGATE_WRITE_DOCS=1 cargo test -p gateway` from gateway/src/admin. -->\n\n\
         One JSON object, also at `/status` of the admin address. The keys are stable; a new version may add \
         keys, so a program should ignore unknown keys. Values without a type in brackets are whole numbers without \
         a sign.\n",
    );
    for one in types() {
        let title = if one == ANSWER { "The answer" } else { &one };
        let _ = write!(out, "\n## {title}\n\n");
        for (name, kind, says) in fields(&one) {
            out += &entry(&name, &words(&kind).0, &says);
        }
    }
    out += "\n## Facts\n\nEach of `facts` of a connection is a name and a value, both as text. The protocol of a connection \
            decides which ones it has.\n\n";
    for (name, kind, says) in Facts::ALL {
        let kind = match kind {
            FactKind::Text => String::new(),
            FactKind::Number => "digits".to_owned(),
            FactKind::One(words) => {
                words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ")
            }
        };
        out += &entry(name, &kind, says);
    }
    out
}

#[test]
fn the_page_of_the_status_is_in_step() {
    testing::in_step("docs/status.md", &page());
}

/// Checks that a value has its described type, with all keys below it and no others.
fn judge(at: &str, kind: &str, value: &Value) {
    let inner = |prefix: &str| kind.strip_prefix(prefix).and_then(|k| k.strip_suffix('>'));
    if let Some(of) = inner("Option<") {
        if !value.is_null() {
            judge(at, of, value);
        }
        return;
    }
    if let Some(of) = inner("Vec<") {
        let list = value.as_array().unwrap_or_else(|| panic!("{at}: {value}"));
        return list.iter().for_each(|one| judge(&format!("{at}[]"), of, one));
    }
    if let Some(of) = inner("BTreeMap<String, ") {
        let group = value.as_object().unwrap_or_else(|| panic!("{at}: {value}"));
        return group.values().for_each(|one| judge(&format!("{at}.*"), of, one));
    }
    let is = match kind {
        "u64" | "u8" => value.is_u64(),
        "bool" => value.is_boolean(),
        "String" | "PeerText" => value.is_string(),
        "Protocol" => value == "nfs" || value == "smb",
        "(String, String)" | "(String, PeerText)" => {
            value.as_array().is_some_and(|p| p.len() == 2 && p.iter().all(Value::is_string))
        }
        "(u8, u64)" => {
            value.as_array().is_some_and(|p| p.len() == 2 && p.iter().all(Value::is_u64))
        }
        further => {
            let known: BTreeMap<String, String> =
                fields(further).into_iter().map(|(name, kind, _)| (name, kind)).collect();
            assert!(!known.is_empty(), "{at}: the type {further} is not found");
            let told = value.as_object().unwrap_or_else(|| panic!("{at}: {value}"));
            let (told_keys, keys): (BTreeSet<&String>, BTreeSet<&String>) =
                (told.keys().collect(), known.keys().collect());
            assert_eq!(told_keys, keys, "{at}");
            told.iter()
                .for_each(|(name, value)| judge(&format!("{at}.{name}"), &known[name], value));
            true
        }
    };
    assert!(is, "{at} is {value} and not {kind}");
}

#[test]
fn what_is_told_is_what_the_page_says() {
    for snapshot in [testing::snapshot(), testing::full()] {
        judge("", ANSWER, &serde_json::to_value(snapshot).unwrap());
    }
    assert!(types().len() >= 14, "{:?}", types());
    let undocumented: Vec<String> = types()
        .iter()
        .flat_map(|one| {
            fields(one).into_iter().map(move |(name, _, says)| (format!("{one}.{name}"), says))
        })
        .filter_map(|(name, says)| says.is_empty().then_some(name))
        .collect();
    assert_eq!(undocumented, [""; 0]);
}
