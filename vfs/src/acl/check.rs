//! Computes the rights that a list grants (MS-DTYP section 2.5.3.2, RFC 8881 section 6.2.1.3).

use super::obeyed::{NT, is_of_no_caller};
use super::{Ace, Acl, Owner, Sid, Who, flag, kind, mask};
use crate::token::{self, CheckedCaller, Meant};
use crate::types::ANONYMOUS;
use crate::types::Cred;

/// First number of the SIDs of domains and computers (SECURITY_NT_NON_UNIQUE).
const DOMAIN: u32 = 21;

/// The owner may always read and change the list, unless an entry for OWNER RIGHTS says otherwise.
const OWNER_IMPLIED: u32 = mask::READ_CONTROL | mask::WRITE_DAC;

/// Checks whether an entry applies to the caller, by identifiers and by numbers (MS-DTYP section 2.5.3.2).
fn is_meant(who: &Who, cred: &CheckedCaller<'_>, owner: Owner) -> Meant {
    let is = match who {
        Who::Owner => cred.uid == owner.uid,
        Who::Group => cred.in_group(owner.gid),
        Who::Everyone => true,
        Who::User(uid) => cred.uid == *uid || cred.token.has_number(*uid),
        Who::Members(gid) => cred.in_group(*gid) || cred.token.has_number(*gid),
        Who::Sid(sid) => return is_meant_by_sid(sid, cred, owner),
    };
    if is { Meant::Yes } else { Meant::No }
}

/// Asks whether an identifier stands for callers of a kind that the caller is of (MS-DTYP section 2.4.2.4), or is one of its own.
pub(crate) fn is_meant_by_sid(sid: &Sid, cred: &CheckedCaller<'_>, owner: Owner) -> Meant {
    const THIS_ORGANIZATION: u32 = 15;
    const AUTHENTICATION: u32 = 64;
    let known = cred.uid != ANONYMOUS;
    let is_user = known && !cred.token.is_guest_account();
    let is = match (sid.authority(), sid.subs()) {
        // OWNER RIGHTS, NETWORK, Authenticated Users, BUILTIN\Users, ANONYMOUS LOGON, BUILTIN\Guests.
        (3, [4]) => cred.uid == owner.uid,
        (NT, [2]) => true,
        (NT, [11] | [32, 545]) => is_user,
        (NT, [THIS_ORGANIZATION]) => known && !cred.token.is_of_other_organization(),
        (NT, [7]) => !known,
        (NT, [32, 546]) => !known || cred.token.is_in_guests(),
        // NTLM Authentication. Guests have proved no password: an entry that denies applies to them, one that allows does not.
        (NT, [AUTHENTICATION, 10]) if cred.token.is_by_ntlm() && !known => return Meant::Maybe,
        (NT, [AUTHENTICATION, 10]) => cred.token.is_by_ntlm(),
        (NT, [32, 544]) if cred.uid != 0 => return token::meant_as_administrator(cred),
        (NT, [32, 544]) => true,
        // Other aliases of this computer have no members here.
        (NT, [32, ..]) => false,
        _ if is_of_no_caller(sid) => false,
        _ => return token::meant_by_sid(sid, cred),
    };
    if is { Meant::Yes } else { Meant::No }
}

impl Acl {
    /// Iterates over the entries that apply to this file or directory, with generic rights mapped: kind, rights, principal.
    pub(super) fn effective(&self) -> impl Iterator<Item = (u8, u32, &Who)> {
        self.entries().iter().filter_map(|ace| match ace {
            Ace::Simple { kind, flags, mask: m, who }
                if matches!(*kind, kind::ALLOWED | kind::DENIED)
                    && flags & flag::INHERIT_ONLY == 0 =>
            {
                Some((*kind, mask::map_generic(*m), who))
            }
            _ => None,
        })
    }

