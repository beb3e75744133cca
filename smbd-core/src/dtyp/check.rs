//! What a security descriptor allows (MS-DTYP section 2.5.3), what a new object inherits, and how mode bits and descriptors
//! say the same.
//!
//! *Operation.* All of it is pure. A descriptor is looked at entry by entry, in its own order: clients that write entries out of
//! the canonical order get what they wrote.

use super::descriptor::{control, flag, kind};
use super::{Ace, Acl, SecurityDescriptor, Sid, mask};

/// Whom an access is checked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The user.
    pub user: Sid,
    /// Primary group first; then every other group, with Everyone and the like.
    pub groups: Vec<Sid>,
}

impl Token {
    /// Is this user, or a member of this group.
    pub fn has(&self, sid: &Sid) -> bool {
        self.user == *sid || self.groups.contains(sid)
    }
}

/// The owner may always read and change the list, unless an entry for OWNER RIGHTS says otherwise.
const OWNER_IMPLIED: u32 = mask::READ_CONTROL | mask::WRITE_DAC;

/// All rights that the descriptor gives (MS-DTYP section 2.5.3.2 with MAXIMUM_ALLOWED), without ACCESS_SYSTEM_SECURITY, which
/// is a matter of privilege.
pub fn allowed(sd: &SecurityDescriptor, token: &Token) -> u32 {
    let Some(dacl) = sd.dacl.as_ref() else {
        // A NULL list, or none: everything.
        return mask::FILE_ALL;
    };
    let is_owner = sd.owner.as_ref().is_some_and(|o| token.has(o));
    let owner_rights = Sid::owner_rights();
    let mut restricted = false;
    let (mut granted, mut denied) = (0, 0);
    for ace in &dacl.aces {
        let Ace::Simple { kind, flags, mask: m, sid } = ace else { continue };
        if flags & flag::INHERIT_ONLY != 0 {
            continue;
        }
        let is_owner_rights = *sid == owner_rights;
        restricted |= is_owner_rights;
        if !(token.has(sid) || is_owner && is_owner_rights) {
            continue;
        }
        let m = mask::map_generic(*m);
        match *kind {
            kind::ALLOWED => granted |= m & !denied,
            kind::DENIED => denied |= m & !granted,
            _ => {}
        }
    }
    if is_owner && !restricted {
        granted |= OWNER_IMPLIED;
    }
    granted & mask::FILE_ALL
}

/// What an object gets that is made in a directory with this descriptor (MS-DTYP section 2.5.3.4). A list in `given` comes
/// first; with neither that nor an entry to inherit, owner and system have all rights, as on Windows.
pub fn inherited(
    parent: &SecurityDescriptor,
    is_dir: bool,
    owner: &Sid,
    group: &Sid,
    given: Option<&SecurityDescriptor>,
) -> SecurityDescriptor {
    let owner = given.and_then(|g| g.owner.as_ref()).unwrap_or(owner);
    let group = given.and_then(|g| g.group.as_ref()).unwrap_or(group);
    let mut out = SecurityDescriptor {
        control: control::SELF_RELATIVE | control::DACL_PRESENT,
        owner: Some(owner.clone()),
        group: Some(group.clone()),
        ..Default::default()
    };
    if let Some(given) = given.filter(|g| g.has(control::DACL_PRESENT)) {
        let kept = control::DACL_PROTECTED | control::DACL_AUTO_INHERITED;
        out.control |= given.control & kept;
        out.dacl = given.dacl.clone();
    } else {
        let auto = parent.control & control::DACL_AUTO_INHERITED;
        let mut aces = Vec::new();
        for ace in parent.dacl.iter().flat_map(|d| &d.aces) {
            inherit(ace, is_dir, owner, group, auto != 0, &mut aces);
        }
        if aces.is_empty() {
            aces.push(Ace::allow(owner.clone(), mask::FILE_ALL, 0));
            aces.push(Ace::allow(Sid::system(), mask::FILE_ALL, 0));
        } else {
            out.control |= auto;
        }
        out.dacl = Some(Acl::new(aces));
    }
    if let Some(given) = given.filter(|g| g.has(control::SACL_PRESENT)) {
        out.control |= control::SACL_PRESENT | given.control & control::SACL_PROTECTED;
        out.sacl = given.sacl.clone();
    }
    out
}

