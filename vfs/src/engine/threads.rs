//! Threads for work that waits for storage.
//!
//! *Operation.* [`run`] queues a job and gives a future of its answer. The queue is bounded; threads start when jobs wait
//! and none is idle, up to a limit, and stay. Handing over costs one futex wake, and nothing when all threads are busy.
//!
//! *Memory.* A job owns all it touches: dropping the future loses the answer, never the memory under I/O.
//!
//! *Errors.* [`VfsError::Delay`] when the queue is full (counted), [`VfsError::Io`] when a job panicked.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::{VfsError, VfsResult};

use super::limits::{IO_THREADS, QUEUE_MAX};

type Job = Box<dyn FnOnce() + Send>;

struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { jobs: VecDeque::new(), idle: 0, threads: 0 });
static WORK: Condvar = Condvar::new();
static DONE: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// What the threads are doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Jobs that wait now.
    pub waiting: usize,
    /// Threads that run.
    pub threads: usize,
    /// Jobs taken up since the start.
    pub done: u64,
    /// Jobs refused because the queue was full.
    pub refused: u64,
}

fn lock() -> MutexGuard<'static, Queue> {
    // Jobs run outside the lock; the queue is whole at every step.
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The figures.
pub fn stats() -> Stats {
    let q = lock();
    Stats {
        waiting: q.jobs.len(),
        threads: q.threads,
        done: DONE.load(Ordering::Relaxed),
        refused: REFUSED.load(Ordering::Relaxed),
    }
}

/// Runs `job` on a thread that may wait.
pub async fn run<T: Send + 'static>(
    job: impl FnOnce() -> VfsResult<T> + Send + 'static,
) -> VfsResult<T> {
    let (answer, answered) = oneshot::channel();
    submit(Box::new(move || {
        // The one who asked may have gone.
        let _ = answer.send(job());
    }))?;
    answered.await.unwrap_or(Err(VfsError::Io))
}

fn submit(job: Job) -> VfsResult<()> {
    let mut q = lock();
    if q.jobs.len() >= QUEUE_MAX {
        drop(q);
        REFUSED.fetch_add(1, Ordering::Relaxed);
        return Err(VfsError::Delay);
    }
    q.jobs.push_back(job);
    if q.idle >= q.jobs.len() {
        drop(q);
        WORK.notify_one();
    } else if q.threads < IO_THREADS {
        q.threads += 1;
        let name = format!("vfs-io-{}", q.threads);
        drop(q);
        if let Err(e) = std::thread::Builder::new().name(name).spawn(serve) {
            tracing::error!(error = %e, "no thread for file I/O");
            return retreat();
        }
    }
    Ok(())
}

/// A thread could not be started. With others running, the job waits for them; with none, nobody would take it.
fn retreat() -> VfsResult<()> {
    let mut q = lock();
    q.threads -= 1;
    if q.threads == 0 {
        let left = std::mem::take(&mut q.jobs);
        drop(q);
        drop(left);
        return Err(VfsError::Resources);
    }
    Ok(())
}

fn serve() {
    let mut q = lock();
    loop {
        if let Some(job) = q.jobs.pop_front() {
            drop(q);
            DONE.fetch_add(1, Ordering::Relaxed);
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("a file I/O job panicked");
            }
            q = lock();
        } else {
            q.idle += 1;
            q = WORK.wait(q).unwrap_or_else(PoisonError::into_inner);
            q.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(f: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f)
    }

    #[test]
    fn jobs_answer_and_a_panic_is_an_error() {
        block_on(async {
            assert_eq!(run(|| Ok(7)).await, Ok(7));
            assert_eq!(run(|| -> VfsResult<()> { panic!("on purpose") }).await, Err(VfsError::Io));
            assert_eq!(run(|| Ok(8)).await, Ok(8));
        });
    }

    #[test]
    fn many_jobs_at_once_are_all_answered() {
        block_on(async {
            let all: Vec<_> = (0..500_u32).map(|i| tokio::spawn(run(move || Ok(i)))).collect();
            for (i, one) in all.into_iter().enumerate() {
                assert_eq!(one.await.unwrap(), Ok(u32::try_from(i).unwrap()));
            }
        });
    }
}
