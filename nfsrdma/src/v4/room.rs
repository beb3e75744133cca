//! Limits for NFSv4: the number of clients, and the memory for replies cached by sessions, in total and for each network address
//! (IPv6: /64), so that a single address cannot exhaust them.
//!
//! *Operation.* A client takes a [`ClientPermit`] when it introduces itself; at the limit, other clients are evicted
//! ([`super::make_room`]). A session takes a [`Pinned`] for the replies that its slots may cache. Its request is reduced so that
//! some memory remains for the next session: see [`Replies::agree`].
//!
//! *Memory.* A counter for each address with clients.
//!
//! *Errors.* [`Full`] names the limit reached; a session without memory is refused with NFS4ERR_NOSPC.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use rdma_transport::channel::host_of;

use super::channel_attrs::ChannelAttrs;
use super::limits::{
    CLIENTS_MAX, CLIENTS_OF_ADDRESS_MIN, REPLIES_BYTES_MAX, REPLY_CACHED_FEW, REPLY_CACHED_MAX,
    REPLY_CACHED_MIN,
};
use super::usage::Usage;

/// One address may have an eighth of all clients, and a quarter of the memory for replies.
const ADDRESSES: usize = 8;
const ADDRESSES_REPLIES: usize = 4;
/// A session gets at most this fraction of the remaining memory.
const OF_WHAT_IS_LEFT: usize = 8;

/// The limit that refused a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The limit for all clients together.
    All,
    /// The part of the address.
    Address,
}

#[derive(Debug)]
struct Counts {
    most: usize,
    all: usize,
    of: HashMap<IpAddr, OfAddress>,
}

#[derive(Debug, Default)]
struct OfAddress {
    clients: usize,
    usage: Usage,
}

impl Counts {
    fn of_address_max(&self) -> usize {
        (self.most / ADDRESSES).max(CLIENTS_OF_ADDRESS_MIN).min(self.most)
    }

    fn full(&self, network: IpAddr) -> Option<Full> {
        let of = self.of.get(&network).map_or(0, |of| of.clients);
        if of >= self.of_address_max() {
            Some(Full::Address)
        } else if self.all >= self.most {
            Some(Full::All)
        } else {
            None
        }
    }
}

/// Counts the clients of each address.
#[derive(Debug)]
pub(super) struct Room(Arc<Mutex<Counts>>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Counts { most: CLIENTS_MAX, all: 0, of: HashMap::new() })))
    }
}

fn counts(of: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    locked(of)
}

impl Room {
    pub(super) fn set(&self, most: usize) {
        counts(&self.0).most = most;
    }

    /// Takes a place for a client at this address.
    pub(super) fn take(&self, at: IpAddr) -> Option<ClientPermit> {
        let network = host_of(at);
        let mut counts = counts(&self.0);
        if counts.full(network).is_some() {
            return None;
        }
        counts.all += 1;
        let of = counts.of.entry(network).or_default();
        of.clients += 1;
        let usage = of.usage.clone();
        Some(ClientPermit { counts: self.0.clone(), network, usage })
    }

    pub(super) fn full(&self, network: IpAddr) -> Option<(Full, usize)> {
        let counts = counts(&self.0);
        let full = counts.full(network)?;
        let most = if full == Full::All { counts.most } else { counts.of_address_max() };
        Some((full, most))
    }
}

#[derive(Debug)]
pub(super) struct ClientPermit {
    counts: Arc<Mutex<Counts>>,
    network: IpAddr,
    usage: Usage,
}

impl ClientPermit {
    /// The counters of all clients of its network.
    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    pub(super) fn network(&self) -> IpAddr {
        self.network
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut counts = counts(&self.counts);
        counts.all -= 1;
        if let Some(of) = counts.of.get_mut(&self.network) {
            of.clients -= 1;
            if of.clients == 0 {
                counts.of.remove(&self.network);
            }
        }
    }
}

#[derive(Debug)]
struct Pins {
    /// Total limit in bytes.
    most: usize,
    /// Largest number of clients.
    clients: usize,
    /// Bytes reserved, and the part of them beyond the guaranteed minimum of each session.
    all: (usize, usize),
    of: HashMap<IpAddr, (usize, usize)>,
}

/// Memory for replies cached by sessions.
#[derive(Debug)]
pub(super) struct Replies(Arc<Mutex<Pins>>);

