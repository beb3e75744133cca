//! Access control lists: the one model of permission that every protocol shows in its own form.
//!
//! *Operation.* All of it is pure. A list is one of NFSv4 (RFC 8881 section 6), whose types, flags and rights have the numbers of
//! Windows (MS-DTYP section 2.4.4), and knows whom an entry is about by the numbers of this host, by the three special names of
//! NFSv4, or by an identifier of Windows that stands for none of these. A file without one has the list that its mode bits say
//! ([`Acl::of_mode`]). Entries count in their order: who writes them out of the canonical one gets what he wrote.
//!
//! *Memory.* A list is as long as what its client sent, which front ends limit.
//!
//! *Errors.* A record that cannot be read is none ([`Kept::decode`]).

pub mod check;
mod inherit;
pub mod mask;
mod mode;
mod obeyed;
pub mod posix;
mod record;
pub(crate) mod steps;

pub use record::{Kept, NAME};
pub use wire::Sid;

/// Types of entries that are understood (MS-DTYP section 2.4.4.1, RFC 8881 section 6.2.1.1); others are carried as they came.
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
    /// All that say what a directory passes on.
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

/// Whom an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// OWNER@: whoever owns the file.
    Owner,
    /// GROUP@: members of the file's group.
    Group,
    /// EVERYONE@, the owner and the group among them.
    Everyone,
    User(u32),
    /// Members of a group.
    Members(u32),
    /// What has no number here: principals of other machines and well-known ones.
    Sid(Sid),
}

impl Who {
    /// What an identifier of Windows stands for.
    pub fn of_sid(sid: Sid) -> Self {
        match (sid.as_unix_user(), sid.as_unix_group()) {
            (Some(uid), _) => Self::User(uid),
            (_, Some(gid)) => Self::Members(gid),
            _ if sid == Sid::everyone() => Self::Everyone,
            _ => Self::Sid(sid),
        }
    }

    /// As an identifier of Windows. The special names become those who are meant now.
    pub fn to_sid(&self, owner: Owner) -> Sid {
        match self {
            Self::Owner => Sid::unix_user(owner.uid),
            Self::Group => Sid::unix_group(owner.gid),
            Self::Everyone => Sid::everyone(),
            Self::User(uid) => Sid::unix_user(*uid),
            Self::Members(gid) => Sid::unix_group(*gid),
            Self::Sid(sid) => sid.clone(),
        }
    }
}

/// Who owns a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Owner {
    /// Of a file with these attributes.
    pub fn of(attr: &crate::Attr) -> Self {
        Self { uid: attr.uid, gid: attr.gid }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ace {
    /// A mask and whom it is about.
    Simple {
        /// Type ([`kind`]).
        kind: u8,
        flags: u8,
        /// Rights ([`mask`]).
        mask: u32,
        /// Whom it is about.
        who: Who,
    },
    /// An entry of another type: carried, inherited by nobody, granting nothing.
    Other {
        /// Type.
        kind: u8,
        flags: u8,
        /// What follows the four bytes of the entry's header.
        body: Vec<u8>,
    },
}

impl Ace {
    /// An entry that allows.
    pub fn allow(who: Who, mask: u32, flags: u8) -> Self {
        Self::Simple { kind: kind::ALLOWED, flags, mask, who }
    }

    /// An entry that denies.
    pub fn deny(who: Who, mask: u32, flags: u8) -> Self {
        Self::Simple { kind: kind::DENIED, flags, mask, who }
    }
}

/// The list of a file, with what Windows keeps beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// Control bits of the descriptor.
    pub control: u16,
    /// Revision of the list in Windows' form: 2, or 4 with object entries.
    pub revision: u8,
    /// The entries; `None` is the NULL list of Windows, which allows everything.
    pub entries: Option<Vec<Ace>>,
    /// An owner that has no number here; the file's own owner is shown where there is none.
    pub owner: Option<Sid>,
    /// A group that has no number here.
    pub group: Option<Sid>,
    /// The list of what is audited, in Windows' form: kept and shown, and nothing is done about it.
    pub audit: Option<Vec<u8>>,
}

impl Acl {
    /// Of these entries.
    pub fn new(entries: Vec<Ace>) -> Self {
        Self {
            control: control::DACL_PRESENT,
            revision: 2,
            entries: Some(entries),
            ..Self::default()
        }
    }

    /// The entries, none for a NULL list.
    pub fn entries(&self) -> &[Ace] {
        self.entries.as_deref().unwrap_or_default()
    }

    /// A bit of the control word is set.
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

    /// Anybody of a small world, in which entries meet.
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

    /// Any entry of a type that is understood.
    pub(crate) fn any_ace() -> impl Strategy<Value = Ace> {
        let mask = prop_oneof![any::<u32>().prop_map(|m| m & mask::FILE_ALL), any::<u32>()];
        (0..4_u8, 0..32_u8, mask, any_who()).prop_map(|(kind, flags, mask, who)| Ace::Simple {
            kind,
            flags,
            mask,
            who,
        })
    }

    /// Any list of entries.
    pub(crate) fn any_acl() -> impl Strategy<Value = Acl> {
        proptest::collection::vec(any_ace(), 0..7).prop_map(Acl::new)
    }

    /// Anybody whom those lists are about, but for the superuser.
    pub(crate) fn any_cred() -> impl Strategy<Value = Cred> {
        let uid = prop_oneof![6 => 1000..1005_u32, 1 => Just(ANONYMOUS)];
        (uid, 50..54_u32, proptest::collection::vec(50..54_u32, 0..3))
            .prop_map(|(uid, gid, groups)| Cred { uid, gid, groups: groups.into() })
    }

    #[test]
    fn identifiers_of_unix_are_its_users_and_groups() {
        let owner = Owner { uid: 7, gid: 8 };
        for who in [
            Who::User(1000),
            Who::Members(50),
            Who::Everyone,
            Who::Sid(Sid::administrators()),
            Who::Sid(Sid::owner_rights()),
        ] {
            assert_eq!(Who::of_sid(who.to_sid(owner)), who);
        }
        assert_eq!(Who::Owner.to_sid(owner), Sid::unix_user(7));
        assert_eq!(Who::Group.to_sid(owner), Sid::unix_group(8));
    }

    /// MS-DTYP section 2.4.6.
    #[test]
    fn a_control_bit_is_set_where_it_was_set() {
        let acl = Acl { control: 0x1004, ..Acl::default() };
        assert!(acl.has(control::DACL_PRESENT) && acl.has(control::DACL_PROTECTED));
        assert!(!acl.has(control::DACL_DEFAULTED) && !acl.has(control::DACL_AUTO_INHERITED));
    }
}
