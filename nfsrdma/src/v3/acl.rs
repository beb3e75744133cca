//! NFSACL version 3 on the wire: lists of POSIX.1e beside NFS version 3, by a program of its own on the same connection. No RFC
//! has it; it is Solaris' `nfs_acl.x`, as Linux has it since 2.6.13 (`fs/nfs_common/nfsacl.c`).
//!
//! *Memory.* [`ENTRIES_MAX`] entries of each list.
//!
//! *Errors.* What is no list is none here ([`Secattr::lists`]); the procedure says so.

use vfs::acl::Owner;
use vfs::acl::posix::{Change, Entry, Posix, tag};

use crate::fh::FH_MAX;
use crate::xdr::{Reader, Writer, XdrResult};

/// The version that is served.
pub const VERSION: u32 = 3;

/// Procedure numbers.
#[allow(missing_docs)] // The names are the program's own, without ACLPROC3_.
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const GETACL: u32 = 1;
    pub const SETACL: u32 = 2;
}

/// Bits of a mask: which parts are asked for, or there.
pub(super) mod part {
    /// The node's own list.
    pub(crate) const ACL: u32 = 1;
    /// A directory's default list.
    pub(crate) const DFACL: u32 = 4;
    /// How many entries the one and the other have, which is told always.
    const COUNTS: u32 = 2 | 8;
    pub(crate) const ALL: u32 = ACL | DFACL | COUNTS;
}

/// Entries of a list (`NFS_ACL_MAX_ENTRIES`).
const ENTRIES_MAX: usize = 1024;
/// Marks the tags of a default list.
const OF_DEFAULT: u32 = 0x1000;

/// The arguments of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Args<'a> {
    Null,
    Getacl { object: &'a [u8], mask: u32 },
    Setacl { object: &'a [u8], lists: Secattr },
}

/// `secattr`, as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Secattr {
    pub(super) mask: u32,
    access: Vec<Entry>,
    default: Vec<Entry>,
}

impl Secattr {
    /// What is to be set; `None` where something is meant that is no list.
    pub(super) fn lists(self) -> Option<Change> {
        let mut change = Change::default();
        if self.mask & part::ACL != 0 {
            change.access = Some(list(self.access)?);
        }
        if self.mask & part::DFACL != 0 {
            // No entries: no list.
            let none = self.default.is_empty();
            change.default = Some(if none { None } else { Some(list(self.default)?) });
        }
        Some(change)
    }
}

/// Clients send a mask always; where nobody is named, one that takes nothing away is not meant.
fn list(mut entries: Vec<Entry>) -> Option<Posix> {
    let bits = |entries: &[Entry], tag| entries.iter().find(|e| e.0 == tag).map(|e| e.1);
    if entries.len() == 4 && bits(&entries, tag::MASK) == bits(&entries, tag::GROUP_OBJ) {
        entries.retain(|e| e.0 != tag::MASK);
    }
    Posix::new(entries)
}

/// Reads the arguments of a procedure; `None` when there is no such procedure.
pub(super) fn decode_args<'a>(number: u32, r: &mut Reader<'a>) -> XdrResult<Option<Args<'a>>> {
    Ok(Some(match number {
        procedure::NULL => Args::Null,
        procedure::GETACL => Args::Getacl { object: r.opaque(FH_MAX)?, mask: r.u32()? },
        procedure::SETACL => Args::Setacl {
            object: r.opaque(FH_MAX)?,
            lists: Secattr { mask: r.u32()?, access: entries(r)?, default: entries(r)? },
        },
        _ => return Ok(None),
    }))
}

/// The number of entries, and those that were sent.
fn entries(r: &mut Reader<'_>) -> XdrResult<Vec<Entry>> {
    let _count = r.u32()?;
    let sent = r.count(ENTRIES_MAX)?;
    let entry = |r: &mut Reader<'_>| {
        let (tag, id, bits) = (r.u32()? & !OF_DEFAULT, r.u32()?, r.u32()?);
        // A tag that does not fit is none.
        Ok((u16::try_from(tag).unwrap_or(u16::MAX), bits, id))
    };
    (0..sent).map(|_| entry(r)).collect()
}

/// `secattr` with the parts of `mask`.
pub(super) fn put(
    mask: u32,
    access: &Posix,
    default: Option<&Posix>,
    owner: Owner,
    out: &mut Writer,
) {
    out.u32(mask);
    let parts = [(Some(access), part::ACL, 0), (default, part::DFACL, OF_DEFAULT)];
    for (list, whole, flag) in parts {
        let entries = list.map(with_mask).unwrap_or_default();
        out.count(entries.len());
        let sent = if mask & whole != 0 { &entries[..] } else { &[] };
        out.count(sent.len());
        for (tag, bits, id) in sent {
            let id = match *tag {
                tag::USER_OBJ => owner.uid,
                tag::GROUP_OBJ => owner.gid,
                tag::USER | tag::GROUP => *id,
                _ => 0,
            };
            [u32::from(*tag) | flag, id, *bits].into_iter().for_each(|n| out.u32(n));
        }
    }
}

/// The entries, with the mask that a list of this program has always: where there is none, what the file's group has.
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
    use super::*;
    use iobuf::Buf;
    use proptest::prelude::*;

    const OWNER: Owner = Owner { uid: 1000, gid: 50 };

    fn list(entries: &[Entry]) -> Posix {
        Posix::new(entries.iter().copied()).unwrap()
    }

    fn read(mask: u32, access: &Posix, default: Option<&Posix>) -> Secattr {
        let mut w = Writer::new();
        w.opaque(b"fh");
        put(mask, access, default, OWNER, &mut w);
        let body = Buf::from(w.into_reply().head);
        let args = decode_args(procedure::SETACL, &mut Reader::new(&body, &[])).unwrap();
        match args.unwrap() {
            Args::Setacl { lists, .. } => lists,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_list_has_a_mask_on_the_wire_always() {
        let mut w = Writer::new();
        put(part::ACL, &Posix::of_mode(0o640), None, OWNER, &mut w);
        let bytes = w.into_reply().head;
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
        assert_eq!(read(part::ALL, &named, Some(&plain)).lists(), Some(both));
        let one = Change { access: Some(plain.clone()), default: None };
        assert_eq!(read(part::ALL & !part::DFACL, &plain, Some(&named)).lists(), Some(one));
        let no_default = Change { access: None, default: Some(None) };
        assert_eq!(read(part::DFACL, &plain, None).lists(), Some(no_default));
    }

    #[test]
    fn what_is_no_list_is_found() {
        let access = vec![(tag::USER, 7, 1)];
        let bad = Secattr { mask: part::ACL, access, ..Secattr::default() };
        assert_eq!(bad.lists(), None);
        let mut long = Writer::new();
        long.opaque(b"fh");
        [1, 0].into_iter().for_each(|n| long.u32(n));
        long.count(ENTRIES_MAX + 1);
        let long = Buf::from(long.into_reply().head);
        assert!(decode_args(procedure::SETACL, &mut Reader::new(&long, &[])).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall_over(bytes: Vec<u8>, number in 0..4_u32) {
            let body = Buf::from(bytes);
            if let Ok(Some(Args::Setacl { lists, .. })) = decode_args(number, &mut Reader::new(&body, &[])) {
                let _ = lists.lists();
            }
        }
    }
}
