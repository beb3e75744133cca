//! Finds entries that deny an identity of which the gateway cannot tell whether a caller has it.
//!
//! *Operation.* Callers have numbers, and callers with a ticket of a domain also have identifiers ([`crate::token`]). The gateway
//! knows the members of three aliases of `BUILTIN` ([`super::check`]) and keeps no members of the others. A gateway in a domain
//! refuses entries that deny such an alias a right, because it could not enforce them. A gateway outside a domain may keep them.

use super::{Ace, Acl, Sid, Who, kind};

/// NT AUTHORITY (MS-DTYP section 2.4.2.4).
pub(super) const NT: u64 = 5;

/// Checks whether no network caller has this identifier. S-1-3-0 and S-1-3-1 are replaced on inheritance, and apply to no caller
/// before.
pub(super) fn is_of_no_caller(sid: &Sid) -> bool {
    const DIALUP: u32 = 1;
    const BATCH: u32 = 3;
    const INTERACTIVE: u32 = 4;
    const LOGON_ID: u32 = 5;
    const SERVICE: u32 = 6;
    const REMOTE_INTERACTIVE: u32 = 14;
    const SYSTEM: u32 = 18;
    const LOCAL_SERVICE: u32 = 19;
    const NETWORK_SERVICE: u32 = 20;
    const AUTHENTICATION: u32 = 64;
    const SERVICES: u32 = 80;
    match (sid.authority(), sid.subs()) {
        // S-1-0-0, S-1-2-0, S-1-2-1 and S-1-3-0 to S-1-3-3.
        (0, [0]) | (2, [0 | 1]) | (3, [0..=3]) => true,
        // S-1-5-64-14 and S-1-5-64-21: SChannel and Digest Authentication.
        (NT, [LOGON_ID, _, _] | [SERVICES, ..] | [AUTHENTICATION, 14 | 21]) => true,
        (NT, [one]) => matches!(
            *one,
            DIALUP
                | BATCH
                | INTERACTIVE
                | SERVICE
                | REMOTE_INTERACTIVE
                | SYSTEM
                | LOCAL_SERVICE
                | NETWORK_SERVICE
        ),
        _ => false,
    }
}

/// An alias of this computer whose members are not known.
fn is_unknown_alias(sid: &Sid) -> bool {
    const BUILTIN: u32 = 32;
    const ADMINISTRATORS: u32 = 544;
    const GUESTS: u32 = 546;
    match (sid.authority(), sid.subs()) {
        (NT, [BUILTIN, alias]) => !(ADMINISTRATORS..=GUESTS).contains(alias),
        (NT, [BUILTIN, ..]) => true,
        _ => false,
    }
}

impl Acl {
    /// Returns the first identifier that an entry denies a right and that a gateway in a domain cannot match to callers. Entries
    /// that are only inherited count too, because they would not be enforced on the new files either.
    pub fn unknown_denied(&self) -> Option<&Sid> {
        self.entries().iter().find_map(|ace| match ace {
            Ace::Simple { kind: kind::DENIED, who: Who::Sid(sid), .. } if is_unknown_alias(sid) => {
                Some(sid)
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{flag, mask};
    use super::*;

    fn denied(who: Who, flags: u8) -> Option<String> {
        let acl = Acl::new(vec![
            Ace::allow(Who::Sid(Sid::new(NT, &[21, 7, 7, 7, 1]).unwrap()), mask::FILE_ALL, 0),
            Ace::deny(who, mask::READ_DATA, flags),
        ]);
        acl.unknown_denied().map(ToString::to_string)
    }

    #[test]
    fn denied_aliases_without_members_are_unknown() {
        for name in ["S-1-5-32", "S-1-5-32-547", "S-1-5-32-551", "S-1-5-32-544-1"] {
            let who = Who::of_sid(name.parse().unwrap());
            for flags in [0, flag::INHERITED, flag::OBJECT_INHERIT | flag::INHERIT_ONLY] {
                assert_eq!(denied(who.clone(), flags).as_deref(), Some(name), "{flags:#x}");
            }
        }
    }

    #[test]
    fn denied_identities_that_are_matched_are_known() {
        let sids = [
            "S-1-5-21-1-2-3-1114",
            "S-1-5-21-1-2-3-513",
            "S-1-5-32-544",
            "S-1-5-32-545",
            "S-1-5-32-546",
            "S-1-5-15",
            "S-1-5-9",
            "S-1-5-64-10",
            "S-1-18-1",
            "S-1-12-1-1-2-3-4",
            "S-1-5",
            "S-1-1-0",
            "S-1-2-0",
            "S-1-3-0",
            "S-1-3-1",
            "S-1-3-4",
            "S-1-5-2",
            "S-1-5-4",
            "S-1-5-7",
            "S-1-5-11",
            "S-1-5-18",
            "S-1-5-5-1-2",
            "S-1-22-1-1000",
            "S-1-22-2-1000",
            "S-1-5-88-1-1000",
        ];
        let of = |name: &str| Who::of_sid(name.parse().unwrap());
        let others = [Who::Owner, Who::Group, Who::Everyone, Who::User(1), Who::Members(1)];
        for who in sids.into_iter().map(of).chain(others) {
            assert_eq!(denied(who.clone(), 0), None, "{who:?}");
        }
    }
}
