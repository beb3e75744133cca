//! Computes the list of a new file or directory from its parent directory (MS-DTYP section 2.5.3.4, RFC 8881 section 6.4.3).

use super::mode::{ANYBODY, Class, OWNERS, bits_of, class, rights_of, shift};
use super::{Ace, Acl, Owner, Sid, Who, control, flag, kind, mask};

const CLASSES: [Class; 3] = [Class::Owner, Class::Group, Class::Other];

impl Acl {
    /// Returns the list of a new node whose creator asked for at most the mode bits `most`. The creator owns it: where the
    /// directory passes on no entry for the owner, the owner gets all rights. A directory whose list is equivalent to mode bits
    /// (see `completes`) takes missing entries for group and others from its own list, like Linux' server: the new file's group
    /// gets the rights that the directory grants that group, which counts as others if the directory has a different group.
    pub fn of_new(&self, is_dir: bool, folder: Owner, owner: Owner, most: u32) -> Option<Self> {
        let mut new = self.inherited(is_dir, owner)?;
        let [has_owner, has_group, has_other] = CLASSES.map(|one| new.names(owner, one));
        let completes = self.completes(folder);
        let made = Missing {
            is_dir,
            of_nfs: self.is_of_nfs() || new.is_of_nfs(),
            flags: if new.has(control::DACL_AUTO_INHERITED) { flag::INHERITED } else { 0 },
        };
        let of = |mode: u32, one| mode >> shift(one) & 7;
        let of_folder = self.mode(folder);
        let is_same_group = owner.gid == folder.gid;
        let class = if is_same_group { Class::Group } else { Class::Other };
        let group = of(of_folder, class) & of(most, Class::Group);
        let other = of(of_folder & most, Class::Other);
        let mut added = Vec::new();
        if !has_owner && !self.names_creator() && (completes || !has_other) {
            added.push(made.entry(Class::Owner, owner, of(most, Class::Owner)));
        }
        // A group other than the directory's gets the rights passed on to others.
        if completes && !has_group && (is_same_group || !has_other) {
            added.push(made.entry(Class::Group, owner, group));
            let denied = rights_of(other & !group, is_dir);
            if !has_other && denied != 0 {
                let who = made.who(Class::Group, owner);
                added.push(Ace::deny(who, denied, made.flags));
            }
        }
        if completes && !has_other {
            added.push(made.entry(Class::Other, owner, other));
        }
        if let Some(entries) = &mut new.entries {
            entries.extend(added);
        }
        Some(new)
    }

    /// Returns whether an inherited entry names CREATOR OWNER: such an entry fixes the owner's rights, also on a directory that
    /// only passes it on (smbtorture smb2.acls INHERITANCE).
    fn names_creator(&self) -> bool {
        self.entries().iter().any(|ace| {
            matches!(ace, Ace::Simple { kind: kind::ALLOWED, flags, who: Who::Sid(sid), .. }
                if flags & flag::PASSING_ON != 0 && *sid == Sid::creator_owner())
        })
    }

    /// Returns whether an entry grants this class any right here.
    fn names(&self, owner: Owner, wanted: Class) -> bool {
        let mut allowed = self.effective().filter(|(k, ..)| *k == kind::ALLOWED);
        allowed.any(|(_, _, who)| class(who, owner) == Some(wanted))
    }

    /// Returns whether a directory's entries for group and others apply to new files as well. They do if the list names owner,
    /// group and others, and either has NFS form or is the Windows form of mode bits plus inherited entries. In any other list of
    /// Windows such an entry means "this folder only" (MS-DTYP section 2.5.3.4.1).
    fn completes(&self, folder: Owner) -> bool {
        CLASSES.iter().all(|one| self.names(folder, *one))
            && (self.is_of_nfs() || self.is_windows_mode(folder))
    }

    /// Returns whether the entries of a directory that are not inherited are one for each class with the rights of mode bits.
    fn is_windows_mode(&self, folder: Owner) -> bool {
        let all = rights_of(7, true);
        let mut seen = [false; 3];
        for ace in self.entries() {
            let Ace::Simple { kind, flags, mask: m, who } = ace else { return false };
            if flags & flag::PASSING_ON != 0 {
                continue;
            }
            let n = match (kind, who, class(who, folder)) {
                (&kind::ALLOWED, Who::User(_), Some(_)) => 0,
                (&kind::ALLOWED, Who::Members(_), Some(_)) => 1,
                (&kind::ALLOWED, Who::Everyone, _) => 2,
                _ => return false,
            };
            let m = mask::map_generic(*m);
            let bits = bits_of(m);
            let writes = if bits & 2 != 0 { mask::WRITE_ATTRIBUTES } else { 0 };
            // The owner has more rights than the bits express, and others do not get them.
            let is_of_bits = m & all == rights_of(bits, true) && m & !(all | ANYBODY | writes) == 0;
            if seen[n] || n > 0 && !is_of_bits {
                return false;
            }
            seen[n] = true;
        }
        seen == [true; 3]
    }