impl Default for Replies {
    fn default() -> Self {
        let pins =
            Pins { most: REPLIES_BYTES_MAX, clients: CLIENTS_MAX, all: (0, 0), of: HashMap::new() };
        Self(Arc::new(Mutex::new(pins)))
    }
}

fn pins(of: &Mutex<Pins>) -> MutexGuard<'_, Pins> {
    locked(of)
}

impl Pins {
    /// Bytes guaranteed to every session: one slot of this size. Half of the memory is for these.
    fn least(&self) -> usize {
        (self.most / 2 / self.clients.max(1)).clamp(REPLY_CACHED_MIN, REPLY_CACHED_FEW)
    }

    /// Bytes available to a session from this network: for its minimum, and beyond that; and the limit that bounds them.
    fn left(&self, network: IpAddr) -> (usize, usize, Full) {
        let half = self.most / 2;
        let of = self.of.get(&network).copied().unwrap_or_default();
        let base = |(all, extra): (usize, usize), most: usize| most.saturating_sub(all - extra);
        let least = base(self.all, half).min(base(of, half / ADDRESSES_REPLIES));
        let (all, address) =
            (half.saturating_sub(self.all.1), (half / ADDRESSES_REPLIES).saturating_sub(of.1));
        let which =
            if address < all.min(half / ADDRESSES_REPLIES) { Full::Address } else { Full::All };
        (least, all.min(address), which)
    }

    /// The slots, and the bytes of each, that a session gets; `None` if not even the minimum is available.
    fn cut(
        &self,
        (base, extra): (usize, usize),
        (slots, cached): (usize, usize),
    ) -> Option<(usize, usize)> {
        let least = self.least();
        if base < least {
            return None;
        }
        let may = least + extra / OF_WHAT_IS_LEFT;
        if slots.saturating_mul(cached) <= may {
            return Some((slots, cached));
        }
        // Most cached replies are short, so their size is reduced before their number.
        let cached = cached.min(REPLY_CACHED_FEW).min(may);
        Some(((may / cached.max(1)).clamp(1, slots), cached))
    }
}

impl Replies {
    pub(super) fn set(&self, bytes: usize) {
        pins(&self.0).most = bytes;
    }

    pub(super) fn set_clients(&self, clients: usize) {
        pins(&self.0).clients = clients;
    }

    /// Bytes reserved.
    pub(super) fn used(&self) -> usize {
        pins(&self.0).all.0
    }

    /// Returns the limit reached if a session with this request would get few slots, and far fewer than on an idle server.
    pub(super) fn short(&self, network: IpAddr, wish: ChannelAttrs) -> Option<Full> {
        const FEW: usize = 16;
        let pins = pins(&self.0);
        let (base, extra, which) = pins.left(network);
        let share = pins.most / 2 / ADDRESSES_REPLIES;
        let (best, _) = pins.cut((share, share), sizes(wish))?;
        let got = pins.cut((base, extra), sizes(wish)).map_or(0, |(got, _)| got);
        (got < best.min(FEW)).then_some(which)
    }

    /// Reserves memory for a session of a client in this network, and reduces the channel accordingly.
    ///
    /// Half of the memory is for the minimum of each session, one slot with short replies. Of the other half, a session gets at
    /// most an eighth of the remainder, and one address a quarter: first the size of a cached reply is reduced to
    /// [`REPLY_CACHED_FEW`] bytes, as in Linux' server, then the number of slots. `None` if not even the minimum is available.
    pub(super) fn agree(
        &self,
        network: IpAddr,
        wish: ChannelAttrs,
    ) -> Option<(ChannelAttrs, Pinned)> {
        let mut pins = pins(&self.0);
        let (base, extra, _) = pins.left(network);
        let (slots, cached) = pins.cut((base, extra), sizes(wish))?;
        let least = pins.least();
        // A smaller request counts as the minimum, which bounds the number of sessions.
        let bytes = (slots * cached).max(least);
        let taken = (bytes, bytes - least);
        let add = |to: &mut (usize, usize)| *to = (to.0 + taken.0, to.1 + taken.1);
        add(&mut pins.all);
        add(pins.of.entry(network).or_default());
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let agreed = ChannelAttrs { slots: number(slots), cached_max: number(cached), ..wish };
        Some((agreed, Pinned { pins: self.0.clone(), network, taken }))
    }
}

