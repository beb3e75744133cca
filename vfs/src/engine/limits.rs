//! Limits of the file engine and the caches.

use std::num::NonZero;
use std::sync::OnceLock;
use std::time::Duration;

/// Threads for reads and writes that may wait. More than processors, because they mostly sleep. One client has two of
/// three at most, here and below ([`of_client`]).
pub const IO_THREADS: usize = 24;

/// Threads for work that may take seconds.
pub const LONG_THREADS: usize = 24;

/// Threads for copies between files; a copy in memory occupies a processor, so there are fewer.
pub const COPY_THREADS: usize = 12;

/// Threads that make data durable. A journal commits all waiting syncs at once, so a few of them suffice.
pub const SYNC_THREADS: usize = 48;

/// How long an idle thread of a single volume lasts.
pub const IDLE_MAX: Duration = Duration::from_secs(30);

/// Jobs that may wait for a thread, half of them of one client.
pub const QUEUE_MAX: usize = 8192;

/// The threads, of so many, that work for one client at once.
pub const fn of_client(threads: usize) -> usize {
    if threads < 3 { threads } else { threads / 3 * 2 }
}

/// Reads up to this size are tried in place with `RWF_NOWAIT`; larger ones go to a thread at once, so that copying and sending of
/// one connection's bulk reads use two processors.
const READ_IN_PLACE_MAX: usize = 64 << 10;
/// Writes up to this size are tried in place with `RWF_NOWAIT`; larger ones go to a thread at once, so that the next request is
/// received meanwhile: allocating pages costs several times the copy.
const WRITE_IN_PLACE_MAX: usize = 64 << 10;
/// The limit for both on a single processor: there is no concurrency to gain, and switching threads costs as much as a small
/// transfer.
const ALONE_IN_PLACE_MAX: usize = 1 << 20;

/// Reads of at least this size for a socket use pages of the file (if they begin at a page boundary): for smaller ones, two
/// additional system calls cost as much as the copy.
pub const PAGED_MIN: usize = (64 << 10) + 1;
/// Required alignment of such reads, at most a page, whatever the page size: with other offsets a full pipe contains less than
/// requested.
pub const PAGED_ALIGN: u64 = 4 << 10;

/// Processors that this process may use.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// How long a read delays other reads of its connection: a copy from memory takes less. Reads that wait longer for storage run
/// concurrently with others.
pub const TURN_MAX: Duration = Duration::from_millis(10);

/// How long a read waits for payload memory. Its request may hold some itself, as with a WRITE in the same compound: such requests
/// could otherwise deadlock.
pub const MEMORY_WAIT_MAX: Duration = Duration::from_secs(30);

/// Reads up to this size are tried in place.
pub fn read_in_place_max() -> usize {
    if processors() == 1 { ALONE_IN_PLACE_MAX } else { READ_IN_PLACE_MAX }
}

/// Writes up to this size are tried in place.
pub fn write_in_place_max() -> usize {
    if processors() == 1 { ALONE_IN_PLACE_MAX } else { WRITE_IN_PLACE_MAX }
}

/// A copy within the volume transfers at most this much before it returns.
pub const COPY_MAX: u64 = 256 << 20;

/// Maximum descriptors held by nodes and directory listings, whatever the limit of the process.
pub const DESCRIPTORS_MAX: usize = 64 << 10;

/// Bytes of directory entries fetched with one system call.
pub const LISTING: usize = 32 << 10;

/// Maximum entries returned by one `readdir`, whatever the request.
pub const ENTRIES_MAX: usize = 16 << 10;

/// Maximum ancestors of a directory examined to check that it is still below the share.
pub const DEPTH_MAX: usize = 2048;

/// Maximum nodes examined in the search for a handle (unprivileged mode).
pub const SCAN_MAX: usize = 8 << 20;

/// Bytes of an extended attribute's value, and of a list of names: the kernel's limits.
pub const XATTR_MAX: usize = 64 << 10;

/// Largest value of side data, in bytes: as much as an extended attribute can hold. File systems may have lower limits.
pub const SIDE_MAX: usize = XATTR_MAX;
