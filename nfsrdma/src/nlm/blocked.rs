//! Queue of waiting lock requests, in order of arrival. No I/O.
//!
//! A client repeats its LOCK while it waits; all repetitions map to one entry. The entry is either waiting, or granted while the
//! host is being notified.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use rdma_transport::channel::host_of;
use rdma_transport::parts::Limit;
use state::{LockKind, Range};
use vfs::{Cred, NodeRef};

use super::hosts::{Host, Key, Owner};
use super::limits;
use crate::fh::Fh;

/// A waiting lock request.
pub(crate) struct Blocked {
    pub(crate) number: u64,
    pub(crate) host: Arc<Host>,
    pub(super) owner: Owner,
    /// The caller's identity before any share squashes it.
    pub(super) cred: Cred,
    pub(crate) fh: Fh,
    pub(crate) node: NodeRef,
    pub(crate) kind: LockKind,
    pub(crate) range: Range,
    /// Offset and length exactly as the client sent them: a repetition must match.
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Blocked {
    fn is(&self, other: &Wanted<'_>) -> bool {
        self.host.key == *other.host
            && self.owner == *other.owner
            && self.fh == *other.fh
            && self.kind == other.kind
            && (self.offset, self.length) == (other.offset, other.length)
    }
}

/// The key of a request.
pub(super) struct Wanted<'a> {
    pub(super) host: &'a Key,
    pub(super) owner: &'a Owner,
    pub(super) fh: &'a Fh,
    pub(super) kind: LockKind,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// The state of a queued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockedState {
    Waiting,
    /// The lock is granted, and the host is being notified.
    Telling,
}

#[derive(Default)]
struct Entries {
    list: Vec<(Arc<Blocked>, BlockedState)>,
    next: u64,
    /// A task retries the queue when locks are released.
    driven: bool,
}

/// The queue of all hosts.
#[derive(Default)]
pub(crate) struct Queue {
    entries: Mutex<Entries>,
    /// Signals a new entry.
    pub(super) joined: tokio::sync::Notify,
}

impl Queue {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        locked(&self.entries)
    }

    pub(super) fn len(&self) -> usize {
        self.entries().list.len()
    }

    /// Returns the state of this request.
    pub(super) fn state_of(&self, wanted: &Wanted<'_>) -> Option<BlockedState> {
        self.entries().list.iter().find(|(b, _)| b.is(wanted)).map(|(_, state)| *state)
    }

    /// Adds a request of a host at this address. `true`: the caller must start the task that retries the queue. An error if the
    /// queue or the address's part of it is full.
    pub(super) fn join(
        &self,
        at: IpAddr,
        make: impl FnOnce(u64) -> Blocked,
    ) -> Result<bool, Limit> {
        let [all, of_address] = limits::BLOCKED;
        let mut entries = self.entries();
        if entries.list.len() >= all.most {
            return Err(all);
        }
        let at = host_of(at);
        if entries.list.iter().filter(|(b, _)| host_of(b.host.key.ip) == at).count()
            >= of_address.most
        {
            return Err(of_address);
        }
        entries.next += 1;
        let blocked = make(entries.next);
        entries.list.push((Arc::new(blocked), BlockedState::Waiting));
        let begin = !std::mem::replace(&mut entries.driven, true);
        drop(entries);
        self.joined.notify_one();
        Ok(begin)
    }

    /// Returns the waiting requests, oldest first. `None` if the queue is empty: the retrying task then ends.
    pub(super) fn waiting(&self) -> Option<Vec<Arc<Blocked>>> {
        let mut entries = self.entries();
        let waiting: Vec<_> = entries
            .list
            .iter()
            .filter(|(_, state)| *state == BlockedState::Waiting)
            .map(|(b, _)| b.clone())
            .collect();
        entries.driven = !waiting.is_empty();
        entries.driven.then_some(waiting)
    }

    /// Marks a request as granted. False if it was canceled meanwhile.
    pub(super) fn given(&self, number: u64) -> bool {
        let mut entries = self.entries();
        let found = entries.list.iter_mut().find(|(b, _)| b.number == number);
        found.map(|(_, state)| *state = BlockedState::Telling).is_some()
    }

    /// True if the request is still queued.
    pub(super) fn has(&self, number: u64) -> bool {
        self.entries().list.iter().any(|(b, _)| b.number == number)
    }

    /// Removes a request. False if it was removed before.
    pub(super) fn leave(&self, number: u64) -> bool {
        let mut entries = self.entries();
        let before = entries.list.len();
        entries.list.retain(|(b, _)| b.number != number);
        entries.list.len() != before
    }

    /// Removes a request and returns its state.
    pub(super) fn cancel(&self, wanted: &Wanted<'_>) -> Option<BlockedState> {
        let mut entries = self.entries();
        let at = entries.list.iter().position(|(b, _)| b.is(wanted))?;
        Some(entries.list.remove(at).1)
    }

    /// True if this host has a request in the queue.
    pub(super) fn has_host(&self, host: &Key) -> bool {
        self.entries().list.iter().any(|(b, _)| b.host.key == *host)
    }

    /// Removes the requests for which `which` is true.
    pub(super) fn forget(&self, which: impl Fn(&Blocked) -> bool) {
        self.entries().list.retain(|(b, _)| !which(b));
    }
}

