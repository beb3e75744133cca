//! The data of a file in memory.
//!
//! *Operation.* Pages of [`PAGE`] bytes; a missing page is a hole, and bytes after the end of a short page are zero. Reads return
//! views of pages, so a write copies a page first if a reader still holds a view of it or a clone shares it.
//!
//! *Memory.* A page is charged to its volume while any file has it, in steps of 4 KiB as it grows; views that outlive the page are
//! charged to the reader. Pages are [`Chunk`]s: the system gets their memory back.
//!
//! *Errors.* [`VfsError::NoSpace`] when the volume's limit is reached, or the system has no more memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iobuf::{Buf, CHUNK, Chunk, Chunks};

use crate::error::{VfsError, VfsResult};

/// Size of a page in bytes.
pub(super) const PAGE: usize = CHUNK;

const PAGE_BYTES: u64 = PAGE as u64;

/// Step by which short pages grow.
const STEP: usize = 4 << 10;

static ZEROS: [u8; PAGE] = [0; PAGE];

/// How many bytes a volume holds, and how many it may hold.
#[derive(Debug)]
pub(super) struct Usage {
    pub(super) limit: u64,
    used: AtomicU64,
    chunks: Chunks,
}

impl Usage {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0), chunks: Chunks::new() })
    }

    pub(super) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> VfsResult<Charge> {
        self.take(bytes)?;
        Ok(Charge { usage: self.clone(), bytes })
    }

    fn take(&self, bytes: u64) -> VfsResult<()> {
        let add = |used: u64| used.checked_add(bytes).filter(|n| *n <= self.limit);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        taken.map(|_| ()).map_err(|_| VfsError::NoSpace)
    }
}

/// A part of the limit, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    usage: Arc<Usage>,
    bytes: u64,
}

