//! Users of the host, asked of its name service.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use crate::Cred;

/// Bytes for one entry at most; a group with thousands of members is not in the entry of a user.
const ENTRY_MAX: usize = 1 << 20;
/// Groups of one user at most.
const GROUPS_MAX: usize = 65_536;

/// Who the host's user of this name is, with all groups; `None` when there is none, or the name service does not answer. May
/// wait for a directory server.
pub fn by_name(name: &str) -> Option<Cred> {
    let name = CString::new(name).ok()?;
    let mut space = vec![0 as libc::c_char; 4096];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found: *mut libc::passwd = ptr::null_mut();
        // SAFETY: all pointers are valid for the call; `space` has the length that is told.
        let rc = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                space.as_mut_ptr(),
                space.len(),
                &raw mut found,
            )
        };
        if rc == libc::ERANGE && space.len() < ENTRY_MAX {
            space.resize(space.len() * 4, 0);
            continue;
        }
        if rc != 0 || found.is_null() {
            return None;
        }
        // SAFETY: a result that is not null points to the entry, which the call has filled.
        let (uid, gid) = unsafe { ((*found).pw_uid, (*found).pw_gid) };
        return Some(Cred { uid, gid, groups: groups(&name, gid) });
    }
}

/// The host's name of a user. May wait for a directory server.
pub fn name_of_uid(uid: u32) -> Option<String> {
    named(|space| {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found: *mut libc::passwd = ptr::null_mut();
        // SAFETY: all pointers are valid for the call; `space` has the length that is told.
        let rc = unsafe {
            libc::getpwuid_r(
                uid,
                entry.as_mut_ptr(),
                space.as_mut_ptr(),
                space.len(),
                &raw mut found,
            )
        };
        // SAFETY: a result that is not null points to the entry, which the call has filled.
        let name = (!found.is_null()).then(|| unsafe { (*found).pw_name.cast_const() });
        (rc, name)
    })
}

/// The host's name of a group. May wait for a directory server.
pub fn name_of_gid(gid: u32) -> Option<String> {
    named(|space| {
        let mut entry = MaybeUninit::<libc::group>::uninit();
        let mut found: *mut libc::group = ptr::null_mut();
        // SAFETY: all pointers are valid for the call; `space` has the length that is told.
        let rc = unsafe {
            libc::getgrgid_r(
                gid,
                entry.as_mut_ptr(),
                space.as_mut_ptr(),
                space.len(),
                &raw mut found,
            )
        };
        // SAFETY: a result that is not null points to the entry, which the call has filled.
        let name = (!found.is_null()).then(|| unsafe { (*found).gr_name.cast_const() });
        (rc, name)
    })
}

/// Asks with more and more space. The name that `ask` gives lies in the space, or is null.
fn named(
    ask: impl Fn(&mut [libc::c_char]) -> (libc::c_int, Option<*const libc::c_char>),
) -> Option<String> {
    let mut space = vec![0 as libc::c_char; 4096];
    loop {
        match ask(&mut space) {
            (libc::ERANGE, _) if space.len() < ENTRY_MAX => space.resize(space.len() * 4, 0),
            (0, Some(name)) if !name.is_null() => {
                // SAFETY: the name service ends its names with zero, inside the space, which lives until the end.
                let name = unsafe { CStr::from_ptr(name) };
                return name.to_str().ok().map(str::to_owned);
            }
            _ => return None,
        }
    }
}

fn groups(name: &CStr, gid: libc::gid_t) -> Arc<[u32]> {
    let mut all: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let Ok(mut n) = libc::c_int::try_from(all.len()) else { return Arc::new([]) };
        // SAFETY: the list has room for the number that is told.
        let rc = unsafe { libc::getgrouplist(name.as_ptr(), gid, all.as_mut_ptr(), &raw mut n) };
        let n = usize::try_from(n).unwrap_or(0);
        if rc >= 0 {
            all.truncate(n);
            return all.into_iter().filter(|g| *g != gid).collect();
        }
        if all.len() >= GROUPS_MAX {
            return Arc::new([]);
        }
        all.resize(n.clamp(all.len() * 2, GROUPS_MAX), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superuser_is_everywhere() {
        let root = by_name("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(!root.groups.contains(&0), "the primary group is not listed again");
        assert!(by_name("nobody-has-this-name").is_none());
        assert!(by_name("nul\0inside").is_none());
        assert_eq!(name_of_uid(0).as_deref(), Some("root"));
        assert_eq!(name_of_gid(0).as_deref(), Some("root"));
        assert_eq!(name_of_uid(u32::MAX - 7), None);
    }
}
