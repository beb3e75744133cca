//! Numbers of this crate.

/// Bytes of a key.
pub const KEY_MAX: usize = 2_048;
/// Bytes of a value.
pub const VALUE_MAX: usize = 256 * 1024;
/// Requests that may wait for the writer at once. Each belongs to a request of a client, whose credits or slots bound it.
pub const QUEUE_MAX: usize = 16_384;
/// Requests that are committed together at most, so that the first of a crowd does not wait for all.
pub const BATCH_MAX: usize = 1_024;
/// Bytes of the file that are kept in memory.
pub const CACHE_BYTES: usize = 4 << 20;
/// Bytes of a store whose head is put back from its copy at most: all of it is held in memory for that.
pub const TRIED_MAX: u64 = 256 << 20;
/// While commits fail, one of [`PROBE_BYTES`] is tried so often, also where no client asks for one.
pub const PROBE: std::time::Duration = std::time::Duration::from_secs(5);
/// Bytes of that commit: more than a batch of records of clients takes, so that the next clients find room as well.
pub const PROBE_BYTES: usize = 256 << 10;
