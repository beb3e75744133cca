//! A backup copy of the file's head, the only part of the file whose damage redb may not notice.
//!
//! *Operation.* redb's pages form a checksum tree below two commit slots in the first 320 bytes of the file; the newer slot is
//! valid. The fields before the slots, which identify the file as a database and describe its layout, have no checksum. If the
//! checksum of a slot is wrong, redb assumes a write torn by power loss and silently reverts to the previous commit. Therefore this
//! layer also writes the last synced head to [`COPY`]. The copy is not synced: it survives the process, and after a power loss it
//! may be older than the head but never newer. If head and copy differ when redb opens the file, this layer picks the newest slot
//! of either whose pages all verify, which it tests in memory. redb then sees a head with only that slot, verifies everything again
//! under its own lock, and writes the head back.
//!
//! *Memory.* The whole file during the comparison; a file larger than [`TRIED_MAX`] is not compared.
//!
//! *Errors.* Errors of the file. A faulty copy is not an error: the file is then opened unchanged.

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

/// Length of the head in bytes ("Super-header" in redb's docs/design.md).
const LEN: usize = 320;
/// Length of the fields before the slots.
const FIXED: usize = 64;
const SLOT: usize = 128;
/// Offset of the flags.
const FLAGS: usize = 9;
/// Flag that selects the valid slot.
const PRIMARY: u8 = 1;
/// Flag of a file that was not closed: redb verifies all of it and derives the layout from its length.
const UNCLEAN: u8 = 2;
/// Offset of the commit number in a slot.
const COMMIT: usize = 104;
/// Offset at which the constant fields end and the layout of the file begins.
const PARTS: usize = 24;

type Head = [u8; LEN];

/// The file layer that redb uses.
#[derive(Debug)]
pub(crate) struct HeadedFile {
    file: Box<dyn StorageBackend>,
    /// Used only in messages.
    path: PathBuf,
    copy: Option<Box<dyn StorageBackend>>,
    head: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The head as redb sees it; `None` before the first read.
    now: Option<Head>,
    /// The head was written after the copy.
    is_newer: bool,
}

impl HeadedFile {
    /// Opens the file of an existing store.
    pub(crate) fn open(folder: &dyn Folder) -> Result<Self, DatabaseError> {
        let file = folder.open(FILE)?;
        if file.len()? < LEN as u64 {
            // redb would create a database in a file that is too short.
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

    /// Returns the head to start from. redb locks the file before it reads, so the lock is held here.
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
                    "the store's first page was damaged and has been restored from its copy; all other pages are \
                     intact and no data is lost: check the disk of this file"
                );
            }
            healed
        }))
    }
}

/// Returns a head with only slot `n` of `slots`.
fn only(fixed: &Head, slots: &Head, n: usize) -> Head {
    let mut head = *fixed;
    let (at, other) = (FIXED + n * SLOT, FIXED + (1 - n) * SLOT);
    head[FLAGS] = UNCLEAN | if n == 1 { PRIMARY } else { 0 };
    head[at..at + SLOT].copy_from_slice(&slots[at..at + SLOT]);
    // Keep the version, which must be valid, and clear the commit, so that its checksum is wrong.
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

/// Checks that the file's own head already has everything of this one.
fn holds(own: &Head, healed: &Head) -> bool {
    let n = usize::from(healed[FLAGS] & PRIMARY);
    let at = FIXED + n * SLOT;
    own[..FLAGS] == healed[..FLAGS]
        && own[FLAGS + 1..PARTS] == healed[FLAGS + 1..PARTS]
        && own[at..at + SLOT] == healed[at..at + SLOT]
}

/// Returns the slot of the newest commit whose pages verify, from either head. If both heads have it, prefers the file's version.
fn best(own: &Head, kept: &Head, proves: impl Fn(&Head) -> bool) -> Option<Head> {
    let mut all: Vec<(u64, Head)> = Vec::new();
    for slots in [own, kept] {
        for n in 0..2 {
            // The constant fields are written once, so a copy of this file has them correct. A copy of another file fails
            // verification.
            all.extend([kept, own].map(|fixed| (commit(slots, n), only(fixed, slots, n))));
        }
    }
    all.sort_by_key(|(commit, _)| std::cmp::Reverse(*commit));
    all.dedup();
    all.into_iter().map(|(_, head)| head).find(proves)
}

/// Checks that the file is a valid store with this head.
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

/// Returns the part of the head that an access of the file covers: the range in the head and in the access.
fn part(offset: u64, len: usize) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let at = usize::try_from(offset).ok().filter(|at| *at < LEN)?;
    let len = len.min(LEN - at);
    Some((at..at + len, 0..len))
}

impl StorageBackend for HeadedFile {
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
            // A failure leaves an older or torn copy for the next start, which trusts the copy only if its pages verify.
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
