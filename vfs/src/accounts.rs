//! Users and groups of the host, from its name service, which may have to ask a directory server: every function here may wait.
//!
//! *Errors.* [`io::Error`] when the name service did not say whether the user or group exists: an unreachable directory server must
//! not look like a user without groups.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use libc::{c_char, c_int, group, passwd};

use crate::Cred;

/// Largest size of one entry in bytes; a group with thousands of members is not in the entry of a user.
const ENTRY_MAX: usize = 1 << 20;
/// Largest number of groups of one user.
const GROUPS_MAX: usize = 65_536;

/// Maps names of users and groups to numbers and back, so that every protocol shows and accepts the same names. Calls may wait.
pub trait Directory: Send + Sync + 'static {
    /// Returns the number of the user of this name.
    fn uid(&self, name: &str) -> Option<u32>;
    /// Returns the number of the group of this name.
    fn gid(&self, name: &str) -> Option<u32>;
    /// Returns the name of a user.
    fn user(&self, uid: u32) -> Option<String>;
    /// Returns the name of a group.
    fn group(&self, gid: u32) -> Option<String>;
    /// Returns whether a name means a group although a user has it as well: winbind shows groups as users of the same number, which
    /// never log on.
    fn is_group(&self, _name: &str) -> bool {
        false
    }
}

/// A directory without any names.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Directory for Nobody {
    fn uid(&self, _: &str) -> Option<u32> {
        None
    }
    fn gid(&self, _: &str) -> Option<u32> {
        None
    }
    fn user(&self, _: u32) -> Option<String> {
        None
    }
    fn group(&self, _: u32) -> Option<String> {
        None
    }
}

/// The directory of the host's users and groups.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl Directory for Host {
    fn uid(&self, name: &str) -> Option<u32> {
        uid_of(name).ok().flatten()
    }

    fn gid(&self, name: &str) -> Option<u32> {
        group_named(name, |group| Some(group.gr_gid)).ok().flatten()
    }

    fn user(&self, uid: u32) -> Option<String> {
        name_of(uid).ok().flatten()
    }

    fn group(&self, gid: u32) -> Option<String> {
        group_numbered(gid, |group| text(group.gr_name)).ok().flatten()
    }

    fn is_group(&self, name: &str) -> bool {
        let user = user_named(name, |user| (user.pw_uid, user.pw_gid)).ok().flatten();
        shows_group(user, self.gid(name), || is_local(name))
    }
}

/// Returns whether a user, of this number and primary group, only shows the group of its name. A user of the host's own files that
/// has the number of its private group is a user.
fn shows_group(
    user: Option<(u32, u32)>,
    group: Option<u32>,
    is_local: impl FnOnce() -> bool,
) -> bool {
    group.is_some_and(|gid| gid != 0 && user == Some((gid, gid))) && !is_local()
}

/// Returns whether the host's own file has a user of this name. If it cannot be read, every user is one of its own.
fn is_local(name: &str) -> bool {
    let is_of = |line: &[u8]| line.split(|c| *c == b':').next() == Some(name.as_bytes());
    std::fs::read("/etc/passwd").map_or(true, |all| all.split(|c| *c == b'\n').any(is_of))
}

/// Returns the number of the host's user of this name.
pub fn uid_of(name: &str) -> io::Result<Option<u32>> {
    user_named(name, |user| user.pw_uid)
}

/// Returns the name of the host's user of this number.
pub fn name_of(uid: u32) -> io::Result<Option<String>> {
    // SAFETY: `entry` gives pointers that are valid for the call, and the length of the space.
    let ask = |e, s, n, f| unsafe { libc::getpwuid_r(uid, e, s, n, f) };
    entry(ask, |user: &passwd| text(user.pw_name))
}

/// Returns the number of a group, and the names that the host's group database lists as its members. Users with this as their
/// primary group may be missing from that list.
pub fn members_of(name: &str) -> io::Result<Option<(u32, Vec<String>)>> {
    group_named(name, |group| Some((group.gr_gid, members(group))))
}

/// Like [`members_of`], by number.
pub fn members_of_gid(gid: u32) -> io::Result<Option<(u32, Vec<String>)>> {
    group_numbered(gid, |group| Some((group.gr_gid, members(group))))
}

fn group_named<T>(name: &str, take: impl Fn(&group) -> Option<T>) -> io::Result<Option<T>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    // SAFETY: `entry` gives pointers that are valid for the call, and the length of the space; the name ends with zero.
    let ask = |e, s, n, f| unsafe { libc::getgrnam_r(name.as_ptr(), e, s, n, f) };
    entry(ask, take)
}

fn group_numbered<T>(gid: u32, take: impl Fn(&group) -> Option<T>) -> io::Result<Option<T>> {
    // SAFETY: `entry` gives pointers that are valid for the call, and the length of the space.
    let ask = |e, s, n, f| unsafe { libc::getgrgid_r(gid, e, s, n, f) };
    entry(ask, take)
}

fn members(group: &group) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = group.gr_mem;
    // SAFETY: the list lies in the space of the entry, which lives, and ends with a null pointer; so does no name before it.
    while let Some(name) = unsafe { at.as_ref() }.filter(|name| !name.is_null()) {
        names.extend(text(*name));
        // SAFETY: this was not the null pointer at the end of the list, so another follows.
        at = unsafe { at.add(1) };
    }
    names
}