fn sizes(wish: ChannelAttrs) -> (usize, usize) {
    let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    (number(wish.slots), number(wish.cached_max).min(REPLY_CACHED_MAX))
}

/// Memory reserved for the cached replies of one session.
#[derive(Debug)]
pub(super) struct Pinned {
    pins: Arc<Mutex<Pins>>,
    network: IpAddr,
    taken: (usize, usize),
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut pins = pins(&self.pins);
        let taken = self.taken;
        let less = |of: &mut (usize, usize)| *of = (of.0 - taken.0, of.1 - taken.1);
        less(&mut pins.all);
        if let Some(of) = pins.of.get_mut(&self.network) {
            less(of);
            if *of == (0, 0) {
                pins.of.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    const WISH: ChannelAttrs = ChannelAttrs {
        request_max: 1 << 20,
        response_max: 1 << 20,
        cached_max: 8 << 10,
        ops_max: 16,
        slots: 64,
    };

    fn ip(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + n).into()
    }

    #[test]
    fn clients_of_address_are_limited() {
        let room = Room::default();
        room.set(800);
        let mut places: Vec<_> = (0..100).map(|_| room.take(ip(1)).unwrap()).collect();
        assert!(room.take(ip(1)).is_none());
        assert_eq!(room.full(ip(1)), Some((Full::Address, 100)));
        for other in 2..9 {
            places.extend((0..100).map(|_| room.take(ip(other)).unwrap()));
        }
        assert_eq!(room.full(ip(99)), Some((Full::All, 800)));
        assert!(room.take(ip(99)).is_none());
        places.truncate(1);
        assert!(room.take(ip(1)).is_some());
        assert_eq!(counts(&room.0).of.len(), 1, "nothing stays of those who went");
        // An IPv6 host has a whole /64.
        let of = |text: &str| room.take(text.parse().unwrap());
        let places: Vec<_> = (0..100).map(|n| of(&format!("2001:db8::{n:x}")).unwrap()).collect();
        assert!(of("2001:db8::ffff:1").is_none() && of("2001:db8:0:1::1").is_some());
        drop(places);
    }

    #[test]
    fn cached_replies_stay_within_memory() {
        for most in [1 << 20, 16 << 20, 256 << 20] {
            let replies = Replies::default();
            replies.set(most);
            let mut kept = Vec::new();
            while let Some((agreed, pinned)) = replies.agree(ip(kept.len() as u32), WISH) {
                assert!(agreed.slots >= 1 && agreed.cached_max as usize >= REPLY_CACHED_MIN);
                kept.push(pinned);
            }
            assert!(replies.used() <= most, "{} of {most}", replies.used());
            assert!(kept.len() >= most / 2 / REPLY_CACHED_FEW, "{}", kept.len());
            drop(kept);
            assert_eq!(replies.used(), 0);
            assert!(pins(&replies.0).of.is_empty());
        }
    }

    #[test]
    fn address_gets_quarter_of_replies() {
        let replies = Replies::default();
        replies.set(16 << 20);
        let mut kept = Vec::new();
        while let Some((_, pinned)) = replies.agree(ip(1), WISH) {
            kept.push(pinned);
        }
        assert!(replies.used() <= 4 << 20);
        assert_eq!(
            replies.agree(ip(2), WISH).unwrap().0.slots,
            64,
            "the next one has all its slots"
        );
    }

    #[test]
    fn pressure_shortens_replies_before_slots() {
        let replies = Replies::default();
        replies.set(64 << 20);
        let (all, first) = replies.agree(ip(1), WISH).unwrap();
        assert_eq!(all, WISH);
        let mut kept = vec![first];
        let mut seen = Vec::new();
        for n in 2..3_000 {
            let (agreed, pinned) = replies.agree(ip(n), WISH).unwrap();
            kept.push(pinned);
            let sort = (agreed.cached_max as usize, agreed.slots == WISH.slots);
            if seen.last() != Some(&sort) {
                seen.push(sort);
            }
        }
        let (many, few) = (REPLY_CACHED_MAX, REPLY_CACHED_FEW);
        assert_eq!(seen[..3], [(many, true), (few, true), (few, false)]);
    }
}
