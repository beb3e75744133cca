//! The store as its users see it.
//!
//! *Operation.* [`Store::submit`] hands changes to the writer, in the order of the calls, and gives a [`Pending`] that is ready
//! when they are durable. What waits while one commit is under way goes together into the next: the price of one
//! is shared, and nobody waits for a timer.
//!
//! *Memory.* At most [`QUEUE_MAX`] requests wait.
//!
//! *Errors.* A commit that fails answers everybody who took part in it; nothing of it is kept.

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

/// Ready when what was submitted is durable. Dropping it changes nothing about that.
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
        // The file is closed and unlocked when this returns, so that it can be opened again at once.
        drop(self.jobs.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// The records of one state folder; cheap to clone. The file is closed with the last clone.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

impl Store {
    /// Opens the store of a state folder, or makes it at the folder's first start. Blocks on the disk.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Self::open_in(Arc::new(Local(folder.to_owned())))
    }

    /// The same for a folder of any file system. Blocks on it, here and in the thread of the store.
    pub fn open_in(folder: Arc<dyn Folder>) -> Result<Self, Error> {
        let (path, its) = (folder.path().to_owned(), folder.clone());
        Self::with(&path, Some(folder), Box::new(move || file::open(&*its)))
    }

    /// Over a file layer of the caller's, which `open` gives anew whenever the database is opened; `fresh` when it is empty yet.
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

    /// How often what was done.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// What keeps records from being made durable; `None` while the last commit was. Cheap.
    pub fn health(&self) -> Option<StoreTrouble> {
        self.0.health.now()
    }

    /// All records of a sort, in the order of their keys, as they are after everything that was submitted before. Blocks on the
    /// disk.
    pub fn read(&self, kind: Kind) -> Result<Vec<Record>, Error> {
        let (tell, told) = mpsc::sync_channel(1);
        let answer = Box::new(move |got| drop(tell.try_send(got)));
        self.queue(Job::Read { kind, answer })?;
        told.recv().unwrap_or(Err(Error::Ended))
    }

    /// Hands changes over; they become durable together and after those of every earlier call. Does not wait.
    pub fn submit(&self, changes: Vec<Change>) -> Pending {
        let (tell, told) = oneshot::channel();
        let answer = Box::new(move |done| drop(tell.send(done)));
        Pending(self.enqueue(changes, answer).map(|()| told).map_err(Some))
    }

    /// As [`Store::submit`], and waits. Blocks on the disk.
    pub fn commit_blocking(&self, changes: Vec<Change>) -> Result<(), Error> {
        let (tell, told) = mpsc::sync_channel(1);
        self.enqueue(changes, Box::new(move |done| drop(tell.try_send(done))))?;
        told.recv().unwrap_or(Err(Error::Ended))
    }

    fn enqueue(&self, changes: Vec<Change>, answer: writer::Done) -> Result<(), Error> {
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
