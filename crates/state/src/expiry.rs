//! The lease of a client: how long the server keeps the client's state without hearing from it.
//!
//! A client that is silent for longer than its lease does not lose its state at once. The state is kept as a courtesy until another
//! client needs what it holds, or until the courtesy time ends. Clients that were only disconnected for a while lose no state.
//!
//! A client with a request in execution does not count as silent, however slow the storage is: if its lock passed to another
//! client, its own WRITE could still land afterwards and break the lock's guarantee.
//!
//! # States of a lease
//!
//! ```text
//!   Lease::new            idle > lease_ms,               idle > lease_ms
//!        |                no request in execution        + courtesy_ms
//!        v
//!      LIVE ---------------------> COURTESY ---------------------> ENDED by time
//!       ^ |                         |  |                            |  |
//!       | |                         |  |                            |  |
//!       +-|-------------------------+--|----------------------------+  |
//!         |   renew, begin_request     |                               |
//!         |                            |                               |
//!         +----------------------------+-------------------------------+-----> ENDED
//!           end                          end, end_if_lapsed
//!
//!   Lease::held            let_go                        end_if_lapsed
//!        |        +-------------------------> COURTESY ---------------------> ENDED
//!        v        |                           for any time
//!      HELD ------+                            |
//!       ^                    hold              |
//!       +--------------------------------------+
//! ```
//!
//! LIVE, COURTESY and ENDED are [`LeaseState`]; HELD shows as LIVE. Only ENDED by [`Lease::end`] or [`Lease::end_if_lapsed`] is
//! final: [`Lease::renew`] and [`Lease::hold`] then return false. A lease that ended only by time can still be renewed until the
//! server ends it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::answers::Answers;
use crate::id::{ClientId, Millis};

/// The lease time and the courtesy time, which begins when the lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time after the last contact during which the client's state is safe.
    pub lease_ms: u64,
    /// Further time during which the state is kept unless another client needs it.
    pub courtesy_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    Live,
    /// The lease has lapsed: the state is released for the first client that conflicts with it.
    Courtesy,
    /// The courtesy time is over, or the lease was ended by force: the server must release the state.
    Ended,
}

/// The lease of one client. Several tasks may renew it at the same time.
#[derive(Debug)]
pub struct Lease {
    client: ClientId,
    host: Option<IpAddr>,
    answers: Arc<Answers>,
    terms: Terms,
    renewed_ms: AtomicU64,
    /// Number of the client's requests in execution.
    in_progress: AtomicU32,
}

/// Value of `renewed_ms` after a lease was ended by force.
const ENDED: u64 = u64::MAX;
/// Value of `renewed_ms` while a connection keeps the lease alive, so that it never lapses.
const HELD: u64 = u64::MAX - 1;

impl Lease {
    /// Creates a lease that begins now.
    pub fn new(client: ClientId, terms: Terms, now: Millis) -> Self {
        Self::with(client, terms, now)
    }

    /// Creates a lease that lasts as long as its holder's connection. It may lapse only after [`Lease::let_go`].
    pub fn held(client: ClientId) -> Self {
        let terms = Terms { lease_ms: 0, courtesy_ms: u64::MAX };
        Self::with(client, terms, HELD)
    }

    fn with(client: ClientId, terms: Terms, renewed_ms: u64) -> Self {
        let (renewed_ms, in_progress) = (AtomicU64::new(renewed_ms), AtomicU32::new(0));
        let answers = Arc::default();
        Self { client, host: None, answers, terms, renewed_ms, in_progress }
    }

    /// Records the client's host, so that all clients of one host share a per-node limit ([`Limits`](crate::Limits)).
    pub fn of_host(self, host: IpAddr) -> Self {
        Self { host: Some(host), ..self }
    }

    /// Makes this lease one of several of a client, which answers breaks for all of them or for none.
    pub fn answered_by(self, answers: Arc<Answers>) -> Self {
        Self { answers, ..self }
    }