    /// Returns the list that a new node of this owner inherits; `None` where the directory passes on no entries.
    pub fn inherited(&self, is_dir: bool, owner: Owner) -> Option<Self> {
        let auto = self.control & control::DACL_AUTO_INHERITED;
        let mut entries = Vec::new();
        for ace in self.entries() {
            inherit(ace, is_dir, owner, auto != 0, &mut entries);
        }
        if entries.is_empty() {
            return None;
        }
        let mut new = Self::new(entries);
        new.control |= auto;
        Some(new)
    }
}

/// Builds entries for classes that the directory passes on no entry for.
struct Missing {
    is_dir: bool,
    /// True for NFS form; false for Windows form, where the right to read a file includes the right to run it.
    of_nfs: bool,
    flags: u8,
}

impl Missing {
    fn who(&self, class: Class, owner: Owner) -> Who {
        match class {
            Class::Owner if self.of_nfs => Who::Owner,
            Class::Owner => Who::User(owner.uid),
            Class::Group if self.of_nfs => Who::Group,
            Class::Group => Who::Members(owner.gid),
            Class::Other => Who::Everyone,
        }
    }

    fn entry(&self, class: Class, owner: Owner, bits: u32) -> Ace {
        let mut rights = rights_of(bits, self.is_dir) | ANYBODY;
        match (class, self.of_nfs) {
            (Class::Owner, true) => rights |= OWNERS,
            (Class::Owner, false) => rights = mask::FILE_ALL,
            (_, false) if bits & 4 != 0 && !self.is_dir => rights |= mask::EXECUTE,
            _ => {}
        }
        Ace::allow(self.who(class, owner), rights, self.flags)
    }
}

