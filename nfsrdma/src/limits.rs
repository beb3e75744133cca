//! Limits on the requests of clients and on the memory that the server spends on them.

/// Largest READ and WRITE, in bytes.
pub const TRANSFER_MAX: usize = 1 << 20;
/// Largest directory listing in one reply, in bytes.
pub const LISTING_MAX: usize = 256 << 10;
/// Preferred size of a directory listing, in bytes.
pub const LISTING_PREFERRED: u32 = 64 << 10;
/// Directory entries requested from a backend in one batch while a listing is filled.
pub const LISTING_BATCH: usize = 256;
/// Directory entries encoded before the task yields the thread to others.
pub const ENTRIES_BEFORE_PAUSE: usize = 16;
/// Longest target of a symbolic link, in bytes.
pub const PATH_MAX: usize = 4095;
/// Symbolic links that MOUNT follows in one path; this ends loops of links.
pub const MOUNT_LINKS_MAX: usize = 40;
/// Mounts remembered for DUMP. The oldest entry is dropped first.
pub const MOUNTS_MAX: usize = 1024;
/// Share of [`MOUNTS_MAX`] for one address (IPv6: /64).
pub const MOUNTS_OF_ADDRESS_MAX: usize = 64;
/// Calls of one connection that wait for a rate, so that calls for other shares find a place: three quarters of the slots of a
/// session and of the credits of RPC-over-RDMA, whichever the client has fewer of. TCP takes twice as many calls.
pub const RATE_WAITS_MAX: usize = 48;
/// Entries in the duplicate request cache.
pub const REPLAY_ENTRIES_MAX: usize = 16 << 10;
/// Bytes of replies in the duplicate request cache.
pub const REPLAY_BYTES_MAX: usize = 16 << 20;
/// Larger replies are not cached, in bytes.
pub const REPLAY_REPLY_MAX: usize = 8 << 10;
/// Lifetime of a cached reply, in seconds.
pub const REPLAY_AGE_SECONDS_MAX: u64 = 120;
/// Longest interval between two readings of the attached networks, in seconds: the kernel notifies of changes.
pub const NEIGHBOURS_REFRESH_SECONDS: u64 = 30;
