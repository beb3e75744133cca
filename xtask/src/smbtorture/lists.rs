//! The lists in `tests/smbtorture`: one name a line; `#` begins a comment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::sh::Result;

const PASSES: &str = "tests/smbtorture/passes.txt";
const KNOWN: &str = "tests/smbtorture/known.txt";
/// Tests that pass in other programs of the tier, which have what the tests need; those programs read this list.
const ELSEWHERE: &str = "tests/smbtorture/elsewhere.txt";
/// Programs that read the list of tests that pass elsewhere.
const PROGRAMS: [&str; 2] = ["ceph", "kerberos"];
/// Tests that pass on local disks but not on CephFS.
const CEPH: &str = "tests/smbtorture/ceph.txt";
/// In front of a name or prefix of the second list: not even run.
const NOT_RUN: &str = "- ";

/// The tests named in the lists.
#[derive(Debug, Default)]
pub(super) struct Lists {
    head: String,
    passes: BTreeSet<String>,
    known: BTreeMap<String, String>,
    not_run: Vec<String>,
    /// The program that runs each of these tests.
    elsewhere: BTreeMap<String, String>,
}

impl Lists {
    pub(super) fn read() -> Result<Lists> {
        let text = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        Lists::parse(&text(PASSES)?, &text(KNOWN)?)?.and_elsewhere(&text(ELSEWHERE)?)
    }

    fn and_elsewhere(mut self, list: &str) -> Result<Lists> {
        for line in lines(list) {
            let Some((name, program)) =
                line.split_once("  ").filter(|(_, program)| PROGRAMS.contains(program))
            else {
                return Err(format!("{ELSEWHERE}: {line} has no program"));
            };
            if self.passes(name) || self.is_known(name) {
                return Err(format!("{ELSEWHERE}: {name} is in another list"));
            }
            self.elsewhere.insert(name.into(), program.into());
        }
        Ok(self)
    }

    /// Like [`Lists::read`], for shares in CephFS.
    pub(super) fn read_for_ceph() -> Result<Lists> {
        let text = fs::read_to_string(CEPH).map_err(|e| format!("{CEPH}: {e}"))?;
        Lists::read()?.without(&text)
    }

    /// Moves the tests named in `known` from the passes to the known failures.
    fn without(mut self, known: &str) -> Result<Lists> {
        for line in lines(known) {
            let Some((name, why)) = line.split_once("  ") else {
                return Err(format!("{CEPH}: {line} has no reason"));
            };
            if !self.passes.remove(name) {
                return Err(format!("{CEPH}: {name} is not in {PASSES}"));
            }
            self.known.insert(name.into(), why.trim().into());
        }
        Ok(self)
    }

    fn parse(passes: &str, known: &str) -> Result<Lists> {
        let mut lists = Lists::default();
        let head = passes.lines().take_while(|l| l.starts_with('#'));
        lists.head = head.map(|l| format!("{l}\n")).collect();
        lists.passes.extend(lines(passes).map(str::to_owned));
        for line in lines(known) {
            let (run, line) = match line.strip_prefix(NOT_RUN) {
                Some(rest) => (false, rest),
                None => (true, line),
            };
            // Names may contain single spaces; two spaces end a name.
            let (name, why) = line.split_once("  ").unwrap_or((line, ""));
            let (name, why) = (name.trim(), why.trim());
            if why.is_empty() {
                return Err(format!("{KNOWN}: {name} has no reason"));
            }
            if lists.passes.contains(name) {
                return Err(format!("{name} is in both lists"));
            }
            if run {
                lists.known.insert(name.into(), why.into());
            } else {
                lists.not_run.push(name.into());
            }
        }
        Ok(lists)
    }

