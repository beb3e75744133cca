//! Statistics of operations (number, duration, bytes) by share, protocol, transport and operation.
//!
//! *Operation.* Each connection has a [`Meter`]; its protocol calls [`Meter::record`] after each operation. [`Meters::read`] reads
//! the counters on demand, without cost for the data path.
//!
//! *Memory.* A cell is created at the first operation for a share on a way, and stays. There are at most [`SHARES_MAX`] shares and
//! [`WAYS_MAX`] ways; further ones are counted in the last place, so that endless reloads do not exhaust memory.
//!
//! *Cost.* Four additions to memory that few threads share, without a lock: each cell has [`SHARDS`] copies, and a thread uses one
//! of them. `cargo run --release -p rdma-transport --example meter_cost` measures the cost.

use std::cell::Cell as ThreadCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use mutex::locked;

use crate::turn;

/// Shares counted separately, including one place for operations without a share and one for shares beyond the limit.
pub const SHARES_MAX: usize = 1024;
/// Pairs of protocol and transport counted separately.
pub const WAYS_MAX: usize = 8;
/// Limit on the operation numbers of a protocol.
pub const OPERATIONS_MAX: usize = 128;
/// Copies of each cell. Two threads that share one are only slower.
pub const SHARDS: usize = 8;
/// Buckets of a histogram: [`BUCKETS_PER_OCTAVE`] for each power of two microseconds up to 2^23 (eight seconds); the last one
/// contains longer times.
pub const BUCKETS: usize = 24 * BUCKETS_PER_OCTAVE;
/// Buckets between a time and its double: results are wrong by a tenth at most.
pub const BUCKETS_PER_OCTAVE: usize = 4;
/// The share number of operations without a share.
pub const NO_SHARE: u32 = 0;

/// The counters of a daemon.
pub struct Meters {
    /// Indexed from `number % SHARES_MAX` on; the last place is for shares beyond the limit.
    shares: Box<[OnceLock<Box<OfShare>>]>,
    ways: Mutex<Vec<Way>>,
}

/// Protocol and transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// `nfs` or `smb`.
    pub protocol: &'static str,
    /// `tcp`, or the RDMA provider.
    pub transport: &'static str,
}

struct OfShare {
    id: u32,
    name: String,
    ways: [OnceLock<Box<OfWay>>; WAYS_MAX],
}

type OfWay = [OnceLock<Box<Cell>>; OPERATIONS_MAX];

type Cell = [Shard; SHARDS];

/// Aligned to separate cache lines.
#[repr(align(128))]
struct Shard {
    nanoseconds: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Shard {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            nanoseconds: zero(),
            bytes: zero(),
            errors: zero(),
            buckets: std::array::from_fn(|_| zero()),
        }
    }
}

/// The counters of one operation for a share on a way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Name of the share; empty for operations without one.
    pub share: String,
    pub way: Way,
    /// Number of the operation in its protocol.
    pub operation: u8,
    /// Number of operations that failed.
    pub errors: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Durations of these operations.
    pub took: Histogram,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Sum of all recorded durations.
    pub sum: Duration,
    /// Number of operations in each bucket; [`BUCKETS`] entries, or empty if no operation was counted.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(a, b)| *a += b);
    }

    /// The difference to `before`, an earlier reading of the same cell.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = before.buckets.iter().chain(std::iter::repeat(&0));
        Self {
            sum: self.sum.saturating_sub(before.sum),
            buckets: self.buckets.iter().zip(earlier).map(|(a, b)| a.saturating_sub(*b)).collect(),
        }
    }

    /// Number of operations that took at most `2^exponent` microseconds.
    pub fn within_octave(&self, exponent: usize) -> u64 {
        self.buckets.iter().take((exponent + 1) * BUCKETS_PER_OCTAVE).sum()
    }

    /// The upper bound of the bucket that contains this quantile. `None` for an empty histogram.
    pub fn quantile(&self, per_mille: u64) -> Option<Duration> {
        let count = self.count();
        let wanted = (count * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().position(|n| {
            seen += n;
            seen >= wanted
        })?;
        Some(upper_end(found))
    }
}

/// The exclusive upper bound of a bucket.
fn upper_end(bucket: usize) -> Duration {
    let (octave, quarter) = (bucket / BUCKETS_PER_OCTAVE, bucket % BUCKETS_PER_OCTAVE);
    // Each octave has four equal buckets; the first octave begins at zero.
    let base = 1000u64 << octave;
    let start = if octave == 0 { 0 } else { base / 2 };
    let width = base - start;
    Duration::from_nanos(start + width * (quarter as u64 + 1) / BUCKETS_PER_OCTAVE as u64)
}

