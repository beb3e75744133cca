//! Threads for work that waits for storage.
//!
//! *Operation.* An [`Engine`] has five kinds of threads. [`Engine::run`], [`Engine::run_long`] and [`Engine::run_copy`] queue a job
//! and return a future of its result: for transfers; for work that may take seconds (stable writes, searches), so that reads are
//! never queued behind it; and for copies between files by the host's kernel, of which one client can request any amount with a few
//! bytes. Syncs of files and folders have separate threads; [`Engine::run_cached`] is for copies from memory, and
//! [`Engine::run_in_turn`] for transfers that would only wait for each other. The queues are bounded; threads are started when jobs
//! wait and all threads are busy, up to a limit. Clients take turns, and one has two of three threads at most (`jobs`). Submitting
//! costs one futex wake, and no system call when all threads are busy. Volumes on local disks share one engine
//! ([`Engine::common`]), whose threads stay. A volume whose file system may stop responding has a separate engine
//! ([`Engine::of_one`]), so its jobs never occupy threads of other volumes.
//!
//! *Memory.* A job owns all memory that it uses: dropping the future loses the result, never the memory under I/O. The engine of a
//! single volume limits jobs, so that requests whose clients have disconnected do not accumulate behind a hanging file system.
//!
//! *Errors.* [`VfsError::Delay`] if the queue is full or the volume's limit of jobs is reached (counted), [`VfsError::Io`] if a job
//! panicked.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iobuf::{ClientWork, current_client};
use mutex::locked;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::error::{VfsError, VfsResult};

use super::jobs::{Client, Jobs};
use super::limits::{
    COPY_THREADS, IDLE_MAX, IO_THREADS, LONG_THREADS, QUEUE_MAX, SYNC_THREADS, of_client,
    processors,
};
use super::wakes::by_event;

type Job = Box<dyn FnOnce() + Send>;

struct Queue {
    jobs: Jobs<Job>,
    idle: usize,
    threads: usize,
    /// No jobs are submitted any more: idle threads end.
    closed: bool,
}

/// Threads with their queue.
struct Threads {
    queue: Mutex<Queue>,
    work: Condvar,
    done: AtomicU64,
    refused: AtomicU64,
    name: &'static str,
    threads_max: usize,
    queue_max: usize,
    /// An idle thread ends after this time; `None`: it stays.
    idle_max: Option<Duration>,
    /// Results wake waiting tasks through an event of their runtime.
    wakes_by_event: bool,
}

/// The threads of one volume, or those shared by several.
pub struct Engine {
    cached: Arc<Threads>,
    transfers: Arc<Threads>,
    long: Arc<Threads>,
    copies: Arc<Threads>,
    syncs: Arc<Threads>,
    /// Limits the jobs of one volume, waiting and running.
    jobs: Option<JobLimit>,
}

struct JobLimit {
    room: Arc<Semaphore>,
    refused: &'static AtomicU64,
}

/// Counts of threads and jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Jobs that wait for a thread.
    pub waiting: usize,
    /// Threads that exist now.
    pub threads: usize,
    /// Jobs started since the beginning.
    pub done: u64,
    /// Jobs refused because the queue was full.
    pub refused: u64,
}

impl Engine {
    /// The engine of all volumes on local disks.
    pub fn common() -> Arc<Self> {
        static COMMON: LazyLock<Arc<Engine>> = LazyLock::new(|| {
            let names = ["vfs-mem", "vfs-io", "vfs-long", "vfs-copy", "vfs-sync"];
            Arc::new(Engine::new(names, None, None))
        });
        COMMON.clone()
    }

    /// Creates an engine for a single volume, with at most `jobs_max` jobs, including those whose callers are gone. `refused`
    /// counts jobs beyond that. Idle threads end, and all of them when the engine is dropped and its jobs are done.
    pub fn of_one(jobs_max: usize, refused: &'static AtomicU64) -> Arc<Self> {
        let names = ["far-mem", "far-io", "far-long", "far-copy", "far-sync"];
        let jobs = JobLimit { room: Arc::new(Semaphore::new(jobs_max)), refused };
        Arc::new(Self::new(names, Some(IDLE_MAX), Some(jobs)))
    }

