//! Reads, writes and syncs local files.
//!
//! *Operation.* Each file has one descriptor, opened by the process for reading until the first write; permission is checked as in
//! `nfsd`, including the owner's right to open files. Small transfers are tried in place with `RWF_NOWAIT`; large ones, and those
//! that would wait, run on a thread. A read in place is `preadv2`, plus `statx` if attributes are wanted or the end is near. A
//! large read for a socket uses the pages themselves ([`iobuf::Pages`]).
//!
//! *Storage.* The descriptor belongs to the process, which would also be charged for storage. A write that may allocate storage,
//! because it ends beyond the end of the file or the file has holes, is made as its caller: root's reserve and quotas apply. The
//! same applies to a file with set-id bits, which the kernel clears before the data changes. A write within a fully allocated file
//! switches no identity.
//!
//! *Memory.* All buffers of a read are taken before it starts, and it never waits while it holds one: if the pool has only the
//! first, the read is shortened. Jobs own their buffers, so requests can be dropped safely. A read has a turn among those of its
//! connection ([`iobuf::Backpressure`]) for the duration of a copy; one that waits longer for storage continues without it.
//!
//! *Errors.* A write that reaches the volume's limit returns the bytes written so far.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use iobuf::{Buf, BufMut, CLASS_SIZES, PAGES_MAX, PagesMut};
use mutex::locked;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::backend::ReadInto;
use crate::engine::limits::{PAGED_ALIGN, PAGED_MIN, read_in_place_max, write_in_place_max};
use crate::engine::transfer::{VECTORS_MAX, buffers, in_turn, vectors, vectors_mut, views};
use crate::error::{VfsError, VfsResult};
use crate::perm::{sheds_set_id, without_set_id};
use crate::types::*;

use super::held::DataFd;
use super::node::LocalNode;
use super::sync_queue;
use crate::engine::far::{Room, Turn};

/// Bytes of a read that fits one buffer.
const SMALL_MAX: usize = CLASS_SIZES[CLASS_SIZES.len() - 1];

/// The result of a transfer in place.
enum InPlace {
    Done(usize),
    /// This many bytes were transferred; the rest would need to wait.
    Partly(usize),
}

impl LocalNode {
    /// The file's descriptor for data, if open.
    fn open_data_fd(&self, write: bool) -> Option<DataFd> {
        locked(&self.data).as_ref().filter(|data| data.write || !write).cloned()
    }

    /// The file's descriptor for data. It is opened without holding a lock: a hanging open must not block users of an existing
    /// descriptor.
    pub(super) fn data_fd(&self, write: bool) -> VfsResult<DataFd> {
        if let Some(open) = self.open_data_fd(write) {
            return Ok(open);
        }
        let flags = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let fd = self.volume.cache.with_room(|| self.reopen(flags))?;
        let opened = DataFd::new(fd, write);
        let mut data = locked(&self.data);
        // Another thread was faster: all share one descriptor, which reports write-back errors to them.
        if let Some(first) = data.as_ref().filter(|first| first.write || !write) {
            return Ok(first.clone());
        }
        let old = data.replace(opened.clone());
        drop(data);
        drop(old);
        self.volume.cache.fit();
        Ok(opened)
    }

    /// Like [`LocalNode::data_fd`], but waits if files that are being synced hold all descriptors.
    pub(super) async fn data_fd_soon(&self, write: bool) -> VfsResult<DataFd> {
        self.volume.retried(|| self.data_fd(write)).await
    }

