//! READDIR (RFC 8881 section 18.23).
//!
//! *Operation.* Names are read from the volume in batches; each is looked up for its attributes, unless the listing itself contains
//! all requested ones. Cookies are the volume's and stay valid when names are added or removed, so the verifier is always zero.
//!
//! *Memory.* Entries are encoded directly into the reply; an entry that does not fit is removed again.
//!
//! *Errors.* TOOSMALL if not even one entry fits. An error of one entry is reported in its `rdattr_error` if that was requested;
//! otherwise it ends the READDIR. DELAY for entries after [`HOLDERS_WAIT_MAX`]; without `rdattr_error` the reply ends before them.

use std::time::Duration;

use nfs_proto::nfs4::attrs::{Value, put_fattr};
use nfs_proto::nfs4::ops::{Component4, Readdir};
use rdma_transport::turn;
use tokio::time::Instant;
use vfs::namespace::Listed;
use vfs::{DirEntry, Kind, VfsError};

use crate::limits::ENTRIES_BEFORE_PAUSE;
use crate::v4::above::{Above, Child};
use crate::v4::attrs::{Bitmap, ObjectAttrs, asks_where, is_write_only, supported_on};
use crate::v4::compound::Compound;
use crate::v4::links;
use crate::v4::object::{Located, Object};
use crate::v4::status::Status;
use crate::v4::wire::{VERIFIER_SIZE, attr};

/// `eof` and the end of the list.
const TRAILER: usize = 8;
/// Estimated bytes of an entry with a short name and common attributes, to size a batch.
const ENTRY_GUESS: usize = 128;
/// Names in one batch.
const BATCH_MAX: usize = 1024;
/// How long one READDIR waits for clients that hold write delegations of its files: each may take its time to answer.
const HOLDERS_WAIT_MAX: Duration = Duration::from_millis(100);
/// Attributes that the listing contains, without a look-up.
const BY_LISTING: Bitmap =
    Bitmap::of(&[attr::TYPE, attr::FILEID, attr::MOUNTED_ON_FILEID, attr::RDATTR_ERROR]);

/// Attributes that disclose only the existence of a name.
const BY_NAME: Bitmap = Bitmap::of(&[attr::MOUNTED_ON_FILEID, attr::RDATTR_ERROR]);

/// Remaining room in the reply.
struct Budget {
    /// Size limit of the reply without the trailer.
    end: usize,
    /// Remaining bytes of names and cookies (`dircount`), a hint.
    names: usize,
    entries: usize,
    want: Bitmap,
}

/// Whether the listing continues.
#[derive(PartialEq, Eq)]
enum Next {
    More,
    Full,
}

pub(in crate::v4) async fn readdir(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Readdir { cookie, dircount, maxcount, attr_request: want, .. } = cx.args.value()?;
    let object = cx.object()?.clone();
    if let Object::Node(at) = &object
        && at.node.kind() != Kind::Dir
    {
        return Err(Status::NotDir);
    }
    if cookie != 0 && cookie < DirEntry::COOKIE_MIN {
        return Err(Status::BadCookie);
    }
    if is_write_only(&want) {
        return Err(Status::Inval);
    }
    let max = usize::try_from(maxcount).unwrap_or(usize::MAX).min(cx.room_for_data(0));
    let room = max.checked_sub(VERIFIER_SIZE + TRAILER).ok_or(Status::TooSmall)?;
    cx.out.value(&[0; VERIFIER_SIZE]);
    let names = match dircount {
        0 => usize::MAX,
        n => usize::try_from(n).unwrap_or(usize::MAX),
    };
    let end = cx.out.total_len() + room;
    let mut budget = Budget { end, names, entries: 0, want };
    let eof = match &object {
        Object::Above(above) => list_above(cx, above, cookie, &mut budget).await?,
        Object::Node(at) => list(cx, at, cookie, &mut budget).await?,
    };
    if budget.entries == 0 && !eof {
        return Err(Status::TooSmall);
    }
    // No further entry.
    cx.out.value(&false);
    cx.out.value(&eof);
    Ok(())
}

