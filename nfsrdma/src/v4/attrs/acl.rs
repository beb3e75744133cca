//! Access control lists on the wire: the attributes `acl` and `dacl` (RFC 8881 sections 6.2.1 and 6.2.2).
//!
//! *Operation.* Types and rights have the numbers of [`vfs::acl`]; the flags for "inherited" and "group" differ. Users and groups
//! are shown like owners; Windows identifiers by name or else as such. Only allow and deny entries
//! are shown and accepted (`aclsupport`): audit entries of Windows clients are stored separately.
//!
//! *Errors.* ATTRNOTSUPP for audit and alarm entries, undefined rights, and inheritance flags outside of directories; BADOWNER for
//! unknown names; NOSPC for more than [`ACES_MAX`] entries: the most specific ones that SETATTR, CREATE and OPEN may return (RFC
//! 8881 section 15.2).

use std::borrow::Cow;

use nfs_proto::nfs4::attrs::{self, Nfsace4, Nfsacl41, Value};
use vfs::Kind;
use vfs::acl::{Ace, Acl, Sid, Who, control, flag, kind, mask};

use crate::v4::limits::ACES_MAX;
use crate::v4::limits::OWNER_MAX;
use crate::v4::names::{Id, IdMap, Meant, Names};
use crate::v4::status::Status;

/// ACL4_SUPPORT_ALLOW_ACL and ACL4_SUPPORT_DENY_ACL.
pub(super) const SUPPORT: u32 = 3;

const IDENTIFIER_GROUP: u32 = 0x40;
const INHERITED_ACE: u32 = 0x80;

/// Names that are the same in every domain (RFC 8881 section 6.2.1.5), with their Windows identifiers.
const SPECIAL: [(&str, &[u32]); 7] = [
    ("DIALUP@", &[1]),
    ("NETWORK@", &[2]),
    ("BATCH@", &[3]),
    ("INTERACTIVE@", &[4]),
    ("SERVICE@", &[6]),
    ("ANONYMOUS@", &[7]),
    ("AUTHENTICATED@", &[11]),
];

/// NT AUTHORITY.
const AUTHORITY: u64 = 5;

fn special(name: &str) -> Option<Sid> {
    let (_, subs) = SPECIAL.iter().find(|(n, _)| *n == name)?;
    Sid::new(AUTHORITY, subs)
}

fn name_of(sid: &Sid) -> String {
    let is = |(_, subs): &&(&str, &[u32])| Sid::new(AUTHORITY, subs).as_ref() == Some(sid);
    SPECIAL.iter().find(is).map_or_else(|| sid.to_string(), |(name, _)| (*name).to_owned())
}

/// An entry as sent to clients.
struct Shown<'p> {
    kind: u32,
    bits: u32,
    mask: u32,
    name: Cow<'p, [u8]>,
}

impl Shown<'_> {
    fn as_ace(&self) -> Nfsace4<'_> {
        let Self { kind, bits, mask, name } = self;
        Nfsace4 { acetype: *kind, flag: *bits, access_mask: *mask, who: name }
    }
}

/// Checks the length of the name of an owner, group or list entry. Every valid name is shorter than the limit.
pub(super) fn owner(name: &[u8]) -> Result<&[u8], Status> {
    if name.len() > OWNER_MAX { Err(Status::BadOwner) } else { Ok(name) }
}

/// Writes `fattr4_acl`.
pub(super) fn encode(acl: &Acl, kind: Kind, id_map: &IdMap, out: &mut Vec<u8>) {
    let shown = all(acl, kind, id_map);
    let aces = shown.iter().map(Shown::as_ace).collect();
    Value::Acl(attrs::Acl { aces }).emit(out);
}

/// Checks that only a directory gets a list with inheritance flags (ATTRNOTSUPP otherwise, as from Linux' server).
pub(super) fn check_flags(acl: &Acl, kind: Kind) -> Result<(), Status> {
    let passes_on =
        |ace: &Ace| matches!(ace, Ace::Simple { flags, .. } if flags & flag::PASSING_ON != 0);
    let has_any = acl.entries.iter().flatten().any(passes_on);
    if has_any && kind != Kind::Dir { Err(Status::AttrNotSupp) } else { Ok(()) }
}

