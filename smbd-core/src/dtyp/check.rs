//! Converts mode bits to a security descriptor for files without their own list, and prepares descriptors from clients for storage.
//! [`vfs::acl`] evaluates lists and inherits entries.

use vfs::acl::flag;

use super::descriptor::control;
use super::{Ace, Acl, SecurityDescriptor, Sid, mask};
use crate::status::Status;

/// Prepares a descriptor for storage: maps generic rights of entries that apply to this object, and replaces the bits that request
/// inheritance by the bit that reports it (MS-DTYP section 2.5.3.4.4).
pub fn kept(sd: &mut SecurityDescriptor) {
    for (req, auto) in [
        (control::DACL_AUTO_INHERIT_REQ, control::DACL_AUTO_INHERITED),
        (control::SACL_AUTO_INHERIT_REQ, control::SACL_AUTO_INHERITED),
    ] {
        if sd.control & req == 0 {
            sd.control &= !auto;
        }
        sd.control &= !req;
    }
    const PASSING_ON: u8 = flag::OBJECT_INHERIT | flag::CONTAINER_INHERIT | flag::INHERIT_ONLY;
    for ace in sd.dacl.iter_mut().flat_map(|d| &mut d.aces) {
        if let Ace::Simple { flags, mask: m, .. } = ace
            && *flags & PASSING_ON == 0
        {
            *m = mask::map_generic(*m);
        }
    }
}

/// Refuses a list with a deny entry that this server would store but not enforce, which would grant the denied access: an entry
/// with a condition or for an object type (MS-DTYP sections 2.4.4.5, 2.4.4.8 and 2.4.4.10) and, if callers have identities of a
/// domain, one for an alias with unknown members ([`vfs::acl::Acl::unknown_denied`]).
///
/// # Errors
///
/// INVALID_ACL.
pub fn understood(sd: &SecurityDescriptor, has_domain: bool) -> Result<(), Status> {
    const DENIED_OBJECT: u8 = 0x06;
    const DENIED_CALLBACK: u8 = 0x0a;
    const DENIED_CALLBACK_OBJECT: u8 = 0x0c;
    let denies = |ace: &Ace| {
        matches!(
            ace,
            Ace::Other { kind: DENIED_OBJECT | DENIED_CALLBACK | DENIED_CALLBACK_OBJECT, .. }
        )
    };
    let unknown = || super::acl::of_descriptor(sd).unknown_denied().is_some();
    if sd.dacl.iter().flat_map(|dacl| &dacl.aces).any(denies) || has_domain && unknown() {
        return Err(Status::INVALID_ACL);
    }
    Ok(())
}

/// Refuses a SACL with a central access policy (MS-DTYP section 2.4.4.16), which this server does not apply. A SACL without one
/// means that there is no policy.
///
/// # Errors
///
/// INVALID_ACL.
pub fn without_policy(sd: &SecurityDescriptor) -> Result<(), Status> {
    const SCOPED_POLICY_ID: u8 = 0x13;
    let is_policy = |ace: &Ace| matches!(ace, Ace::Other { kind: SCOPED_POLICY_ID, .. });
    match sd.sacl.iter().flat_map(|sacl| &sacl.aces).any(is_policy) {
        true => Err(Status::INVALID_ACL),
        false => Ok(()),
    }
}

/// Returns the rights for one class of mode bits. FILE_EXECUTE comes with read access: Windows needs it to start a program, and
/// files made on Unix hosts have no execute bit for that purpose.
fn rights_of(bits: u32, is_dir: bool) -> u32 {
    let mut rights = mask::READ_ATTRIBUTES | mask::READ_CONTROL | mask::SYNCHRONIZE;
    if bits & 4 != 0 {
        rights |= mask::FILE_READ;
        if !is_dir {
            rights |= mask::FILE_EXECUTE;
        }
    }
    if bits & 2 != 0 {
        rights |= mask::FILE_WRITE;
        if is_dir {
            rights |= mask::DELETE_CHILD;
        }
    }
    if bits & 1 != 0 {
        rights |= mask::FILE_EXECUTE;
    }
    rights
}

/// Rights of an owner in addition to the rights by mode bits.
const OWNER_EXTRA: u32 = mask::WRITE_DAC
    | mask::WRITE_OWNER
    | mask::WRITE_ATTRIBUTES
    | mask::WRITE_EA
    | mask::READ_EA
    | mask::DELETE;

fn owner_rights_of(bits: u32, is_dir: bool) -> u32 {
    let rights = rights_of(bits, is_dir) | OWNER_EXTRA;
    // DELETE_CHILD has no meaning for a file, but completes the mask that Windows shows as full control.
    if bits & 6 == 6 { rights | mask::DELETE_CHILD | mask::APPEND_DATA } else { rights }
}

