//! Share access and deny modes (RFC 8881 section 9.7, MS-FSA 2.1.5.1.2).

use std::ops::{BitAnd, BitOr};

/// A set of reading, writing and deleting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Reading.
    pub const READ: Self = Self(1);
    /// Writing.
    pub const WRITE: Self = Self(2);
    /// Reading and writing.
    pub const BOTH: Self = Self(3);
    /// Deleting and renaming. Only SMB opens ask for it or deny it.
    pub const DELETE: Self = Self(4);
    /// All three.
    pub const ALL: Self = Self(7);

    /// From the two low bits that NFS uses in `share_access` and `share_deny`; `None` when others are set.
    pub fn from_bits(bits: u32) -> Option<Self> {
        u8::try_from(bits).ok().filter(|b| *b <= 3).map(Self)
    }

    /// The bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Has all of `other`.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Has none.
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

/// What an open does, and what it forbids others to do. An SMB open that neither reads, writes nor deletes forbids nothing
/// either, whatever its ShareAccess says (MS-FSA section 2.1.5.1.2): [`Share::of`] sees to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Share {
    /// What it does.
    pub access: Rights,
    /// What others may not.
    pub deny: Rights,
}

impl Share {
    /// Of these two.
    pub fn new(access: Rights, deny: Rights) -> Self {
        Self { access, deny }
    }

    /// Of an SMB open: `shared` is what it leaves to others.
    pub fn of(access: Rights, shared: Rights) -> Self {
        let deny = if access.is_none() { Rights::NONE } else { Rights(Rights::ALL.0 & !shared.0) };
        Self { access, deny }
    }

    /// The two opens cannot be together.
    pub fn conflicts(self, other: Self) -> bool {
        !(self.access & other.deny).is_none() || !(self.deny & other.access).is_none()
    }

    /// Both opens as one.
    pub fn union(self, other: Self) -> Self {
        Self { access: self.access | other.access, deny: self.deny | other.deny }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of the 16 modes, against the sentence of RFC 8881 section 9.7: a request fails when it wants what another
    /// denies, or denies what another has.
    #[test]
    fn conflict_is_symmetric_and_as_the_rule_says() {
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
    fn an_open_that_touches_no_data_takes_no_part() {
        let all = Share::of(Rights::ALL, Rights::NONE);
        assert!(!Share::of(Rights::NONE, Rights::NONE).conflicts(all));
        assert!(Share::of(Rights::DELETE, Rights::ALL).conflicts(all));
        let keeps = Share::of(Rights::READ, Rights::BOTH);
        assert!(keeps.conflicts(Share::of(Rights::DELETE, Rights::ALL)));
        assert!(!keeps.conflicts(Share::of(Rights::BOTH, Rights::ALL)));
    }

    #[test]
    fn other_bits_are_refused() {
        assert_eq!(Rights::from_bits(4), None);
        assert_eq!(Rights::from_bits(0x101), None);
        assert_eq!(Rights::from_bits(3), Some(Rights::BOTH));
    }
}
