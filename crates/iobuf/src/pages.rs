//! Pages of a file on their way to a socket, which the CPU does not copy: a pipe holds references to them (`splice`).
//!
//! *Operation.* [`PagesMut::fill`] takes the pages of a part of a file into a pipe, so that their number of bytes is known before
//! anything is promised to a peer; [`Pages::send`] moves them on. As with the kernel's own NFS server, bytes that somebody writes
//! to the file meanwhile may be seen, and bytes that are cut off are the old ones or zeros, but never others and never fewer.
//!
//! *Memory.* A page that is referred to cannot be reclaimed. So whoever sends pages pays with buffers of the pool as for a copy of
//! them: they are taken, and not used. A pipe holds 1 MiB. Pipes are kept for later; at most [`PIPES_MAX`] are made, each two
//! descriptors.
//!
//! *Errors.* Those of the file when it is filled, of the socket when it is sent. No pipe: [`PagesMut::take`] says `None`, and the
//! data is to be copied.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::BufMut;

/// Most bytes of one [`Pages`].
pub const PAGES_MAX: usize = 8 << 20;
/// Pipes of this process, those included that are kept for later.
pub const PIPES_MAX: usize = 256;
/// Bytes of a pipe: as many as an ordinary user may ask for by default (`fs.pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;

static IDLE: Mutex<Vec<Pipe>> = Mutex::new(Vec::new());
static PIPES: AtomicUsize = AtomicUsize::new(0);
static SENT: AtomicU64 = AtomicU64::new(0);

/// Bytes that left as pages since the process began.
pub fn paged_bytes() -> u64 {
    SENT.load(Ordering::Relaxed)
}

fn idle() -> MutexGuard<'static, Vec<Pipe>> {
    // A list is whole at every step.
    locked(&IDLE)
}

#[derive(Debug)]
struct Pipe {
    from: OwnedFd,
    to: OwnedFd,
}

