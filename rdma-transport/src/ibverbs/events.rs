//! Asynchronous events of a device and the action for each. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdma_sys::ibv_event_type;

/// How long connections survive a port that is down. It is shorter than the lease of a client, so that the client reconnects before
/// its locks expire.
const PORT_DOWN_MAX: Duration = Duration::from_secs(10);

/// An event as its connection receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// A message came before the last word of the handshake.
    Established,
    /// The peer touched memory that it may not.
    Access,
    /// The peer sent a request that the card refused.
    Request,
    /// The queue pair broke down.
    PairBroke,
    /// A completion queue broke down.
    QueueBroke,
    /// The port has been down for too long.
    PortDown,
}

/// The reaction to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Inform the connection of the event's queue pair.
    Tell(Told),
    /// Inform the connection of the event's completion queue.
    TellOfQueue,
    /// End all connections of the device.
    Lose,
    PortDown,
    PortUp,
    /// Plan the listeners again, because addresses or ports may have changed.
    LookAgain,
    Log,
}

/// Returns the reaction to an event.
pub(super) fn action(kind: ibv_event_type::Type) -> Action {
    use ibv_event_type::*;
    match kind {
        IBV_EVENT_COMM_EST => Action::Tell(Told::Established),
        IBV_EVENT_QP_ACCESS_ERR => Action::Tell(Told::Access),
        IBV_EVENT_QP_REQ_ERR => Action::Tell(Told::Request),
        IBV_EVENT_QP_FATAL => Action::Tell(Told::PairBroke),
        IBV_EVENT_CQ_ERR => Action::TellOfQueue,
        IBV_EVENT_DEVICE_FATAL => Action::Lose,
        IBV_EVENT_PORT_ERR => Action::PortDown,
        IBV_EVENT_PORT_ACTIVE => Action::PortUp,
        IBV_EVENT_GID_CHANGE
        | IBV_EVENT_LID_CHANGE
        | IBV_EVENT_PKEY_CHANGE
        | IBV_EVENT_SM_CHANGE
        | IBV_EVENT_CLIENT_REREGISTER => Action::LookAgain,
        _ => Action::Log,
    }
}

/// The ports of a device that are down.
#[derive(Debug, Default)]
pub(super) struct Ports(HashMap<u8, Instant>);

impl Ports {
    /// Records that a port went down.
    pub(super) fn went_down(&mut self, port: u8, now: Instant) {
        self.0.entry(port).or_insert(now);
    }

    /// Records that a port is up again.
    pub(super) fn came_up(&mut self, port: u8) {
        self.0.remove(&port);
    }

    /// Removes and returns the ports whose connections have to end.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<u8> {
        let is_over = |since: &Instant| now.saturating_duration_since(*since) >= PORT_DOWN_MAX;
        let over: Vec<u8> =
            self.0.iter().filter(|(_, since)| is_over(since)).map(|(port, _)| *port).collect();
        self.0.retain(|port, _| !over.contains(port));
        over
    }
}

#[cfg(test)]
mod tests {
    use ibv_event_type::*;

    use super::*;

    #[test]
    fn each_event_has_its_action() {
        let table = [
            (IBV_EVENT_CQ_ERR, Action::TellOfQueue),
            (IBV_EVENT_QP_FATAL, Action::Tell(Told::PairBroke)),
            (IBV_EVENT_QP_REQ_ERR, Action::Tell(Told::Request)),
            (IBV_EVENT_QP_ACCESS_ERR, Action::Tell(Told::Access)),
            (IBV_EVENT_COMM_EST, Action::Tell(Told::Established)),
            (IBV_EVENT_DEVICE_FATAL, Action::Lose),
            (IBV_EVENT_PORT_ACTIVE, Action::PortUp),
            (IBV_EVENT_PORT_ERR, Action::PortDown),
            (IBV_EVENT_GID_CHANGE, Action::LookAgain),
            (IBV_EVENT_LID_CHANGE, Action::LookAgain),
            (IBV_EVENT_PKEY_CHANGE, Action::LookAgain),
            (IBV_EVENT_WQ_FATAL, Action::Log),
        ];
        for (kind, wanted) in table {
            assert_eq!(action(kind), wanted, "{kind:?}");
        }
    }

    #[test]
    fn connections_outlive_a_short_outage_only() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut ports = Ports::default();
        ports.went_down(1, begun);
        ports.went_down(2, after(4));
        // A device may tell it twice.
        ports.went_down(1, after(9));
        assert_eq!(ports.overdue(after(9)), [0; 0]);
        ports.came_up(2);
        assert_eq!(ports.overdue(after(10)), [1]);
        assert_eq!(ports.overdue(after(60)), [0; 0], "its connections have ended");
    }
}