/// Converts the entries. Inheritance flags on files have no effect; they are omitted so that a client can write the list back.
fn all<'p>(acl: &Acl, kind: Kind, id_map: &'p IdMap) -> Vec<Shown<'p>> {
    let is_dir = kind == Kind::Dir;
    let passing_on = u32::from(flag::PASSING_ON);
    let inherit_only = u32::from(flag::INHERIT_ONLY);
    let everyone = [Ace::allow(Who::Everyone, mask::FILE_ALL, 0)];
    let entries = acl.entries.as_deref().unwrap_or(&everyone);
    let shown = entries.iter().filter_map(|ace| match ace {
        Ace::Simple { kind: kind @ (kind::ALLOWED | kind::DENIED), flags, mask: m, who } => {
            Some(show((*kind, *flags, mask::map_generic(*m)), who, id_map))
        }
        _ => None,
    });
    let shown = shown.filter(|ace| is_dir || ace.bits & inherit_only == 0);
    shown
        .map(|ace| if is_dir { ace } else { Shown { bits: ace.bits & !passing_on, ..ace } })
        .collect()
}

fn show<'p>((kind, flags, mask): (u8, u8, u32), who: &Who, id_map: &'p IdMap) -> Shown<'p> {
    let mut bits = u32::from(flags & flag::PASSING_ON);
    if flags & flag::INHERITED != 0 {
        bits |= INHERITED_ACE;
    }
    let inherit_only = u32::from(flag::INHERIT_ONLY);
    let (id, name) = match who {
        Who::Owner => (None, "OWNER@".to_owned()),
        Who::Group => (None, "GROUP@".to_owned()),
        Who::Everyone => (None, "EVERYONE@".to_owned()),
        Who::User(uid) => (Some(Id::User(*uid)), String::new()),
        Who::Members(gid) => {
            bits |= IDENTIFIER_GROUP;
            (Some(Id::Group(*gid)), String::new())
        }
        // CREATOR OWNER and CREATOR GROUP apply only to children, as the child's owner or group.
        Who::Sid(sid) if *sid == Sid::creator_owner() => {
            bits |= inherit_only;
            (None, "OWNER@".to_owned())
        }
        Who::Sid(sid) if *sid == Sid::creator_group() => {
            bits |= inherit_only;
            (None, "GROUP@".to_owned())
        }
        Who::Sid(sid) => match id_map.name_of_sid(sid) {
            Some((name, is_group)) => {
                bits |= if is_group { IDENTIFIER_GROUP } else { 0 };
                (None, name.to_owned())
            }
            None => (None, name_of(sid)),
        },
    };
    let name = match id {
        Some(id) => id_map.shown(id),
        None => Cow::Owned(name.into_bytes()),
    };
    Shown { kind: kind.into(), bits, mask: mask & mask::FILE_ALL, name }
}

/// Writes `fattr4_dacl`.
pub(super) fn encode_dacl(acl: &Acl, kind: Kind, id_map: &IdMap, out: &mut Vec<u8>) {
    let bit = |ours: u16, theirs: u32| if acl.has(ours) { theirs } else { 0 };
    let na41_flag = FLAGS.iter().fold(0, |all, (ours, theirs)| all | bit(*ours, *theirs));
    let shown = all(acl, kind, id_map);
    let na41_aces = shown.iter().map(Shown::as_ace).collect();
    Value::Dacl(Nfsacl41 { na41_flag, na41_aces }).emit(out);
}

/// `aclflag4`: the flag of Windows, and the bit here.
const FLAGS: [(u16, u32); 3] =
    [(control::DACL_AUTO_INHERITED, 1), (control::DACL_PROTECTED, 2), (control::DACL_DEFAULTED, 4)];

