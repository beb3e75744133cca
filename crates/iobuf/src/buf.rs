//! [`BufMut`], the sole owner of a piece of memory, and [`Buf`], a shared read-only view.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::chunks::Chunk;
use crate::client_quota::ClientQuota;
use crate::pool::Origin;
use crate::slab::Slab;

/// Where the memory of a buffer goes when its last owner is dropped.
enum Home {
    /// Back to the free list of a pool.
    Pool(Origin),
    /// To the allocator: the buffer was created by [`BufMut::heap`]; the length is the allocated size.
    Heap,
    /// To the allocator, together with a value to drop.
    Kept { _with: Box<dyn Any + Send + Sync> },
}

/// The memory of a buffer. At any time, a single `BufMut` or a single `Arc<Block>` (behind `Buf`s) refers to it.
struct Block {
    base: NonNull<u8>,
    capacity: usize,
    home: Home,
}

// SAFETY: a block is plain bytes. Only the `BufMut` that owns it writes to it, and it is shared only after `freeze`, when no writer
// is left.
unsafe impl Send for Block {}
// SAFETY: see above; a shared block is read-only.
unsafe impl Sync for Block {}

impl Block {
    fn slab(&self) -> Option<Slab> {
        match self.home {
            Home::Pool(_) => Some(Slab::around(self.base)),
            Home::Heap | Home::Kept { .. } => None,
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match &self.home {
            Home::Pool(place) => place.give_back(self.base),
            Home::Heap | Home::Kept { .. } => {
                // SAFETY: `BufMut::on_heap` made this from a boxed slice of exactly `capacity` bytes.
                drop(unsafe {
                    Box::from_raw(std::ptr::slice_from_raw_parts_mut(
                        self.base.as_ptr(),
                        self.capacity,
                    ))
                });
            }
        }
    }
}

/// Memory with one owner, filled from the front: `len()` bytes hold data, the rest is spare.
pub struct BufMut {
    block: Block,
    filled: usize,
}

impl BufMut {
    /// Allocates a zeroed buffer on the heap, outside any pool: for tests and for rare sizes.
    pub fn heap(capacity: usize) -> Self {
        Self::on_heap(vec![0u8; capacity], Home::Heap)
    }

    /// Wraps these bytes, all of them data. `with`, the payment for the memory, is dropped with the last view.
    pub fn kept(bytes: Vec<u8>, with: Box<dyn Any + Send + Sync>) -> Self {
        let mut own = Self::on_heap(bytes, Home::Kept { _with: with });
        own.filled = own.block.capacity;
        own
    }

    fn on_heap(bytes: Vec<u8>, home: Home) -> Self {
        let capacity = bytes.len();
        let raw = Box::into_raw(bytes.into_boxed_slice());
        // SAFETY: `into_raw` of a box is never null.
        let base = unsafe { NonNull::new_unchecked(raw.cast::<u8>()) };
        Self { block: Block { base, capacity, home }, filled: 0 }
    }

    /// Wraps pool memory: `base` points to `capacity` initialised bytes that belong to the pool of `place` and have no other user.
    pub(crate) fn pooled(base: NonNull<u8>, capacity: usize, place: Origin) -> Self {
        Self { block: Block { base, capacity, home: Home::Pool(place) }, filled: 0 }
    }

    /// Counts a pooled buffer for this client, whose share has room for it.
    pub(crate) fn count_for(&mut self, share: Option<Arc<ClientQuota>>) {
        if let Home::Pool(place) = &mut self.block.home {
            place.count_for(share);
        }
    }

    /// Returns the number of bytes that the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.block.capacity
    }

    /// Returns the number of bytes that hold data.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Checks that no byte holds data.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Returns the bytes that hold data.
    pub fn filled(&self) -> &[u8] {
        &self.whole()[..self.filled]
    }

    /// Returns the bytes that hold data, for writing.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        let n = self.filled;
        &mut self.whole_mut()[..n]
    }

    /// Returns the bytes after the data. Writes there count as data after [`BufMut::advance`] or [`BufMut::set_filled`].
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let n = self.filled;
        &mut self.whole_mut()[n..]
    }

    /// Returns the whole capacity for writing, regardless of the data.
    pub fn whole_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block has `capacity` initialised bytes and this is its only owner.
        unsafe { std::slice::from_raw_parts_mut(self.block.base.as_ptr(), self.block.capacity) }
    }

    fn whole(&self) -> &[u8] {
        // SAFETY: the block has `capacity` initialised bytes, and the borrow of `self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.block.base.as_ptr(), self.block.capacity) }
    }

    /// Declares that the first `n` bytes hold data; a larger number means the whole capacity.
    pub fn set_filled(&mut self, n: usize) {
        self.filled = n.min(self.block.capacity);
    }

    /// Declares that `n` more bytes hold data.
    pub fn advance(&mut self, n: usize) {
        self.set_filled(self.filled.saturating_add(n));
    }

    /// Appends as much of `bytes` as fits and returns the number of bytes. Counted as a copy.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let spare = self.spare_mut();
        let n = spare.len().min(bytes.len());
        crate::copied(&mut spare[..n], &bytes[..n]);
        self.filled += n;
        n
    }

    /// Returns the slab of the pool that contains the buffer; `None` for memory outside any pool.
    pub fn slab(&self) -> Option<Slab> {
        self.block.slab()
    }

    /// Gives up the right to write, so that the data can be shared.
    pub fn freeze(self) -> Buf {
        let Self { block, filled } = self;
        let base = block.base;
        Buf { base, len: filled, owner: Some(Arc::new(block)) }
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} of {})", self.filled, self.block.capacity)
    }
}

