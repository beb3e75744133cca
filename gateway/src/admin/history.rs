//! The last fifteen minutes, for the plots of the status page.
//!
//! *Operation.* Every [`EVERY`] the counters are read and what came since the last time is kept. Pure but for [`keep`],
//! which is the task that does it; it also names, once in the log, each client that is not on RDMA and could be.
//!
//! *Memory.* [`POINTS_MAX`] points of fixed size.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mutex::locked;
use rdma_transport::meter::Histogram;
use serde::{Deserialize, Serialize};

use super::snapshot::{ConnectionStatus, Moved, SharedSource, Snapshot};
use super::why::Reason;

/// Time between two points.
pub const EVERY: Duration = Duration::from_secs(5);
/// Points of fifteen minutes.
pub const POINTS_MAX: usize = 180;
/// Clients that were named in the log; with one more than these the list begins anew.
const NAMED_MAX: usize = 4096;
/// A client that will find RDMA has found it by then.
const SETTLED_SECONDS: u64 = 10;

/// What happened in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Milliseconds since 1970, at its end.
    pub at: u64,
    /// Its length, in seconds.
    pub seconds: f64,
    /// Bytes and requests, of all connections.
    pub moved: Moved,
    /// Operations done.
    pub operations: u64,
    /// Of these, answered with an error.
    pub errors: u64,
    /// Microseconds within which half, 95 and 99 per cent of them were done.
    pub latency: [u64; 3],
    /// Connections over TCP at its end.
    pub tcp: u64,
    /// Connections over RDMA at its end.
    pub rdma: u64,
    /// Parts in a thousand of the payload memory in use at its end.
    pub pool: u64,
    /// Requests that waited for memory, and messages for credits, at its end.
    pub waiting: u64,
}

/// The points, oldest first.
#[derive(Debug, Default)]
pub struct History(Mutex<VecDeque<Point>>);

impl History {
    /// All there are.
    pub fn points(&self) -> Vec<Point> {
        locked(&self.0).iter().copied().collect()
    }

    fn push(&self, point: Point) {
        let mut points = locked(&self.0);
        if points.len() >= POINTS_MAX {
            points.pop_front();
        }
        points.push_back(point);
    }
}

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    moved: Moved,
    errors: u64,
    took: Histogram,
}

impl Totals {
    /// Of a snapshot.
    pub fn of(s: &Snapshot) -> Self {
        let mut took = Histogram::default();
        s.operations.iter().for_each(|o| took.add(&o.histogram()));
        Self {
            moved: s.moved.values().fold(Moved::default(), |sum, m| sum.plus(*m)),
            errors: s.operations.iter().map(|o| o.errors).sum(),
            took,
        }
    }

    /// What came since `before`, with the state of `s`.
    pub fn since(&self, before: &Self, s: &Snapshot, seconds: f64, at: u64) -> Point {
        let took = self.took.since(&before.took);
        let quantile = |per_mille| {
            took.quantile(per_mille).map_or(0, |t| u64::try_from(t.as_micros()).unwrap_or(u64::MAX))
        };
        let tcp = s.connections.iter().filter(|c| c.transport == "tcp").count() as u64;
        let used: u64 = s.pool.iter().map(|c| c.used * c.buffer_bytes).sum();
        let max: u64 = s.pool.iter().map(|c| c.max * c.buffer_bytes).sum();
        let credits: u64 = s.connections.iter().map(|c| c.credits_waiting).sum();
        Point {
            at,
            seconds,
            moved: self.moved.minus(before.moved),
            operations: took.count(),
            errors: self.errors.saturating_sub(before.errors),
            latency: [500, 950, 990].map(quantile),
            tcp,
            rdma: s.connections.len() as u64 - tcp,
            pool: used.saturating_mul(1000).checked_div(max).unwrap_or(0),
            waiting: s.pool.iter().map(|c| c.waiting).sum::<u64>() + credits,
        }
    }
}

/// Keeps the history for as long as the daemon runs.
pub async fn keep(source: SharedSource, history: Arc<History>) {
    let (mut before, mut at) = (Totals::of(&source.snapshot()), Instant::now());
    let mut named = Named::default();
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + EVERY, EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let snapshot = source.snapshot();
        let now = Totals::of(&snapshot);
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        history.push(now.since(&before, &snapshot, seconds, unix_millis()));
        before = now;
        for c in snapshot.connections.iter().filter(|c| named.is_new(c)) {
            let why = c.why_not.as_ref();
            let (reason, text) = why.map_or(("", ""), |w| (w.reason.as_str(), w.text.as_str()));
            let protocol = c.protocol.name();
            tracing::info!(peer = c.peer, protocol, reason, text, "a client is not on RDMA");
        }
    }
}

fn unix_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Clients that the log has named.
#[derive(Debug, Default)]
struct Named(HashSet<(String, String)>);

impl Named {
    /// The client of this connection could be on RDMA and was not named for this reason before.
    fn is_new(&mut self, c: &ConnectionStatus) -> bool {
        let Some(why) = &c.why_not else { return false };
        let is_loss = Reason::ALL.iter().any(|r| r.name() == why.reason && r.is_a_loss());
        if !is_loss || c.age_seconds < SETTLED_SECONDS {
            return false;
        }
        if self.0.len() >= NAMED_MAX {
            self.0.clear();
        }
        let client = c.peer.rsplit_once(':').map_or(c.peer.as_str(), |(ip, _)| ip);
        self.0.insert((format!("{} {client}", c.protocol.name()), why.reason.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::testing;

    #[test]
    fn a_point_is_what_came_since_the_last_one() {
        let before = testing::snapshot();
        let mut after = before.clone();
        after.moved.values_mut().for_each(|m| m.rdma_write += 1000);
        after.operations[0].errors += 3;
        after.operations[0].buckets[1].1 += 100;
        after.pool[0].waiting = 4;
        let point = Totals::of(&after).since(&Totals::of(&before), &after, 5.0, 9);
        assert_eq!((point.moved.rdma_write, point.moved.requests), (1000, 0));
        assert_eq!((point.operations, point.errors, point.at), (100, 3, 9));
        assert!(point.latency.iter().all(|us| (2000..4100).contains(us)), "{point:?}");
        assert_eq!((point.tcp, point.rdma, point.pool, point.waiting), (1, 0, 100, 4));
    }

    #[test]
    fn fifteen_minutes_are_kept() {
        let history = History::default();
        for at in 0..500 {
            history.push(Point { at, ..Point::default() });
        }
        let points = history.points();
        assert_eq!((points.len(), points[0].at), (POINTS_MAX, 500 - POINTS_MAX as u64));
        assert_eq!(EVERY * u32::try_from(POINTS_MAX).unwrap(), Duration::from_secs(15 * 60));
    }

    #[test]
    fn a_client_is_named_once_and_only_when_it_lost_something() {
        let mut named = Named::default();
        let c = testing::snapshot().connections.remove(0);
        let other_port = ConnectionStatus { peer: "192.0.2.7:9".into(), ..c.clone() };
        let young = ConnectionStatus { peer: "192.0.2.8:9".into(), age_seconds: 1, ..c.clone() };
        let mut fine = ConnectionStatus { peer: "192.0.2.9:9".into(), ..c.clone() };
        if let Some(why) = &mut fine.why_not {
            why.reason = Reason::ElsewhereOnRdma.name().into();
        }
        let new: Vec<bool> = [&c, &c, &other_port, &young, &fine].map(|c| named.is_new(c)).into();
        assert_eq!(new, [true, false, false, false, false]);
    }
}
