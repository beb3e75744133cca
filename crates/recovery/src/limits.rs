//! Limits of this crate.

/// Maximum length of a key, in bytes.
pub const KEY_MAX: usize = 2_048;
/// Maximum length of a value, in bytes.
pub const VALUE_MAX: usize = 256 * 1024;
/// Maximum number of queued requests. Each belongs to a client request, which the client's credits or slots bound.
pub const QUEUE_MAX: usize = 16_384;
/// Maximum number of requests in one commit, so that the first of many does not wait for all.
pub const BATCH_MAX: usize = 1_024;
/// Size of the page cache, in bytes.
pub const CACHE_BYTES: usize = 4 << 20;
/// Maximum size of a store whose head can be restored from the copy, in bytes: the whole file is read into memory for that.
pub const TRIED_MAX: u64 = 256 << 20;
/// Interval of probe commits of [`PROBE_BYTES`] while commits fail, even if no client requests one.
pub const PROBE: std::time::Duration = std::time::Duration::from_secs(5);
/// Size of a probe commit, in bytes: larger than a batch of client records, so that the next clients' records will fit.
pub const PROBE_BYTES: usize = 256 << 10;