    /// A small read whose turn, buffer and data are available, as usual: it needs no future. `None` if it would wait for one of
    /// them or an error occurs; then it had no effect, and [`LocalNode::do_read`] follows.
    pub(super) fn read_at_hand(
        &self,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        into: &ReadInto,
    ) -> Option<VfsResult<ReadData>> {
        if self.volume.turns.is_some() || self.regular().is_err() {
            return None;
        }
        let likely = self.likely(at, count);
        let in_reach = i64::try_from(at.checked_add(likely as u64)?).is_ok();
        let is_small = likely > 0 && likely <= read_in_place_max().min(SMALL_MAX);
        if !in_reach || !is_small || into.pages && self.suits_pages(at, likely) {
            return None;
        }
        let flags = self.flags_in_place(&self.volume.no_nowait_read)?;
        let fd = self.open_data_fd(false)?;
        let _turn = match &into.backpressure {
            Some(to) => Some(to.try_admit(likely)?),
            None => None,
        };
        let mut buf = into.pool.try_get(likely)?;
        let room = &mut [IoSliceMut::new(&mut buf.whole_mut()[..likely])];
        let some = rustix::io::preadv2(&fd, room, at, flags).ok()?;
        let (eof, attr) = if some == count && self.tells_enough(cred, at, count, into) {
            (false, None)
        } else {
            let attr = self.attr().ok()?;
            match self.ended(cred, at, likely, some, &attr) {
                // Short of the end: only a part is cached, or the file has grown.
                Ok(eof) if eof || some == count => (eof, Some(attr)),
                Ok(_) => return None,
                Err(refused) => return Some(Err(refused)),
            }
        };
        buf.set_filled(some);
        let data = if some == 0 { Vec::new() } else { vec![buf.freeze()] };
        Some(Ok(ReadData { data, pages: None, eof, attr }))
    }

    pub(super) async fn do_read(
        &self,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        into: &ReadInto,
    ) -> VfsResult<ReadData> {
        let likely = self.likely(at, count);
        let done = self.read_some(cred, at, likely, into).await?;
        if done.eof || likely == count || done.len() < likely {
            return Ok(done);
        }
        // The file has grown since its size was read, and the new size is known now.
        drop(done);
        Box::pin(self.read_some(cred, at, self.likely(at, count), into)).await
    }

    async fn read_some(
        &self,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        into: &ReadInto,
    ) -> VfsResult<ReadData> {
        self.regular()?;
        // Futures are pinned here: each function that took one by value would need additional space for it.
        let fd = match self.open_data_fd(false) {
            Some(fd) => fd,
            None => self.volume.stepped(pin!(self.data_fd_soon(false))).await?,
        };
        if i64::try_from(at.saturating_add(count as u64)).is_err() {
            return self.volume.stepped(async { self.read_nothing(cred, at) }).await;
        }
        let (kept_turn, data) = self.read_admitted(&fd, cred, at, count, into).await?;
        if kept_turn || !into.backpressure.as_ref().is_some_and(|to| to.is_blocked()) {
            return Ok(data);
        }
        // The read was slow, and its client takes no replies now: the data waits like a read that has not begun, but storage has
        // been read. A second result is kept, however long that takes.
        drop(data);
        let again = Box::pin(self.read_admitted(&fd, cred, at, count, into)).await;
        again.map(|(_, data)| data)
    }

    /// Reads after the client takes replies, memory is available and the volume has a free turn; also returns whether the read kept
    /// its turn among those of its connection.
    async fn read_admitted(
        &self,
        fd: &DataFd,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        into: &ReadInto,
    ) -> VfsResult<(bool, ReadData)> {
        let (step, (mut turn, bufs)) =
            self.volume.turn_with(count, || buffers(count, into)).await?;
        let room = step.as_ref().and_then(Turn::room);
        let read = pin!(self.read_data(fd, cred, at, count, (bufs, room), into));
        let data = in_turn(&mut turn, self.volume.polled(read)).await?;
        Ok((turn.is_some(), data))
    }

