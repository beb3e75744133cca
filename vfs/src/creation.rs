//! What a create does with a file that has the name already, where the verifier of an exclusive one is kept as the file's times.

use crate::error::{VfsError, VfsResult};
use crate::types::{Attr, CreateHow, Kind, SetAttr, Time};

/// The verifier of an exclusive create as times, as the kernel's server keeps it: 31 bits each, so that every file system can hold
/// them.
pub(crate) fn verifier_times(verifier: [u8; 8]) -> (Time, Time) {
    let [a, b, c, d, e, f, g, h] = verifier;
    let part = |x| Time { sec: i64::from(u32::from_be_bytes(x) & 0x7fff_ffff), nsec: 0 };
    (part([a, b, c, d]), part([e, f, g, h]))
}

/// What a create is on a file that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// The repetition of the exclusive create that made it.
    Repeated,
    /// An open that cuts it.
    Cut,
    Opened,
}

/// What a create by this user is on what has the name, whose attributes were just seen. [`VfsError::Exists`] where it is refused.
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
            // A repetition opens the file without asking its rights again: only the one who made it repeats.
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