fn inherit(ace: &Ace, is_dir: bool, owner: &Sid, group: &Sid, auto: bool, out: &mut Vec<Ace>) {
    use flag::{CONTAINER_INHERIT, INHERIT_ONLY, INHERITED, NO_PROPAGATE, OBJECT_INHERIT};
    let Ace::Simple { kind, flags, mask: m, sid } = ace else { return };
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
    let whom = match sid {
        s if *s == Sid::creator_owner() => owner,
        s if *s == Sid::creator_group() => group,
        s => s,
    };
    let effective = |whom: &Sid, flags| Ace::Simple {
        kind: *kind,
        flags,
        mask: mask::map_generic(*m),
        sid: whom.clone(),
    };
    if !is_dir || flags & NO_PROPAGATE != 0 {
        out.push(effective(whom, mark));
        return;
    }
    let further = flags & (OBJECT_INHERIT | CONTAINER_INHERIT) | mark;
    let for_children = |flags| Ace::Simple { kind: *kind, flags, mask: *m, sid: sid.clone() };
    if flags & CONTAINER_INHERIT == 0 {
        out.push(for_children(further | INHERIT_ONLY));
    } else if whom != sid {
        // The creator is named in this directory, and named again in each below it.
        out.push(effective(whom, mark));
        out.push(for_children(further | INHERIT_ONLY));
    } else {
        out.push(for_children(further));
    }
}

/// Makes a descriptor fit to be kept: generic rights of entries that only count here become what they mean, and the bits that
/// ask for inheritance become the bit that says it (MS-DTYP section 2.5.3.4.4).
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

/// Rights that one class of mode bits stands for. FILE_EXECUTE comes with reading: to Windows it is the right to start a program,
/// and files that Unix hosts make carry no execute bit for that.
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

/// Rights of an owner beside those of the mode bits.
const OWNER_EXTRA: u32 = mask::WRITE_DAC
    | mask::WRITE_OWNER
    | mask::WRITE_ATTRIBUTES
    | mask::WRITE_EA
    | mask::READ_EA
    | mask::DELETE;

fn owner_rights_of(bits: u32, is_dir: bool) -> u32 {
    let rights = rights_of(bits, is_dir) | OWNER_EXTRA;
    // DELETE_CHILD of a file means nothing, but makes the rights those that Windows calls full control.
    if bits & 6 == 6 { rights | mask::DELETE_CHILD | mask::APPEND_DATA } else { rights }
}

/// Rights of a user whom one class of mode bits (`rwx`, 7 at most) is about.
pub fn rights_of_class(bits: u32, is_dir: bool, is_owner: bool) -> u32 {
    if is_owner { owner_rights_of(bits, is_dir) } else { rights_of(bits, is_dir) }
}

/// The descriptor that says what these mode bits say: an entry for each class.
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

/// The mode bits (0o777 at most) that allow group and others no more than the descriptor does. What is denied to anybody is
/// allowed to neither of them. The owner keeps reading (and searching a directory), which an owner can take back at any time.
pub fn mode_of(sd: &SecurityDescriptor, is_dir: bool) -> u32 {
    let Some(dacl) = sd.dacl.as_ref() else { return 0o777 };
    let denied = dacl.aces.iter().fold(0, |d, ace| match ace {
        Ace::Simple { kind: kind::DENIED, flags, mask: m, .. }
            if flags & flag::INHERIT_ONLY == 0 =>
        {
            d | mask::map_generic(*m)
        }
        _ => d,
    });
    let bits = |rights: u32| {
        let r = rights & mask::READ_DATA != 0;
        let w = rights & mask::WRITE_DATA != 0;
        // Whoever may list or change a directory passes through it: Windows users may pass through any.
        let x = rights & mask::EXECUTE != 0 || is_dir && (r || w);
        u32::from(r) << 2 | u32::from(w) << 1 | u32::from(x)
    };
    let everybody = || vec![Sid::everyone(), Sid::authenticated_users(), Sid::network()];
    let class = |user: Option<&Sid>, group: Option<&Sid>| {
        let groups = group.cloned().into_iter().chain(everybody()).collect();
        let nobody = Sid::anonymous();
        allowed(sd, &Token { user: user.unwrap_or(&nobody).clone(), groups })
    };
    let owner = bits(class(sd.owner.as_ref(), sd.group.as_ref())) | if is_dir { 5 } else { 4 };
    let group = bits(class(None, sd.group.as_ref()) & !denied);
    let other = bits(class(None, None) & !denied);
    owner << 6 | group << 3 | other
}