    /// Returns the rights granted and the rights denied to the principals for which `meant` is true: the first entry that contains
    /// a right decides about it. In a list of NFS form extended attributes follow the data where no entry denies them, because
    /// lists of earlier versions do not mention them. In a list of Windows each right is separate, as smbtorture records
    /// (smb2.acls).
    fn decided(&self, meant: impl Fn(u8, &Who) -> bool) -> (u32, u32) {
        if self.entries.is_none() {
            return (mask::FILE_ALL, 0);
        }
        let (mut granted, mut denied) = (0, 0);
        for (kind, m, _) in self.effective().filter(|(kind, _, who)| meant(*kind, who)) {
            match kind {
                kind::ALLOWED => granted |= m & !denied,
                _ => denied |= m & !granted,
            }
        }
        let pairs = [(mask::READ_DATA, mask::READ_EA), (mask::WRITE_DATA, mask::WRITE_EA)];
        for (data, attributes) in pairs.into_iter().filter(|_| self.is_of_nfs()) {
            granted |= if granted & data != 0 { attributes & !denied } else { 0 };
        }
        (granted & mask::FILE_ALL, denied)
    }

    /// Returns the rights granted to the principals for which `meant` is true.
    pub(super) fn allowed_where(&self, meant: impl Fn(&Who) -> bool) -> u32 {
        self.decided(|_, who| meant(who)).0
    }

    /// As [`Acl::decided`], for a caller: an entry that denies counts also where it may be about the caller.
    fn decided_for(&self, cred: &Cred, owner: Owner) -> (u32, u32) {
        let cred = &CheckedCaller::of(cred);
        let meant = |who: &Who| match who.is_owner_rights() {
            true => self.owns(cred, owner),
            false => is_meant(who, cred, owner),
        };
        self.decided(|kind, who| meant(who).counts(kind == kind::DENIED))
    }

    /// Checks whether the caller is the owner that clients see: the identifier of the list, if it has one, else the file's owner
    /// (MS-DTYP section 2.5.3.2).
    fn owns(&self, cred: &CheckedCaller<'_>, owner: Owner) -> Meant {
        let Some(sid) = &self.owner else { return is_meant(&Who::Owner, cred, owner) };
        match Who::of_sid(sid.clone()) {
            who @ (Who::User(_) | Who::Members(_)) => is_meant(&who, cred, owner),
            Who::Sid(sid) if sid == Sid::administrators() => is_meant_by_sid(&sid, cred, owner),
            // A group of all callers owns nothing.
            Who::Sid(sid) if sid.authority() == NT && sid.subs().first() == Some(&DOMAIN) => {
                token::meant_by_sid(&sid, cred)
            }
            _ => Meant::No,
        }
    }

    /// Checks whether an NFS client may read a file to run it (RFC 8881 section 6.2.1.3.1): yes, unless an entry denies reading.
    pub(crate) fn runs(&self, cred: &Cred, owner: Owner) -> bool {
        let (granted, denied) = self.decided_for(cred, owner);
        granted & mask::EXECUTE != 0 && denied & mask::READ_DATA == 0
    }

    /// Returns all rights of a caller to a file of this owner, without ACCESS_SYSTEM_SECURITY, which depends on a privilege. The
    /// superuser has all rights.
    pub fn allowed(&self, cred: &Cred, owner: Owner) -> u32 {
        if cred.uid == 0 {
            return mask::FILE_ALL;
        }
        let granted = self.decided_for(cred, owner).0;
        let restricted = || self.effective().any(|(_, _, w)| w.is_owner_rights());
        let owns = self.owns(&CheckedCaller::of(cred), owner) == Meant::Yes;
        let implied = if owns && !restricted() { OWNER_IMPLIED } else { 0 };
        granted | implied
    }

