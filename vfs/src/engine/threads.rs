//! Threads for work that waits for storage.
//!
//! *Operation.* [`run`] and [`run_long`] queue a job and give a future of its answer: the one for transfers, the other for what
//! may take seconds (stable writes, copies, searches), so that reads never stand behind it; what makes files and folders durable
//! has threads of its own; [`run_cached`] is for
//! copies out of memory, and [`run_in_turn`] for transfers that would only wait for each other. The queue is bounded;
//! threads start when jobs wait and none is idle, up to a limit, and stay. Handing over costs one futex wake, and
//! nothing when all threads are busy.
//!
//! *Memory.* A job owns all it touches: dropping the future loses the answer, never the memory under I/O.
//!
//! *Errors.* [`VfsError::Delay`] when the queue is full (counted), [`VfsError::Io`] when a job panicked.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::{VfsError, VfsResult};

use super::limits::{IO_THREADS, LONG_THREADS, QUEUE_MAX, SYNC_THREADS, processors};

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
    threads_max: fn() -> usize,
    queue_max: usize,
}

static CACHED: Threads = Threads::new("vfs-mem", processors, QUEUE_MAX);
static TRANSFERS: Threads = Threads::new("vfs-io", || IO_THREADS, QUEUE_MAX);
static LONG: Threads = Threads::new("vfs-long", || LONG_THREADS, QUEUE_MAX);
static SYNCS: Threads = Threads::new("vfs-sync", || SYNC_THREADS, QUEUE_MAX);

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

/// The figures of jobs that make things durable.
pub fn sync_stats() -> Stats {
    SYNCS.stats()
}

/// Starts a job that makes something durable and tells those who wait for it itself.
pub(crate) fn submit_sync(job: impl FnOnce() + Send + 'static) -> VfsResult<()> {
    SYNCS.submit(Box::new(job))
}

/// Runs a transfer that will not wait, because what it reads is in memory. There are as many threads for these as processors:
/// more would only take the caches from each other.
pub async fn run_cached<T: Send + 'static>(
    job: impl FnOnce() -> VfsResult<T> + Send + 'static,
) -> VfsResult<T> {
    CACHED.run(job).await
}

/// Runs a transfer on a thread that may wait.
pub async fn run<T: Send + 'static>(
    job: impl FnOnce() -> VfsResult<T> + Send + 'static,
) -> VfsResult<T> {
    TRANSFERS.run(job).await
}

/// Jobs of which only one can make progress at a time: writes of one file, which the kernel lets in one by one. Threads that waited
/// for each other there would take a processor each to do so.
#[derive(Default)]
pub struct Turns(Mutex<Turn>);

#[derive(Default)]
struct Turn {
    jobs: VecDeque<Job>,
    /// A thread has taken this up and goes on until nothing waits.
    taken_up: bool,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        // As with the queue of all threads: whole at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, or the end of this thread's turn.
    fn next(&self) -> Option<Job> {
        let mut turn = self.lock();
        let job = turn.jobs.pop_front();
        turn.taken_up = job.is_some();
        job
    }
}

/// Runs a transfer on a thread that may wait, after those that came before it. Whoever has the answer knows that the job has let
/// go of all it touched; the thread holds on to nothing but `turns`.
pub async fn run_in_turn<T: Send + 'static>(
    turns: &Arc<Turns>,
    job: impl FnOnce() -> VfsResult<T> + Send + 'static,
) -> VfsResult<T> {
    let (answer, answered) = oneshot::channel();
    let job = move || {
        let done = catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|_| {
            tracing::error!("a file I/O job panicked");
            Err(VfsError::Io)
        });
        // The one who asked may have gone.
        let _ = answer.send(done);
    };
    TRANSFERS.submit_in_turn(turns.clone(), Box::new(job))?;
    // Dropped unseen, because no thread could be had for those before it: nothing was written, so trying again is right.
    answered.await.unwrap_or(Err(VfsError::Delay))
}

/// The first of the jobs that take turns, on its way to a thread. Where it gets none, those that queued behind it go with it.
struct TakenUp {
    turns: Arc<Turns>,
    first: Option<Job>,
}

impl TakenUp {
    fn run(mut self) {
        let mut next = self.first.take();
        while let Some(job) = next {
            run_guarded(job);
            next = self.turns.next();
        }
    }
}

impl Drop for TakenUp {
    fn drop(&mut self) {
        if self.first.is_some() {
            let left = std::mem::take(&mut *self.turns.lock());
            drop(left);
        }
    }
}

/// Runs what may take seconds.
pub async fn run_long<T: Send + 'static>(
    job: impl FnOnce() -> VfsResult<T> + Send + 'static,
) -> VfsResult<T> {
    LONG.run(job).await
}

impl Threads {
    const fn new(name: &'static str, threads_max: fn() -> usize, queue_max: usize) -> Self {
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
        } else if q.threads < (self.threads_max)() {
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

    fn submit_in_turn(&'static self, turns: Arc<Turns>, job: Job) -> VfsResult<()> {
        let mut turn = turns.lock();
        if turn.taken_up {
            if turn.jobs.len() >= self.queue_max {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Err(VfsError::Delay);
            }
            turn.jobs.push_back(job);
            return Ok(());
        }
        turn.taken_up = true;
        drop(turn);
        let taken_up = TakenUp { turns, first: Some(job) };
        self.submit(Box::new(move || taken_up.run()))
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
                run_guarded(job);
                q = self.lock();
            } else {
                q.idle += 1;
                q = self.work.wait(q).unwrap_or_else(PoisonError::into_inner);
                q.idle -= 1;
            }
        }
    }
}

/// A job that panics is an error of that job alone.
fn run_guarded(job: Job) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a file I/O job panicked");
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
    fn jobs_in_turn_run_one_at_a_time_in_order_and_go_on_after_a_panic() {
        let file = Arc::new(Turns::default());
        let inside = Arc::new(AtomicU64::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        block_on(async {
            let all: Vec<_> = (0..200_u32)
                .map(|i| {
                    let (inside, seen) = (inside.clone(), seen.clone());
                    let file = file.clone();
                    let job = move || {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                        seen.lock().unwrap().push(i);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        if i == 100 { panic!("on purpose") } else { Ok(i) }
                    };
                    tokio::spawn(async move { run_in_turn(&file, job).await })
                })
                .collect();
            for (i, one) in (0..).zip(all) {
                let wanted = if i == 100 { Err(VfsError::Io) } else { Ok(i) };
                assert_eq!(one.await.unwrap(), wanted);
            }
        });
        assert!(seen.lock().unwrap().iter().copied().eq(0..200));
        assert_eq!(block_on(run_in_turn(&file, || Ok(1))), Ok(1));
    }

    #[test]
    fn a_job_has_let_go_when_its_answer_is_there() {
        let (file, held) = (Arc::new(Turns::default()), Arc::new(()));
        for _ in 0..1000 {
            let (now, later) = (held.clone(), held.clone());
            block_on(async {
                let in_turn = run_in_turn(&file, move || Ok(Arc::strong_count(&now)));
                assert!(in_turn.await.unwrap() > 1);
                assert_eq!(run(move || Ok(Arc::strong_count(&later))).await, Ok(2));
            });
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }

    #[test]
    fn a_full_queue_refuses_and_recovers() {
        static FEW: Threads = Threads::new("few", || 2, 3);
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
