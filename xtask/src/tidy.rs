//! Checks rules that no compiler checks: lengths, words, paths, files that no module includes.

use std::fs;
use std::path::Path;

use crate::sh::{Result, Tally, tracked_files};

/// rustfmt keeps code at 100 columns; it does not wrap comments and long strings.
const LINE_MAX: usize = 132;
const FILE_LINES_MAX: usize = 1000;
/// Longer functions are reported; above the second limit they are refused.
const FUNCTION_LINES_NOTED: usize = 70;
const FUNCTION_LINES_MAX: usize = 80;

/// Written in two pieces, so that this file does not contain them.
const WORDS: [(&str, &str); 6] = [
    ("todo", "!("),
    ("unimplemented", "!("),
    ("#[ign", "ore"),
    ("FIX", "ME"),
    ("XX", "X"),
    ("db", "g!("),
];

/// Folders that exist on one machine only.
const PATHS: [(&str, &str); 3] = [("/wo", "rk/"), ("/fa", "rm/"), ("/ro", "ot/")];

/// The attribute that permits unsafe code despite the workspace's lint.
const ALLOWED: &str = concat!("allow(", "unsafe_code)");

/// Where unsafe code is permitted; every block there explains why it is sound.
const UNSAFE_PLACES: [&str; 9] = [
    "crates/iobuf/",
    "crates/sys/dylib/",
    "crates/sys/rdma-sys/",
    "crates/sys/gss-sys/",
    "crates/sys/ceph-sys/",
    "crates/sys/domain-sys/",
    "rdma-transport/",
    "vfs/",
    "crates/smb-crypto/",
];

/// Ways to recover a poisoned lock other than the crate `mutex`.
const POISON: [&str; 3] = [
    concat!("lock().unwrap_or_else(", "PoisonError"),
    concat!("read().unwrap_or_else(", "PoisonError"),
    concat!("write().unwrap_or_else(", "PoisonError"),
];

/// Cores that take the time as an argument.
const CLOCKLESS: [&str; 5] = [
    "crates/gss-krb5/src/",
    "crates/state/src/",
    "crates/nfs-proto/src/",
    "crates/smb-proto/src/",
    "rdma-transport/src/iwarp/wire",
];

/// Checks every tracked file: one check per file.
pub(crate) fn check() -> Result<Tally> {
    let mut tally = Tally::default();
    let files = tracked_files()?;
    for file in &files {
        let Ok(text) = fs::read_to_string(file) else { continue };
        let mut problems = anywhere(file, &text);
        if has_ext(file, "rs") {
            problems.extend(rust(file, &text, &files));
        }
        if has_ext(file, "py") || file == "tests/lab/init" {
            problems.extend(long_lines(&text));
        }
        let result = if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) };
        tally.count(file, result);
    }
    Ok(tally)
}

fn has_ext(file: &str, ext: &str) -> bool {
    Path::new(file).extension().is_some_and(|e| e == ext)
}

fn anywhere(file: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if has_ext(file, "lock") {
        return problems;
    }
    for (n, line) in text.lines().enumerate() {
        for (a, b) in PATHS {
            if line.contains(&format!("{a}{b}")) {
                problems.push(format!("line {}: a path of one machine", n + 1));
            }
        }
    }
    problems
}

fn long_lines(text: &str) -> Vec<String> {
    let too_long = |(n, line): (usize, &str)| {
        let length = line.chars().count();
        (length > LINE_MAX).then(|| format!("line {}: {length} columns", n + 1))
    };
    text.lines().enumerate().filter_map(too_long).collect()
}

fn rust(file: &str, text: &str, files: &[String]) -> Vec<String> {
    let mut problems = long_lines(text);
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        problems.push(format!("{lines} lines"));
    }
    for (n, line) in text.lines().enumerate() {
        for (a, b) in WORDS {
            if line.contains(&format!("{a}{b}")) {
                problems.push(format!("line {}: {a}{b}", n + 1));
            }
        }
        let code = line.split("//").next().unwrap_or("");
        if code.contains(ALLOWED) && !UNSAFE_PLACES.iter().any(|c| file.starts_with(c)) {
            problems.push(format!("line {}: {ALLOWED} outside of {UNSAFE_PLACES:?}", n + 1));
        }
        let is_apart = file.starts_with("crates/mutex/") || file.contains("/examples/");
        if POISON.iter().any(|way| code.contains(way)) && !is_apart {
            problems.push(format!("line {}: use `mutex::locked`, `reading` or `writing`", n + 1));
        }
        let clock = code.contains("Instant::now") || code.contains("SystemTime::now");
        if clock && CLOCKLESS.iter().any(|c| file.starts_with(c)) {
            problems.push(format!("line {}: a pure core reads a clock", n + 1));
        }
    }
    problems.extend(long_functions(file, text));
    if !is_included(file, files) {
        problems.push("no `mod` names this file".into());
    }
    problems
}