    /// Reads into these buffers.
    async fn read_data(
        &self,
        fd: &DataFd,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        (mut bufs, room): (Vec<BufMut>, Option<Room>),
        into: &ReadInto,
    ) -> VfsResult<ReadData> {
        let count = count.min(bufs.iter().map(BufMut::capacity).sum());
        if into.pages
            && self.suits_pages(at, count)
            // Boxed like the waiting part below: most reads need no space for it.
            && let Some(pages) = Box::pin(self.read_pages(fd, at, count)).await
        {
            let attr = self.attr()?;
            let eof = self.ended(cred, at, count, pages.len(), &attr)?;
            // The last page may not fit if pages are larger than 4 KiB, and SMB clients take a short read for the end of the file.
            if eof || pages.len() == count {
                let pages = Some(pages.freeze(bufs));
                return Ok(ReadData { data: Vec::new(), pages, eof, attr: Some(attr) });
            }
        }
        let mut n = 0;
        if let Some(flags) = self.flags_in_place(&self.volume.no_nowait_read) {
            let some;
            (bufs, some) = if count <= read_in_place_max() {
                let some = read_in_place(fd, at, &mut bufs, count, flags);
                (bufs, some)
            } else {
                let (fd, room) = (fd.clone(), room.clone());
                let read = self.volume.engine.run_cached(move || {
                    let _room = room;
                    let some = read_in_place(&fd, at, &mut bufs, count, flags);
                    Ok((bufs, some))
                });
                Box::pin(read).await?
            };
            match some {
                Ok(some) if some == count && self.tells_enough(cred, at, count, into) => {
                    return Ok(ReadData {
                        data: views(bufs, some),
                        pages: None,
                        eof: false,
                        attr: None,
                    });
                }
                Ok(some) => {
                    let attr = self.attr()?;
                    if some == count || at.saturating_add(some as u64) >= attr.size {
                        return self.finish_read(cred, at, count, some, bufs, attr);
                    }
                    // Short of the end: only a part was cached.
                    n = some;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) => self.volume.no_nowait_read.store(true, Ordering::Relaxed),
                Err(e) => return Err(e.into()),
            }
        }
        let fd = fd.clone();
        let read = self.volume.engine.run(move || {
            let _room = room;
            let n = read_rest(fd.as_fd(), at, &mut bufs, count, n)?;
            Ok((bufs, n))
        });
        let (bufs, n) = Box::pin(read).await?;
        let attr = self.attr()?;
        self.finish_read(cred, at, count, n, bufs, attr)
    }

    /// The kernel accepts 63-bit offsets only; no file has data beyond them.
    fn read_nothing(&self, cred: Option<&Cred>, at: u64) -> VfsResult<ReadData> {
        let attr = self.attr()?;
        self.read_check(cred, &attr)?;
        Ok(ReadData { data: Vec::new(), pages: None, eof: at >= attr.size, attr: Some(attr) })
    }

    fn suits_pages(&self, at: u64, count: usize) -> bool {
        let refused = self.volume.no_pages.load(Ordering::Relaxed);
        !refused && (PAGED_MIN..=PAGES_MAX).contains(&count) && at.is_multiple_of(PAGED_ALIGN)
    }

    /// Reads file pages; `None` if no pipe is available for them, or they cannot be obtained. The copy made instead reports errors
    /// of the file.
    async fn read_pages(&self, fd: &DataFd, at: u64, count: usize) -> Option<PagesMut> {
        let mut pages = PagesMut::take(count)?;
        let fd = fd.clone();
        let fill = move || {
            pages.fill(fd.as_fd(), at, count)?;
            Ok(pages)
        };
        // On a thread if that may wait for storage; otherwise it is fast, because no data is copied.
        let filled =
            if self.volume.in_memory { fill() } else { self.volume.engine.run(fill).await };
        if matches!(filled, Err(VfsError::Invalid | VfsError::NotSupported)) {
            self.volume.no_pages.store(true, Ordering::Relaxed);
        }
        filled.ok()
    }

    /// How many of `count` bytes the file probably has at `at`, so that a large read of a small file takes a small buffer.
    fn likely(&self, at: u64, count: usize) -> usize {
        let left = self.size.load(Ordering::Relaxed).saturating_sub(at);
        count.min(usize::try_from(left).unwrap_or(count)).max(count.min(CLASS_SIZES[0]))
    }

    /// `RWF_NOWAIT`, or no flag if transfers never wait. `None` if the volume refuses it.
    fn flags_in_place(&self, refused: &AtomicBool) -> Option<ReadWriteFlags> {
        if self.volume.in_memory {
            Some(ReadWriteFlags::empty())
        } else if refused.load(Ordering::Relaxed) {
            None
        } else {
            Some(ReadWriteFlags::NOWAIT)
        }
    }

    /// A full read below the known size needs no fstat: access was checked at open and EOF was not reached.
    fn tells_enough(&self, cred: Option<&Cred>, at: u64, count: usize, into: &ReadInto) -> bool {
        let end = at.saturating_add(count as u64);
        !into.attributes && cred.is_none() && end < self.size.load(Ordering::Relaxed)
    }

    fn read_check(&self, cred: Option<&Cred>, attr: &Attr) -> VfsResult<()> {
        cred.map_or(Ok(()), |cred| self.may_use_data(cred, attr, false))
    }

