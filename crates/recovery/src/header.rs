//! The head of the store's file, of which a copy is kept: the one part of the file whose damage redb does not always notice.
//!
//! *Operation.* redb's pages prove each other by checksums down from two commit slots in the first 320 bytes of the file, of which
//! the newer counts. What says that the file is a database and how it is divided stands before them, without a checksum; and a slot
//! whose checksum is wrong is taken for one that a loss of power tore, so that the commit before it comes back, silently. Here
//! the head as it was synced last is written to [`COPY`] too, without a sync of its own: it outlives the process, and after a loss
//! of power it may be older, never newer. Where head and copy differ when redb opens the file, the newest slot of either one that
//! proves all of its pages is the one to begin from. That is tried in memory; redb is then shown a head that holds it alone, and
//! writes it back itself, under its own lock, when it has checked all of it again.
//!
//! *Memory.* The file, once, while the two are compared; of more than [`TRIED_MAX`] bytes nothing is tried.
//!
//! *Errors.* Those of the file. What goes wrong with the copy is no error: the file is then opened as it is.

use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use mutex::locked;
use redb::backends::InMemoryBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

use crate::folder::Folder;
use crate::format;
use crate::limits::TRIED_MAX;
use crate::names::FILE;

/// Name of the copy in the state folder.
pub const COPY: &str = "recovery.head";

/// Bytes of the head (redb's docs/design.md, "Super-header").
const LEN: usize = 320;
/// What stands before the slots.
const FIXED: usize = 64;
const SLOT: usize = 128;
/// The byte of flags.
const FLAGS: usize = 9;
/// The slot that counts.
const PRIMARY: u8 = 1;
/// The file was not closed, so that all of it is to be checked, and its length says how it is divided.
const UNCLEAN: u8 = 2;
/// Where a slot has the number of its commit.
const COMMIT: usize = 104;
/// Where what was written once ends, and the length of the file in parts begins.
const PARTS: usize = 24;

type Head = [u8; LEN];

/// What redb reads and writes.
#[derive(Debug)]
pub(crate) struct Headed {
    file: Box<dyn StorageBackend>,
    /// For messages.
    path: PathBuf,
    copy: Option<Box<dyn StorageBackend>>,
    head: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// As redb sees it; `None` until it is first read.
    now: Option<Head>,
    /// It was written since the copy was.
    is_newer: bool,
}

impl Headed {
    /// Over the file of a store that is there.
    pub(crate) fn open(folder: &dyn Folder) -> Result<Self, DatabaseError> {
        let file = folder.open(FILE)?;
        if file.len()? < LEN as u64 {
            // It would be taken for a file in which a database is to be made.
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let copy = match folder.is_there(COPY) {
            Ok(true) => folder.open(COPY),
            Ok(false) => folder.create(COPY),
            Err(e) => Err(e),
        };
        let copy = copy.inspect_err(|why| {
            let at = folder.path().join(COPY);
            tracing::warn!(file = %at.display(), %why, "no copy of the store's head is kept");
        });
        let path = folder.path().join(FILE);
        Ok(Self { file, path, copy: copy.ok(), head: Mutex::default() })
    }

    fn head(&self) -> MutexGuard<'_, State> {
        locked(&self.head)
    }

    /// The head to begin from. redb has its lock by now: it locks before it reads.
    fn first(&self) -> io::Result<Head> {
        let mut own = [0; LEN];
        self.file.read(0, &mut own)?;
        let mut kept = [0; LEN];
        let Some(copy) = &self.copy else { return Ok(own) };
        let is_whole = copy.len().is_ok_and(|len| len >= LEN as u64);
        if !is_whole || copy.read(0, &mut kept).is_err() || kept == own {
            return Ok(own);
        }
        if self.file.len()? > TRIED_MAX {
            return Ok(own);
        }
        let mut whole = vec![0; usize::try_from(self.file.len()?).unwrap_or(0)];
        self.file.read(0, &mut whole)?;
        let healed = best(&own, &kept, |head| proves(&whole, head));
        Ok(healed.map_or(own, |healed| {
            if !holds(&own, &healed) {
                tracing::warn!(
                    file = %self.path.display(), copy = COPY,
                    "the store's first page was damaged and is put back from its copy, all other pages agree with it: nothing \
                     is lost; see to the disk of this file"
                );
            }
            healed
        }))
    }
}

