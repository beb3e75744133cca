//! Removes what is too old or too much from the wastebaskets, in the background.
//!
//! *Operation.* A turn looks at every file of one wastebasket, which takes no more than a fiftieth of the time, and removes what is
//! due in steps of [`STEP`] files, with pauses. All of it runs on threads for blocking work.
//!
//! *Memory.* See [`vfs::waste_due`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;
use vfs::namespace::{Namespace, Share};
use vfs::waste_due::{Bounds, Due, due};
use vfs::waste_record::Id;
use vfs::wastebasket::{FILES_MAX, Wastebasket, counters};
use vfs::{VfsError, VfsResult, waste_keep};

/// Shortest and longest time from one turn of a wastebasket to the next.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Files that are removed before a pause.
const STEP: usize = 100;
/// The pause.
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// Part of the time that looking takes at most.
const LOOKS_PART: u32 = 50;

/// Takes turns until the gateway ends. A file system that does not answer holds up its own share alone.
pub(crate) async fn keep(namespace: Arc<Namespace>) {
    let mut turns: HashMap<String, Instant> = HashMap::new();
    let mut running: JoinSet<(String, Instant)> = JoinSet::new();
    let mut busy: HashSet<String> = HashSet::new();
    loop {
        tokio::time::sleep(PAUSES[0]).await;
        while let Some(ended) = running.try_join_next() {
            if let Ok((name, next)) = ended {
                busy.remove(&name);
                turns.insert(name, next);
            }
        }
        let shares = namespace.shares();
        turns.retain(|name, _| shares.iter().any(|share| share.name == *name));
        for share in shares.iter() {
            let Some(rules) = share.rules.wastebasket.clone() else { continue };
            let waits = turns.get(&share.name).is_some_and(|at| Instant::now() < *at);
            if !waits && busy.insert(share.name.clone()) {
                running.spawn(one(share.clone(), rules));
            }
        }
    }
}

/// Takes a turn; returns the name of the share, and the time of the next turn.
async fn one(share: Arc<Share>, rules: Arc<Wastebasket>) -> (String, Instant) {
    let since = Instant::now();
    match turn(&share, &rules).await {
        // The backend reports a folder that is gone.
        Ok(_) | Err(VfsError::Stale) => {}
        Err(e) => {
            tracing::warn!(share = share.name, error = %e, "files that are due stay in the wastebasket");
        }
    }
    let pause = (rules.keep / 10).clamp(PAUSES[0], PAUSES[1]);
    let pause = pause.max(since.elapsed().saturating_mul(LOOKS_PART));
    (share.name.clone(), Instant::now() + pause)
}

/// Removes what is due now; returns it.
async fn turn(share: &Arc<Share>, rules: &Wastebasket) -> VfsResult<Due> {
    let Some(basket) = share.backend.basket() else { return Ok(Due::default()) };
    let bounds =
        Bounds { keep: rules.keep, bytes: rules.most.unwrap_or(u64::MAX), files: FILES_MAX };
    let look = move || {
        let mut all = Vec::new();
        basket.weights(&mut |weight| {
            all.push(weight);
            // More cannot come together within a few turns.
            all.len() < 2 * FILES_MAX
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        VfsResult::Ok(due(all, bounds, u64::try_from(now.as_micros()).unwrap_or(u64::MAX)))
    };
    let due: Due = tokio::task::spawn_blocking(look).await.map_err(|_| VfsError::Io)??;
    rules.files.store(u64::try_from(due.rest).unwrap_or(u64::MAX), Ordering::Relaxed);
    rules.bytes.store(due.bytes, Ordering::Relaxed);
    let all = counters();
    for (ids, count) in [(&due.expired, &all.expired), (&due.displaced, &all.displaced)] {
        for step in ids.chunks(STEP) {
            for id in step {
                if remove(share, *id).await? {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
            tokio::time::sleep(STEP_PAUSE).await;
        }
    }
    if !due.displaced.is_empty() {
        let files = due.displaced.len();
        tracing::info!(
            share = share.name,
            files,
            "the wastebasket was full: the oldest files were removed"
        );
    }
    Ok(due)
}

async fn remove(share: &Arc<Share>, id: Id) -> VfsResult<bool> {
    match waste_keep::end(share, id).await {
        Ok(()) => Ok(true),
        // It was given back or removed.
        Err(VfsError::NotFound) => Ok(false),
        Err(e) => Err(e),
    }
}
