//! Finds dependency cycles between the files of a crate: such files cannot be read, tested or moved separately.
//!
//! *Operation.* A file depends on another if it has a path to it that begins with `crate`, `super` or `self`; tests and comments do
//! not count. Items that a file re-exports from its submodules by `mod` and `pub use` do not count either, because that is how a
//! module shows its contents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::sh::Result;

/// The crates, and the cycles of files that each still has: a file that joins one, or makes another, is refused.
pub(super) const CLEARED: [(&str, &[&str]); 27] = [
    ("mutex", &[]),
    ("wire", &[]),
    ("policy", &[]),
    ("rates", &[]),
    ("nfs-proto", &[]),
    ("smb-proto", &[]),
    ("smb-crypto", &[]),
    ("smb-compress", &[]),
    ("smb-auth", &[]),
    ("dylib", &[]),
    ("rdma-sys", &[]),
    ("gss-sys", &[]),
    ("ceph-sys", &[]),
    ("domain-sys", &[]),
    ("gss-krb5", &[]),
    ("iobuf", &[]),
    ("state", &[]),
    ("recovery", &[]),
    ("audit", &[]),
    // A folder finds its versions, and a version asks for the same folder today; a mount below a share has both.
    ("vfs", &["local::cross local::node local::past"]),
    ("rdma-transport", &[]),
    // A client has sessions, and each session refers to its client.
    ("nfsrdma", &["v4::client v4::session"]),
    // A lease has opens, and each open refers to its lease. A session has connections, and each connection has sessions and logons;
    // a logon that is replaced is found by its connection.
    ("smbd-core", &["caching open", "conn logons session"]),
    ("cluster", &[]),
    ("config", &[]),
    ("client", &[]),
    ("gateway", &[]),
];

type Module = Vec<String>;

/// Refuses a cycle that is not in the table.
pub(super) fn check(source: &Path, known: &[&str]) -> Result<()> {
    let modules = read(source)?;
    let mut unknown: Vec<String> = Vec::new();
    for circle in circles(&modules) {
        let is_within = |known: &&str| {
            let known: BTreeSet<&str> = known.split(' ').collect();
            circle.iter().all(|module| known.contains(&module[..]))
        };
        let is_known = known.iter().any(is_within);
        if !is_known {
            unknown.push(circle.into_iter().collect::<Vec<_>>().join(", "));
        }
    }
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(format!("a circle of {}", unknown.join("; and of ")))
    }
}

/// Returns the text of each module, by its path; the root of the crate has an empty path.
fn read(source: &Path) -> Result<BTreeMap<Module, String>> {
    let mut found = BTreeMap::new();
    let mut left = vec![(source.to_owned(), Module::new())];
    while let Some((folder, at)) = left.pop() {
        let told = |e| format!("{}: {e}", folder.display());
        for entry in fs::read_dir(&folder).map_err(told)? {
            let path = entry.map_err(told)?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let below = || at.iter().cloned().chain([stem.to_owned()]).collect::<Module>();
            if stem == "tests" || stem.ends_with("_tests") || stem.ends_with("harness") {
                continue;
            }
            if path.is_dir() {
                left.push((path.clone(), below()));
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).map_err(told)?;
                let is_folder = matches!(stem, "mod" | "lib" | "main");
                found.insert(if is_folder { at.clone() } else { below() }, code(&text));
            }
        }
    }
    Ok(found)
}

/// Returns the text without comments, and without the tests at the end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the sets of modules that reach each other.
fn circles(modules: &BTreeMap<Module, String>) -> BTreeSet<BTreeSet<String>> {
    let known: BTreeMap<&Module, BTreeSet<Module>> =
        modules.iter().map(|(module, text)| (module, knows(module, text, modules))).collect();
    let reached = |from: &Module| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = left.pop() {
            for next in known.get(&module).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    left.push(next.clone());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&Module, BTreeSet<Module>> =
        modules.keys().map(|module| (module, reached(module))).collect();
    let circle = |module: &Module| {
        let back = |other: &&Module| all.get(other).is_some_and(|them| them.contains(module));
        let own = all.get(module).into_iter().flatten();
        own.filter(back).map(|other| other.join("::")).collect::<BTreeSet<String>>()
    };
    modules.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

/// Returns the modules that the paths in a text lead to.
fn knows(module: &Module, text: &str, modules: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    for path in paths(text) {
        let mut parts = path.iter().map(String::as_str).peekable();
        let mut full = match parts.peek() {
            Some(&"crate") => parts.next().map(|_| Module::new()).unwrap_or_default(),
            Some(&"self") => parts.next().map(|_| module.clone()).unwrap_or_default(),
            _ => module.clone(),
        };
        while parts.next_if(|part| *part == "super").is_some() {
            full.pop();
        }
        full.extend(parts.map(str::to_owned));
        while !full.is_empty() && !modules.contains_key(&full) {
            full.pop();
        }
        if !full.is_empty() && full != *module {
            found.insert(full);
        }
    }
    found
}

/// Returns all paths of a text that begin with `crate`, `super` or `self`; a group in braces yields several.
fn paths(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            tree(&text[at..], &mut Vec::new(), &mut found);
        }
    }
    found
}

/// Reads a path, and the group after it, from the start of a text; returns the rest.
fn tree<'a>(text: &'a str, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let depth = prefix.len();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        prefix.push(rest[..end].to_owned());
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(after) if after.starts_with('{') => {
                rest = group(after, prefix, found);
                break;
            }
            Some(after) if after.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
                rest = after
            }
            _ => {
                found.push(prefix.clone());
                break;
            }
        }
    }
    prefix.truncate(depth);
    rest
}

fn group<'a>(text: &'a str, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let mut rest = text.get(1..).unwrap_or_default();
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if rest.is_empty() || rest.starts_with('}') {
            return rest.get(1..).unwrap_or_default();
        }
        let after = tree(rest, prefix, found);
        // `as Name`, `*`, or other syntax that this does not parse: skip to the next path.
        let end = after.find([',', '}']).unwrap_or(after.len());
        rest = &after[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> BTreeMap<Module, String> {
        let module = |path: &str| -> Module {
            path.split("::").filter(|p| !p.is_empty()).map(str::to_owned).collect()
        };
        files.iter().map(|(path, text)| (module(path), code(text))).collect()
    }

    #[test]
    fn paths_of_groups_found_separately() {
        let text = "use crate::{a::{B, C as D}, e};\nlet x = super::f::g(1);\nuse recrate::no;";
        let mut found: Vec<String> = paths(text).iter().map(|path| path.join("::")).collect();
        found.sort();
        assert_eq!(found, ["crate::a::B", "crate::a::C", "crate::e", "super::f::g"]);
    }

    #[test]
    fn circle_found_and_chain_accepted() {
        let line = crate_of(&[("", "pub mod a;"), ("a", "use crate::b::X;"), ("b", "")]);
        assert!(circles(&line).is_empty());
        let three = crate_of(&[
            ("a", "use crate::b::{X, Y};"),
            ("b", "use super::c;"),
            ("c", "fn f() { crate::a::g() }"),
            ("d", "use crate::a::g;"),
        ]);
        let found = circles(&three);
        assert_eq!(found.len(), 1);
        assert!(found.iter().flatten().eq(["a", "b", "c"]));
        // Comments and tests may refer to any module.
        let told = crate_of(&[
            ("a", "use crate::b::X;"),
            ("b", "// crate::a::Y\n#[cfg(test)]\nmod tests {\n    use crate::a::Y;\n}"),
        ]);
        assert!(circles(&told).is_empty());
    }
}
