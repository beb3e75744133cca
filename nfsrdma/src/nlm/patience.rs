//! How long a host is called again before the gateway gives up.
//!
//! *Operation.* Pauses between calls double. Time that passed because the gateway itself could make no call is added to the host's
//! time, at most once as much again: a host that was never asked has not been silent.

use std::time::Duration;

use tokio::time::Instant;

use super::limits;
use crate::rpc::outgoing::CallFailed;

/// The time left for one notice.
pub(crate) struct Patience {
    longest: Duration,
    until: Instant,
    /// When the call that is under way began.
    called: Instant,
    pause: u64,
    /// Time that the gateway's own limits took.
    lent: Duration,
    /// True if the last call was not made.
    is_own: bool,
}

impl Patience {
    /// Begins now, for this many seconds of calls.
    pub(crate) fn new(seconds: u64) -> Self {
        let (now, longest) = (Instant::now(), Duration::from_secs(seconds));
        Self {
            longest,
            until: now + longest,
            called: now,
            pause: limits::AGAIN_MS,
            lent: Duration::ZERO,
            is_own: false,
        }
    }

    /// Notes a failed call. Time is given back if the call was not made.
    pub(crate) fn failed(&mut self, why: &CallFailed) {
        self.is_own = matches!(why, CallFailed::NotMade(_));
        if self.is_own {
            let pause = Duration::from_millis(self.pause);
            let lost = self.called.elapsed().saturating_add(pause);
            let lost = lost.min(self.longest.saturating_sub(self.lent));
            self.lent += lost;
            self.until += lost;
        }
    }

    /// Returns the pause before the next call; `None` when the time is over.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        let pause = Duration::from_millis(self.pause);
        let next = Instant::now() + pause;
        if next > self.until {
            return None;
        }
        self.called = next;
        self.pause = (self.pause * 2).min(limits::AGAIN_MS_MAX);
        Some(pause)
    }

    /// Returns what an operator should look at after the time is over.
    pub(crate) fn advice(&self) -> &'static str {
        match self.is_own {
            true => {
                "the gateway could make no call: too many were under way (calls-to-hosts), or this host has no socket for it"
            }
            false => "is its rpcbind reachable?",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds until the gateway gives up, if each call takes 5 s and fails so.
    async fn gives_up_after(failure: impl Fn(u32) -> CallFailed) -> (u64, &'static str) {
        let began = Instant::now();
        let mut patience = Patience::new(60);
        for n in 0.. {
            tokio::time::sleep(Duration::from_secs(5)).await;
            patience.failed(&failure(n));
            match patience.pause() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => break,
            }
        }
        (began.elapsed().as_secs(), patience.advice())
    }

    #[tokio::test(start_paused = true)]
    async fn own_limits_are_not_silence_of_the_host() {
        let silent = |_| CallFailed::Unanswered(String::new());
        let own = |_| CallFailed::NotMade(String::new());
        let (host, why) = gives_up_after(silent).await;
        assert!((40..=60).contains(&host) && why.contains("rpcbind"), "{host} {why}");
        // It ends, too, and the log does not blame the host.
        let (gateway, why) = gives_up_after(own).await;
        assert!((100..=120).contains(&gateway) && !why.contains("rpcbind"), "{gateway} {why}");
        // A host that is called at last has its own time.
        let (both, why) = gives_up_after(|n| if n < 4 { own(n) } else { silent(n) }).await;
        assert!(both >= host + 20 && why.contains("rpcbind"), "{both} {why}");
    }
}
