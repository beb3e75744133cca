//! Detects storage that does not respond, from the kernel's view: the affected shares, and the number of waiting operations.
//!
//! *Operation.* A thread examines all threads of this process every [`INTERVAL`]. A thread waits for storage if it has not
//! run since the last look and is in the same system call on a descriptor of a share's folder or of something below it. The
//! cause is a failing disk, a frozen file system, or a missing server. This costs the operations no time and calls no file
//! system. The first look that finds a waiting thread is logged, and the first one without any.
//!
//! *Errors.* If the kernel does not show the system calls of threads (`/proc/self/task/TID/syscall`), the state remains
//! unknown. Calls that name their file by a path in `/proc` are not detected: reopening a file, and some reads of attributes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use mutex::locked;

/// Time between two looks. An operation is reported after one to two intervals.
const INTERVAL: Duration = Duration::from_secs(5);

/// Number of waiting operations by share.
#[derive(Debug, Default)]
pub struct Stuck {
    shares: Mutex<Vec<(String, PathBuf)>>,
    waiting: Mutex<BTreeMap<String, u64>>,
}

impl Stuck {
    /// Starts the thread, which runs while a caller holds the result.
    pub(crate) fn start() -> Arc<Self> {
        let stuck = Arc::new(Self::default());
        let its = Arc::downgrade(&stuck);
        if let Err(error) = thread::Builder::new().name("stuck".into()).spawn(move || look(&its)) {
            tracing::warn!(%error, "cannot start the thread that watches for storage that does not respond");
        }
        stuck
    }

    /// Sets the shares to watch, by name and folder.
    pub(crate) fn watch(&self, shares: Vec<(String, PathBuf)>) {
        *locked(&self.shares) = shares;
    }

    /// Returns the number of operations that the storage of this share has not answered for some seconds.
    pub fn waiting(&self, share: &str) -> u64 {
        locked(&self.waiting).get(share).copied().unwrap_or_default()
    }

    /// Records the paths at which threads wait, and logs changes.
    fn note(&self, paths: &[PathBuf]) {
        let mut waiting = BTreeMap::new();
        for (share, folder) in locked(&self.shares).iter() {
            let count = paths.iter().filter(|path| path.starts_with(folder)).count();
            if count > 0 {
                waiting.insert(share.clone(), count as u64);
            }
        }
        let before = std::mem::replace(&mut *locked(&self.waiting), waiting.clone());
        for (share, operations) in waiting.iter().filter(|(share, _)| !before.contains_key(*share))
        {
            tracing::warn!(
                share,
                operations,
                "the storage of this share does not respond: operations have waited for more than {} s",
                INTERVAL.as_secs()
            );
        }
        for share in before.keys().filter(|share| !waiting.contains_key(*share)) {
            tracing::info!(share, "the storage of this share responds again");
        }
    }
}

fn look(stuck: &Weak<Stuck>) {
    let mut last = HashMap::new();
    loop {
        thread::sleep(INTERVAL);
        let Some(stuck) = stuck.upgrade() else { return };
        stuck.note(&waits(&mut last));
    }
}

/// State of a thread at a look.
#[derive(PartialEq, Eq)]
struct Call {
    /// Number, arguments and program counter of its system call.
    what: String,
    /// Run time of the thread so far, and how often it ran.
    run: String,
}

/// Returns the paths of the descriptors on which threads of this process have waited since `last`, and updates `last` to the
/// current state.
fn waits(last: &mut HashMap<String, Call>) -> Vec<PathBuf> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let (mut now, mut paths) = (HashMap::new(), Vec::new());
    for thread in threads.flatten() {
        // A thread may end at any time.
        let of = |file: &str| fs::read_to_string(thread.path().join(file)).ok();
        let (Some(what), Some(run)) = (of("syscall"), of("schedstat")) else { continue };
        let Some(descriptor) = descriptor(&what) else { continue };
        let (name, call) = (thread.file_name().to_string_lossy().into_owned(), Call { what, run });
        if last.get(&name) == Some(&call)
            && let Ok(path) = fs::read_link(Path::new("/proc/self/fd").join(descriptor.to_string()))
        {
            paths.push(path);
        }
        now.insert(name, call);
    }
    *last = now;
    paths
}

/// Returns the first argument of a system call, if it can be a descriptor: `NUMBER ARGUMENT... SP PC`, or `running`
/// (proc(5)).
fn descriptor(call: &str) -> Option<u32> {
    // A thread that waits outside of a system call has no arguments: `-1 SP PC`.
    let fields: Vec<&str> = call.split_whitespace().collect();
    let [_, first, _, _, _, _, _, _, _] = fields[..] else { return None };
    let number = u64::from_str_radix(first.strip_prefix("0x")?, 16).ok()?;
    u32::try_from(number).ok().filter(|fd| i32::try_from(*fd).is_ok())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::time::Instant;

    use super::*;

    fn until(mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_thread_that_waits_in_a_share_is_seen_and_its_share_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (share, pipe) = (dir.path().join("share"), dir.path().join("share/pipe"));
        fs::create_dir(&share).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        // Simulates storage that does not respond: a pipe without data.
        let mut both = File::options().read(true).write(true).open(&pipe).unwrap();
        let mut read = both.try_clone().unwrap();
        let waits_there = thread::spawn(move || read.read_exact(&mut [0; 1]));
        let stuck = Stuck::default();
        stuck.watch(vec![("other".into(), dir.path().join("other")), ("hung".into(), share)]);
        let mut last = HashMap::new();
        if fs::read_to_string("/proc/thread-self/syscall").is_err() {
            println!("skipped: this kernel does not show the calls of threads");
            return;
        }
        until(|| {
            stuck.note(&waits(&mut last));
            stuck.waiting("hung") == 1
        });
        assert_eq!(stuck.waiting("other"), 0);
        both.write_all(b"x").unwrap();
        waits_there.join().unwrap().unwrap();
        stuck.note(&waits(&mut last));
        assert_eq!(stuck.waiting("hung"), 0);
    }

    #[test]
    fn calls_without_a_descriptor_are_left_out() {
        assert_eq!(descriptor("0 0x7 0x7f26d4539000 0x20000 0x0 0x0 0x0 0x7fff 0x7f26\n"), Some(7));
        for call in [
            "running\n",
            "202 0x7f26d4539000 0x80 0x0 0x0 0x0 0x0 0x7fff 0x7f26\n",
            "-1 0x7fff 0x7f26\n",
            "",
        ] {
            assert_eq!(descriptor(call), None, "{call}");
        }
        // AT_FDCWD
        assert_eq!(descriptor("257 0xffffff9c 0x7ffd 0x0 0x0 0x0 0x0 0x7fff 0x7f26\n"), None);
    }
}
