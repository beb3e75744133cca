//! Amounts that requests wait for: a total, and a part for each address, so that the clients of one address cannot take all of it.
//!
//! *Operation.* [`Turns::take`] waits until the amount is available, at most as long as its caller allows. Work on another thread
//! holds its [`Turn`] until the thread has ended it, however long its caller waits: so threads are bounded.
//!
//! *Memory.* One entry for each address that holds a part.
//!
//! *Errors.* A wait in vain is counted by the name of the limit.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::count;
use crate::parts::{Limit, Part, Parts};

/// A total amount of which requests take parts.
#[derive(Debug)]
pub struct Turns {
    parts: Arc<Parts>,
    most: usize,
    given_back: Notify,
}

/// A part of the amount, returned when dropped.
#[derive(Debug)]
pub struct Turn {
    part: Option<Part>,
    of: Arc<Turns>,
}

impl Turns {
    /// Builds an amount with a total limit and a limit per address.
    pub fn new(limits: [Limit; 2]) -> Arc<Self> {
        let most = limits[0].most.min(limits[1].most);
        Arc::new(Self { parts: Parts::new(limits), most, given_back: Notify::new() })
    }

    /// Takes `amount` for a client at this address, or the address's limit if that is less. Returns `None` if it is not available
    /// within `longest`.
    pub async fn take(
        self: &Arc<Self>,
        at: IpAddr,
        amount: usize,
        longest: Duration,
    ) -> Option<Turn> {
        let amount = amount.min(self.most);
        let mut met = None;
        let wait = async {
            loop {
                let given_back = self.given_back.notified();
                let mut part = self.parts.of(at);
                match part.set(amount) {
                    Ok(()) => return Turn { part: Some(part), of: self.clone() },
                    Err(limit) => met = Some(limit),
                }
                given_back.await;
            }
        };
        let turn = timeout(longest, wait).await.ok();
        if let (None, Some(limit)) = (&turn, met) {
            count::limit_met(limit.name);
        }
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.part.take());
        self.of.given_back.notify_waiters();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);

    fn address(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    #[tokio::test(start_paused = true)]
    async fn amounts_are_waited_for_and_given_back() {
        let turns = Turns::new([Limit::new("all", 10), Limit::new("of-address", 6)]);
        let first = turns.take(address(1), 5, LONGEST).await.unwrap();
        assert!(turns.take(address(1), 2, LONGEST).await.is_none(), "over the part of the address");
        let other = turns.take(address(2), 5, LONGEST).await.unwrap();
        assert!(turns.take(address(3), 1, LONGEST).await.is_none(), "over the total");
        let waits = tokio::spawn({
            let turns = turns.clone();
            async move { turns.take(address(3), 5, LONGEST).await.is_some() }
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waits.await.unwrap());
        drop(other);
        assert!(
            turns.take(address(1), 99, LONGEST).await.is_some(),
            "all that an address may have"
        );
    }
}
