//! Every number of this crate's file engine and caches.

use std::num::NonZero;
use std::sync::OnceLock;
use std::time::Duration;

/// Threads that read and write where that waits. More than there are processors, because they sleep most of the time.
pub const IO_THREADS: usize = 16;

/// Threads for what may take seconds.
pub const LONG_THREADS: usize = 16;

/// Threads that copy from file to file; where all is in memory a copy takes a processor, so there are fewer.
pub const COPY_THREADS: usize = 8;

/// Threads that make things durable. A journal commits all who wait for it at once, so that few of them keep others waiting.
pub const SYNC_THREADS: usize = 32;

/// How long a thread of a single volume waits for work before it ends.
pub const IDLE_MAX: Duration = Duration::from_secs(30);

/// Jobs that may wait for a thread. Clients' requests are bounded by credits and slots before they get here.
pub const QUEUE_MAX: usize = 8192;

/// Up to this many bytes a read is tried in place with `RWF_NOWAIT`; larger ones go to a thread at once, so that one
/// connection's bulk reads are copied on one processor while its replies leave by another.
const READ_IN_PLACE_MAX: usize = 64 << 10;
/// Up to this many bytes a write is tried in place with `RWF_NOWAIT`; larger ones go to a thread at once, so that the
/// next request is received meanwhile: new pages cost several times the copy.
const WRITE_IN_PLACE_MAX: usize = 64 << 10;
/// The same for both where there is one processor: nothing is copied meanwhile, and the way to a thread and back costs as
/// much as a small transfer.
const ALONE_IN_PLACE_MAX: usize = 1 << 20;

/// From this many bytes on, what is read for a socket is handed to it as pages of the file (where they begin at a page): for less,
/// two more system calls cost as much as the copy.
pub const PAGED_MIN: usize = (64 << 10) + 1;
/// Offsets at which a page begins, whatever its size may be, or nearly so: behind others a pipe full of pages holds less than was
/// asked for.
pub const PAGED_ALIGN: u64 = 4 << 10;

/// Processors that this process may use.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// So long has a read its turn among those of its connection: a copy out of memory is done long before. What storage keeps for
/// longer is waited for beside others.
pub const TURN_MAX: Duration = Duration::from_millis(10);

/// So long a read waits for payload memory. Its request may hold some itself, as a WRITE in one compound with it does: requests
/// that wait for each other's would do so for ever.
pub const MEMORY_WAIT_MAX: Duration = Duration::from_secs(30);

/// Up to this many bytes a read is tried in place.
pub fn read_in_place_max() -> usize {
    if processors() == 1 { ALONE_IN_PLACE_MAX } else { READ_IN_PLACE_MAX }
}

/// Up to this many bytes a write is tried in place.
pub fn write_in_place_max() -> usize {
    if processors() == 1 { ALONE_IN_PLACE_MAX } else { WRITE_IN_PLACE_MAX }
}

/// A copy inside the volume does at most this much before it answers.
pub const COPY_MAX: u64 = 256 << 20;

/// Descriptors that nodes and directory listings may hold at once, whatever the process may have.
pub const DESCRIPTORS_MAX: usize = 64 << 10;

/// Bytes of directory entries fetched with one system call.
pub const LISTING: usize = 32 << 10;

/// Entries that one call of `readdir` gives, however many are asked for.
pub const ENTRIES_MAX: usize = 16 << 10;

/// Directories above a directory that are looked at to see whether it is still below the share.
pub const DEPTH_MAX: usize = 2048;

/// Nodes that the search for a handle looks at (unprivileged mode).
pub const SCAN_MAX: usize = 8 << 20;

/// Bytes of an extended attribute's value, and of a list of names: the kernel's own limits.
pub const XATTR_MAX: usize = 64 << 10;

/// Bytes of one value of side data: what an extended attribute can hold. File systems may hold less.
pub const SIDE_MAX: usize = XATTR_MAX;
