//! Reads, writes and syncs CephFS files.
//!
//! *Operation.* One open file for each inode serves all callers; permission is checked before. Transfers run on threads of the
//! volume, with one copy of each byte. The library passes written data to the OSDs before it returns.
//!
//! *Memory.* Jobs own their buffers, so requests can be dropped safely. Reads take their buffers as described in
//! [`crate::engine::transfer`].
//!
//! *Errors.* A write that reaches the volume's limit returns the bytes written so far.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ceph_sys::{Fallocate, File};
use iobuf::{Buf, BufMut, CLASS_SIZES};
use mutex::locked;
use tokio::sync::oneshot;

use crate::backend::{BoxFuture, NodeRef, ReadInto, ready};
use crate::durability;
use crate::engine::far::Room;
use crate::engine::transfer::{buffers, in_turn, vectors, vectors_mut, views};
use crate::engine::wakes::by_event;
use crate::error::{VfsError, VfsResult};
use crate::perm::sheds_set_id;
use crate::types::*;

use super::held::Open;
use super::node::CephNode;

impl CephNode {
    /// The inode, opened for data by the superuser.
    pub(super) fn file(&self) -> VfsResult<Arc<File>> {
        let mut open = locked(&self.open);
        if let Some(Open(file)) = &*open {
            return Ok(file.clone());
        }
        let flags = if self.changeable().is_ok() { libc::O_RDWR } else { libc::O_RDONLY };
        let opened = self.inode().open(flags, &self.volume.process);
        let file = Arc::new(self.volume.done(opened)?);
        *open = Some(Open(file.clone()));
        Ok(file)
    }

    /// How many of `count` bytes the file probably has at `at`, so that a large read of a small file takes a small buffer.
    fn likely(&self, at: u64, count: usize) -> usize {
        let left = self.size.load(Ordering::Relaxed).saturating_sub(at);
        count.min(usize::try_from(left).unwrap_or(count)).max(count.min(CLASS_SIZES[0]))
    }

    pub(super) async fn do_read(
        &self,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        into: &ReadInto,
    ) -> VfsResult<ReadData> {
        self.regular()?;
        let likely = self.likely(at, count);
        let done = self.read_admitted(cred, at, likely, into).await?;
        if done.eof || likely == count || done.len() < likely {
            return Ok(done);
        }
        // The file has grown since its size was read, and the new size is known now.
        drop(done);
        Box::pin(self.read_admitted(cred, at, self.likely(at, count), into)).await
    }

    /// Reads after the client takes replies, memory is available and the volume has a free turn.
    async fn read_admitted(
        &self,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        into: &ReadInto,
    ) -> VfsResult<ReadData> {
        let mut again = false;
        loop {
            let wanted = || buffers(count, into);
            let (step, (mut turn, bufs)) = self.volume.turns.next_with(count, wanted).await?;
            let job = self.read_job(step.room(), cred.cloned(), at, count, bufs)?;
            let read = pin!(self.volume.engine.run(job));
            let (bufs, n, attr) = in_turn(&mut turn, read).await?;
            drop(step);
            let is_blocked = into.backpressure.as_ref().is_some_and(|to| to.is_blocked());
            if turn.is_some() || !is_blocked || again {
                let eof = n == 0 && count > 0 || at.saturating_add(n as u64) >= attr.size;
                return Ok(ReadData { data: views(bufs, n), pages: None, eof, attr: Some(attr) });
            }
            // The read was slow, and its client takes no replies now: the data waits like a read that has not begun. A second
            // result is kept, however long that takes.
            again = true;
        }
    }

