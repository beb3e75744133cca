//! Runs the test programs that cargo builds, several at once.
//!
//! *Operation.* `cargo test` runs one program after the other, and most of them wait for clocks and peers: on two processors it
//! used a quarter of the CPU time. Cargo therefore only builds and lists the programs, and this module runs them, each in the
//! folder of its package like cargo. No test is repeated: a test that fails has failed.

use std::collections::BTreeSet;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::available_parallelism;

use serde_json::Value;

use crate::sh::{Result, Tally, command, in_turns, output, target_dir};

/// Programs that run at once, beyond one for each processor.
const MORE: usize = 1;
/// Time limit of one program; the longest takes half a minute when it runs separately.
const SECONDS_MAX: &str = "600";
/// Exit codes of `timeout` after it ended the program.
const TIMED_OUT: [Option<i32>; 2] = [Some(124), Some(137)];
/// The longest programs, which begin first.
const LONG: [&str; 8] =
    ["silent", "authority", "transforms", "crash", "soak", "import_corpus", "coherence", "tls"];

/// One program of tests.
#[derive(Debug)]
struct Program {
    package: String,
    target: String,
    path: PathBuf,
    /// The folder where cargo would run it.
    dir: PathBuf,
}

/// Builds and runs all tests of these packages, and the examples in their documentation.
pub(crate) fn cargo_test(packages: &[&str]) -> Result<Tally> {
    let mut programs = built(packages)?;
    programs.sort_by_key(|p| LONG.iter().position(|l| *l == p.target).unwrap_or(LONG.len()));
    let processors = available_parallelism().map_or(1, usize::from);
    let mut tally = Tally::default();
    let jobs = iter::once(None).chain(programs.into_iter().map(Some)).collect();
    let job = |program: Option<Program>| match program {
        Some(program) => run(&[], &program),
        None => documented(packages),
    };
    for one in in_turns(jobs, processors + MORE, job) {
        tally.add(one);
    }
    Ok(tally)
}

/// Runs one program of tests, with these variables of the environment (`NAME=VALUE`).
pub(crate) fn one_test(package: &str, test: &str, environment: &[&str]) -> Result<Tally> {
    Ok(run(environment, &find(package, test)?))
}

/// Builds one program of tests and returns its path.
pub(crate) fn test_program(package: &str, test: &str) -> Result<PathBuf> {
    Ok(find(package, test)?.path)
}

/// Builds the whole workspace's tests of this name, because cargo chooses the features of dependencies by the requested packages:
/// for one package it would build most of them again.
fn find(package: &str, test: &str) -> Result<Program> {
    let all = built(&["--workspace", "--test", test])?;
    let found = all.into_iter().find(|program| program.package == package);
    found.ok_or_else(|| format!("{package} has no tests {test}"))
}

