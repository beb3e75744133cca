//! Permission by mode bits (POSIX.1-2017 section 4.5), or by an access control list (RFC 8881 section 6.2.1.3).

use crate::acl::{Owner, mask};
use crate::error::{VfsError, VfsResult};
use crate::types::{Access, Cred, Kind, SetAttr, SetTime};

/// Read data, or list names.
pub(crate) const R: u32 = 4;
/// Write data, or change names.
pub(crate) const W: u32 = 2;
/// Execute, or look names up.
pub(crate) const X: u32 = 1;

/// Returns the bits of `R | W | X` that a caller has on a node of this kind, mode, owner and group.
pub(crate) fn rights(kind: Kind, mode: u32, uid: u32, gid: u32, cred: &Cred) -> u32 {
    if cred.uid == 0 {
        let runs = kind == Kind::Dir || mode & 0o111 != 0;
        return if runs { R | W | X } else { R | W };
    }
    let shift = if cred.uid == uid {
        6
    } else if cred.in_group(gid) {
        3
    } else {
        0
    };
    mode >> shift & 7
}

/// The requirements of an operation: rights of a list, and the mode bits that count if there is no list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// All of these rights.
    pub(crate) rights: u32,
    /// All of these bits.
    pub(crate) bits: u32,
}

/// Read data, or list names.
pub(crate) const READ: Need = Need { rights: mask::READ_DATA, bits: R };
pub(crate) const WRITE: Need = Need { rights: mask::WRITE_DATA, bits: W };
pub(crate) const BOTH: Need = Need { rights: mask::READ_DATA | mask::WRITE_DATA, bits: R | W };
/// Run a program, or look names up.
pub(crate) const EXECUTE: Need = Need { rights: mask::EXECUTE, bits: X };
/// Add a name that is not a directory's.
pub(crate) const ADD_FILE: Need = Need { rights: mask::WRITE_DATA | mask::EXECUTE, bits: W | X };
pub(crate) const ADD_DIR: Need = Need { rights: mask::APPEND_DATA | mask::EXECUTE, bits: W | X };
/// Remove names.
pub(crate) const REMOVE: Need = Need { rights: mask::DELETE_CHILD | mask::EXECUTE, bits: W | X };
/// Move a directory to another parent: lists have no right for that.
pub(crate) const CHANGE_PARENT: Need = Need { rights: 0, bits: W };
/// Read extended attributes.
pub(crate) const READ_XATTR: Need = Need { rights: mask::READ_EA, bits: R };
/// Change extended attributes.
pub(crate) const WRITE_XATTR: Need = Need { rights: mask::WRITE_EA, bits: W };

/// Returns the requirements for adding a node of this kind.
pub(crate) fn adding(kind: Kind) -> Need {
    if kind == Kind::Dir { ADD_DIR } else { ADD_FILE }
}

/// Fails with [`VfsError::Access`] if the rights `allowed` by a list are not enough.
pub(crate) fn enough(allowed: u32, need: Need) -> VfsResult<()> {
    if allowed & need.rights == need.rights { Ok(()) } else { Err(VfsError::Access) }
}

/// Returns each bit of [`Access`] with its requirement on a node of this kind; bits without a meaning there are left out.
pub(crate) fn of_access(kind: Kind) -> &'static [(u32, Need)] {
    const XATTRS: [(u32, Need); 3] = [
        (Access::XATTR_READ, READ_XATTR),
        (Access::XATTR_WRITE, WRITE_XATTR),
        (Access::XATTR_LIST, READ_XATTR),
    ];
    const APPEND: Need = Need { rights: mask::APPEND_DATA, bits: W };
    const OF_FILE: [(u32, Need); 7] = [
        (Access::READ, READ),
        (Access::MODIFY, WRITE),
        (Access::EXTEND, APPEND),
        (Access::EXECUTE, EXECUTE),
        XATTRS[0],
        XATTRS[1],
        XATTRS[2],
    ];
    const OF_DIR: [(u32, Need); 8] = [
        (Access::READ, READ),
        (Access::LOOKUP, EXECUTE),
        (Access::MODIFY, ADD_FILE),
        (Access::EXTEND, ADD_FILE),
        (Access::DELETE, REMOVE),
        XATTRS[0],
        XATTRS[1],
        XATTRS[2],
    ];
    if kind == Kind::Dir { &OF_DIR } else { &OF_FILE }
}

/// Checks whether a list that grants the caller `allowed` permits a change of these attributes; the size counts as data. The owner
/// may always change mode and times, as in POSIX.
pub(crate) fn may_set(allowed: u32, cred: &Cred, owner: Owner, set: &SetAttr) -> VfsResult<()> {
    let owns = cred.uid == owner.uid;
    let has = |right: u32| allowed & right != 0;
    // WRITE_OWNER permits taking ownership, not giving it away (RFC 8881 section 6.2.1.3.1).
    let gives_away = set.uid.is_some_and(|uid| uid != owner.uid && uid != cred.uid);
    let takes = set.uid.is_some_and(|uid| uid != owner.uid) || set.gid.is_some() && !owns;
    let foreign = set.gid.is_some_and(|gid| gid != owner.gid && !cred.in_group(gid));
    let times = [set.atime, set.mtime];
    let dated = times.iter().any(|t| matches!(t, Some(SetTime::At(_))));
    let may_date = owns
        || has(mask::WRITE_ATTRIBUTES)
        || !dated && times != [None, None] && has(mask::WRITE_DATA)
        || times == [None, None];
    if gives_away
        || foreign
        || takes && !has(mask::WRITE_OWNER)
        || set.mode.is_some() && !owns && !has(mask::WRITE_DAC)
        || !may_date
    {
        return Err(VfsError::Perm);
    }
    Ok(())
}

/// Checks whether the mode bits permit the caller to change these attributes; the size counts as data. True if write permission is
/// needed in addition: it is enough to set times to now (utimensat(2)).
pub(crate) fn may_set_by_mode(cred: &Cred, owner: Owner, set: &SetAttr) -> VfsResult<bool> {
    if cred.uid == 0 {
        return Ok(false);
    }
    let owns = cred.uid == owner.uid;
    let gives_away = set.uid.is_some_and(|uid| uid != owner.uid);
    let leaves_group = set.gid.is_some_and(|gid| gid != owner.gid && !cred.in_group(gid));
    let changes = set.uid.is_some() || set.gid.is_some() || set.mode.is_some();
    let times = [set.atime, set.mtime];
    let dates = times.iter().any(|t| matches!(t, Some(SetTime::At(_))));
    if gives_away || leaves_group || !owns && (changes || dates) {
        return Err(VfsError::Perm);
    }
    Ok(!owns && times != [None, None])
}

/// Returns the mode that a caller may set when a list decides: the kernel clears set-id bits for a caller without the right to
/// them, but not for the gateway.
pub(crate) fn settable(mode: u32, cred: &Cred, owner: Owner) -> u32 {
    let mut mode = mode & 0o7777;
    if cred.uid != owner.uid {
        mode &= !0o4000;
    }
    if cred.uid != 0 && !cred.in_group(owner.gid) {
        mode &= !0o2000;
    }
    mode
}

/// Returns true if the mode has bits that must be cleared when a caller other than the superuser writes, or when the owner changes.
pub(crate) fn sheds_set_id(mode: u32) -> bool {
    mode & 0o4000 != 0 || mode & 0o2010 == 0o2010
}

/// Returns the mode without these bits.
pub(crate) fn without_set_id(mode: u32) -> u32 {
    mode & !0o4000 & if mode & 0o010 != 0 { !0o2000 } else { !0 }
}
