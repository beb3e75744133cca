//! [`Chunk`]: growable memory for long-lived data, which is returned to the system when no longer needed.
//!
//! *Operation.* A chunk is an address range of 64 KiB. The kernel backs it with 4 KiB pages as it grows, so a chunk with 100 bytes
//! costs one page. [`Chunks`] maps 2 MiB at a time and hands out chunks of it. A dropped chunk stays warm for reuse. If more than
//! [`WARM_MAX`] bytes are warm, a thread returns the memory of half of them (`madvise(2)`, `MADV_DONTNEED`) and unmaps each 2 MiB
//! range whose chunks are all free.
//!
//! *Memory.* In addition to the chunks in use, at most [`WARM_MAX`] plus the part that the thread has not returned yet. A chunk
//! keeps the memory of its maximum length. Huge pages are disabled, because they would back many short chunks with 2 MiB.
//!
//! *Errors.* [`Chunks::take`] returns `None` when the system refuses to map more. Memory that the system does not take back
//! (`mlockall(2)`) is zeroed and reused.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;

/// Maximum length of a chunk, in bytes.
pub const CHUNK: usize = 64 << 10;

/// Maximum size of the freed chunks that a [`Chunks`] keeps for reuse, in bytes.
pub const WARM_MAX: usize = 8 << 20;

/// Size and alignment of a mapping, in bytes.
const SLAB: usize = 2 << 20;

/// Page size: the kernel backs memory in this unit or a multiple of it.
const STEP: usize = 4 << 10;

/// Number of possible memory sizes of a chunk, including 0.
const SIZES: usize = CHUNK / STEP + 1;

/// Number of chunks whose memory is returned before the lock is taken again.
const BATCH: usize = 64;

/// One bit per chunk of a slab.
type Bits = u32;

const _: () = assert!(SLAB / CHUNK == Bits::BITS as usize);

/// The chunks that are not in use.
#[derive(Default)]
struct Free {
    /// Chunks that may have memory, by its size in steps.
    warm: [Vec<NonNull<u8>>; SIZES],
    warm_bytes: usize,
    /// Slabs with chunks that have no memory and read as zeros.
    cold: BTreeMap<NonNull<u8>, Bits>,
    is_trimming: bool,
    is_closed: bool,
}

// SAFETY: the pointers refer to free chunks; taking one out of here makes the taker its only owner.
unsafe impl Send for Free {}

#[derive(Default)]
struct Shared(Mutex<Free>);

/// Allocates chunks. Chunks and their views may outlive it.
pub struct Chunks(Arc<Shared>);

/// Up to [`CHUNK`] bytes with one owner.
pub struct Chunk {
    base: NonNull<u8>,
    len: usize,
    /// Length of the prefix that may differ from zero; all bytes after it are zero.
    touched: usize,
    home: Arc<Shared>,
}

// SAFETY: a chunk is plain bytes, written only through `&mut Chunk`.
unsafe impl Send for Chunk {}
// SAFETY: see above; a shared chunk is read-only.
unsafe impl Sync for Chunk {}

/// Maps a slab; `None` if the system refuses.
fn map() -> Option<NonNull<u8>> {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address that the kernel chooses.
    let raw = unsafe {
        libc::mmap(std::ptr::null_mut(), 2 * SLAB, prot, flags | libc::MAP_NORESERVE, -1, 0)
    };
    if raw == libc::MAP_FAILED {
        return None;
    }
    let raw = NonNull::new(raw.cast::<u8>())?;
    // Keep the highest aligned part: the next mapping is placed below this one, and the kernel merges the two.
    let head = SLAB - raw.addr().get() % SLAB;
    let tail = SLAB - head;
    // SAFETY: head and tail are parts of the mapping above, `SLAB` bytes between them remain, and no other code knows of them.
    unsafe {
        let base = raw.add(head);
        libc::munmap(raw.as_ptr().cast(), head);
        if tail > 0 {
            libc::munmap(base.add(SLAB).as_ptr().cast(), tail);
        }
        // This is only advice: if the kernel refuses it, there are no huge pages anyway.
        libc::madvise(base.as_ptr().cast(), SLAB, libc::MADV_NOHUGEPAGE);
        Some(base)
    }
}