    /// Reads into these buffers, then reads the attributes. The data is discarded if access was not allowed.
    #[allow(clippy::type_complexity)] // The result of the job.
    fn read_job(
        &self,
        room: Option<Room>,
        cred: Option<Cred>,
        at: u64,
        count: usize,
        mut bufs: Vec<BufMut>,
    ) -> VfsResult<impl FnOnce() -> VfsResult<(Vec<BufMut>, usize, Attr)> + Send + 'static> {
        let me = self.strong()?;
        let count = count.min(bufs.iter().map(BufMut::capacity).sum());
        Ok(move || {
            let _room = room;
            // The library accepts 63-bit offsets only; no file has data beyond them.
            let has_data = i64::try_from(at.saturating_add(count as u64)).is_ok();
            let file = me.file()?;
            let mut n = 0;
            while has_data && n < count {
                let mut vectors = vectors_mut(&mut bufs, n, count);
                match me.volume.done(file.read(at + n as u64, &mut vectors)) {
                    Ok(0) => break,
                    Ok(more) => n += more,
                    Err(e) if n == 0 => return Err(e),
                    // The data read so far is valid; the next read returns the error.
                    Err(_) => break,
                }
            }
            let attr = me.attr()?;
            if let Some(cred) = cred {
                me.may_use_data(&cred, &attr, false)?;
            }
            Ok((bufs, n, attr))
        })
    }

    pub(super) async fn do_write(
        &self,
        room: Option<Room>,
        by: WriteBy<'_>,
        at: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> VfsResult<Written> {
        self.changeable()?;
        self.regular()?;
        let count: usize = data.iter().map(Buf::len).sum();
        let (me, is_judged) = (self.strong()?, by.judged().is_some());
        let writer = by.owner().cloned();
        let write = move || {
            let _room = room;
            let before = match &writer {
                Some(cred) if is_judged => {
                    let attr = me.attr()?;
                    me.may_use_data(cred, &attr, true)?;
                    Some(attr)
                }
                _ => None,
            };
            let n = me.write_all(at, &data, count, stable)?;
            me.finish_write(writer.as_ref(), before, (n, count), stable)
        };
        match stable {
            Stable::File => self.volume.engine.run_long(write).await,
            _ => self.volume.engine.run(write).await,
        }
    }

    /// Writes; with [`Stable::File`] the attributes are made durable as well.
    fn write_all(&self, at: u64, data: &[Buf], count: usize, stable: Stable) -> VfsResult<usize> {
        if i64::try_from(at.saturating_add(count as u64)).is_err() {
            return Err(VfsError::TooBig);
        }
        let file = self.file()?;
        let (mut n, mut done) = (0, Ok(()));
        while n < count && done.is_ok() {
            match self.volume.done(file.write(at + n as u64, &vectors(data, n))) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(e) => done = Err(e),
            }
        }
        match done {
            Err(e) if n == 0 => return Err(e),
            _ => {}
        }
        if stable == Stable::File && n > 0 {
            self.volume.done(file.fsync(false))?;
        }
        Ok(n)
    }

    /// Clears set-id bits of a file that this writer has changed, because the superuser opened it. True if it had some.
    fn shed_set_id(&self, writer: Option<&Cred>, attr: &Attr) -> VfsResult<bool> {
        let sheds = writer.is_none_or(|c| c.uid != 0) && sheds_set_id(attr.mode);
        if sheds {
            self.shed_by_writing(attr.mode)?;
        }
        Ok(sheds)
    }

    fn finish_write(
        &self,
        writer: Option<&Cred>,
        before: Option<Attr>,
        (n, count): (usize, usize),
        stable: Stable,
    ) -> VfsResult<Written> {
        let mut after = self.attr()?;
        if n > 0 && self.shed_set_id(writer, &after)? {
            after = self.attr()?;
        }
        if n == 0 && count > 0 {
            return Err(VfsError::NoSpace);
        }
        Ok(Written { count: n, stable: stable.max(Stable::Data), before, after, verifier: 0 })
    }

    /// Appends by this gateway to one file are executed one after the other.
    pub(super) async fn do_append(
        &self,
        room: Option<Room>,
        opener: Option<&Cred>,
        at: AppendAt,
        data: Vec<Buf>,
        stable: Stable,
    ) -> VfsResult<Appended> {
        self.changeable()?;
        self.regular()?;
        let count: usize = data.iter().map(Buf::len).sum();
        let (me, opener) = (self.strong()?, opener.cloned());
        let add = move || {
            let (_room, _turn) = (room, locked(&me.shared.appends));
            let size = me.attr()?.size;
            let start = match at {
                AppendAt::End => size,
                AppendAt::Offset(at) if at < size => return Err(VfsError::Access),
                AppendAt::Exactly(at) if at != size => return Err(VfsError::Delay),
                AppendAt::Offset(at) | AppendAt::Exactly(at) => at,
            };
            let n = me.write_all(start, &data, count, stable)?;
            let written = me.finish_write(opener.as_ref(), None, (n, count), stable)?;
            Ok(Appended { at: start, written })
        };
        self.volume.engine.run_long(add).await
    }

    /// See [`crate::backend::Node::sync`]. The other nodes follow in the same job: they were changed before this one, so the MDS
    /// has already written its journal up to their changes, and no further wait is needed.
    pub(super) fn start_sync(&self, others: &[&NodeRef]) -> BoxFuture<'_, VfsResult<()>> {
        let (tell, told) = oneshot::channel();
        let strong = |other: &&NodeRef| self.same_backend(&***other).and_then(CephNode::strong);
        let all: VfsResult<Vec<_>> =
            std::iter::once(self.strong()).chain(others.iter().map(strong)).collect();
        let all = match all {
            Ok(all) => all,
            Err(e) => return ready(Err(e)),
        };
        let counters = durability::counters();
        let job = move || {
            let mut done = Ok(());
            for node in all {
                counters.syncs.fetch_add(1, Ordering::Relaxed);
                counters.waited.fetch_add(1, Ordering::Relaxed);
                let one = node.volume.done(node.inode().sync());
                if one.is_err() {
                    counters.failed.fetch_add(1, Ordering::Relaxed);
                }
                done = done.and(one);
            }
            // The caller may be gone.
            let _ = tell.send(done);
        };
        match self.volume.engine.submit_sync(job) {
            Err(e) => ready(Err(e)),
            // Dropped if no thread could be started.
            Ok(()) => Box::pin(async move { by_event(told).await.unwrap_or(Err(VfsError::Delay)) }),
        }
    }

    pub(super) async fn do_commit(&self) -> VfsResult<Attr> {
        self.regular()?;
        self.start_sync(&[]).await?;
        self.attr()
    }

    /// The library has no holes: a file is data up to its end.
    pub(super) fn do_seek(&self, at: u64, what: Seek) -> VfsResult<u64> {
        self.regular()?;
        let size = self.attr()?.size;
        match what {
            _ if at >= size => Err(VfsError::NoMoreData),
            Seek::Data => Ok(at),
            Seek::Hole => Ok(size),
        }
    }

    pub(super) async fn do_deallocate(
        &self,
        opener: Option<&Cred>,
        at: u64,
        count: u64,
    ) -> VfsResult<()> {
        self.changeable()?;
        self.regular()?;
        if count == 0 {
            return Err(VfsError::Invalid);
        }
        if i64::try_from(at.saturating_add(count)).is_err() {
            return Err(VfsError::TooBig);
        }
        let (me, opener) = (self.strong()?, opener.cloned());
        let punch = move || {
            me.volume.done(me.file()?.fallocate(Fallocate::PunchHole, at, count))?;
            me.shed_set_id(opener.as_ref(), &me.attr()?).map(drop)
        };
        self.volume.engine.run_copy(punch).await
    }
}