/// Decodes `fattr4_acl`.
pub(super) fn of(aces: &[Nfsace4<'_>], names: &mut Names<'_>) -> Result<Acl, Status> {
    if aces.len() > ACES_MAX {
        return Err(Status::NoSpc);
    }
    let entries = aces.iter().map(|one| ace(one, names)).collect::<Result<_, _>>()?;
    Ok(Acl::new(entries))
}

/// Decodes `fattr4_dacl`.
pub(super) fn of_dacl(list: &Nfsacl41<'_>, names: &mut Names<'_>) -> Result<Acl, Status> {
    let bits = list.na41_flag;
    let known = FLAGS.iter().fold(0, |all, (_, theirs)| all | theirs);
    if bits & !known != 0 {
        return Err(Status::Inval);
    }
    let mut acl = of(&list.na41_aces, names)?;
    for (ours, theirs) in FLAGS {
        if bits & theirs != 0 {
            acl.control |= ours;
        }
    }
    Ok(acl)
}

fn ace(ace: &Nfsace4<'_>, names: &mut Names<'_>) -> Result<Ace, Status> {
    let (kind, bits, mask) = (ace.acetype, ace.flag, ace.access_mask);
    let name = owner(ace.who)?;
    let kind = match kind {
        0 => kind::ALLOWED,
        1 => kind::DENIED,
        2 | 3 => return Err(Status::AttrNotSupp),
        _ => return Err(Status::Inval),
    };
    let passing_on = u32::from(flag::PASSING_ON);
    // ACE4_SUCCESSFUL_ACCESS and ACE4_FAILED_ACCESS have no effect in allow and deny entries.
    const OF_AUDIT: u32 = 0x30;
    if bits & !(passing_on | IDENTIFIER_GROUP | INHERITED_ACE | OF_AUDIT) != 0 {
        return Err(Status::Inval);
    }
    if mask & !mask::FILE_ALL != 0 {
        return Err(Status::AttrNotSupp);
    }
    // Invariant: the flags are four bits.
    #[allow(clippy::cast_possible_truncation)]
    let mut flags = (bits & passing_on) as u8;
    if bits & INHERITED_ACE != 0 {
        flags |= flag::INHERITED;
    }
    Ok(Ace::Simple { kind, flags, mask, who: who(name, bits & IDENTIFIER_GROUP != 0, names)? })
}

fn who(name: &[u8], is_group: bool, names: &mut Names<'_>) -> Result<Who, Status> {
    let text = std::str::from_utf8(name).map_err(|_| Status::Inval)?;
    match text {
        "OWNER@" => return Ok(Who::Owner),
        "GROUP@" => return Ok(Who::Group),
        "EVERYONE@" => return Ok(Who::Everyone),
        _ => {}
    }
    if let Some(sid) = special(text).or_else(|| text.parse().ok()) {
        return Ok(Who::of_sid(sid));
    }
    Ok(match names.meant(name, is_group)? {
        Meant::Number(gid) if is_group => Who::Members(gid),
        Meant::Number(uid) => Who::User(uid),
        Meant::Sid(sid) => Who::of_sid(sid),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::xdr::decode;
    use proptest::prelude::*;

    fn wire(acl: &Acl) -> Vec<u8> {
        let mut out = Vec::new();
        encode_dacl(acl, Kind::Dir, &IdMap::default(), &mut out);
        out
    }

    fn read(bytes: &[u8]) -> Result<Acl, Status> {
        let (_, list) = decode::<Nfsacl41<'_>>(bytes).map_err(|_| Status::BadXdr)?;
        of_dacl(&list, &mut Names::default())
    }

    fn one(kind: u32, bits: u32, mask: u32, name: &[u8]) -> Result<Acl, Status> {
        let ace = Nfsace4 { acetype: kind, flag: bits, access_mask: mask, who: name };
        of(&[ace], &mut Names::default())
    }

    #[test]
    fn names_are_numeric_or_well_known() {
        let of = |name: &[u8], bits| {
            one(0, bits, 1, name).map(|acl| match &acl.entries()[0] {
                Ace::Simple { who, .. } => who.clone(),
                Ace::Other { .. } => Who::Everyone,
            })
        };
        assert_eq!(of(b"OWNER@", 0), Ok(Who::Owner));
        assert_eq!(of(b"GROUP@", IDENTIFIER_GROUP), Ok(Who::Group));
        assert_eq!(of(b"1000", 0), Ok(Who::User(1000)));
        assert_eq!(of(b"50@example.org", IDENTIFIER_GROUP), Ok(Who::Members(50)));
        assert_eq!(of(b"AUTHENTICATED@", 0), Ok(Who::Sid(Sid::authenticated_users())));
        assert_eq!(of(b"S-1-5-32-544", 0), Ok(Who::Sid(Sid::administrators())));
        assert_eq!(of(b"S-1-22-1-7", 0), Ok(Who::User(7)));
        assert_eq!(of(b"alice@example.org", 0), Err(Status::BadOwner));
        assert_eq!(of(b"", 0), Err(Status::Inval));
    }

    #[test]
    fn unsupported_entries_are_refused() {
        assert_eq!(one(2, 0, 1, b"OWNER@"), Err(Status::AttrNotSupp), "audit");
        assert_eq!(one(4, 0, 1, b"OWNER@"), Err(Status::Inval));
        assert_eq!(one(0, 0x100, 1, b"OWNER@"), Err(Status::Inval));
        assert_eq!(one(0, 0, 0x200, b"OWNER@"), Err(Status::AttrNotSupp), "retention");
        let ace = Nfsace4 { acetype: 0, flag: 0, access_mask: 1, who: b"OWNER@" };
        let list = |entries: usize| of(&vec![ace; entries], &mut Names::default());
        assert_eq!(list(ACES_MAX).map(|acl| acl.entries().len()), Ok(ACES_MAX));
        assert_eq!(list(ACES_MAX + 1), Err(Status::NoSpc));
    }

    #[test]
    fn windows_entries_are_shown() {
        let creator = Ace::allow(Who::Sid(Sid::creator_owner()), mask::GENERIC_ALL, 3);
        let mut acl = Acl::new(vec![
            creator,
            Ace::Other { kind: 5, flags: 0, body: vec![0; 8] },
            Ace::deny(Who::Sid(Sid::administrators()), mask::WRITE_DATA, flag::INHERITED),
        ]);
        acl.control |= control::DACL_PROTECTED;
        let got = read(&wire(&acl)).unwrap();
        let want = [
            Ace::allow(Who::Owner, mask::FILE_ALL, 3 | flag::INHERIT_ONLY),
            Ace::deny(Who::Sid(Sid::administrators()), mask::WRITE_DATA, flag::INHERITED),
        ];
        assert_eq!((got.entries(), got.has(control::DACL_PROTECTED)), (&want[..], true));
        let null = read(&wire(&Acl::default())).unwrap();
        assert_eq!(null.entries(), [Ace::allow(Who::Everyone, mask::FILE_ALL, 0)]);
    }

    fn any_who() -> impl Strategy<Value = Who> {
        prop_oneof![
            Just(Who::Owner),
            Just(Who::Group),
            Just(Who::Everyone),
            any::<u32>().prop_map(Who::User),
            any::<u32>().prop_map(Who::Members),
            (0..12_u32).prop_map(|n| Who::Sid(Sid::new(5, &[n]).unwrap())),
            any::<u32>().prop_map(|n| Who::Sid(Sid::new(5, &[21, n]).unwrap())),
        ]
    }

    proptest! {
        #[test]
        fn lists_survive_the_wire(
            entries in proptest::collection::vec((0..2_u8, 0..32_u8, any::<u32>(), any_who()), 0..9), bits in 0..8_u32,
        ) {
            let ace = |(kind, flags, m, who): (u8, u8, u32, Who)| {
                Ace::Simple { kind, flags, mask: m & mask::FILE_ALL, who }
            };
            let mut acl = Acl::new(entries.into_iter().map(ace).collect());
            for (ours, theirs) in FLAGS {
                acl.control |= if bits & theirs != 0 { ours } else { 0 };
            }
            prop_assert_eq!(read(&wire(&acl)).unwrap(), acl);
        }

        #[test]
        fn no_bytes_make_it_fall_over(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