/// The bucket of a time: the octave is the number of bits of its whole microseconds, the quarter the two bits below.
fn bucket(nanoseconds: u64) -> usize {
    let micros = nanoseconds / 1000;
    let octave = (u64::BITS - micros.leading_zeros()) as usize;
    if octave >= BUCKETS / BUCKETS_PER_OCTAVE {
        return BUCKETS - 1;
    }
    let base = 1000u64 << octave;
    let (start, width) = if octave == 0 { (0, base) } else { (base / 2, base / 2) };
    // Invariant: less than four, because the time is less than `base`.
    #[allow(clippy::cast_possible_truncation)]
    let quarter = ((nanoseconds - start) * BUCKETS_PER_OCTAVE as u64 / width) as usize;
    octave * BUCKETS_PER_OCTAVE + quarter
}

thread_local! {
    static SHARD: ThreadCell<usize> = ThreadCell::new({
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
    });
}

impl Default for Meters {
    fn default() -> Self {
        Self { shares: (0..SHARES_MAX).map(|_| OnceLock::new()).collect(), ways: Mutex::default() }
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

impl Meters {
    /// Returns the meter for a connection of this kind.
    pub fn of(self: &Arc<Self>, way: Way) -> Meter {
        let mut ways = locked(&self.ways);
        let known = ways.iter().position(|w| *w == way);
        let at = known.unwrap_or_else(|| {
            if ways.len() < WAYS_MAX {
                ways.push(way);
            }
            ways.len() - 1
        });
        Meter(Some((self.clone(), at)))
    }

    /// Reads all counters, in no particular order.
    pub fn read(&self) -> Vec<Reading> {
        let ways = locked(&self.ways).clone();
        let mut out = Vec::new();
        for share in self.shares.iter().filter_map(OnceLock::get) {
            for (way, of_way) in ways.iter().zip(&share.ways) {
                let Some(cells) = of_way.get() else { continue };
                for (operation, cell) in (0u8..).zip(cells.iter()) {
                    if let Some(cell) = cell.get() {
                        out.push(reading(&share.name, *way, operation, cell));
                    }
                }
            }
        }
        out
    }

    fn share(&self, id: u32, name: impl FnOnce() -> String) -> &OfShare {
        let mut name = Some(name);
        let last = SHARES_MAX - 1;
        let first = usize::try_from(id).unwrap_or(0) % last;
        for at in (first..last).chain(0..first) {
            let place = self.shares[at].get_or_init(|| {
                let name = name.take().map_or_else(String::new, |name| name());
                Box::new(OfShare { id, name, ways: Default::default() })
            });
            if place.id == id {
                return place;
            }
        }
        let beyond =
            || Box::new(OfShare { id, name: "(further shares)".into(), ways: Default::default() });
        self.shares[last].get_or_init(beyond)
    }
}

fn reading(share: &str, way: Way, operation: u8, cell: &Cell) -> Reading {
    let sum = |of: fn(&Shard) -> &AtomicU64| {
        cell.iter().map(|s| of(s).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    };
    let bucket =
        |at: usize| cell.iter().map(|s| s.buckets[at].load(Ordering::Relaxed)).sum::<u64>();
    Reading {
        share: share.to_owned(),
        way,
        operation,
        errors: sum(|s| &s.errors),
        bytes: sum(|s| &s.bytes),
        took: Histogram {
            sum: Duration::from_nanos(sum(|s| &s.nanoseconds)),
            buckets: (0..BUCKETS).map(bucket).collect(),
        },
    }
}

/// The counters of a connection. The default counts no operations; clients use it.
#[derive(Clone, Debug, Default)]
pub struct Meter(Option<(Arc<Meters>, usize)>);

/// A completed operation.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Number of its share, or [`NO_SHARE`].
    pub share: u32,
    /// Number of the operation in its protocol, less than [`OPERATIONS_MAX`].
    pub operation: u8,
    /// Bytes of file data transferred.
    pub bytes: u64,
    /// True if the operation failed.
    pub failed: bool,
}

impl Meter {
    /// Counts an operation that began at `began`, and returns the present time. `name` is called for the name of a share not
    /// counted before.
    pub fn record(&self, began: Instant, done: Done, name: impl FnOnce() -> String) -> Instant {
        let now = turn::done();
        if let Some((meters, way)) = &self.0 {
            meters.count(*way, now.saturating_duration_since(began), done, name);
        }
        now
    }
}

impl Meters {
    fn count(&self, way: usize, took: Duration, done: Done, name: impl FnOnce() -> String) {
        let share = self.share(done.share, name);
        let fresh = || Box::new(std::array::from_fn(|_| OnceLock::new()));
        let Some(of_way) = share.ways.get(way).map(|w| w.get_or_init(fresh)) else { return };
        let Some(cell) = of_way.get(usize::from(done.operation)) else { return };
        let cell = cell.get_or_init(|| Box::new(std::array::from_fn(|_| Shard::default())));
        let shard = &cell[SHARD.get()];
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        shard.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        shard.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        if done.bytes > 0 {
            shard.bytes.fetch_add(done.bytes, Ordering::Relaxed);
        }
        if done.failed {
            shard.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NFS: Way = Way { protocol: "nfs", transport: "tcp" };

    fn done(share: u32, operation: u8) -> Done {
        Done { share, operation, bytes: 4096, failed: operation == 2 }
    }

    #[test]
    fn operations_are_counted_where_they_belong() {
        let meters = Arc::new(Meters::default());
        let tcp = meters.of(NFS);
        let rdma = meters.of(Way { transport: "iwarp", ..NFS });
        let ago = Instant::now() - Duration::from_millis(3);
        for _ in 0..5 {
            tcp.record(ago, done(7, 1), || "data".into());
        }
        tcp.record(ago, done(7, 2), || unreachable!("it is known"));
        rdma.record(ago, done(NO_SHARE, 1), String::new);
        let mut all = meters.read();
        all.sort_by_key(|r| (r.share.clone(), r.operation));
        let seen: Vec<_> = all
            .iter()
            .map(|r| (r.share.as_str(), r.way.transport, r.operation, r.took.count(), r.errors))
            .collect();
        let expected = [("", "iwarp", 1, 1, 0), ("data", "tcp", 1, 5, 0), ("data", "tcp", 2, 1, 1)];
        assert_eq!(seen, expected);
        assert_eq!(all[1].bytes, 5 * 4096);
        let median = all[1].took.quantile(500).unwrap();
        assert!(
            median >= Duration::from_millis(3) && all[1].took.sum >= 5 * Duration::from_millis(3)
        );
    }

    #[test]
    fn excess_shares_and_ways_share_cells() {
        let meters = Arc::new(Meters::default());
        let tcp = meters.of(NFS);
        // More numbers than there are places, all starting at the same place.
        let numbers = (0..2000u32).map(|n| n * u32::try_from(SHARES_MAX - 1).unwrap());
        for (n, id) in numbers.enumerate() {
            tcp.record(Instant::now(), done(id, 1), || format!("s{n}"));
        }
        let all = meters.read();
        assert_eq!(all.len(), SHARES_MAX);
        assert_eq!(all.iter().map(|r| r.took.count()).sum::<u64>(), 2000);
        for n in 0..20 {
            let transport: &'static str =
                ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"][n % 10];
            meters.of(Way { transport, ..NFS }).record(Instant::now(), done(0, 3), String::new);
        }
        let ways = meters.read().iter().filter(|r| r.operation == 3).count();
        assert_eq!(ways, WAYS_MAX - 1, "tcp had the first");
        tcp.record(Instant::now(), Done { operation: 200, ..done(0, 0) }, String::new);
    }

    #[test]
    fn difference_of_readings_is_exact() {
        let mut h = Histogram { sum: Duration::from_secs(2), buckets: vec![0; BUCKETS] };
        h.buckets[40] = 7;
        let mut later = h.clone();
        later.add(&Histogram { sum: Duration::from_secs(1), buckets: vec![3; BUCKETS] });
        let since = later.since(&h);
        assert_eq!((since.sum, since.count()), (Duration::from_secs(1), 3 * BUCKETS as u64));
        assert_eq!(later.since(&Histogram::default()), later);
        assert_eq!(Histogram::default().quantile(500), None);
    }

    proptest! {
        /// A bucket's bounds enclose its times and are at most a quarter of an octave apart.
        #[test]
        fn bucket_contains_its_durations(ns in 0u64..8_388_608_000) {
            let at = bucket(ns);
            let end = upper_end(at).as_nanos();
            let start = at.checked_sub(1).map_or(0, |b| upper_end(b).as_nanos());
            prop_assert!(start <= u128::from(ns) && u128::from(ns) < end, "{start} {ns} {end}");
            // The octave ends at the bound reported to Prometheus.
            let micros = 1u64 << (at / BUCKETS_PER_OCTAVE);
            prop_assert!(ns < micros * 1000);
        }

        #[test]
        fn any_time_has_a_bucket(ns in any::<u64>()) {
            prop_assert!(bucket(ns) < BUCKETS);
        }
    }
}