impl Pipe {
    fn new() -> Option<Self> {
        let more = |n: usize| (n < PIPES_MAX).then_some(n + 1);
        PIPES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let made = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok();
        let Some((from, to)) = made else {
            PIPES.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let pipe = Self { from, to };
        // Where an ordinary user has many pipes already, the kernel makes none larger.
        let size = fcntl_setpipe_size(&pipe.to, PIPE_BYTES).ok()?;
        (size >= PIPE_BYTES).then_some(pipe)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        PIPES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A pipe and how many bytes were taken into it.
#[derive(Debug)]
struct Part {
    pipe: Pipe,
    len: usize,
}

impl Part {
    /// As many as fit and are there. An error only where there are none.
    fn fill(&mut self, file: BorrowedFd<'_>, at: u64, count: usize) -> io::Result<()> {
        while self.len < count {
            let mut from = at + self.len as u64;
            let left = count - self.len;
            match splice(file, Some(&mut from), &self.pipe.to, None, left, SpliceFlags::NONBLOCK) {
                Ok(0) => break,
                Ok(n) => self.len += n,
                Err(Errno::INTR) => {}
                Err(e) if self.len == 0 => return Err(e.into()),
                // Full, or an error that comes again with the next read; what was taken is good.
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// Pages that are being taken.
#[derive(Debug)]
pub struct PagesMut {
    parts: Vec<Part>,
    len: usize,
}

impl PagesMut {
    /// Room for `count` bytes, at most [`PAGES_MAX`], if they begin where a page does.
    pub fn take(count: usize) -> Option<Self> {
        let wanted = count.min(PAGES_MAX).div_ceil(PIPE_BYTES);
        let mut pipes = {
            let mut idle = idle();
            let kept = idle.len().saturating_sub(wanted);
            idle.split_off(kept)
        };
        while pipes.len() < wanted {
            let Some(pipe) = Pipe::new() else {
                idle().append(&mut pipes);
                return None;
            };
            pipes.push(pipe);
        }
        let parts = pipes.into_iter().map(|pipe| Part { pipe, len: 0 }).collect();
        Some(Self { parts, len: 0 })
    }

    /// Takes the pages of `count` bytes of `file` from `at` on, or of as many as it has and fit. Waits for storage where they are
    /// not in memory.
    pub fn fill(&mut self, file: BorrowedFd<'_>, at: u64, count: usize) -> io::Result<()> {
        for part in &mut self.parts {
            let wanted = PIPE_BYTES.min(count - self.len);
            match part.fill(file, at + self.len as u64, wanted) {
                Err(e) if self.len == 0 => return Err(e),
                _ => self.len += part.len,
            }
            if part.len < wanted {
                break;
            }
        }
        Ok(())
    }

    /// Bytes that were taken.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing was taken.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// To be sent; `paid` is kept until then.
    pub fn freeze(self, paid: Vec<BufMut>) -> Pages {
        let Self { parts, len } = self;
        Pages(Arc::new(Held { parts, len, left: AtomicUsize::new(len), _paid: paid }))
    }
}

/// Pages that can be sent, once. Clones are the same pages.
#[derive(Clone, Debug)]
pub struct Pages(Arc<Held>);

#[derive(Debug)]
struct Held {
    parts: Vec<Part>,
    len: usize,
    left: AtomicUsize,
    _paid: Vec<BufMut>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if *self.left.get_mut() == 0 {
            idle().extend(self.parts.drain(..).map(|part| part.pipe));
        }
    }
}

impl PartialEq for Pages {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Pages {}

impl Pages {
    /// Bytes in all, sent or not.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Bytes that were not sent.
    pub fn left(&self) -> usize {
        self.0.left.load(Ordering::Relaxed)
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Moves bytes that were not sent yet to a socket, as many as it takes at once. `more`: others follow at once. An error when
    /// all were sent, or when the kernel has lost them: whoever promised them has to end the connection.
    pub fn send(&self, socket: BorrowedFd<'_>, more: bool) -> io::Result<usize> {
        let held = &*self.0;
        let (left, gone) = (self.left(), io::ErrorKind::UnexpectedEof);
        let (part, here) = held.next(left).ok_or(gone)?;
        let flags = if more || here < left { SpliceFlags::MORE } else { SpliceFlags::empty() };
        match splice(&part.pipe.from, None, socket, None, here, flags)? {
            0 => Err(gone.into()),
            n => {
                held.left.fetch_sub(n, Ordering::Relaxed);
                SENT.fetch_add(n as u64, Ordering::Relaxed);
                Ok(n)
            }
        }
    }
}

impl Held {
    /// Where the first of `left` bytes is, and how many of them are there.
    fn next(&self, left: usize) -> Option<(&Part, usize)> {
        let mut sent = self.len - left;
        for part in &self.parts {
            if sent < part.len {
                return Some((part, part.len - sent));
            }
            sent -= part.len;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn bytes(n: usize) -> Vec<u8> {
        (0..n).map(|i| u8::try_from(i / 7 % 251).unwrap()).collect()
    }

    /// All of them, through a socket that takes a part at a time.
    fn received(pages: &Pages) -> Vec<u8> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (mut got, mut room) = (Vec::new(), vec![0; 1 << 20]);
        let mut sent = 0;
        while sent < pages.len() {
            sent += pages.send(ours.as_fd(), false).unwrap();
            while got.len() < sent {
                let n = theirs.read(&mut room).unwrap();
                got.extend_from_slice(&room[..n]);
            }
        }
        got
    }

    fn taken(file: &File, at: u64, count: usize) -> Pages {
        let mut pages = PagesMut::take(count).unwrap();
        pages.fill(file.as_fd(), at, count).unwrap();
        pages.freeze(Vec::new())
    }

    #[test]
    fn what_is_taken_is_what_arrives() {
        let all = bytes(PAGES_MAX + 10_000);
        let file = file(&all);
        for (at, count) in
            [(0, PAGES_MAX), (4096, 100_000), (8192, PAGES_MAX), (4096, PIPE_BYTES + 1), (0, 1)]
        {
            let pages = taken(&file, at, count);
            let at = usize::try_from(at).unwrap();
            assert_eq!(pages.len(), count);
            assert!(received(&pages) == all[at..at + count], "{at} {count}");
            let (socket, _other) = UnixStream::pair().unwrap();
            let why = pages.send(socket.as_fd(), false).unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::UnexpectedEof, "they are sent once");
        }
        let end = taken(&file, PAGES_MAX as u64, PAGES_MAX);
        assert!(received(&end) == all[PAGES_MAX..], "to the end of the file");
        assert!(taken(&file, 1 << 30, 4096).is_empty());
    }

    #[test]
    fn what_was_taken_arrives_in_full_from_a_file_that_is_cut() {
        let all = bytes(300_000);
        let file = file(&all);
        let pages = taken(&file, 0, 300_000);
        file.set_len(5000).unwrap();
        let got = received(&pages);
        assert_eq!(got.len(), 300_000);
        assert!(got[..5000] == all[..5000]);
        // The rest of the page at the new end was wiped; others are as they were.
        assert!(got.iter().zip(&all).all(|(got, was)| got == was || *got == 0));
    }

    #[test]
    fn pages_that_were_not_sent_are_never_sent_for_others() {
        let old = file(&vec![1; 50_000]);
        drop(taken(&old, 0, 50_000));
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let part = taken(&old, 0, 50_000);
        part.send(ours.as_fd(), true).unwrap();
        drop(part);
        let new = file(&vec![2; 50_000]);
        for _ in 0..PIPES_MAX * 2 {
            assert!(received(&taken(&new, 0, 50_000)) == vec![2; 50_000]);
        }
    }

    #[test]
    fn what_cannot_be_spliced_is_an_error() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let mut pages = PagesMut::take(10).unwrap();
        assert!(pages.fill(socket.as_fd(), 0, 10).is_err());
    }
}
