//! Finds dependencies that no file uses: they cost build time and mislead readers.

use std::fs;
use std::path::Path;

use crate::sh::Result;

/// Packages whose library has another name.
const LIBRARIES: [(&str, &str); 1] = [("md-5", "md5")];

/// Folders where a crate may use the dependencies of its tests.
const OF_TESTS: [&str; 5] = ["src", "tests", "examples", "benches", "device"];

/// Refuses a dependency of the crate in this folder that its files do not name.
pub(super) fn check(folder: &str, manifest: &str) -> Result<()> {
    // The crate of the tests consists of tests only.
    let of_all = if folder == "tests" { &OF_TESTS[..] } else { &["src"][..] };
    let (code, tests) = (text(folder, of_all)?, text(folder, &OF_TESTS)?);
    for (name, is_of_tests) in dependencies(manifest) {
        let library = LIBRARIES.iter().find(|(package, _)| *package == name);
        let library = library.map_or_else(|| name.replace('-', "_"), |(_, l)| (*l).to_owned());
        let used = if is_of_tests { names(&tests, &library) } else { names(&code, &library) };
        if !used {
            let section = if is_of_tests { "dev-dependencies" } else { "dependencies" };
            return Err(format!("no file uses {name} of its {section}"));
        }
    }
    Ok(())
}

/// Returns the text of the files in these folders, without comments.
fn text(folder: &str, parts: &[&str]) -> Result<String> {
    let mut all = String::new();
    let mut left: Vec<_> = parts.iter().map(|part| Path::new(folder).join(part)).collect();
    while let Some(path) = left.pop() {
        let told = |e| format!("{}: {e}", path.display());
        if path.is_dir() {
            for entry in fs::read_dir(&path).map_err(told)? {
                left.push(entry.map_err(told)?.path());
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = fs::read_to_string(&path).map_err(told)?;
            for line in text.lines() {
                all.push_str(line.split("//").next().unwrap_or_default());
                all.push('\n');
            }
        }
    }
    Ok(all)
}

/// Checks whether code names this library: in a path, in a `use`, or by a macro.
fn names(code: &str, library: &str) -> bool {
    code.match_indices(library).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = &code[at + library.len()..];
        let is_word = before.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        is_word && ["::", ";", " as ", "!"].iter().any(|sign| after.starts_with(sign))
    })
}

/// Returns the names of dependencies, and whether only tests use them.
fn dependencies(manifest: &str) -> Vec<(String, bool)> {
    let mut section = None;
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_end_matches(']');
            section = name.ends_with("dependencies").then(|| name.contains("dev-dependencies"));
        } else if let Some(is_of_tests) = section
            && !line.starts_with('#')
            && let Some(name) = line.split(['=', '.', ' ']).next().filter(|name| !name.is_empty())
        {
            found.push((name.to_owned(), is_of_tests));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_with_their_section() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\na-b.workspace = true\n# c = \"1\"\n\
                        [dev-dependencies]\nd = { version = \"1\" }\n[[test]]\nname = \"t\"\n";
        let found = dependencies(manifest);
        assert_eq!(found, [("a-b".to_owned(), false), ("d".to_owned(), true)]);
    }

    #[test]
    fn library_name_matches_whole_words() {
        assert!(names("use bytes::Bytes;", "bytes"));
        assert!(names("use smb_crypto as crypto;", "smb_crypto"));
        assert!(names("tracing!()", "tracing"));
        assert!(!names("let bytes = 1; as_bytes::x()", "bytes::"));
        assert!(!names("let bytes = kilobytes::of(1);", "bytes"));
    }
}
