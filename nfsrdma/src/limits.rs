//! Every number of this crate that bounds what a client can ask for or make the server keep.

/// Largest READ and WRITE, in bytes.
pub const TRANSFER_MAX: usize = 1 << 20;
/// Largest directory listing in one reply, in bytes.
pub const LISTING_MAX: usize = 256 << 10;
/// Preferred size of a directory listing, in bytes.
pub const LISTING_PREFERRED: u32 = 64 << 10;
/// Entries that are asked from a backend at a time while a listing is filled.
pub const LISTING_BATCH: usize = 256;
/// Entries that are written before a listing looks whether other tasks are to get the thread.
pub const ENTRIES_BEFORE_PAUSE: usize = 16;
/// Longest target of a symbolic link, in bytes.
pub const PATH_MAX: usize = 4095;
/// Symbolic links that one path of MOUNT may go through; in a circle there is no end of them.
pub const MOUNT_LINKS_MAX: usize = 40;
/// Mounts that are remembered for DUMP; the oldest are forgotten first.
pub const MOUNTS_MAX: usize = 1024;
/// Of these, mounts of one address (IPv6: network of 64 bits).
pub const MOUNTS_OF_ADDRESS_MAX: usize = 64;
/// Replies that are kept for repetitions of calls.
pub const REPLAY_ENTRIES_MAX: usize = 16 << 10;
/// Bytes of replies that are kept for repetitions of calls.
pub const REPLAY_BYTES_MAX: usize = 16 << 20;
/// A reply larger than this is not kept, in bytes.
pub const REPLAY_REPLY_MAX: usize = 8 << 10;
/// How long replies are kept, in seconds.
pub const REPLAY_AGE_SECONDS_MAX: u64 = 120;
/// How often the networks that this host is attached to are looked up, in seconds.
pub const NEIGHBOURS_REFRESH_SECONDS: u64 = 30;