    /// Returns whether the client answers breaks.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    pub(crate) fn host(&self) -> Option<IpAddr> {
        self.host
    }

    /// Keeps the lease alive again after a reconnect. Returns false if the lease was ended meanwhile.
    pub fn hold(&self) -> bool {
        self.renewed_ms
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| (was != ENDED).then_some(HELD))
            .is_ok()
    }

    /// Ends the connection's protection: from now on the first conflicting client may displace the holder.
    pub fn let_go(&self, now: Millis) {
        let _ = self.renewed_ms.fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| {
            (was == HELD).then_some(now.saturating_sub(1))
        });
    }

    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Renews the lease after a message from the client. Returns false if the lease was ended; it then stays ended.
    pub fn renew(&self, now: Millis) -> bool {
        self.renewed_ms
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| {
                (was < HELD).then_some(was.max(now))
            })
            .is_ok()
    }

    /// Counts a request as in execution, which keeps the lease live until [`Lease::end_request`]. Returns false if the lease was
    /// ended.
    pub fn begin_request(&self, now: Millis) -> bool {
        // Count before renewing: a concurrent check then sees either the request or the renewed lease.
        self.in_progress.fetch_add(1, Ordering::AcqRel);
        let stands = self.renew(now);
        if !stands {
            self.in_progress.fetch_sub(1, Ordering::AcqRel);
        }
        stands
    }

    /// Counts a request as finished and renews the lease.
    pub fn end_request(&self, now: Millis) {
        self.renew(now);
        self.in_progress.fetch_sub(1, Ordering::AcqRel);
    }

    /// Checks whether the lease was ended by force, after which no request renews it.
    pub fn has_ended(&self) -> bool {
        self.renewed().is_none()
    }

    /// Ends the lease by force. Returns true for exactly one caller.
    pub fn end(&self) -> bool {
        self.renewed_ms.swap(ENDED, Ordering::AcqRel) != ENDED
    }

    /// Ends the lease if it has lapsed, and returns true for exactly one caller. A client that returns at the same moment either
    /// keeps all its state or finds all of it released.
    pub fn end_if_lapsed(&self, now: Millis) -> bool {
        self.renewed_ms
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| {
                let lapsed =
                    now.saturating_sub(was) > self.terms.lease_ms && !self.is_in_progress();
                (was < HELD && lapsed).then_some(ENDED)
            })
            .is_ok()
    }

    /// Returns the time of the last contact; `None` if the lease was ended or is kept by a connection.
    pub fn renewed(&self) -> Option<Millis> {
        Some(self.renewed_ms.load(Ordering::Acquire)).filter(|t| *t < HELD)
    }

    pub fn state(&self, now: Millis) -> LeaseState {
        let renewed = self.renewed_ms.load(Ordering::Acquire);
        match renewed {
            ENDED => return LeaseState::Ended,
            HELD => return LeaseState::Live,
            _ => {}
        }
        let idle = now.saturating_sub(renewed);
        if idle <= self.terms.lease_ms || self.is_in_progress() {
            LeaseState::Live
        } else if idle <= self.terms.lease_ms.saturating_add(self.terms.courtesy_ms) {
            LeaseState::Courtesy
        } else {
            LeaseState::Ended
        }
    }

    fn is_in_progress(&self) -> bool {
        self.in_progress.load(Ordering::Acquire) > 0
    }

    pub fn is_live(&self, now: Millis) -> bool {
        self.state(now) == LeaseState::Live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_during_request_stays_live() {
        let l = Lease::new(ClientId(1), Terms { lease_ms: 10, courtesy_ms: 5 }, 0);
        assert!(l.begin_request(0));
        assert!(l.begin_request(1));
        l.end_request(2);
        assert_eq!(l.state(1_000), LeaseState::Live);
        assert!(!l.end_if_lapsed(1_000));
        l.end_request(1_000);
        assert_eq!(l.state(1_010), LeaseState::Live);
        assert_eq!(l.state(1_011), LeaseState::Courtesy);
        assert!(l.end_if_lapsed(1_011));
        assert!(!l.begin_request(1_011));
        assert_eq!(l.state(1_011), LeaseState::Ended);
    }

    #[test]
    fn silent_client_passes_through_courtesy() {
        let l = Lease::new(ClientId(1), Terms { lease_ms: 10, courtesy_ms: 5 }, 100);
        assert_eq!(l.state(110), LeaseState::Live);
        assert_eq!(l.state(111), LeaseState::Courtesy);
        assert_eq!(l.state(115), LeaseState::Courtesy);
        assert_eq!(l.state(116), LeaseState::Ended);
        assert!(l.renew(112));
        assert_eq!(l.state(122), LeaseState::Live);
    }

    #[test]
    fn ended_lease_cannot_be_renewed() {
        let l = Lease::new(ClientId(1), Terms { lease_ms: 10, courtesy_ms: 5 }, 0);
        assert!(l.end());
        assert!(!l.end());
        assert!(!l.renew(1));
        assert_eq!(l.state(1), LeaseState::Ended);
    }

    #[test]
    fn only_lapsed_lease_can_be_ended() {
        let l = Lease::new(ClientId(1), Terms { lease_ms: 10, courtesy_ms: 5 }, 0);
        assert!(!l.end_if_lapsed(10));
        assert!(l.end_if_lapsed(11));
        assert!(!l.end_if_lapsed(11));
        assert_eq!(l.renewed(), None);
    }

    #[test]
    fn held_lease_lapses_after_let_go() {
        let l = Lease::held(ClientId::key(1));
        assert!(l.is_live(u64::MAX / 2) && !l.end_if_lapsed(u64::MAX / 2));
        l.let_go(7);
        assert_eq!(l.state(7), LeaseState::Courtesy, "at once");
        assert!(l.hold());
        assert!(l.is_live(8));
        l.let_go(8);
        assert!(l.end_if_lapsed(8) && !l.hold());
    }

    #[test]
    fn late_renewal_never_shortens_lease() {
        let l = Lease::new(ClientId(1), Terms { lease_ms: 10, courtesy_ms: 0 }, 50);
        assert!(l.renew(20));
        assert_eq!(l.state(60), LeaseState::Live);
    }
}
