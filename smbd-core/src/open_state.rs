//! State that an open keeps between information commands: position, mode, progress of a listing, times to preserve, and the watch
//! for changes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mutex::locked;
use vfs::Dos;
use vfs::types::Time;

use crate::pattern::Pattern;

/// Progress of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Next is `.`.
    Dot,
    /// Next is `..`.
    DotDot,
    /// Next is the entry after this cookie.
    Names(u64),
    End,
}

/// A listing of a directory (MS-FSA section 2.1.5.6.3).
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    /// The pattern as the client sent it with its first query or when it restarted the listing.
    pub(crate) text: String,
    /// The pattern, compiled.
    pub(crate) pattern: Pattern,
    pub(crate) stage: Stage,
    /// True once a query returned entries.
    pub(crate) answered: bool,
}

/// Times that operations of this open must preserve: -1 of MS-FSA section 2.1.5.15.2, and times that the client set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub(crate) write: Option<Time>,
    pub(crate) change: Option<Time>,
}

/// Marks that no write waits for a FLUSH.
const NONE_UNFLUSHED: u64 = u64::MAX;

#[derive(Default)]
pub struct OpenState {
    position: AtomicU64,
    reserved: AtomicU64,
    mode: AtomicU32,
    holds: AtomicBool,
    unarchived: AtomicBool,
    /// A client of macOS opened it.
    pub(crate) by_macos: bool,
    held: Mutex<Held>,
    /// Serializes setting the last-write time and changing bytes while preserving that time.
    pub(crate) timed: tokio::sync::Mutex<()>,
    written: AtomicBool,
    /// [`vfs::Node::losses`] from before the first write that no FLUSH has covered.
    unflushed: Unflushed,
    /// Held during a whole query: queries of one open are answered one at a time.
    pub(crate) scan: tokio::sync::Mutex<Option<Scan>>,
    pub(crate) watching: Mutex<Option<Arc<crate::notify::Watching>>>,
}

struct Unflushed(AtomicU64);

impl Default for Unflushed {
    fn default() -> Self {
        Self(AtomicU64::new(NONE_UNFLUSHED))
    }
}

/// A running FLUSH. Dropped before its sync has ended, it covers no writes.
pub(crate) struct Flushing<'a> {
    unflushed: &'a Unflushed,
    before: u64,
}

impl Flushing<'_> {
    /// Records that the sync ended. Returns whether storage lost data of this file since the first write that the FLUSH covers;
    /// reports each loss once. `losses`: [`vfs::Node::losses`] now.
    pub(crate) fn ended(mut self, losses: u64) -> bool {
        let before = std::mem::replace(&mut self.before, NONE_UNFLUSHED);
        before != NONE_UNFLUSHED && losses > before
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        // Keep the earlier of the two counts; [`NONE_UNFLUSHED`] is the greatest value.
        self.unflushed.0.fetch_min(self.before, Ordering::AcqRel);
    }
}

impl OpenState {
    /// Notes a write that only a FLUSH makes durable. `losses`: [`vfs::Node::losses`] before the write.
    pub(crate) fn note_unflushed(&self, losses: u64) {
        if self.unflushed.0.load(Ordering::Acquire) == NONE_UNFLUSHED {
            let new = (NONE_UNFLUSHED, losses);
            // If another write was first, its count is the earlier one and remains.
            let _ = self.unflushed.0.compare_exchange(
                new.0,
                new.1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
    }

    /// Returns, when the open closes, whether storage lost data of this file since the first write that no FLUSH covers; reports
    /// each loss once. `losses`: [`vfs::Node::losses`] now.
    pub(crate) fn take_lost(&self, losses: u64) -> bool {
        self.begin_flush().ended(losses)
    }

    /// Begins a FLUSH. It covers earlier writes, but no write that is answered while it runs.
    pub(crate) fn begin_flush(&self) -> Flushing<'_> {
        let before = self.unflushed.0.swap(NONE_UNFLUSHED, Ordering::AcqRel);
        Flushing { unflushed: &self.unflushed, before }
    }

    /// Builds the state of an open with these `CreateOptions`.
    pub fn new(options: u32) -> Self {
        /// The options that FileModeInformation shows (MS-FSCC section 2.4.31).
        const SHOWN: u32 = 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x1000;
        Self { mode: AtomicU32::new(options & SHOWN), ..Self::default() }
    }

    /// Returns the allocation that its client asked for. It is only reported to the client; storage is taken when data is written.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    pub(crate) fn reserve(&self, bytes: u64) {
        self.reserved.store(bytes, Ordering::Relaxed);
    }

    /// Returns CurrentByteOffset.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    pub(crate) fn set_position(&self, to: u64) {
        self.position.store(to, Ordering::Relaxed);
    }

    /// Notes the file's stored attributes. A file that a backup has saved and marked has no ARCHIVE attribute.
    pub(crate) fn note_attributes(&self, kept: Option<u32>) {
        let unarchived = kept.is_some_and(|a| a & Dos::ARCHIVE == 0);
        self.unarchived.store(unarchived, Ordering::Relaxed);
    }

    /// Returns whether a change through this open must set ARCHIVE for the next backup.
    pub(crate) fn is_unarchived(&self) -> bool {
        self.unarchived.load(Ordering::Relaxed)
    }

    /// Returns FileModeInformation.
    pub fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed)
    }

    pub(crate) fn set_mode(&self, to: u32) {
        self.mode.store(to, Ordering::Relaxed);
    }

    /// Makes later operations of this open preserve these times. `None` keeps the earlier setting.
    pub(crate) fn hold(&self, write: Option<Time>, change: Option<Time>) {
        let mut held = locked(&self.held);
        *held = Held { write: write.or(held.write), change: change.or(held.change) };
        self.holds.store(held.write.is_some() || held.change.is_some(), Ordering::Release);
    }

    /// Lets operations of this open change these times again.
    pub(crate) fn thaw(&self, write: bool, change: bool) {
        let mut held = locked(&self.held);
        *held =
            Held { write: held.write.filter(|_| !write), change: held.change.filter(|_| !change) };
        self.holds.store(held.write.is_some() || held.change.is_some(), Ordering::Release);
    }

    /// Returns the times to restore after this open has changed the file. Without such times this costs one atomic load.
    pub(crate) fn held(&self) -> Option<Held> {
        self.holds.load(Ordering::Acquire).then(|| *locked(&self.held))
    }

    /// Notes that it wrote data.
    pub(crate) fn note_written(&self) {
        self.written.store(true, Ordering::Relaxed);
    }

    /// Notes that a client set the last-write time, which then counts as newer than earlier writes.
    pub(crate) fn forget_written(&self) {
        self.written.store(false, Ordering::Relaxed);
    }

    /// Returns whether it wrote data and no client has set the last-write time since.
    pub(crate) fn has_written(&self) -> bool {
        self.written.load(Ordering::Relaxed)
    }

    /// Ends the watch and answers its waiting requests with this status.
    pub(crate) fn end_watch(&self, why: crate::status::Status) {
        if let Some(watching) = self.watching() {
            watching.end(why);
        }
    }

    /// Returns the watch of this open, if its client has requested one.
    pub(crate) fn watching(&self) -> Option<Arc<crate::notify::Watching>> {
        locked(&self.watching).clone()
    }
}