#[cfg(test)]
mod tests {
    use super::super::descriptor::tests::any_descriptor;
    use super::*;
    use flag::{
        CONTAINER_INHERIT as CI, INHERIT_ONLY as IO, NO_PROPAGATE as NP, OBJECT_INHERIT as OI,
    };
    use proptest::prelude::*;

    fn alice() -> Sid {
        Sid::unix_user(1000)
    }
    fn staff() -> Sid {
        Sid::unix_group(50)
    }
    fn token(user: Sid) -> Token {
        Token { user, groups: vec![staff(), Sid::everyone()] }
    }
    fn with(aces: Vec<Ace>) -> SecurityDescriptor {
        SecurityDescriptor {
            control: control::DACL_PRESENT | control::SELF_RELATIVE,
            owner: Some(alice()),
            group: Some(staff()),
            sacl: None,
            dacl: Some(Acl::new(aces)),
        }
    }
    fn deny(sid: Sid, mask: u32) -> Ace {
        Ace::Simple { kind: kind::DENIED, flags: 0, mask, sid }
    }

    #[test]
    fn entries_count_in_their_order() {
        let (a, b) = (token(alice()), token(Sid::unix_user(2)));
        let allow = Ace::allow(Sid::everyone(), mask::FILE_READ, 0);
        let no = deny(staff(), mask::READ_DATA);
        let sd = with(vec![no.clone(), allow.clone()]);
        assert_eq!(allowed(&sd, &b), mask::FILE_READ & !mask::READ_DATA);
        assert_eq!(allowed(&sd, &a), mask::FILE_READ & !mask::READ_DATA | mask::WRITE_DAC);
        assert_eq!(allowed(&with(vec![allow, no]), &b), mask::FILE_READ, "allowed before denied");
        assert_eq!(allowed(&with(vec![]), &b), 0);
        assert_eq!(allowed(&with(vec![]), &a), OWNER_IMPLIED);
        assert_eq!(allowed(&SecurityDescriptor::default(), &b), mask::FILE_ALL, "no list");
        let inherit_only = Ace::allow(Sid::everyone(), mask::GENERIC_ALL, IO | OI);
        assert_eq!(allowed(&with(vec![inherit_only]), &b), 0);
        let generic = Ace::allow(Sid::everyone(), mask::GENERIC_READ, 0);
        assert_eq!(allowed(&with(vec![generic]), &b), mask::FILE_READ);
    }

    #[test]
    fn owner_rights_take_the_owners_own_away() {
        let a = token(alice());
        let rights = Ace::allow(Sid::owner_rights(), mask::READ_DATA, 0);
        assert_eq!(allowed(&with(vec![rights.clone()]), &a), mask::READ_DATA);
        assert_eq!(allowed(&with(vec![rights]), &token(Sid::unix_user(2))), 0);
        let sd = with(vec![
            deny(Sid::owner_rights(), mask::WRITE_DATA),
            Ace::allow(alice(), mask::FILE_WRITE, 0),
        ]);
        assert_eq!(allowed(&sd, &a), mask::FILE_WRITE & !mask::WRITE_DATA);
    }

    /// Flags of the entry in the parent; of the one in a file; of the one in a directory.
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
    fn every_combination_of_flags_is_inherited_as_documented() {
        let (owner, group) = (Sid::unix_user(9), Sid::unix_group(9));
        for (flags, file, dir) in INHERITANCE {
            let parent = with(vec![Ace::allow(staff(), mask::READ_DATA, flags)]);
            for (is_dir, want) in [(false, file), (true, dir)] {
                let got = inherited(&parent, is_dir, &owner, &group, None);
                let aces = got.dacl.unwrap().aces;
                let expect = match want {
                    Some(f) => vec![Ace::allow(staff(), mask::READ_DATA, f)],
                    None => vec![
                        Ace::allow(owner.clone(), mask::FILE_ALL, 0),
                        Ace::allow(Sid::system(), mask::FILE_ALL, 0),
                    ],
                };
                assert_eq!(aces, expect, "flags {flags:#x} dir {is_dir}");
            }
        }
    }

