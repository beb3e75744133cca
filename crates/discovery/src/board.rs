//! Keeps the status of each link, and counts packets and conflicts.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use mutex::locked;

use crate::guard::Guard;
use crate::metadata::Places;
use crate::socket::Protocol;

/// How the gateway treated a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It led to messages of this host.
    Answered,
    /// It did not concern this host.
    Ignored,
    /// Its sender is in no network of the link.
    Far,
    /// It is no message of the protocol.
    Bad,
    /// There were too many.
    Limited,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Answered, Self::Ignored, Self::Far, Self::Bad, Self::Limited];

    /// Returns the name for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Ignored => "ignored",
            Self::Far => "far",
            Self::Bad => "bad",
            Self::Limited => "limited",
        }
    }
}

/// The announcement on one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// Name of the device.
    pub link: String,
    /// The host's name on this link. Missing while the responder still claims it.
    pub name: Option<String>,
    /// Addresses that are announced.
    pub addresses: Vec<IpAddr>,
    /// Port of SMB, if it is announced.
    pub smb: Option<u16>,
    /// Port of NFS, if it is announced.
    pub nfs: Option<u16>,
    /// Protocols in use.
    pub protocols: Vec<&'static str>,
    /// Why a protocol is not in use.
    pub troubles: Vec<String>,
}

/// Counts that a sender met the limit of this name.
pub type Limited = fn(&'static str);

/// Counters and status of all links.
#[derive(Debug)]
pub struct Board {
    packets: [[AtomicU64; Outcome::ALL.len()]; Protocol::ALL.len()],
    conflicts: AtomicU64,
    links: Mutex<BTreeMap<u32, LinkStatus>>,
    /// By the number of their link: a flood on one network takes nothing from the others.
    guards: Mutex<BTreeMap<u32, Guard>>,
    places: Arc<Places>,
    limited: Limited,
}

impl Board {
    /// Starts with zeros.
    pub fn new(limited: Limited) -> Self {
        Self {
            packets: Default::default(),
            conflicts: AtomicU64::new(0),
            links: Mutex::default(),
            guards: Mutex::default(),
            places: Arc::default(),
            limited,
        }
    }

    /// Returns the number of packets by protocol and outcome.
    pub fn packets(&self) -> Vec<(&'static str, &'static str, u64)> {
        let of = |protocol: Protocol| {
            let row = &self.packets[protocol as usize];
            Outcome::ALL
                .map(|o| (protocol.name(), o.name(), row[o as usize].load(Ordering::Relaxed)))
        };
        Protocol::ALL.into_iter().flat_map(of).collect()
    }

    /// Returns how often another host had the name.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Returns the links on which something is announced.
    pub fn links(&self) -> Vec<LinkStatus> {
        locked(&self.links).values().cloned().collect()
    }

    pub(crate) fn count(&self, protocol: Protocol, outcome: Outcome) {
        self.packets[protocol as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn conflict(&self, times: u64) {
        self.conflicts.fetch_add(times, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, index: u32, status: Option<LinkStatus>) {
        let mut links = locked(&self.links);
        match status {
            Some(status) => drop(links.insert(index, status)),
            None => {
                links.remove(&index);
                locked(&self.guards).remove(&index);
            }
        }
    }

    /// Returns true if the limits of this link admit a packet of this sender.
    pub(crate) fn admit(&self, link: u32, now: Instant, from: SocketAddr) -> bool {
        let mut guards = locked(&self.guards);
        let guard = guards.entry(link).or_insert_with(|| Guard::new(now));
        let admitted = guard.admit(now, from.ip().to_canonical());
        drop(guards);
        admitted.inspect_err(|limit| self.limited(limit)).is_ok()
    }

    /// Counts that a sender met a limit.
    pub(crate) fn limited(&self, limit: &'static str) {
        (self.limited)(limit);
    }

    /// Returns the places for connections that read the metadata.
    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::PACKETS_PER_SECOND;

    #[test]
    fn flood_on_a_link_leaves_other_links_theirs() {
        let (board, now) = (Board::new(|_| ()), Instant::now());
        let admitted = |link, from: u32| {
            let from = std::net::Ipv4Addr::from_bits(0x0a00_0000 + from);
            board.admit(link, now, SocketAddr::from((from, 5353)))
        };
        let forged = (0..1000).filter(|n| admitted(2, *n)).count();
        assert_eq!(forged, PACKETS_PER_SECOND as usize);
        assert!(!admitted(2, 5000) && admitted(3, 5000));
        board.set(2, None);
        assert!(locked(&board.guards).len() == 1, "a link that is gone has no guard");
    }
}
