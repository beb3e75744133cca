//! Handles of local files.
//!
//! *Operation.* Where the process may use `open_by_handle_at` (`CAP_DAC_READ_SEARCH`), a handle is the kernel's own: it
//! survives restart, rename and loss of caches, and is stale for ever once the file is gone, because it carries the
//! inode's generation. Elsewhere, and for file systems whose handles are too long, it is the inode number with whatever
//! tells two uses of that number apart (the kernel's handle if it gives one, else the time of birth); [`super::search`]
//! finds the file again. File systems count time by ticks: a number is not given back within the tick in which its file was born
//! ([`young_for`]). Where a file system knows no time of birth either, a number that comes back is the same file to those who have
//! its handle.
//!
//! Each carries a tag of the file system and of the folder that is served ([`tag`]), so that a share that was given another
//! volume, or another folder of the same one, does not answer handles of the old one: not with strangers, and not with files that
//! nobody serves any more.

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

/// What the handles of a volume are made of, where nothing forbids it for a single file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The kernel opens its own.
    Kernel,
    /// The kernel gives them, and they are searched for.
    Search,
    /// The kernel gives none.
    Birth,
}

impl Form {
    /// A volume of this form gives such handles: what they name, and this process does not find, is gone.
    pub(super) fn gives(self, handle: &Handle) -> bool {
        let form = match self {
            Self::Kernel => KERNEL,
            Self::Search => SEARCH,
            Self::Birth => BIRTH,
        };
        handle.as_bytes().first() == Some(&form)
    }
}

/// Longer than a tick of any clock that file systems take their times from, which is 10 ms at the most.
const TICK: Duration = Duration::from_millis(20);

/// For how long another file that gets the number of this one could get its handle, too: it is to be kept open for that time.
pub(super) fn young_for(handle: &Handle, now: impl FnOnce() -> Time) -> Option<Duration> {
    let (form, rest) = handle.as_bytes().split_first()?;
    let birth = rest.get(12..).filter(|_| *form == BIRTH)?;
    let (sec, nsec) = birth.split_first_chunk::<8>()?;
    let nsec = u32::from_be_bytes(nsec.try_into().ok()?);
    let now = now();
    let nanos = |sec: i64, nsec: u32| i128::from(sec) * 1_000_000_000 + i128::from(nsec);
    let age = nanos(now.sec, now.nsec) - nanos(i64::from_be_bytes(*sec), nsec);
    // A clock that was set back says nothing: a tick from now is enough.
    let age = Duration::from_nanos(u64::try_from(age).unwrap_or(0));
    TICK.checked_sub(age).filter(|left| !left.is_zero())
}

/// Names the folder that is served: the file system, the folder's inode number, and its time of birth, so that a folder that gets a
/// number which was another's is another one.
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

/// The tag of the file system alone, which handles on the volume carry.
pub(super) fn volume_tag(fsid: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = fsid.to_be_bytes();
    [a, b, c, d]
}

/// The handle with the tag `to` where it has the tag `from`; any other stays as it is.
pub(super) fn retag(handle: &Handle, from: [u8; 4], to: [u8; 4]) -> Handle {
    let mut bytes = handle.as_bytes().to_vec();
    if let Some(tag) = bytes.get_mut(1..5).filter(|tag| **tag == from) {
        tag.copy_from_slice(&to);
    }
    // It is as long as it was.
    Handle::new(&bytes).unwrap_or_else(|| handle.clone())
}

/// The tag of the folder that the handle is of.
pub(super) fn tag_of(handle: &Handle) -> Option<[u8; 4]> {
    handle.as_bytes().get(1..)?.first_chunk().copied()
}

/// The handle is of this folder.
pub(super) fn has_tag(handle: &Handle, tag: [u8; 4]) -> bool {
    tag_of(handle) == Some(tag)
}

/// What a handle says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// To be opened by the kernel.
    Kernel { kind: i32, bytes: &'a [u8] },
    /// To be searched for by this inode number.
    Search { ino: u64 },
}

/// The handle of the open file `fd`.
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

/// Takes a handle apart.
pub(super) fn parse(handle: &Handle, tag: [u8; 4], form: Form) -> VfsResult<Parsed<'_>> {
    let (first, rest) = handle.as_bytes().split_first().ok_or(VfsError::BadHandle)?;
    let (its_tag, rest) = rest.split_first_chunk::<4>().ok_or(VfsError::BadHandle)?;
    if *its_tag != tag {
        return Err(VfsError::Stale);
    }
    match *first {
        KERNEL => {
            let (kind, bytes) = rest.split_first().ok_or(VfsError::BadHandle)?;
            // A handle from a run with more rights than this one has.
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