fn inherit(ace: &Ace, is_dir: bool, owner: Owner, auto: bool, out: &mut Vec<Ace>) {
    use flag::{CONTAINER_INHERIT, INHERIT_ONLY, INHERITED, NO_PROPAGATE, OBJECT_INHERIT};
    let Ace::Simple { kind, flags, mask: m, who } = ace else { return };
    let inherits = match is_dir {
        false => flags & OBJECT_INHERIT != 0,
        true => {
            flags & CONTAINER_INHERIT != 0
                || flags & OBJECT_INHERIT != 0 && flags & NO_PROPAGATE == 0
        }
    };
    if !inherits {
        return;
    }
    let mark = if auto { INHERITED } else { 0 };
    let here = match who {
        Who::Sid(s) if *s == Sid::creator_owner() => Who::User(owner.uid),
        Who::Sid(s) if *s == Sid::creator_group() => Who::Members(owner.gid),
        who => who.clone(),
    };
    let effective = |who: &Who, flags| Ace::Simple {
        kind: *kind,
        flags,
        mask: mask::map_generic(*m),
        who: who.clone(),
    };
    if !is_dir || flags & NO_PROPAGATE != 0 {
        out.push(effective(&here, mark));
        return;
    }
    let further = flags & (OBJECT_INHERIT | CONTAINER_INHERIT) | mark;
    let for_children = |flags| Ace::Simple { kind: *kind, flags, mask: *m, who: who.clone() };
    if flags & CONTAINER_INHERIT == 0 {
        out.push(for_children(further | INHERIT_ONLY));
    } else if here != *who {
        // The entry applies to the creator in this directory, and again in each directory below.
        out.push(effective(&here, mark));
        out.push(for_children(further | INHERIT_ONLY));
    } else {
        out.push(for_children(further));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::any_acl;
    use super::*;
    use crate::types::Cred;
    use flag::{
        CONTAINER_INHERIT as CI, INHERIT_ONLY as IO, NO_PROPAGATE as NP, OBJECT_INHERIT as OI,
    };

    use proptest::prelude::*;

    const OWNER: Owner = Owner { uid: 9, gid: 9 };

    /// Flags of the entry in the parent; of the entry in a file; of the entry in a directory.
    const INHERITANCE: [(u8, Option<u8>, Option<u8>); 16] = [
        (0, None, None),
        (OI, Some(0), Some(OI | IO)),
        (CI, None, Some(CI)),
        (OI | CI, Some(0), Some(OI | CI)),
        (NP, None, None),
        (NP | OI, Some(0), None),
        (NP | CI, None, Some(0)),
        (NP | OI | CI, Some(0), Some(0)),
        (IO, None, None),
        (IO | OI, Some(0), Some(OI | IO)),
        (IO | CI, None, Some(CI)),
        (IO | OI | CI, Some(0), Some(OI | CI)),
        (IO | NP, None, None),
        (IO | NP | OI, Some(0), None),
        (IO | NP | CI, None, Some(0)),
        (IO | NP | OI | CI, Some(0), Some(0)),
    ];

    #[test]
    fn flag_combinations_inherit_as_documented() {
        for who in [Who::Members(50), Who::Owner, Who::Everyone] {
            for (flags, file, dir) in INHERITANCE {
                let parent = Acl::new(vec![Ace::allow(who.clone(), mask::READ_DATA, flags)]);
                for (is_dir, want) in [(false, file), (true, dir)] {
                    let want =
                        want.map(|f| Acl::new(vec![Ace::allow(who.clone(), mask::READ_DATA, f)]));
                    let got = parent.inherited(is_dir, OWNER);
                    assert_eq!(got, want, "flags {flags:#x} dir {is_dir}");
                }
            }
        }
    }

    #[test]
    fn creator_entry_applies_and_passes_on() {
        let creator = Who::Sid(Sid::creator_owner());
        let mut parent = Acl::new(vec![Ace::allow(creator.clone(), mask::GENERIC_ALL, OI | CI)]);
        parent.control |= control::DACL_AUTO_INHERITED;
        let got = parent.inherited(true, OWNER).unwrap();
        assert!(got.has(control::DACL_AUTO_INHERITED));
        let flags = flag::INHERITED;
        let named = Ace::allow(Who::User(9), mask::FILE_ALL, flags);
        let passed_on = Ace::allow(creator, mask::GENERIC_ALL, OI | CI | IO | flags);
        assert_eq!(got.entries(), [named.clone(), passed_on]);
        assert_eq!(parent.inherited(false, OWNER).unwrap().entries(), [named]);
    }

    /// MS-DTYP section 2.5.3.4: only CREATOR OWNER and CREATOR GROUP are replaced.
    #[test]
    fn only_creator_entries_are_replaced() {
        let owner = Owner { uid: 9, gid: 8 };
        let other = Who::Sid(Sid::new(5, &[21, 9]).unwrap());
        for (who, here) in [
            (Who::Sid(Sid::creator_owner()), Who::User(9)),
            (Who::Sid(Sid::creator_group()), Who::Members(8)),
            (Who::Sid(Sid::owner_rights()), Who::Sid(Sid::owner_rights())),
            (other.clone(), other),
        ] {
            let parent = Acl::new(vec![Ace::allow(who.clone(), mask::READ_DATA, OI | CI)]);
            let file = parent.inherited(false, owner).unwrap();
            assert_eq!(file.entries(), [Ace::allow(here.clone(), mask::READ_DATA, 0)]);
            let dir = parent.inherited(true, owner).unwrap();
            let [first, rest @ ..] = dir.entries() else { panic!("{who:?}") };
            if here == who {
                assert_eq!((first, rest), (&parent.entries()[0], &[][..]));
            } else {
                assert_eq!(*first, Ace::allow(here, mask::READ_DATA, 0));
                assert_eq!(*rest, [Ace::allow(who, mask::READ_DATA, OI | CI | IO)]);
            }
        }
    }

    #[test]
    fn null_list_is_not_inherited() {
        assert_eq!(Acl::default().inherited(true, OWNER), None);
    }

    /// Returns the entries that SMB clients see for a folder of mode 0775, plus an inherited entry for Bob.
    fn shown_to_windows() -> Vec<Ace> {
        let group = mask::FILE_READ | mask::FILE_WRITE | mask::EXECUTE | mask::DELETE_CHILD;
        vec![
            Ace::allow(Who::User(9), mask::FILE_ALL, 0),
            Ace::allow(Who::Members(9), group, 0),
            Ace::allow(Who::Everyone, mask::FILE_READ | mask::EXECUTE, 0),
            Ace::allow(Who::User(50), mask::FILE_ALL, OI | CI),
        ]
    }

    /// MS-DTYP section 2.5.3.4.1: an entry without inheritance flags is not passed on.
    #[test]
    fn windows_folder_entries_not_passed_on() {
        let own = |who, m| Ace::allow(who, m, 0);
        let with = |n: usize, ace: Ace| {
            let mut list = shown_to_windows();
            list[n] = ace;
            list
        };
        let more = |ace: Ace| [&[ace], &shown_to_windows()[..]].concat();
        let modify = mask::FILE_ALL & !(mask::WRITE_DAC | mask::WRITE_OWNER | mask::DELETE_CHILD);
        let users = Who::Sid(Sid::authenticated_users());
        for (list, completes) in [
            (shown_to_windows(), true),
            (with(1, own(Who::Members(9), mask::FILE_READ | mask::EXECUTE)), true),
            (with(2, own(Who::Everyone, ANYBODY)), true),
            (with(1, own(Who::Members(9), modify)), false),
            (with(1, own(Who::Members(9), mask::FILE_READ | mask::DELETE)), false),
            (with(2, own(Who::Everyone, mask::READ_DATA | mask::WRITE_DATA)), false),
            (with(2, own(users.clone(), mask::FILE_READ | mask::EXECUTE)), false),
            (more(own(users, mask::FILE_READ)), false),
            (more(own(Who::Members(70), mask::FILE_READ)), false),
            (more(own(Who::Everyone, mask::FILE_READ)), false),
            (more(Ace::deny(Who::Everyone, mask::WRITE_DATA, 0)), false),
            (more(own(Who::Owner, mask::FILE_READ)), true),
        ] {
            let new = Acl::new(list.clone()).of_new(false, OWNER, OWNER, 0o666).unwrap();
            let [group, other] = [Class::Group, Class::Other].map(|one| new.names(OWNER, one));
            assert_eq!((group, other), (completes, completes), "{list:?}");
            assert!(new.names(OWNER, Class::Owner), "{list:?}: the maker");
        }
    }

    /// The folder's group gets its group rights, and another group gets the rights of others.
    #[test]
    fn other_group_gets_rights_of_others() {
        let all = mask::FILE_READ | mask::FILE_WRITE;
        let of_nfs = |mode| {
            let bob = Ace::allow(Who::User(50), mask::FILE_ALL, OI | CI);
            Acl::new([Acl::of_mode(mode, true).entries(), &[bob]].concat())
        };
        let to_others = |list: Acl| {
            let passed = Ace::allow(Who::Everyone, mask::FILE_READ, OI | CI);
            Acl::new([list.entries(), &[passed]].concat())
        };
        let windows = Acl::new(shown_to_windows());
        for (folder, same, another) in [
            (of_nfs(0o775), 0o664, 0o644),
            (of_nfs(0o770), 0o660, 0o600),
            (of_nfs(0o707), 0o606, 0o666),
            (of_nfs(0o750), 0o640, 0o600),
            (to_others(of_nfs(0o770)), 0o664, 0o644),
            (to_others(of_nfs(0o777)), 0o664, 0o644),
            (windows.clone(), 0o664, 0o644),
            (to_others(windows), 0o664, 0o644),
        ] {
            for (gid, wanted) in [(OWNER.gid, same), (60, another)] {
                let owner = Owner { gid, ..OWNER };
                let new = folder.of_new(false, OWNER, owner, 0o666).unwrap();
                assert_eq!(new.mode(owner) & 0o666, wanted, "{folder:?} {gid}");
                let member = Cred { uid: 7, gid, groups: [].into(), token: crate::Token::NONE };
                let writes = new.allowed(&member, owner) & all & mask::WRITE_DATA != 0;
                assert_eq!(writes, wanted & 0o020 != 0, "{folder:?} {gid}");
            }
        }
    }

    proptest! {
        /// A file far below gets the same as a file directly in the directory, without the entries that go one level only.
        #[test]
        fn inheritance_same_at_every_depth(mut acl in any_acl(), auto: bool, depth in 1..4) {
            acl.control |= if auto { control::DACL_AUTO_INHERITED } else { 0 };
            let one_level = |a: &Ace| matches!(a, Ace::Simple { flags, .. } if flags & NP != 0);
            let mut lasting = acl.clone();
            lasting.entries.iter_mut().for_each(|all| all.retain(|a| !one_level(a)));
            let mut dir = Some(acl);
            for _ in 0..depth {
                dir = dir.and_then(|d| d.inherited(true, OWNER));
            }
            prop_assert_eq!(dir.and_then(|d| d.inherited(false, OWNER)), lasting.inherited(false, OWNER));
        }
    }
}
