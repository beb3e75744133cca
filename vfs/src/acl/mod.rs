//! Access control lists: the one model of permission that every protocol shows in its own form.
//!
//! *Operation.* The module does no I/O. A list is one of NFSv4 (RFC 8881 section 6), whose types, flags and rights have the numbers
//! of Windows (MS-DTYP section 2.4.4). An entry names its principal by a number of this host, by one of the three special names of
//! NFSv4, or by a Windows identifier that maps to neither. A file without a list has the one that its mode bits express
//! ([`Acl::of_mode`]). Entries count in their order: a client that writes them out of the canonical order gets the effect of that
//! order.
//!
//! *Memory.* A list is as long as its client sent it; front ends limit the length.
//!
//! *Errors.* An unreadable record counts as no list ([`Kept::decode`]).

pub mod check;
#[cfg(test)]
mod identities;
mod inherit;
pub mod mask;
mod mode;
mod obeyed;
pub mod posix;
mod record;
pub(crate) mod steps;

pub use record::{Kept, NAME};
pub use wire::Sid;

use crate::token::Domain;

/// Types of entries that are understood (MS-DTYP section 2.4.4.1, RFC 8881 section 6.2.1.1); others are stored unchanged.
#[allow(missing_docs)] // The names are the specification's.
pub mod kind {
    pub const ALLOWED: u8 = 0;
    pub const DENIED: u8 = 1;
    pub const AUDIT: u8 = 2;
    pub const ALARM: u8 = 3;
    pub const MANDATORY_LABEL: u8 = 0x11;
}

/// Flags of an entry (MS-DTYP section 2.4.4.1).
#[allow(missing_docs)]
pub mod flag {
    pub const OBJECT_INHERIT: u8 = 0x01;
    pub const CONTAINER_INHERIT: u8 = 0x02;
    pub const NO_PROPAGATE: u8 = 0x04;
    pub const INHERIT_ONLY: u8 = 0x08;
    pub const INHERITED: u8 = 0x10;
    /// All flags that control inheritance.
    pub const PASSING_ON: u8 = OBJECT_INHERIT | CONTAINER_INHERIT | NO_PROPAGATE | INHERIT_ONLY;
}

/// Bits of [`Acl::control`] (MS-DTYP section 2.4.6).
#[allow(missing_docs)]
pub mod control {
    pub const DACL_PRESENT: u16 = 0x0004;
    pub const DACL_DEFAULTED: u16 = 0x0008;
    pub const DACL_AUTO_INHERITED: u16 = 0x0400;
    pub const DACL_PROTECTED: u16 = 0x1000;
}

/// The principal of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// OWNER@: the current owner of the file.
    Owner,
    /// GROUP@: members of the file's group.
    Group,
    /// EVERYONE@, including the owner and the group.
    Everyone,
    User(u32),
    /// Members of a group.
    Members(u32),
    /// A principal without a number on this host: one of another machine or a well-known one.
    Sid(Sid),
}

impl Who {
    /// Maps a Windows identifier to a principal.
    pub fn of_sid(sid: Sid) -> Self {
        match (sid.as_unix_user(), sid.as_unix_group()) {
            (Some(uid), _) => Self::User(uid),
            (_, Some(gid)) => Self::Members(gid),
            _ if sid == Sid::everyone() => Self::Everyone,
            _ => Self::Sid(sid),
        }
    }

    /// Checks whether this is OWNER RIGHTS.
    pub(crate) fn is_owner_rights(&self) -> bool {
        matches!(self, Self::Sid(sid) if sid.authority() == 3 && *sid.subs() == [4])
    }

    /// Returns the Windows identifier: that of the domain if it has the number. The special names become the current owner and
    /// group.
    pub fn to_sid(&self, owner: Owner, domain: Option<&Domain>) -> Sid {
        match self {
            Self::Owner => sid_of_user(owner.uid, domain),
            Self::Group => sid_of_group(owner.gid, domain),
            Self::Everyone => Sid::everyone(),
            Self::User(uid) => sid_of_user(*uid, domain),
            Self::Members(gid) => sid_of_group(*gid, domain),
            Self::Sid(sid) => sid.clone(),
        }
    }
}

/// Returns the identifier of a user: that of the domain if it has the number.
pub fn sid_of_user(uid: u32, domain: Option<&Domain>) -> Sid {
    domain.and_then(|domain| domain.sid_of_user(uid)).unwrap_or_else(|| Sid::unix_user(uid))
}

/// Returns the identifier of a group: that of the domain if it has the number.
pub fn sid_of_group(gid: u32, domain: Option<&Domain>) -> Sid {
    domain.and_then(|domain| domain.sid_of_group(gid)).unwrap_or_else(|| Sid::unix_group(gid))
}

/// Owner and group of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    /// Returns owner and group from the attributes of a file.
    pub fn of(attr: &crate::Attr) -> Self {
        Self { uid: attr.uid, gid: attr.gid }
    }
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ace {
    /// An entry with a mask and a principal.
    Simple {
        /// Type ([`kind`]).
        kind: u8,
        flags: u8,
        /// Rights ([`mask`]).
        mask: u32,
        /// Principal.
        who: Who,
    },
    /// An entry of another type: stored, but neither inherited nor used to grant rights.
    Other {
        kind: u8,
        flags: u8,
        /// The bytes after the four bytes of the entry's header.
        body: Vec<u8>,
    },
}

impl Ace {
    /// Builds an entry that allows.
    pub fn allow(who: Who, mask: u32, flags: u8) -> Self {
        Self::Simple { kind: kind::ALLOWED, flags, mask, who }
    }

