//! Extended attributes in the form that backends on a host's files store them: names, and records of other programs.

use crate::dos::Dos;
use crate::error::{VfsError, VfsResult};
use crate::reparse::Tagged;

/// Prefix on the volume of the names that clients use.
pub(crate) const PREFIX: &[u8] = b"user.";
/// Samba's record of DOS attributes.
pub(crate) const SAMBA: &str = "user.DOSATTRIB";
/// The kernel's limit for a name with its prefix (`XATTR_NAME_MAX`).
const NAME_MAX: usize = 255;

/// Returns the name on the volume for a client's name. [`VfsError::Invalid`] for an invalid name, [`VfsError::NameTooLong`] for one
/// that is too long for the volume.
pub(crate) fn full(name: &[u8]) -> VfsResult<Vec<u8>> {
    if name.is_empty() || name.contains(&0) {
        return Err(VfsError::Invalid);
    }
    if PREFIX.len() + name.len() > NAME_MAX {
        return Err(VfsError::NameTooLong);
    }
    Ok([PREFIX, name].concat())
}

/// Iterates over the names in a list of the volume, each with its prefix.
pub(crate) fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == 0).filter(|name| !name.is_empty())
}

/// Iterates over the names of a list that clients see, without the prefix.
pub(crate) fn seen_by_clients(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    names(list).filter_map(|name| name.strip_prefix(PREFIX)).filter(|name| !name.is_empty())
}

/// Returns what Windows clients have set: from the gateway's record, or else from Samba's; and the reparse point from its record.
pub(crate) fn dos(
    ours: Option<Vec<u8>>,
    samba: impl FnOnce() -> VfsResult<Option<Vec<u8>>>,
    reparse: Option<Vec<u8>>,
) -> VfsResult<Dos> {
    let dos = match ours {
        Some(record) => Dos::decode(&record),
        None => samba()?.map_or(Dos::default(), |record| Dos::decode_samba(&record)),
    };
    Ok(Dos { reparse: reparse.and_then(|record| Tagged::decode(&record)), ..dos })
}
