//! Caching rights that are being taken back.

use crate::caching::{Caching, Kind};
use crate::id::{ClientId, HolderId, Millis, NodeId};

/// How long a break may take, of whatever kind. Declared together, because the second must be the longer one: who waits must still
/// be there when the one who holds out is overruled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    acknowledge_ms: u64,
    wait_ms: u64,
}

impl Deadlines {
    /// `acknowledge_ms`: the holder must have given back what was asked for. `wait_ms`: whoever wanted it may count on an
    /// answer. `None` unless the second is longer.
    pub fn new(acknowledge_ms: u64, wait_ms: u64) -> Option<Self> {
        (wait_ms > acknowledge_ms).then_some(Self { acknowledge_ms, wait_ms })
    }

    /// Time for the holder, in milliseconds.
    pub fn acknowledge_ms(self) -> u64 {
        self.acknowledge_ms
    }

    /// Time for the one who waits, in milliseconds.
    pub fn wait_ms(self) -> u64 {
        self.wait_ms
    }
}

/// How far a break is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It begins with this verdict: the holder must be told, and has to acknowledge. Exactly one verdict says so for each break.
    Started,
    /// It is over with this verdict: the holder must be told, and has nothing to acknowledge.
    Done,
    /// The holder has been told.
    UnderWay,
    /// The holder's time is over: revoke.
    Overdue,
}

/// Rights to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Break {
    /// The node.
    pub node: NodeId,
    /// Who holds them.
    pub holder: HolderId,
    /// Its client.
    pub client: ClientId,
    /// By whose rules.
    pub kind: Kind,
    /// What it has.
    pub from: Caching,
    /// What it may keep.
    pub to: Caching,
    /// How far the break is.
    pub stage: Stage,
    /// When the holder's time is over.
    pub deadline: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_longer_than_acknowledging() {
        assert!(Deadlines::new(30, 30).is_none());
        assert!(Deadlines::new(30, 45).is_some());
    }
}
