//! Contexts of all clients, by handle.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use mutex::{reading, writing};
use rdma_transport::channel::host_of;
use vfs::Cred;

use super::window::Window;

pub(crate) const HANDLE: usize = 16;
/// Contexts of all clients. Each takes about 8 KiB.
pub const CONTEXTS_MAX: usize = 8192;
/// Contexts of one address (IPv6: /64). A client has one or two for each of its users.
pub const CONTEXTS_OF_ADDRESS_MAX: usize = 2048;

/// The handle of a context. It is random, so that a client cannot find another client's handle; without the key it would be useless
/// anyway.
pub(crate) type Handle = [u8; HANDLE];

/// An established context.
#[derive(Debug)]
pub(crate) struct Context {
    /// Builds and opens tokens.
    pub(crate) keys: gss_krb5::Context,
    /// Sequence number of the next token that the server sends (SND_SEQ of RFC 4121).
    pub(crate) sequence: AtomicU64,
    /// Sequence numbers of the calls seen.
    pub(crate) window: Window,
    /// Identifies the principal within this run: equal for equal principals.
    pub(crate) principal_id: u64,
    /// Identifies the principal in records of the store.
    pub(crate) fingerprint: u128,
    /// The identity for file access, before any share squashes it.
    pub(crate) cred: Cred,
    /// Expiry of the ticket, in the server's time.
    pub(crate) until: Duration,
}

struct Entry {
    host: IpAddr,
    context: Arc<Context>,
    used: AtomicU64,
}

/// The table of contexts.
#[derive(Default)]
pub(crate) struct Table {
    contexts: RwLock<HashMap<Handle, Entry>>,
    /// Counts uses, to find the least recently used context.
    uses: AtomicU64,
}

/// The limit that caused an older context to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    None,
    /// [`CONTEXTS_OF_ADDRESS_MAX`].
    OfAddress,
    /// [`CONTEXTS_MAX`].
    All,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        reading(&self.contexts).len()
    }

    /// Finds the context of this handle, if its ticket has not expired.
    pub(crate) fn find(&self, handle: &[u8], now: Duration) -> Option<Arc<Context>> {
        let handle: &Handle = handle.try_into().ok()?;
        let contexts = reading(&self.contexts);
        let entry = contexts.get(handle).filter(|entry| now < entry.context.until)?;
        entry.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(entry.context.clone())
    }

    /// Inserts a context. If the table is full, removes contexts with expired tickets, then the least recently used one of the same
    /// address, or of the address with the most. Its client creates a new one (RFC 2203 section 5.3.3.3).
    pub(crate) fn insert(
        &self,
        handle: Handle,
        peer: IpAddr,
        context: Arc<Context>,
        now: Duration,
    ) -> Met {
        self.insert_within((CONTEXTS_MAX, CONTEXTS_OF_ADDRESS_MAX), handle, peer, context, now)
    }

    fn insert_within(
        &self,
        (all_max, of_address_max): (usize, usize),
        handle: Handle,
        peer: IpAddr,
        context: Arc<Context>,
        now: Duration,
    ) -> Met {
        let host = host_of(peer);
        let mut contexts = writing(&self.contexts);
        let of = |contexts: &HashMap<Handle, Entry>, host| {
            contexts.values().filter(|entry| entry.host == host).count()
        };
        // Counting visits every context, which costs less than the ticket that each new context needs.
        let mut met = Met::None;
        if contexts.len() >= all_max || of(&contexts, host) >= of_address_max {
            contexts.retain(|_, entry| now < entry.context.until);
            if of(&contexts, host) >= of_address_max {
                met = Met::OfAddress;
                drop_oldest(&mut contexts, host);
            } else if contexts.len() >= all_max {
                met = Met::All;
                if let Some(most) = host_with_most(&contexts) {
                    drop_oldest(&mut contexts, most);
                }
            }
        }
        let used = AtomicU64::new(self.uses.fetch_add(1, Ordering::Relaxed));
        contexts.insert(handle, Entry { host, context, used });
        met
    }

    pub(crate) fn clear(&self) {
        writing(&self.contexts).clear();
    }

    pub(crate) fn remove(&self, handle: &[u8]) {
        if let Ok(handle) = <&Handle>::try_from(handle) {
            writing(&self.contexts).remove(handle);
        }
    }
}

fn drop_oldest(contexts: &mut HashMap<Handle, Entry>, host: IpAddr) {
    let of_host = contexts.iter().filter(|(_, entry)| entry.host == host);
    let oldest = of_host.min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed));
    if let Some(handle) = oldest.map(|(handle, _)| *handle) {
        contexts.remove(&handle);
    }
}

fn host_with_most(contexts: &HashMap<Handle, Entry>) -> Option<IpAddr> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for entry in contexts.values() {
        *counts.entry(entry.host).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(host, _)| host)
}

#[cfg(test)]
mod tests {
    use gss_krb5::{Enctype, Role};

    use super::*;
    use crate::rpc::auth::nobody;

    fn context(until: u64) -> Arc<Context> {
        let keys = gss_krb5::Context::new(Enctype::Aes128Sha1, &[1; 16], Role::Acceptor, true);
        Arc::new(Context {
            keys: keys.unwrap(),
            sequence: AtomicU64::new(0),
            window: Window::new(),
            principal_id: 1,
            fingerprint: 1,
            cred: nobody(),
            until: Duration::from_secs(until),
        })
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn context_expires_with_ticket() {
        let table = Table::default();
        table.insert([7; HANDLE], ip("192.0.2.1"), context(100), at(0));
        assert!(table.find(&[7; HANDLE], at(99)).is_some());
        assert!(table.find(&[7; HANDLE], at(100)).is_none());
        assert!(table.find(&[8; HANDLE], at(1)).is_none() && table.find(&[7; 15], at(1)).is_none());
        table.remove(&[7; HANDLE]);
        assert!(table.find(&[7; HANDLE], at(1)).is_none());
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn full_address_evicts_own_contexts() {
        let (table, limits) = (Table::default(), (5, 3));
        let put = |n: u8, peer: &str| {
            table.insert_within(limits, [n; HANDLE], ip(peer), context(100), at(0))
        };
        assert_eq!(put(1, "192.0.2.1"), Met::None);
        for n in 11..14 {
            assert_eq!(put(n, &format!("2001:db8::{n}")), Met::None);
        }
        assert!(table.find(&[11; HANDLE], at(1)).is_some(), "used, so that 12 is the oldest");
        assert_eq!(put(14, "2001:db8::99"), Met::OfAddress);
        assert!(table.find(&[12; HANDLE], at(1)).is_none());
        assert_eq!(put(2, "192.0.2.1"), Met::None);
        assert_eq!(put(3, "192.0.2.2"), Met::All);
        assert_eq!(table.len(), 5);
        for n in [1, 2, 3] {
            assert!(table.find(&[n; HANDLE], at(1)).is_some(), "{n} of an address with few");
        }
    }

    #[test]
    fn expired_contexts_are_evicted_first() {
        let (table, peer) = (Table::default(), ip("192.0.2.1"));
        table.insert_within((2, 2), [1; HANDLE], peer, context(100), at(0));
        table.insert_within((2, 2), [2; HANDLE], peer, context(10), at(0));
        assert_eq!(table.insert_within((2, 2), [3; HANDLE], peer, context(100), at(50)), Met::None);
        assert!(table.find(&[1; HANDLE], at(50)).is_some());
    }
}