/// Lists a pseudo folder. True at its end.
async fn list_above(
    cx: &mut Compound<'_>,
    above: &Above,
    after: u64,
    budget: &mut Budget,
) -> Result<bool, Status> {
    // Cookies are derived from the entries' numbers, above the reserved cookies: they stay valid when entries appear or disappear
    // between two calls.
    let cookie_of = |child: &Child| DirEntry::COOKIE_MIN + child.number();
    let mut children = above.visible(cx);
    children.sort_by_key(|(_, child)| child.number());
    for (name, child) in children.into_iter().filter(|(_, child)| cookie_of(child) > after) {
        let cookie = cookie_of(&child);
        let object = match child {
            Child::Share(share) => cx.root_of(share),
            Child::Folder(folder) => Object::Above(folder),
        };
        let want = &budget.want;
        let facts = if object.is_absent() {
            of_absent(cx, &object, want).await
        } else if object.wants_flavor() && !want.is_within(&BY_NAME) {
            // Attributes of a share's root need the flavor that the share requires, as in GETATTR.
            Err(Status::WrongSec)
        } else {
            ObjectAttrs::of(cx, &object, want).await
        };
        if write_entry(cx, budget, cookie, name.as_bytes(), facts)? == Next::Full {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The attributes of a share or folder on another server (RFC 8881 section 11.4.2). A request for the location succeeds; others get
/// MOVED in `rdattr_error` with the few existing attributes, or fail if that was not requested.
async fn of_absent(
    cx: &Compound<'_>,
    object: &Object,
    want: &Bitmap,
) -> Result<ObjectAttrs, Status> {
    let facts = ObjectAttrs::of(cx, object, want).await?;
    if asks_where(cx.minor, want) {
        Ok(facts)
    } else if want.has(attr::RDATTR_ERROR) {
        Ok(facts.with_error(Status::Moved))
    } else if want.is_within(&supported_on(cx.minor, object)) {
        Ok(facts)
    } else {
        Err(Status::Moved)
    }
}

/// Lists a directory of a share. True at its end.
async fn list(
    cx: &mut Compound<'_>,
    at: &Located,
    after: u64,
    budget: &mut Budget,
) -> Result<bool, Status> {
    let by_listing = budget.want.is_within(&BY_LISTING);
    let (mut cookie, mut waited) = (after, Duration::ZERO);
    loop {
        let left = budget.end.saturating_sub(cx.out.total_len());
        let batch = (left / ENTRY_GUESS + 1).min(BATCH_MAX);
        let (entries, eof) = at.share.readdir(&at.node, &at.cred, cookie, batch).await?;
        if entries.is_empty() {
            return Ok(eof);
        }
        for (nth, listed) in entries.iter().enumerate() {
            if nth % ENTRIES_BEFORE_PAUSE == 0 {
                turn::pause().await;
            }
            let entry = &listed.entry;
            cookie = entry.cookie;
            let facts = match entry.kind {
                Some(kind) if by_listing && !may_refer(at, kind) => {
                    Ok(ObjectAttrs::of_entry(cx.minor, entry.fileid, kind))
                }
                _ => match look(cx, at, listed, &budget.want, &mut waited).await {
                    // Removed between listing and look-up.
                    Err(Status::NoEnt | Status::Stale) => continue,
                    Err(Status::Delay)
                        if budget.entries > 0 && !budget.want.has(attr::RDATTR_ERROR) =>
                    {
                        return Ok(false);
                    }
                    other => other,
                },
            };
            if write_entry(cx, budget, cookie, &entry.name, facts)? == Next::Full {
                return Ok(false);
            }
        }
        if eof {
            return Ok(true);
        }
    }
}

/// True if an entry of this kind may be a link to another server.
fn may_refer(at: &Located, kind: Kind) -> bool {
    matches!(kind, Kind::Dir | Kind::Symlink) && at.share.rules.links.are_in(at.node.id())
}

async fn look(
    cx: &Compound<'_>,
    at: &Located,
    listed: &Listed,
    want: &Bitmap,
    waited: &mut Duration,
) -> Result<ObjectAttrs, Status> {
    let looked_up = match &listed.found {
        Some(found) => Ok(found.clone()),
        None => at.node.lookup(&at.cred, &listed.entry.name).await,
    };
    let (node, attr) = looked_up.map_err(|e| match e {
        // A listed name that cannot be looked up does not exist for this caller.
        VfsError::Invalid | VfsError::BadName => Status::NoEnt,
        other => other.into(),
    })?;
    let known = cx.file_ops().is_known(&node);
    let found = Object::Node(at.beside(node));
    let found = links::across(found, Some((&at.node, &listed.entry.name[..]))).await?;
    if found.is_absent() {
        of_absent(cx, &found, want).await
    } else if known {
        ObjectAttrs::with_attr(cx, &found, want, attr).await
    } else if *waited >= HOLDERS_WAIT_MAX {
        Err(Status::Delay)
    } else {
        let began = Instant::now();
        let facts = ObjectAttrs::of(cx, &found, want).await;
        *waited += began.elapsed();
        facts
    }
}

/// Writes `entry4` if it fits.
fn write_entry(
    cx: &mut Compound<'_>,
    budget: &mut Budget,
    cookie: u64,
    name: &[u8],
    facts: Result<ObjectAttrs, Status>,
) -> Result<Next, Status> {
    let mark = cx.out.len();
    cx.out.value(&true);
    cx.out.value(&cookie);
    cx.out.value(&Component4 { name });
    // At least one entry is returned, whatever `dircount` says.
    let names = cx.out.len() - mark;
    match facts {
        Ok(facts) => facts.encode(&budget.want, cx.out.head()),
        Err(status) if budget.want.has(attr::RDATTR_ERROR) => {
            let why = Value::RdattrError(status.into());
            put_fattr(&Bitmap::of(&[attr::RDATTR_ERROR]), &[why], cx.out.head());
        }
        Err(status) => return Err(status),
    }
    if cx.out.total_len() > budget.end || names > budget.names && budget.entries > 0 {
        cx.out.truncate(mark);
        return Ok(Next::Full);
    }
    budget.names = budget.names.saturating_sub(names);
    budget.entries += 1;
    Ok(Next::More)
}
