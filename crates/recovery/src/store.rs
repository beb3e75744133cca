//! The public interface of the store.
//!
//! *Operation.* [`Store::submit`] queues changes for the writer in call order and returns a [`Pending`] that is ready once they are
//! durable. Requests that arrive during a commit go into the next one together: they share its cost, and no request waits for a
//! timer.
//!
//! *Memory.* At most [`QUEUE_MAX`] requests are queued.
//!
//! *Errors.* A failed commit is reported to every request in it, and all of its changes are lost.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use redb::{Database, DatabaseError, StorageBackend};
use tokio::sync::oneshot;

use crate::error::Error;
use crate::file;
use crate::folder::{Folder, Local};
use crate::format;
use crate::health::{Health, StoreTrouble};
use crate::limits::QUEUE_MAX;
use crate::record::{Change, Counters, Kind, Record};
use crate::writer::{self, Job, Open};

/// Ready when the submitted changes are durable. Dropping it does not cancel them.
#[must_use = "nothing is durable before this is ready"]
#[derive(Debug)]
pub struct Pending(Result<oneshot::Receiver<Result<(), Error>>, Option<Error>>);

impl Future for Pending {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(answer) => Pin::new(answer).poll(cx).map(|got| got.unwrap_or(Err(Error::Ended))),
            Err(refused) => Poll::Ready(Err(refused.take().unwrap_or(Error::Ended))),
        }
    }
}

#[derive(Debug)]
struct Inner {
    jobs: Option<mpsc::SyncSender<Job>>,
    writer: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
    health: Arc<Health>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Wait for the writer, so that the file is closed and unlocked and can be opened again at once.
        drop(self.jobs.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// The records of one state folder. Cheap to clone; the last clone closes the file.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

impl Store {
    /// Opens the store of a state folder, or creates it at the first start. Blocks on the disk.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Self::open_in(Arc::new(Local(folder.to_owned())))
    }

    /// Does the same for a folder on any file system. Blocks on it, here and in the writer thread.
    pub fn open_in(folder: Arc<dyn Folder>) -> Result<Self, Error> {
        let (path, its) = (folder.path().to_owned(), folder.clone());
        Self::with(&path, Some(folder), Box::new(move || file::open(&*its)))
    }

    /// Uses the caller's file layer, which `open` supplies whenever the database is opened; `fresh` if it is still empty.
    pub fn on_backend<B: StorageBackend>(
        fresh: bool,
        open: impl Fn() -> B + Send + 'static,
    ) -> Result<Self, Error> {
        let place = Path::new("backend");
        let database = move || -> Result<Database, DatabaseError> {
            format::builder().create_with_backend(open())
        };
        if fresh {
            let db = database().map_err(|e| Error::commit(place, &e.into()))?;
            format::put_format(&db).map_err(|e| Error::commit(place, &e))?;
        }
        Self::with(place, None, Box::new(move || file::sound(place, &database)))
    }

    fn with(path: &Path, folder: Option<Arc<dyn Folder>>, open: Open) -> Result<Self, Error> {
        let db = open()?;
        let health = Arc::new(Health::of(path, folder));
        let noted = health.clone();
        let (jobs, queue) = mpsc::sync_channel(QUEUE_MAX);
        let counters = Arc::new(Counters::default());
        let count = counters.clone();
        let writer = std::thread::Builder::new()
            .name("recovery".into())
            .spawn(move || writer::run(db, &open, &queue, (&count, &noted)))
            .map_err(|e| Error::io("thread of the store", e))?;
        Ok(Self(Arc::new(Inner { jobs: Some(jobs), writer: Some(writer), counters, health })))
    }

    /// Returns the counters of the store.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Returns the reason why records cannot be made durable; `None` if the last commit succeeded. Cheap.
    pub fn health(&self) -> Option<StoreTrouble> {
        self.0.health.now()
    }

    /// Returns all records of a kind in key order, including every change submitted before this call. Blocks on the disk.
    pub fn read(&self, kind: Kind) -> Result<Vec<Record>, Error> {
        let (tell, told) = mpsc::sync_channel(1);
        let answer = Box::new(move |got| drop(tell.try_send(got)));
        self.queue(Job::Read { kind, answer })?;
        told.recv().unwrap_or(Err(Error::Ended))
    }

    /// Queues changes, which become durable together and after those of all earlier calls. Does not block.
    pub fn submit(&self, changes: Vec<Change>) -> Pending {
        let (tell, told) = oneshot::channel();
        let answer = Box::new(move |done| drop(tell.send(done)));
        Pending(self.enqueue(changes, answer).map(|()| told).map_err(Some))
    }

    /// Submits changes and waits until they are durable. Blocks on the disk.
    pub fn commit_blocking(&self, changes: Vec<Change>) -> Result<(), Error> {
        let (tell, told) = mpsc::sync_channel(1);
        self.enqueue(changes, Box::new(move |done| drop(tell.try_send(done))))?;
        told.recv().unwrap_or(Err(Error::Ended))
    }

    fn enqueue(&self, changes: Vec<Change>, answer: writer::CommitAnswer) -> Result<(), Error> {
        changes.iter().try_for_each(Change::check)?;
        self.queue(Job::Commit { changes, answer })
    }

    fn queue(&self, job: Job) -> Result<(), Error> {
        let Some(jobs) = &self.0.jobs else { return Err(Error::Ended) };
        jobs.try_send(job).map_err(|e| match e {
            mpsc::TrySendError::Full(_) => {
                self.0.counters.refused.fetch_add(1, Ordering::Relaxed);
                Error::Busy
            }
            mpsc::TrySendError::Disconnected(_) => Error::Ended,
        })
    }
}
