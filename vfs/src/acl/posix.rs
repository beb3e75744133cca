//! Converts between the access control lists of the host (POSIX.1e draft 17, as Linux shows them in `system.posix_acl_*`) and lists
//! of NFSv4. A host's list becomes a list of NFSv4 that grants each user the same rights. A list of NFSv4 becomes a host's list
//! that grants each class and each named user or group the rights that they have as the only principal of the caller.

use std::collections::BTreeMap;

use super::mode::{ANYBODY, OWNERS, bits_of, rights_of};
use super::{Ace, Acl, Owner, Who, flag, kind};

/// Tags of entries (POSIX.1e draft 17 section 23.1.2), which NFSACL has as well.
#[allow(missing_docs)] // The names are the specification's own.
pub mod tag {
    pub const USER_OBJ: u16 = 0x01;
    pub const USER: u16 = 0x02;
    pub const GROUP_OBJ: u16 = 0x04;
    pub const GROUP: u16 = 0x08;
    pub const MASK: u16 = 0x10;
    pub const OTHER: u16 = 0x20;
}
use tag::*;

/// Version of the attribute's value.
const VERSION: u32 = 2;
/// The number in entries without a user or group.
const NOBODY: u32 = u32::MAX;

/// One entry: its tag, its three bits, and its user or group.
pub type Entry = (u16, u32, u32);

/// A list of the host: three bits for each principal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Posix {
    owner: u32,
    users: BTreeMap<u32, u32>,
    group: u32,
    groups: BTreeMap<u32, u32>,
    /// The upper limit for the rights of named users, groups, and the file's group.
    mask: Option<u32>,
    other: u32,
}

/// The lists of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// The list of the node itself.
    pub access: Posix,
    /// The list that new files in a directory inherit.
    pub default: Option<Posix>,
}

/// A change of the lists; `None` leaves a list unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The list of the node itself.
    pub access: Option<Posix>,
    /// The list that new files in a directory inherit; `Some(None)` removes it.
    pub default: Option<Option<Posix>>,
}

impl Posix {
    /// Builds a list from its entries in any order. Returns `None` for invalid lists: one of the three classes is missing, a user
    /// or group is named twice, or users and groups are named without a mask (POSIX.1e section 23.1.3).
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Option<Self> {
        let (mut owner, mut group, mut other) = (None, None, None);
        let mut all = Self::default();
        for (tag, bits, id) in entries {
            let before = match tag {
                USER_OBJ => owner.replace(bits),
                USER => all.users.insert(id, bits),
                GROUP_OBJ => group.replace(bits),
                GROUP => all.groups.insert(id, bits),
                MASK => all.mask.replace(bits),
                OTHER => other.replace(bits),
                _ => return None,
            };
            if before.is_some() || bits & !7 != 0 {
                return None;
            }
        }
        (all.owner, all.group, all.other) = (owner?, group?, other?);
        (all.mask.is_some() || all.users.is_empty() && all.groups.is_empty()).then_some(all)
    }

    /// Builds the list that is equivalent to mode bits.
    pub fn of_mode(mode: u32) -> Self {
        Self { owner: mode >> 6 & 7, group: mode >> 3 & 7, other: mode & 7, ..Self::default() }
    }

    /// Returns its entries, in the order that the host requires.
    pub fn listed(&self) -> Vec<Entry> {
        let named = |tag, who: &BTreeMap<u32, u32>| {
            who.iter().map(|(id, bits)| (tag, *bits, *id)).collect::<Vec<_>>()
        };
        let mut all = vec![(USER_OBJ, self.owner, NOBODY)];
        all.extend(named(USER, &self.users));
        all.push((GROUP_OBJ, self.group, NOBODY));
        all.extend(named(GROUP, &self.groups));
        all.extend(self.mask.map(|mask| (MASK, mask, NOBODY)));
        all.push((OTHER, self.other, NOBODY));
        all
    }

    /// Returns the attribute's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for (tag, bits, id) in self.listed() {
            out.extend(tag.to_le_bytes());
            // Invariant: three bits.
            #[allow(clippy::cast_possible_truncation)]
            out.extend((bits as u16).to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    }

