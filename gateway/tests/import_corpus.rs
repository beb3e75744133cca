//! Tests `headgate import` on forty realistic files: the head of each has the expected result, docs/migrating.md has the
//! number of kept shares, and no user may get more rights from the result than from the file.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod corpus;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/migrating.md");
const BEGINS: &str = "<!-- Written by gateway/tests/import_corpus.rs: do not edit below. -->\n";
const ENDS: &str = "<!-- Up to here. -->\n";

/// Returns the files, sorted by name.
pub(crate) fn files() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/import/corpus");
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    all.sort();
    all
}

pub(crate) fn name_of(file: &Path) -> String {
    file.file_name().unwrap().to_string_lossy().into_owned()
}

/// Head of a file: its kind, the shares that are kept, and a part of the reason for each that becomes a comment.
#[derive(Debug, Default, PartialEq, Eq)]
struct Head {
    kind: String,
    kept: BTreeSet<String>,
    comments: BTreeMap<String, String>,
}

fn head(text: &str) -> Head {
    let mut head = Head::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("#: ")) {
        if let Some(names) = line.strip_prefix("kept ") {
            head.kept = names.split(' ').map(str::to_owned).collect();
        } else if let Some(list) = line.strip_prefix("comment ") {
            let parts = list.split(", ").map(|one| one.split_once(": ").unwrap());
            head.comments = parts.map(|(name, why)| (name.to_owned(), why.to_owned())).collect();
        } else {
            head.kind = line.to_owned();
        }
    }
    head
}

/// Imports a file and returns the configuration, and the path where it is stored.
pub(crate) fn imported(file: &Path) -> String {
    let o = Command::new(env!("CARGO_BIN_EXE_headgate")).arg("import").arg(file).output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{file:?}: {}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8(o.stdout).unwrap()
}

/// Returns the names of the shares that a result serves; empty if all are comments.
pub(crate) fn kept(yaml: &str) -> BTreeSet<String> {
    let read: serde_yaml::Value = serde_yaml::from_str(yaml).unwrap();
    let shares = read["shares"].as_sequence().cloned().unwrap_or_default();
    shares.iter().map(|s| s["name"].as_str().unwrap().replace(' ', "_")).collect()
}

/// Returns the reasons of the commented shares, by name.
fn comments(yaml: &str) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in yaml.lines() {
        let Some(rest) = line.trim_start().strip_prefix("# `") else { continue };
        let Some((name, why)) = rest.split_once("` had a restriction that would be lost: ") else {
            continue;
        };
        all.entry(name.replace(' ', "_")).or_default().push(why.to_owned());
    }
    all
}

#[test]
fn every_file_becomes_what_its_head_says() {
    let mut wrong = String::new();
    for file in files() {
        let said = head(&fs::read_to_string(&file).unwrap());
        let yaml = imported(&file);
        let found = comments(&yaml);
        let names = |map: &BTreeSet<String>| map.iter().cloned().collect::<Vec<_>>().join(" ");
        if kept(&yaml) != said.kept {
            let _ = writeln!(wrong, "{}: kept {}", name_of(&file), names(&kept(&yaml)));
        }
        let told = |(name, why): (&String, &String)| {
            found.get(name).is_some_and(|all| all.iter().any(|told| told.contains(why)))
        };
        if found.len() != said.comments.len() || !said.comments.iter().all(told) {
            let _ = writeln!(wrong, "{}: comments {found:?}", name_of(&file));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert_eq!(files().len(), 40);
}

#[test]
fn the_page_says_how_much_is_kept() {
    let mut kinds: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for file in files() {
        let yaml = imported(&file);
        let of = kinds.entry(head(&fs::read_to_string(&file).unwrap()).kind).or_default();
        let kept = kept(&yaml).len();
        (of[0], of[1], of[2]) = (of[0] + 1, of[1] + kept, of[2] + kept + comments(&yaml).len());
    }
    let mut table = String::from("\n| kind | files | shares | kept |\n|---|---|---|---|\n");
    for (kind, [files, kept, all]) in &kinds {
        let _ = writeln!(table, "| {kind} | {files} | {all} | {kept} |");
    }
    let sum = |n: usize| kinds.values().map(|of| of[n]).sum::<usize>();
    let _ = writeln!(table, "| all | {} | {} | {} |\n", sum(0), sum(2), sum(1));
    let page = fs::read_to_string(DOCS).unwrap();
    let (before, rest) = page.split_once(BEGINS).unwrap();
    let (told, after) = rest.split_once(ENDS).unwrap();
    if std::env::var_os("HEADGATE_UPDATE").is_some() {
        fs::write(DOCS, format!("{before}{BEGINS}{table}{ENDS}{after}")).unwrap();
    } else {
        assert_eq!(told, table, "docs/migrating.md: HEADGATE_UPDATE=1 writes it anew");
    }
    for kind in ["home", "office"] {
        let [_, kept, all] = kinds[kind];
        assert!(kept * 10 >= all * 8, "{kind}: {kept} of {all}");
    }
}