#[cfg(test)]
mod tests {
    use vfs::Backend;
    use vfs::mem::MemBackend;

    use super::super::hosts::{Hosts, Sort};
    use super::*;

    struct Bed {
        hosts: Hosts,
        queue: Queue,
        node: NodeRef,
        owner: Owner,
    }

    impl Bed {
        fn new() -> Self {
            let owner = Owner { sort: Sort::Lock, svid: 1, oh: (*b"o").into() };
            let node = MemBackend::new(1 << 20).unwrap().root();
            Self { hosts: Hosts::default(), queue: Queue::default(), node, owner }
        }

        fn key(name: &[u8]) -> Key {
            Key { name: name.into(), ip: [10, 0, 0, 2].into() }
        }

        fn join(&self, name: &[u8], offset: u64) -> Result<bool, Limit> {
            self.join_from(&Self::key(name), offset)
        }

        fn join_from(&self, key: &Key, offset: u64) -> Result<bool, Limit> {
            let host = self.hosts.heard(key, [10, 0, 0, 1].into(), 0).unwrap();
            let range = Range { first: offset, last: offset };
            let (owner, node) = (self.owner.clone(), self.node.clone());
            let kind = LockKind::Exclusive;
            self.queue.join(key.ip, |number| Blocked {
                number,
                host,
                owner,
                cred: Cred::root(),
                fh: Fh::EMPTY,
                node,
                kind,
                range,
                offset,
                length: 1,
            })
        }

        fn with<T>(&self, name: &[u8], offset: u64, f: impl FnOnce(&Wanted<'_>) -> T) -> T {
            f(&Wanted {
                host: &Self::key(name),
                owner: &self.owner,
                fh: &Fh::EMPTY,
                kind: LockKind::Exclusive,
                offset,
                length: 1,
            })
        }
    }

    #[test]
    fn requests_keep_order_of_arrival() {
        let bed = Bed::new();
        assert_eq!(bed.join(b"a", 1), Ok(true), "somebody has to drive it");
        assert_eq!(bed.join(b"b", 2), Ok(false));
        assert_eq!(bed.join(b"a", 3), Ok(false));
        let offsets = |bed: &Bed| {
            let waiting = bed.queue.waiting();
            waiting.map(|w| w.iter().map(|b| b.offset).collect::<Vec<_>>())
        };
        assert_eq!(offsets(&bed), Some(vec![1, 2, 3]));
        let first = bed.queue.waiting().unwrap()[0].number;
        assert!(bed.queue.given(first));
        assert_eq!(offsets(&bed), Some(vec![2, 3]));
        assert_eq!(bed.with(b"a", 1, |w| bed.queue.state_of(w)), Some(BlockedState::Telling));
        assert_eq!(bed.with(b"b", 2, |w| bed.queue.state_of(w)), Some(BlockedState::Waiting));
        assert_eq!(bed.with(b"b", 1, |w| bed.queue.state_of(w)), None);
        assert_eq!(bed.with(b"b", 2, |w| bed.queue.cancel(w)), Some(BlockedState::Waiting));
        assert_eq!(bed.with(b"b", 2, |w| bed.queue.cancel(w)), None);
        assert!(bed.queue.leave(first) && !bed.queue.leave(first) && !bed.queue.given(first));
        assert!(bed.queue.has_host(&Bed::key(b"a")));
        bed.queue.forget(|b| b.host.key == Bed::key(b"a"));
        assert_eq!((offsets(&bed), bed.queue.len()), (None, 0));
        assert_eq!(bed.join(b"a", 1), Ok(true), "it has to be driven again");
    }

    #[test]
    fn wait_queue_is_limited() {
        let [all, of_address] = limits::BLOCKED;
        let bed = Bed::new();
        let key = |ip: [u8; 4]| Key { name: (*b"a").into(), ip: ip.into() };
        for n in 0..all.most {
            let address = u8::try_from(n / of_address.most).unwrap();
            let joined = bed.join_from(&key([10, 0, 1, address]), n as u64);
            assert!(joined.is_ok(), "others find places: {joined:?}");
            let is_last = (n + 1) % of_address.most == 0 && n + 1 < all.most;
            if is_last {
                let joined = bed.join_from(&key([10, 0, 1, address]), u64::MAX);
                assert_eq!(joined, Err(of_address));
            }
        }
        assert_eq!(bed.join(b"a", u64::MAX), Err(all));
    }
}
