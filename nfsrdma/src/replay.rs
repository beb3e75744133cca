//! Duplicate request cache: a retransmission of a call that is not idempotent gets the first reply again.
//!
//! *Operation.* [`Replay::begin`] looks a call up by sender, transaction id and a checksum of its first bytes. A new call gets a
//! [`Pending`], which [`Pending::finish`] turns into a cached reply; dropping it removes the entry.
//!
//! *Memory.* Cached replies are bounded in entries, bytes and age. To make room, the oldest reply of the caller's own network is
//! evicted if that network uses its full part, otherwise the oldest reply of the network with the most: a network never evicts
//! replies of smaller users. IPv6 counts by /64. Calls in progress are bounded by the limits of their connections. Sixteen parts,
//! each with its own lock, held for a look-up only.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ahash::HashMap;
use mutex::locked;
use rdma_transport::channel::host_of;
use siphasher::sip::SipHasher13;

use crate::limits::{
    REPLAY_AGE_SECONDS_MAX, REPLAY_BYTES_MAX, REPLAY_ENTRIES_MAX, REPLAY_REPLY_MAX,
};

const PARTS: usize = 16;
/// Bytes covered by the checksum: names and handles, not the data of a WRITE.
const CHECKED: usize = 512;

/// The key of a call. The port is 0 for RDMA, where a reconnecting client has another port (the kernel's server ignores it there
/// too).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey {
    pub ip: IpAddr,
    /// The client's port over TCP.
    pub port: u16,
    pub xid: u32,
    /// Checksum of the first bytes of the call.
    pub checksum: u64,
}

/// The state of a call in the cache.
pub enum Begin {
    /// The call is new: execute it, then report the reply.
    New(Pending),
    /// The first copy is in progress and will be answered: drop this one.
    InProgress,
    /// The call was answered with this reply.
    Done(Arc<[u8]>),
}

/// A call in progress. Dropping it removes the entry.
pub struct Pending {
    cache: Arc<Replay>,
    key: CallKey,
    now: Duration,
    finished: bool,
}

pub struct Replay {
    parts: [Mutex<Part>; PARTS],
    key: [u8; 16],
    bytes_max: AtomicUsize,
}

#[derive(Default)]
struct Part {
    /// `None`: the call is in progress.
    calls: HashMap<CallKey, Option<Arc<[u8]>>>,
    /// Entries with a reply, by the network of their client.
    kept: HashMap<IpAddr, Kept>,
    entries: usize,
    bytes: usize,
    /// When expired replies of all networks were last removed.
    swept: Duration,
}

/// The cached replies of one network.
#[derive(Default)]
struct Kept {
    /// The cached calls by age, the oldest first.
    order: VecDeque<(Duration, CallKey)>,
    bytes: usize,
}

impl Replay {
    /// Creates an empty cache. `key` makes checksums unpredictable.
    pub fn new(key: [u8; 16]) -> Arc<Self> {
        let bytes_max = REPLAY_BYTES_MAX.into();
        Arc::new(Self { parts: Default::default(), key, bytes_max })
    }

    /// Changes the limit on cached bytes; at most [`REPLAY_BYTES_MAX`].
    pub fn set_bytes_max(&self, bytes: usize) {
        self.bytes_max.store(bytes.min(REPLAY_BYTES_MAX), Ordering::Relaxed);
    }

    /// The checksum of a call's length and first bytes.
    pub fn checksum(&self, call: &[u8]) -> u64 {
        let mut h = SipHasher13::new_with_key(&self.key);
        h.write_usize(call.len());
        h.write(&call[..call.len().min(CHECKED)]);
        h.finish()
    }

    fn part(&self, key: &CallKey) -> MutexGuard<'_, Part> {
        let i = (key.checksum ^ u64::from(key.xid)) % PARTS as u64;
        // Invariant: the remainder is below 16.
        #[allow(clippy::cast_possible_truncation)]
        locked(&self.parts[i as usize])
    }

    /// Looks up a call and enters it if it is new.
    pub fn begin(self: &Arc<Self>, key: CallKey, now: Duration) -> Begin {
        let mut part = self.part(&key);
        part.expire(host_of(key.ip), now);
        match part.calls.entry(key) {
            Entry::Occupied(known) => match known.get() {
                Some(reply) => return Begin::Done(reply.clone()),
                None => return Begin::InProgress,
            },
            Entry::Vacant(free) => free.insert(None),
        };
        drop(part);
        Begin::New(Pending { cache: self.clone(), key, now, finished: false })
    }
}

