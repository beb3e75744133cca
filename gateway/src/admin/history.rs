//! History of the last fifteen minutes, for the plots of the status page.
//!
//! *Operation.* Every [`EVERY`], the difference of all counters since the last point becomes a new point. Only the task [`keep`]
//! does I/O; it also logs, once for each client and reason, clients that could use RDMA and do not.
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
/// Clients that the log has named; beyond this number the list is cleared.
const NAMED_MAX: usize = 4096;
/// Age at which a client that can find RDMA has found it.
const SETTLED_SECONDS: u64 = 10;

/// Activity in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// End of the interval, in milliseconds since 1970.
    pub at: u64,
    /// Length of the interval, in seconds.
    pub seconds: f64,
    /// Bytes and requests of all connections.
    pub moved: Moved,
    /// Completed operations.
    pub operations: u64,
    /// Operations answered with an error.
    pub errors: u64,
    /// Latency in microseconds at the 50th, 95th and 99th percentile.
    pub latency: [u64; 3],
    /// Connections over TCP at the end of the interval.
    pub tcp: u64,
    /// Connections over RDMA at the end of the interval.
    pub rdma: u64,
    /// Payload memory in use at the end of the interval, in thousandths.
    pub pool: u64,
    /// Requests that wait for memory and messages that wait for credits, at the end of the interval.
    pub waiting: u64,
}

/// The points, oldest first.
#[derive(Debug, Default)]
pub struct History(Mutex<VecDeque<Point>>);

impl History {
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
    /// Returns the counters of a snapshot.
    pub fn of(s: &Snapshot) -> Self {
        let mut took = Histogram::default();
        s.operations.iter().for_each(|o| took.add(&o.histogram()));
        Self {
            moved: s.moved.values().fold(Moved::default(), |sum, m| sum.plus(*m)),
            errors: s.operations.iter().map(|o| o.errors).sum(),
            took,
        }
    }

    /// Returns the difference since `before`, with the gauges of `s`.
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

/// Adds points to the history for as long as the daemon runs.
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

/// Clients that the log has named, with the reason.
#[derive(Debug, Default)]
struct Named(HashSet<(String, String)>);

impl Named {
    /// Returns true if the client could use RDMA and was not named for this reason before.
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
