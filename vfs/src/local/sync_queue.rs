//! Queue of the callers that wait until one object is durable.
//!
//! *Errors.* [`VfsError::Delay`] when too many callers wait, or no thread is available.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use mutex::locked;
use tokio::sync::oneshot;

use crate::durability;
use crate::engine::limits::QUEUE_MAX;
use crate::engine::threads::Engine;
use crate::error::{VfsError, VfsResult};

pub(super) type Told = oneshot::Receiver<VfsResult<()>>;

#[derive(Default)]
struct Waiting {
    callers: Vec<oneshot::Sender<VfsResult<()>>>,
    /// True if a sync was requested since the last one began, by `callers` or by a caller that does not wait.
    wanted: bool,
    /// True if a job runs or waits for a thread.
    running: bool,
}

/// The callers that wait until one object is durable: all that came before a sync began get its result.
#[derive(Default)]
pub(super) struct SyncQueue(Mutex<Waiting>);

impl SyncQueue {
    /// Asks for a sync that begins after this call.
    pub(super) fn ask(
        self: &Arc<Self>,
        engine: &Engine,
        waits: bool,
        sync: impl FnMut() -> VfsResult<()> + Send + 'static,
    ) -> VfsResult<Told> {
        let (tell, told) = oneshot::channel();
        let mut waiting = locked(&self.0);
        if waiting.callers.len() >= QUEUE_MAX {
            durability::counters().refused.fetch_add(1, Ordering::Relaxed);
            return Err(VfsError::Delay);
        }
        if waits {
            waiting.callers.push(tell);
        }
        waiting.wanted = true;
        if std::mem::replace(&mut waiting.running, true) {
            return Ok(told);
        }
        drop(waiting);
        let run = Run { queue: self.clone(), ended: false };
        engine.submit_sync(move || run.serve(sync))?;
        Ok(told)
    }

    /// Returns the callers of the next round; `None` ends the job.
    fn next(&self) -> Option<Vec<oneshot::Sender<VfsResult<()>>>> {
        let mut waiting = locked(&self.0);
        if !std::mem::take(&mut waiting.wanted) {
            waiting.running = false;
            return None;
        }
        Some(std::mem::take(&mut waiting.callers))
    }
}

/// The job of a queue. If it is dropped before its end (no thread, a panic), its callers get an error that tells them to try again.
struct Run {
    queue: Arc<SyncQueue>,
    ended: bool,
}

impl Run {
    fn serve(mut self, sync: impl FnMut() -> VfsResult<()>) {
        let counters = durability::counters();
        let mut sync = Some(sync);
        let mut next = self.queue.next();
        while let (Some(callers), Some(job)) = (next, sync.as_mut()) {
            counters.syncs.fetch_add(1, Ordering::Relaxed);
            counters.waited.fetch_add(callers.len() as u64, Ordering::Relaxed);
            let done = job();
            if done.is_err() {
                counters.failed.fetch_add(1, Ordering::Relaxed);
            }
            next = self.queue.next();
            self.ended = next.is_none();
            if self.ended {
                // The closure holds the file's record, by which the handle of a removed file would still be found after the answer.
                sync = None;
            }
            for caller in callers {
                // The caller may have stopped waiting.
                let _ = caller.send(done);
            }
        }
        self.ended = true;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.ended {
            let left = std::mem::take(&mut *locked(&self.queue.0));
            drop(left);
        }
    }
}

/// Waits for the result of a sync that was requested.
pub(super) async fn told(asked: VfsResult<Told>) -> VfsResult<()> {
    asked?.await.unwrap_or(Err(VfsError::Delay))
}
