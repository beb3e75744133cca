//! Kinds of load, and the results of one load.

use std::fmt;
use std::time::Duration;

use config::Size;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Writes a new file from beginning to end.
    Write,
    /// Reads the same file from beginning to end.
    Read,
    /// Reads blocks at random offsets.
    RandomRead,
    /// Writes blocks at random offsets.
    RandomWrite,
    /// Reads seven and writes three of ten blocks at random offsets.
    Mixed,
    /// Gets the file's attributes.
    Getattr,
    /// Opens a file by name, gets its attributes and closes it, 32 at once.
    Open,
    /// Creates, closes and removes an empty file, one after the other.
    Create,
}

impl Kind {
    pub(super) const ALL: [Self; 8] = [
        Self::Write,
        Self::Read,
        Self::RandomRead,
        Self::RandomWrite,
        Self::Mixed,
        Self::Getattr,
        Self::Open,
        Self::Create,
    ];

    /// Returns whether its rate is in bytes.
    pub(super) fn is_bulk(self) -> bool {
        matches!(self, Self::Write | Self::Read)
    }

    /// Returns the default number of operations in flight.
    pub(super) fn depth(self) -> usize {
        match self {
            Self::Write | Self::Read => 8,
            Self::RandomRead | Self::RandomWrite | Self::Mixed | Self::Getattr | Self::Open => 32,
            Self::Create => 1,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::RandomRead => "random-read",
            Self::RandomWrite => "random-write",
            Self::Mixed => "mixed",
            Self::Getattr => "getattr",
            Self::Open => "open",
            Self::Create => "create",
        }
    }
}

/// The results of one load.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) kind: Kind,
    /// Operations in flight.
    pub(super) depth: usize,
    /// Bytes of one operation.
    pub(super) block: u32,
    /// MB/s of bulk loads, operations per second of the others.
    pub(super) rate: f64,
    /// CPU time of this client per GiB or per operation.
    pub(super) client_cpu: Duration,
    /// CPU time of the server per GiB or per operation.
    pub(super) server_cpu: Option<Duration>,
    pub(super) latency: Latency,
}

impl fmt::Display for Sample {
    /// Writes the name and block size of the load, without its depth.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = Size(u64::from(self.block));
        match self.kind {
            Kind::Write => write!(f, "write {size}"),
            Kind::Read => write!(f, "read {size}"),
            Kind::RandomRead => write!(f, "random read {size}"),
            Kind::RandomWrite => write!(f, "random write {size}"),
            Kind::Mixed => write!(f, "mixed {size}, 7 read to 3 written"),
            Kind::Getattr => f.write_str("getattr"),
            Kind::Open => f.write_str("open, getattr, close"),
            Kind::Create => f.write_str("create, close, remove"),
        }
    }
}

/// Latency of operations, by percentile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Latency {
    /// Median.
    pub(super) p50: Duration,
    /// 95th percentile.
    pub(super) p95: Duration,
    /// 99th percentile.
    pub(super) p99: Duration,
    /// 99.9th percentile.
    pub(super) p999: Duration,
    /// Slowest operation.
    pub(super) max: Duration,
}

impl Latency {
    /// Returns the percentiles of these latencies (nearest rank).
    pub(super) fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let at = |per_thousand: usize| {
            let rank = (all.len() * per_thousand).div_ceil(1000);
            all.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self { p50: at(500), p95: at(950), p99: at(990), p999: at(999), max: at(1000) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_operations() {
        let ms = |n: u64| Duration::from_millis(n);
        let all = (1..=1000).rev().map(ms).collect();
        let expected =
            Latency { p50: ms(500), p95: ms(950), p99: ms(990), p999: ms(999), max: ms(1000) };
        assert_eq!(Latency::of(all), expected);
        let one = Latency::of(vec![ms(7)]);
        assert_eq!((one.p50, one.p999, one.max), (ms(7), ms(7), ms(7)));
        assert_eq!(Latency::of(Vec::new()), Latency::default());
    }
}
