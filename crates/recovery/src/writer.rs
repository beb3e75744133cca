//! The thread that owns the database and executes all work on it in order.
//!
//! *Operation.* Takes the queued requests, commits them as one transaction, answers them, and repeats. After a failed commit it
//! reopens the database, because redb refuses all work after a file error; until that succeeds every request gets the error.
//!
//! *Memory.* One batch of at most [`BATCH_MAX`] requests.
//!
//! *Errors.* [`Error::Commit`], and the errors of opening.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::error::Error;
use crate::format::table;
use crate::health::Health;
use crate::limits::{BATCH_MAX, PROBE, PROBE_BYTES};
use crate::record::{Change, Counters, Kind, Record};

pub(crate) type Open = Box<dyn Fn() -> Result<Database, Error> + Send>;
pub(crate) type CommitAnswer = Box<dyn FnOnce(Result<(), Error>) + Send>;
pub(crate) type Notes<'a> = (&'a Counters, &'a Health);
pub(crate) type ReadAnswer = Box<dyn FnOnce(Result<Vec<Record>, Error>) + Send>;

pub(crate) enum Job {
    Commit { changes: Vec<Change>, answer: CommitAnswer },
    Read { kind: Kind, answer: ReadAnswer },
}

/// Table of the probe record, which is added and removed to test the store.
const PROBES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("probes");
const PROBED: &str = "probed";

/// Runs until the last handle is dropped and all submitted work is done.
pub(crate) fn run(db: Database, open: &Open, queue: &Receiver<Job>, notes: Notes<'_>) {
    let (_, health) = notes;
    let mut db = Some(db);
    let mut next = None;
    // End of the last probe, or start of the trouble.
    let mut tried: Option<Instant> = None;
    loop {
        if !health.is_troubled() {
            tried = None;
        }
        let job = match next.take() {
            Some(job) => job,
            None if health.is_troubled() => {
                let left = PROBE.saturating_sub(tried.get_or_insert_with(Instant::now).elapsed());
                // Probe even if the queue is never empty under load.
                let received = match left.is_zero() {
                    true => Err(RecvTimeoutError::Timeout),
                    false => queue.recv_timeout(left),
                };
                match received {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Timeout) => {
                        probe(&mut db, open, health);
                        tried = Some(Instant::now());
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            None => match queue.recv() {
                Ok(job) => job,
                Err(_) => return,
            },
        };
        match job {
            Job::Read { kind, answer } => {
                let records = ready(&mut db, open).and_then(|db| read(db, kind, health.folder()));
                answer(records);
            }
            Job::Commit { changes, answer } => {
                let mut batch = vec![(changes, answer)];
                while batch.len() < BATCH_MAX {
                    match queue.try_recv() {
                        Ok(Job::Commit { changes, answer }) => batch.push((changes, answer)),
                        // A reader sees the changes submitted before it and no later ones.
                        Ok(read) => {
                            next = Some(read);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                all(&mut db, open, batch, notes);
            }
        }
    }
}

fn ready<'a>(db: &'a mut Option<Database>, open: &Open) -> Result<&'a Database, Error> {
    if db.is_none() {
        *db = Some(open()?);
    }
    db.as_ref().ok_or(Error::Ended)
}

fn all(
    db: &mut Option<Database>,
    open: &Open,
    batch: Vec<(Vec<Change>, CommitAnswer)>,
    (counters, health): Notes<'_>,
) {
    let begun = Instant::now();
    let changes = batch.iter().flat_map(|(changes, _)| changes);
    let done = ready(db, open)
        .and_then(|db| commit(db, changes).map_err(|e| Error::commit(health.folder(), &e)));
    health.note(&done);
    match &done {
        Ok(()) => {
            let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            counters.commits.fetch_add(1, Ordering::Relaxed);
            counters.commit_us.fetch_add(took, Ordering::Relaxed);
            counters.requests.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
        Err(why) => {
            counters.failed.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(error = %why, "the store refused {} requests", batch.len());
            // Close the database so that it can be reopened.
            *db = None;
        }
    }
    batch.into_iter().for_each(|(_, answer)| answer(done.clone()));
}

fn commit<'a>(db: &Database, changes: impl Iterator<Item = &'a Change>) -> Result<(), redb::Error> {
    let work = db.begin_write()?;
    for change in changes {
        match change {
            Change::Put(kind, key, value) => {
                work.open_table(table(*kind))?.insert(&**key, &**value)?;
            }
            Change::Remove(kind, key) => {
                work.open_table(table(*kind))?.remove(&**key)?;
            }
        }
    }
    Ok(work.commit()?)
}

/// Tests whether records can be stored, with a record of [`PROBE_BYTES`] that is removed again: its pages remain in the file for
/// later records.
fn probe(db: &mut Option<Database>, open: &Open, health: &Health) {
    let put = |db: &Database| -> Result<(), redb::Error> {
        let work = db.begin_write()?;
        work.open_table(PROBES)?.insert(PROBED, &*vec![0xa5; PROBE_BYTES])?;
        work.commit()?;
        let work = db.begin_write()?;
        work.open_table(PROBES)?.remove(PROBED)?;
        Ok(work.commit()?)
    };
    let done =
        ready(db, open).and_then(|db| put(db).map_err(|e| Error::commit(health.folder(), &e)));
    health.note_probe(&done);
    if done.is_err() {
        *db = None;
    }
}

fn read(db: &Database, kind: Kind, folder: &Path) -> Result<Vec<Record>, Error> {
    let all = || -> Result<Vec<Record>, redb::Error> {
        let work = db.begin_read()?;
        let records = work.open_table(table(kind))?;
        let mut out = Vec::new();
        for record in records.iter()? {
            let (key, value) = record?;
            out.push((key.value().into(), value.value().into()));
        }
        Ok(out)
    };
    all().map_err(|e| Error::commit(folder, &e))
}
