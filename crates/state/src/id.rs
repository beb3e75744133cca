//! Numbers that mean the same to every protocol.

/// Milliseconds since the process started. The caller's clock; it never goes back.
pub type Millis = u64;

/// A node (file or directory) while this process runs. The namespace gives the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// One thing that is held: an open, a lock owner, a delegation, an SMB lease. Given by [`crate::Table::holder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HolderId(pub u64);

/// One client of any protocol: the key under which caching is shared (MS-FSA calls it the oplock key).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// Keys count down from the top, clients of NFS up from the time the server started, so the two never meet.
const FIRST_KEY: u64 = u64::MAX << 32;
/// Hosts that lock by NLM have the numbers below those of keys.
const FIRST_HOST: u64 = FIRST_KEY - (1 << 32);

impl ClientId {
    /// The `n`th host that locks without a protocol of its own for being a client (NLM).
    pub fn host(n: u32) -> Self {
        Self(FIRST_HOST | u64::from(n))
    }

    /// The key of the `n`th open or lease of SMB, whose caching is its own and nobody else's.
    pub fn key(n: u32) -> Self {
        Self(FIRST_KEY | u64::from(n))
    }

    /// It is such a key, and not a whole client.
    pub fn is_key(self) -> bool {
        self.0 >= FIRST_KEY
    }
}
