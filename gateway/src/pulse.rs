//! Keeps the I/O driver polled: if the worker that polls it blocks in a system call, wakes another.
//!
//! *Operation.* One worker at a time waits for sockets and timers. When an event arrives it does the work itself, and wakes
//! another worker only if there is more to do. If that work blocks in the kernel, because a disk hangs, no worker polls the
//! sockets although all others are idle. An empty task, spawned by a thread outside of the runtime, wakes one of them; when
//! that worker has nothing left to do it starts to poll. File systems that are known to hang are kept away from the workers
//! anyway (vfs, `local/silent.rs`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;

/// Time between two wake-ups, and thus the longest time for which a blocked worker can hold up the others.
const INTERVAL: Duration = Duration::from_millis(100);

/// Number of intervals in which the thread ran.
static BEATS: AtomicU32 = AtomicU32::new(0);

/// Tells time in which the workers were busy from time in which the whole process was stopped.
#[derive(Default)]
pub(crate) struct Beats(u32);

impl Beats {
    /// Returns whether the thread outside of the runtime ran for at least this time since the last call.
    pub(crate) fn ran_for(&mut self, time: Duration) -> bool {
        let now = BEATS.load(Ordering::Relaxed);
        let ran = now.wrapping_sub(std::mem::replace(&mut self.0, now));
        INTERVAL.saturating_mul(ran) >= time
    }
}

/// Wakes a worker at each interval while the process lives. If the thread cannot start, the gateway serves anyway; only a
/// hanging disk does more harm.
pub(crate) fn start(runtime: &Runtime) {
    let handle = runtime.handle().clone();
    let knock = move || {
        loop {
            thread::sleep(INTERVAL);
            BEATS.fetch_add(1, Ordering::Relaxed);
            drop(handle.spawn(async {}));
        }
    };
    if let Err(error) = thread::Builder::new().name("pulse".into()).spawn(knock) {
        tracing::warn!(%error, "cannot start the thread that checks the workers");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream as Blocking;
    use std::sync::mpsc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    /// Starts a task that waits for a byte at the other end of the pair.
    fn listener(runtime: &Runtime, then: impl FnOnce() + Send + 'static) -> Blocking {
        let (near, far) = Blocking::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let (ready, is_ready) = mpsc::channel();
        runtime.spawn(async move {
            let mut far = UnixStream::from_std(far).unwrap();
            far.write_all(b"r").await.unwrap();
            ready.send(()).unwrap();
            let _ = far.read_u8().await;
            then();
        });
        is_ready.recv().unwrap();
        near
    }

    #[test]
    fn busy_workers_differ_from_a_stopped_process() {
        let mut beats = Beats(BEATS.load(Ordering::Relaxed));
        assert!(!beats.ran_for(Duration::from_secs(3600)), "stopped");
        BEATS.fetch_add(50, Ordering::Relaxed);
        assert!(beats.ran_for(Duration::from_secs(5)), "busy");
        assert!(!beats.ran_for(Duration::from_secs(3600)), "counted once");
    }

    #[test]
    fn one_worker_that_blocks_keeps_no_other_from_sockets() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        start(&runtime);
        let (go_on, is_over) = mpsc::channel::<()>();
        let (blocks, is_blocking) = mpsc::channel();
        let first = listener(&runtime, move || {
            blocks.send(()).unwrap();
            // Blocks like a system call on a hanging disk.
            let _ = is_over.recv();
        });
        let (heard, is_heard) = mpsc::channel();
        let second = listener(&runtime, move || heard.send(()).unwrap());
        // Wait until both workers are idle.
        thread::sleep(3 * INTERVAL);
        std::io::Write::write_all(&mut &first, b"1").unwrap();
        is_blocking.recv().unwrap();
        std::io::Write::write_all(&mut &second, b"2").unwrap();
        let others = is_heard.recv_timeout(Duration::from_secs(20));
        drop(go_on);
        others.expect("the other worker waits for sockets");
    }
}
