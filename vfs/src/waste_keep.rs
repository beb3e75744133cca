//! Decides which removals and renames keep a file in the wastebasket, for every protocol.
//!
//! *Operation.* [`FileOps`] removes names at two places, of which each asks here first. A share without a wastebasket pays one
//! comparison. The caller needs the rights of the removal itself, no more and no less: without them nothing is written to the file.
//!
//! *Errors.* See [`crate::wastebasket`].

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::audited::place;
use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::namespace::{FileOps, Share};
use crate::streams::forget;
use crate::types::*;
use crate::waste_record::{Id, Record, Way, mark};
use crate::wastebasket::{NotKept, Outcome, Waste, count_not_kept, counters};

/// Distinguishes files that are removed at the same time, also by different runs.
static NUMBER: LazyLock<AtomicU32> = LazyLock::new(|| {
    let start = RandomState::new().hash_one(0) & u64::from(u32::MAX);
    AtomicU32::new(u32::try_from(start).unwrap_or(0))
});

/// Returns a place for a file that this user removes now. `from`: the address to whose part it counts, unless the user has one.
fn new_id(uid: u32, from: Option<IpAddr>) -> Id {
    let now = Time::now();
    let seconds = u64::try_from(now.sec).unwrap_or(0);
    let at = seconds.saturating_mul(1_000_000).saturating_add(u64::from(now.nsec / 1000));
    let mark = u32::from(from.map_or(0, mark));
    Id { at, uid, number: mark << 16 | NUMBER.fetch_add(1, Ordering::Relaxed) & 0xffff }
}

impl FileOps<'_> {
    /// Returns a place and a record for the file of this name, if the share may keep it.
    async fn waste(
        &self,
        share: &Share,
        (dir, name): (&NodeRef, &[u8]),
        cred: &Cred,
        way: Way,
    ) -> Option<Waste> {
        let rules = share.rules.wastebasket.as_ref()?;
        let is_whole = dir.path().await.is_ok();
        let path = place(dir, name).await;
        if rules.excludes(&path) {
            return None;
        }
        // The volume refuses a caller without the right, and the file stays untouched. Whether the file is kept is decided there:
        // another file may have the name by then.
        if let Ok((node, _)) = dir.lookup(&Cred::root(), name).await {
            self.check_removal(dir, cred, &node).await.ok()?;
        }
        let acting = self.actor.map(crate::actor::Actor::acting);
        let from = acting.as_ref().filter(|by| !by.is_proven).map(|by| by.peer);
        let record = Record {
            way,
            path,
            is_whole,
            user: acting.as_ref().map(|by| by.party.user.to_string()).unwrap_or_default(),
            uid: acting.as_ref().and_then(|by| by.party.uid),
            peer: acting.as_ref().map(|by| by.peer),
            protocol: acting.map(|by| by.protocol.to_owned()).unwrap_or_default(),
        };
        Some(Waste { id: new_id(cred.uid, from), record })
    }

    /// Removes a name that is not a directory's, and returns where its file went.
    pub(crate) async fn unlink_or_keep(
        &self,
        share: &Share,
        (dir, name): (&NodeRef, &[u8]),
        cred: &Cred,
        rights: u32,
    ) -> VfsResult<(DirChange, Option<Id>)> {
        if let Some(waste) = self.waste(share, (dir, name), cred, Way::Removed).await {
            match dir.unlink_kept(self.acting(cred, rights), name, &waste).await? {
                Outcome::Yes(done) => return Ok((done, Some(kept(waste.id)))),
                Outcome::None(done) => return Ok((done, None)),
                Outcome::No(why) => not_kept(share, why, &waste),
            }
        }
        Ok((dir.unlink(self.acting(cred, rights), name).await?, None))
    }

    /// Renames, with `replace` also over the name of another file, and returns where that file went.
    pub(crate) async fn rename_or_keep(
        &self,
        share: &Share,
        (from_dir, from): (&NodeRef, &[u8]),
        (to_dir, to): (&NodeRef, &[u8]),
        (cred, rights): (&Cred, u32),
        replace: bool,
    ) -> VfsResult<((DirChange, DirChange), Option<Id>)> {
        let by = || self.acting(cred, rights);
        if replace && let Some(waste) = self.waste(share, (to_dir, to), cred, Way::Replaced).await {
            match from_dir.rename_kept(by(), from, to_dir.as_ref(), to, &waste).await? {
                Outcome::Yes(done) => return Ok((done, Some(kept(waste.id)))),
                Outcome::None(done) => return Ok((done, None)),
                Outcome::No(why) => not_kept(share, why, &waste),
            }
        }
        Ok((from_dir.rename(by(), from, to_dir.as_ref(), to, replace).await?, None))
    }
}

/// Removes a file in the wastebasket of a share for good, with its streams.
pub async fn end(share: &Share, id: Id) -> VfsResult<()> {
    let basket = share.backend.basket().ok_or(VfsError::NotSupported)?;
    let remove = tokio::task::spawn_blocking(move || basket.remove(id));
    match remove.await.map_err(|_| VfsError::Io)?? {
        Some(handle) => forget(share, &handle).await,
        None => Ok(()),
    }
}

fn kept(id: Id) -> Id {
    counters().kept.fetch_add(1, Ordering::Relaxed);
    id
}

/// Counts a file that is removed at once, and reports the first one of its share.
fn not_kept(share: &Share, why: NotKept, waste: &Waste) {
    let Some(rules) = &share.rules.wastebasket else { return };
    if count_not_kept(rules, why) {
        let path = String::from_utf8_lossy(&waste.record.path).into_owned();
        tracing::warn!(
            share = share.name,
            path,
            why = why.why(),
            "a removed file was not kept in the wastebasket; further ones are only counted (headgate_wastebasket_files_total)"
        );
    }
}
