//! Safe wrappers of the system calls of `fanotify(7)`.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::proc_path::ProcPath;
use super::sys::{last_error, name_to_handle};
use crate::error::{VfsError, VfsResult};
use crate::external_change::Change;
use crate::types::Action;

const CHANGES: u64 = libc::FAN_MODIFY | libc::FAN_ATTRIB;
const FILE: u64 = CHANGES | libc::FAN_DELETE_SELF | libc::FAN_MOVE_SELF;
const DIR: u64 = CHANGES
    | libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_RENAME
    | libc::FAN_EVENT_ON_CHILD
    | libc::FAN_ONDIR;

const METADATA: usize = 24;
const INFO_HEADER: usize = 4;
const INFO_FID: u8 = 1;
const INFO_DFID_NAME: u8 = 2;
const INFO_DFID: u8 = 3;
const INFO_OLD_DFID_NAME: u8 = 10;
const INFO_NEW_DFID_NAME: u8 = 12;

/// The identity of an inode in events: its file system, and its handle there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    fsid: [u8; 8],
    kind: i32,
    bytes: Vec<u8>,
}

/// Creates a group that reports names and handles.
pub(crate) fn group() -> VfsResult<OwnedFd> {
    let flags = libc::FAN_CLOEXEC
        | libc::FAN_CLASS_NOTIF
        | libc::FAN_REPORT_FID
        | libc::FAN_REPORT_DIR_FID
        | libc::FAN_REPORT_NAME;
    // SAFETY: two numbers; the answer is a descriptor or an error.
    let fd = unsafe { libc::fanotify_init(flags, 0) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The identity of an open file in events.
pub(crate) fn subject(fd: BorrowedFd<'_>) -> VfsResult<Subject> {
    let handle = name_to_handle(fd)?;
    let mut fs = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the call fills a `struct statfs`, for which there is room.
    if unsafe { libc::fstatfs(fd.as_raw_fd(), fs.as_mut_ptr()) } != 0 {
        return Err(last_error());
    }
    // SAFETY: all bytes were set to zero, which every field may be, and the call has filled them.
    let fs = unsafe { fs.assume_init() };
    // SAFETY: `fsid_t` consists of two words of 32 bits.
    let fsid: [u8; 8] = unsafe { std::mem::transmute(fs.f_fsid) };
    Ok(Subject { fsid, kind: handle.kind, bytes: handle.bytes })
}

fn set(group: BorrowedFd<'_>, fd: BorrowedFd<'_>, flags: u32, mask: u64) -> VfsResult<()> {
    let path = ProcPath::of(fd);
    let path = std::ffi::CString::new(path.bytes()).map_err(|_| VfsError::Invalid)?;
    // SAFETY: the path is a C string that outlives the call.
    let answer = unsafe {
        libc::fanotify_mark(group.as_raw_fd(), flags, mask, libc::AT_FDCWD, path.as_ptr())
    };
    if answer == 0 { Ok(()) } else { Err(last_error()) }
}

fn mask(is_dir: bool) -> u64 {
    if is_dir { DIR } else { FILE }
}

/// Starts reporting events of this inode.
pub(crate) fn mark(group: BorrowedFd<'_>, fd: BorrowedFd<'_>, is_dir: bool) -> VfsResult<()> {
    set(group, fd, libc::FAN_MARK_ADD, mask(is_dir))
}

/// Stops reporting events of this inode.
pub(crate) fn unmark(group: BorrowedFd<'_>, fd: BorrowedFd<'_>, is_dir: bool) -> VfsResult<()> {
    set(group, fd, libc::FAN_MARK_REMOVE, mask(is_dir))
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    mask: u64,
    /// True if this process made the change.
    pub(crate) is_own: bool,
    /// True if the kernel has lost events.
    pub(crate) overflow: bool,
    /// For each record: its type, the inode, and a name in it.
    records: Vec<(u8, Subject, Vec<u8>)>,
}

/// Waits for events and reads them.
pub(crate) fn read(group: BorrowedFd<'_>, room: &mut [u8]) -> VfsResult<Vec<Seen>> {
    loop {
        match rustix::io::read(group, &mut *room) {
            Ok(n) => return Ok(parse(&room[..n], std::process::id())),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|b| u32::from_ne_bytes(*b))
}

/// Parses events; an invalid one ends the list.
fn parse(mut bytes: &[u8], me: u32) -> Vec<Seen> {
    let mut out = Vec::new();
    while let Some(event) = word(bytes, 0)
        .and_then(|len| usize::try_from(len).ok())
        .filter(|len| *len >= METADATA)
        .and_then(|len| bytes.split_at_checked(len))
    {
        let (event, rest) = event;
        bytes = rest;
        let mask = event[8..].first_chunk::<8>().map_or(0, |b| u64::from_ne_bytes(*b));
        let from = usize::from(u16::from_ne_bytes([event[6], event[7]]));
        let mut seen = Seen {
            mask,
            is_own: word(event, 20) == Some(me),
            overflow: mask & libc::FAN_Q_OVERFLOW != 0,
            records: Vec::new(),
        };
        let mut infos = event.get(from..).unwrap_or_default();
        while infos.len() >= INFO_HEADER {
            let len = usize::from(u16::from_ne_bytes([infos[2], infos[3]]));
            let Some((info, rest)) = infos.split_at_checked(len) else { break };
            if len < INFO_HEADER {
                break;
            }
            seen.records.extend(record(info));
            infos = rest;
        }
        out.push(seen);
    }
    out
}

fn record(info: &[u8]) -> Option<(u8, Subject, Vec<u8>)> {
    let kind = info[0];
    if !matches!(
        kind,
        INFO_FID | INFO_DFID_NAME | INFO_DFID | INFO_OLD_DFID_NAME | INFO_NEW_DFID_NAME
    ) {
        return None;
    }
    let fsid = *info.get(INFO_HEADER..)?.first_chunk::<8>()?;
    let len = usize::try_from(word(info, 12)?).ok()?;
    let handle = info.get(20..20_usize.checked_add(len)?)?.to_vec();
    let name = info.get(20 + len..)?.split(|b| *b == 0).next().unwrap_or_default().to_vec();
    let subject = Subject { fsid, kind: word(info, 16)?.cast_signed(), bytes: handle };
    Some((kind, subject, name))
}

impl Seen {
    /// The changed inodes with their changes.
    pub(crate) fn changes(&self) -> Vec<(&Subject, Change)> {
        let mut out = Vec::new();
        let is_dir = self.mask & libc::FAN_ONDIR != 0;
        let data = self.mask & libc::FAN_MODIFY != 0;
        let name =
            |action, name: &Vec<u8>| Change::Name { action, name: name.clone(), is_dir, data };
        let within = |kind| {
            let mut of_kind = self.records.iter().filter(move |r| r.0 == kind);
            of_kind.next().map(|(_, dir, name)| (dir, name))
        };
        if self.mask & libc::FAN_RENAME != 0 {
            let (old, new) = (within(INFO_OLD_DFID_NAME), within(INFO_NEW_DFID_NAME));
            let inside = old.zip(new).is_some_and(|(o, n)| o.0 == n.0);
            let (gone, come) = match inside {
                true => (Action::RenamedOld, Action::RenamedNew),
                false => (Action::Removed, Action::Added),
            };
            out.extend(old.map(|(dir, n)| (dir, name(gone, n))));
            out.extend(new.map(|(dir, n)| (dir, name(come, n))));
        }
        let happened = [
            (libc::FAN_CREATE, Action::Added),
            (CHANGES, Action::Modified),
            (libc::FAN_DELETE, Action::Removed),
        ];
        if let Some((dir, n)) = within(INFO_DFID_NAME).filter(|(_, n)| *n != b".") {
            let of = happened.iter().filter(|(bits, _)| self.mask & bits != 0);
            out.extend(of.map(|(_, action)| (dir, name(*action, n))));
        }
        if let Some((file, _)) = within(INFO_FID) {
            out.push((file, if data { Change::Data } else { Change::Attributes }));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(kind: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
        let len = u16::try_from(20 + handle.len() + name.len()).unwrap();
        let mut out = vec![kind, 0];
        out.extend(len.to_ne_bytes());
        out.extend([7; 8]);
        out.extend(u32::try_from(handle.len()).unwrap().to_ne_bytes());
        out.extend(1_i32.to_ne_bytes());
        out.extend(handle);
        out.extend(name);
        out
    }

    fn event(mask: u64, pid: u32, infos: &[Vec<u8>]) -> Vec<u8> {
        let infos = infos.concat();
        let mut out = u32::try_from(METADATA + infos.len()).unwrap().to_ne_bytes().to_vec();
        out.extend([3, 0, 24, 0]);
        out.extend(mask.to_ne_bytes());
        out.extend((-1_i32).to_ne_bytes());
        out.extend(pid.to_ne_bytes());
        out.extend(infos);
        out
    }

    #[test]
    fn events_are_distinguished() {
        let d = info(INFO_DFID_NAME, b"dddd", b"x\0\0\0");
        let f = info(INFO_FID, b"ffff", b"");
        let both = event(libc::FAN_MODIFY, 9, &[d, f]);
        let mine = event(libc::FAN_CREATE, 5, &[info(INFO_DFID_NAME, b"dddd", b"x\0")]);
        let seen = parse(&[both, mine].concat(), 5);
        assert_eq!((seen.len(), seen[0].is_own, seen[1].is_own), (2, false, true));
        let changes = seen[0].changes();
        let change = Change::Name {
            action: Action::Modified,
            name: b"x".to_vec(),
            is_dir: false,
            data: true,
        };
        assert_eq!((changes[0].0.bytes.as_slice(), &changes[0].1), (&b"dddd"[..], &change));
        assert_eq!((changes[1].0.bytes.as_slice(), &changes[1].1), (&b"ffff"[..], &Change::Data));
    }

    #[test]
    fn rename_yields_pair_or_two_changes() {
        for (to, want) in [
            (b"aaaa", [Action::RenamedOld, Action::RenamedNew]),
            (b"bbbb", [Action::Removed, Action::Added]),
        ] {
            let infos =
                [info(INFO_OLD_DFID_NAME, b"aaaa", b"x\0"), info(INFO_NEW_DFID_NAME, to, b"y\0")];
            let seen = parse(&event(libc::FAN_RENAME, 9, &infos), 5);
            let told: Vec<Action> = seen[0]
                .changes()
                .iter()
                .map(|(_, c)| match c {
                    Change::Name { action, .. } => *action,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(told, want);
        }
    }

    #[test]
    fn truncated_event_is_ignored() {
        let whole = event(libc::FAN_CREATE, 9, &[info(INFO_DFID_NAME, b"dddd", b"x\0")]);
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut], 5).is_empty(), "{cut}");
        }
        let mut long = whole;
        long[METADATA + 12] = 0xff;
        assert!(parse(&long, 5)[0].changes().is_empty(), "a handle beyond its record");
    }
}
