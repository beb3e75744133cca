//! The audit trail: logons, refusals, changes of files and actions of administrators.
//!
//! *Operation.* Servers pass an [`Event`] to [`record`], or request a [`Permit`] before an operation that must not run without a
//! record. A separate thread ([`writer`]) formats events as JSON lines and writes them to a [`Sink`]. Like the log, the trail is
//! one per process; without a trail, each call costs one atomic load.
//!
//! *Memory.* At most [`QUEUE_MAX`] queued records, including those that the writer is processing. Events caused by unauthenticated
//! clients may use a quarter of that, and [`STRANGERS_PER_MINUTE`] records per minute, so a flood of refusals neither displaces
//! other records nor fills the disk.
//!
//! *Errors.* While the sink cannot be written, records are queued; when the queue is full they are lost, counted and reported in
//! the trail itself ([`Event::RecordsLost`]). With [`Options::required`] no mandatory record is lost: [`permit`] refuses instead.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

pub mod event;
pub mod peer_text;
pub mod sink;
mod time;
pub mod writer;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

pub use event::{Event, FileEvent, Files, Logon, Party, Way};
use mutex::{reading, writing};
pub use peer_text::{PeerText, RecordText};
pub use sink::{JOURNAL, Sink};
pub use time::rfc3339;
use writer::{Client, Trail};

/// Maximum number of queued records.
pub const QUEUE_MAX: usize = 8192;
/// Maximum number of queued records that unauthenticated clients caused.
pub const QUEUE_OF_STRANGERS_MAX: usize = QUEUE_MAX / 4;
/// Queued records of one address, or IPv6 network of 64 bits.
pub const QUEUE_OF_ADDRESS_MAX: usize = QUEUE_MAX / 2;
/// Maximum number of records per minute that unauthenticated clients cause.
pub const STRANGERS_PER_MINUTE: u32 = 1200;
/// Name of the limit that a lost record reaches.
pub const LIMIT: &str = "audit-queue";
/// The name of the limit on records of one address.
pub const LIMIT_OF_ADDRESS: &str = "audit-queue-of-address";

/// Services that the trail needs from its program.
pub trait Host: Send + Sync {
    /// Returns the name of an NFS user. Called only on the writer thread; may block.
    fn user(&self, uid: u32) -> Option<String>;

    /// Returns the address, or IPv6 network of 64 bits, of the client for which the calling thread works.
    fn client(&self) -> Option<IpAddr>;

    /// Counts a record that was lost, or an operation that was refused, because this part of the queue was full.
    fn limit_met(&self, limit: &'static str);
}

/// The settings of the trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub sink: Sink,
    /// Refuse operations that cannot be recorded.
    pub required: bool,
}

/// The state of the trail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrailStatus {
    pub sink: String,
    pub written: u64,
    pub lost: u64,
    /// Number of queued records.
    pub waiting: usize,
    /// The error that prevents writing.
    pub broken: Option<String>,
    /// Operations that must be recorded are refused meanwhile.
    pub required: bool,
}

const OFF: u8 = 0;
const ON: u8 = 1;
/// Whether [`TRAIL`] is set, so that calls without a trail need not take its lock.
static STATE: AtomicU8 = AtomicU8::new(OFF);
static TRAIL: RwLock<Option<Arc<Trail>>> = RwLock::new(None);

/// The record would be mandatory but is impossible, so the operation must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRecorded;

/// Space for one record, reserved before the operation. Dropping it releases the space.
#[derive(Debug, Default)]
#[must_use]
pub struct Permit(Option<(Arc<Trail>, Client)>);

impl Permit {
    /// Checks whether a trail exists.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records the completed operation. Calls `event` only if a trail exists.
    pub fn record(mut self, event: impl FnOnce() -> Event) {
        if let Some((trail, client)) = self.0.take() {
            hand_on(trail.add_permitted(event(), client));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((trail, client)) = &self.0 {
            trail.give_back(*client);
        }
    }
}

fn trail() -> Option<Arc<Trail>> {
    if STATE.load(Ordering::Relaxed) == OFF {
        return None;
    }
    reading(&TRAIL).clone()
}

/// Checks whether a trail exists.
pub fn is_on() -> bool {
    STATE.load(Ordering::Relaxed) != OFF
}

/// Starts a trail, or stops it for `None`. It replaces the previous trail, which first writes its queued records.
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

/// Reopens the sink, for example after its file was renamed.
pub fn reopen() {
    if let Some(trail) = trail() {
        trail.reopen();
    }
}

/// Waits, up to the limit, until all records are written. Returns false if some remain.
pub fn flush(within: Duration) -> bool {
    trail().is_none_or(|trail| trail.flush(Instant::now() + within))
}

/// Records an event; if the queue is full the record is lost and counted. Calls `event` only if a trail exists.
pub fn record(event: impl FnOnce() -> Event) {
    if let Some(trail) = trail() {
        hand_on(trail.add(event()));
    }
}

/// Passes an event of a trail that has just ended to its successor.
fn hand_on(event: Option<Event>) {
    if let Some(event) = event
        && let Some(next) = trail()
    {
        // The successor has also ended, so recording was switched off.
        let _ = next.add(event);
    }
}

/// Reserves space for the record of an operation.
///
/// # Errors
/// The trail is required, and cannot be written or is full.
pub fn permit() -> Result<Permit, NotRecorded> {
    match trail() {
        None => Ok(Permit(None)),
        Some(trail) => trail.permit().map(|client| Permit(Some((trail, client)))),
    }
}

/// Returns the state of the trail; `None` without a trail.
pub fn status() -> Option<TrailStatus> {
    trail().map(|trail| trail.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoNames;

    impl Host for NoNames {
        fn user(&self, _uid: u32) -> Option<String> {
            None
        }

        fn client(&self) -> Option<IpAddr> {
            None
        }

        fn limit_met(&self, _limit: &'static str) {}
    }

    /// The only test of this process that sets a trail.
    #[test]
    fn replaced_trail_loses_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let begin = |name: &str, required| {
            let sink = Sink::File(dir.path().join(name));
            let host: Arc<dyn Host> = Arc::new(NoNames);
            set(Some((Options { sink, required }, host)));
        };
        // A trail that ends at once may not have created its file.
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