/// A shared, read-only view of immutable bytes. Cloning and slicing do not copy.
#[derive(Clone)]
pub struct Buf {
    base: NonNull<u8>,
    len: usize,
    /// Keeps the memory alive; `None` only for static and empty views.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the bytes are immutable for as long as the owner lives, and the owner is Send and Sync.
unsafe impl Send for Buf {}
// SAFETY: see above.
unsafe impl Sync for Buf {}

impl Buf {
    pub fn empty() -> Self {
        Self::from_static(&[])
    }

    /// Creates a view of static bytes.
    pub fn from_static(bytes: &'static [u8]) -> Self {
        Self { base: NonNull::from(bytes).cast(), len: bytes.len(), owner: None }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `base..base+len` lies inside the owner's (or a static) memory, which is alive and immutable.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// Returns the slab of the pool that contains the bytes; `None` for memory outside any pool.
    pub fn slab(&self) -> Option<Slab> {
        self.owner.as_deref()?.downcast_ref::<Block>()?.slab()
    }

    /// Returns a view of a part; a range beyond the end is shortened. An empty view keeps no memory alive.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let start = range.start.min(self.len);
        let end = range.end.clamp(start, self.len);
        if start == end {
            return Self::empty();
        }
        // SAFETY: `start <= len`, so the pointer stays inside the memory or one past its end.
        let base = unsafe { self.base.add(start) };
        Self { base, len: end - start, owner: self.owner.clone() }
    }

    /// Makes the memory writable again if this is its only view and starts at its first byte; the bytes after the view become
    /// spare. Otherwise returns the view unchanged.
    pub fn try_mut(self) -> Result<BufMut, Self> {
        let Self { base, len, owner } = self;
        let Some(owner) = owner else { return Err(Self { base, len, owner }) };
        let block = match owner.downcast::<Block>() {
            Ok(block) => block,
            Err(owner) => return Err(Self { base, len, owner: Some(owner) }),
        };
        if block.base != base {
            return Err(Self { base, len, owner: Some(block) });
        }
        match Arc::try_unwrap(block) {
            Ok(block) => Ok(BufMut { block, filled: len }),
            Err(block) => Err(Self { base, len, owner: Some(block) }),
        }
    }

    /// Splits off the first `n` bytes (at most all) and keeps the rest.
    pub fn split_to(&mut self, n: usize) -> Self {
        let head = self.slice(0..n);
        *self = self.slice(n..self.len);
        head
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Default for Buf {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Vec<u8>> for Buf {
    fn from(bytes: Vec<u8>) -> Self {
        let owner = Arc::new(bytes);
        Self { base: NonNull::from(owner.as_slice()).cast(), len: owner.len(), owner: Some(owner) }
    }
}

impl From<Arc<Chunk>> for Buf {
    fn from(owner: Arc<Chunk>) -> Self {
        Self {
            base: NonNull::from(owner.as_slice()).cast(),
            len: owner.as_slice().len(),
            owner: Some(owner),
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({})", self.len)
    }
}

impl PartialEq for Buf {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Buf {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frozen_buffer_covers_only_data() {
        let mut b = BufMut::heap(16);
        assert_eq!(b.append(b"hello"), 5);
        assert_eq!(b.spare_mut().len(), 11);
        let b = b.freeze();
        assert_eq!(&*b, b"hello");
        assert_eq!(&*b.slice(1..3), b"el");
        assert_eq!(&*b.slice(3..99), b"lo");
        assert!(b.slice(7..9).is_empty());
    }

    #[test]
    fn only_last_full_view_becomes_writable() {
        let mut b = BufMut::heap(8);
        b.append(b"abcdef");
        let whole = b.freeze();
        let tail = whole.slice(2..6);
        let whole = whole.try_mut().unwrap_err();
        drop(whole);
        let tail = tail.try_mut().unwrap_err();
        assert_eq!(&*tail, b"cdef", "does not begin where the memory does");
        let mut b = BufMut::heap(8);
        b.append(b"abcdef");
        let head = b.freeze().slice(0..3);
        let mut again = head.try_mut().unwrap();
        again.filled_mut()[0] = b'x';
        assert_eq!(again.filled(), b"xbc");
        assert_eq!(again.capacity(), 8);
        assert!(Buf::from(vec![1]).try_mut().is_err());
        assert!(Buf::from_static(b"a").try_mut().is_err());
    }

    #[test]
    fn slices_outlive_the_buffer() {
        let mut whole = Buf::from(vec![1, 2, 3, 4]);
        let head = whole.split_to(3);
        drop(whole);
        assert_eq!(&*head, &[1, 2, 3]);
    }
}
