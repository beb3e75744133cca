//! A knock at the runtime, so that somebody always waits for sockets.
//!
//! *Operation.* One worker at a time waits for sockets and timers. When something comes it does the work itself, and wakes
//! another only where there is more to do. Where that work blocks in the kernel, because a disk hangs, nobody waits for
//! sockets any more though all others are idle. A task that does nothing, from a thread outside, wakes one of them; when it
//! has nothing to do it takes the turn. File systems that are known to fall silent are kept from the workers anyway (vfs,
//! `local/silent.rs`).

use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;

/// Between two knocks: so long a worker that blocks may keep the others.
const INTERVAL: Duration = Duration::from_millis(100);

/// Knocks as long as the process lives. Without the thread a disk that hangs hurts more; that is no reason not to serve.
pub(crate) fn start(runtime: &Runtime) {
    let handle = runtime.handle().clone();
    let knock = move || {
        loop {
            thread::sleep(INTERVAL);
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

    /// A task that waits for a byte at the other end of the pair.
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
            // As a system call would on a disk that hangs.
            let _ = is_over.recv();
        });
        let (heard, is_heard) = mpsc::channel();
        let second = listener(&runtime, move || heard.send(()).unwrap());
        // Until both workers have nothing to do.
        thread::sleep(3 * INTERVAL);
        std::io::Write::write_all(&mut &first, b"1").unwrap();
        is_blocking.recv().unwrap();
        std::io::Write::write_all(&mut &second, b"2").unwrap();
        let others = is_heard.recv_timeout(Duration::from_secs(20));
        drop(go_on);
        others.expect("the other worker waits for sockets");
    }
}
