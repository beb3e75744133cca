//! Share access and deny modes (RFC 8881 section 9.7, MS-FSA 2.1.5.1.2).

use std::ops::{BitAnd, BitOr};

/// A set of the rights to read, write and delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    pub const NONE: Self = Self(0);
    pub const READ: Self = Self(1);
    pub const WRITE: Self = Self(2);
    pub const BOTH: Self = Self(3);
    /// Deletes and renames. Only SMB opens request or deny this.
    pub const DELETE: Self = Self(4);
    pub const ALL: Self = Self(7);

    /// Converts the two low bits that NFS uses in `share_access` and `share_deny`; `None` when other bits are set.
    pub fn from_bits(bits: u32) -> Option<Self> {
        u8::try_from(bits).ok().filter(|b| *b <= 3).map(Self)
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    /// Checks that every right of `other` is included.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Checks that the set is empty.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Rights {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Rights {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The access that an open has and the access that it denies to other opens. An SMB open without read, write or delete access
/// denies no access either, whatever its ShareAccess (MS-FSA section 2.1.5.1.2): [`Share::of`] ensures that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Share {
    pub access: Rights,
    /// Access that other opens may not have.
    pub deny: Rights,
}

impl Share {
    pub fn new(access: Rights, deny: Rights) -> Self {
        Self { access, deny }
    }

    /// Builds the share mode of an SMB open; `shared` is its ShareAccess.
    pub fn of(access: Rights, shared: Rights) -> Self {
        let deny = if access.is_none() { Rights::NONE } else { Rights(Rights::ALL.0 & !shared.0) };
        Self { access, deny }
    }

    /// Checks that one open denies what the other has, so that they cannot coexist.
    pub fn conflicts(self, other: Self) -> bool {
        !(self.access & other.deny).is_none() || !(self.deny & other.access).is_none()
    }

    /// Merges both opens into one.
    pub fn union(self, other: Self) -> Self {
        Self { access: self.access | other.access, deny: self.deny | other.deny }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks every pair of the 16 modes against RFC 8881 section 9.7: a request fails when it wants access that another open
    /// denies, or denies access that another open has.
    #[test]
    fn share_conflict_follows_rfc_8881() {
        let all = |n: u32| {
            Share::new(Rights::from_bits(n & 3).unwrap(), Rights::from_bits(n >> 2).unwrap())
        };
        for (a, b) in (0..16).flat_map(|a| (0..16).map(move |b| (a, b))) {
            let said = (a & 3) & (b >> 2) != 0 || (a >> 2) & (b & 3) != 0;
            assert_eq!(all(a).conflicts(all(b)), said);
            assert_eq!(all(b).conflicts(all(a)), said);
        }
    }

    #[test]
    fn open_without_data_access_never_conflicts() {
        let all = Share::of(Rights::ALL, Rights::NONE);
        assert!(!Share::of(Rights::NONE, Rights::NONE).conflicts(all));
        assert!(Share::of(Rights::DELETE, Rights::ALL).conflicts(all));
        let keeps = Share::of(Rights::READ, Rights::BOTH);
        assert!(keeps.conflicts(Share::of(Rights::DELETE, Rights::ALL)));
        assert!(!keeps.conflicts(Share::of(Rights::BOTH, Rights::ALL)));
    }

    #[test]
    fn unknown_share_bits_are_refused() {
        assert_eq!(Rights::from_bits(4), None);
        assert_eq!(Rights::from_bits(0x101), None);
        assert_eq!(Rights::from_bits(3), Some(Rights::BOTH));
    }
}
