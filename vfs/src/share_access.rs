//! The rights of users to a share.
//!
//! *Operation.* Users and groups are numbers here: the reader of the configuration has looked their names up. The numbers are
//! sorted, so that the check for each NFS call takes only some nanoseconds. Users and groups of a domain are identifiers, or names
//! that tickets prove; where the gateway cannot tell whether a caller has such an identity, an entry that denies counts, and one
//! that allows does not.

use crate::acl::check::is_meant_by_sid;
use crate::acl::{Owner, Sid};
use crate::refusal::Refusal;
use crate::token::{CheckedCaller, Meant, meant_by_name, meant_by_rid, why_unsure};
use crate::types::{ANONYMOUS, Cred};

/// A user or group of the domain whose identifier is known after a logon.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OfDomain {
    /// A user, by name.
    User(Box<str>),
    /// A user or group, by RID.
    Rid(u32),
}

/// Users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrincipalSet {
    everyone: bool,
    users: Box<[u32]>,
    groups: Box<[u32]>,
    sids: Box<[Sid]>,
    of_domain: Box<[OfDomain]>,
}

impl PrincipalSet {
    /// Creates a set of these users, and of the members of these groups.
    pub fn new(users: Vec<u32>, groups: Vec<u32>) -> Self {
        Self { users: sorted(users), groups: sorted(groups), ..Self::default() }
    }

    /// Creates the set of all callers.
    pub fn everyone() -> Self {
        Self { everyone: true, ..Self::default() }
    }

    /// Adds users and groups of a domain.
    #[must_use]
    pub fn with_identities(self, sids: Vec<Sid>, of_domain: Vec<OfDomain>) -> Self {
        Self { sids: sorted(sids), of_domain: sorted(of_domain), ..self }
    }

    /// Returns true if no caller is in the set.
    pub fn is_empty(&self) -> bool {
        !self.everyone
            && self.users.is_empty()
            && self.groups.is_empty()
            && self.sids.is_empty()
            && self.of_domain.is_empty()
    }

    /// Returns true if the set contains all callers.
    pub fn is_everyone(&self) -> bool {
        self.everyone
    }

    /// Returns the numbers of users, those of groups, and the identities of a domain.
    pub fn parts(&self) -> (&[u32], &[u32], &[Sid], &[OfDomain]) {
        (&self.users, &self.groups, &self.sids, &self.of_domain)
    }

    /// Returns true if this caller is in the set.
    pub fn has(&self, cred: &Cred) -> bool {
        self.is_meant(cred, false)
    }

    /// Returns true if this caller is in the set, or may be.
    pub fn may_have(&self, cred: &Cred) -> bool {
        self.is_meant(cred, true)
    }

    fn is_meant(&self, cred: &Cred, denies: bool) -> bool {
        let is_in = |list: &[u32], number: u32| list.binary_search(&number).is_ok();
        let cred = &CheckedCaller::of(cred);
        self.everyone
            || is_in(&self.users, cred.uid)
            || !self.groups.is_empty()
                && (is_in(&self.groups, cred.gid)
                    || cred.groups.iter().any(|g| is_in(&self.groups, *g)))
            || self.sids.iter().any(|sid| meant_by_sid(sid, cred).counts(denies))
            || self.of_domain.iter().any(|one| meant(one, cred).counts(denies))
    }
}

fn meant_by_sid(sid: &Sid, cred: &CheckedCaller<'_>) -> Meant {
    // The identifier of the owner of a file is in no set.
    is_meant_by_sid(sid, cred, Owner { uid: ANONYMOUS, gid: ANONYMOUS })
}

