//! Threads for work that waits for storage.
//!
//! *Operation.* [`run`] and [`run_long`] queue a job and give a future of its answer: the one for transfers, the other for what
//! may take seconds (making data durable, copies, searches), so that reads never stand behind it. The queue is bounded;
//! threads start when jobs wait and none is idle, up to a limit, and stay. Handing over costs one futex wake, and
//! nothing when all threads are busy.
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

use super::limits::{IO_THREADS, LONG_THREADS, QUEUE_MAX};

type Job = Box<dyn FnOnce() + Send>;

struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

/// Threads and the queue before them.
struct Threads {
    queue: Mutex<Queue>,
    work: Condvar,
    done: AtomicU64,
    refused: AtomicU64,
    name: &'static str,
    threads_max: usize,
    queue_max: usize,
}

static TRANSFERS: Threads = Threads::new("vfs-io", IO_THREADS, QUEUE_MAX);
static LONG: Threads = Threads::new("vfs-long", LONG_THREADS, QUEUE_MAX);

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

/// The figures of transfers.
pub fn stats() -> Stats {
    TRANSFERS.stats()
}

/// The figures of long jobs.
pub fn long_stats() -> Stats {
    LONG.stats()
}

/// Runs a transfer on a thread that may wait.
pub async fn run<T: Send + 'static>(
    job: impl FnOnce() -> VfsResult<T> + Send + 'static,
) -> VfsResult<T> {
    TRANSFERS.run(job).await
}

/// Runs what may take seconds.
pub async fn run_long<T: Send + 'static>(
    job: impl FnOnce() -> VfsResult<T> + Send + 'static,
) -> VfsResult<T> {
    LONG.run(job).await
}

impl Threads {
    const fn new(name: &'static str, threads_max: usize, queue_max: usize) -> Self {
        Self {
            queue: Mutex::new(Queue { jobs: VecDeque::new(), idle: 0, threads: 0 }),
            work: Condvar::new(),
            done: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            name,
            threads_max,
            queue_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Jobs run outside the lock; the queue is whole at every step.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stats(&self) -> Stats {
        let q = self.lock();
        Stats {
            waiting: q.jobs.len(),
            threads: q.threads,
            done: self.done.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    async fn run<T: Send + 'static>(
        &'static self,
        job: impl FnOnce() -> VfsResult<T> + Send + 'static,
    ) -> VfsResult<T> {
        let (answer, answered) = oneshot::channel();
        self.submit(Box::new(move || {
            // The one who asked may have gone.
            let _ = answer.send(job());
        }))?;
        answered.await.unwrap_or(Err(VfsError::Io))
    }

    fn submit(&'static self, job: Job) -> VfsResult<()> {
        let mut q = self.lock();
        if q.jobs.len() >= self.queue_max {
            drop(q);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(VfsError::Delay);
        }
        q.jobs.push_back(job);
        if q.idle >= q.jobs.len() {
            drop(q);
            self.work.notify_one();
        } else if q.threads < self.threads_max {
            q.threads += 1;
            let name = format!("{}-{}", self.name, q.threads);
            drop(q);
            if let Err(e) = std::thread::Builder::new().name(name).spawn(|| self.serve()) {
                tracing::error!(error = %e, "no thread for file I/O");
                return self.retreat();
            }
        }
        Ok(())
    }

    /// A thread could not be started. With others running, the job waits for them; with none, nobody would take it.
    fn retreat(&self) -> VfsResult<()> {
        let mut q = self.lock();
        q.threads -= 1;
        if q.threads == 0 {
            let left = std::mem::take(&mut q.jobs);
            drop(q);
            drop(left);
            return Err(VfsError::Resources);
        }
        Ok(())
    }

    fn serve(&self) {
        let mut q = self.lock();
        loop {
            if let Some(job) = q.jobs.pop_front() {
                drop(q);
                self.done.fetch_add(1, Ordering::Relaxed);
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a file I/O job panicked");
                }
                q = self.lock();
            } else {
                q.idle += 1;
                q = self.work.wait(q).unwrap_or_else(PoisonError::into_inner);
                q.idle -= 1;
            }
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

    #[test]
    fn a_full_queue_refuses_and_recovers() {
        static FEW: Threads = Threads::new("few", 2, 3);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(Mutex::new(wait));
        block_on(async {
            let mut all = Vec::new();
            for _ in 0..2 {
                let wait = wait.clone();
                all.push(tokio::spawn(
                    FEW.run(move || wait.lock().unwrap().recv().map_err(|_| VfsError::Io)),
                ));
            }
            // Both threads have taken a job before the queue is filled.
            while FEW.stats().done < 2 {
                tokio::task::yield_now().await;
            }
            for _ in 0..3 {
                all.push(tokio::spawn(FEW.run(|| Ok(()))));
            }
            tokio::task::yield_now().await;
            assert_eq!(FEW.stats().waiting, 3);
            assert_eq!(FEW.run(|| Ok(())).await, Err(VfsError::Delay));
            assert_eq!((FEW.stats().refused, FEW.stats().threads), (1, 2));
            go.send(()).unwrap();
            go.send(()).unwrap();
            for one in all {
                assert_eq!(one.await.unwrap(), Ok(()));
            }
            assert_eq!(FEW.run(|| Ok(())).await, Ok(()));
        });
    }
}
