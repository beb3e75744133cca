//! The lease of a client: how long its state stands without a word from it.
//!
//! A client that is silent for longer than its lease is not thrown out at once: its state is kept as a courtesy until
//! somebody else wants what it holds, or the courtesy itself ends. Clients that were only cut off for a while lose nothing.
//!
//! A client whose request is still being executed is not silent, however long its storage takes: to give its lock to another
//! while a WRITE of its own may still land would break what the lock is for.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::id::{ClientId, Millis};

/// The two times, declared together because the second begins where the first ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The state is the client's without question for this long after it was last heard of.
    pub lease_ms: u64,
    /// After that it is kept for this long while nobody else wants it.
    pub courtesy_ms: u64,
}

/// How a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Its lease holds.
    Live,
    /// Its lease has lapsed; its state gives way to the first who asks.
    Courtesy,
    /// The courtesy has ended, or it was ended by force: its state is to be released.
    Ended,
}

/// The lease of one client, renewed from many tasks.
#[derive(Debug)]
pub struct Lease {
    client: ClientId,
    host: Option<IpAddr>,
    terms: Terms,
    renewed_ms: AtomicU64,
    /// Requests of the client that are being executed.
    in_progress: AtomicU32,
}

/// Stored instead of a time when a lease was ended by force.
const ENDED: u64 = u64::MAX;
/// Stored instead of a time while a connection stands for the holder: it never lapses.
const HELD: u64 = u64::MAX - 1;

impl Lease {
    /// A lease that begins now.
    pub fn new(client: ClientId, terms: Terms, now: Millis) -> Self {
        Self::with(client, terms, now)
    }

    /// Of a holder that stands as long as its connection does. It lapses when it is let go.
    pub fn held(client: ClientId) -> Self {
        let terms = Terms { lease_ms: 0, courtesy_ms: u64::MAX };
        Self::with(client, terms, HELD)
    }

    fn with(client: ClientId, terms: Terms, renewed_ms: u64) -> Self {
        let (renewed_ms, in_progress) = (AtomicU64::new(renewed_ms), AtomicU32::new(0));
        Self { client, host: None, terms, renewed_ms, in_progress }
    }

    /// Of a client at this host, whose clients together have a part of each node ([`Limits`](crate::Limits)).
    pub fn of_host(self, host: IpAddr) -> Self {
        Self { host: Some(host), ..self }
    }

    pub(crate) fn host(&self) -> Option<IpAddr> {
        self.host
    }

    /// The connection is back. False when somebody ended the lease meanwhile.
    pub fn hold(&self) -> bool {
        self.renewed_ms
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| (was != ENDED).then_some(HELD))
            .is_ok()
    }

    /// The connection is gone: from now on the holder gives way to the first who wants what it has.
    pub fn let_go(&self, now: Millis) {
        let _ = self.renewed_ms.fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| {
            (was == HELD).then_some(now.saturating_sub(1))
        });
    }

    /// The client.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The client was heard of. A lease that was ended stays ended; false then.
    pub fn renew(&self, now: Millis) -> bool {
        self.renewed_ms
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| {
                (was < HELD).then_some(was.max(now))
            })
            .is_ok()
    }

    /// A request of the client begins: the lease holds until [`Lease::end_request`]. False when it has ended.
    pub fn begin_request(&self, now: Millis) -> bool {
        // Counted first: who looks in between finds a request, or a lease that was renewed.
        self.in_progress.fetch_add(1, Ordering::AcqRel);
        let stands = self.renew(now);
        if !stands {
            self.in_progress.fetch_sub(1, Ordering::AcqRel);
        }
        stands
    }

    /// A request has been executed; the client has its lease from now on for what comes next.
    pub fn end_request(&self, now: Millis) {
        self.renew(now);
        self.in_progress.fetch_sub(1, Ordering::AcqRel);
    }

    /// It was ended, so that no request renews it.
    pub fn has_ended(&self) -> bool {
        self.renewed().is_none()
    }

    /// Ends it by force. True for the one caller who ended it.
    pub fn end(&self) -> bool {
        self.renewed_ms.swap(ENDED, Ordering::AcqRel) != ENDED
    }

    /// Ends it unless it holds. True for the one caller who ended it: a client that comes back at the same moment either
    /// keeps everything or finds everything gone.
    pub fn end_if_lapsed(&self, now: Millis) -> bool {
        self.renewed_ms
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| {
                let lapsed =
                    now.saturating_sub(was) > self.terms.lease_ms && !self.is_in_progress();
                (was < HELD && lapsed).then_some(ENDED)
            })
            .is_ok()
    }

    /// When the client was last heard of; `None` when the lease was ended or does not depend on it.
    pub fn renewed(&self) -> Option<Millis> {
        Some(self.renewed_ms.load(Ordering::Acquire)).filter(|t| *t < HELD)
    }

    /// How it stands.
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

    /// Its lease holds.
    pub fn is_live(&self, now: Millis) -> bool {
        self.state(now) == LeaseState::Live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_whose_request_is_being_executed_is_live() {
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
    fn a_lease_passes_through_courtesy() {
        let l = Lease::new(ClientId(1), Terms { lease_ms: 10, courtesy_ms: 5 }, 100);
        assert_eq!(l.state(110), LeaseState::Live);
        assert_eq!(l.state(111), LeaseState::Courtesy);
        assert_eq!(l.state(115), LeaseState::Courtesy);
        assert_eq!(l.state(116), LeaseState::Ended);
        assert!(l.renew(112));
        assert_eq!(l.state(122), LeaseState::Live);
    }

    #[test]
    fn an_ended_lease_cannot_be_renewed() {
        let l = Lease::new(ClientId(1), Terms { lease_ms: 10, courtesy_ms: 5 }, 0);
        assert!(l.end());
        assert!(!l.end());
        assert!(!l.renew(1));
        assert_eq!(l.state(1), LeaseState::Ended);
    }

    #[test]
    fn only_a_lapsed_lease_gives_way() {
        let l = Lease::new(ClientId(1), Terms { lease_ms: 10, courtesy_ms: 5 }, 0);
        assert!(!l.end_if_lapsed(10));
        assert!(l.end_if_lapsed(11));
        assert!(!l.end_if_lapsed(11));
        assert_eq!(l.renewed(), None);
    }

    #[test]
    fn a_held_lease_lapses_only_when_let_go() {
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
    fn a_late_word_does_not_shorten_a_lease() {
        let l = Lease::new(ClientId(1), Terms { lease_ms: 10, courtesy_ms: 0 }, 50);
        assert!(l.renew(20));
        assert_eq!(l.state(60), LeaseState::Live);
    }
}