/// Returns the credentials of the host's user of this name, with all groups.
pub fn by_name(name: &str) -> io::Result<Option<Cred>> {
    let Some((uid, gid)) = user_named(name, |user| (user.pw_uid, user.pw_gid))? else {
        return Ok(None);
    };
    Ok(Some(Cred {
        uid,
        gid,
        groups: groups(&CString::new(name)?, gid)?,
        token: crate::Token::NONE,
    }))
}

fn user_named<T>(name: &str, take: impl Fn(&passwd) -> T) -> io::Result<Option<T>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    // SAFETY: `entry` gives pointers that are valid for the call, and the length of the space; the name ends with zero.
    let ask = |e, s, n, f| unsafe { libc::getpwnam_r(name.as_ptr(), e, s, n, f) };
    entry(ask, |user: &passwd| Some(take(user)))
}

/// Calls `ask` with larger and larger buffers, and lets `take` read the entry while it is valid.
fn entry<E, T>(
    ask: impl Fn(*mut E, *mut c_char, usize, *mut *mut E) -> c_int,
    take: impl Fn(&E) -> Option<T>,
) -> io::Result<Option<T>> {
    let mut space = vec![0 as c_char; 4096];
    loop {
        let mut entry = MaybeUninit::<E>::uninit();
        let mut found: *mut E = ptr::null_mut();
        match ask(entry.as_mut_ptr(), space.as_mut_ptr(), space.len(), &raw mut found) {
            libc::ERANGE if space.len() < ENTRY_MAX => space.resize(space.len() * 4, 0),
            // SAFETY: a result that is not null points to the entry, which the call has filled and which lives until the end.
            0 if !found.is_null() => return Ok(take(unsafe { &*found })),
            // getpwnam(3) reports a missing entry in any of these ways. It lists EBADF and EPERM too, but in this program those are
            // faults.
            0 | libc::ENOENT | libc::ESRCH => return Ok(None),
            fault => return Err(io::Error::from_raw_os_error(fault)),
        }
    }
}

/// Copies a name out of an entry that is still valid.
fn text(name: *const c_char) -> Option<String> {
    // SAFETY: the name service ends its names with zero, inside the space of the entry.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?;
    name.to_str().ok().map(str::to_owned)
}

fn groups(name: &CStr, gid: libc::gid_t) -> io::Result<Arc<[u32]>> {
    let too_many = || io::Error::from_raw_os_error(libc::E2BIG);
    let mut all: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut n = libc::c_int::try_from(all.len()).map_err(|_| too_many())?;
        // SAFETY: the list has room for the number that is told.
        let rc = unsafe { libc::getgrouplist(name.as_ptr(), gid, all.as_mut_ptr(), &raw mut n) };
        let n = usize::try_from(n).unwrap_or(0);
        if rc >= 0 {
            all.truncate(n);
            return Ok(all.into_iter().filter(|g| *g != gid).collect());
        }
        if all.len() >= GROUPS_MAX {
            return Err(too_many());
        }
        all.resize(n.clamp(all.len() * 2, GROUPS_MAX), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superuser_account_exists() {
        let root = by_name("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(!root.groups.contains(&0), "the primary group is not listed again");
        assert!(by_name("nobody-has-this-name").unwrap().is_none());
        assert!(by_name("nul\0inside").unwrap().is_none());
        assert_eq!((Host.uid("root"), Host.gid("root")), (Some(0), Some(0)));
        assert_eq!((Host.user(0), Host.group(0)), (Some("root".into()), Some("root".into())));
        let listed = std::fs::read_to_string("/etc/group").unwrap_or_default();
        for line in listed.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let &[name, _, gid, members] = fields.as_slice() else { continue };
            let wanted: Vec<&str> = members.split(',').filter(|m| !m.is_empty()).collect();
            let gid: u32 = gid.parse().unwrap();
            let (number, members) = members_of(name).unwrap().unwrap();
            assert_eq!((number, members), (gid, wanted.iter().map(|m| (*m).into()).collect()));
            assert!(members_of_gid(gid).unwrap().is_some());
        }
        assert!(members_of("nobody-has-this-name").unwrap().is_none());
        assert!(members_of_gid(u32::MAX - 7).unwrap().is_none());
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        for line in users.lines() {
            let name = line.split(':').next().unwrap();
            assert!(!Host.is_group(name), "{name}");
        }
        let nobody = "nobody-has-this-name";
        assert_eq!((Host.uid(nobody), Host.gid(nobody)), (None, None));
        assert_eq!((Host.user(u32::MAX - 7), Host.group(u32::MAX - 7)), (None, None));
    }

    #[test]
    fn user_of_name_service_may_show_a_group() {
        for (user, group, is_local, wanted) in [
            (Some((3001, 3001)), Some(3001), false, true),
            (Some((3001, 3001)), Some(3001), true, false),
            (Some((3001, 100)), Some(3001), false, false),
            (Some((3001, 3001)), Some(3002), false, false),
            (Some((3001, 3001)), None, false, false),
            (None, Some(3001), false, false),
            (Some((0, 0)), Some(0), false, false),
        ] {
            assert_eq!(shows_group(user, group, || is_local), wanted, "{user:?} {group:?}");
        }
    }

    #[test]
    fn name_service_failure_is_not_absence() {
        let answer = |code| entry(|_, _, _, _| code, |_: &group| Some(1)).map_err(|e| e.kind());
        for none in [0, libc::ENOENT, libc::ESRCH] {
            assert_eq!(answer(none), Ok(None));
        }
        for fault in [libc::EIO, libc::ECONNREFUSED, libc::EAGAIN, libc::EMFILE, libc::ERANGE] {
            assert!(answer(fault).is_err(), "{fault}");
        }
    }
}
