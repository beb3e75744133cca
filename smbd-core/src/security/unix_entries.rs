//! Entries of lists that have the mode, the owner and the group of a file, by the identifiers S-1-5-88-1 to S-1-5-88-3 (NFS_ACE of
//! Apple's `smb_2.h`). macOS shows the mode from them, and changes it by sending the list back with another mode.
//!
//! *Operation.* The entries deny no right, so that they mean nothing to other readers of the list. They are made when a list is
//! read and taken out of one that is set: no volume stores them.

use vfs::Attr;

use crate::dtyp::{Ace, SecurityDescriptor, Sid};
use crate::file_info;

/// ACCESS_DENIED_ACE_TYPE
const DENIED: u8 = 1;

/// Returns whether this is such an entry: one that [`add`] makes, or a mode. An entry that gives an owner or a group of NFS rights
/// is like any other.
fn is_unix(ace: &Ace) -> bool {
    let Ace::Simple { kind, mask, sid, .. } = ace else { return false };
    sid.is_of_nfs() && ((*kind, *mask) == (DENIED, 0) || sid.as_unix_mode().is_some())
}

/// Adds the entries for a file with these attributes. A descriptor without a list stays so, and so does a list in which they have
/// no room.
pub(crate) fn add(sd: &mut SecurityDescriptor, attr: &Attr) {
    let Some(dacl) = &mut sd.dacl else { return };
    dacl.aces.retain(|ace| !is_unix(ace));
    let ids = [
        Sid::unix_mode(file_info::stat_mode(attr)),
        Sid::nfs_user(attr.uid),
        Sid::nfs_group(attr.gid),
    ];
    let entry = |sid| Ace::Simple { kind: DENIED, flags: 0, mask: 0, sid };
    let few = dacl.aces.len();
    dacl.aces.extend(ids.map(entry));
    if dacl.wire_len() > usize::from(u16::MAX) {
        dacl.aces.truncate(few);
    }
}

/// What a client wants of a file by the entries of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The permission bits.
    pub(crate) mode: Option<u32>,
    /// The list had only such entries: no other list is to be set.
    pub(crate) was_all: bool,
}

/// Takes the entries out of a list that a client sets. The first mode counts.
pub(crate) fn take(sd: &mut SecurityDescriptor) -> Taken {
    let Some(dacl) = &mut sd.dacl else { return Taken::default() };
    let mut taken = Taken::default();
    let before = dacl.aces.len();
    dacl.aces.retain(|ace| {
        if let Ace::Simple { sid, .. } = ace
            && let Some(mode) = sid.as_unix_mode()
        {
            taken.mode.get_or_insert(mode & 0o777);
        }
        !is_unix(ace)
    });
    taken.was_all = before > 0 && dacl.aces.is_empty();
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtyp::{Acl, mask};

    fn attr() -> Attr {
        let none = vfs::Time::default();
        Attr {
            kind: vfs::Kind::File,
            mode: 0o640,
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

    fn list(sids: &[Sid]) -> SecurityDescriptor {
        let aces = sids.iter().map(|sid| Ace::allow(sid.clone(), mask::FILE_READ, 0)).collect();
        SecurityDescriptor { dacl: Some(Acl::new(aces)), ..SecurityDescriptor::default() }
    }

    #[test]
    fn added_entries_are_taken_out_again() {
        let own = list(&[Sid::unix_user(1000), Sid::everyone()]);
        let mut sd = own.clone();
        add(&mut sd, &attr());
        let aces = sd.dacl.as_ref().unwrap().aces.clone();
        let added: Vec<String> = aces[2..]
            .iter()
            .map(|ace| match ace {
                Ace::Simple { kind: DENIED, flags: 0, mask: 0, sid } => sid.to_string(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(added, ["S-1-5-88-3-33184", "S-1-5-88-1-1000", "S-1-5-88-2-50"]);
        let once = sd.clone();
        add(&mut sd, &attr());
        assert_eq!(sd, once, "each is there once");
        assert_eq!(take(&mut sd), Taken { mode: Some(0o640), was_all: false });
        assert_eq!(sd, own);
    }

    #[test]
    fn list_without_room_stays_as_it_is() {
        let most = usize::from(u16::MAX);
        let mut sd = list(&vec![Sid::everyone(); (most - 8) / 20]);
        let full = sd.clone();
        assert!(full.dacl.as_ref().unwrap().wire_len() > most - 20);
        add(&mut sd, &attr());
        assert_eq!(sd, full);
        sd.dacl.as_mut().unwrap().aces.truncate(full.dacl.as_ref().unwrap().aces.len() - 5);
        add(&mut sd, &attr());
        assert!(sd.dacl.as_ref().unwrap().wire_len() <= most && sd != full);
        assert_eq!(take(&mut sd).mode, Some(0o640));
    }

    #[test]
    fn mode_alone_leaves_no_list_to_set() {
        let mut sd = list(&[Sid::unix_mode(0o107_755), Sid::unix_mode(0o600)]);
        assert_eq!(take(&mut sd), Taken { mode: Some(0o755), was_all: true });
        let told = [Sid::nfs_user(0), Sid::nfs_group(0)];
        let mut sd = list(&told);
        assert_eq!(take(&mut sd), Taken::default(), "rights of an owner are an entry like others");
        assert_eq!(sd, list(&told));
        let aces = told.map(|sid| Ace::Simple { kind: DENIED, flags: 0, mask: 0, sid }).into();
        let mut sd = SecurityDescriptor { dacl: Some(Acl::new(aces)), ..Default::default() };
        assert_eq!(take(&mut sd), Taken { mode: None, was_all: true });
        let mut empty = list(&[]);
        assert_eq!(take(&mut empty), Taken::default(), "an empty list is one");
        let mut none = SecurityDescriptor::default();
        add(&mut none, &attr());
        assert_eq!((take(&mut none), none.dacl), (Taken::default(), None));
    }
}
