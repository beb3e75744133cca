//! The thread that has the database: everything that is done to it is done here, in order.
//!
//! *Operation.* Takes what waits, commits it as one transaction, answers everybody, and looks again. After a commit that failed
//! the database is opened anew, since it refuses all work after an error of its file; until that works everybody is told so.
//!
//! *Memory.* One batch, at most [`BATCH_MAX`] requests.
//!
//! *Errors.* [`Error::Commit`], and whatever opening says.

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
pub(crate) type Done = Box<dyn FnOnce(Result<(), Error>) + Send>;
pub(crate) type Notes<'a> = (&'a Counters, &'a Health);
pub(crate) type Read = Box<dyn FnOnce(Result<Vec<Record>, Error>) + Send>;

pub(crate) enum Job {
    Commit { changes: Vec<Change>, answer: Done },
    Read { kind: Kind, answer: Read },
}

/// The table of the record that is put and removed to try the store.
const PROBES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("probes");
const PROBED: &str = "probed";

/// Works until the last user has gone and everything that was submitted is done.
pub(crate) fn run(db: Database, open: &Open, queue: &Receiver<Job>, notes: Notes<'_>) {
    let (_, health) = notes;
    let mut db = Some(db);
    let mut next = None;
    // When the last probe ended, or the trouble began.
    let mut tried: Option<Instant> = None;
    loop {
        if !health.is_troubled() {
            tried = None;
        }
        let job = match next.take() {
            Some(job) => job,
            None if health.is_troubled() => {
                let left = PROBE.saturating_sub(tried.get_or_insert_with(Instant::now).elapsed());
                // Under load the queue is never empty when the time has come.
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
                        // A reader sees what was submitted before it, and not what comes after.
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
    batch: Vec<(Vec<Change>, Done)>,
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
            // It is closed before it can be opened again.
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

/// Tries whether records can be kept again, by one of [`PROBE_BYTES`] that is removed then: its pages stay in the file for others.
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