/// Returns the rights of a user to whom one class of mode bits (`rwx`, 7 at most) applies.
pub fn rights_of_class(bits: u32, is_dir: bool, is_owner: bool) -> u32 {
    if is_owner { owner_rights_of(bits, is_dir) } else { rights_of(bits, is_dir) }
}

/// Converts an NFS list for Windows clients, which send it back with entries added: each entry gets the rights that its bits mean
/// to them, so that setting the list again removes no access. Inherit-only entries remain unchanged.
pub fn as_windows(acl: &vfs::acl::Acl, attr: &vfs::Attr) -> vfs::acl::Acl {
    use vfs::acl::{Ace, Who, kind};
    if !acl.is_of_nfs() {
        return acl.clone();
    }
    let is_dir = attr.kind == vfs::Kind::Dir;
    let bits = |rights: u32| {
        let has = |all: u32, bit: u32| if rights & all == all { bit } else { 0 };
        has(mask::READ_DATA, 4)
            | has(mask::WRITE_DATA | mask::APPEND_DATA, 2)
            | has(mask::EXECUTE, 1)
    };
    let always = rights_of(0, is_dir);
    // The right to execute comes with the right to read, which another entry may grant.
    let runs = |who: &Who| {
        acl.entries().iter().any(|one| match one {
            Ace::Simple { kind: kind::ALLOWED, mask, who: w, .. } => {
                w == who && mask & (mask::READ_DATA | mask::EXECUTE) != 0
            }
            _ => false,
        })
    };
    let mut shown = acl.clone();
    for ace in shown.entries.iter_mut().flatten() {
        let Ace::Simple { kind: k, flags, mask: m, who } = ace else { continue };
        if *flags & flag::PASSING_ON != 0 {
            continue;
        }
        let is_owner = *who == Who::Owner;
        match *k {
            kind::ALLOWED => {
                *m |= rights_of_class(bits(*m), is_dir, is_owner) & !mask::DELETE & !always;
            }
            kind::DENIED => {
                *m |= rights_of(bits(*m), is_dir) & !always;
                if is_owner {
                    *m &= !OWNER_EXTRA;
                }
                if !is_dir && runs(who) {
                    *m &= !mask::EXECUTE;
                }
            }
            _ => {}
        }
    }
    shown
}

/// Builds the descriptor that is equivalent to these mode bits: one entry per class.
pub fn of_mode(mode: u32, is_dir: bool, owner: &Sid, group: &Sid) -> SecurityDescriptor {
    SecurityDescriptor {
        control: control::SELF_RELATIVE | control::DACL_PRESENT,
        owner: Some(owner.clone()),
        group: Some(group.clone()),
        sacl: None,
        dacl: Some(Acl::new(vec![
            Ace::allow(owner.clone(), owner_rights_of(mode >> 6 & 7, is_dir), 0),
            Ace::allow(group.clone(), rights_of(mode >> 3 & 7, is_dir), 0),
            Ace::allow(Sid::everyone(), rights_of(mode & 7, is_dir), 0),
        ])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flag::CONTAINER_INHERIT as CI;

    fn alice() -> Sid {
        Sid::unix_user(1000)
    }

    #[test]
    fn asking_for_inheritance_is_not_kept_but_what_it_means() {
        use control::{DACL_AUTO_INHERIT_REQ as REQ, DACL_AUTO_INHERITED as AUTO};
        for (given, want) in [(0, 0), (REQ, 0), (AUTO, 0), (REQ | AUTO, AUTO)] {
            let mut sd = SecurityDescriptor { control: given, ..Default::default() };
            kept(&mut sd);
            assert_eq!(sd.control, want);
        }
        let mut sd = SecurityDescriptor {
            control: control::DACL_PRESENT,
            dacl: Some(Acl::new(vec![
                Ace::allow(alice(), mask::GENERIC_READ, 0),
                Ace::allow(alice(), mask::GENERIC_READ, CI),
            ])),
            ..Default::default()
        };
        kept(&mut sd);
        let masks: Vec<u32> = sd
            .dacl
            .unwrap()
            .aces
            .iter()
            .map(|a| match a {
                Ace::Simple { mask, .. } => *mask,
                Ace::Other { .. } => 0,
            })
            .collect();
        assert_eq!(masks, [mask::FILE_READ, mask::GENERIC_READ]);
    }

    #[test]
    fn a_full_owner_has_what_windows_calls_full_control() {
        for (is_dir, mode) in [(false, 0o644), (true, 0o755)] {
            let sd = of_mode(mode, is_dir, &alice(), &Sid::unix_group(50));
            let first = &sd.dacl.unwrap().aces[0];
            assert_eq!(*first, Ace::allow(alice(), mask::FILE_ALL, 0));
        }
    }
}