impl Part {
    fn keep(&mut self, key: CallKey, reply: &[u8], now: Duration, bytes_max: usize) {
        let network = host_of(key.ip);
        self.sweep(now);
        self.expire(network, now);
        self.make_room(network, bytes_max / PARTS);
        self.calls.insert(key, Some(reply.into()));
        let kept = self.kept.entry(network).or_default();
        kept.order.push_back((now, key));
        kept.bytes += reply.len();
        self.entries += 1;
        self.bytes += reply.len();
    }

    /// Removes expired replies of all networks now and then, so that clients that have disconnected do not occupy the cache.
    fn sweep(&mut self, now: Duration) {
        if now.saturating_sub(self.swept) < Duration::from_secs(REPLAY_AGE_SECONDS_MAX) {
            return;
        }
        self.swept = now;
        let networks: Vec<IpAddr> = self.kept.keys().copied().collect();
        networks.into_iter().for_each(|network| self.expire(network, now));
    }

    /// Removes expired replies of a network. A client does not retransmit after that time, and a new call may have the same key.
    fn expire(&mut self, network: IpAddr, now: Duration) {
        let age_max = Duration::from_secs(REPLAY_AGE_SECONDS_MAX);
        while let Some(&(since, _)) = self.kept.get(&network).and_then(|k| k.order.front())
            && now.saturating_sub(since) >= age_max
        {
            self.forget_first(network);
        }
    }

    fn make_room(&mut self, own: IpAddr, bytes_max: usize) {
        loop {
            let size: fn(&Kept) -> usize = if self.entries >= REPLAY_ENTRIES_MAX / PARTS {
                |kept| kept.order.len()
            } else if self.bytes > bytes_max {
                |kept| kept.bytes
            } else {
                return;
            };
            let Some(network) = self.with_most(own, size) else { return };
            self.forget_first(network);
        }
    }

    /// The network whose replies are evicted: `own` if it uses its full part, else the one with the most.
    fn with_most(&self, own: IpAddr, size: fn(&Kept) -> usize) -> Option<IpAddr> {
        let all: usize = self.kept.values().map(size).sum();
        match self.kept.get(&own) {
            Some(kept) if size(kept) * self.kept.len() >= all => Some(own),
            _ => self.kept.iter().max_by_key(|(_, kept)| size(kept)).map(|(network, _)| *network),
        }
    }

    fn forget_first(&mut self, network: IpAddr) {
        let Some(kept) = self.kept.get_mut(&network) else { return };
        if let Some((_, key)) = kept.order.pop_front()
            && let Some(Some(reply)) = self.calls.remove(&key)
        {
            kept.bytes -= reply.len();
            self.bytes -= reply.len();
            self.entries -= 1;
        }
        if kept.order.is_empty() {
            self.kept.remove(&network);
        }
    }
}