    fn new(names: [&'static str; 5], idle_max: Option<Duration>, jobs: Option<JobLimit>) -> Self {
        let threads = |i: usize, most| {
            let wakes_by_event = jobs.is_some();
            Arc::new(Threads {
                idle_max,
                wakes_by_event,
                ..Threads::new(names[i], most, QUEUE_MAX)
            })
        };
        Self {
            cached: threads(0, processors()),
            transfers: threads(1, IO_THREADS),
            long: threads(2, LONG_THREADS),
            copies: threads(3, COPY_THREADS),
            syncs: threads(4, SYNC_THREADS),
            jobs,
        }
    }

    /// Wraps a job so that it counts until it is done or dropped, if jobs are limited.
    fn admit<T>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> VfsResult<impl FnOnce() -> T + Send + 'static> {
        let permit = match &self.jobs {
            None => None,
            Some(jobs) => Some(jobs.take()?),
        };
        Ok(move || {
            let done = job();
            // Released before the result, so that the receiver can submit the next job.
            drop(permit);
            done
        })
    }

    /// Runs a short job at some time, in any order; in place if no thread is available.
    pub(crate) fn dispose(&self, job: impl FnOnce() + Send + 'static) {
        // A refused job is dropped here, which releases what it owns.
        let _ = self.long.submit(Box::new(job));
    }

    /// Starts a sync job, which notifies its waiters itself.
    pub(crate) fn submit_sync(&self, job: impl FnOnce() + Send + 'static) -> VfsResult<()> {
        self.syncs.submit(Box::new(self.admit(job)?))
    }

    /// Runs a transfer that does not wait, because its data is cached. There are as many threads for these as processors: more
    /// would only compete for the caches.
    pub async fn run_cached<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> VfsResult<T> + Send + 'static,
    ) -> VfsResult<T> {
        self.cached.run(self.admit(job)?).await
    }

    /// Runs a transfer on a thread that may wait.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> VfsResult<T> + Send + 'static,
    ) -> VfsResult<T> {
        self.transfers.run(self.admit(job)?).await
    }

    /// Runs work that may take seconds.
    pub async fn run_long<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> VfsResult<T> + Send + 'static,
    ) -> VfsResult<T> {
        self.long.run(self.admit(job)?).await
    }

    /// Runs a copy or clearing of a size that the client chooses.
    pub async fn run_copy<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> VfsResult<T> + Send + 'static,
    ) -> VfsResult<T> {
        self.copies.run(self.admit(job)?).await
    }

    /// Runs a transfer on a thread that may wait, after earlier ones in `turns`. When the result is available, the job has released
    /// all it used; the thread refers only to `turns`.
    pub async fn run_in_turn<T: Send + 'static>(
        &self,
        turns: &Arc<JobQueue>,
        job: impl FnOnce() -> VfsResult<T> + Send + 'static,
    ) -> VfsResult<T> {
        let (answer, answered) = oneshot::channel();
        let job = self.admit(job)?;
        let job = move || {
            let done = catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|_| {
                tracing::error!("a file I/O job panicked");
                Err(VfsError::Io)
            });
            // The caller may be gone.
            let _ = answer.send(done);
        };
        self.transfers.submit_in_turn(turns.clone(), Box::new(job))?;
        // Dropped because no thread was available for earlier jobs: no data was written, so a retry is safe.
        answered.await.unwrap_or(Err(VfsError::Delay))
    }

    /// Returns the counts of the threads for transfers.
    pub fn stats(&self) -> Stats {
        self.transfers.stats()
    }

    /// Statistics of long jobs.
    pub fn long_stats(&self) -> Stats {
        self.long.stats()
    }

    /// Returns the counts of the threads for copies.
    pub fn copy_stats(&self) -> Stats {
        self.copies.stats()
    }

    /// Returns the counts of the threads for syncs.
    pub fn sync_stats(&self) -> Stats {
        self.syncs.stats()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for threads in [&self.cached, &self.transfers, &self.long, &self.copies, &self.syncs] {
            threads.close();
        }
    }
}

impl JobLimit {
    fn take(&self) -> VfsResult<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_owned().map_err(|_| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            VfsError::Delay
        })
    }
}

/// Jobs of which only one can progress at a time: writes to one file, which the kernel serializes. Threads waiting there would each
/// occupy a processor.
#[derive(Default)]
pub struct JobQueue(Mutex<QueuedJobs>);

#[derive(Default)]
struct QueuedJobs {
    jobs: VecDeque<Job>,
    /// A thread is executing these jobs until the queue is empty.
    taken_up: bool,
}

