//! Handles of local files.
//!
//! *Operation.* If the process may use `open_by_handle_at` (`CAP_DAC_READ_SEARCH`), a handle contains the kernel's handle: it
//! survives restarts, renames and loss of caches, and is stale forever once the file is gone, because it includes the inode's
//! generation. Otherwise, and for file systems whose handles are too long, it contains the inode number with data that
//! distinguishes two uses of that number (the kernel's handle if available, else the birth time); [`super::search`] finds the file
//! again. File system clocks have ticks: a number is not released within the tick in which its file was born ([`young_for`]). If a
//! file system has no birth time either, a reused number denotes the same file to holders of its handle.
//!
//! Each handle has a tag of the file system and of the served folder ([`tag`]), so that a share that was given another volume or
//! folder does not accept old handles: neither as other files, nor as files that are no longer served.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::error::{VfsError, VfsResult};
use crate::fnv::fnv;
use crate::types::{Handle, Time};

use super::stat::Stat;
use super::sys;

const KERNEL: u8 = 1;
const SEARCH: u8 = 2;
const BIRTH: u8 = 3;

/// The form of a volume's handles, unless a single file needs another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Kernel handles, which the kernel opens.
    Kernel,
    /// Kernel handles, which are searched for.
    Search,
    /// Without kernel handles: by birth time.
    Birth,
}

impl Form {
    /// True if a volume of this form creates such handles: if this process does not find such a file, it is gone.
    pub(super) fn gives(self, handle: &Handle) -> bool {
        let form = match self {
            Self::Kernel => KERNEL,
            Self::Search => SEARCH,
            Self::Birth => BIRTH,
        };
        handle.as_bytes().first() == Some(&form)
    }
}

/// Longer than a tick of any file system clock, which is at most 10 ms.
const TICK: Duration = Duration::from_millis(20);

/// How long this file must be kept open so that no other file with its number can get an equal handle.
pub(super) fn young_for(handle: &Handle, now: impl FnOnce() -> Time) -> Option<Duration> {
    let (form, rest) = handle.as_bytes().split_first()?;
    let birth = rest.get(12..).filter(|_| *form == BIRTH)?;
    let (sec, nsec) = birth.split_first_chunk::<8>()?;
    let nsec = u32::from_be_bytes(nsec.try_into().ok()?);
    let now = now();
    let nanos = |sec: i64, nsec: u32| i128::from(sec) * 1_000_000_000 + i128::from(nsec);
    let age = nanos(now.sec, now.nsec) - nanos(i64::from_be_bytes(*sec), nsec);
    // A clock that was set back proves no age: a tick from now suffices.
    let age = Duration::from_nanos(u64::try_from(age).unwrap_or(0));
    TICK.checked_sub(age).filter(|left| !left.is_zero())
}

/// The tag of the served folder: the file system, the folder's inode number, and its birth time, so that a folder with a reused
/// number is different.
pub(super) fn tag(fsid: u64, root: &Stat) -> [u8; 4] {
    let mut identity = [0; 28];
    identity[..8].copy_from_slice(&fsid.to_be_bytes());
    identity[8..16].copy_from_slice(&root.ino.to_be_bytes());
    if let Some(birth) = root.attr.btime {
        identity[16..24].copy_from_slice(&birth.sec.to_be_bytes());
        identity[24..].copy_from_slice(&birth.nsec.to_be_bytes());
    }
    let [a, b, c, d, ..] = fnv(&identity).to_be_bytes();
    [a, b, c, d]
}

/// The tag of the file system without the folder, for handles stored on the volume.
pub(super) fn volume_tag(fsid: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = fsid.to_be_bytes();
    [a, b, c, d]
}

/// Replaces the tag `from` by `to`; handles with another tag are unchanged.
pub(super) fn retag(handle: &Handle, from: [u8; 4], to: [u8; 4]) -> Handle {
    let mut bytes = handle.as_bytes().to_vec();
    if let Some(tag) = bytes.get_mut(1..5).filter(|tag| **tag == from) {
        tag.copy_from_slice(&to);
    }
    // The length does not change.
    Handle::new(&bytes).unwrap_or_else(|| handle.clone())
}

/// The tag of a handle.
pub(super) fn tag_of(handle: &Handle) -> Option<[u8; 4]> {
    handle.as_bytes().get(1..)?.first_chunk().copied()
}

/// True if the handle has this tag.
pub(super) fn has_tag(handle: &Handle, tag: [u8; 4]) -> bool {
    tag_of(handle) == Some(tag)
}

/// The content of a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// The kernel opens it.
    Kernel { kind: i32, bytes: &'a [u8] },
    /// Must be searched for by this inode number.
    Search { ino: u64 },
}

/// Builds the handle of the open file `fd`.
pub(super) fn make(fd: BorrowedFd<'_>, stat: &Stat, tag: [u8; 4], form: Form) -> VfsResult<Handle> {
    let mut out = Vec::with_capacity(Handle::MAX);
    if form != Form::Birth
        && let Ok(h) = sys::name_to_handle(fd)
        && let Ok(kind) = u8::try_from(h.kind)
    {
        out.push(if form == Form::Kernel { KERNEL } else { SEARCH });
        out.extend(tag);
        if form == Form::Search {
            out.extend(stat.ino.to_be_bytes());
        }
        out.push(kind);
        out.extend(&h.bytes);
        if out.len() <= Handle::MAX {
            return Handle::new(&out).ok_or(VfsError::Io);
        }
        out.clear();
    }
    out.push(BIRTH);
    out.extend(tag);
    out.extend(stat.ino.to_be_bytes());
    let birth = stat.attr.btime.unwrap_or_default();
    out.extend(birth.sec.to_be_bytes());
    out.extend(birth.nsec.to_be_bytes());
    Handle::new(&out).ok_or(VfsError::Io)
}

/// Returns a digest of the kernel's handle in this one, which is the same in all shares; `None` if it has none.
pub(super) fn digest(handle: &Handle) -> Option<u64> {
    let (form, rest) = handle.as_bytes().split_first()?;
    let rest = rest.get(4..)?;
    match *form {
        KERNEL => Some(fnv(rest)),
        // Behind the inode number.
        SEARCH => rest.get(8..).map(fnv),
        _ => None,
    }
}

/// Parses a handle of this share and form.
pub(super) fn parse(handle: &Handle, tag: [u8; 4], form: Form) -> VfsResult<Parsed<'_>> {
    let (first, rest) = handle.as_bytes().split_first().ok_or(VfsError::BadHandle)?;
    let (its_tag, rest) = rest.split_first_chunk::<4>().ok_or(VfsError::BadHandle)?;
    if *its_tag != tag {
        return Err(VfsError::Stale);
    }
    match *first {
        KERNEL => {
            let (kind, bytes) = rest.split_first().ok_or(VfsError::BadHandle)?;
            // A handle from a run with more privileges than this one.
            if form != Form::Kernel {
                return Err(VfsError::Stale);
            }
            Ok(Parsed::Kernel { kind: i32::from(*kind), bytes })
        }
        SEARCH | BIRTH => {
            let (ino, _) = rest.split_first_chunk::<8>().ok_or(VfsError::BadHandle)?;
            Ok(Parsed::Search { ino: u64::from_be_bytes(*ino) })
        }
        _ => Err(VfsError::BadHandle),
    }
}