/// Returns the slab of a chunk, and the chunk's bit.
fn place(chunk: NonNull<u8>) -> (NonNull<u8>, Bits) {
    let at = chunk.addr().get() % SLAB;
    // SAFETY: slabs are aligned to their size, so this is the start of the slab that contains the chunk.
    (unsafe { chunk.sub(at) }, 1 << (at / CHUNK))
}

/// Returns the memory of free chunks to the system; they then read as zeros.
fn cool(mut chunks: &[NonNull<u8>]) {
    while let Some(first) = chunks.first() {
        let joins =
            |(i, c): &(usize, &NonNull<u8>)| c.addr().get() == first.addr().get() + i * CHUNK;
        let n = chunks.iter().enumerate().take_while(joins).count();
        // SAFETY: the caller owns these `n` consecutive chunks exclusively. Adjacent slabs may have been mapped separately, which
        // the kernel treats as one range.
        let is_returned =
            unsafe { libc::madvise(first.as_ptr().cast(), n * CHUNK, libc::MADV_DONTNEED) } == 0;
        if !is_returned {
            for chunk in &chunks[..n] {
                // SAFETY: see above.
                unsafe { chunk.as_ptr().write_bytes(0, CHUNK) };
            }
        }
        chunks = &chunks[n..];
    }
}

impl Free {
    /// Takes a chunk with at most as much memory as `len` bytes need: any excess would stay unused.
    fn pop(&mut self, len: usize) -> Option<(NonNull<u8>, usize)> {
        for steps in (1..=len.div_ceil(STEP).min(SIZES - 1)).rev() {
            if let Some(chunk) = self.warm[steps].pop() {
                self.warm_bytes -= steps * STEP;
                return Some((chunk, steps * STEP));
            }
        }
        let mut slab = match self.cold.first_entry() {
            Some(slab) => slab,
            None => {
                self.cold.insert(map()?, Bits::MAX);
                self.cold.first_entry()?
            }
        };
        let index = slab.get().trailing_zeros() as usize;
        // SAFETY: the index is below the number of chunks in a slab.
        let chunk = unsafe { slab.key().add(index * CHUNK) };
        *slab.get_mut() &= !(1 << index);
        if *slab.get() == 0 {
            slab.remove();
        }
        Some((chunk, 0))
    }

    /// Takes chunks to return to the system; empty if few enough are warm.
    fn batch(&mut self) -> Vec<NonNull<u8>> {
        let keep = if self.is_closed { 0 } else { WARM_MAX / 2 };
        let mut batch = Vec::new();
        for steps in (0..SIZES).rev() {
            while batch.len() < BATCH && self.warm_bytes > keep {
                let Some(chunk) = self.warm[steps].pop() else { break };
                self.warm_bytes -= steps * STEP;
                batch.push(chunk);
            }
        }
        batch
    }

    /// Adds chunks without memory, and returns the slabs whose chunks are all free.
    fn put_cold(&mut self, chunks: &[NonNull<u8>]) -> Vec<NonNull<u8>> {
        let mut whole = Vec::new();
        for (slab, bit) in chunks.iter().map(|c| place(*c)) {
            let bits = self.cold.entry(slab).or_insert(0);
            *bits |= bit;
            if *bits == Bits::MAX {
                self.cold.remove(&slab);
                whole.push(slab);
            }
        }
        whole
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Free> {
        // Consistent after every step.
        locked(&self.0)
    }

    fn give_back(self: &Arc<Self>, chunk: NonNull<u8>, touched: usize) {
        let mut free = self.lock();
        // A chunk that was never written to counts as one step.
        let steps = touched.div_ceil(STEP).max(1);
        free.warm[steps].push(chunk);
        free.warm_bytes += steps * STEP;
        if free.is_closed {
            drop(free);
            return self.trim();
        }
        if free.warm_bytes <= WARM_MAX || free.is_trimming {
            return;
        }
        free.is_trimming = true;
        drop(free);
        let me = self.clone();
        let thread = std::thread::Builder::new().name("mem-return".into()).spawn(move || me.trim());
        if thread.is_err() {
            self.trim();
        }
    }

    /// Returns memory to the system until few enough chunks are warm.
    fn trim(&self) {
        loop {
            let mut batch = {
                let mut free = self.lock();
                let batch = free.batch();
                if batch.is_empty() {
                    free.is_trimming = false;
                    return;
                }
                batch
            };
            batch.sort_unstable();
            cool(&batch);
            let whole = self.lock().put_cold(&batch);
            for slab in whole {
                // SAFETY: all chunks of the slab were free and are no longer in any list.
                unsafe { libc::munmap(slab.as_ptr().cast(), SLAB) };
            }
        }
    }
}

impl Chunks {
    /// Creates an allocator without mappings.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Takes an empty chunk for `len` bytes; `None` if the system has no memory.
    pub fn take(&self, len: usize) -> Option<Chunk> {
        let (base, touched) = self.0.lock().pop(len)?;
        Some(Chunk { base, len: 0, touched, home: self.0.clone() })
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.trim();
    }
}

impl fmt::Debug for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunks({} bytes warm)", self.0.lock().warm_bytes)
    }
}