/// A head that has this slot alone, of the `n`th place.
fn only(fixed: &Head, slots: &Head, n: usize) -> Head {
    let mut head = *fixed;
    let (at, other) = (FIXED + n * SLOT, FIXED + (1 - n) * SLOT);
    head[FLAGS] = UNCLEAN | if n == 1 { PRIMARY } else { 0 };
    head[at..at + SLOT].copy_from_slice(&slots[at..at + SLOT]);
    // The version, which has to be known, and no commit, with a checksum that is wrong.
    let version = head[at];
    head[other..other + SLOT].fill(0);
    head[other] = version;
    head
}

fn commit(head: &Head, n: usize) -> u64 {
    let at = FIXED + n * SLOT + COMMIT;
    let bytes = head[at..].first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(bytes)
}

/// The file's head says by itself all that this one does.
fn holds(own: &Head, healed: &Head) -> bool {
    let n = usize::from(healed[FLAGS] & PRIMARY);
    let at = FIXED + n * SLOT;
    own[..FLAGS] == healed[..FLAGS]
        && own[FLAGS + 1..PARTS] == healed[FLAGS + 1..PARTS]
        && own[at..at + SLOT] == healed[at..at + SLOT]
}

/// Of the slots of both heads the one of the newest commit that proves its pages; where both have it, as the file has it.
fn best(own: &Head, kept: &Head, proves: impl Fn(&Head) -> bool) -> Option<Head> {
    let mut all: Vec<(u64, Head)> = Vec::new();
    for slots in [own, kept] {
        for n in 0..2 {
            // What is fixed was written once. A copy of this very file has it right; a copy of another proves nothing.
            all.extend([kept, own].map(|fixed| (commit(slots, n), only(fixed, slots, n))));
        }
    }
    all.sort_by_key(|(commit, _)| std::cmp::Reverse(*commit));
    all.dedup();
    all.into_iter().map(|(_, head)| head).find(proves)
}

/// With this head the file is a store all of whose pages agree.
fn proves(whole: &[u8], head: &Head) -> bool {
    let memory = InMemoryBackend::new();
    let fill = StorageBackend::set_len(&memory, whole.len() as u64)
        .and_then(|()| StorageBackend::write(&memory, 0, whole))
        .and_then(|()| StorageBackend::write(&memory, 0, head));
    if fill.is_err() {
        return false;
    }
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let mut db = format::builder().create_with_backend(memory)?;
        Ok::<_, DatabaseError>(db.check_integrity()? && format::check_format(&db).is_ok())
    }));
    matches!(checked, Ok(Ok(true)))
}

/// What part of the head a piece of the file is: places in the head, and in the piece.
fn part(offset: u64, len: usize) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let at = usize::try_from(offset).ok().filter(|at| *at < LEN)?;
    let len = len.min(LEN - at);
    Some((at..at + len, 0..len))
}

impl StorageBackend for Headed {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)?;
        let Some((in_head, in_out)) = part(offset, out.len()) else { return Ok(()) };
        let mut state = self.head();
        let now = match state.now {
            Some(now) => now,
            None => *state.now.insert(self.first()?),
        };
        out[in_out].copy_from_slice(&now[in_head]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        let mut state = self.head();
        if let (Some(now), Some(copy), true) = (&state.now, &self.copy, state.is_newer) {
            // Without it the next start has an older copy, or a torn one, and believes neither more than the file.
            let _ = copy.write(0, now);
            state.is_newer = false;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let in_both = part(offset, data.len());
        let Some((in_head, in_data)) = in_both else { return self.file.write(offset, data) };
        let mut state = self.head();
        self.file.write(offset, data)?;
        if let Some(now) = &mut state.now {
            now[in_head].copy_from_slice(&data[in_data]);
            state.is_newer = true;
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
