//! Running programs, and counting what passed.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

/// What a command of this program can end in; an error says that it could not even be tried.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing failed.
    Passed,
    /// Something failed and has been said.
    Failed,
}

/// What passed and what failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failures: Vec<String>,
    /// What failed once and passed when it was looked at again: reported, and not a failure.
    pub(crate) unsteady: Vec<String>,
}

impl Tally {
    /// Counts one check; a failure is said at once.
    pub(crate) fn count(&mut self, name: &str, result: std::result::Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => self.fail(format!("{name}: {why}")),
        }
    }

    /// Counts a failure and says it, whole. What is run again may yet be forgotten: only [`Tally::report`] says FAILED.
    pub(crate) fn fail(&mut self, what: String) {
        println!("not ok {what}");
        self.failures.push(what);
    }

    /// Adds what another one counted; its failures have been said already.
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.unsteady.extend(other.unsteady);
    }

    /// What `run` counted. What could not even be tried is a failure of `name`, and no reason to try nothing else.
    pub(crate) fn of(name: &str, run: impl FnOnce() -> Result<Tally>) -> Tally {
        run().unwrap_or_else(|why| {
            let mut tally = Tally::default();
            tally.fail(format!("{name}: {why}"));
            tally
        })
    }

    /// What failed is called unsteady if `run` passes whole when it is tried again, unless no second try makes it good.
    pub(crate) fn once_more(self, name: &str, run: impl FnOnce() -> Result<Tally>) -> Tally {
        if self.failures.is_empty() || self.failures.iter().any(|f| is_certain(f)) {
            return self;
        }
        println!("   {name}: once more, alone");
        let again = Tally::of(name, run);
        if again.failures.is_empty() && again.passed >= self.failures.len() {
            Tally { unsteady: self.failures, ..again }
        } else {
            self
        }
    }

    /// Prints what failed, in the form of Rust's own tests for those who read it by program, and the closing line.
    pub(crate) fn report(&self, tier: Option<&str>) -> Outcome {
        for one in &self.failures {
            let (name, why) = one.split_once(": ").unwrap_or((one, ""));
            let name = name.replace(' ', "_");
            println!("test {}::{name} ... FAILED", tier.unwrap_or("xtask"));
            println!("    {}", why.lines().next().unwrap_or_default());
        }
        let tier = tier.map(|t| format!("{t}: ")).unwrap_or_default();
        for one in &self.unsteady {
            println!("UNSTEADY {tier}{}", one.lines().next().unwrap_or_default());
        }
        let unsteady = match self.unsteady.len() {
            0 => String::new(),
            n => format!(", {n} unsteady"),
        };
        println!("{tier}{} passed, {} failed{unsteady}", self.passed, self.failures.len());
        if self.failures.is_empty() { Outcome::Passed } else { Outcome::Failed }
    }
}

/// Failures that are never forgiven, by what stands in them: bytes that were not what they had to be, and what the gateway itself
/// has said or not survived.
const CERTAIN: [&str; 5] = ["differ", "Differ", "panicked", "/gateway-log: ", "/gateway-runs: "];

fn is_certain(failure: &str) -> bool {
    CERTAIN.iter().any(|words| failure.contains(words))
}

/// Does the work of all of them, in order, so many at once; what came of each, in the order in which they ended.
pub(crate) fn in_turns<T: Send, R: Send>(
    all: Vec<T>,
    at_once: usize,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    in_turns_of(all, (0..at_once).collect(), |_, one| work(one))
}

/// The same by workers that have something of their own, one thread for each.
pub(crate) fn in_turns_of<T: Send, W: Send, R: Send>(
    all: Vec<T>,
    workers: Vec<W>,
    work: impl Fn(&W, T) -> R + Sync,
) -> Vec<R> {
    let (waiting, done) = (Mutex::new(VecDeque::from(all)), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for worker in workers {
            let (waiting, done, work) = (&waiting, &done, &work);
            scope.spawn(move || {
                while let Some(one) = waiting.lock().ok().and_then(|mut w| w.pop_front()) {
                    let result = work(&worker, one);
                    if let Ok(mut done) = done.lock() {
                        done.push(result);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_default()
}

/// Leaves the processors to whoever else wants them, with all that this thread starts from now on.
pub(crate) fn lowest_priority() {
    // Linux counts by thread, and says which this is. Where it does not, the work is done all the same.
    if let Ok(thread) = std::fs::read_link("/proc/thread-self")
        && let Some(id) = thread.file_name()
    {
        let _ = output(&["renice", "-n", "19", "-p", &id.to_string_lossy()]);
    }
}

/// The workspace's folder.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Where cargo puts what it builds for this workspace.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// A command from a line of words.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// Runs it with its output shown; the error says what it was and how it ended.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let status =
        command(words).stdin(Stdio::null()).status().map_err(|e| spawn_error(words, &e))?;
    if status.success() { Ok(()) } else { Err(format!("`{}`: {status}", words.join(" "))) }
}

/// Runs it quietly and gives what it printed; the error holds what it said.
pub(crate) fn output(words: &[&str]) -> Result<String> {
    let done = command(words).stdin(Stdio::null()).output().map_err(|e| spawn_error(words, &e))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() {
        return Ok(text(&done.stdout));
    }
    Err(format!(
        "`{}`: {}: {}{}",
        words.join(" "),
        done.status,
        text(&done.stderr),
        text(&done.stdout)
    ))
}

fn spawn_error(words: &[&str], e: &std::io::Error) -> String {
    format!("cannot run `{}`: {e}", words[0])
}

/// The tracked files of the repository, or every file where there is no git: of an archive that was unpacked.
pub(crate) fn tracked_files() -> Result<Vec<String>> {
    if !Path::new(".git").exists() {
        return all_files(Path::new("."));
    }
    let listed = output(&["git", "ls-files", "--cached", "--others", "--exclude-standard"])?;
    Ok(listed.lines().filter(|f| Path::new(f).is_file()).map(str::to_owned).collect())
}

/// Every file below a folder, but for what builds and fuzzing leave.
fn all_files(folder: &Path) -> Result<Vec<String>> {
    const LEFT: [&str; 4] = ["./target", "./fuzz/target", "./fuzz/corpus", "./fuzz/artifacts"];
    let mut found = Vec::new();
    let failed = |e| format!("{}: {e}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)?.flatten() {
        let path = entry.path();
        if LEFT.iter().any(|l| path == Path::new(l)) {
            continue;
        }
        if path.is_dir() {
            found.extend(all_files(&path)?);
        } else {
            found.push(path.strip_prefix(".").unwrap_or(&path).display().to_string());
        }
    }
    Ok(found)
}
