//! Limits the Receives posted by RDMA connections, and so the credits that they grant.
//!
//! *Operation.* A connection has few Receives until its client has introduced itself, by a logon or an admitted call. Then it may
//! use as many as its protocol wants, within the limits of its address and in total; otherwise it continues with fewer, and tries
//! again later.
//!
//! *Memory.* [`Parts`] counts the first few Receives, and apart from them those beyond, for each address and in total.
//!
//! *Errors.* A connection that gets no first ones is not set up. One that gets no more works with less concurrency. The limit is
//! counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use mutex::locked;

use crate::channel::ReceiveBudget;
use crate::count;
use crate::parts::{Limit, Part, Parts};

/// The limit on Receives of all RDMA connections beyond the first few of each.
pub const RECEIVES: &str = "rdma-receives";
/// The part of one address.
pub const RECEIVES_OF_ADDRESS: &str = "rdma-receives-of-address";

/// The limit on the first Receives of all RDMA connections.
pub const FIRST: &str = "rdma-first-receives";
/// The part of one address.
pub const FIRST_OF_ADDRESS: &str = "rdma-first-receives-of-address";

/// The limits on the first Receives: in total, and for one address.
pub fn first_parts(of_all: usize, of_address: usize) -> Arc<Parts> {
    Parts::new([Limit::new(FIRST, of_all), Limit::new(FIRST_OF_ADDRESS, of_address)])
}

/// The limits on such Receives: in total, and for one address.
pub fn parts(of_all: usize, of_address: usize) -> Arc<Parts> {
    Parts::new([Limit::new(RECEIVES, of_all), Limit::new(RECEIVES_OF_ADDRESS, of_address)])
}

/// Returns the credits, at most `most`, that a queue pair has Receives for; `others` of its Receives serve no credit.
pub(crate) fn credits_for(recvs_max: usize, others: u16, most: u16) -> u16 {
    let left = recvs_max.saturating_sub(usize::from(others));
    u16::try_from(left).unwrap_or(u16::MAX).min(most)
}

/// The additional Receives of one connection.
#[derive(Debug)]
pub struct Receives {
    part: Mutex<Part>,
    /// A limit was reached, and counted.
    was_short: AtomicBool,
    /// The first few, which it has for as long as it lasts.
    _first: Option<Part>,
}

impl Receives {
    /// Uses this part of the limits.
    pub fn counted(part: Part) -> Self {
        Self { part: Mutex::new(part), was_short: AtomicBool::new(false), _first: None }
    }

    /// With its first few Receives, which are counted apart.
    pub fn with_first(self, first: Part) -> Self {
        Self { _first: Some(first), ..self }
    }
}

impl ReceiveBudget for Receives {
    fn allowed(&self, is_known: bool, few: u16, most: u16) -> u16 {
        let (few, wanted) = (few.min(most), usize::from(most.saturating_sub(few)));
        if !is_known {
            return few;
        }
        let mut part = locked(&self.part);
        let mut more = wanted;
        while more > part.count() {
            match part.set(more) {
                Ok(()) => break,
                Err(limit) if !self.was_short.swap(true, Ordering::Relaxed) => {
                    count::limit_met(limit.name);
                }
                Err(_) => {}
            }
            more /= 2;
        }
        few + u16::try_from(part.count()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_never_exceed_posted_receives() {
        assert_eq!(credits_for(68, 4, 64), 64);
        assert_eq!(credits_for(62, 4, 64), 58, "a card that takes few Receives");
        assert_eq!(credits_for(usize::MAX, 1, 255), 255);
        assert_eq!(credits_for(3, 4, 64), 0);
    }

    #[test]
    fn first_receives_of_address_leave_others_theirs() {
        let parts = first_parts(20, 15);
        let of = |at: [u8; 4]| {
            let mut first = parts.of(at.into());
            first.set(5).map(|()| first)
        };
        let held: Vec<_> = (0..4).map_while(|_| of([10, 0, 0, 1]).ok()).collect();
        assert_eq!(held.len(), 3);
        assert_eq!(of([10, 0, 0, 1]).unwrap_err().name, FIRST_OF_ADDRESS);
        let other = of([10, 0, 0, 2]).unwrap();
        assert_eq!(of([10, 0, 0, 3]).unwrap_err().name, FIRST);
        drop((held, other));
        assert!(of([10, 0, 0, 3]).is_ok());
    }

    #[test]
    fn unknown_peer_gets_fewer_receives() {
        let parts = parts(100, 60);
        let of = |at: [u8; 4]| Receives::counted(parts.of(at.into()));
        let (stranger, known) = (false, true);
        let (one, two, other) = (of([10, 0, 0, 1]), of([10, 0, 0, 1]), of([10, 0, 0, 2]));
        assert_eq!(one.allowed(stranger, 4, 64), 4);
        assert_eq!((one.allowed(known, 4, 64), one.allowed(known, 4, 64)), (64, 64));
        assert_eq!(two.allowed(known, 4, 64), 4, "its address has its part");
        assert_eq!(other.allowed(known, 4, 64), 34, "half of what it wants is there");
        drop(one);
        assert_eq!((two.allowed(known, 4, 64), other.allowed(known, 4, 64)), (64, 34));
    }
}