    /// Reads the attribute's value; `None` if it is invalid.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (version, entries) = value.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
            return None;
        }
        Self::new(entries.chunks_exact(8).map(|e| {
            let bits = u32::from(u16::from_le_bytes([e[2], e[3]]));
            let id = u32::from_le_bytes([e[4], e[5], e[6], e[7]]);
            (u16::from_le_bytes([e[0], e[1]]), bits, id)
        }))
    }

    /// Returns the list with the mask applied.
    fn masked(&self) -> Self {
        let limit = self.mask.unwrap_or(7);
        let mut all = Self { group: self.group & limit, ..self.clone() };
        all.users.values_mut().chain(all.groups.values_mut()).for_each(|bits| *bits &= limit);
        all
    }

    /// Returns equivalent entries with these flags.
    fn entries(&self, is_dir: bool, flags: u8) -> Vec<Ace> {
        let all = self.masked();
        let rights = |bits| rights_of(bits, is_dir);
        let all_groups = all.groups.values().fold(all.group, |sum, bits| sum | bits);
        let mut out = Vec::new();
        let mut put = |denies: bool, who: Who, mask: u32| {
            let ace = if denies { Ace::deny } else { Ace::allow };
            if mask != 0 {
                out.push(ace(who, mask, flags));
            }
        };
        // In a host's list only the user's entry applies to that user; here the later entries would apply too.
        let later = all.users.values().fold(all_groups | all.other, |sum, bits| sum | bits);
        put(true, Who::Owner, rights(later & !all.owner));
        put(false, Who::Owner, rights(all.owner) | ANYBODY | OWNERS);
        for (uid, bits) in &all.users {
            put(true, Who::User(*uid), rights((all_groups | all.other) & !bits));
            put(false, Who::User(*uid), rights(*bits) | ANYBODY);
        }
        // All groups of a caller count, and the entry for others does not apply to members of these groups.
        put(false, Who::Group, rights(all.group) | ANYBODY);
        for (gid, bits) in &all.groups {
            put(false, Who::Members(*gid), rights(*bits) | ANYBODY);
        }
        put(true, Who::Group, rights(all.other & !all.group));
        for (gid, bits) in &all.groups {
            put(true, Who::Members(*gid), rights(all.other & !bits));
        }
        put(false, Who::Everyone, rights(all.other) | ANYBODY);
        out
    }
}

impl Acl {
    /// Returns the equivalent list of the host, without inheritance.
    pub fn posix(&self, owner: Owner) -> Posix {
        let mode = self.mode(owner);
        let mut all = Posix::of_mode(mode);
        for ace in self.entries() {
            let Ace::Simple { kind: kind::ALLOWED | kind::DENIED, flags, who, .. } = ace else {
                continue;
            };
            let (place, id) = match who {
                _ if flags & flag::INHERIT_ONLY != 0 => continue,
                Who::User(uid) if *uid != owner.uid => (&mut all.users, *uid),
                Who::Members(gid) if *gid != owner.gid => (&mut all.groups, *gid),
                _ => continue,
            };
            let bits = bits_of(self.allowed_where(|w| w == who || *w == Who::Everyone));
            place.insert(id, bits);
        }
        if !(all.users.is_empty() && all.groups.is_empty()) {
            let named = all.users.values().chain(all.groups.values());
            all.mask = Some(named.fold(all.group, |sum, bits| sum | bits));
        }
        all
    }
}