/// Returns the test programs that `cargo test` runs only on request, because they need other programs, or a device.
pub(crate) fn built_by_name_alone() -> Result<BTreeSet<String>> {
    let metadata = output(&["cargo", "metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|e| e.to_string())?;
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let targets = list(&metadata, "packages").into_iter().flat_map(|p| list(&p, "targets"));
    let named = targets.filter(|t| t["kind"][0] == "test" && t["test"] == false);
    Ok(named.filter_map(|t| t["name"].as_str().map(str::to_owned)).collect())
}

/// Builds one example, and returns its path; with the whole workspace for the same reason as [`find`].
pub(crate) fn example(name: &str) -> Result<PathBuf> {
    output(&["cargo", "build", "--quiet", "--workspace", "--example", name])?;
    Ok(target_dir().join("debug/examples").join(name))
}

fn built(selection: &[&str]) -> Result<Vec<Program>> {
    let build = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics"];
    let words = [&build[..], selection].concat();
    let done = command(&words).stdin(Stdio::null()).output();
    let done = done.map_err(|e| format!("cannot run cargo: {e}"))?;
    if !done.status.success() {
        println!("{}", String::from_utf8_lossy(&done.stderr));
        return Err(format!("`{}`: {}", words.join(" "), done.status));
    }
    let programs = programs_of(&String::from_utf8_lossy(&done.stdout));
    if programs.is_empty() {
        return Err(format!("`{}` built no test", words.join(" ")));
    }
    Ok(programs)
}

/// Runs the examples in the documentation of those packages.
fn documented(packages: &[&str]) -> Tally {
    let words = [&["cargo", "test", "--doc", "--no-fail-fast"], packages].concat();
    judge("documentation", &words, Path::new("."))
}

fn run(environment: &[&str], program: &Program) -> Tally {
    let path = program.path.display().to_string();
    let words = [&["env"], environment, &["timeout", "-k", "5", SECONDS_MAX, &path]].concat();
    judge(&format!("{} {}", program.package, program.target), &words, &program.dir)
}

/// Runs it and counts by libtest's lines. The complete output of a failure is shown.
fn judge(name: &str, words: &[&str], dir: &Path) -> Tally {
    let mut tally = Tally::default();
    let done = match command(words).current_dir(dir).stdin(Stdio::null()).output() {
        Ok(done) => done,
        Err(e) => {
            tally.fail(format!("{name}: cannot run `{}`: {e}", words.join(" ")));
            return tally;
        }
    };
    let out = String::from_utf8_lossy(&done.stdout);
    tally = count_tests(&out);
    if done.status.success() {
        return tally;
    }
    println!("{out}{}", String::from_utf8_lossy(&done.stderr));
    if TIMED_OUT.contains(&done.status.code()) {
        tally.fail(format!("{name}: did not end within {SECONDS_MAX} s"));
    } else if tally.failures.is_empty() {
        tally.fail(format!("{name}: {}", done.status));
    }
    tally
}

/// Returns the test programs named in cargo's messages.
fn programs_of(messages: &str) -> Vec<Program> {
    let read = |line: &str| -> Option<Program> {
        let message: Value = serde_json::from_str(line).ok()?;
        let path = message["executable"].as_str()?;
        if message["profile"]["test"] != true {
            return None;
        }
        let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
        Some(Program {
            package: package_of(message["package_id"].as_str()?).to_owned(),
            target: message["target"]["name"].as_str()?.to_owned(),
            path: path.into(),
            dir: dir.to_owned(),
        })
    };
    messages.lines().filter_map(read).collect()
}

/// Returns the package of `path+file:///FOLDER/vfs#0.1.0`, or of `path+file:///FOLDER/tests#headgate-tests@0.1.0` when the folder
/// has another name.
fn package_of(id: &str) -> &str {
    let (path, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or_default(),
    }
}

/// Reads libtest's lines: `test NAME ... ok`, `test NAME ... FAILED`.
fn count_tests(out: &str) -> Tally {
    let mut tally = Tally::default();
    for line in out.lines().filter_map(|l| l.strip_prefix("test ")) {
        if line.ends_with(" ... ok") {
            tally.passed += 1;
        } else if let Some(name) = line.strip_suffix(" ... FAILED") {
            tally.failures.push(name.to_owned());
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtest_lines_are_counted() {
        let out = "running 3 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d - should panic ... ok\n\
                   test result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        let tally = count_tests(out);
        assert_eq!((tally.passed, tally.failures), (2, vec!["c".to_owned()]));
    }

    #[test]
    fn only_programs_of_tests_are_run() {
        let of = |executable: &str, test: bool| {
            let package =
                r#""package_id":"path+file:///w/vfs#0.1.0","manifest_path":"/w/vfs/Cargo.toml""#;
            let target = r#""reason":"compiler-artifact","target":{"name":"local"}"#;
            format!(
                r#"{{{package},{target},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let messages =
            [of("null", true), of("\"/t/headgate\"", false), of("\"/t/local-1\"", true)].join("\n");
        let programs = programs_of(&messages);
        assert_eq!(programs.len(), 1);
        let Program { package, target, path, dir } = &programs[0];
        assert_eq!((&package[..], &target[..]), ("vfs", "local"));
        assert_eq!((path.as_path(), dir.as_path()), (Path::new("/t/local-1"), Path::new("/w/vfs")));
    }

    #[test]
    fn package_name_from_folder_or_fragment() {
        assert_eq!(package_of("path+file:///w/tests#headgate-tests@0.1.0"), "headgate-tests");
        assert_eq!(package_of("path+file:///w/vfs#0.1.0"), "vfs");
    }

    #[test]
    fn program_ended_badly_has_failed() {
        let here = Path::new(".");
        assert_eq!(judge("x", &["sh", "-c", "echo test a ... ok"], here).passed, 1);
        let died = judge("x", &["sh", "-c", "echo test a ... ok; exit 3"], here);
        assert_eq!((died.passed, died.failures.len()), (1, 1));
        let failed = judge("x", &["sh", "-c", "echo test a ... FAILED; exit 101"], here);
        assert_eq!(failed.failures, ["a"]);
        assert_eq!(judge("x", &["/no/such/program"], here).failures.len(), 1);
    }
}