    /// Returns the rights that entries deny the caller.
    pub fn denied(&self, cred: &Cred, owner: Owner) -> u32 {
        self.decided_for(cred, owner).1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::{any_acl, any_cred};
    use super::*;
    use proptest::prelude::*;

    const OWNER: Owner = Owner { uid: 1000, gid: 50 };

    fn cred(uid: u32) -> Cred {
        Cred { uid, gid: 50, groups: Arc::new([]), token: crate::Token::NONE }
    }

    fn allowed(entries: Vec<Ace>, uid: u32) -> u32 {
        Acl::new(entries).allowed(&cred(uid), OWNER)
    }

    #[test]
    fn entries_count_in_their_order() {
        let allow = Ace::allow(Who::Everyone, mask::FILE_READ, 0);
        let no = Ace::deny(Who::Members(50), mask::READ_DATA, 0);
        let without = mask::FILE_READ & !mask::READ_DATA;
        assert_eq!(allowed(vec![no.clone(), allow.clone()], 2), without);
        assert_eq!(allowed(vec![no.clone(), allow.clone()], 1000), without | mask::WRITE_DAC);
        assert_eq!(allowed(vec![allow, no], 2), mask::FILE_READ, "allowed before denied");
        assert_eq!(allowed(vec![], 2), 0);
        assert_eq!(allowed(vec![], 1000), OWNER_IMPLIED);
        assert_eq!(allowed(vec![], 0), mask::FILE_ALL, "the superuser");
        assert_eq!(Acl::default().allowed(&cred(2), OWNER), mask::FILE_ALL, "a NULL list");
        let passed_on = flag::INHERIT_ONLY | flag::OBJECT_INHERIT;
        assert_eq!(allowed(vec![Ace::allow(Who::Everyone, mask::GENERIC_ALL, passed_on)], 2), 0);
        let generic = Ace::allow(Who::Everyone, mask::GENERIC_READ, 0);
        assert_eq!(allowed(vec![generic], 2), mask::FILE_READ);
    }

    #[test]
    fn special_names_mean_current_owner() {
        let acl = Acl::new(vec![
            Ace::deny(Who::Owner, mask::WRITE_DATA, 0),
            Ace::allow(Who::Owner, mask::FILE_ALL, 0),
            Ace::allow(Who::Group, mask::READ_DATA, 0),
        ]);
        assert_eq!(acl.allowed(&cred(1000), OWNER), mask::FILE_ALL & !mask::WRITE_DATA);
        assert_eq!(acl.allowed(&cred(2), OWNER), mask::READ_DATA | mask::READ_EA);
        let other = Owner { uid: 2, gid: 51 };
        assert_eq!(acl.allowed(&cred(1000), other), 0);
        assert_eq!(acl.allowed(&cred(2), other), mask::FILE_ALL & !mask::WRITE_DATA);
    }

    #[test]
    fn owner_rights_entry_replaces_implied_rights() {
        let who = Who::Sid(Sid::owner_rights());
        let rights = Ace::allow(who.clone(), mask::READ_DATA, 0);
        assert_eq!(allowed(vec![rights.clone()], 1000), mask::READ_DATA);
        assert_eq!(allowed(vec![rights], 2), 0);
        let entries = vec![
            Ace::deny(who, mask::WRITE_DATA, 0),
            Ace::allow(Who::User(1000), mask::FILE_WRITE, 0),
        ];
        assert_eq!(allowed(entries, 1000), mask::FILE_WRITE & !mask::WRITE_DATA);
    }

    /// An owner without a number takes the rights of the file's owner on the host.
    #[test]
    fn owner_of_descriptor_has_implied_rights() {
        let of = |sid: Sid, entries: Vec<Ace>| Acl { owner: Some(sid), ..Acl::new(entries) };
        let rights = || vec![Ace::allow(Who::Sid(Sid::owner_rights()), mask::READ_DATA, 0)];
        let foreign = Sid::new(5, &[21, 1, 2, 3, 512]).unwrap();
        for (owner, owns) in [
            (Sid::unix_group(50), [true, true]),
            (Sid::unix_group(51), [false, false]),
            (Sid::unix_user(2), [false, true]),
            (Sid::administrators(), [false, false]),
            (foreign, [false, false]),
            (Sid::everyone(), [false, false]),
            (Sid::authenticated_users(), [false, false]),
            (Sid::system(), [false, false]),
        ] {
            for (uid, owns) in [1000, 2].into_iter().zip(owns) {
                let implied = of(owner.clone(), vec![]).allowed(&cred(uid), OWNER);
                assert_eq!(implied, if owns { OWNER_IMPLIED } else { 0 }, "{owner} {uid}");
                let by_entry = of(owner.clone(), rights()).allowed(&cred(uid), OWNER);
                assert_eq!(by_entry, if owns { mask::READ_DATA } else { 0 }, "{owner} {uid}");
            }
        }
    }

    #[test]
    fn executable_file_readable_unless_denied() {
        let run = Ace::allow(Who::Everyone, mask::EXECUTE, 0);
        let no = Ace::deny(Who::User(2), mask::READ_DATA, 0);
        assert!(Acl::new(vec![run.clone()]).runs(&cred(2), OWNER));
        assert!(!Acl::new(vec![no.clone(), run.clone()]).runs(&cred(2), OWNER));
        assert!(Acl::new(vec![no, run]).runs(&cred(3), OWNER));
        assert!(!Acl::new(vec![]).runs(&cred(2), OWNER));
    }

    #[test]
    fn squashed_caller_is_unknown_user() {
        let of = |sid| vec![Ace::allow(Who::Sid(sid), mask::READ_DATA, 0)];
        const READ: u32 = mask::READ_DATA;
        assert_eq!(allowed(of(Sid::authenticated_users()), 2), READ);
        assert_eq!(allowed(of(Sid::authenticated_users()), ANONYMOUS), 0);
        assert_eq!(allowed(of(Sid::anonymous()), ANONYMOUS), READ);
        assert_eq!(allowed(of(Sid::administrators()), 2), 0);
    }

    /// RFC 8881 section 6.2.1.5, MS-DTYP section 2.4.2.4. Callers: the owner, a member of the file's group, a stranger, an unknown
    /// user, the superuser.
    #[test]
    fn entry_applies_to_named_principals() {
        let of = |uid, gid| Cred { uid, gid, groups: Arc::new([]), token: crate::Token::NONE };
        let in_both = Cred { groups: Arc::new([49, 50]), ..of(2, 7) };
        let callers = [of(1000, 7), in_both, of(3, 99), of(ANONYMOUS, ANONYMOUS), of(0, 0)];
        let sid = Who::Sid;
        for (who, about) in [
            (Who::Owner, [true, false, false, false, false]),
            (Who::Group, [false, true, false, false, false]),
            (Who::Everyone, [true; 5]),
            (Who::User(3), [false, false, true, false, false]),
            (Who::Members(49), [false, true, false, false, false]),
            (Who::Members(99), [false, false, true, false, false]),
            (sid(Sid::owner_rights()), [true, false, false, false, false]),
            (sid(Sid::network()), [true; 5]),
            (sid(Sid::authenticated_users()), [true, true, true, false, true]),
            (sid(Sid::anonymous()), [false, false, false, true, false]),
            (sid(Sid::administrators()), [false, false, false, false, true]),
            (sid(Sid::new(5, &[32, 545]).unwrap()), [true, true, true, false, true]),
            (sid(Sid::new(5, &[32, 546]).unwrap()), [false, false, false, true, false]),
            (sid(Sid::system()), [false; 5]),
            (sid(Sid::creator_owner()), [false; 5]),
            (sid(Sid::creator_group()), [false; 5]),
            (sid(Sid::new(5, &[21, 1000]).unwrap()), [false; 5]),
        ] {
            let meant: Vec<bool> = callers
                .iter()
                .map(|c| is_meant(&who, &CheckedCaller::of(c), OWNER) == Meant::Yes)
                .collect();
            assert_eq!(meant, about, "{who:?}");
        }
    }

    proptest! {
        /// RFC 8881 section 6.2.1: the first entry about the caller that contains a right decides about that right.
        #[test]
        fn first_entry_with_right_decides(acl in any_acl(), user in any_cred(), bit in 0..21_u32) {
            let right = 1 << bit & mask::FILE_ALL;
            let first = acl.effective().find(|(_, m, who)| {
                let user = &CheckedCaller::of(&user);
                let meant = if who.is_owner_rights() { acl.owns(user, OWNER) } else { is_meant(who, user, OWNER) };
                m & right != 0 && meant == Meant::Yes
            });
            let own = acl.owns(&CheckedCaller::of(&user), OWNER) == Meant::Yes && OWNER_IMPLIED & right != 0;
            let restricted = acl.effective().any(|(_, _, who)| *who == Who::Sid(Sid::owner_rights()));
            // In a list of NFS form extended attributes follow the data.
            let data = match right {
                mask::READ_EA => mask::READ_DATA,
                mask::WRITE_EA => mask::WRITE_DATA,
                _ => 0,
            };
            let by_data = acl.is_of_nfs() && first.is_none() && acl.allowed(&user, OWNER) & data != 0;
            let want = first.is_some_and(|(k, ..)| k == kind::ALLOWED) || own && !restricted || by_data;
            prop_assert_eq!(acl.allowed(&user, OWNER) & right != 0, want);
        }
    }
}
