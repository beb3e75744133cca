//! Permission by mode bits (POSIX.1-2017 section 4.5).

use crate::types::{Cred, Kind};

/// Read data, or list names.
pub(crate) const R: u32 = 4;
/// Write data, or change names.
pub(crate) const W: u32 = 2;
/// Execute, or look names up.
pub(crate) const X: u32 = 1;

/// The bits of `R | W | X` that a caller has on a node of this kind, mode, owner and group.
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