impl JobQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedJobs> {
        // As for the queue of all threads: consistent after every step.
        locked(&self.0)
    }

    /// The next job; `None` ends this thread's work on the queue.
    fn next(&self) -> Option<Job> {
        let mut turn = self.lock();
        let job = turn.jobs.pop_front();
        turn.taken_up = job.is_some();
        job
    }
}

/// The first job of a queue, before it has a thread. If no thread is available, the jobs queued behind it are dropped, too.
struct TakenUp {
    turns: Arc<JobQueue>,
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

impl Threads {
    fn new(name: &'static str, threads_max: usize, queue_max: usize) -> Self {
        Self {
            queue: Mutex::new(Queue {
                jobs: Jobs::new(of_client(threads_max)),
                idle: 0,
                threads: 0,
                closed: false,
            }),
            work: Condvar::new(),
            done: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            name,
            threads_max,
            queue_max,
            idle_max: None,
            wakes_by_event: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Jobs run outside the lock; the queue is consistent after every step.
        locked(&self.queue)
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
        self: &Arc<Self>,
        job: impl FnOnce() -> VfsResult<T> + Send + 'static,
    ) -> VfsResult<T> {
        let (answer, answered) = oneshot::channel();
        self.submit(Box::new(move || {
            // The caller may be gone.
            let _ = answer.send(job());
        }))?;
        let answered = match self.wakes_by_event {
            true => by_event(answered).await,
            false => answered.await,
        };
        answered.unwrap_or(Err(VfsError::Io))
    }

    fn submit(self: &Arc<Self>, job: Job) -> VfsResult<()> {
        let client = current_client();
        let mut q = self.lock();
        let is_full = q.jobs.len() >= self.queue_max
            || client.is_some() && q.jobs.of(client) >= self.queue_max / 2;
        if is_full {
            drop(q);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(VfsError::Delay);
        }
        q.jobs.push(client, job);
        // Idle threads may be fewer than the jobs, and yet enough: a client that has its part leaves jobs waiting.
        if q.idle > 0 {
            self.work.notify_one();
        }
        if q.idle < q.jobs.len() && q.threads < self.threads_max {
            q.threads += 1;
            let name = format!("{}-{}", self.name, q.threads);
            drop(q);
            let its = self.clone();
            if let Err(e) = std::thread::Builder::new().name(name).spawn(move || its.serve()) {
                tracing::error!(error = %e, "no thread for file I/O");
                return self.retreat();
            }
        }
        Ok(())
    }

    fn submit_in_turn(self: &Arc<Self>, turns: Arc<JobQueue>, job: Job) -> VfsResult<()> {
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

    /// Handles the failure to start a thread: if others are running, the job waits for them; otherwise it is refused.
    fn retreat(&self) -> VfsResult<()> {
        let mut q = self.lock();
        q.threads -= 1;
        if q.threads == 0 {
            let left = q.jobs.take_waiting();
            drop(q);
            drop(left);
            return Err(VfsError::Resources);
        }
        Ok(())
    }

    /// Lets idle threads end; submitted jobs are completed.
    fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    fn serve(&self) {
        let mut q = self.lock();
        let mut waited_long = false;
        loop {
            if let Some((client, job)) = q.jobs.begin() {
                drop(q);
                self.done.fetch_add(1, Ordering::Relaxed);
                run_for(client, job);
                waited_long = false;
                q = self.lock();
                q.jobs.end(client);
            } else if q.closed || waited_long {
                q.threads -= 1;
                return;
            } else {
                q.idle += 1;
                (q, waited_long) = self.wait(q);
                q.idle -= 1;
            }
        }
    }

    /// Waits for work; also returns whether an idle thread's time is over.
    fn wait<'a>(&self, q: MutexGuard<'a, Queue>) -> (MutexGuard<'a, Queue>, bool) {
        match self.idle_max {
            None => (self.work.wait(q).unwrap_or_else(PoisonError::into_inner), false),
            Some(most) => {
                let waited = self.work.wait_timeout(q, most);
                let (q, over) = waited.unwrap_or_else(PoisonError::into_inner);
                (q, over.timed_out())
            }
        }
    }
}

/// Runs a job for its client, also the jobs that it submits.
fn run_for(client: Client, job: Job) {
    let _work = client.map(ClientWork::begin);
    run_guarded(job);
}

/// Runs a job; a panic affects only that job.
fn run_guarded(job: Job) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a file I/O job panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    fn block_on<T>(f: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f)
    }