impl Pending {
    /// Caches the reply, unless it is too large.
    pub fn finish(mut self, reply: &[u8]) {
        if reply.len() <= REPLAY_REPLY_MAX {
            self.finished = true;
            let bytes_max = self.cache.bytes_max.load(Ordering::Relaxed);
            self.cache.part(&self.key).keep(self.key, reply, self.now, bytes_max);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.finished {
            self.cache.part(&self.key).calls.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn key(xid: u32) -> CallKey {
        CallKey { ip: [10, 0, 0, 1].into(), port: 0, xid, checksum: 7 }
    }

    fn begin(c: &Arc<Replay>, xid: u32, seconds: u64) -> Begin {
        c.begin(key(xid), Duration::from_secs(seconds))
    }

    #[test]
    fn repetition_gets_first_reply() {
        let c = Replay::new([1; 16]);
        let Begin::New(pending) = begin(&c, 1, 0) else { panic!() };
        assert!(matches!(begin(&c, 1, 0), Begin::InProgress));
        pending.finish(b"reply");
        let Begin::Done(reply) = begin(&c, 1, 1) else { panic!() };
        assert_eq!(&*reply, b"reply");
        assert!(matches!(begin(&c, 2, 1), Begin::New(_)));
    }

    #[test]
    fn dropped_and_large_replies_are_forgotten() {
        let c = Replay::new([1; 16]);
        drop(begin(&c, 1, 0));
        let Begin::New(pending) = begin(&c, 1, 0) else { panic!() };
        pending.finish(&[0; REPLAY_REPLY_MAX + 1]);
        assert!(matches!(begin(&c, 1, 0), Begin::New(_)));
    }

    #[test]
    fn count_bytes_and_age_are_bounded() {
        let c = Replay::new([1; 16]);
        let held = |c: &Replay| {
            c.parts.iter().fold((0, 0), |(n, bytes), p| {
                let p = p.lock().unwrap();
                assert_eq!(p.bytes, p.calls.values().flatten().map(|r| r.len()).sum::<usize>());
                (n + p.calls.len(), bytes + p.bytes)
            })
        };
        for xid in 0..50_000 {
            let Begin::New(p) = begin(&c, xid, 0) else { panic!() };
            p.finish(&[0; 4096]);
        }
        let (n, bytes) = held(&c);
        assert!(n <= REPLAY_ENTRIES_MAX && bytes <= REPLAY_BYTES_MAX + PARTS * REPLAY_REPLY_MAX);
        assert!(n > 1000);
        assert!(matches!(begin(&c, 49_999, 1), Begin::Done(_)));
        // Calls that need no cached reply evict no other entry.
        for xid in 100_000..200_000 {
            drop(begin(&c, xid, 1));
        }
        assert!(matches!(begin(&c, 49_999, 1), Begin::Done(_)));
        for xid in (200_000..).take(4 * PARTS) {
            let Begin::New(p) = begin(&c, xid, 1000) else { panic!() };
            p.finish(b"reply");
        }
        assert!(held(&c).0 < 8 * PARTS);
    }

    /// One address, and one network that calls from a new address each time, fill the cache as fast as they can.
    #[test]
    fn busy_network_evicts_own_replies() {
        let c = Replay::new([1; 16]);
        let from = |ip: IpAddr, xid| CallKey { ip, ..key(xid) };
        let begin = |key| c.begin(key, Duration::ZERO);
        let keep = |key| {
            let Begin::New(p) = begin(key) else { panic!() };
            p.finish(&[0; 512]);
        };
        let few = 64;
        let quiet: Vec<IpAddr> = (1..=20).map(|n| [10, 0, 1, n].into()).collect();
        let loud = |xid: u32| {
            let one = IpAddr::from([192, 0, 2, 1]);
            let many = Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(xid)).into();
            [from(one, xid), from(many, xid)]
        };
        (0..30_000).for_each(|xid| loud(xid).into_iter().for_each(keep));
        for ip in &quiet {
            (0..few).for_each(|xid| keep(from(*ip, xid)));
        }
        (30_000..60_000).for_each(|xid| loud(xid).into_iter().for_each(keep));
        for ip in &quiet {
            for xid in 0..few {
                assert!(matches!(begin(from(*ip, xid)), Begin::Done(_)), "{ip} {xid}");
            }
        }
        // Every network keeps some replies, and the busy ones get no more than their part.
        assert!(loud(59_999).into_iter().all(|key| matches!(begin(key), Begin::Done(_))));
        let entries: usize = c.parts.iter().map(|p| p.lock().unwrap().entries).sum();
        assert!(entries > REPLAY_ENTRIES_MAX / 2 && entries <= REPLAY_ENTRIES_MAX, "{entries}");
    }

    #[test]
    fn expired_reply_is_not_repeated() {
        let c = Replay::new([1; 16]);
        let Begin::New(pending) = begin(&c, 1, 0) else { panic!() };
        pending.finish(b"reply");
        assert!(matches!(begin(&c, 1, REPLAY_AGE_SECONDS_MAX - 1), Begin::Done(_)));
        assert!(matches!(begin(&c, 1, REPLAY_AGE_SECONDS_MAX), Begin::New(_)));
    }

    #[test]
    fn replies_of_disconnected_clients_expire() {
        let c = Replay::new([1; 16]);
        let keep = |ip: [u8; 4], xid, seconds| {
            let key = CallKey { ip: ip.into(), ..key(xid) };
            let Begin::New(p) = c.begin(key, Duration::from_secs(seconds)) else { panic!() };
            p.finish(b"reply");
        };
        (0..200).for_each(|xid| keep([10, 0, 2, 1], xid, 0));
        (0..400).for_each(|xid| keep([10, 0, 2, 2], xid, REPLAY_AGE_SECONDS_MAX));
        let entries: usize = c.parts.iter().map(|p| p.lock().unwrap().entries).sum();
        assert_eq!(entries, 400);
    }

    #[test]
    fn checksum_covers_length_and_head() {
        let c = Replay::new([1; 16]);
        let a = c.checksum(&[1; 100]);
        assert_ne!(a, c.checksum(&[1; 101]));
        assert_ne!(a, c.checksum(&[2; 100]));
        assert_ne!(a, Replay::new([2; 16]).checksum(&[1; 100]));
    }
}
