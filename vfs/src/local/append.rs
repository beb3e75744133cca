//! Appends data to files.
//!
//! *Operation.* Each append opens a separate descriptor with `O_APPEND`: the kernel finds the end and writes there in one step,
//! also concurrently with programs on the host that do the same. Clients must not write to files that the host has made append-only
//! (`chattr +a`), so the file is also opened for ordinary writing. Appends of ours to one file are executed one after the other, so
//! that each stays contiguous whatever number of calls it takes, and so that one that leaves a hole before it, which the kernel
//! cannot do in one step, follows all others.
//!
//! *Memory.* Jobs own their buffers.
//!
//! *Errors.* As for any write; [`VfsError::Access`] if the offset is before the end, [`VfsError::Delay`] if it had to be the end
//! and is not.

use std::io;
use std::os::fd::AsFd;

use iobuf::Buf;
use mutex::locked;
use rustix::fs::{OFlags, SeekFrom};

use crate::engine::transfer::vectors;
use crate::error::{VfsError, VfsResult};
use crate::types::*;

use super::descriptors::Fd;
use super::held::DataFd;
use super::node::LocalNode;
use super::stat;
use crate::engine::far::Room;

/// An append request.
struct Addition {
    at: AppendAt,
    data: Vec<Buf>,
    /// The payload of the volume reserved for `data`.
    _room: Option<Room>,
    count: usize,
    stable: Stable,
    /// For appending at the end, and for the sync after an append at any position: opened before the write, it reports write-back
    /// errors.
    end: Fd,
    /// Writes at a position beyond the end. This is the file's shared descriptor, which reports write-back errors to COMMIT: it
    /// stays open meanwhile, and an append does not consume its errors.
    shared: DataFd,
}

impl LocalNode {
    pub(super) async fn do_append(
        &self,
        opener: Option<&Cred>,
        at: AppendAt,
        (data, room): (Vec<Buf>, Option<Room>),
        stable: Stable,
    ) -> VfsResult<Appended> {
        self.volume.writable()?;
        self.regular()?;
        // Read before the first byte is written: a later failure changes it.
        let verifier = self.volume.ledger.verifier();
        let count = data.iter().map(Buf::len).sum();
        // Both are opened by the process, before the thread switches to the caller.
        let shared = self.data_fd_soon(true).await?;
        let open = || self.reopen(OFlags::WRONLY | OFlags::APPEND);
        let end = self.volume.retried(|| self.volume.cache.with_room(open)).await.map(Fd::new)?;
        let addition = Addition { at, data, _room: room, count, stable, end, shared };
        let me = self.strong()?;
        let owner = opener.filter(|cred| self.volume.identity.differs(cred));
        let add = self.later_as(owner, move || me.add(&addition));
        let waits = stable != Stable::Unstable && !self.volume.in_memory;
        let added = match waits {
            false => self.volume.engine.run_in_turn(&self.writes, add).await,
            true => self.volume.engine.run_long(add).await,
        };
        if added.is_err() {
            self.changed();
        }
        let (at, n) = added?;
        let written = self.finish_write(opener, None, (n, count), stable, verifier)?;
        Ok(Appended { at, written })
    }

    /// Writes; returns the position and the number of bytes.
    fn add(&self, a: &Addition) -> VfsResult<(u64, usize)> {
        let turn = locked(&self.shared.appends);
        let placed = self.place(a);
        // The bytes are placed, so other appends may proceed while the device stores these, and share its work.
        drop(turn);
        let (at, n) = placed?;
        if a.stable != Stable::Unstable && n > 0 && !self.volume.in_memory {
            self.sync_addition(a)?;
        }
        Ok((at, n))
    }

    /// Writes the data at its position.
    fn place(&self, a: &Addition) -> VfsResult<(u64, usize)> {
        let size = stat::of_fd(self.fd())?.attr.size;
        let start = match a.at {
            AppendAt::End => size,
            AppendAt::Offset(at) if at < size => return Err(VfsError::Access),
            AppendAt::Exactly(at) if at != size => return Err(VfsError::Delay),
            AppendAt::Offset(at) | AppendAt::Exactly(at) => at,
        };
        if i64::try_from(start.saturating_add(a.count as u64)).is_err() {
            return Err(VfsError::TooBig);
        }
        if start > size {
            let n = self.write_rest(&a.shared, start, &a.data, (0, a.count), Stable::Unstable)?;
            return Ok((start, n));
        }
        let (mut at, mut n) = (start, 0);
        let mut done = Ok(());
        while n < a.count && done.is_ok() {
            match rustix::io::writev(&a.end, &vectors(&a.data, n)) {
                Ok(0) => break,
                Ok(more) => {
                    let now = rustix::fs::seek(&a.end, SeekFrom::Current(0))?;
                    if n == 0 {
                        at = now.saturating_sub(more as u64);
                    }
                    n += more;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => done = Err(self.write_failed(e.into())),
            }
        }
        if a.stable == Stable::Unstable {
            self.note_unsynced();
        }
        match done {
            Err(e) if n == 0 => Err(e),
            _ => Ok((at, n)),
        }
    }

    fn sync_addition(&self, a: &Addition) -> VfsResult<()> {
        loop {
            match self.volume.calls.fsync(a.end.as_fd()) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map_err(|e| self.failed(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::backend::Backend;
    use crate::local::{LocalBackend, LocalConfig};

    /// A program on the host and a client append to one file.
    #[tokio::test]
    async fn host_and_client_append_concurrently() {
        const EACH: usize = 500;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"").unwrap();
        let backend = LocalBackend::open(LocalConfig::new(dir.path())).unwrap();
        let (f, _) = backend.root().lookup(&Cred::root(), b"f").await.unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let host =
            std::thread::spawn(move || (0..EACH).for_each(|_| file.write_all(b"host").unwrap()));
        let mut places = Vec::new();
        for _ in 0..EACH {
            let data = vec![Buf::from(b"smb!".to_vec())];
            let done = f.append(None, AppendAt::End, data, Stable::Unstable).await.unwrap();
            places.push(usize::try_from(done.at).unwrap());
        }
        host.join().unwrap();
        let all = std::fs::read(&path).unwrap();
        assert!(places.iter().all(|at| all[*at..].starts_with(b"smb!")));
        let count = |what: &[u8]| all.chunks(4).filter(|c| *c == what).count();
        assert_eq!((count(b"host"), count(b"smb!"), all.len()), (EACH, EACH, 8 * EACH));
    }
}
