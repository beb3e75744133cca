//! Programs that a node runs for a service: fences, attachments, changes of addresses.
//!
//! *Operation.* Each is a process group of its own, since it is a script as a rule and its work is done by what it starts. It has
//! ended by itself when nobody holds its standard error any more. Where it is ended, nothing of its group may live either: a
//! process that the kernel does not let go of, since its storage hangs, lives on whatever signal it was sent.
//!
//! *Memory.* Of its standard error the end is kept ([`SAID_MAX`]); its standard output goes nowhere.
//!
//! *Errors.* One that is dropped before its end is ended by SIGKILL, all of its group.

use std::fs;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

/// How long a fence, an attachment or a change of addresses may take, and how long it may take to end by SIGKILL.
pub(crate) const COMMAND_MAX: Duration = Duration::from_secs(30);
/// How much of what a program says is kept, in bytes.
const SAID_MAX: usize = 4096;
/// Between looks whether a group has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What programs are told in their environment.
#[derive(Clone, Debug)]
pub(crate) struct Told(pub(crate) Vec<(&'static str, String)>);

pub(crate) fn command(words: &[String], told: &Told) -> io::Result<Command> {
    let (program, args) =
        words.split_first().ok_or_else(|| io::Error::other("no program is named"))?;
    let mut command = Command::new(program);
    command.args(args).envs(told.0.iter().map(|(k, v)| (*k, v))).stdin(Stdio::null());
    command.kill_on_drop(true);
    Ok(command)
}

/// Runs a program to its end, which must be a good one.
pub(crate) async fn run(words: &[String], told: &Told) -> Result<(), String> {
    Program::start(words, told).ended_in_time().await?
}

/// A program that was started.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its command, for people.
    shown: String,
    state: State,
    said: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// Its file may lie on storage that hangs, which would hold a thread of all services up.
    Starting(JoinHandle<io::Result<Child>>),
    /// Not waited for before all of it has ended: until then no other process can have its number.
    Running(Box<Child>, ChildStderr),
    Ended,
}

impl Program {
    pub(crate) fn start(words: &[String], told: &Told) -> Self {
        let command = command(words, told).map(|mut command| {
            command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
            command
        });
        let state = State::Starting(spawn_blocking(move || command?.spawn()));
        Self { shown: words.join(" "), state, said: Vec::new() }
    }

    /// Waits for its end; inside, whether that was a good one.
    ///
    /// # Errors
    ///
    /// It may still run: it has not ended in time.
    pub(crate) async fn ended_in_time(&mut self) -> Result<Result<(), String>, String> {
        match timeout(COMMAND_MAX, self.ended()).await {
            Ok(ended) => Ok(ended),
            Err(_) => Err(format!("`{}` took longer than {COMMAND_MAX:?}", self.shown)),
        }
    }

    /// Waits for its end, once; it may be asked again where that was broken off.
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

    /// Ends it at once. It is gone when this returns, or the kernel does not let go of it.
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
            // Whether it was a good one is of no concern.
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

    /// While it has not been waited for.
    fn group(&self) -> Option<Pid> {
        let State::Running(child, _) = &self.state else { return None };
        child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// A process of its group has not ended. What cannot be found out is not taken for an end.
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

/// By `/proc/PID/stat` (proc(5)): state, parent and process group follow the name, which is in brackets. A process whose first
/// thread has ended is a zombie to its state, and its other threads are not.
fn lives(group: i32) -> io::Result<bool> {
    let group = group.to_string();
    for process in fs::read_dir("/proc")? {
        // It may end meanwhile.
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
        Program::start(&["sh", "-c", text].map(str::to_owned), &Told(Vec::new()))
    }

    #[tokio::test]
    async fn the_last_line_says_why_it_failed_however_much_it_says() {
        let noisy = "yes 'a line of no use' | head -n 100000 >&2; yes | head -n 100000; echo because >&2; exit 3";
        let why = script(noisy).ended().await.unwrap_err();
        assert!(why.ends_with("ended with exit status: 3: because"), "{why}");
        let mut program = script("exit 0");
        assert_eq!((program.ended().await, program.ended().await), (Ok(()), Ok(())));
    }

    #[tokio::test]
    async fn what_it_started_ends_with_it_and_is_waited_for() {
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
    async fn a_group_lives_though_it_holds_nothing_of_the_program() {
        let mut program = script("exec 2>/dev/null; sleep 1000 & wait");
        while !program.lives().await {
            assert!(timeout(LOOK, program.ended()).await.is_err());
        }
        let group = program.group().unwrap().as_raw_nonzero().get();
        program.kill().await.unwrap();
        assert!(!lives(group).unwrap());
    }

    #[tokio::test]
    async fn what_does_not_end_is_not_said_to_have_ended() {
        let dir = tempfile::tempdir().unwrap();
        let [begun, end] = ["begun", "end"].map(|name| dir.path().join(name));
        // In a group of its own, as the kernel would not let go of it.
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
