//! Timers of a connection (MS-SMBD sections 3.1.2 and 3.1.6). No clock: times are relative to the start of the connection.

use std::time::Duration;

use crate::limits;

/// The action of an expired timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The peer was silent for long: request an answer.
    Ask,
    /// The negotiation takes too long: end the connection.
    Negotiation,
    /// The request was not answered: end the connection.
    Silence,
    /// A waiting message got no credit: end the connection.
    Credits,
}

impl Due {
    /// The reason for the log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Ask => "silent",
            Self::Negotiation => "no SMB Direct negotiation in time",
            Self::Silence => "no answer to a keep-alive message",
            Self::Credits => "no credits granted for a message that waits",
        }
    }
}

/// Negotiation timer, idle connection timer, send credit grant timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    negotiate_by: Option<Duration>,
    heard: Duration,
    /// When an answer was requested from the peer.
    asked: Option<Duration>,
    /// Since when a message waits for a credit.
    starved: Option<Duration>,
}

impl Timers {
    /// Starts a connection with this limit on its negotiation.
    pub(super) fn new(negotiation: Duration) -> Self {
        Self { negotiate_by: Some(negotiation), heard: Duration::ZERO, asked: None, starved: None }
    }

    /// Stops the timer of the negotiation.
    pub(super) fn negotiated(&mut self) {
        self.negotiate_by = None;
    }

    /// Restarts the timer of a silent peer after a received message.
    pub(super) fn heard(&mut self, now: Duration) {
        self.heard = now;
        self.asked = None;
    }

    /// Notes that an answer was requested, or that not even the request could be sent.
    pub(super) fn asked(&mut self, now: Duration) {
        self.asked = Some(now);
    }

    /// Notes whether a message waits for a credit.
    pub(super) fn starved(&mut self, waits: bool, now: Duration) {
        self.starved = if waits { self.starved.or(Some(now)) } else { None };
    }

    fn next(&self) -> (Duration, Due) {
        if let Some(by) = self.negotiate_by {
            return (by, Due::Negotiation);
        }
        let idle = match self.asked {
            Some(at) => (at + Duration::from_secs(limits::SMBD_RESPONSE_SECONDS), Due::Silence),
            None => (self.heard + Duration::from_secs(limits::SMBD_IDLE_SECONDS), Due::Ask),
        };
        let credits = self
            .starved
            .map(|at| (at + Duration::from_secs(limits::SMBD_CREDIT_SECONDS), Due::Credits));
        credits.filter(|(at, _)| *at < idle.0).unwrap_or(idle)
    }

    /// The next time to check the timers.
    pub(super) fn deadline(&self) -> Duration {
        self.next().0
    }

    /// The expired timer, if any.
    pub(super) fn due(&self, now: Duration) -> Option<Due> {
        let (at, what) = self.next();
        (at <= now).then_some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn silent_peer_is_probed_then_closed() {
        let mut t = Timers::new(s(5));
        assert_eq!((t.deadline(), t.due(s(4))), (s(5), None));
        assert_eq!(t.due(s(5)), Some(Due::Negotiation));
        t.negotiated();
        t.heard(s(1));
        assert_eq!((t.due(s(120)), t.due(s(121))), (None, Some(Due::Ask)));
        t.asked(s(121));
        assert_eq!((t.due(s(125)), t.due(s(126))), (None, Some(Due::Silence)));
        t.heard(s(125));
        assert_eq!((t.due(s(244)), t.due(s(245))), (None, Some(Due::Ask)));
    }

    #[test]
    fn missing_credit_ends_connection() {
        let mut t = Timers::new(s(5));
        t.negotiated();
        t.heard(s(10));
        t.starved(true, s(10));
        t.starved(true, s(14));
        assert_eq!((t.due(s(14)), t.due(s(15))), (None, Some(Due::Credits)));
        t.starved(false, s(15));
        assert_eq!(t.due(s(15)), None);
        t.starved(true, s(16));
        assert_eq!(t.deadline(), s(21), "each wait by itself");
    }
}