impl Charge {
    /// Charges this many more bytes.
    fn grow(&mut self, bytes: u64) -> VfsResult<()> {
        self.usage.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.usage.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Page {
    bytes: Arc<Chunk>,
    charge: Charge,
}

impl Page {
    /// Creates a page of `len` bytes that begins with `from`.
    fn new(usage: &Arc<Usage>, from: &[u8], len: usize) -> VfsResult<Self> {
        let charge = usage.charge(len.next_multiple_of(STEP) as u64)?;
        Ok(Self { bytes: copied(usage, from, len)?, charge })
    }

    /// Charges for `len` bytes, and returns the increase.
    fn pay(&mut self, len: usize) -> VfsResult<u64> {
        let more = (len.next_multiple_of(STEP) as u64).saturating_sub(self.charge.bytes);
        if more > 0 {
            self.charge.grow(more)?;
        }
        Ok(more)
    }

    /// Returns at least `len` writable bytes of the page, which are already charged. Existing views keep their contents.
    fn writable(&mut self, usage: &Usage, len: usize) -> VfsResult<&mut Chunk> {
        if Arc::get_mut(&mut self.bytes).is_none() {
            let old = self.bytes.as_slice();
            self.bytes = copied(usage, old, len.max(old.len()))?;
        }
        let bytes = Arc::get_mut(&mut self.bytes).ok_or(VfsError::Io)?;
        if bytes.as_slice().len() < len {
            bytes.set_len(len);
        }
        Ok(bytes)
    }
}

/// Copies `from` into a new chunk of `len` bytes.
fn copied(usage: &Usage, from: &[u8], len: usize) -> VfsResult<Arc<Chunk>> {
    let mut chunk = usage.chunks.take(len).ok_or(VfsError::NoSpace)?;
    // Only the bytes after `from` must be zero.
    chunk.set_len(from.len());
    iobuf::copied(chunk.as_mut_slice(), from);
    chunk.set_len(len);
    Ok(Arc::new(chunk))
}

/// All data of a file.
#[derive(Debug)]
pub(super) struct Pages {
    usage: Arc<Usage>,
    pub(super) size: u64,
    pages: BTreeMap<u64, Arc<Page>>,
    /// Bytes charged for the pages.
    pub(super) used: u64,
}

/// Returns the page of an offset and the position in it.
fn place(at: u64) -> (u64, usize) {
    // A remainder of the page size always fits `usize`.
    (at / PAGE_BYTES, usize::try_from(at % PAGE_BYTES).unwrap_or(0))
}

impl Pages {
    pub(super) fn new(usage: Arc<Usage>) -> Self {
        Self { usage, size: 0, pages: BTreeMap::new(), used: 0 }
    }

    /// Returns views of up to `count` bytes.
    pub(super) fn read(&self, at: u64, count: usize) -> Vec<Buf> {
        let left = self.size.saturating_sub(at);
        let mut left = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut out = Vec::with_capacity(left / PAGE + 2);
        let (mut index, mut from) = place(at);
        while left > 0 {
            let n = left.min(PAGE - from);
            let there = match self.pages.get(&index) {
                Some(page) => {
                    let view = Buf::from(page.bytes.clone()).slice(from..from + n);
                    let there = view.len();
                    if there > 0 {
                        out.push(view);
                    }
                    there
                }
                None => 0,
            };
            if there < n {
                out.push(Buf::from_static(&ZEROS[..n - there]));
            }
            left -= n;
            (index, from) = (index + 1, 0);
        }
        out
    }

    fn remove(&mut self, index: u64) {
        if let Some(page) = self.pages.remove(&index) {
            self.used -= page.charge.bytes;
        }
    }

    fn insert(&mut self, index: u64, page: Arc<Page>) {
        self.remove(index);
        self.used += page.charge.bytes;
        self.pages.insert(index, page);
    }

    /// Returns a page of at least `len` bytes that no other file shares and of which no reader holds a view.
    fn own(&mut self, index: u64, len: usize) -> VfsResult<&mut Chunk> {
        let has_its_own = self.pages.get_mut(&index).is_some_and(|p| Arc::get_mut(p).is_some());
        if !has_its_own {
            let old = self.pages.get(&index).map_or(&[][..], |p| p.bytes.as_slice());
            let page = Page::new(&self.usage, old, len.max(old.len()))?;
            self.insert(index, Arc::new(page));
        }
        let page = self.pages.get_mut(&index).and_then(Arc::get_mut).ok_or(VfsError::Io)?;
        self.used += page.pay(len)?;
        page.writable(&self.usage, len)
    }

    /// Writes all of `data`, or as much as fits; fails only when no byte was written.
    pub(super) fn write(&mut self, at: u64, data: &[Buf]) -> VfsResult<usize> {
        let mut done = 0_usize;
        for buf in data {
            let mut rest = buf.as_slice();
            while !rest.is_empty() {
                let (index, from) = place(at + done as u64);
                let n = rest.len().min(PAGE - from);
                match self.own(index, from + n) {
                    Ok(page) => iobuf::copied(&mut page.as_mut_slice()[from..from + n], &rest[..n]),
                    Err(e) if done == 0 => return Err(e),
                    Err(_) => return Ok(done),
                }
                rest = &rest[n..];
                done += n;
                self.size = self.size.max(at + done as u64);
            }
        }
        Ok(done)
    }

    /// Sets the size: truncates, or extends by a hole.
    pub(super) fn resize(&mut self, size: u64) -> VfsResult<()> {
        if size < self.size {
            let (index, from) = place(size);
            if from > 0 && self.pages.get(&index).is_some_and(|p| p.bytes.as_slice().len() > from) {
                self.own(index, from)?.set_len(from);
            }
            let beyond = if from > 0 { index + 1 } else { index };
            for (_, page) in self.pages.split_off(&beyond) {
                self.used -= page.charge.bytes;
            }
        }
        self.size = size;
        Ok(())
    }

    /// Makes a hole; the size stays.
    pub(super) fn punch(&mut self, at: u64, count: u64) -> VfsResult<()> {
        let end = at.saturating_add(count).min(self.size.max(at));
        let touched: Vec<u64> = match end.checked_sub(1) {
            Some(last) if end > at => {
                self.pages.range(place(at).0..=place(last).0).map(|(i, _)| *i).collect()
            }
            _ => return Ok(()),
        };
        for index in touched {
            let start = index * PAGE_BYTES;
            let from = place(at.max(start)).1;
            let to = usize::try_from(end - start).unwrap_or(PAGE).min(PAGE);
            let len = self.pages.get(&index).map_or(0, |p| p.bytes.as_slice().len());
            if from == 0 && to >= len {
                self.remove(index);
            } else if from < len {
                self.own(index, len)?.as_mut_slice()[from..to.min(len)].fill(0);
            }
        }
        Ok(())
    }

    /// Reserves storage; extends the size.
    pub(super) fn allocate(&mut self, at: u64, count: u64) -> VfsResult<()> {
        let end = at.saturating_add(count);
        let (first, last) = (place(at).0, place(end - 1).0);
        let there = self.pages.range(first..=last).count() as u64;
        if (last - first + 1 - there).saturating_mul(PAGE_BYTES) > self.usage.free() {
            return Err(VfsError::NoSpace);
        }
        for index in first..=last {
            self.own(index, PAGE)?;
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// Returns the offset of the next data or hole from `at`, which is before the end.
    pub(super) fn next_data(&self, at: u64) -> Option<u64> {
        let (index, _) = place(at);
        let (found, _) = self.pages.range(index..).next()?;
        Some(at.max(found * PAGE_BYTES)).filter(|at| *at < self.size)
    }

    pub(super) fn next_hole(&self, at: u64) -> u64 {
        let mut index = place(at).0;
        while self.pages.contains_key(&index) {
            index += 1;
        }
        at.max(index * PAGE_BYTES).min(self.size)
    }

    /// Returns the pages of a range with page boundaries, to be shared.
    pub(super) fn share(&self, at: u64, count: u64) -> Shared {
        let first = place(at).0;
        let pages = match count.checked_sub(1) {
            Some(last) => first..=place(at + last).0,
            None => return Shared { pages: Vec::new(), count: 0 },
        };
        let pages = self.pages.range(pages).map(|(i, p)| (i - first, p.clone())).collect();
        Shared { pages, count }
    }

    /// Replaces the present pages by shared ones.
    pub(super) fn adopt(&mut self, at: u64, shared: Shared) {
        let first = place(at).0;
        if let Some(last) = shared.count.checked_sub(1) {
            let there: Vec<u64> =
                self.pages.range(first..=place(at + last).0).map(|(i, _)| *i).collect();
            for index in there {
                self.remove(index);
            }
        }
        for (i, page) in shared.pages {
            self.insert(first + i, page);
        }
        self.size = self.size.max(at + shared.count);
    }
}

/// Pages that are about to be added to another file.
pub(super) struct Shared {
    pages: Vec<(u64, Arc<Page>)>,
    count: u64,
}
