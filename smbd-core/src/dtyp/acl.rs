//! Converts between security descriptors and the list that is stored with a file ([`vfs::acl`]).

use ahash::HashMap;
use vfs::acl::{self, Owner, Who, flag, sid_of_group, sid_of_user};
use vfs::{Attr, Domain};

use super::descriptor::control;
use super::{Ace, Acl, SecurityDescriptor, Sid};
use crate::status::Status;

/// Converts a descriptor to a list. Leaves out an owner or group that is a user or group of this host, because the file itself has
/// it.
pub fn of_descriptor(sd: &SecurityDescriptor) -> acl::Acl {
    let ace = |ace: &Ace| match ace {
        Ace::Simple { kind, flags, mask, sid } => acl::Ace::Simple {
            kind: *kind,
            flags: *flags,
            mask: *mask,
            who: Who::of_sid(sid.clone()),
        },
        Ace::Other { kind, flags, body } => {
            acl::Ace::Other { kind: *kind, flags: *flags, body: body.clone() }
        }
    };
    let foreign_user = |sid: &&Sid| sid.as_unix_user().is_none();
    let foreign_group = |sid: &&Sid| sid.as_unix_group().is_none();
    acl::Acl {
        control: sd.control & !control::SELF_RELATIVE,
        revision: sd.dacl.as_ref().map_or(2, |d| d.revision),
        entries: sd.dacl.as_ref().map(|d| d.aces.iter().map(ace).collect()),
        owner: sd.owner.as_ref().filter(foreign_user).cloned(),
        group: sd.group.as_ref().filter(foreign_group).cloned(),
        audit: sd.sacl.as_ref().map(Acl::emit),
    }
}

/// Gives entries back the numbers that the earlier list had in place of their identifiers. A list keeps the number: callers that
/// have only numbers match it even after the gateway has forgotten to which identifier it belongs.
pub fn keep_numbers(list: &mut acl::Acl, before: &acl::Acl, domain: &Domain) {
    let shown = |who: &Who| match who {
        Who::User(uid) => domain.sid_of_user(*uid),
        Who::Members(gid) => domain.sid_of_group(*gid),
        _ => None,
    };
    let numbered: HashMap<Sid, &Who> = before
        .entries()
        .iter()
        .filter_map(|ace| match ace {
            acl::Ace::Simple { who, .. } => Some(who),
            acl::Ace::Other { .. } => None,
        })
        .filter_map(|who| Some((shown(who)?, who)))
        .filter(|(sid, _)| domain.number(sid).is_none())
        .collect();
    if numbered.is_empty() {
        return;
    }
    for ace in list.entries.iter_mut().flatten() {
        if let acl::Ace::Simple { who, .. } = ace
            && let Who::Sid(sid) = who
            && let Some(number) = numbered.get(sid)
        {
            *who = (*number).clone();
        }
    }
}

/// Converts the list of a file to its descriptor.
pub fn to_descriptor(
    list: &acl::Acl,
    attr: &Attr,
    domain: Option<&Domain>,
) -> Result<SecurityDescriptor, Status> {
    let owner = Owner::of(attr);
    let dacl = list.entries.as_ref().map(|entries| {
        let mut aces = Vec::with_capacity(entries.len());
        entries.iter().for_each(|ace| put(ace, (owner, domain), &mut aces));
        Acl { revision: list.revision, aces }
    });
    Ok(SecurityDescriptor {
        control: list.control | control::SELF_RELATIVE,
        owner: Some(list.owner.clone().unwrap_or_else(|| sid_of_user(attr.uid, domain))),
        group: Some(list.group.clone().unwrap_or_else(|| sid_of_group(attr.gid, domain))),
        sacl: list
            .audit
            .as_deref()
            .map(Acl::parse)
            .transpose()
            .map_err(|_| Status::INVALID_PARAMETER)?,
        dacl,
    })
}

