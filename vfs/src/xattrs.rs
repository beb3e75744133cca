//! Extended attributes as backends with files of a host keep them: names, and records of other programs.

use crate::dos::Dos;
use crate::error::{VfsError, VfsResult};

/// Before the names that clients know, where the volume keeps them.
pub(crate) const PREFIX: &[u8] = b"user.";
/// Samba's record of DOS attributes.
pub(crate) const SAMBA: &str = "user.DOSATTRIB";
/// The kernel's limit for a name with its prefix (`XATTR_NAME_MAX`).
const NAME_MAX: usize = 255;

/// The name on the volume of one that a client knows. [`VfsError::Invalid`] for what is no name, [`VfsError::NameTooLong`] for one
/// that the volume cannot have.
pub(crate) fn full(name: &[u8]) -> VfsResult<Vec<u8>> {
    if name.is_empty() || name.contains(&0) {
        return Err(VfsError::Invalid);
    }
    if PREFIX.len() + name.len() > NAME_MAX {
        return Err(VfsError::NameTooLong);
    }
    Ok([PREFIX, name].concat())
}

/// The names in a list of the volume, each with its prefix.
pub(crate) fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == 0).filter(|name| !name.is_empty())
}

/// The names of a list that clients see, without the prefix.
pub(crate) fn seen_by_clients(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    names(list).filter_map(|name| name.strip_prefix(PREFIX)).filter(|name| !name.is_empty())
}

/// What Windows clients have set: our own record, else Samba's.
pub(crate) fn dos(
    ours: Option<Vec<u8>>,
    samba: impl FnOnce() -> VfsResult<Option<Vec<u8>>>,
) -> VfsResult<Dos> {
    if let Some(record) = ours {
        return Ok(Dos::decode(&record));
    }
    Ok(samba()?.map_or(Dos::default(), |record| Dos::decode_samba(&record)))
}
