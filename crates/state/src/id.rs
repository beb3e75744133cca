//! Identifiers that are independent of the protocol.

use std::hash::Hasher;

/// Milliseconds since the process started, from a monotonic clock that the caller reads.
pub type Millis = u64;

/// Identifies a node (file or directory) while this process runs. The namespace assigns the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// Hashes node numbers. The server assigns them, so that no peer can choose colliding ones, and mixing the bits suffices.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeHasher(u64);

impl Hasher for NodeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0 ^ n);
    }
}

/// Spreads the bits of a node number.
pub(crate) fn mix(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ (n >> 29)
}

/// Identifies one holder: an open, a lock owner, a delegation or an SMB lease. [`crate::Table::holder`] assigns the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HolderId(pub u64);

/// Identifies one client of any protocol: the key under which caching is shared (the oplock key of MS-FSA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// The key under which caching is shared: a client, and the share through which it uses a file. A client that reaches one file
/// through two shares has two caches of it, and what it does through one is news to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The client.
    pub client: ClientId,
    /// The number of the share; 0 where each open has its own client identifier.
    pub via: u32,
}

impl From<ClientId> for CacheKey {
    fn from(client: ClientId) -> Self {
        Self { client, via: 0 }
    }
}

/// SMB keys use the top of the number space. NFS clients count up from the server's start time and never reach it.
const FIRST_KEY: u64 = u64::MAX << 32;
/// NLM hosts have the numbers just below the SMB keys.
const FIRST_HOST: u64 = FIRST_KEY - (1 << 32);

impl ClientId {
    /// Returns the identifier of the `n`th host that locks through NLM, a protocol without client identifiers.
    pub fn host(n: u32) -> Self {
        Self(FIRST_HOST | u64::from(n))
    }

    /// Returns the key of the `n`th SMB open or lease, which shares its caching with no other key.
    pub fn key(n: u32) -> Self {
        Self(FIRST_KEY | u64::from(n))
    }

    /// Checks that this is the key of an SMB open or lease rather than a whole client.
    pub fn is_key(self) -> bool {
        self.0 >= FIRST_KEY
    }
}