    /// Returns true if the test is run: a name of `not run` covers all names that begin with it.
    pub(super) fn is_run(&self, name: &str) -> bool {
        let is_elsewhere = self.elsewhere.contains_key(name);
        !is_elsewhere && !self.not_run.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Returns how many tests pass in each other program.
    pub(super) fn elsewhere(&self) -> BTreeMap<&str, usize> {
        let mut of = BTreeMap::new();
        self.elsewhere.values().for_each(|program| *of.entry(program.as_str()).or_insert(0) += 1);
        of
    }

    pub(super) fn passes(&self, name: &str) -> bool {
        self.passes.contains(name)
    }

    pub(super) fn is_known(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Returns listed names that the suite does not have, also of tests that are not run.
    pub(super) fn without_a_test<'a>(&'a self, all: &'a [String]) -> impl Iterator<Item = &'a str> {
        let named = self.passes.iter().chain(self.known.keys()).chain(self.elsewhere.keys());
        let named = named.filter(|name| !all.contains(*name));
        let begins = |prefix: &&String| !all.iter().any(|name| name.starts_with(prefix.as_str()));
        named.chain(self.not_run.iter().filter(begins)).map(String::as_str)
    }

    /// Adds names to the passes, and removes them from the others.
    pub(super) fn add(&self, new: &[String]) -> Result<()> {
        let all: BTreeSet<&String> = self.passes.iter().chain(new).collect();
        let names: String = all.iter().map(|name| format!("{name}\n")).collect();
        let failed = |path: &'static str| move |e| format!("{path}: {e}");
        fs::write(PASSES, format!("{}{names}", self.head)).map_err(failed(PASSES))?;
        let known = fs::read_to_string(KNOWN).map_err(failed(KNOWN))?;
        let is_new = |line: &str| new.iter().any(|name| line.split("  ").next() == Some(name));
        let kept: String = known.lines().filter(|l| !is_new(l)).map(|l| format!("{l}\n")).collect();
        fs::write(KNOWN, kept).map_err(failed(KNOWN))
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim_end).filter(|l| !l.is_empty() && !l.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_reasons_are_read() {
        let known = "# head\nsmb2.b.with a space  it cannot\n- smb2.bench.  figures\n";
        let lists = Lists::parse("# head\nsmb2.a\n", known).unwrap();
        assert!(lists.passes("smb2.a") && !lists.passes("smb2.b"));
        assert!(lists.is_known("smb2.b.with a space"));
        assert!(!lists.is_run("smb2.bench.echo") && lists.is_run("smb2.a"));
        assert_eq!(lists.head, "# head\n");
    }

    #[test]
    fn another_file_system_has_fewer_passes() {
        let local = || Lists::parse("smb2.a\nsmb2.b c\n", "smb2.d  why\n").unwrap();
        let there = local().without("# head\nsmb2.b c  no holes\n").unwrap();
        assert!(there.passes("smb2.a") && !there.passes("smb2.b c"));
        assert!(there.is_known("smb2.b c") && there.is_known("smb2.d"));
        assert!(local().without("smb2.a\n").is_err(), "no reason");
        assert!(local().without("smb2.d  why\n").is_err(), "passes nowhere");
    }

    #[test]
    fn tests_passing_elsewhere_not_run() {
        let local = || Lists::parse("smb2.a\n", "smb2.d  why\n").unwrap();
        let lists = local().and_elsewhere("# head\nsmb2.b c  kerberos\nsmb2.b  ceph\n").unwrap();
        assert!(!lists.is_run("smb2.b c") && !lists.is_run("smb2.b") && lists.is_run("smb2.b d"));
        assert_eq!(lists.elsewhere(), BTreeMap::from([("ceph", 1), ("kerberos", 1)]));
        for bad in ["smb2.b\n", "smb2.b  nonsense\n"] {
            assert!(local().and_elsewhere(bad).is_err(), "no program");
        }
        assert!(local().and_elsewhere("smb2.a  ceph\n").is_err(), "passes here");
        assert!(local().and_elsewhere("smb2.d  ceph\n").is_err(), "is known not to");
    }

    #[test]
    fn known_failure_without_reason_refused() {
        assert!(Lists::parse("", "smb2.a\n").is_err());
        assert!(Lists::parse("smb2.a\n", "smb2.a  both\n").is_err());
    }
}
