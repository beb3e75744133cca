//! NFSACL version 3 on the wire: POSIX.1e access control lists, a separate program on the connections of NFSv3. There is no RFC; it
//! is Solaris' `nfs_acl.x`, as Linux implements it since 2.6.13 (`fs/nfs_common/nfsacl.c`).
//!
//! *Memory.* The entries of each list, up to the limit of its format.
//!
//! *Errors.* [`lists`] returns `None` for an invalid list; the procedure chooses the status.

use nfs_proto::nfs3::acl::{Aclent, OF_DEFAULT, Secattr, mask};
use vfs::acl::Owner;
use vfs::acl::posix::{Change, Entry, Posix, tag};

pub use nfs_proto::nfs3::acl::{VERSION, procedure};

/// All bits of a mask.
pub(super) const ALL: u32 = mask::ACL | mask::ACLCNT | mask::DFACL | mask::DFACLCNT;

/// Decodes the lists to set; `None` if one of them is invalid.
pub(super) fn lists(new: &Secattr) -> Option<Change> {
    let mut change = Change::default();
    if new.mask & mask::ACL != 0 {
        change.access = Some(list(entries(&new.aclent))?);
    }
    if new.mask & mask::DFACL != 0 {
        // An empty default list removes it.
        let sent = entries(&new.dfaclent);
        change.default = Some(if sent.is_empty() { None } else { Some(list(sent)?) });
    }
    Some(change)
}

fn entries(sent: &[Aclent]) -> Vec<Entry> {
    // A tag that exceeds 16 bits becomes an invalid one.
    let tag = |tag: u32| u16::try_from(tag & !OF_DEFAULT).unwrap_or(u16::MAX);
    sent.iter().map(|e| (tag(e.tag), e.perm, e.id)).collect()
}

/// Builds a list. Clients always send a mask; if no user or group is named, a mask equal to the group's bits is dropped as
/// redundant.
fn list(mut entries: Vec<Entry>) -> Option<Posix> {
    let bits = |entries: &[Entry], tag| entries.iter().find(|e| e.0 == tag).map(|e| e.1);
    if entries.len() == 4 && bits(&entries, tag::MASK) == bits(&entries, tag::GROUP_OBJ) {
        entries.retain(|e| e.0 != tag::MASK);
    }
    Posix::new(entries)
}

/// Builds `secattr` with the parts in `wanted`.
pub(super) fn secattr(
    wanted: u32,
    access: &Posix,
    default: Option<&Posix>,
    owner: Owner,
) -> Secattr {
    let part = |list: Option<&Posix>, whole, flag| {
        let entries = list.map(with_mask).unwrap_or_default();
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let sent = if wanted & whole != 0 { &entries[..] } else { &[] };
        let ent = |(tag, perm, id): &Entry| {
            let id = match *tag {
                tag::USER_OBJ => owner.uid,
                tag::GROUP_OBJ => owner.gid,
                tag::USER | tag::GROUP => *id,
                _ => 0,
            };
            Aclent { tag: u32::from(*tag) | flag, id, perm: *perm }
        };
        (count, sent.iter().map(ent).collect())
    };
    let (aclcnt, aclent) = part(Some(access), mask::ACL, 0);
    let (dfaclcnt, dfaclent) = part(default, mask::DFACL, OF_DEFAULT);
    Secattr { mask: wanted, aclcnt, aclent, dfaclcnt, dfaclent }
}

/// The entries including a mask, which this protocol requires: a list without one gets the bits of the file's group.
fn with_mask(list: &Posix) -> Vec<Entry> {
    let mut entries = list.listed();
    if !entries.iter().any(|e| e.0 == tag::MASK) {
        let group = entries.iter().find(|e| e.0 == tag::GROUP_OBJ).map_or(0, |e| e.1);
        entries.insert(entries.len() - 1, (tag::MASK, group, 0));
    }
    entries
}

#[cfg(test)]
mod tests {
    use nfs_proto::xdr::{decode, encode};
    use proptest::prelude::*;

    use super::*;

    const OWNER: Owner = Owner { uid: 1000, gid: 50 };

    fn list(entries: &[Entry]) -> Posix {
        Posix::new(entries.iter().copied()).unwrap()
    }

    fn read(mask: u32, access: &Posix, default: Option<&Posix>) -> Option<Change> {
        let bytes = encode(&secattr(mask, access, default, OWNER));
        lists(&decode(&bytes).unwrap().1)
    }

    #[test]
    fn mask_is_always_sent() {
        let bytes = encode(&secattr(mask::ACL, &Posix::of_mode(0o640), None, OWNER));
        let words: Vec<u32> =
            bytes.as_chunks::<4>().0.iter().map(|w| u32::from_be_bytes(*w)).collect();
        let expected = [1, 4, 4, 1, 1000, 6, 4, 50, 4, 16, 0, 4, 32, 0, 0, 0, 0];
        assert_eq!(words, expected);
    }

    #[test]
    fn lists_survive_the_wire() {
        let named = list(&[
            (tag::USER_OBJ, 7, 0),
            (tag::USER, 6, 1001),
            (tag::GROUP_OBJ, 5, 0),
            (tag::GROUP, 4, 51),
            (tag::MASK, 5, 0),
            (tag::OTHER, 0, 0),
        ]);
        let plain = Posix::of_mode(0o751);
        let both = Change { access: Some(named.clone()), default: Some(Some(plain.clone())) };
        assert_eq!(read(ALL, &named, Some(&plain)), Some(both));
        let one = Change { access: Some(plain.clone()), default: None };
        assert_eq!(read(ALL & !mask::DFACL, &plain, Some(&named)), Some(one));
        let no_default = Change { access: None, default: Some(None) };
        assert_eq!(read(mask::DFACL, &plain, None), Some(no_default));
    }

    #[test]
    fn invalid_list_is_detected() {
        let aclent = vec![Aclent { tag: tag::USER.into(), id: 1, perm: 7 }];
        assert_eq!(lists(&Secattr { mask: mask::ACL, aclent, ..Secattr::default() }), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall_over(bytes: Vec<u8>) {
            if let Ok((_, new)) = decode::<Secattr>(&bytes) {
                let _ = lists(&new);
            }
        }
    }
}
