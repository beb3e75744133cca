//! Payload memory: page-aligned buffers from a bounded pool, each with one owner at a time.
//!
//! Start with [`Pool`], [`BufMut`] and [`Buf`]. A [`Pool`] hands out [`BufMut`]s of three sizes. The code that fills one (a file
//! engine, a socket, an RDMA Read) owns it exclusively; [`BufMut::freeze`] turns it into a [`Buf`], a shared read-only view that
//! can be sliced and cloned. Dropping the last view returns the memory to the pool. [`Pages`] are parts of files on their way to a
//! socket, which occupy no memory of the process. [`Chunks`] are for long-lived data. Heap memory for payload is counted separately
//! ([`Pool::pay`]).
//!
//! *Memory.* Slabs of 2 MiB are taken from the system on demand, up to the limit of each size, and kept as long as the pool. Free
//! lists are last-in first-out, so that a light load stays in cache. Only written bytes can be read: a `Buf` never covers the spare
//! part of a buffer. A device that must register memory asks each buffer for its [`Slab`], and [`SlabWatch`] reports when a slab is
//! freed.
//!
//! *Errors.* When the pool is at its limit, [`Pool::acquire`] waits in a queue that is fair between accounts (connections);
//! [`Pool::try_get`] returns `None`. The same applies to a client that has its share ([`Pool::of_one_client`]), even if memory is
//! free, and to a connection whose peer takes no replies ([`Backpressure`]). A request above the largest size fails with
//! [`TooLarge`].

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

mod account;
mod all;
mod backpressure;
mod buf;
mod chunks;
mod client;
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
pub use client::{ClientWork, current_client};
pub use heap::{HeapStats, Paid, Pay};
pub use note::{copied, copied_bytes, copied_note};
pub use pages::{PAGES_MAX, PIPES_MAX, Pages, PagesMut, limit_pipes, paged_bytes, pipes};
pub use pool::{Acquire, ClassStats, Pool, PoolLimits, TooLarge};
pub use slab::{Slab, SlabWatch, watch_slabs};

/// The buffer sizes of a pool, in bytes.
pub const CLASS_SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