    /// Builds an entry that denies.
    pub fn deny(who: Who, mask: u32, flags: u8) -> Self {
        Self::Simple { kind: kind::DENIED, flags, mask, who }
    }
}

/// The list of a file, with the additional data of a Windows security descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// Control bits of the descriptor.
    pub control: u16,
    /// Revision of the list in Windows' form: 2, or 4 with object entries.
    pub revision: u8,
    /// The entries; `None` is the NULL list of Windows, which allows everything.
    pub entries: Option<Vec<Ace>>,
    /// An owner without a number on this host; if `None`, the file's owner is shown.
    pub owner: Option<Sid>,
    /// A group without a number on this host.
    pub group: Option<Sid>,
    /// The audit list in Windows' form: stored and shown, without any effect.
    pub audit: Option<Vec<u8>>,
}

impl Acl {
    /// Builds a list from these entries.
    pub fn new(entries: Vec<Ace>) -> Self {
        Self {
            control: control::DACL_PRESENT,
            revision: 2,
            entries: Some(entries),
            ..Self::default()
        }
    }

    /// Returns the entries, an empty slice for a NULL list.
    pub fn entries(&self) -> &[Ace] {
        self.entries.as_deref().unwrap_or_default()
    }

    /// Replaces domain identifiers of the file's owner and group with their numbers, so that the mode bits show the rights of owner
    /// and group, and a new mode changes their entries. Entries that deny keep them: a caller of another kind than by ticket is
    /// denied where the gateway cannot tell. Where users have numbers by their names, it replaces the identifiers of all users that
    /// it knows: clients are shown such identifiers for entries that were made by number, and write them back.
    #[must_use]
    pub fn with_owner_known(mut self, owner: Owner, domain: Option<&Domain>) -> Self {
        let Some(domain) = domain else { return self };
        for ace in self.entries.iter_mut().flatten() {
            let Ace::Simple { kind, who, .. } = ace else { continue };
            let Who::Sid(sid) = &*who else { continue };
            if domain.base().is_none() {
                if let Some(uid) = domain.uid(sid) {
                    *who = Who::User(uid);
                } else if *kind != kind::DENIED && domain.gid(sid) == Some(owner.gid) {
                    *who = Who::Members(owner.gid);
                }
                continue;
            }
            match domain.number(sid).filter(|_| *kind != kind::DENIED) {
                Some(uid) if uid == owner.uid => *who = Who::User(uid),
                Some(gid) if gid == owner.gid => *who = Who::Members(gid),
                _ => {}
            }
        }
        self
    }

    /// Checks whether a bit of the control word is set.
    pub fn has(&self, bit: u16) -> bool {
        self.control & bit != 0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::types::ANONYMOUS;
    use crate::types::Cred;
    use proptest::prelude::*;

    /// Generates a principal from a small set, so that entries overlap.
    pub(crate) fn any_who() -> impl Strategy<Value = Who> {
        prop_oneof![
            Just(Who::Owner),
            Just(Who::Group),
            Just(Who::Everyone),
            (1000..1004_u32).prop_map(Who::User),
            (50..53_u32).prop_map(Who::Members),
            Just(Who::Sid(Sid::owner_rights())),
            Just(Who::Sid(Sid::creator_owner())),
            Just(Who::Sid(Sid::creator_group())),
            Just(Who::Sid(Sid::authenticated_users())),
            any::<u32>().prop_map(|n| Who::Sid(Sid::new(5, &[21, n]).unwrap())),
        ]
    }

    /// Generates an entry of a type that is understood.
    pub(crate) fn any_ace() -> impl Strategy<Value = Ace> {
        let mask = prop_oneof![any::<u32>().prop_map(|m| m & mask::FILE_ALL), any::<u32>()];
        (0..4_u8, 0..32_u8, mask, any_who()).prop_map(|(kind, flags, mask, who)| Ace::Simple {
            kind,
            flags,
            mask,
            who,
        })
    }

    /// Generates a list of entries.
    pub(crate) fn any_acl() -> impl Strategy<Value = Acl> {
        proptest::collection::vec(any_ace(), 0..7).prop_map(Acl::new)
    }

    /// Generates a caller that those lists may name, except the superuser.
    pub(crate) fn any_cred() -> impl Strategy<Value = Cred> {
        let uid = prop_oneof![6 => 1000..1005_u32, 1 => Just(ANONYMOUS)];
        (uid, 50..54_u32, proptest::collection::vec(50..54_u32, 0..3)).prop_map(
            |(uid, gid, groups)| Cred {
                uid,
                gid,
                groups: groups.into(),
                token: crate::Token::NONE,
            },
        )
    }

    #[test]
    fn unix_identifiers_map_to_ids() {
        let owner = Owner { uid: 7, gid: 8 };
        for who in [
            Who::User(1000),
            Who::Members(50),
            Who::Everyone,
            Who::Sid(Sid::administrators()),
            Who::Sid(Sid::owner_rights()),
        ] {
            assert_eq!(Who::of_sid(who.to_sid(owner, None)), who);
        }
        assert_eq!(Who::Owner.to_sid(owner, None), Sid::unix_user(7));
        assert_eq!(Who::Group.to_sid(owner, None), Sid::unix_group(8));
    }

    /// MS-DTYP section 2.4.6.
    #[test]
    fn control_bit_found_where_set() {
        let acl = Acl { control: 0x1004, ..Acl::default() };
        assert!(acl.has(control::DACL_PRESENT) && acl.has(control::DACL_PROTECTED));
        assert!(!acl.has(control::DACL_DEFAULTED) && !acl.has(control::DACL_AUTO_INHERITED));
    }
}
