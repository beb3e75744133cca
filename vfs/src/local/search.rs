//! Finds a file by its inode number where the kernel does not open handles for the process.
//!
//! *Operation.* One walk through the share notes the directory of each inode number; a search opens that directory and looks for
//! the number there. A file that was moved since is found by the next walk. Files in use need no search: their records are found by
//! handle. A handle therefore survives restart and rename, and costs one walk after a restart.
//!
//! *Memory.* 16 bytes for each file and a name for each directory, up to [`SCAN_MAX`] files; files beyond that number are not
//! found.
//!
//! *Errors.* [`VfsError::Stale`] for a file outside the share, [`VfsError::Resources`] when no descriptor is free for the search.
//! Walks are at least [`PAUSE`] apart, so that clients with handles of removed files cannot keep the disk busy; a file that was
//! moved on the host within that time may be reported stale too early.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mutex::locked;
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags};

use crate::engine::limits::{LISTING, SCAN_MAX};
use crate::error::{VfsError, VfsResult};
use crate::types::Handle;

use super::{Volume, handle, stat};

/// Least time between two walks.
const PAUSE: Duration = Duration::from_secs(10);

/// Marks the root, which has no parent directory.
const TOP: u32 = u32::MAX;

#[derive(Default)]
pub(super) struct Search(Mutex<Index>);

#[derive(Default)]
struct Index {
    dirs: Vec<Dir>,
    /// Inode numbers with their directories, sorted.
    places: Vec<(u64, u32)>,
    walked: Option<Instant>,
}

struct Dir {
    above: u32,
    name: Box<[u8]>,
}

impl Index {
    /// Returns the path of a directory below the root, for one system call.
    fn path(&self, dir: u32) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = dir;
        while let Some(d) = self.dirs.get(at as usize) {
            names.push(&d.name[..]);
            at = d.above;
        }
        names.reverse();
        let path = names.join(&b'/');
        if path.is_empty() { b".".to_vec() } else { path }
    }

    fn dirs_of(&self, ino: u64) -> impl Iterator<Item = u32> {
        let from = self.places.partition_point(|p| p.0 < ino);
        self.places[from..].iter().take_while(move |p| p.0 == ino).map(|p| p.1)
    }
}

/// Opens a directory below the root for listing.
fn open_below(root: BorrowedFd<'_>, path: &[u8]) -> VfsResult<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), within)?)
}

/// Turns a failed open into `None`, except when no descriptor was free: the file that could not be opened may be the one searched
/// for.
fn if_there<T>(opened: VfsResult<T>) -> VfsResult<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(VfsError::Resources) => Err(VfsError::Resources),
        Err(_) => Ok(None),
    }
}

impl Volume {
    pub(super) fn find_by_number(&self, ino: u64, wanted: &Handle) -> VfsResult<OwnedFd> {
        let mut index = locked(&self.search.0);
        if let Some(fd) = self.look(&index, ino, wanted)? {
            return Ok(fd);
        }
        if index.walked.is_none_or(|t| t.elapsed() > PAUSE) {
            *index = self.walk()?;
            if let Some(fd) = self.look(&index, ino, wanted)? {
                return Ok(fd);
            }
        }
        Err(VfsError::Stale)
    }

    /// Searches the directories that contained the number at the last walk.
    fn look(&self, index: &Index, ino: u64, wanted: &Handle) -> VfsResult<Option<OwnedFd>> {
        for dir in index.dirs_of(ino) {
            let path = index.path(dir);
            let Some(dir) = if_there(open_below(self.root.as_fd(), &path))? else { continue };
            let mut room: Vec<u8> = Vec::with_capacity(LISTING);
            let mut raw = RawDir::new(&dir, room.spare_capacity_mut());
            while let Some(Ok(entry)) = raw.next() {
                if entry.ino() != ino {
                    continue;
                }
                let its = self.open_with_handle(dir.as_fd(), entry.file_name());
                if let Some((fd, its)) = if_there(its)?
                    && its == *wanted
                {
                    return Ok(Some(fd));
                }
            }
        }
        Ok(None)
    }

    /// Opens the entry of this name and returns its handle with it.
    fn open_with_handle(
        &self,
        dir: BorrowedFd<'_>,
        name: &std::ffi::CStr,
    ) -> VfsResult<(OwnedFd, Handle)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let stat = stat::of_fd(fd.as_fd())?;
        self.same_mount(&stat)?;
        let its = handle::make(fd.as_fd(), &stat, self.tag, self.handles)?;
        Ok((fd, its))
    }

    fn walk(&self) -> VfsResult<Index> {
        let mut index = Index::default();
        let mut next = TOP;
        loop {
            if let Some(dir) = if_there(open_below(self.root.as_fd(), &index.path(next)))? {
                list(&dir, next, &mut index);
            }
            next = next.wrapping_add(1);
            if next as usize >= index.dirs.len() {
                break;
            }
        }
        if index.places.len() >= SCAN_MAX {
            tracing::warn!(
                files = SCAN_MAX,
                "share too large to find every file by its inode number"
            );
        }
        index.places.sort_unstable();
        index.walked = Some(Instant::now());
        Ok(index)
    }
}

fn list(dir: &OwnedFd, number: u32, index: &mut Index) {
    let mut room: Vec<u8> = Vec::with_capacity(LISTING);
    let mut raw = RawDir::new(dir, room.spare_capacity_mut());
    while let Some(Ok(entry)) = raw.next() {
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if index.places.len() >= SCAN_MAX {
            return;
        }
        index.places.push((entry.ino(), number));
        if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            index.dirs.push(Dir { above: number, name: name.into() });
        }
    }
}
