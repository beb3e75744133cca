//! The security descriptor that `access` of a share means, as administration tools show it.

use vfs::Domain;
use vfs::acl::{kind, sid_of_group, sid_of_user};
use vfs::namespace::{OfDomain, PrincipalSet, Share};

use crate::dtyp::descriptor::control;
use crate::dtyp::{Ace, Acl, SecurityDescriptor, Sid, mask};
use crate::share_access::{READ_ACCESS, most};

/// The longest access control list: its length has 16 bits (MS-DTYP section 2.4.5).
const LIST_MAX: usize = u16::MAX as usize;

/// Returns the descriptor; `None` if its list would be too long. Users of the domain that have not logged on yet have no identifier
/// here, and are left out.
pub(crate) fn of(share: &Share, domain: Option<&Domain>) -> Option<Vec<u8>> {
    let entry = |kind, mask, sid| Ace::Simple { kind, flags: 0, mask, sid };
    let mut aces = Vec::new();
    let mut add = |set: &PrincipalSet, kind, mask| {
        aces.extend(sids(set, domain).into_iter().map(|sid| entry(kind, mask, sid)));
    };
    let full = most(share);
    match &share.rules.access {
        None => add(&PrincipalSet::everyone(), kind::ALLOWED, full),
        Some(access) => {
            add(&access.deny, kind::DENIED, mask::FILE_ALL);
            add(&access.admin, kind::ALLOWED, full);
            add(&access.write, kind::ALLOWED, full);
            add(&access.read, kind::ALLOWED, READ_ACCESS);
        }
    }
    let dacl = Acl::new(aces);
    if dacl.wire_len() > LIST_MAX {
        return None;
    }
    let administrators = Some(Sid::administrators());
    let sd = SecurityDescriptor {
        control: control::SELF_RELATIVE | control::DACL_PRESENT,
        owner: administrators.clone(),
        group: administrators,
        sacl: None,
        dacl: Some(dacl),
    };
    Some(sd.emit())
}

fn sids(set: &PrincipalSet, domain: Option<&Domain>) -> Vec<Sid> {
    if set.is_everyone() {
        return vec![Sid::everyone()];
    }
    let (users, groups, sids, of_domain) = set.parts();
    let of = |one: &OfDomain| match one {
        OfDomain::User(name) => domain?.user_named(name),
        OfDomain::Rid(rid) => domain?.sid()?.child(*rid),
    };
    let users = users.iter().map(|uid| sid_of_user(*uid, domain));
    let groups = groups.iter().map(|gid| sid_of_group(*gid, domain));
    let others = sids.iter().cloned().chain(of_domain.iter().filter_map(of));
    users.chain(groups).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use vfs::namespace::{Rules, ShareAccess};

    use super::*;
    use crate::harness::Harness;

    fn entries(rules: Rules, read_only: bool) -> Option<Vec<(u8, u32, String)>> {
        let data = Harness::new().core.namespace.shares()[0].clone();
        let (name, backend) = (data.name.clone(), data.backend.clone());
        let share = Share { name, backend, clients: None, rules, read_only, ..*data };
        let sd = SecurityDescriptor::parse(&of(&share, None)?).unwrap();
        let entry = |ace: Ace| match ace {
            Ace::Simple { kind, mask, sid, .. } => (kind, mask, sid.to_string()),
            Ace::Other { .. } => unreachable!(),
        };
        Some(sd.dacl.unwrap().aces.into_iter().map(entry).collect())
    }

    #[test]
    fn descriptor_of_share_lists_access() {
        let all = || vec![(kind::ALLOWED, mask::FILE_ALL, "S-1-1-0".to_owned())];
        assert_eq!(entries(Rules::default(), false), Some(all()));
        let of = |users: &[u32], groups: &[u32]| PrincipalSet::new(users.into(), groups.into());
        let access = ShareAccess {
            admin: of(&[9], &[]),
            read: of(&[5], &[50]),
            write: of(&[6], &[]),
            deny: of(&[7], &[]),
        };
        let rules = || Rules { access: Some(access.clone()), ..Rules::default() };
        for (read_only, most) in [(false, mask::FILE_ALL), (true, READ_ACCESS)] {
            let wanted = [
                (kind::DENIED, mask::FILE_ALL, "S-1-22-1-7"),
                (kind::ALLOWED, most, "S-1-22-1-9"),
                (kind::ALLOWED, most, "S-1-22-1-6"),
                (kind::ALLOWED, READ_ACCESS, "S-1-22-1-5"),
                (kind::ALLOWED, READ_ACCESS, "S-1-22-2-50"),
            ];
            let wanted = wanted.map(|(kind, mask, sid)| (kind, mask, sid.to_owned()));
            assert_eq!(entries(rules(), read_only), Some(wanted.to_vec()));
        }
        let many: Vec<u32> = (0..5000).collect();
        let access = ShareAccess { read: PrincipalSet::new(many, vec![]), ..Default::default() };
        assert_eq!(entries(Rules { access: Some(access), ..Rules::default() }, false), None);
    }
}
