//! Runs programs, and counts the checks that passed.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

/// The result of a command of this program; an error means that it could not be started at all.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All checks passed.
    Passed,
    /// A check failed, and the failure was printed.
    Failed,
}

/// The passed and failed checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failures: Vec<String>,
    /// Checks that failed once and passed in a repetition: reported, but not failures.
    pub(crate) unsteady: Vec<String>,
}

impl Tally {
    /// Counts one check; a failure is printed at once.
    pub(crate) fn count(&mut self, name: &str, result: std::result::Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => self.fail(format!("{name}: {why}")),
        }
    }

    /// Counts a failure and prints its complete text. A repetition may yet remove it: only [`Tally::report`] prints FAILED.
    pub(crate) fn fail(&mut self, what: String) {
        println!("not ok {what}");
        self.failures.push(what);
    }

    /// Adds another tally, whose failures were printed before.
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.unsteady.extend(other.unsteady);
    }

    /// Returns the tally of `run`. An error counts as a failure of `name`, so that the other checks still run.
    pub(crate) fn of(name: &str, run: impl FnOnce() -> Result<Tally>) -> Tally {
        run().unwrap_or_else(|why| {
            let mut tally = Tally::default();
            tally.fail(format!("{name}: {why}"));
            tally
        })
    }

    /// Repeats a failed `run`: if it then passes completely, the failures count as unsteady, except those that [`is_certain`]
    /// names.
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

    /// Prints the failures, in the form of Rust's own tests for programs that read them, and the closing line.
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

/// Failures that a repetition never excuses, by their text: wrong bytes, and messages or crashes of the gateway itself.
const CERTAIN: [&str; 5] = ["differ", "Differ", "panicked", "/gateway-log: ", "/gateway-runs: "];

fn is_certain(failure: &str) -> bool {
    CERTAIN.iter().any(|words| failure.contains(words))
}

/// Runs the work for all of them in order, this many at once; returns the results in the order in which they ended.
pub(crate) fn in_turns<T: Send, R: Send>(
    all: Vec<T>,
    at_once: usize,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    in_turns_of(all, (0..at_once).collect(), |_, one| work(one))
}

/// Like [`in_turns`], with one thread for each worker, and a value that belongs to the worker.
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

/// Gives this thread, and the processes that it starts from now on, the lowest priority.
pub(crate) fn lowest_priority() {
    // Linux sets priorities by thread, and this link names the current one. If the link is missing, the work is done nevertheless.
    if let Ok(thread) = std::fs::read_link("/proc/thread-self")
        && let Some(id) = thread.file_name()
    {
        let _ = output(&["renice", "-n", "19", "-p", &id.to_string_lossy()]);
    }
}

/// Returns the workspace's folder.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Returns cargo's target folder of this workspace.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Builds a command from a list of words.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// Runs a command with its output shown; the error names the command and its exit status.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let status =
        command(words).stdin(Stdio::null()).status().map_err(|e| spawn_error(words, &e))?;
    if status.success() { Ok(()) } else { Err(format!("`{}`: {status}", words.join(" "))) }
}

/// Runs a command quietly and returns its output; the error contains its messages.
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

/// Returns the tracked files of the repository, or every file if there is no git: in an unpacked archive.
pub(crate) fn tracked_files() -> Result<Vec<String>> {
    if !Path::new(".git").exists() {
        return all_files(Path::new("."));
    }
    let listed = output(&["git", "ls-files", "--cached", "--others", "--exclude-standard"])?;
    Ok(listed.lines().filter(|f| Path::new(f).is_file()).map(str::to_owned).collect())
}

/// Returns every file below a folder, except the output of builds and fuzzing.
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
