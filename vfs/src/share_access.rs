//! The rights of users to a share.
//!
//! *Operation.* Users and groups are numbers here: the reader of the configuration has looked their names up. The numbers are
//! sorted, so that the check for each NFS call takes only some nanoseconds.

use crate::refusal::Refusal;
use crate::types::Cred;

/// Users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrincipalSet {
    everyone: bool,
    users: Box<[u32]>,
    groups: Box<[u32]>,
}

impl PrincipalSet {
    /// Creates a set of these users, and of the members of these groups.
    pub fn new(users: Vec<u32>, groups: Vec<u32>) -> Self {
        Self { everyone: false, users: sorted(users), groups: sorted(groups) }
    }

    /// Creates the set of all callers.
    pub fn everyone() -> Self {
        Self { everyone: true, ..Self::default() }
    }

    /// Returns true if no caller is in the set.
    pub fn is_empty(&self) -> bool {
        !self.everyone && self.users.is_empty() && self.groups.is_empty()
    }

    /// Returns true if this caller is in the set.
    pub fn has(&self, cred: &Cred) -> bool {
        let is_in = |list: &[u32], number: u32| list.binary_search(&number).is_ok();
        self.everyone
            || is_in(&self.users, cred.uid)
            || !self.groups.is_empty()
                && (is_in(&self.groups, cred.gid)
                    || cred.groups.iter().any(|g| is_in(&self.groups, *g)))
    }
}

fn sorted(mut numbers: Vec<u32>) -> Box<[u32]> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into()
}

/// The right of a user to a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// List and read.
    Read,
    /// All operations that the files permit.
    Write,
}

/// The users with rights to a share. A user outside all lists has no rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareAccess {
    /// Users with permission to read.
    pub read: PrincipalSet,
    /// Users with permission to write, and to read.
    pub write: PrincipalSet,
    /// Users without any rights, whatever the other lists contain.
    pub deny: PrincipalSet,
}

impl ShareAccess {
    /// Returns the right of this caller.
    pub fn right(&self, cred: &Cred) -> Result<Right, Refusal> {
        if self.deny.has(cred) {
            Err(Refusal::Denied)
        } else if self.write.has(cred) {
            Ok(Right::Write)
        } else if self.read.has(cred) {
            Ok(Right::Read)
        } else {
            Err(Refusal::NotNamed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cred(uid: u32, gid: u32, groups: &[u32]) -> Cred {
        Cred { uid, gid, groups: groups.into(), token: crate::Token::NONE }
    }

    #[test]
    fn deny_wins_and_write_includes_read() {
        let access = ShareAccess {
            read: PrincipalSet::new(vec![9, 1, 5, 5], vec![100]),
            write: PrincipalSet::new(vec![5], vec![200]),
            deny: PrincipalSet::new(vec![1], vec![300]),
        };
        let of = |uid, gid, groups: &[u32]| access.right(&cred(uid, gid, groups));
        assert_eq!(of(9, 9, &[]), Ok(Right::Read));
        assert_eq!(of(5, 9, &[]), Ok(Right::Write));
        assert_eq!(of(7, 100, &[]), Ok(Right::Read), "by its primary group");
        assert_eq!(of(7, 7, &[8, 100]), Ok(Right::Read));
        assert_eq!(of(7, 7, &[100, 200]), Ok(Right::Write));
        assert_eq!(of(1, 200, &[100]), Err(Refusal::Denied));
        assert_eq!(of(5, 5, &[300]), Err(Refusal::Denied));
        assert_eq!(of(7, 7, &[8]), Err(Refusal::NotNamed));
        assert_eq!(of(100, 7, &[]), Err(Refusal::NotNamed), "a group's number is no user");
    }

    #[test]
    fn everyone_except_denied_users() {
        let deny = PrincipalSet::new(vec![1], Vec::new());
        let access =
            ShareAccess { write: PrincipalSet::everyone(), deny, ..ShareAccess::default() };
        assert_eq!(access.right(&cred(7, 7, &[])), Ok(Right::Write));
        assert_eq!(access.right(&cred(1, 7, &[])), Err(Refusal::Denied));
        assert!(PrincipalSet::default().is_empty() && !PrincipalSet::everyone().is_empty());
    }
}