    #[test]
    fn the_creator_is_named_here_and_passed_on() {
        let (owner, group) = (Sid::unix_user(9), Sid::unix_group(9));
        let mut parent = with(vec![Ace::allow(Sid::creator_owner(), mask::GENERIC_ALL, OI | CI)]);
        parent.control |= control::DACL_AUTO_INHERITED;
        let got = inherited(&parent, true, &owner, &group, None);
        assert!(got.has(control::DACL_AUTO_INHERITED));
        let flags = flag::INHERITED;
        assert_eq!(
            got.dacl.unwrap().aces,
            [
                Ace::allow(owner.clone(), mask::FILE_ALL, flags),
                Ace::allow(Sid::creator_owner(), mask::GENERIC_ALL, OI | CI | IO | flags)
            ]
        );
        let got = inherited(&parent, false, &owner, &group, None);
        assert_eq!(got.dacl.unwrap().aces, [Ace::allow(owner.clone(), mask::FILE_ALL, flags)]);
        let given = with(vec![]);
        let got = inherited(&parent, false, &owner, &group, Some(&given));
        assert_eq!((got.owner, got.dacl), (Some(alice()), Some(Acl::new(vec![]))));
    }

    #[test]
    fn asking_for_inheritance_is_not_kept_but_what_it_means() {
        use control::{DACL_AUTO_INHERIT_REQ as REQ, DACL_AUTO_INHERITED as AUTO};
        for (given, want) in [(0, 0), (REQ, 0), (AUTO, 0), (REQ | AUTO, AUTO)] {
            let mut sd = SecurityDescriptor { control: given, ..Default::default() };
            kept(&mut sd);
            assert_eq!(sd.control, want);
        }
        let mut sd = with(vec![
            Ace::allow(alice(), mask::GENERIC_READ, 0),
            Ace::allow(alice(), mask::GENERIC_READ, CI),
        ]);
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
    fn what_is_denied_to_one_is_allowed_to_no_class() {
        let sd = with(vec![
            deny(Sid::unix_user(7), mask::WRITE_DATA),
            Ace::allow(Sid::everyone(), mask::FILE_ALL, 0),
        ]);
        assert_eq!(mode_of(&sd, false), 0o755);
        assert_eq!(mode_of(&with(vec![]), true), 0o500);
        assert_eq!(mode_of(&SecurityDescriptor::default(), false), 0o777);
    }

    #[test]
    fn a_full_owner_has_what_windows_calls_full_control() {
        for (is_dir, mode) in [(false, 0o644), (true, 0o755)] {
            let sd = of_mode(mode, is_dir, &alice(), &staff());
            assert_eq!(allowed(&sd, &token(alice())), mask::FILE_ALL);
        }
    }

    proptest! {
        /// Directories say the same both ways; files too, but for the execute bit that comes with reading.
        #[test]
        fn mode_bits_survive_as_a_descriptor(mode in 0..0o1000_u32, is_dir in any::<bool>()) {
            let sd = of_mode(mode, is_dir, &alice(), &staff());
            let back = mode_of(&sd, is_dir);
            // Entries of Everyone count for the group too, and both for the owner.
            let group = mode >> 3 & 7 | mode & 7;
            let owner = mode >> 6 & 7 | group;
            let expect = owner << 6 | group << 3 | mode & 7;
            let read_bits = |m: u32| m & 0o666;
            prop_assert_eq!(read_bits(back), read_bits(expect | 0o400));
        }

        /// Group and others get no bit that the descriptor does not give to everybody in the class.
        #[test]
        fn mode_bits_never_allow_more(sd in any_descriptor(), is_dir in any::<bool>()) {
            let mode = mode_of(&sd, is_dir);
            let stranger = Token {
                user: Sid::anonymous(),
                groups: vec![Sid::everyone(), Sid::authenticated_users(), Sid::network()],
            };
            let rights = allowed(&sd, &stranger);
            prop_assert!(mode & 4 == 0 || rights & mask::READ_DATA != 0);
            prop_assert!(mode & 2 == 0 || rights & mask::WRITE_DATA != 0);
        }
    }
}
