//! Privileges of users (MS-DTYP section 2.4.8): rights beyond the access lists of files.
//!
//! *Operation.* The configuration names the holders; [`Asked`](crate::privilege_use::Asked) uses them for one request.

use vfs::Cred;
use vfs::namespace::PrincipalSet;

use crate::dtyp::mask;

/// A set of privileges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges(pub(crate) u8);

/// Name of a privilege in records, its rights to a file, and whether MAXIMUM_ALLOWED includes them.
struct About {
    privilege: Privileges,
    name: &'static str,
    rights: u32,
    is_in_maximum: bool,
}

impl Privileges {
    pub const NONE: Self = Self(0);
    /// SeBackupPrivilege.
    pub const BACKUP: Self = Self(1);
    /// SeRestorePrivilege.
    pub const RESTORE: Self = Self(2);
    /// SeSecurityPrivilege.
    pub const SECURITY: Self = Self(4);
    /// SeTakeOwnershipPrivilege.
    pub const TAKE_OWNERSHIP: Self = Self(8);

    /// The privileges in the order in which they are used: a right that several of them give is a use of the first.
    const ALL: [About; 4] = [
        About {
            privilege: Self::SECURITY,
            name: "security",
            rights: mask::ACCESS_SYSTEM_SECURITY,
            is_in_maximum: false,
        },
        About {
            privilege: Self::BACKUP,
            name: "backup",
            rights: mask::FILE_READ | mask::EXECUTE | mask::ACCESS_SYSTEM_SECURITY,
            is_in_maximum: true,
        },
        About {
            privilege: Self::RESTORE,
            name: "restore",
            rights: mask::FILE_WRITE
                | mask::DELETE
                | mask::WRITE_DAC
                | mask::WRITE_OWNER
                | mask::ACCESS_SYSTEM_SECURITY,
            is_in_maximum: true,
        },
        About {
            privilege: Self::TAKE_OWNERSHIP,
            name: "take-ownership",
            rights: mask::WRITE_OWNER,
            is_in_maximum: false,
        },
    ];

    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Checks whether the set has any of these.
    pub fn has(self, some: Self) -> bool {
        self.0 & some.0 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Returns the set without these.
    #[must_use]
    pub fn without(self, some: Self) -> Self {
        Self(self.0 & !some.0)
    }

    /// Returns the part of `missing` that the set gives, and the privileges that are used for it. `is_maximum`: the rights were not
    /// requested one by one, but as MAXIMUM_ALLOWED.
    pub fn give(self, missing: u32, is_maximum: bool) -> (u32, Self) {
        let (mut given, mut used) = (0, Self::NONE);
        for about in Self::ALL {
            let rights = about.rights & missing & !given;
            if self.has(about.privilege) && rights != 0 && (about.is_in_maximum || !is_maximum) {
                given |= rights;
                used = used.and(about.privilege);
            }
        }
        (given, used)
    }

    /// Returns the names of the privileges, for records.
    pub fn names(self) -> Vec<&'static str> {
        let held = Self::ALL.into_iter().filter(|about| self.has(about.privilege));
        held.map(|about| about.name).collect()
    }
}

/// The holders of each privilege.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    pub backup: PrincipalSet,
    pub restore: PrincipalSet,
    pub security: PrincipalSet,
    pub take_ownership: PrincipalSet,
}

impl Holders {
    fn sets(&self) -> [(Privileges, &PrincipalSet); 4] {
        [
            (Privileges::BACKUP, &self.backup),
            (Privileges::RESTORE, &self.restore),
            (Privileges::SECURITY, &self.security),
            (Privileges::TAKE_OWNERSHIP, &self.take_ownership),
        ]
    }

    /// Returns true if no user has a privilege.
    pub fn is_empty(&self) -> bool {
        self.sets().iter().all(|(_, set)| set.is_empty())
    }

    /// Returns the privileges of a user that has logged on.
    pub fn of(&self, cred: &Cred) -> Privileges {
        let held = self.sets().into_iter().filter(|(_, set)| set.has(cred));
        held.fold(Privileges::NONE, |all, (one, _)| all.and(one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rights of each privilege, by the descriptions of SeBackupPrivilege and the others in Windows.
    fn rights(privilege: Privileges) -> u32 {
        match privilege {
            Privileges::BACKUP => {
                mask::READ_CONTROL | mask::ACCESS_SYSTEM_SECURITY | mask::FILE_READ | mask::EXECUTE
            }
            Privileges::RESTORE => {
                mask::WRITE_DAC
                    | mask::WRITE_OWNER
                    | mask::ACCESS_SYSTEM_SECURITY
                    | mask::FILE_WRITE
                    | mask::DELETE
            }
            Privileges::SECURITY => mask::ACCESS_SYSTEM_SECURITY,
            _ => mask::WRITE_OWNER,
        }
    }

    const EACH: [Privileges; 4] =
        [Privileges::BACKUP, Privileges::RESTORE, Privileges::SECURITY, Privileges::TAKE_OWNERSHIP];

    #[test]
    fn privileges_give_their_rights_and_no_others() {
        for held in (0..16).map(Privileges) {
            for bit in (0..32).map(|n| 1 << n) {
                for is_maximum in [false, true] {
                    let gives = |one: Privileges| {
                        let counts =
                            !is_maximum || [Privileges::BACKUP, Privileges::RESTORE].contains(&one);
                        held.has(one) && counts && rights(one) & bit != 0
                    };
                    let (given, used) = held.give(bit, is_maximum);
                    assert_eq!(given != 0, EACH.into_iter().any(gives), "{held:?} {bit:x}");
                    let used: Vec<_> = EACH.into_iter().filter(|one| used.has(*one)).collect();
                    assert_eq!(used.len(), usize::from(given != 0), "{held:?} {bit:x}");
                    assert!(used.into_iter().all(gives), "{held:?} {bit:x}");
                }
            }
        }
    }

    #[test]
    fn holders_are_users_and_members() {
        let of = |users: Vec<u32>, groups: Vec<u32>| PrincipalSet::new(users, groups);
        let cred = |uid, gid| Cred { uid, gid, groups: [].into(), token: vfs::Token::NONE };
        let holders = Holders {
            backup: of(vec![5], vec![50]),
            restore: of(vec![], vec![50]),
            ..Holders::default()
        };
        assert!(!holders.is_empty() && Holders::default().is_empty());
        assert_eq!(holders.of(&cred(5, 5)), Privileges::BACKUP);
        assert_eq!(holders.of(&cred(6, 50)), Privileges::BACKUP.and(Privileges::RESTORE));
        assert_eq!(holders.of(&cred(6, 6)), Privileges::NONE);
        assert_eq!(Privileges(15).names(), ["security", "backup", "restore", "take-ownership"]);
    }
}
