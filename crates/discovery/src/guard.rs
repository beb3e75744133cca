//! Limits packets from the network: their size, and how many the gateway reads in a second on each link, from one address and in
//! total.
//!
//! Hosts of a link can forge the source address of a datagram. The table of addresses therefore has a fixed size, and the size of a
//! request limits the reply to one address ([`reply_max`]).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Packets that the gateway reads in a second on one link, from all addresses together. A network of a thousand hosts sends fewer.
pub const PACKETS_PER_SECOND: u32 = 400;
/// Packets that the gateway reads in a second from one address.
pub const PACKETS_OF_ADDRESS_PER_SECOND: u32 = 50;
/// Addresses whose packets are counted at once.
const ADDRESSES_MAX: usize = 512;
const WINDOW: Duration = Duration::from_secs(1);
/// Bytes that a reply to one address may have, however small its request is: the smallest message that each host takes by DNS.
const REPLY_MIN: usize = 512;
/// Largest reply to one address, as a multiple of its request.
const REPLY_TIMES: usize = 3;

/// Name of the limit for packets of all addresses.
pub const PACKETS: &str = "discovery-packets";
/// Name of the limit for packets of one address.
pub const PACKETS_OF_ADDRESS: &str = "discovery-packets-of-address";

/// Returns the largest size of a reply that is sent to one address, so that forged requests do not flood it.
pub fn reply_max(request: usize) -> usize {
    request.saturating_mul(REPLY_TIMES).max(REPLY_MIN)
}

/// Counts packets in windows of a second.
#[derive(Debug)]
pub struct Guard {
    began: Instant,
    all: u32,
    of: HashMap<IpAddr, u32>,
}

impl Guard {
    /// Starts to count.
    pub fn new(now: Instant) -> Self {
        Self { began: now, all: 0, of: HashMap::new() }
    }

    /// Lets a packet of this address through.
    ///
    /// # Errors
    /// Returns the name of the limit that drops it.
    pub fn admit(&mut self, now: Instant, peer: IpAddr) -> Result<(), &'static str> {
        if now.saturating_duration_since(self.began) >= WINDOW {
            *self = Self::new(now);
        }
        if self.all >= PACKETS_PER_SECOND {
            return Err(PACKETS);
        }
        let is_full = self.of.len() >= ADDRESSES_MAX;
        match self.of.get_mut(&peer) {
            Some(count) if *count >= PACKETS_OF_ADDRESS_PER_SECOND => {
                return Err(PACKETS_OF_ADDRESS);
            }
            Some(count) => *count += 1,
            // A sender forges addresses if so many appear in one second.
            None if is_full => return Err(PACKETS),
            None => drop(self.of.insert(peer, 1)),
        }
        self.all += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0xC000_0200 + n).into()
    }

    #[test]
    fn packets_of_an_address_leave_room_for_others() {
        let now = Instant::now();
        let mut guard = Guard::new(now);
        let taken = (0..1000).filter(|_| guard.admit(now, from(1)).is_ok()).count();
        assert_eq!(taken, PACKETS_OF_ADDRESS_PER_SECOND as usize);
        assert_eq!(guard.admit(now, from(1)), Err(PACKETS_OF_ADDRESS));
        assert_eq!(guard.admit(now, from(2)), Ok(()));
        let forged = (10..10_000).filter(|n| guard.admit(now, from(*n)).is_ok()).count();
        assert_eq!(forged + taken + 1, PACKETS_PER_SECOND as usize);
        assert_eq!(guard.admit(now, from(3)), Err(PACKETS));
        assert!(guard.of.len() <= ADDRESSES_MAX);
        let later = now + WINDOW;
        assert_eq!(guard.admit(later, from(1)), Ok(()), "the next second");
        assert_eq!(guard.of.len(), 1);
    }

    #[test]
    fn replies_are_small_beside_requests() {
        assert_eq!([0, 20, 170, 171, 1000].map(reply_max), [512, 512, 512, 513, 3000]);
        assert_eq!(reply_max(usize::MAX), usize::MAX);
    }
}
