//! Decides how a create treats an existing file, for backends that store the verifier of an exclusive create in the file's times.

use crate::error::{VfsError, VfsResult};
use crate::types::{Attr, CreateHow, Kind, SetAttr, Time};

/// Returns the verifier of an exclusive create as times, as the kernel's server stores it: 31 bits each, so that every file system
/// can hold them.
pub(crate) fn verifier_times(verifier: [u8; 8]) -> (Time, Time) {
    let [a, b, c, d, e, f, g, h] = verifier;
    let part = |x| Time { sec: i64::from(u32::from_be_bytes(x) & 0x7fff_ffff), nsec: 0 };
    (part([a, b, c, d]), part([e, f, g, h]))
}

/// How a create treats an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// The create repeats the exclusive create that made the file.
    Repeated,
    /// The create opens and truncates the file.
    Cut,
    Opened,
}

/// Decides how a create by this user treats the existing node, whose attributes were just read. [`VfsError::Exists`] if the create
/// is refused.
pub(crate) fn existing(
    how: CreateHow,
    uid: u32,
    attr: &Attr,
    set: &SetAttr,
) -> VfsResult<Existing> {
    match how {
        CreateHow::Guarded => Err(VfsError::Exists),
        CreateHow::Exclusive(verifier) => {
            let (a, m) = verifier_times(verifier);
            let same = (attr.atime.sec, attr.mtime.sec) == (a.sec, m.sec);
            // A repeated create opens the file without another permission check, because only the user who created the file can
            // repeat.
            let maker = uid == attr.uid || uid == 0;
            match same && maker && attr.kind == Kind::File && attr.size == 0 {
                true => Ok(Existing::Repeated),
                false => Err(VfsError::Exists),
            }
        }
        CreateHow::Unchecked => {
            let cuts = set.size == Some(0) && attr.kind == Kind::File && attr.size != 0;
            Ok(if cuts { Existing::Cut } else { Existing::Opened })
        }
    }
}
