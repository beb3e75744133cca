//! Data in memory: every operation completes without waiting.

use iobuf::Buf;

use crate::backend::Node;
use crate::error::{VfsError, VfsResult};
use crate::types::*;

use super::SIZE_MAX;
use super::node::{Inner, MemNode};
use super::pages::{PAGE, Pages};

/// Largest number of bytes that one copy handles before it answers, because copies run in place.
const COPY_MAX: u64 = 8 << 20;

impl MemNode {
    pub(super) fn do_read(
        &self,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
    ) -> VfsResult<ReadData> {
        let mut inner = self.lock();
        inner.file()?;
        if let Some(cred) = cred {
            inner.permit_data(cred, false)?;
        }
        let pages = inner.file()?;
        let data = pages.read(at, count);
        let n: usize = data.iter().map(Buf::len).sum();
        let eof = at.saturating_add(n as u64) >= pages.size;
        Ok(ReadData { data, pages: None, eof, attr: Some(self.attr_of(&inner)) })
    }

    pub(super) fn do_write(
        &self,
        by: WriteBy<'_>,
        at: u64,
        data: &[Buf],
        stable: Stable,
    ) -> VfsResult<Written> {
        self.volume.writable()?;
        let mut inner = self.lock();
        inner.file()?;
        if let Some(cred) = by.judged() {
            inner.permit_data(cred, true)?;
        }
        self.write_locked(&mut inner, by.owner(), at, data, stable)
    }

    pub(super) fn do_append(
        &self,
        opener: Option<&Cred>,
        at: AppendAt,
        data: &[Buf],
        stable: Stable,
    ) -> VfsResult<Appended> {
        self.volume.writable()?;
        let mut inner = self.lock();
        let size = inner.file()?.size;
        let at = match at {
            AppendAt::End => size,
            AppendAt::Offset(at) if at < size => return Err(VfsError::Access),
            AppendAt::Exactly(at) if at != size => return Err(VfsError::Delay),
            AppendAt::Offset(at) | AppendAt::Exactly(at) => at,
        };
        let written = self.write_locked(&mut inner, opener, at, data, stable)?;
        Ok(Appended { at, written })
    }

    fn write_locked(
        &self,
        inner: &mut Inner,
        writer: Option<&Cred>,
        at: u64,
        data: &[Buf],
        stable: Stable,
    ) -> VfsResult<Written> {
        let count: usize = data.iter().map(Buf::len).sum();
        if at.saturating_add(count as u64) > SIZE_MAX {
            return Err(VfsError::TooBig);
        }
        let before = Some(self.attr_of(inner));
        let count = inner.file()?.write(at, data)?;
        if count > 0 {
            inner.shed_set_id(writer);
            inner.verifier = None;
            inner.modified();
        }
        Ok(Written { count, stable, before, after: self.attr_of(inner), verifier: 0 })
    }

    pub(super) fn do_seek(&self, at: u64, what: Seek) -> VfsResult<u64> {
        let mut inner = self.lock();
        let pages = inner.file()?;
        if at >= pages.size {
            return Err(VfsError::NoMoreData);
        }
        match what {
            Seek::Data => pages.next_data(at).ok_or(VfsError::NoMoreData),
            Seek::Hole => Ok(pages.next_hole(at)),
        }
    }

    /// Performs ALLOCATE and DEALLOCATE.
    pub(super) fn change_storage(
        &self,
        opener: Option<&Cred>,
        at: u64,
        count: u64,
        change: fn(&mut Pages, u64, u64) -> VfsResult<()>,
    ) -> VfsResult<()> {
        self.volume.writable()?;
        let mut inner = self.lock();
        inner.file()?;
        if count == 0 {
            return Err(VfsError::Invalid);
        }
        if at.saturating_add(count) > SIZE_MAX {
            return Err(VfsError::TooBig);
        }
        change(inner.file()?, at, count)?;
        inner.shed_set_id(opener);
        inner.modified();
        Ok(())
    }

    pub(super) fn do_copy_range(
        &self,
        opener: Option<&Cred>,
        from: &dyn Node,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> VfsResult<u64> {
        self.volume.writable()?;
        let from = self.same_backend(from)?;
        self.lock().file()?;
        let (data, count) = {
            let mut source = from.lock();
            let pages = source.file()?;
            let left = pages.size.checked_sub(from_at).ok_or(VfsError::Invalid)?;
            let count = if count == 0 { left } else { count.min(left) };
            let n = usize::try_from(count.min(COPY_MAX)).unwrap_or(0);
            (pages.read(from_at, n), count)
        };
        let overlaps = from_at < at.saturating_add(count) && at < from_at.saturating_add(count);
        if from.id == self.id && overlaps {
            return Err(VfsError::Invalid);
        }
        Ok(self.do_write(WriteBy::Open(opener), at, &data, Stable::Unstable)?.count as u64)
    }

    pub(super) fn do_clone_range(
        &self,
        opener: Option<&Cred>,
        from: &dyn Node,
        from_at: u64,
        at: u64,
        count: u64,
    ) -> VfsResult<()> {
        self.volume.writable()?;
        let from = self.same_backend(from)?;
        self.lock().file()?;
        let aligned = |n: u64| n.is_multiple_of(PAGE as u64);
        let (shared, count, whole) = {
            let mut source = from.lock();
            let pages = source.file()?;
            let left = pages.size.checked_sub(from_at).ok_or(VfsError::Invalid)?;
            let count = if count == 0 { left } else { count };
            if count > left || !aligned(from_at) || !aligned(at) {
                return Err(VfsError::Invalid);
            }
            // A partial page may only be the end of the source, and must become the end of the target.
            if !aligned(count) && count != left {
                return Err(VfsError::Invalid);
            }
            (pages.share(from_at, count), count, aligned(count))
        };
        let end = at.checked_add(count).filter(|e| *e <= SIZE_MAX).ok_or(VfsError::TooBig)?;
        if from.id == self.id && from_at < end && at < from_at + count {
            return Err(VfsError::Invalid);
        }
        if count == 0 {
            // The range begins at the end of the source: like the kernel's clone, this has no effect.
            return Ok(());
        }
        let mut inner = self.lock();
        let pages = inner.file()?;
        if !whole && end < pages.size {
            return Err(VfsError::Invalid);
        }
        pages.adopt(at, shared);
        inner.shed_set_id(opener);
        inner.modified();
        Ok(())
    }
}