/// Finds functions by rustfmt's indentation: the closing brace is in the same column as the `fn`.
fn long_functions(file: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut open: Option<(usize, usize, &str)> = None;
    for (n, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if let Some((start, at, name)) = open {
            if line.trim_end() == format!("{}}}", " ".repeat(at)) {
                let length = n - start + 1;
                if length > FUNCTION_LINES_MAX {
                    problems.push(format!("line {}: {name} has {length} lines", start + 1));
                } else if length > FUNCTION_LINES_NOTED {
                    println!("note: {file}:{}: {name} has {length} lines", start + 1);
                }
                open = None;
            } else if indent == at
                && line.starts_with(&format!("{})", " ".repeat(at)))
                && line.ends_with(';')
            {
                open = None; // a declaration over several lines
            }
        } else if let Some(name) = function_name(line.trim_start())
            && !line.trim_end().ends_with(['}', ';'])
        {
            open = Some((n, indent, name));
        }
    }
    problems
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split(' ').skip_while(|w| {
        w.starts_with("pub") || matches!(*w, "const" | "async" | "unsafe" | "in" | "super)")
    });
    (words.next()? == "fn").then(|| words.next())?.and_then(|w| w.split(['(', '<']).next())
}

/// Checks that a `mod` line names the source file; otherwise the file is never compiled.
fn is_included(file: &str, files: &[String]) -> bool {
    let path = Path::new(file);
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
    let parent = path.parent().unwrap_or(Path::new(""));
    let root = matches!(stem, "lib" | "main" | "build");
    let own_target = ["tests", "benches", "examples", "fuzz_targets", "bin"]
        .iter()
        .any(|d| parent.file_name().is_some_and(|p| p == *d));
    if root || own_target {
        return true;
    }
    let (stem, parent) = match stem {
        "mod" => (
            parent.file_name().and_then(|s| s.to_str()).unwrap_or(""),
            parent.parent().unwrap_or(Path::new("")),
        ),
        _ => (stem, parent),
    };
    let named = format!("mod {stem};");
    files.iter().filter(|f| has_ext(f, "rs")).any(|f| {
        let beside = Path::new(f).parent() == Some(parent);
        let above = Path::new(f).with_extension("") == parent;
        (beside || above) && fs::read_to_string(f).is_ok_and(|t| t.contains(&named))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_things_are_found() {
        assert_eq!(long_lines(&"x".repeat(LINE_MAX)).len(), 0);
        assert_eq!(long_lines(&"x".repeat(LINE_MAX + 1)).len(), 1);
        let body = "    let x = 1;\n".repeat(FUNCTION_LINES_MAX);
        assert_eq!(
            long_functions("f.rs", &format!("pub(crate) async fn f() {{\n{body}}}\n")).len(),
            1
        );
        assert_eq!(long_functions("f.rs", "fn short() {\n    x();\n}\n").len(), 0);
    }

    #[test]
    fn words_and_paths_are_found() {
        let word = format!("    {}{}\"later\")", WORDS[0].0, WORDS[0].1);
        assert!(!rust("x/src/lib.rs", &word, &[]).is_empty());
        let path = format!("see {}{}notes", PATHS[0].0, PATHS[0].1);
        assert!(!anywhere("README.md", &path).is_empty());
        assert!(anywhere("README.md", "a framework/of paths").is_empty());
    }

    #[test]
    fn locks_are_opened_in_one_way() {
        let lock = format!("    self.0.{}::into_inner)", POISON[0]);
        assert!(!rust("vfs/src/lib.rs", &lock, &[]).is_empty());
        assert!(
            rust("crates/mutex/src/lib.rs", &lock, &["crates/mutex/src/lib.rs".into()]).is_empty()
        );
    }

    #[test]
    fn unsafe_and_clocks_have_their_places() {
        let allowed = format!("#![{ALLOWED}]");
        assert!(!rust("crates/state/src/lib.rs", &allowed, &[]).is_empty());
        assert!(rust("crates/iobuf/src/lib.rs", &allowed, &[]).is_empty());
        assert!(!rust("crates/state/src/lib.rs", "let now = Instant::now();", &[]).is_empty());
    }
}
