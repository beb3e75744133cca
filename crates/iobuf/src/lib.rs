//! Payload memory: page-aligned buffers from a bounded pool, each with one owner at a time.
//!
//! *Operation.* A [`Pool`] hands out [`BufMut`]s of three sizes. Whoever fills one (a file engine, a socket, an RDMA
//! Read) owns it alone; [`BufMut::freeze`] turns it into a [`Buf`], a shared read-only view that can be sliced and
//! cloned. The last view gives the memory back to the pool. [`Pages`] are data that is no memory of ours: parts of files on
//! their way to a socket. [`Chunks`] are for data that stays. What has to lie on the heap is counted beside the buffers
//! ([`Pool::pay`]).
//!
//! *Memory.* Slabs of 2 MiB are taken from the system as they are needed, up to the limit of each size, and are kept
//! until the pool goes. Free lists are last-in first-out, so that a light load stays in cache. Only bytes that were
//! written can be read: a `Buf` never covers the spare part of a buffer. A device that has to know memory before it can use
//! it asks each buffer for its [`Slab`], and is told by [`SlabWatch`] when a slab goes.
//!
//! *Errors.* A pool that is at its limit makes the caller wait ([`Pool::acquire`]) in a queue that serves accounts
//! (connections) in turn; [`Pool::try_get`] says `None`. So does one that has what one client may have
//! ([`Pool::of_one_client`]), however much is free, and one whose peer
//! takes no answers ([`Backpressure`]). A request above the largest size is [`TooLarge`].

mod account;
mod all;
mod backpressure;
mod buf;
mod chunks;
mod client_quota;
mod fair_queue;
mod heap;
mod note;
mod pages;
mod pool;
mod slab;
mod wait_queue;

pub use account::Account;
pub use all::AcquireAll;
pub use backpressure::{Admit, Admitted, Backpressure};
pub use buf::{Buf, BufMut};
pub use chunks::{CHUNK, Chunk, Chunks, WARM_MAX};
pub use heap::{HeapStats, Paid, Pay};
pub use note::{copied, copied_bytes, copied_note};
pub use pages::{PAGES_MAX, PIPES_MAX, Pages, PagesMut, paged_bytes};
pub use pool::{Acquire, ClassStats, Pool, PoolLimits, TooLarge};
pub use slab::{Slab, SlabWatch, watch_slabs};

/// The buffer sizes a pool hands out, in bytes.
pub const CLASS_SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
