//! The access control lists that the host itself keeps (POSIX.1e draft 17, as Linux shows them in `system.posix_acl_*`), as a
//! list of NFSv4: what each user may is the same.

use super::mode::rights_of;
use super::{Ace, Acl, Who, flag, mask};

/// Tags of entries.
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// What everybody may whatever the bits.
const ANYBODY: u32 = mask::READ_ATTRIBUTES | mask::READ_CONTROL | mask::SYNCHRONIZE;
const OWNERS: u32 = mask::WRITE_ATTRIBUTES | mask::WRITE_DAC;

/// A list of the host: three bits for each.
#[derive(Debug, Default)]
struct Posix {
    owner: u32,
    users: Vec<(u32, u32)>,
    group: u32,
    groups: Vec<(u32, u32)>,
    other: u32,
}

impl Posix {
    /// Reads the attribute's value, with the mask applied; `None` for what is none.
    fn parse(value: &[u8]) -> Option<Self> {
        let (version, entries) = value.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != 2 || entries.len() % 8 != 0 {
            return None;
        }
        let (mut all, mut limit) = (Self::default(), 7);
        for e in entries.chunks_exact(8) {
            let bits = u32::from(u16::from_le_bytes([e[2], e[3]]) & 7);
            let id = u32::from_le_bytes([e[4], e[5], e[6], e[7]]);
            match u16::from_le_bytes([e[0], e[1]]) {
                USER_OBJ => all.owner = bits,
                USER => all.users.push((id, bits)),
                GROUP_OBJ => all.group = bits,
                GROUP => all.groups.push((id, bits)),
                MASK => limit = bits,
                OTHER => all.other = bits,
                _ => return None,
            }
        }
        all.group &= limit;
        all.users.iter_mut().chain(&mut all.groups).for_each(|(_, bits)| *bits &= limit);
        Some(all)
    }

    /// Entries that say the same, with these flags.
    fn entries(&self, is_dir: bool, flags: u8) -> Vec<Ace> {
        let rights = |bits| rights_of(bits, is_dir);
        let all_groups = self.groups.iter().fold(self.group, |all, (_, bits)| all | bits);
        let mut out = Vec::new();
        let mut put = |denies: bool, who: Who, mask: u32| {
            let ace = if denies { Ace::deny } else { Ace::allow };
            if mask != 0 {
                out.push(ace(who, mask, flags));
            }
        };
        // An entry of the host is the only one that counts for its user; here the later ones count, too.
        let later = self.users.iter().fold(all_groups | self.other, |all, (_, bits)| all | bits);
        put(true, Who::Owner, rights(later & !self.owner));
        put(false, Who::Owner, rights(self.owner) | ANYBODY | OWNERS);
        for (uid, bits) in &self.users {
            put(true, Who::User(*uid), rights((all_groups | self.other) & !bits));
            put(false, Who::User(*uid), rights(*bits) | ANYBODY);
        }
        // Of groups all count that somebody is in, and others only for those who are in none.
        put(false, Who::Group, rights(self.group) | ANYBODY);
        for (gid, bits) in &self.groups {
            put(false, Who::Members(*gid), rights(*bits) | ANYBODY);
        }
        put(true, Who::Group, rights(self.other & !self.group));
        for (gid, bits) in &self.groups {
            put(true, Who::Members(*gid), rights(self.other & !bits));
        }
        put(false, Who::Everyone, rights(self.other) | ANYBODY);
        out
    }
}

/// The list that these values of `system.posix_acl_access` and `system.posix_acl_default` say; mode bits stand for the first
/// where there is none. `None` where neither is a list.
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

    use super::super::Owner;
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
    fn a_list_of_the_host_is_shown() {
        let access = value(&[
            (USER_OBJ, 6, NONE),
            (USER, 7, 1001),
            (GROUP_OBJ, 4, NONE),
            (MASK, 6, NONE),
            (OTHER, 0, NONE),
        ]);
        let acl = list(0o660, Some(&access), None, false).unwrap();
        let allow = |who, bits| Ace::allow(who, rights_of(bits, false) | ANYBODY, 0);
        assert_eq!(
            acl.entries(),
            [
                Ace::allow(Who::Owner, rights_of(6, false) | ANYBODY | OWNERS, 0),
                allow(Who::User(1001), 6),
                allow(Who::Group, 4),
                allow(Who::Everyone, 0),
            ]
        );
        let folder = list(0o755, None, Some(&access), true).unwrap();
        assert_eq!(folder.entries().len(), 3 + 4);
        assert_eq!(folder.mode(Owner { uid: 1, gid: 1 }), 0o755);
    }

    #[test]
    fn what_is_no_list_of_the_host_is_none() {
        assert!(list(0o644, None, None, false).is_none());
        for bad in [&b""[..], &[1, 0, 0, 0], &[2, 0, 0, 0, 1], &value(&[(3, 7, 0)])] {
            assert!(list(0o644, Some(bad), None, false).is_none());
        }
    }

    proptest! {
        /// Everybody may what POSIX.1e section 23.1.5 says.
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
            let cred = Cred { uid, gid, groups: Arc::new([]) };
            let allowed = acl.allowed(&cred, Owner { uid: 1000, gid: 50 });
            prop_assert_eq!(allowed & rights_of(7, false), rights_of(bits, false));
        }
    }
}
