//! Pages of a file on their way to a socket without a CPU copy: a pipe holds references to them (`splice`).
//!
//! *Operation.* [`PagesMut::fill`] moves the pages of a part of a file into a pipe, so that the number of bytes is known before the
//! reply promises it to the peer; [`Pages::send`] moves them on. As with the kernel's NFS server, concurrent writes to the file may
//! be visible. Bytes that are cut off meanwhile are sent as the old bytes or as zeros, and the number of bytes never changes.
//!
//! *Memory.* Referenced pages cannot be reclaimed, so each sender reserves pool buffers as if it copied them, without using the
//! buffers. A pipe holds 1 MiB. Pipes are reused; at most [`PIPES_MAX`] exist, or as many
//! as [`limit_pipes`] says, with two descriptors each.
//!
//! *Errors.* Errors of the file when filling, of the socket when sending. If no pipe is available, [`PagesMut::take`] returns
//! `None` and the data must be copied.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mutex::locked;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::BufMut;

/// Maximum size of one [`Pages`], in bytes.
pub const PAGES_MAX: usize = 8 << 20;
/// Maximum number of pipes in this process, including idle ones.
pub const PIPES_MAX: usize = 256;
/// Capacity of a pipe in bytes: the default maximum for ordinary users (`fs.pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;

static IDLE: Mutex<Vec<Pipe>> = Mutex::new(Vec::new());
static PIPES: AtomicUsize = AtomicUsize::new(0);
/// How many there may be.
static MOST: AtomicUsize = AtomicUsize::new(PIPES_MAX);
static SENT: AtomicU64 = AtomicU64::new(0);

/// Returns the number of bytes sent as pages since the process began.
pub fn paged_bytes() -> u64 {
    SENT.load(Ordering::Relaxed)
}

/// Makes no more pipes than this from now on, for a process that may open few files. Those that are there stay.
pub fn limit_pipes(most: usize) {
    MOST.store(most.min(PIPES_MAX), Ordering::Relaxed);
}

/// Pipes that there are, each of two descriptors.
pub fn pipes() -> usize {
    PIPES.load(Ordering::Relaxed)
}

fn idle() -> MutexGuard<'static, Vec<Pipe>> {
    // A list is consistent after every step.
    locked(&IDLE)
}

#[derive(Debug)]
struct Pipe {
    from: OwnedFd,
    to: OwnedFd,
}

impl Pipe {
    fn new() -> Option<Self> {
        let more = |n: usize| (n < MOST.load(Ordering::Relaxed)).then_some(n + 1);
        PIPES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let made = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok();
        let Some((from, to)) = made else {
            PIPES.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let pipe = Self { from, to };
        // The kernel refuses to enlarge pipes if an ordinary user already has many.
        let size = fcntl_setpipe_size(&pipe.to, PIPE_BYTES).ok()?;
        (size >= PIPE_BYTES).then_some(pipe)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        PIPES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A pipe and the number of bytes in it.
#[derive(Debug)]
struct Part {
    pipe: Pipe,
    len: usize,
}

impl Part {
    /// Moves as many bytes as fit and exist. Fails only if no byte was moved.
    fn fill(&mut self, file: BorrowedFd<'_>, at: u64, count: usize) -> io::Result<()> {
        while self.len < count {
            let mut from = at + self.len as u64;
            let left = count - self.len;
            match splice(file, Some(&mut from), &self.pipe.to, None, left, SpliceFlags::NONBLOCK) {
                Ok(0) => break,
                Ok(n) => self.len += n,
                Err(Errno::INTR) => {}
                Err(e) if self.len == 0 => return Err(e.into()),
                // The pipe is full, or an error occurred that the next read will meet again; the bytes so far are valid.
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// Pages that are being collected.
#[derive(Debug)]
pub struct PagesMut {
    parts: Vec<Part>,
    len: usize,
}

impl PagesMut {
    /// Reserves pipes for `count` bytes, at most [`PAGES_MAX`], if the part begins at a page boundary.
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

    /// Collects the pages of up to `count` bytes of `file` from offset `at`. Waits for storage if they are not in memory.
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

    /// Returns the number of bytes collected.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes the pages ready to send; keeps `paid` until then.
    pub fn freeze(self, paid: Vec<BufMut>) -> Pages {
        let Self { parts, len } = self;
        Pages(Arc::new(PipedPages { parts, len, left: AtomicUsize::new(len), _paid: paid }))
    }
}

/// Pages that can be sent once. Clones refer to the same pages.
#[derive(Clone, Debug)]
pub struct Pages(Arc<PipedPages>);

#[derive(Debug)]
struct PipedPages {
    parts: Vec<Part>,
    len: usize,
    left: AtomicUsize,
    _paid: Vec<BufMut>,
}

impl Drop for PipedPages {
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
    /// Returns the total number of bytes, sent or not.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns the number of bytes not yet sent.
    pub fn left(&self) -> usize {
        self.0.left.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Moves unsent bytes to a socket, as many as it accepts at once. `more`: further data follows immediately. Fails if all bytes
    /// were sent or the kernel has lost them; the caller must then end the connection, because the reply promised these bytes.
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

impl PipedPages {
    /// Returns the part with the first of `left` unsent bytes, and the number of those bytes in it.
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

    /// Receives all pages through a socket that accepts a part at a time.
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
    fn collected_pages_arrive_unchanged() {
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
    fn truncated_file_still_sends_full_length() {
        let all = bytes(300_000);
        let file = file(&all);
        let pages = taken(&file, 0, 300_000);
        file.set_len(5000).unwrap();
        let got = received(&pages);
        assert_eq!(got.len(), 300_000);
        assert!(got[..5000] == all[..5000]);
        // The rest of the page at the new end was cleared; other pages are unchanged.
        assert!(got.iter().zip(&all).all(|(got, was)| got == was || *got == 0));
    }

    #[test]
    fn unsent_pages_never_leak_to_others() {
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
    fn unspliceable_file_is_an_error() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let mut pages = PagesMut::take(10).unwrap();
        assert!(pages.fill(socket.as_fd(), 0, 10).is_err());
    }
}