fn meant(one: &OfDomain, cred: &CheckedCaller<'_>) -> Meant {
    match one {
        OfDomain::User(name) => meant_by_name(name, cred),
        OfDomain::Rid(rid) => meant_by_rid(*rid, cred),
    }
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Box<[T]> {
    all.sort_unstable();
    all.dedup();
    all.into()
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
    /// SMB users with all rights to all files. They may read and write over NFS, as the files permit.
    pub admin: PrincipalSet,
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
        if self.deny.may_have(cred) {
            let is_named = self.deny.has(cred);
            Err(if is_named { Refusal::Denied } else { Refusal::Unsure(why_unsure(cred)) })
        } else if self.write.has(cred) || self.admin.has(cred) {
            Ok(Right::Write)
        } else if self.read.has(cred) {
            Ok(Right::Read)
        } else {
            Err(Refusal::NotNamed)
        }
    }

    /// Returns true if an SMB user has all rights to all files. Guests never have.
    pub fn is_admin(&self, cred: &Cred) -> bool {
        cred.uid != ANONYMOUS && self.admin.has(cred) && !self.deny.may_have(cred)
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
            ..ShareAccess::default()
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

    /// What a set of identities means, written out: whether a caller is in it, or may be in it.
    #[test]
    fn identities_match_tickets_and_numbers() {
        const BASE: u32 = 100_000;
        let sid = |text: &str| text.parse::<Sid>().unwrap();
        let of = |domain: &str, rid: u32| sid(&format!("S-1-5-21-{domain}-{rid}"));
        for base in [Some(BASE), None] {
            let domain = crate::Domain::new(base);
            domain.know(crate::DomainIdentity {
                sid: sid("S-1-5-21-1-2-3"),
                name: "LAB".into(),
                dns: "lab.test".into(),
            });
            domain.know_user(BASE + 1103, &of("1-2-3", 1103), "Alice");
            domain.know_user(2000, &of("9-9-9", 1103), "alice");
            let ticket = |uid, user: Sid, groups: &[Sid]| Cred {
                token: crate::Token::of_ticket(&domain, user, groups.iter().cloned()),
                ..cred(uid, 7, &[])
            };
            let host =
                |uid, gid| Cred { token: crate::Token::of_host(&domain), ..cred(uid, gid, &[]) };
            let alice =
                ticket(BASE + 1103, of("1-2-3", 1103), &[of("1-2-3", 1114), of("1-2-3", 512)]);
            let foreign = ticket(2000, of("9-9-9", 1103), &[of("9-9-9", 1114)]);
            let by_name = OfDomain::User("alice".into());
            let unseen = OfDomain::User("bob".into());
            let (yes, no, maybe) = ((true, true), (false, false), (false, true));
            let is_rid = base.is_some();
            // Alice by ticket, a user of another domain, alice by her number, a caller in the group's number, a local user, guests.
            let callers = [
                &alice,
                &foreign,
                &host(BASE + 1103, 7),
                &host(3, BASE + 1114),
                &host(3, 3),
                &host(ANONYMOUS, ANONYMOUS),
            ];
            // With `map: names` the numbers of users are those of the host.
            let by_number = if is_rid { yes } else { maybe };
            let other = |numbered| if numbered { no } else { maybe };
            for (sids, named, wanted) in [
                (vec![of("1-2-3", 1103)], vec![], [yes, no, by_number, maybe, maybe, no]),
                (vec![], vec![by_name], [yes, no, by_number, maybe, maybe, no]),
                (vec![], vec![unseen], [no, no, maybe, maybe, maybe, no]),
                (
                    vec![of("1-2-3", 1114)],
                    vec![],
                    [yes, no, other(is_rid), if is_rid { yes } else { maybe }, maybe, no],
                ),
                (vec![], vec![OfDomain::Rid(512)], [yes, no, other(is_rid), maybe, maybe, no]),
                (vec![sid("S-1-5-32-544")], vec![], [yes, no, other(is_rid), maybe, maybe, no]),
                (vec![of("9-9-9", 1114)], vec![], [no, yes, maybe, maybe, maybe, no]),
            ] {
                let set = PrincipalSet::default().with_identities(sids, named);
                for (n, (caller, wanted)) in callers.iter().zip(wanted).enumerate() {
                    // By name alone a domain knows the numbers of its users only from their tickets.
                    let told = (set.has(caller), set.may_have(caller));
                    assert_eq!(told, wanted, "{base:?} {set:?} {n}");
                }
                let outside = cred(BASE + 1103, 7, &[BASE + 1114]);
                assert_eq!(
                    (set.has(&outside), set.may_have(&outside)),
                    no,
                    "in no domain: {set:?}"
                );
            }
        }
    }

    /// Before the first ticket of a domain its identifier is unknown.
    #[test]
    fn groups_by_rid_match_numbers_before_first_ticket() {
        let admins = PrincipalSet::default().with_identities(vec![], vec![OfDomain::Rid(512)]);
        for (base, in_group) in [(Some(100_000), (true, true)), (None, (false, true))] {
            let domain = crate::Domain::new(base);
            let host = |gid| Cred { token: crate::Token::of_host(&domain), ..cred(5, gid, &[]) };
            let member = host(100_512);
            assert_eq!((admins.has(&member), admins.may_have(&member)), in_group, "{base:?}");
            assert!(!admins.has(&host(5)) && admins.may_have(&host(5)), "{base:?}");
        }
    }
}