/// Converts one entry, or writes two for an entry that means the owner here and the creator below (MS-DTYP section 2.4.2.4).
fn put(ace: &acl::Ace, (owner, domain): (Owner, Option<&Domain>), out: &mut Vec<Ace>) {
    const PASSES_ON: u8 = flag::OBJECT_INHERIT | flag::CONTAINER_INHERIT;
    let (kind, flags, mask, who) = match ace {
        acl::Ace::Simple { kind, flags, mask, who } => (*kind, *flags, *mask, who),
        acl::Ace::Other { kind, flags, body } => {
            out.push(Ace::Other { kind: *kind, flags: *flags, body: body.clone() });
            return;
        }
    };
    let creator = match who {
        Who::Owner => Sid::creator_owner(),
        Who::Group => Sid::creator_group(),
        who => {
            out.push(Ace::Simple { kind, flags, mask, sid: who.to_sid(owner, domain) });
            return;
        }
    };
    if flags & flag::INHERIT_ONLY == 0 {
        let flags = flags & !flag::PASSING_ON;
        out.push(Ace::Simple { kind, flags, mask, sid: who.to_sid(owner, domain) });
    }
    if flags & PASSES_ON != 0 {
        out.push(Ace::Simple { kind, flags: flags | flag::INHERIT_ONLY, mask, sid: creator });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vfs::acl::mask;
    use vfs::{Kind, Time};

    fn any_sid() -> impl Strategy<Value = Sid> {
        (0..1_u64 << 48, proptest::collection::vec(any::<u32>(), 0..=15))
            .prop_map(|(a, s)| Sid::new(a, &s).unwrap())
    }

    fn any_ace() -> impl Strategy<Value = Ace> {
        prop_oneof![
            (0..4_u8, any::<u8>(), any::<u32>(), any_sid())
                .prop_map(|(kind, flags, mask, sid)| Ace::Simple { kind, flags, mask, sid }),
            (5..9_u8, any::<u8>(), 0..9_usize).prop_map(|(kind, flags, n)| Ace::Other {
                kind,
                flags,
                body: vec![7; n * 4]
            }),
        ]
    }

    fn any_acl() -> impl Strategy<Value = Acl> {
        (2..=4_u8, proptest::collection::vec(any_ace(), 0..6))
            .prop_map(|(revision, aces)| Acl { revision, aces })
    }

    fn any_descriptor() -> impl Strategy<Value = SecurityDescriptor> {
        use proptest::option::of;
        (any::<u16>(), of(any_sid()), of(any_sid()), of(any_acl()), of(any_acl())).prop_map(
            |(control, owner, group, sacl, dacl)| {
                let control = control | control::SELF_RELATIVE;
                let sacl = sacl.filter(|_| control & control::SACL_PRESENT != 0);
                let dacl = dacl.filter(|_| control & control::DACL_PRESENT != 0);
                SecurityDescriptor { control, owner, group, sacl, dacl }
            },
        )
    }

    fn attr() -> Attr {
        let none = Time::default();
        Attr {
            kind: Kind::Dir,
            mode: 0o755,
            nlink: 1,
            uid: 1000,
            gid: 50,
            size: 0,
            used: 0,
            rdev: (0, 0),
            fsid: 1,
            fileid: 1,
            atime: none,
            mtime: none,
            ctime: none,
            btime: None,
            change: 1,
            sealed: false,
        }
    }

    #[test]
    fn special_names_are_owner_here_and_creator_below() {
        let (oi, io) = (flag::OBJECT_INHERIT, flag::INHERIT_ONLY);
        let list = acl::Acl::new(vec![
            acl::Ace::allow(Who::Owner, mask::FILE_ALL, oi),
            acl::Ace::allow(Who::Group, mask::FILE_READ, 0),
            acl::Ace::allow(Who::Group, mask::FILE_READ, oi | io),
        ]);
        let sd = to_descriptor(&list, &attr(), None).unwrap();
        assert_eq!(
            sd.dacl.unwrap().aces,
            [
                Ace::allow(Sid::unix_user(1000), mask::FILE_ALL, 0),
                Ace::allow(Sid::creator_owner(), mask::FILE_ALL, oi | io),
                Ace::allow(Sid::unix_group(50), mask::FILE_READ, 0),
                Ace::allow(Sid::creator_group(), mask::FILE_READ, oi | io),
            ]
        );
    }

    proptest! {
        /// A client reads back what it set, bit for bit; an owner and group that it left out come from the file.
        #[test]
        fn descriptors_come_back_as_they_were_set(sd in any_descriptor()) {
            let mut want = sd.clone();
            want.owner = sd.owner.clone().or(Some(Sid::unix_user(1000)));
            want.group = sd.group.clone().or(Some(Sid::unix_group(50)));
            let mut at = attr();
            at.uid = want.owner.as_ref().and_then(Sid::as_unix_user).unwrap_or(1000);
            at.gid = want.group.as_ref().and_then(Sid::as_unix_group).unwrap_or(50);
            let mut got = to_descriptor(&of_descriptor(&sd), &at, None).unwrap();
            if sd.dacl.is_none() {
                got.dacl = None;
            }
            prop_assert_eq!(got, want);
        }
    }
}