/// Returns the list for these values of `system.posix_acl_access` and `system.posix_acl_default`; mode bits replace a missing
/// access value. `None` if neither value is a list.
pub fn list(mode: u32, access: Option<&[u8]>, default: Option<&[u8]>, is_dir: bool) -> Option<Acl> {
    let access = access.and_then(Posix::parse);
    let default = default.and_then(Posix::parse);
    if access.is_none() && default.is_none() {
        return None;
    }
    let mut acl = match access {
        Some(access) => Acl::new(access.entries(is_dir, 0)),
        None => Acl::of_mode(mode, is_dir),
    };
    if let (Some(default), Some(entries)) = (default, &mut acl.entries) {
        let flags = flag::OBJECT_INHERIT | flag::CONTAINER_INHERIT | flag::INHERIT_ONLY;
        entries.extend(default.entries(is_dir, flags));
    }
    Some(acl)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::types::Cred;
    use proptest::prelude::*;

    const NONE: u32 = u32::MAX;

    fn value(entries: &[(u16, u32, u32)]) -> Vec<u8> {
        let mut out = 2_u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            out.extend(tag.to_le_bytes());
            out.extend(u16::try_from(*bits).unwrap().to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    }

    #[test]
    fn host_list_converts_to_nfs_list() {
        let access = value(&[
            (USER_OBJ, 6, NONE),
            (USER, 7, 1001),
            (GROUP_OBJ, 4, NONE),
            (MASK, 6, NONE),
            (OTHER, 0, NONE),
        ]);
        let acl = list(0o660, Some(&access), None, false).unwrap();
        assert_eq!(
            acl.entries(),
            [
                Ace::allow(Who::Owner, 0x16_019f, 0),
                Ace::allow(Who::User(1001), 0x12_009f, 0),
                Ace::allow(Who::Group, 0x12_0089, 0),
                Ace::allow(Who::Everyone, 0x12_0080, 0),
            ]
        );
        let folder = list(0o755, None, Some(&access), true).unwrap();
        assert_eq!(folder.mode(Owner { uid: 1, gid: 1 }), 0o755);
        let (own, passed_on) = folder.entries().split_at(3);
        assert_eq!(own, Acl::of_mode(0o755, true).entries());
        // The entries apply to new files and folders, not to the directory itself; the right to write a folder includes the right
        // to remove names from it.
        let flags = flag::OBJECT_INHERIT | flag::CONTAINER_INHERIT | flag::INHERIT_ONLY;
        assert_eq!(
            passed_on,
            [
                Ace::allow(Who::Owner, 0x16_01df, flags),
                Ace::allow(Who::User(1001), 0x12_00df, flags),
                Ace::allow(Who::Group, 0x12_0089, flags),
                Ace::allow(Who::Everyone, 0x12_0080, flags),
            ]
        );
    }

    /// A user with an entry in the host's list gets no rights from later entries (POSIX.1e section 23.1.5), and the conversion
    /// denies only rights that a later entry would grant.
    #[test]
    fn later_rights_denied_to_named_user() {
        let access = value(&[
            (USER_OBJ, 4, NONE),
            (USER, 1, 1001),
            (GROUP_OBJ, 5, NONE),
            (GROUP, 4, 51),
            (GROUP, 1, 52),
            (MASK, 7, NONE),
            (OTHER, 6, NONE),
        ]);
        let acl = list(0, Some(&access), None, false).unwrap();
        assert_eq!(
            acl.entries(),
            [
                Ace::deny(Who::Owner, 0x36, 0),
                Ace::allow(Who::Owner, 0x16_0189, 0),
                Ace::deny(Who::User(1001), 0x1f, 0),
                Ace::allow(Who::User(1001), 0x12_00a0, 0),
                Ace::allow(Who::Group, 0x12_00a9, 0),
                Ace::allow(Who::Members(51), 0x12_0089, 0),
                Ace::allow(Who::Members(52), 0x12_00a0, 0),
                Ace::deny(Who::Group, 0x16, 0),
                Ace::deny(Who::Members(51), 0x16, 0),
                Ace::deny(Who::Members(52), 0x1f, 0),
                Ace::allow(Who::Everyone, 0x12_009f, 0),
            ]
        );
    }

    #[test]
    fn invalid_host_list_is_none() {
        assert!(list(0o644, None, None, false).is_none());
        let three = [(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 5, NONE)];
        let with = |more: &[Entry]| value(&[&three[..], more].concat());
        for bad in [
            &b""[..],
            &[1, 0, 0, 0],
            &[2, 0, 0, 0, 1],
            &[&3_u32.to_le_bytes(), &value(&three)[4..]].concat(),
            &[&value(&three)[..], &[0]].concat(),
            &value(&[(3, 7, 0)]),
            &value(&three[..2]),
            &with(&three[..1]),
            &with(&[(USER, 7, 1001)]),
            &with(&[(GROUP, 7, 50), (GROUP, 7, 50), (MASK, 7, NONE)]),
            &with(&[(MASK, 8, NONE)]),
        ] {
            assert!(list(0o644, Some(bad), None, false).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn nfs_list_converts_to_host_list() {
        let owner = Owner { uid: 1000, gid: 50 };
        let rights = |bits| rights_of(bits, false);
        let acl = Acl::new(vec![
            Ace::deny(Who::User(1002), rights(2), 0),
            Ace::allow(Who::User(1001), rights(6), 0),
            Ace::allow(Who::Members(51), rights(1), 0),
            Ace::allow(Who::User(1003), rights(7), flag::OBJECT_INHERIT | flag::INHERIT_ONLY),
            Ace::allow(Who::Owner, rights(7), 0),
            Ace::allow(Who::Everyone, rights(6), 0),
        ]);
        let shown = Posix {
            owner: 7,
            users: [(1001, 6), (1002, 4)].into(),
            group: 6,
            groups: [(51, 7)].into(),
            mask: Some(7),
            other: 6,
        };
        assert_eq!(acl.posix(owner), shown);
        assert_eq!(Posix::parse(&shown.encode()), Some(shown));
        assert_eq!(Acl::of_mode(0o750, false).posix(owner), Posix::of_mode(0o750));
    }

    #[test]
    fn mode_becomes_three_entries() {
        for (mode, [owner, group, other]) in
            [(0o4124, [1, 2, 4]), (0o1700, [7, 0, 0]), (0o7, [0, 0, 7])]
        {
            let three = [(USER_OBJ, owner, NONE), (GROUP_OBJ, group, NONE), (OTHER, other, NONE)];
            assert_eq!(Posix::of_mode(mode).listed(), three, "{mode:o}");
        }
    }

    /// The mask is the upper limit for all principals that it applies to, and exists where a user or group is named (POSIX.1e
    /// section 23.1.3); owner and group are not named a second time.
    #[test]
    fn somebody_named_makes_a_mask() {
        let owner = Owner { uid: 1000, gid: 50 };
        let shown = |who| {
            let acl = Acl::new(vec![
                Ace::allow(who, rights_of(6, false), 0),
                Ace::allow(Who::Group, rights_of(1, false), 0),
            ]);
            acl.posix(owner).listed()
        };
        let (none, mask) = ((OTHER, 0, NONE), (MASK, 7, NONE));
        let classes = [(USER_OBJ, 0, NONE), (GROUP_OBJ, 1, NONE)];
        assert_eq!(shown(Who::User(7)), [classes[0], (USER, 6, 7), classes[1], mask, none]);
        assert_eq!(shown(Who::Members(7)), [classes[0], classes[1], (GROUP, 6, 7), mask, none]);
        assert_eq!(shown(Who::User(1000)), [(USER_OBJ, 6, NONE), classes[1], none]);
        assert_eq!(shown(Who::Members(50)), [classes[0], (GROUP_OBJ, 7, NONE), none]);
    }

    proptest! {
        /// Every caller gets the rights of POSIX.1e section 23.1.5.
        #[test]
        fn everybody_may_the_same(
            owner in 0..8_u32, user in 0..8_u32, group in 0..8_u32, members in 0..8_u32, limit in 0..8_u32, other in 0..8_u32,
            uid in prop::sample::select(vec![1000, 1001, 1002]), gid in 50..53_u32,
        ) {
            let value = value(&[
                (USER_OBJ, owner, NONE), (USER, user, 1001), (GROUP_OBJ, group, NONE), (GROUP, members, 51),
                (MASK, limit, NONE), (OTHER, other, NONE),
            ]);
            let acl = list(0, Some(&value), None, false).unwrap();
            let bits = match (uid, gid) {
                (1000, _) => owner,
                (1001, _) => user & limit,
                (_, 50) => group & limit,
                (_, 51) => members & limit,
                _ => other,
            };
            let cred = Cred { uid, gid, groups: Arc::new([]), token: crate::Token::NONE };
            let allowed = acl.allowed(&cred, Owner { uid: 1000, gid: 50 });
            prop_assert_eq!(allowed & rights_of(7, false), rights_of(bits, false));
        }
    }
}
