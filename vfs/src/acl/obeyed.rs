//! Finds entries that deny an identity of a domain.
//!
//! *Operation.* A caller has a number and groups by number. An entry for another identifier applies to a caller only if it is one
//! of the few identifiers for a class of callers ([`super::check`]). A gateway outside a domain may keep an entry for any other
//! identifier, because no caller has that identity. A gateway that accepts tickets of a domain has callers with such identities,
//! but cannot see them. It refuses entries that deny them a right, because it could not enforce these entries.

use super::{Ace, Acl, Sid, Who, kind};

/// NT AUTHORITY (MS-DTYP section 2.4.2.4).
const NT: u64 = 5;

/// Checks whether the gateway can tell which callers have this identifier: the identifiers of [`super::check`], and those that no
/// network caller has. S-1-3-0 and S-1-3-1 are replaced on inheritance, and apply to no caller before.
fn is_known(sid: &Sid) -> bool {
    /// Identifiers by the way of logon (MS-DTYP section 2.4.2.4): only NETWORK applies to network callers.
    const DIALUP: u32 = 1;
    const NETWORK: u32 = 2;
    const BATCH: u32 = 3;
    const INTERACTIVE: u32 = 4;
    const LOGON_ID: u32 = 5;
    const SERVICE: u32 = 6;
    const ANONYMOUS: u32 = 7;
    const AUTHENTICATED: u32 = 11;
    const REMOTE_INTERACTIVE: u32 = 14;
    const SYSTEM: u32 = 18;
    const LOCAL_SERVICE: u32 = 19;
    const NETWORK_SERVICE: u32 = 20;
    const SERVICES: u32 = 80;
    match (sid.authority(), sid.subs()) {
        // S-1-0-0, S-1-2-0, S-1-2-1 and S-1-3-0 to S-1-3-4.
        (0, [0]) | (2, [0 | 1]) | (3, [0..=4]) => true,
        (NT, [LOGON_ID, _, _] | [SERVICES, ..]) => true,
        (NT, [one]) => matches!(
            *one,
            DIALUP
                | NETWORK
                | BATCH
                | INTERACTIVE
                | SERVICE
                | ANONYMOUS
                | AUTHENTICATED
                | REMOTE_INTERACTIVE
                | SYSTEM
                | LOCAL_SERVICE
                | NETWORK_SERVICE
        ),
        _ => false,
    }
}

impl Acl {
    /// Returns the first identifier that an entry denies a right and that a gateway in a domain cannot match to callers. Entries
    /// that are only inherited count too, because they would not be enforced on the new files either.
    pub fn unknown_denied(&self) -> Option<&Sid> {
        self.entries().iter().find_map(|ace| match ace {
            Ace::Simple { kind: kind::DENIED, who: Who::Sid(sid), .. } if !is_known(sid) => {
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
    fn denied_identities_of_domains_are_unknown() {
        for name in [
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
        ] {
            let who = Who::of_sid(name.parse().unwrap());
            for flags in [0, flag::INHERITED, flag::OBJECT_INHERIT | flag::INHERIT_ONLY] {
                assert_eq!(denied(who.clone(), flags).as_deref(), Some(name), "{flags:#x}");
            }
        }
    }

    #[test]
    fn matched_denied_identities_are_known() {
        let sids = [
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