    /// Checks permission and end of file by the attributes after the read.
    fn ended(
        &self,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        n: usize,
        attr: &Attr,
    ) -> VfsResult<bool> {
        self.read_check(cred, attr)?;
        // A read of zero bytes means the end, even if the file has grown since.
        Ok(n == 0 && count > 0 || at.saturating_add(n as u64) >= attr.size)
    }

    /// Discards the data if access was not allowed.
    fn finish_read(
        &self,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        n: usize,
        bufs: Vec<BufMut>,
        attr: Attr,
    ) -> VfsResult<ReadData> {
        let eof = self.ended(cred, at, count, n, &attr)?;
        Ok(ReadData { data: views(bufs, n), pages: None, eof, attr: Some(attr) })
    }

    pub(super) async fn do_write(
        &self,
        by: WriteBy<'_>,
        at: u64,
        (data, room): (Vec<Buf>, Option<Room>),
        stable: Stable,
    ) -> VfsResult<Written> {
        self.volume.writable()?;
        self.regular()?;
        // Read before the first byte is written: a later failure changes it.
        let verifier = self.volume.ledger.verifier();
        let count: usize = data.iter().map(Buf::len).sum();
        let before = match by.judged() {
            Some(cred) => {
                let attr = self.attr()?;
                self.may_use_data(cred, &attr, true)?;
                Some(attr)
            }
            None => None,
        };
        if i64::try_from(at.saturating_add(count as u64)).is_err() {
            return Err(VfsError::TooBig);
        }
        let owner = by.owner().filter(|c| self.takes_storage(c, at.saturating_add(count as u64)));
        // In memory a write never waits.
        let waits = stable != Stable::Unstable && !self.volume.in_memory;
        let fd = match waits {
            true => self.volume.retried(|| self.own_fd()).await,
            false => self.data_fd_soon(true).await,
        }?;
        let mut done = 0;
        if count <= write_in_place_max() && !waits {
            let write = || self.write_in_place(&fd, at, &data, count);
            match self.as_owner(owner, write)? {
                InPlace::Done(n) => {
                    // Marked while the descriptor is in use, so that it is not closed before.
                    self.note_unsynced();
                    drop(fd);
                    return self.finish_write(by.owner(), before, (n, count), stable, verifier);
                }
                InPlace::Partly(n) => done = n,
            }
        }
        let me = self.strong()?;
        let write = move || {
            let _room = room;
            me.write_rest(&fd, at, &data, (done, count), stable)
        };
        let rest = self.later_as(owner, write);
        let n = match waits {
            false => self.volume.engine.run_in_turn(&self.writes, rest).await,
            true => self.volume.engine.run_long(rest).await,
        };
        if n.is_err() {
            self.changed();
        }
        self.finish_write(by.owner(), before, (n?, count), stable, verifier)
    }

    /// True if a write of this caller that ends there may allocate storage, or clears set-id bits.
    fn takes_storage(&self, cred: &Cred, end: u64) -> bool {
        let fits =
            || end <= self.size.load(Ordering::Relaxed) && self.plain.load(Ordering::Relaxed);
        self.volume.identity.differs(cred) && !fits()
    }

    fn as_owner<T: Send>(
        &self,
        owner: Option<&Cred>,
        f: impl FnOnce() -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        match owner {
            Some(owner) => self.volume.identity.run(owner, f),
            None => f(),
        }
    }

    /// Like [`LocalNode::as_owner`], on a thread.
    pub(super) fn later_as<T, F>(
        &self,
        owner: Option<&Cred>,
        f: F,
    ) -> impl FnOnce() -> VfsResult<T> + Send + 'static + use<T, F>
    where
        T: Send,
        F: FnOnce() -> VfsResult<T> + Send + 'static,
    {
        let owner = owner.map(|owner| (self.volume.clone(), owner.clone()));
        move || match owner {
            Some((volume, owner)) => volume.identity.run(&owner, f),
            None => f(),
        }
    }

