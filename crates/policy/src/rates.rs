//! Rates that an administrator sets: bytes and operations for each second.

use std::time::Duration;

/// The rates of one scope: a share, a user, a client, or all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Bytes of file data for each second; `None`: no limit.
    pub read: Option<u64>,
    pub write: Option<u64>,
    /// Operations for each second, reads and writes included; `None`: no limit.
    pub operations: Option<u64>,
    /// Operations that read or write file data; `operations` includes them.
    pub read_operations: Option<u64>,
    pub write_operations: Option<u64>,
    /// The time whose worth an idle scope may pass at once.
    pub burst: Duration,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            read: None,
            write: None,
            operations: None,
            read_operations: None,
            write_operations: None,
            burst: Duration::from_secs(1),
        }
    }
}

/// The unit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    Read,
    Write,
    Operations,
    ReadOperations,
    WriteOperations,
}

crate::words!(
    Measure,
    "is no rate",
    "read" => Read,
    "write" => Write,
    "operations" => Operations,
    "read_operations" => ReadOperations,
    "write_operations" => WriteOperations
);

impl Measure {
    /// All measures, in the order of the documentation.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::Operations, Self::ReadOperations, Self::WriteOperations];

    /// Returns true if it counts bytes, false if it counts operations.
    pub fn is_bytes(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

impl Rates {
    /// Returns the rate of this measure; `None`: no limit.
    pub fn of(&self, measure: Measure) -> Option<u64> {
        match measure {
            Measure::Read => self.read,
            Measure::Write => self.write,
            Measure::Operations => self.operations,
            Measure::ReadOperations => self.read_operations,
            Measure::WriteOperations => self.write_operations,
        }
    }

    /// Returns true if no rate is set.
    pub fn is_empty(&self) -> bool {
        Measure::ALL.into_iter().all(|measure| self.of(measure).is_none())
    }
}
