//! The attributes that this client requests and parses (RFC 8881 sections 3.3.7 and 5).

use nfs_proto::nfs4::attr;
use nfs_proto::nfs4::attrs::{Bitmap4, Fattr4, Value};

use crate::error::{Error, Result};

/// The attributes that this client requests.
pub(super) const WANTED: Bitmap4 = Bitmap4::of(&[
    attr::TYPE,
    attr::CHANGE,
    attr::SIZE,
    attr::FSID,
    attr::FILEID,
    attr::MODE,
    attr::NUMLINKS,
    attr::OWNER,
    attr::OWNER_GROUP,
    attr::SPACE_USED,
    attr::TIME_MODIFY,
]);

/// The attributes of a file that the server returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's own.
pub struct Attr {
    pub kind: u32,
    pub change: u64,
    pub size: u64,
    pub fsid: (u64, u64),
    pub fileid: u64,
    pub mode: u32,
    pub numlinks: u32,
    pub owner: Vec<u8>,
    pub owner_group: Vec<u8>,
    pub space_used: u64,
    pub time_modify: (i64, u32),
}

/// Parses the values of a `fattr4`.
pub(super) fn values<'a>(fattr: &Fattr4<'a>) -> Result<Vec<Value<'a>>> {
    match wire::decode(fattr.attr_vals, |_| fattr.values()) {
        Ok((_, values)) => Ok(values),
        Err(why) => Err(Error::Reply(why.at(fattr.attr_vals))),
    }
}

/// Returns the error for attributes that were not requested.
pub(super) fn unasked() -> Error {
    Error::Protocol("attributes that were not asked for".into())
}

impl Attr {
    /// Parses a `fattr4` that has only attributes of [`WANTED`].
    pub(super) fn of(fattr: &Fattr4<'_>) -> Result<Self> {
        let mut a = Self::default();
        for value in values(fattr)? {
            match value {
                Value::Type(kind) => a.kind = kind as u32,
                Value::Change(change) => a.change = change,
                Value::Size(size) => a.size = size,
                Value::Fsid(fsid) => a.fsid = (fsid.major, fsid.minor),
                Value::Fileid(number) => a.fileid = number,
                Value::Mode(mode) => a.mode = mode,
                Value::Numlinks(links) => a.numlinks = links,
                Value::Owner(name) => a.owner = name.name.to_vec(),
                Value::OwnerGroup(name) => a.owner_group = name.name.to_vec(),
                Value::SpaceUsed(bytes) => a.space_used = bytes,
                Value::TimeModify(time) => a.time_modify = (time.seconds, time.nseconds),
                _ => return Err(unasked()),
            }
        }
        Ok(a)
    }
}

/// Attributes to set.
#[derive(Clone, Debug)]
pub struct Fattr {
    mask: Bitmap4,
    vals: Vec<u8>,
}

impl Fattr {
    /// Builds attributes with these numbers; values are in the order of the numbers.
    pub fn of(numbers: &[u32], values: &[Value<'_>]) -> Self {
        let mut vals = Vec::new();
        values.iter().for_each(|value| value.emit(&mut vals));
        Self { mask: Bitmap4::of(numbers), vals }
    }

    /// Builds mode and size, as far as given.
    pub fn mode_and_size(mode: Option<u32>, size: Option<u64>) -> Self {
        let size = size.map(|size| (attr::SIZE, Value::Size(size)));
        let mode = mode.map(|mode| (attr::MODE, Value::Mode(mode)));
        let (numbers, values): (Vec<_>, Vec<_>) = size.into_iter().chain(mode).unzip();
        Self::of(&numbers, &values)
    }

    /// Converts it to an argument.
    pub fn as_fattr4(&self) -> Fattr4<'_> {
        Fattr4 { attrmask: self.mask, attr_vals: &self.vals }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_and_size_follow_attribute_order() {
        let both = Fattr::mode_and_size(Some(0o644), Some(7));
        let attr = Attr::of(&both.as_fattr4()).unwrap();
        assert_eq!((attr.mode, attr.size), (0o644, 7));
        let none = Fattr::mode_and_size(None, None);
        assert_eq!(Attr::of(&none.as_fattr4()), Ok(Attr::default()));
    }

    #[test]
    fn unrequested_or_truncated_attributes_fail() {
        let lease = Fattr::of(&[attr::LEASE_TIME], &[Value::LeaseTime(90)]);
        assert_eq!(Attr::of(&lease.as_fattr4()), Err(unasked()));
        let size = Fattr::of(&[attr::SIZE], &[Value::Size(1)]);
        let cut = Fattr4 { attr_vals: &size.vals[..7], ..size.as_fattr4() };
        let Err(Error::Reply(fault)) = Attr::of(&cut) else { panic!("half a size") };
        assert_eq!(fault.to_string(), "Size truncated at 0");
    }
}