    #[test]
    fn panicking_job_returns_error() {
        let engine = Engine::common();
        block_on(async {
            assert_eq!(engine.run(|| Ok(7)).await, Ok(7));
            let panics = || -> VfsResult<()> { panic!("on purpose") };
            assert_eq!(engine.run(panics).await, Err(VfsError::Io));
            assert_eq!(engine.run(|| Ok(8)).await, Ok(8));
        });
    }

    #[test]
    fn concurrent_jobs_are_all_answered() {
        block_on(async {
            let one = |i| async move { Engine::common().run(move || Ok(i)).await };
            let all: Vec<_> = (0..500_u32).map(|i| tokio::spawn(one(i))).collect();
            for (i, one) in all.into_iter().enumerate() {
                assert_eq!(one.await.unwrap(), Ok(u32::try_from(i).unwrap()));
            }
        });
    }

    #[test]
    fn serialized_jobs_survive_panic() {
        let file = Arc::new(JobQueue::default());
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
                    tokio::spawn(async move { Engine::common().run_in_turn(&file, job).await })
                })
                .collect();
            for (i, one) in (0..).zip(all) {
                let wanted = if i == 100 { Err(VfsError::Io) } else { Ok(i) };
                assert_eq!(one.await.unwrap(), wanted);
            }
        });
        assert!(seen.lock().unwrap().iter().copied().eq(0..200));
        assert_eq!(block_on(Engine::common().run_in_turn(&file, || Ok(1))), Ok(1));
    }

    #[test]
    fn job_releases_memory_before_answering() {
        let (file, held) = (Arc::new(JobQueue::default()), Arc::new(()));
        for _ in 0..1000 {
            let (now, later) = (held.clone(), held.clone());
            block_on(async {
                let engine = Engine::common();
                let in_turn = engine.run_in_turn(&file, move || Ok(Arc::strong_count(&now)));
                assert!(in_turn.await.unwrap() > 1);
                assert_eq!(engine.run(move || Ok(Arc::strong_count(&later))).await, Ok(2));
            });
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }

    #[test]
    fn full_queue_refuses_and_recovers() {
        let few = Arc::new(Threads::new("few", 2, 3));
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(Mutex::new(wait));
        block_on(async {
            let mut all = Vec::new();
            for _ in 0..2 {
                let (few, wait) = (few.clone(), wait.clone());
                let job = move || wait.lock().unwrap().recv().map_err(|_| VfsError::Io);
                all.push(tokio::spawn(async move { few.run(job).await }));
            }
            // Both threads have started a job before the queue is filled.
            while few.stats().done < 2 {
                tokio::task::yield_now().await;
            }
            for _ in 0..3 {
                let few = few.clone();
                all.push(tokio::spawn(async move { few.run(|| Ok(())).await }));
            }
            tokio::task::yield_now().await;
            assert_eq!(few.stats().waiting, 3);
            assert_eq!(few.run(|| Ok(())).await, Err(VfsError::Delay));
            assert_eq!((few.stats().refused, few.stats().threads), (1, 2));
            go.send(()).unwrap();
            go.send(()).unwrap();
            for one in all {
                assert_eq!(one.await.unwrap(), Ok(()));
            }
            assert_eq!(few.run(|| Ok(())).await, Ok(()));
        });
    }

    static REFUSED: AtomicU64 = AtomicU64::new(0);

    /// A hanging file system occupies only its own threads, and jobs of disconnected clients are limited.
    #[test]
    fn separate_engine_limits_own_jobs() {
        const JOBS: usize = IO_THREADS + 4;
        let its = Engine::of_one(JOBS, &REFUSED);
        let (answers, hangs) = std::sync::mpsc::channel::<()>();
        let hangs = Arc::new(Mutex::new(hangs));
        block_on(async {
            for _ in 0..JOBS {
                let hangs = hangs.clone();
                let job = move || hangs.lock().unwrap().recv().map_err(|_| VfsError::Io);
                // The caller of a job is dropped before its end.
                let mut left = Box::pin(its.run(job));
                let once = std::future::poll_fn(|cx| Poll::Ready(left.as_mut().poll(cx))).await;
                assert!(once.is_pending());
            }
            assert_eq!(its.run(|| Ok(())).await, Err(VfsError::Delay));
            assert_eq!(REFUSED.load(Ordering::Relaxed), 1);
            let others: Vec<_> = (0..2 * IO_THREADS)
                .map(|_| tokio::spawn(async { Engine::common().run(|| Ok(())).await }))
                .collect();
            for other in others {
                assert_eq!(other.await.unwrap(), Ok(()));
            }
            drop(answers);
            let room = its.jobs.as_ref().unwrap().room.clone();
            drop(room.acquire_many(u32::try_from(JOBS).unwrap()).await.unwrap());
            assert_eq!(its.run(|| Ok(())).await, Ok(()));
        });
    }

    /// One client whose jobs hang leaves threads to another, by each kind of thread.
    #[test]
    fn jobs_of_a_client_leave_threads_to_others() {
        let engine = Arc::new(Engine::new(["a", "b", "c", "d", "e"], None, None));
        let of = |n: u8| ClientWork::begin([192, 0, 2, n].into());
        let (answers, hangs) = std::sync::mpsc::channel::<()>();
        let hangs = Arc::new(Mutex::new(hangs));
        let mut left = Vec::new();
        {
            let _greedy = of(1);
            for _ in 0..2 * SYNC_THREADS {
                for threads in [&engine.transfers, &engine.long, &engine.copies, &engine.syncs] {
                    let (hangs, threads) = (hangs.clone(), threads.clone());
                    let job = move || hangs.lock().unwrap().recv().map_err(|_| VfsError::Io);
                    let mut hanging = Box::pin(async move { threads.run(job).await });
                    let polled =
                        block_on(std::future::poll_fn(|cx| Poll::Ready(hanging.as_mut().poll(cx))));
                    assert!(polled.is_pending());
                    left.push(hanging);
                }
            }
        }
        let _other = of(2);
        block_on(async {
            assert_eq!(engine.run(|| Ok(())).await, Ok(()));
            assert_eq!(engine.run_long(|| Ok(())).await, Ok(()));
            assert_eq!(engine.run_copy(|| Ok(())).await, Ok(()));
            assert_eq!(engine.syncs.run(|| Ok(())).await, Ok(()));
        });
        assert_eq!(engine.stats().done, 1 + of_client(IO_THREADS) as u64);
        drop(answers);
        for one in left {
            assert_eq!(block_on(one), Err(VfsError::Io));
        }
    }

    /// One client's copies may occupy all copy threads; stable writes of others do not wait for them.
    #[test]
    fn copies_do_not_delay_long_jobs() {
        let engine = Arc::new(Engine::new(["a", "b", "c", "d", "e"], None, None));
        let (answers, hangs) = std::sync::mpsc::channel::<()>();
        let hangs = Arc::new(Mutex::new(hangs));
        block_on(async {
            let copies: Vec<_> = (0..2 * COPY_THREADS)
                .map(|_| {
                    let (engine, hangs) = (engine.clone(), hangs.clone());
                    let copy = move || hangs.lock().unwrap().recv().map_err(|_| VfsError::Io);
                    tokio::spawn(async move { engine.run_copy(copy).await })
                })
                .collect();
            while engine.copy_stats().done < COPY_THREADS as u64 {
                tokio::task::yield_now().await;
            }
            assert_eq!(engine.copy_stats().waiting, COPY_THREADS);
            for _ in 0..LONG_THREADS {
                assert_eq!(engine.run_long(|| Ok(())).await, Ok(()));
            }
            drop(answers);
            for copy in copies {
                assert_eq!(copy.await.unwrap(), Err(VfsError::Io));
            }
        });
    }

    /// Waits until a thread has caused this condition.
    fn until(is_so: impl Fn() -> bool) {
        let began = std::time::Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn idle_threads_end_with_volume() {
        let its = Engine::of_one(8, &REFUSED);
        let threads = its.transfers.clone();
        block_on(its.run(|| Ok(()))).unwrap();
        assert_eq!(threads.stats().threads, 1);
        drop(its);
        until(|| threads.stats().threads == 0);

        let idle = Threads { idle_max: Some(Duration::from_millis(1)), ..Threads::new("i", 1, 1) };
        let idle = Arc::new(idle);
        for _ in 0..3 {
            block_on(idle.run(|| Ok(()))).unwrap();
            until(|| idle.stats().threads == 0);
        }
    }
}
