//! Programs that a node runs for a service: fences, attachments, changes of addresses.
//!
//! *Operation.* Each program is a separate process group, because it is usually a script that starts the programs that do the work.
//! It has exited on its own when no process holds its standard error any more. If it is killed, the whole group must be gone: a
//! process that the kernel cannot end, because its storage hangs, survives every signal.
//!
//! *Memory.* Keeps the end of its standard error ([`SAID_MAX`]); discards its standard output.
//!
//! *Errors.* Dropping a running program kills its whole group with SIGKILL.

use std::fs;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

/// Time limit for a fence, an attachment or a change of addresses, and for a program to end after SIGKILL.
pub(crate) const COMMAND_MAX: Duration = Duration::from_secs(30);
/// Maximum length of the output that is kept, in bytes.
const SAID_MAX: usize = 4096;
/// Interval at which a group is checked for its end.
const LOOK: Duration = Duration::from_millis(20);

/// The environment variables of programs.
#[derive(Clone, Debug)]
pub(crate) struct ProgramEnvironment(pub(crate) Vec<(&'static str, String)>);

pub(crate) fn command(words: &[String], told: &ProgramEnvironment) -> io::Result<Command> {
    let (program, args) =
        words.split_first().ok_or_else(|| io::Error::other("no program is named"))?;
    let mut command = Command::new(program);
    command.args(args).envs(told.0.iter().map(|(k, v)| (*k, v))).stdin(Stdio::null());
    command.kill_on_drop(true);
    Ok(command)
}

/// Runs a program, which must exit successfully.
pub(crate) async fn run(words: &[String], told: &ProgramEnvironment) -> Result<(), String> {
    Program::start(words, told).ended_in_time().await?
}

/// A started program.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its command, for messages.
    shown: String,
    state: State,
    said: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// The program file may be on hanging storage, which would block a thread that all services share.
    Starting(JoinHandle<io::Result<Child>>),
    /// Not reaped before the whole group has ended: until then no other process can get its number.
    Running(Box<Child>, ChildStderr),
    Ended,
}

impl Program {
    pub(crate) fn start(words: &[String], told: &ProgramEnvironment) -> Self {
        let command = command(words, told).map(|mut command| {
            command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
            command
        });
        let state = State::Starting(spawn_blocking(move || command?.spawn()));
        Self { shown: words.join(" "), state, said: Vec::new() }
    }

    /// Waits until it exits; the inner result is whether it succeeded.
    ///
    /// # Errors
    ///
    /// It has not exited in time and may still run.
    pub(crate) async fn ended_in_time(&mut self) -> Result<Result<(), String>, String> {
        match timeout(COMMAND_MAX, self.ended()).await {
            Ok(ended) => Ok(ended),
            Err(_) => Err(format!("`{}` took longer than {COMMAND_MAX:?}", self.shown)),
        }
    }

    /// Waits until it exits; may be called again if the wait was cancelled.
    async fn ended(&mut self) -> Result<(), String> {
        let failed = |shown: &str, e: io::Error| Err(format!("`{shown}`: {e}"));
        if let State::Starting(started) = &mut self.state {
            let started = started.await.map_err(io::Error::other).flatten();
            self.state = State::Ended;
            let with_its_words = started.and_then(|mut child| {
                let said =
                    child.stderr.take().ok_or_else(|| io::Error::other("no standard error"))?;
                Ok(State::Running(Box::new(child), said))
            });
            match with_its_words {
                Ok(running) => self.state = running,
                Err(e) => return failed(&self.shown, e),
            }
        }
        let State::Running(child, from) = &mut self.state else { return Ok(()) };
        let mut more = [0; SAID_MAX];
        loop {
            match from.read(&mut more).await {
                Ok(0) => break,
                Ok(n) => self.said.extend_from_slice(&more[..n]),
                Err(e) => return failed(&self.shown, e),
            }
            self.said.drain(..self.said.len().saturating_sub(SAID_MAX));
        }
        let status = child.wait().await;
        self.state = State::Ended;
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                let said = String::from_utf8_lossy(&self.said);
                let said = said.trim().lines().next_back().unwrap_or("");
                Err(format!("`{}` ended with {status}: {said}", self.shown))
            }
            Err(e) => failed(&self.shown, e),
        }
    }

    /// Kills it. When this returns it is gone, or the kernel cannot end it.
    pub(crate) async fn kill(&mut self) -> Result<(), String> {
        let ended = async {
            if let State::Starting(started) = &mut self.state {
                match started.await {
                    Ok(Ok(mut child)) => {
                        let said = child.stderr.take();
                        self.state =
                            said.map_or(State::Ended, |said| State::Running(Box::new(child), said));
                    }
                    Ok(Err(_)) | Err(_) => self.state = State::Ended,
                }
            }
            self.signal();
            while self.lives().await {
                sleep(LOOK).await;
            }
            // Its success does not matter.
            let _ = self.ended().await;
        };
        let ended = timeout(COMMAND_MAX, ended).await.is_ok();
        if ended {
            return Ok(());
        }
        Err(format!("`{}` does not end within {COMMAND_MAX:?} after SIGKILL", self.shown))
    }

    fn signal(&self) {
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Returns its process group, until it was reaped.
    fn group(&self) -> Option<Pid> {
        let State::Running(child, _) = &self.state else { return None };
        child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// Checks whether a process of its group lives. If this cannot be determined, assumes that one does.
    async fn lives(&self) -> bool {
        let Some(group) = self.group() else { return false };
        let looked = spawn_blocking(move || lives(group.as_raw_nonzero().get()));
        !matches!(looked.await, Ok(Ok(false)))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal();
    }
}

/// Reads `/proc/PID/stat` (proc(5)): state, parent and process group follow the name in parentheses. A process whose first thread
/// has exited is reported as a zombie, although its other threads may live.
fn lives(group: i32) -> io::Result<bool> {
    let group = group.to_string();
    for process in fs::read_dir("/proc")? {
        // It may exit meanwhile.
        let Ok(tasks) = fs::read_dir(process?.path().join("task")) else { continue };
        for task in tasks {
            let Ok(stat) = task.and_then(|task| fs::read_to_string(task.path().join("stat")))
            else {
                continue;
            };
            let mut words = stat.rsplit(") ").next().unwrap_or_default().split(' ');
            let (state, of) = (words.next(), words.nth(1));
            if of == Some(&*group) && !matches!(state, Some("Z" | "X")) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Program {
        Program::start(&["sh", "-c", text].map(str::to_owned), &ProgramEnvironment(Vec::new()))
    }

    #[tokio::test]
    async fn failure_reports_last_output_line() {
        let noisy = "yes 'a line of no use' | head -n 100000 >&2; yes | head -n 100000; echo because >&2; exit 3";
        let why = script(noisy).ended().await.unwrap_err();
        assert!(why.ends_with("ended with exit status: 3: because"), "{why}");
        let mut program = script("exit 0");
        assert_eq!((program.ended().await, program.ended().await), (Ok(()), Ok(())));
    }

    #[tokio::test]
    async fn killed_program_ends_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let begun = dir.path().join("begun");
        let text = format!("(touch {}; sleep 1000) & wait", begun.display());
        let mut program = script(&text);
        while !begun.exists() {
            assert!(timeout(Duration::from_millis(10), program.ended()).await.is_err());
        }
        program.kill().await.unwrap();
    }

    #[tokio::test]
    async fn detached_child_keeps_group_alive() {
        let mut program = script("exec 2>/dev/null; sleep 1000 & wait");
        while !program.lives().await {
            assert!(timeout(LOOK, program.ended()).await.is_err());
        }
        let group = program.group().unwrap().as_raw_nonzero().get();
        program.kill().await.unwrap();
        assert!(!lives(group).unwrap());
    }

    #[tokio::test]
    async fn unkillable_program_is_reported_running() {
        let dir = tempfile::tempdir().unwrap();
        let [begun, end] = ["begun", "end"].map(|name| dir.path().join(name));
        // In a separate group, as if the kernel could not end it.
        let inner = format!(
            "touch {}; until [ -e {} ]; do sleep 0.01; done",
            begun.display(),
            end.display()
        );
        let mut program = script(&format!("setsid sh -c '{inner}'"));
        while !begun.exists() {
            assert!(timeout(Duration::from_millis(10), program.ended()).await.is_err());
        }
        program.signal();
        assert!(timeout(Duration::from_millis(100), program.ended()).await.is_err());
        std::fs::write(end, "").unwrap();
        program.kill().await.unwrap();
    }
}