    fn write_in_place(
        &self,
        fd: &DataFd,
        at: u64,
        data: &[Buf],
        count: usize,
    ) -> VfsResult<InPlace> {
        let flags = match self.flags_in_place(&self.volume.no_nowait_write) {
            Some(flags) if data.len() <= VECTORS_MAX => flags,
            _ => return Ok(InPlace::Partly(0)),
        };
        let vectors = vectors(data, 0);
        match rustix::io::pwritev2(fd, &vectors, at, flags) {
            Ok(n) if n == count => Ok(InPlace::Done(n)),
            Ok(n) => Ok(InPlace::Partly(n)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(InPlace::Partly(0)),
            Err(Errno::OPNOTSUPP) if !self.volume.in_memory => {
                self.volume.no_nowait_write.store(true, Ordering::Relaxed);
                Ok(InPlace::Partly(0))
            }
            Err(e) => Err(self.write_failed(e.into())),
        }
    }

    /// A separate descriptor for one stable write: it reports that write's failure, even if others have seen it, and leaves the
    /// shared descriptor's errors to be reported there.
    fn own_fd(&self) -> VfsResult<DataFd> {
        let open = || self.reopen(OFlags::WRONLY);
        Ok(DataFd::new(self.volume.cache.with_room(open)?, true))
    }

    /// Writes the rest after `n` bytes, with the requested durability.
    pub(super) fn write_rest(
        &self,
        fd: &DataFd,
        at: u64,
        data: &[Buf],
        (mut n, count): (usize, usize),
        stable: Stable,
    ) -> VfsResult<usize> {
        let mut done = Ok(());
        while n < count && done.is_ok() {
            let (vectors, here) = (vectors(data, n), at + n as u64);
            let wrote = match stable {
                Stable::Unstable => rustix::io::pwritev(fd, &vectors, here).map_err(Into::into),
                _ => self.volume.calls.write(fd.as_fd(), &vectors, here, stable),
            };
            match wrote {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => done = Err(self.write_failed(e)),
            }
        }
        if stable == Stable::Unstable {
            // Marked while the descriptor is in use, so that it is not closed before.
            self.note_unsynced();
        }
        match done {
            Err(e) if n == 0 => Err(e),
            _ => Ok(n),
        }
    }

    pub(super) fn finish_write(
        &self,
        writer: Option<&Cred>,
        before: Option<Attr>,
        (n, count): (usize, usize),
        stable: Stable,
        verifier: u64,
    ) -> VfsResult<Written> {
        self.changed();
        let mut after = self.attr()?;
        if n > 0 && self.shed_set_id(writer, &after)? {
            after = self.attr()?;
        }
        if n == 0 && count > 0 {
            return Err(VfsError::NoSpace);
        }
        Ok(Written { count: n, stable, before, after, verifier })
    }

    /// Clears set-id bits of a file that this writer has changed. The kernel clears them only for an ordinary user's write, but the
    /// descriptor belongs to the superuser. True if the file had some.
    pub(super) fn shed_set_id(&self, writer: Option<&Cred>, attr: &Attr) -> VfsResult<bool> {
        let root = writer.is_some_and(|c| self.volume.identity.effective(c).uid == 0);
        if root || !sheds_set_id(attr.mode) {
            return Ok(false);
        }
        self.volume.chmod(self.fd(), Mode::from_raw_mode(without_set_id(attr.mode)))?;
        self.changed();
        Ok(true)
    }

    pub(super) async fn do_commit(&self, _at: u64, _count: u64) -> VfsResult<Attr> {
        if self.kind == Kind::Dir {
            return Err(VfsError::IsDir);
        }
        self.regular()?;
        if !self.volume.in_memory {
            sync_queue::told(self.ask_sync(true)).await?;
        }
        self.attr()
    }
}

/// Reads cached data without waiting.
fn read_in_place(
    fd: &DataFd,
    at: u64,
    bufs: &mut [BufMut],
    count: usize,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    rustix::io::preadv2(fd, &mut vectors_mut(bufs, 0, count), at, flags)
}

/// Reads until all data is read or the file ends; `n` bytes were read before.
fn read_rest(
    fd: BorrowedFd<'_>,
    at: u64,
    bufs: &mut [BufMut],
    count: usize,
    mut n: usize,
) -> VfsResult<usize> {
    while n < count {
        let mut vectors = vectors_mut(bufs, n, count);
        match rustix::io::preadv(fd, &mut vectors, at + n as u64) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(Errno::INTR) => {}
            Err(e) if n == 0 => return Err(e.into()),
            // The data read so far is valid; the next read returns the error.
            Err(_) => break,
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::Poll;
    use std::time::Instant;

    use iobuf::{Account, Backpressure, Pool, PoolLimits};

    use super::super::probe::Found;
    use super::super::{LocalBackend, LocalConfig};
    use std::sync::Arc;

    use super::*;
    use crate::backend::{Backend, BoxFuture, NodeRef};
    use crate::engine::limits::TURN_MAX;
    use crate::engine::threads::Engine;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn stuck_read_does_not_delay_connection() {
        let (go, stuck) = mpsc::channel::<()>();
        let into = ReadInto {
            pool: Pool::new(PoolLimits { buffers_max: [8; 3] }),
            account: Account::new(),
            backpressure: Some(Arc::new(Backpressure::default())),
            pages: false,
            attributes: false,
        };
        let (mut turn, bufs) = buffers(MIB, &into).await.unwrap();
        let engine = Engine::common();
        let hung = engine.run(move || stuck.recv().map(|()| bufs).map_err(|_| VfsError::Io));
        let mut hung = Box::pin(in_turn(&mut turn, hung));
        let other = async {
            let (turn, bufs) = buffers(MIB, &into).await.unwrap();
            assert!(turn.is_some());
            bufs
        };
        tokio::select! {
            biased;
            _ = &mut hung => panic!("nothing has come from that device"),
            got = tokio::time::timeout(TURN_MAX * 100, other) => assert_eq!(got.unwrap().len(), 1),
        }
        go.send(()).unwrap();
        assert_eq!(hung.as_mut().await.unwrap().len(), 1);
        drop(hung);
        assert!(turn.is_none(), "it went on without its turn");
    }

    #[tokio::test]
    async fn cached_read_keeps_turn() {
        let to = Backpressure::default();
        let mut turn = Some(to.admit(MIB).await);
        // Not at once, but within the time limit even on a busy machine: the data is polled before the timer.
        let soon = async {
            tokio::task::yield_now().await;
            7
        };
        assert_eq!(in_turn(&mut turn, soon).await, 7);
        assert!(turn.is_some());
    }

    /// A volume that the test treats as one that may stop responding.
    fn far(folder: &std::path::Path) -> Arc<LocalBackend> {
        let fuse = |found: &mut Found| found.magic = 0x6573_5546;
        LocalBackend::open_with(LocalConfig::new(folder), fuse).unwrap()
    }

    fn into(backpressure: Backpressure) -> ReadInto {
        ReadInto {
            pool: Pool::new(PoolLimits { buffers_max: [1; 3] }),
            account: Account::new(),
            backpressure: Some(Arc::new(backpressure)),
            pages: false,
            attributes: false,
        }
    }

    /// Starts more reads than the volume has turns, and polls each once.
    async fn begun<'a>(
        file: &'a NodeRef,
        into: &'a ReadInto,
    ) -> Vec<BoxFuture<'a, VfsResult<ReadData>>> {
        let mut reads: Vec<_> = (0..100).map(|_| file.read(None, 0, 4, into)).collect();
        for read in &mut reads {
            let once = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
            assert!(once.is_pending());
        }
        reads
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn waiting_read_holds_no_turn() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"data").unwrap();
        let backend = far(dir.path());
        let (file, _) = backend.root().lookup(&Cred::root(), b"f").await.unwrap();
        let (deaf, poor) = (into(Backpressure::default()), into(Backpressure::default()));
        let to = deaf.backpressure.clone().unwrap();
        to.moved(0, true, Instant::now());
        let all_memory = poor.pool.try_get(1).unwrap();
        let mut waiting = begun(&file, &deaf).await;
        waiting.extend(begun(&file, &poor).await);
        assert_eq!(file.getattr().await.unwrap().size, 4);
        to.moved(4, false, Instant::now());
        drop(all_memory);
        for read in waiting {
            assert_eq!(read.await.unwrap().len(), 4);
        }
    }

    /// The largest allocation in the C library's per-thread cache; a larger one makes each READ slower.
    const AT_HAND: usize = 1032;

    #[tokio::test]
    async fn read_future_fits_thread_cache() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"data").unwrap();
        let backend = LocalBackend::open(LocalConfig::new(dir.path())).unwrap();
        let (file, _) = backend.root().lookup(&Cred::root(), b"f").await.unwrap();
        let into = into(Backpressure::default());
        let read = file.read(None, 0, 4, &into);
        assert!(size_of_val(&*read) <= AT_HAND, "{}", size_of_val(&*read));
    }
}
