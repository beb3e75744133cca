//! Breaks of caching rights.

use crate::answers::Answers;
use crate::caching::{Caching, Kind};
use crate::id::{ClientId, HolderId, Millis, NodeId};

/// A client that answers no breaks has this part of the time that others have.
const SILENT_PART: u64 = 16;
/// The least such time, unless others have less.
const SILENT_MIN_MS: u64 = 500;

/// The time limits of a break. They are declared together because the second must be the longer one: a waiting client must still be
/// there when an unresponsive holder is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    acknowledge_ms: u64,
    wait_ms: u64,
}

impl Deadlines {
    /// Builds the limits: `acknowledge_ms` is how long a holder may take to return its rights, `wait_ms` how long a waiting client
    /// can expect to wait for an answer. `None` unless `wait_ms` is longer.
    pub fn new(acknowledge_ms: u64, wait_ms: u64) -> Option<Self> {
        (wait_ms > acknowledge_ms).then_some(Self { acknowledge_ms, wait_ms })
    }

    /// Time limit of the holder, in milliseconds.
    pub fn acknowledge_ms(self) -> u64 {
        self.acknowledge_ms
    }

    /// Time limit of a holder whose client answers no breaks, in milliseconds: longer than an answer takes, and little for those
    /// that wait.
    pub fn silent_ms(self) -> u64 {
        (self.acknowledge_ms / SILENT_PART).max(self.acknowledge_ms.min(SILENT_MIN_MS))
    }

    /// Returns the end of the whole time of a holder for a break that begins now.
    pub(crate) fn whole(self, now: Millis) -> Millis {
        now.saturating_add(self.acknowledge_ms)
    }

    /// Returns the end of the time of this client for a break that begins now. Where it would lose data that it has cached, only
    /// its own silence counts.
    pub(crate) fn of(self, client: &Answers, loses_write: bool, now: Millis) -> Millis {
        let is_silent = if loses_write { client.has_missed() } else { client.is_silent() };
        if is_silent { now.saturating_add(self.silent_ms()) } else { self.whole(now) }
    }

    /// Time limit of a waiting client, in milliseconds.
    pub fn wait_ms(self) -> u64 {
        self.wait_ms
    }
}

/// The progress of a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The break starts with this verdict: the front end must notify the holder, which must acknowledge. Each break is reported so
    /// once.
    Started,
    /// The break is complete with this verdict: the front end must notify the holder, and no acknowledgement follows.
    Done,
    /// The front end has already notified the holder.
    UnderWay,
    /// The holder missed its deadline: revoke its rights.
    Overdue,
}

/// A break of one holder's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Break {
    pub node: NodeId,
    pub holder: HolderId,
    pub client: ClientId,
    pub kind: Kind,
    /// The rights before the break.
    pub from: Caching,
    /// The rights that the holder keeps.
    pub to: Caching,
    pub stage: Stage,
    /// The time by which the holder must acknowledge, unless it gets more ([`crate::Table::deadline`]).
    pub deadline: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_limit_must_exceed_acknowledge_limit() {
        assert!(Deadlines::new(30, 30).is_none());
        assert!(Deadlines::new(30, 45).is_some());
    }

    #[test]
    fn silent_client_has_short_time() {
        let client = Answers::default();
        for (acknowledge, short) in [(35_000, 2_187), (16_000, 1_000), (1_000, 500), (30, 30)] {
            let deadlines = Deadlines::new(acknowledge, acknowledge + 1).unwrap();
            assert_eq!(deadlines.of(&client, true, 7), 7 + acknowledge);
            client.missed(7);
            assert_eq!(deadlines.of(&client, true, 7), 7 + short);
            client.answered(7 + acknowledge, acknowledge);
        }
    }
}
