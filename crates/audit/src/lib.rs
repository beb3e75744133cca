//! The audit trail: who logged on, who was refused what, which files were changed, what administrators did.
//!
//! *Operation.* Servers hand an [`Event`] to [`record`], or ask for a [`Permit`] before an operation that must not be done unless
//! it can be recorded. A thread of its own ([`writer`]) turns events into JSON lines and writes them to a [`Sink`]. There is one
//! trail in a process, as there is one log; while there is none, each call costs one load of an atomic.
//!
//! *Memory.* [`QUEUE_MAX`] records wait at most, those in the writer's hands included. What clients cause who have not proved who
//! they are has a quarter of that, and [`STRANGERS_PER_MINUTE`] records a minute: a flood of refusals does not push out the others,
//! and does not fill the disk.
//!
//! *Errors.* While the sink cannot be written, records wait; what finds no room is lost, counted and told in the trail itself
//! ([`Event::RecordsLost`]). With [`Options::required`] nothing that must be recorded is lost: [`permit`] refuses instead.

pub mod event;
pub mod peer_text;
pub mod sink;
mod time;
pub mod writer;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

pub use event::{Event, FileEvent, Files, Logon, Party, Way};
use mutex::{reading, writing};
pub use peer_text::PeerText;
pub use sink::{JOURNAL, Sink};
use writer::Trail;

/// Records that wait at most.
pub const QUEUE_MAX: usize = 8192;
/// Of these, records of clients who have not proved who they are.
pub const QUEUE_OF_STRANGERS_MAX: usize = QUEUE_MAX / 4;
/// Records of such clients in a minute.
pub const STRANGERS_PER_MINUTE: u32 = 1200;
/// The name of the limit that is met when a record finds no room.
pub const LIMIT: &str = "audit-queue";

/// What the trail needs of its program.
pub trait Host: Send + Sync {
    /// The name of a user of NFS, by its number. Called by the writer's thread alone; may wait.
    fn user(&self, uid: u32) -> Option<String>;

    /// Counts that a record found no room, so many times.
    fn limit_met(&self, times: u64);
}

/// How the trail is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where it goes.
    pub sink: Sink,
    /// What must be recorded and cannot be is refused.
    pub required: bool,
}

/// How the trail stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrailStatus {
    /// Where it goes.
    pub sink: String,
    /// Records that were written.
    pub written: u64,
    /// Records that were lost.
    pub lost: u64,
    /// Records that wait.
    pub waiting: usize,
    /// Why it cannot be written now.
    pub broken: Option<String>,
    /// What must be recorded is refused meanwhile.
    pub required: bool,
}

const OFF: u8 = 0;
const ON: u8 = 1;
/// As the flag of [`TRAIL`], so that whoever has nothing to record need not take its lock.
static STATE: AtomicU8 = AtomicU8::new(OFF);
static TRAIL: RwLock<Option<Arc<Trail>>> = RwLock::new(None);

/// What must be recorded cannot be: the operation is not to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRecorded;

/// Room for one record, taken before the operation that it tells of. Dropping it gives the room back.
#[derive(Debug, Default)]
#[must_use]
pub struct Permit(Option<Arc<Trail>>);

impl Permit {
    /// There is something to record.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records what was done. The event is made only where there is a trail.
    pub fn record(mut self, event: impl FnOnce() -> Event) {
        if let Some(trail) = self.0.take() {
            hand_on(trail.add_permitted(event()));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(trail) = &self.0 {
            trail.give_back();
        }
    }
}

fn trail() -> Option<Arc<Trail>> {
    if STATE.load(Ordering::Relaxed) == OFF {
        return None;
    }
    reading(&TRAIL).clone()
}

/// There is a trail.
pub fn is_on() -> bool {
    STATE.load(Ordering::Relaxed) != OFF
}

/// Keeps a trail from now on, in place of the one before, which writes what it has; `None`: none.
pub fn set(options: Option<(Options, Arc<dyn Host>)>) {
    let next = options.map(|(options, host)| Trail::start(options, host));
    let state = if next.is_some() { ON } else { OFF };
    let before = {
        let mut place = writing(&TRAIL);
        STATE.store(state, Ordering::Relaxed);
        std::mem::replace(&mut *place, next)
    };
    if let Some(before) = before {
        before.end();
    }
}

/// Writes to the sink anew: its file was renamed, or is another one.
pub fn reopen() {
    if let Some(trail) = trail() {
        trail.reopen();
    }
}

/// Waits until all that was recorded is written, but not longer than this. False: something is left.
pub fn flush(within: Duration) -> bool {
    trail().is_none_or(|trail| trail.flush(Instant::now() + within))
}

/// Records an event. What finds no room is lost and counted. The event is made only where there is a trail.
pub fn record(event: impl FnOnce() -> Event) {
    if let Some(trail) = trail() {
        hand_on(trail.add(event()));
    }
}

/// An event for a trail that has ended meanwhile goes to the one that took its place.
fn hand_on(event: Option<Event>) {
    if let Some(event) = event
        && let Some(next) = trail()
    {
        // One that has ended as well was switched off.
        let _ = next.add(event);
    }
}

/// Room for the record of an operation that is about to be done.
///
/// # Errors
/// The trail is required, and cannot be written or has no room.
pub fn permit() -> Result<Permit, NotRecorded> {
    match trail() {
        None => Ok(Permit(None)),
        Some(trail) => trail.permit().map(|()| Permit(Some(trail))),
    }
}

/// How the trail stands; `None`: there is none.
pub fn status() -> Option<TrailStatus> {
    trail().map(|trail| trail.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Host for Nobody {
        fn user(&self, _uid: u32) -> Option<String> {
            None
        }

        fn limit_met(&self, _times: u64) {}
    }

    /// The one test of this process that has a trail.
    #[test]
    fn what_is_done_while_another_trail_begins_is_recorded_there() {
        let dir = tempfile::tempdir().unwrap();
        let begin = |name: &str, required| {
            let sink = Sink::File(dir.path().join(name));
            let host: Arc<dyn Host> = Arc::new(Nobody);
            set(Some((Options { sink, required }, host)));
        };
        // A trail that ends at once need not have made its file.
        let told = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        for required in [true, false] {
            begin("old", required);
            let permit = permit().unwrap();
            assert!(permit.is_on());
            begin("new", required);
            permit.record(|| Event::Stop);
            record(|| Event::Stop);
            assert!(flush(Duration::from_secs(30)));
            assert_eq!((told("old").lines().count(), told("new").lines().count()), (0, 2));
            std::fs::remove_file(dir.path().join("new")).unwrap();
        }
        set(None);
        record(|| Event::Stop);
        assert!(status().is_none() && !is_on());
    }
}