impl Chunk {
    /// Truncates the chunk or extends it with zeros; to at most [`CHUNK`] bytes.
    pub fn set_len(&mut self, len: usize) {
        let (old, len) = (self.len, len.min(CHUNK));
        self.len = len;
        let dirty = len.min(self.touched);
        if old < dirty {
            self.as_mut_slice()[old..dirty].fill(0);
        }
        self.touched = self.touched.max(len);
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the `len` bytes of the chunk are initialised, zeroed by the kernel or written, and this is their only owner.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: see above; the borrow of `self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.home.give_back(self.base, self.touched);
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(chunks: &Chunks, len: usize) -> Chunk {
        let mut chunk = chunks.take(len).unwrap();
        chunk.set_len(len);
        chunk
    }

    #[test]
    fn reused_chunk_grows_by_zeros() {
        let chunks = Chunks::new();
        let mut first = taken(&chunks, CHUNK);
        first.as_mut_slice().fill(7);
        first.set_len(10);
        first.set_len(20);
        assert_eq!(first.as_slice(), [[7; 10], [0; 10]].concat());
        let at = first.as_slice().as_ptr();
        drop(first);
        let again = taken(&chunks, CHUNK);
        assert_eq!(again.as_slice().as_ptr(), at, "it was warm");
        assert!(again.as_slice().iter().all(|b| *b == 0));
        // A chunk with 16 pages is not wasted on a byte.
        drop(again);
        assert_ne!(taken(&chunks, 1).as_slice().as_ptr(), at);
    }

    #[test]
    fn freed_slabs_are_unmapped() {
        let chunks = Chunks::new();
        let shared = chunks.0.clone();
        let mut all: Vec<Chunk> = (0..1000).map(|_| taken(&chunks, CHUNK)).collect();
        all.iter_mut().enumerate().for_each(|(i, c)| c.as_mut_slice().fill(i.to_le_bytes()[0]));
        assert!(all.iter().enumerate().all(|(i, c)| c.as_slice() == [i.to_le_bytes()[0]; CHUNK]));
        // Free all chunks except one of every 40: most slabs remain mapped, without memory.
        let kept: Vec<Chunk> =
            all.into_iter().enumerate().filter(|(i, _)| i % 40 == 0).map(|(_, c)| c).collect();
        shared.trim();
        assert!(shared.lock().warm_bytes <= WARM_MAX);
        let new: Vec<Chunk> = (0..1000).map(|_| taken(&chunks, CHUNK)).collect();
        assert!(new.iter().all(|c| c.as_slice().iter().all(|b| *b == 0)));
        assert!(kept.iter().enumerate().all(|(i, c)| c.as_slice()[0] == (i * 40).to_le_bytes()[0]));
        drop((chunks, new));
        // Keep one chunk longer than all others, like a view that a reader still has.
        let (last, rest) = kept.split_first().unwrap();
        assert_eq!((last.as_slice()[CHUNK - 1], rest.len()), (0, 24));
        drop(kept);
        let free = shared.lock();
        assert_eq!((free.warm_bytes, free.cold.len()), (0, 0));
    }
}
