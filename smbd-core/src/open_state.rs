//! What an open remembers between commands about information: its position, its mode, where a listing has come to, which times
//! stay as they are, and whom a change is told.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mutex::locked;
use vfs::Dos;
use vfs::types::Time;

use crate::pattern::Pattern;

/// Where a listing has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before `.`.
    Dot,
    /// Before `..`.
    DotDot,
    /// Behind this cookie of the directory.
    Names(u64),
    /// At the end.
    End,
}

/// A listing of a directory (MS-FSA section 2.1.5.6.3).
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    /// The pattern as the client sent it with its first query, or when it began anew.
    pub(crate) text: String,
    /// The same, ready to compare.
    pub(crate) pattern: Pattern,
    /// Where it has come to.
    pub(crate) stage: Stage,
    /// It has answered with entries.
    pub(crate) answered: bool,
}

/// Times that stay as they are for what this open does: -1 of MS-FSA section 2.1.5.15.2, and those that it has set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Last write.
    pub(crate) write: Option<Time>,
    /// Change.
    pub(crate) change: Option<Time>,
}

/// No write waits for a FLUSH.
const NONE_UNFLUSHED: u64 = u64::MAX;

/// What an open remembers.
#[derive(Default)]
pub struct OpenState {
    position: AtomicU64,
    reserved: AtomicU64,
    mode: AtomicU32,
    holds: AtomicBool,
    unarchived: AtomicBool,
    held: Mutex<Held>,
    /// Held by what sets the last-write time and by what changes bytes and gives it back: one after the other where the open holds
    /// that time.
    pub(crate) timed: tokio::sync::Mutex<()>,
    written: AtomicBool,
    /// [`vfs::Node::losses`] from before the first write that no FLUSH has covered.
    unflushed: Unflushed,
    /// Held during a whole query: queries of one open are answered one after the other.
    pub(crate) scan: tokio::sync::Mutex<Option<Scan>>,
    pub(crate) watching: Mutex<Option<Arc<crate::notify::Watching>>>,
}

struct Unflushed(AtomicU64);

impl Default for Unflushed {
    fn default() -> Self {
        Self(AtomicU64::new(NONE_UNFLUSHED))
    }
}

/// A FLUSH under way. Given up before its sync has ended, it has covered nothing.
pub(crate) struct Flushing<'a> {
    unflushed: &'a Unflushed,
    before: u64,
}

impl Flushing<'_> {
    /// The sync has ended: whether storage failed to keep what this file was given since the first of the writes that it covers.
    /// Told once. `losses`: [`vfs::Node::losses`] now.
    pub(crate) fn ended(mut self, losses: u64) -> bool {
        let before = std::mem::replace(&mut self.before, NONE_UNFLUSHED);
        before != NONE_UNFLUSHED && losses > before
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        // The earlier count stands; none is the greatest.
        self.unflushed.0.fetch_min(self.before, Ordering::AcqRel);
    }
}

impl OpenState {
    /// It has written what only a FLUSH makes durable. `losses`: [`vfs::Node::losses`] from before the write.
    pub(crate) fn note_unflushed(&self, losses: u64) {
        if self.unflushed.0.load(Ordering::Acquire) == NONE_UNFLUSHED {
            let new = (NONE_UNFLUSHED, losses);
            // Another write was first: its count is the earlier one.
            let _ = self.unflushed.0.compare_exchange(
                new.0,
                new.1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
    }

    /// The open is closed: whether storage failed to keep what this file was given since the first of its writes that no FLUSH
    /// has covered. Told once. `losses`: [`vfs::Node::losses`] now.
    pub(crate) fn take_lost(&self, losses: u64) -> bool {
        self.begin_flush().ended(losses)
    }

    /// A FLUSH begins: it covers what was written before, and nothing that is answered while it runs.
    pub(crate) fn begin_flush(&self) -> Flushing<'_> {
        let before = self.unflushed.0.swap(NONE_UNFLUSHED, Ordering::AcqRel);
        Flushing { unflushed: &self.unflushed, before }
    }

    /// Of an open with these `CreateOptions`.
    pub fn new(options: u32) -> Self {
        /// Those of them that FileModeInformation shows (MS-FSCC section 2.4.31).
        const SHOWN: u32 = 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x1000;
        Self { mode: AtomicU32::new(options & SHOWN), ..Self::default() }
    }

    /// Bytes that its client asked to have set aside: shown to it, and found when they are written.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    pub(crate) fn reserve(&self, bytes: u64) {
        self.reserved.store(bytes, Ordering::Relaxed);
    }

    /// CurrentByteOffset.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    pub(crate) fn set_position(&self, to: u64) {
        self.position.store(to, Ordering::Relaxed);
    }

    /// These attributes are kept of its file. One that a backup has taken and marked so has no ARCHIVE.
    pub(crate) fn note_attributes(&self, kept: Option<u32>) {
        let unarchived = kept.is_some_and(|a| a & Dos::ARCHIVE == 0);
        self.unarchived.store(unarchived, Ordering::Relaxed);
    }

    /// What it changes must be marked for the next backup.
    pub(crate) fn is_unarchived(&self) -> bool {
        self.unarchived.load(Ordering::Relaxed)
    }

    /// FileModeInformation.
    pub fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed)
    }

    pub(crate) fn set_mode(&self, to: u32) {
        self.mode.store(to, Ordering::Relaxed);
    }

    /// From now on what this open does leaves these times as they are; `None` leaves what was said before.
    pub(crate) fn hold(&self, write: Option<Time>, change: Option<Time>) {
        let mut held = locked(&self.held);
        *held = Held { write: write.or(held.write), change: change.or(held.change) };
        self.holds.store(held.write.is_some() || held.change.is_some(), Ordering::Release);
    }

    /// It changes them again.
    pub(crate) fn thaw(&self, write: bool, change: bool) {
        let mut held = locked(&self.held);
        *held =
            Held { write: held.write.filter(|_| !write), change: held.change.filter(|_| !change) };
        self.holds.store(held.write.is_some() || held.change.is_some(), Ordering::Release);
    }

    /// The times that this open must give back after it has changed the file; one load where there are none.
    pub(crate) fn held(&self) -> Option<Held> {
        self.holds.load(Ordering::Acquire).then(|| *locked(&self.held))
    }

    /// It writes data.
    pub(crate) fn note_written(&self) {
        self.written.store(true, Ordering::Relaxed);
    }

    /// Somebody has set the last-write time: what was written before is older.
    pub(crate) fn forget_written(&self) {
        self.written.store(false, Ordering::Relaxed);
    }

    /// It has written data, and nobody has set the last-write time since.
    pub(crate) fn has_written(&self) -> bool {
        self.written.load(Ordering::Relaxed)
    }

    /// Nothing more will be told: whoever waits hears why.
    pub(crate) fn end_watch(&self, why: crate::status::Status) {
        if let Some(watching) = self.watching() {
            watching.end(why);
        }
    }

    /// Whom this open tells of changes, if it has asked.
    pub(crate) fn watching(&self) -> Option<Arc<crate::notify::Watching>> {
        locked(&self.watching).clone()
    }
}
