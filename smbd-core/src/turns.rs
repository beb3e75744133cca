//! Amounts that requests wait for: a total, and a part for each address, so that the clients of one address cannot take all of it.
//!
//! *Operation.* [`Turns::take`] waits until the amount is available, at most as long as its caller allows.
//!
//! *Memory.* One entry for each address that holds a part.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use rdma_transport::parts::{Limit, Part, Parts};
use tokio::sync::Notify;
use tokio::time::timeout;

/// A total amount of which requests take parts.
pub(crate) struct Turns {
    parts: Arc<Parts>,
    most: usize,
    given_back: Notify,
}

/// A part of the amount, returned when dropped.
pub(crate) struct Turn {
    part: Option<Part>,
    of: Arc<Turns>,
}

impl Turns {
    /// Builds an amount with a total limit and a limit per address.
    pub(crate) fn new(limits: [Limit; 2]) -> Arc<Self> {
        let most = limits[0].most.min(limits[1].most);
        Arc::new(Self { parts: Parts::new(limits), most, given_back: Notify::new() })
    }

    /// Takes `amount` for a client at this address, or the address's limit if that is less. Returns `None` if it is not available
    /// within `longest`.
    pub(crate) async fn take(
        self: &Arc<Self>,
        at: IpAddr,
        amount: usize,
        longest: Duration,
    ) -> Option<Turn> {
        let amount = amount.min(self.most);
        let wait = async {
            loop {
                let given_back = self.given_back.notified();
                let mut part = self.parts.of(at);
                if part.set(amount).is_ok() {
                    return Turn { part: Some(part), of: self.clone() };
                }
                given_back.await;
            }
        };
        timeout(longest, wait).await.ok()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.part.take());
        self.of.given_back.notify_waiters();
    }
}

/// Resources for compressed messages of all connections.
pub(crate) struct Compression {
    /// Threads that compress and expand.
    pub(crate) threads: Arc<Turns>,
}

impl Default for Compression {
    fn default() -> Self {
        let threads = available_parallelism().map_or(1, usize::from);
        Self {
            threads: Turns::new([
                Limit::new("compressing-threads", threads),
                Limit::new("compressing-threads-of-address", threads.div_ceil(2)),
            ]),
        }
    }
}

#[cfg(test)]
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
