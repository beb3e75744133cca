//! Mode bits of a list, and a list of mode bits (RFC 8881 sections 6.3 and 6.4).

use super::{Ace, Acl, Owner, Sid, Who, flag, kind, mask};
use crate::types::{ANONYMOUS, Cred};

/// The rights of each bit of one class. Extended attributes are read and written with the data (xattr(7)), and a Windows client
/// asks for both at once.
const R: u32 = mask::READ_DATA | mask::READ_EA;
const W: u32 = mask::WRITE_DATA | mask::APPEND_DATA | mask::WRITE_EA;
const X: u32 = mask::EXECUTE;

/// Rights that every user has, whatever the mode.
pub(super) const ANYBODY: u32 = mask::READ_ATTRIBUTES | mask::READ_CONTROL | mask::SYNCHRONIZE;
/// Additional rights of the owner.
pub(super) const OWNERS: u32 = mask::WRITE_ATTRIBUTES | mask::WRITE_DAC;

/// A class of mode bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Owner,
    Group,
    Other,
}

/// Returns the class of an entry's principal; `None` for a user or group without mode bits.
pub(super) fn class(who: &Who, owner: Owner) -> Option<Class> {
    match who {
        Who::Owner => Some(Class::Owner),
        Who::User(uid) if *uid == owner.uid => Some(Class::Owner),
        Who::Sid(sid) if *sid == Sid::owner_rights() => Some(Class::Owner),
        Who::Group => Some(Class::Group),
        Who::Members(gid) if *gid == owner.gid => Some(Class::Group),
        Who::Everyone => Some(Class::Other),
        Who::Sid(sid) if *sid == Sid::authenticated_users() || *sid == Sid::network() => {
            Some(Class::Other)
        }
        _ => None,
    }
}

/// Returns the three bits of a class for these rights (RFC 8881 section 6.3.2).
pub(super) fn bits_of(rights: u32) -> u32 {
    let bit = |all: u32, bit: u32| if rights & all == all { bit } else { 0 };
    bit(mask::READ_DATA, 4) | bit(mask::WRITE_DATA | mask::APPEND_DATA, 2) | bit(X, 1)
}

/// Returns the rights of these three bits. In a directory the right to add names includes the right to remove them.
pub(super) fn rights_of(bits: u32, is_dir: bool) -> u32 {
    let when = |bit: u32, rights: u32| if bits & bit != 0 { rights } else { 0 };
    when(4, R) | when(2, if is_dir { W | mask::DELETE_CHILD } else { W }) | when(1, X)
}

/// True if the entry has an effect. An entry for OWNER RIGHTS removes implied rights by its presence, so it stays even with an
/// empty mask.
fn says(who: &Who, mask: u32) -> bool {
    mask != 0 || *who == Who::Sid(Sid::owner_rights())
}

/// Returns the entry, or `None` if it has no effect.
fn some(kind: u8, who: Who, mask: u32) -> Option<Ace> {
    (mask != 0).then_some(Ace::Simple { kind, flags: 0, mask, who })
}

/// A change of the mode, to be applied to a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// Owner and group of the file.
    pub(crate) owner: Owner,
    pub(crate) is_dir: bool,
    /// The nine permission bits of the new mode.
    pub(crate) mode: u32,
    /// True if users and groups named in the list keep the right to run the file.
    pub(crate) keeps_run: bool,
}

impl Change {
    /// Returns the rights of all bits.
    fn touched(&self) -> u32 {
        rights_of(7, self.is_dir)
    }

    /// Returns the rights that the new mode grants this class.
    fn given(&self, class: Class) -> u32 {
        rights_of(self.mode >> shift(class) & 7, self.is_dir)
    }

    /// Returns the rights that stay in an entry: those without a mode bit, and denied rights that the mode denies too.
    fn kept(&self, kind: u8, mask: u32, who: &Who) -> u32 {
        let class = class(who, self.owner);
        let given = match class {
            // The entry counts for owner and group as well.
            Some(Class::Other) => {
                self.given(Class::Owner) | self.given(Class::Group) | self.given(Class::Other)
            }
            Some(class) => self.given(class),
            None if self.keeps_run => self.given(Class::Group) | X,
            None => self.given(Class::Group),
        };
        match (kind, class) {
            (kind::DENIED, None) => mask,
            (kind::DENIED, Some(_)) => mask & !given,
            (_, None) => mask & !(self.touched() & !given),
            (_, Some(_)) => mask & !self.touched(),
        }
    }
}

pub(super) fn shift(class: Class) -> u32 {
    match class {
        Class::Owner => 6,
        Class::Group => 3,
        Class::Other => 0,
    }
}

impl Acl {
    /// Returns the list equivalent to these mode bits (RFC 8881 section 6.4.2), with entries that deny only where a class has fewer
    /// rights than a class that contains it.
    pub fn of_mode(mode: u32, is_dir: bool) -> Self {
        let [owner, group, other] = [6, 3, 0].map(|s| rights_of(mode >> s & 7, is_dir));
        let entries = [
            some(kind::DENIED, Who::Owner, (group | other) & !owner),
            some(kind::ALLOWED, Who::Owner, owner | ANYBODY | OWNERS),
            some(kind::DENIED, Who::Group, other & !group),
            some(kind::ALLOWED, Who::Group, group | ANYBODY),
            some(kind::ALLOWED, Who::Everyone, other | ANYBODY),
        ];
        Self::new(entries.into_iter().flatten().collect())
    }

    /// Returns the nine mode bits of a list (RFC 8881 section 6.3.2). Owner and group may also be named by their numbers.
    pub fn mode(&self, owner: Owner) -> u32 {
        let of = |own: Class| {
            bits_of(self.allowed_where(|who| {
                class(who, owner).is_some_and(|c| c == own || c == Class::Other)
            }))
        };
        of(Class::Owner) << 6 | of(Class::Group) << 3 | of(Class::Other)
    }

    /// Checks whether the list has NFS form: it has effective entries for OWNER@ or GROUP@, which no SMB client sets. Mode bits,
    /// POSIX lists and NFS clients make such lists; in them the right to run a file is a separate bit.
    pub fn is_of_nfs(&self) -> bool {
        self.effective().any(|(_, _, who)| matches!(who, Who::Owner | Who::Group))
    }

    /// Returns the list after the nine mode bits were set (RFC 8881 section 6.4.1.1), which were `old` before. A list of Windows
    /// needs no bit to run a program: where all execute bits stay the same, each class that can still read the file keeps that
    /// right.
    pub(crate) fn chmod(&self, owner: Owner, is_dir: bool, old: u32, mode: u32) -> Self {
        let (old, mode) = (old & 0o777, mode & 0o777);
        if is_dir || (mode ^ old) & 0o111 != 0 || self.is_of_nfs() {
            return self.with_mode(&Change { owner, is_dir, mode, keeps_run: false });
        }
        let runs = self.mode(owner) & mode >> 2 & 0o111;
        let keeps_run = mode & 0o040 != 0;
        let mut now = self.with_mode(&Change { owner, is_dir, mode: mode | runs, keeps_run });
        let kept = runs & !mode;
        let anonymous =
            Cred { uid: ANONYMOUS, gid: ANONYMOUS, groups: [].into(), token: crate::Token::NONE };
        if kept == 0 || self.allowed(&anonymous, owner) & X != 0 {
            return now;
        }
        // The classes keep the right because Authenticated Users have it; their entries count for unknown users as well.
        let mut entries = now.entries.take().unwrap_or_default();
        let of_owner = |ace: &&Ace| matches!(ace, Ace::Simple { who: Who::Owner, .. });
        let at = if kept & 0o100 == 0 { entries.iter().take_while(of_owner).count() } else { 0 };
        entries.insert(at, Ace::deny(Who::Sid(Sid::anonymous()), X, 0));
        Self { entries: Some(entries), ..now }
    }

    /// Returns the list after the mode was changed (RFC 8881 section 6.4.1.1): its mode is the new one, users and groups that it
    /// names have at most the rights of the group class, and inheritance stays the same.
    pub(crate) fn with_mode(&self, change: &Change) -> Self {
        let Some(entries) = &self.entries else {
            return Self {
                entries: Self::of_mode(change.mode, change.is_dir).entries,
                ..self.clone()
            };
        };
        let [owner, group, other] =
            [Class::Owner, Class::Group, Class::Other].map(|c| change.given(c));
        let mut out = Vec::with_capacity(entries.len() + 5);
        let mut denied = 0;
        for ace in entries {
            let Ace::Simple { kind: k @ (kind::ALLOWED | kind::DENIED), flags, mask: m, who } = ace
            else {
                out.push(ace.clone());
                continue;
            };
            if flags & flag::INHERIT_ONLY != 0 {
                out.push(ace.clone());
                continue;
            }
            let whole = mask::map_generic(*m);
            let left = change.kept(*k, whole, who) & !denied;
            if *k == kind::DENIED && class(who, change.owner) == Some(Class::Other) {
                // Rights denied to everyone here stay denied to principals named later.
                denied |= whole & !left;
            }
            if left == whole {
                out.push(ace.clone());
                continue;
            }
            if says(who, left) {
                let flags = flags & !flag::PASSING_ON;
                out.push(Ace::Simple { kind: *k, flags, mask: left, who: who.clone() });
            }
            out.extend(passed_on(ace));
        }
        let first = [
            some(kind::DENIED, Who::Owner, (group | other) & !owner),
            some(kind::ALLOWED, Who::Owner, owner),
        ];
        let last = [
            some(kind::DENIED, Who::Group, other & !group),
            some(kind::ALLOWED, Who::Group, group),
            some(kind::ALLOWED, Who::Everyone, other),
        ];
        let all = first.into_iter().flatten().chain(out).chain(last.into_iter().flatten());
        Self { entries: Some(merged(all)), ..self.clone() }
    }

    /// Limits the list of a new node by the mode bits from its client: they only remove rights, also from the owner. Returns the
    /// list with the remaining mode bits. A list of Windows keeps the right to run a file, which Windows programs have without a
    /// bit.
    pub fn limited(&self, mode: u32, owner: Owner, is_dir: bool) -> (Self, u32) {
        let left = self.mode(owner) & mode;
        let Some(entries) = &self.entries else {
            return (Self { entries: Self::of_mode(mode, is_dir).entries, ..self.clone() }, left);
        };
        let said = if is_dir || self.is_of_nfs() { 0o777 } else { 0o666 };
        let over = |class| rights_of((said & !mode) >> shift(class) & 7, is_dir);
        let limit = Limit {
            classes: owner,
            owner: over(Class::Owner),
            group: over(Class::Group),
            other: over(Class::Other),
        };
        let (mut given, mut out) = (0, Vec::with_capacity(entries.len() + 1));
        for ace in entries {
            match ace {
                Ace::Simple { kind: kind::ALLOWED, flags, mask: m, who }
                    if flags & flag::INHERIT_ONLY == 0 =>
                {
                    given |= limit.part(ace, *flags, mask::map_generic(*m), who, &mut out);
                }
                _ => out.push(ace.clone()),
            }
        }
        let first = some(kind::DENIED, Who::Owner, given & limit.owner);
        if first.is_none() && out == *entries {
            return (self.clone(), left);
        }
        let entries = Some(merged(first.into_iter().chain(out)));
        (Self { entries, ..self.clone() }, left)
    }
}

/// The rights that mode bits remove from each class.
struct Limit {
    /// Owner and group of the file, which define the classes.
    classes: Owner,
    owner: u32,
    group: u32,
    other: u32,
}

impl Limit {
    /// Adds the remaining part of an entry that allows. The entry keeps its position, so that earlier denials still apply. Returns
    /// the rights left to any caller.
    fn part(&self, ace: &Ace, flags: u8, mask: u32, who: &Who, out: &mut Vec<Ace>) -> u32 {
        let over = match class(who, self.classes) {
            Some(Class::Other) => self.owner | self.group | self.other,
            Some(Class::Owner) => self.owner,
            Some(Class::Group) | None => self.group,
        };
        if mask & over == 0 {
            out.push(ace.clone());
            return mask;
        }
        let here = flags & !flag::PASSING_ON;
        let mut given = 0;
        let mut put = |kind, who, mask| {
            if says(&who, mask) {
                out.push(Ace::Simple { kind, flags: here, mask, who });
                given |= if kind == kind::ALLOWED { mask } else { 0 };
            }
        };
        if class(who, self.classes) == Some(Class::Other) {
            // The entry counts for owner and group as well: from here on each of them has a separate entry.
            let owner = mask & !self.owner & (self.group | self.other);
            let group = mask & !self.group & self.other;
            if *who == Who::Sid(Sid::authenticated_users()) {
                // An unknown user may own the file or be in its group, and was not meant.
                put(kind::DENIED, Who::Sid(Sid::anonymous()), owner | group);
            }
            put(kind::ALLOWED, Who::Owner, owner);
            put(kind::DENIED, Who::Group, mask & self.group & !self.other);
            put(kind::ALLOWED, Who::Group, group);
            put(kind::ALLOWED, who.clone(), mask & !self.other);
        } else {
            put(kind::ALLOWED, who.clone(), mask & !over);
        }
        out.extend(passed_on(ace));
        given
    }
}

/// Returns the inherited part of an entry, without its effect on the directory itself.
fn passed_on(ace: &Ace) -> Option<Ace> {
    let mut ace = ace.clone();
    match &mut ace {
        Ace::Simple { flags, .. } if *flags & flag::PASSING_ON != 0 => {
            *flags |= flag::INHERIT_ONLY;
            Some(ace)
        }
        _ => None,
    }
}

/// Merges entries that allow the same principal rights, where no entry that denies is between them, and drops rights that an
/// earlier entry has decided for the same principal.
fn merged(entries: impl Iterator<Item = Ace>) -> Vec<Ace> {
    let mut out: Vec<Ace> = Vec::new();
    let mut decided: Vec<(Who, u32)> = Vec::new();
    let mut from = 0;
    for mut ace in entries {
        let Ace::Simple { kind: k @ (kind::ALLOWED | kind::DENIED), flags, mask: m, who } =
            &mut ace
        else {
            out.push(ace);
            continue;
        };
        if *flags & flag::PASSING_ON == 0 {
            let before = |w: &Who| decided.iter().filter(|d| d.0 == *w).fold(0, |all, d| all | d.1);
            *m &= !(before(who) | before(&Who::Everyone));
            if !says(who, *m) {
                continue;
            }
        }
        if *flags & flag::INHERIT_ONLY == 0 {
            decided.push((who.clone(), *m));
        }
        if *k == kind::DENIED {
            from = out.len();
        }
        let same = out.iter_mut().skip(from).find_map(|other| match other {
            Ace::Simple { kind: kind::ALLOWED, flags: f, mask, who: w }
                if *k == kind::ALLOWED && f == flags && w == who =>
            {
                Some(mask)
            }
            _ => None,
        });
        match same {
            Some(mask) => *mask |= *m,
            None => out.push(ace),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::{any_acl, any_cred};
    use super::*;
    use proptest::prelude::*;

    const OWNER: Owner = Owner { uid: 1000, gid: 50 };

    fn change(mode: u32, is_dir: bool) -> Change {
        Change { owner: OWNER, is_dir, mode, keeps_run: false }
    }

    /// RFC 8881 section 6.4.2. The numbers come from section 6.2.1.3.
    #[test]
    fn plain_mode_needs_no_deny_entry() {
        assert_eq!(
            Acl::of_mode(0o640, false).entries(),
            [
                Ace::allow(Who::Owner, 0x16_019f, 0),
                Ace::allow(Who::Group, 0x12_0089, 0),
                Ace::allow(Who::Everyone, 0x12_0080, 0),
            ]
        );
        assert_eq!(
            Acl::of_mode(0o017, true).entries(),
            [
                Ace::deny(Who::Owner, 0x7f, 0),
                Ace::allow(Who::Owner, 0x16_0180, 0),
                Ace::deny(Who::Group, 0x5f, 0),
                Ace::allow(Who::Group, 0x12_00a0, 0),
                Ace::allow(Who::Everyone, 0x12_00ff, 0),
            ],
            "owner and group are told what they have not"
        );
    }

    /// RFC 8881 section 6.3.2: OWNER@, GROUP@ and EVERYONE@ determine the mode; the other cases are principals with the same
    /// meaning here.
    #[test]
    fn entry_counts_for_its_class() {
        let sid = Who::Sid;
        for (who, mode) in [
            (Who::Owner, 0o400),
            (Who::User(1000), 0o400),
            (sid(Sid::owner_rights()), 0o400),
            (Who::Group, 0o040),
            (Who::Members(50), 0o040),
            (Who::Everyone, 0o444),
            (sid(Sid::authenticated_users()), 0o444),
            (sid(Sid::network()), 0o444),
            (Who::User(7), 0),
            (Who::Members(7), 0),
            (sid(Sid::anonymous()), 0),
            (sid(Sid::administrators()), 0),
            (sid(Sid::creator_owner()), 0),
        ] {
            assert_eq!(Acl::new(vec![Ace::allow(who.clone(), R, 0)]).mode(OWNER), mode, "{who:?}");
        }
    }

    /// A NULL list becomes the list of the mode bits, because it has no other rights.
    #[test]
    fn null_list_becomes_list_of_mode() {
        let null = Acl { revision: 2, owner: Some(Sid::system()), ..Acl::default() };
        let want = Acl { entries: Acl::of_mode(0o640, false).entries, ..null.clone() };
        assert_eq!(null.with_mode(&change(0o640, false)), want);
        assert_eq!(null.limited(0o640, OWNER, false), (want, 0o640));
    }

    #[test]
    fn to_write_takes_both_rights() {
        let of = |m| Acl::new(vec![Ace::allow(Who::Everyone, m, 0)]).mode(OWNER);
        assert_eq!(of(mask::WRITE_DATA), 0);
        assert_eq!(of(mask::APPEND_DATA), 0);
        assert_eq!(of(W), 0o222);
        assert_eq!(of(mask::GENERIC_ALL), 0o777);
        assert_eq!(Acl::default().mode(OWNER), 0o777);
    }

    #[test]
    fn only_three_classes_determine_mode() {
        let acl = Acl::new(vec![
            Ace::deny(Who::User(7), W, 0),
            Ace::allow(Who::User(1000), R, 0),
            Ace::allow(Who::Members(50), X, 0),
            Ace::allow(Who::User(8), R | W | X, 0),
            Ace::allow(Who::Everyone, W, 0),
        ]);
        assert_eq!(acl.mode(OWNER), 0o632);
    }

    #[test]
    fn changed_mode_limits_named_users() {
        let (oi, io) = (flag::OBJECT_INHERIT, flag::INHERIT_ONLY);
        let acl = Acl::new(vec![
            Ace::deny(Who::User(7), R, 0),
            Ace::allow(Who::User(8), R | W | mask::DELETE, oi),
            Ace::allow(Who::Everyone, R, 0),
        ]);
        let now = acl.with_mode(&change(0o640, false));
        assert_eq!(
            now.entries(),
            [
                Ace::allow(Who::Owner, R | W, 0),
                Ace::deny(Who::User(7), R, 0),
                Ace::allow(Who::User(8), R | mask::DELETE, 0),
                Ace::allow(Who::User(8), R | W | mask::DELETE, oi | io),
                Ace::allow(Who::Group, R, 0),
            ]
        );
    }

    /// Each line: the entries, the new mode, and the entries after it.
    #[test]
    fn changed_mode_entries_match_table() {
        use mask::DELETE;
        let allow = |who, m| Ace::allow(who, m, 0);
        let deny = |who, m| Ace::deny(who, m, 0);
        let (owner, group, all) =
            (|m| allow(Who::Owner, m), |m| allow(Who::Group, m), Who::Everyone);
        let user = |uid| Who::User(uid);
        for (line, (before, mode, keeps_run, after)) in [
            // A denial for a user without a mode class stays.
            (
                vec![deny(user(7), R | W), allow(all.clone(), R | W)],
                0o640,
                false,
                vec![owner(R | W), deny(user(7), R | W), group(R)],
            ),
            // A denial for a class stays where the mode does not grant the right.
            (
                vec![deny(all.clone(), W), allow(all.clone(), R)],
                0o444,
                false,
                vec![owner(R), deny(all.clone(), W), group(R), allow(all.clone(), R)],
            ),
            // Rights denied to everyone return only to the classes that the mode grants them to.
            (
                vec![deny(all.clone(), W | DELETE), allow(user(8), R | W | DELETE)],
                0o664,
                false,
                vec![
                    owner(R | W),
                    deny(all.clone(), DELETE),
                    allow(user(8), R),
                    group(R | W),
                    allow(all.clone(), R),
                ],
            ),
            // A denial for the owner, or a grant for everyone, has no effect on other principals.
            (
                vec![deny(Who::Owner, W), allow(user(8), W)],
                0o660,
                false,
                vec![owner(R | W), allow(user(8), W), group(R | W)],
            ),
            (
                vec![allow(all.clone(), W), allow(user(8), W | X)],
                0o660,
                false,
                vec![owner(R | W), allow(user(8), W), group(R | W)],
            ),
            // A class with fewer rights than a class that contains it gets a deny entry.
            (
                vec![],
                0o426,
                false,
                vec![
                    deny(Who::Owner, W),
                    owner(R),
                    deny(Who::Group, R),
                    group(W),
                    allow(all.clone(), R | W),
                ],
            ),
            // Named users can still run the file.
            (
                vec![deny(user(7), X), allow(user(8), R | W | X), allow(all.clone(), R | W | X)],
                0o640,
                true,
                vec![owner(R | W), deny(user(7), X), allow(user(8), R | X), group(R)],
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let change = Change { keeps_run, ..change(mode, false) };
            assert_eq!(Acl::new(before).with_mode(&change).entries(), after, "line {line}");
        }
    }

    /// Neither a changed mode nor one at creation changes what a directory passes on; the part that still applies to the directory
    /// becomes a separate entry.
    #[test]
    fn inheritance_kept_for_all_flag_combinations() {
        for flags in 0..32 {
            let acl = Acl::new(vec![
                Ace::allow(Who::Owner, R | W | X, 0),
                Ace::allow(Who::User(8), R | W | mask::DELETE_CHILD | X, flags),
            ]);
            let (limited, _) = acl.limited(0o740, OWNER, true);
            for now in [acl.with_mode(&change(0o740, true)), limited] {
                for is_dir in [false, true] {
                    let (is, was) = (now.inherited(is_dir, OWNER), acl.inherited(is_dir, OWNER));
                    assert_eq!(is, was, "flags {flags:#x}");
                }
                let here = now.entries().iter().filter(|e| match e {
                    Ace::Simple { who, flags, .. } => {
                        *who == Who::User(8) && flags & flag::INHERIT_ONLY == 0
                    }
                    Ace::Other { .. } => false,
                });
                let want = Ace::allow(Who::User(8), R, flags & flag::INHERITED);
                let want = if flags & flag::INHERIT_ONLY == 0 { vec![&want] } else { vec![] };
                assert_eq!(here.collect::<Vec<_>>(), want, "flags {flags:#x}");
            }
            let (same, _) = acl.limited(0o770, OWNER, true);
            assert_eq!(same, acl, "flags {flags:#x}: nothing is taken away");
        }
    }

    #[test]
    fn new_node_limited_to_inherited_rights() {
        let acl = Acl::new(vec![
            Ace::allow(Who::User(8), R | W | X, 0),
            Ace::allow(Who::Owner, R | W | X, 0),
            Ace::allow(Who::Group, R, 0),
        ]);
        let (same, mode) = acl.limited(0o776, OWNER, false);
        assert_eq!((same, mode), (acl.clone(), 0o740));
        let (less, mode) = acl.limited(0o600, OWNER, false);
        assert_eq!(mode, 0o600);
        let user = user(8, 8);
        assert_eq!(less.allowed(&user, OWNER), 0, "a file of NFS is run by a bit");
        let windows = Acl::new(vec![Ace::allow(Who::User(8), R | W | X, 0)]);
        let (less, _) = windows.limited(0o600, OWNER, false);
        assert_eq!(less.allowed(&user, OWNER), X, "a program of Windows is run without a bit");
        let (dir, mode) = acl.limited(0o750, OWNER, true);
        assert_eq!(mode, 0o740);
        assert_eq!(dir.allowed(&user, OWNER), R | X);
    }

    #[test]
    fn adjacent_allow_entries_merged() {
        let a = |who, m| Ace::allow(who, m, 0);
        let all = [a(Who::Owner, 1), a(Who::Group, 1), a(Who::Owner, 2)];
        assert_eq!(merged(all.into_iter()), [a(Who::Owner, 3), a(Who::Group, 1)]);
        let all = [a(Who::Owner, 1), Ace::deny(Who::Group, 2, 0), a(Who::Owner, 2)];
        assert_eq!(merged(all.clone().into_iter()), all);
    }

    #[test]
    fn decided_rights_are_listed_once() {
        let (oi, ci) = (flag::OBJECT_INHERIT, flag::CONTAINER_INHERIT);
        let of = |flags| Ace::allow(Who::User(8), R | X, flags);
        // Inherited entries stay separate, even when several grant the same.
        let twice = [of(oi), of(ci)];
        let all = twice.iter().cloned().chain([of(0)]);
        assert_eq!(merged(all), twice);
        let both = [Ace::allow(Who::Everyone, R, 0), of(oi)];
        let all = both.iter().cloned().chain([of(0)]);
        assert_eq!(merged(all), both);
        let all = [Ace::allow(Who::Everyone, R, 0), of(0)];
        assert_eq!(
            merged(all.clone().into_iter()),
            [all[0].clone(), Ace::allow(Who::User(8), X, 0)]
        );
    }

    fn user(uid: u32, gid: u32) -> Cred {
        Cred { uid, gid, groups: Arc::new([]), token: crate::Token::NONE }
    }

    #[test]
    fn creation_keeps_group_denial_for_owner() {
        let acl =
            Acl::new(vec![Ace::deny(Who::Members(51), R, 0), Ace::allow(Who::Everyone, R | X, 0)]);
        let (now, mode) = acl.limited(0o400, OWNER, false);
        assert_eq!((mode, now.mode(OWNER)), (0o400, 0o511));
        assert_eq!(now.allowed(&user(1000, 51), OWNER) & R, 0);
        assert_eq!(now.allowed(&user(1000, 50), OWNER) & R, R);
        assert_eq!(now.allowed(&user(7, 50), OWNER) & R, 0);
    }

    #[test]
    fn everyone_entry_split_in_place() {
        let acl = Acl::new(vec![Ace::allow(Who::Everyone, R | W | X | mask::DELETE, 0)]);
        let (now, mode) = acl.limited(0o640, OWNER, false);
        assert_eq!(mode, 0o640);
        assert_eq!(
            now.entries(),
            [
                Ace::allow(Who::Owner, R | W, 0),
                Ace::allow(Who::Group, R, 0),
                Ace::allow(Who::Everyone, X | mask::DELETE, 0),
            ]
        );
        let (odd, _) = acl.limited(0o604, OWNER, false);
        assert_eq!(odd.allowed(&user(1000, 50), OWNER) & (R | W), R | W);
        assert_eq!(odd.allowed(&user(7, 50), OWNER) & (R | W), 0);
        assert_eq!(odd.allowed(&user(7, 7), OWNER) & (R | W), R);
    }

    #[test]
    fn unknown_user_gets_no_class_rights() {
        let acl = Acl::new(vec![Ace::allow(Who::Sid(Sid::authenticated_users()), R | W, 0)]);
        let owner = Owner { uid: ANONYMOUS, gid: ANONYMOUS };
        let (now, _) = acl.limited(0o640, owner, false);
        assert_eq!(now.allowed(&user(ANONYMOUS, ANONYMOUS), owner) & (R | W), 0);
        assert_eq!(now.allowed(&user(7, ANONYMOUS), owner) & (R | W), R);
    }

    #[test]
    fn unknown_user_loses_run_right() {
        let acl = Acl::new(vec![Ace::allow(Who::Sid(Sid::authenticated_users()), R | X, 0)]);
        let now = acl.chmod(OWNER, false, 0o500, 0o764);
        let (known, unknown) = (user(7, 7), user(ANONYMOUS, 50));
        assert_eq!(now.mode(OWNER) & 0o666, 0o664);
        assert_eq!(now.allowed(&known, OWNER) & X, X);
        assert_eq!(now.allowed(&unknown, OWNER) & X, 0);
        let owned = Owner { uid: ANONYMOUS, gid: 50 };
        let now = acl.chmod(owned, false, 0o500, 0o764);
        assert_eq!(now.allowed(&unknown, owned) & X, X, "the mode says that the owner runs it");
    }

    #[test]
    fn empty_owner_rights_entry_kept() {
        let acl = Acl::new(vec![Ace::allow(Who::Sid(Sid::owner_rights()), R, 0)]);
        let owner = user(1000, 50);
        assert_eq!(acl.allowed(&owner, OWNER), R);
        assert_eq!(acl.limited(0o200, OWNER, false).0.allowed(&owner, OWNER), 0);
        let changed = acl.with_mode(&change(0, false));
        assert_eq!(changed.allowed(&owner, OWNER), 0);
        assert_eq!(changed.with_mode(&change(0, false)), changed);
    }

    /// Returns these rights with the extended attributes that follow the data: a mode makes a list of NFS form.
    fn with_attributes(rights: u32) -> u32 {
        let of = |data, attributes| if rights & data != 0 { attributes } else { 0 };
        rights | of(mask::READ_DATA, mask::READ_EA) | of(mask::WRITE_DATA, mask::WRITE_EA)
    }

    proptest! {
        #[test]
        fn mode_bits_survive_as_a_list(mode in 0..0o1000_u32, is_dir in any::<bool>()) {
            prop_assert_eq!(Acl::of_mode(mode, is_dir).mode(OWNER), mode);
        }

        /// RFC 8881 section 6.4.1.1, and its three rules for principals that the list names.
        #[test]
        fn changed_mode_is_mode_of_list(acl in any_acl(), mode in 0..0o1000_u32, is_dir: bool) {
            let now = acl.with_mode(&change(mode, is_dir));
            prop_assert_eq!(now.mode(OWNER), mode);
            let over = rights_of(!mode >> 3 & 7, is_dir);
            for (k, m, who) in now.effective() {
                prop_assert!(k == kind::DENIED || class(who, OWNER).is_some() || m & over == 0);
            }
            prop_assert_eq!(now.with_mode(&change(mode, is_dir)).mode(OWNER), mode);
            let passed_on = |a: &Acl| {
                let is = |e: &&Ace| matches!(e, Ace::Simple { flags, .. } if flags & flag::INHERIT_ONLY != 0);
                a.entries().iter().filter(is).cloned().collect::<Vec<_>>()
            };
            // Two entries with the same inheritance may have been merged.
            let within = |e: &Ace, n: &Ace| match (e, n) {
                (
                    Ace::Simple { kind, flags, mask, who },
                    Ace::Simple { kind: k, flags: f, mask: m, who: w },
                ) => (kind, flags, who) == (k, f, w) && m & mask == *mask,
                _ => e == n,
            };
            for e in passed_on(&acl) {
                prop_assert!(passed_on(&now).iter().any(|n| within(&e, n)));
            }
        }

        /// A list does not grow when its mode is changed repeatedly.
        #[test]
        fn repeated_mode_adds_no_entries(acl in any_acl(), mode in 0..0o1000_u32, is_dir: bool) {
            let once = acl.with_mode(&change(mode, is_dir));
            let twice = once.with_mode(&change(mode, is_dir));
            prop_assert!(twice.entries().len() <= once.entries().len());
        }

        /// A changed mode grants a caller no more than the rights of a class that he is in.
        #[test]
        fn changed_mode_grants_class_rights_only(
            acl in any_acl(), mode in 0..0o1000_u32, is_dir: bool, user in any_cred(),
        ) {
            let change = change(mode, is_dir);
            let now = acl.with_mode(&change);
            let said = [
                (true, Class::Other),
                (user.in_group(OWNER.gid), Class::Group),
                (user.uid == OWNER.uid, Class::Owner),
            ];
            let said = said.iter().filter(|c| c.0).fold(0, |all, c| all | change.given(c.1));
            let before = with_attributes(acl.allowed(&user, OWNER));
            prop_assert_eq!(now.allowed(&user, OWNER) & !before & !said, 0);
        }

        /// Setting the mode again revokes rights: named users and groups have at most the group's bits, no caller gets rights that
        /// neither the list nor the mode grants, and only callers who can read a file, or whose bit says so, can run it.
        #[test]
        fn set_mode_limits_every_caller(
            acl in any_acl(), old in 0..0o1000_u32, mode in 0..0o1000_u32, is_dir: bool, user in any_cred(),
        ) {
            let now = acl.chmod(OWNER, is_dir, old, mode);
            let data = rights_of(6, is_dir);
            prop_assert_eq!(now.mode(OWNER) & 0o666, mode & 0o666);
            let in_class = [
                (true, Class::Other),
                (user.in_group(OWNER.gid), Class::Group),
                (user.uid == OWNER.uid, Class::Owner),
            ];
            let of = |mode: u32| {
                let bits = |class| rights_of(mode >> shift(class) & 7, is_dir);
                in_class.iter().filter(|c| c.0).fold(bits(Class::Group), |all, c| all | bits(c.1))
            };
            let has = now.allowed(&user, OWNER);
            prop_assert_eq!(has & data & !of(mode), 0, "data");
            let runs = if is_dir { 0 } else { mode >> 2 & 0o111 };
            prop_assert_eq!(has & X & !of(mode | runs), 0, "run");
            let classes = in_class.iter().filter(|c| c.0).fold(0, |all, c| {
                all | rights_of(mode >> shift(c.1) & 7, is_dir)
            });
            let grown = has & !with_attributes(acl.allowed(&user, OWNER)) & !classes;
            prop_assert_eq!(grown, 0, "grown");
        }

        /// Mode bits at creation grant no caller a right that the list does not, and each class has the rights that both grant.
        #[test]
        fn creation_mode_grants_no_rights(acl in any_acl(), mode in 0..0o1000_u32, is_dir: bool, user in any_cred()) {
            let (now, left) = acl.limited(mode, OWNER, is_dir);
            prop_assert_eq!(left, acl.mode(OWNER) & mode);
            let said = if is_dir || acl.is_of_nfs() { 0o777 } else { 0o666 };
            prop_assert_eq!(now.mode(OWNER) & said, left & said);
            prop_assert_eq!(now.allowed(&user, OWNER) & !with_attributes(acl.allowed(&user, OWNER)), 0);
            let over = rights_of(said & !mode >> 3 & 7, is_dir);
            for (k, m, who) in now.effective() {
                prop_assert!(k == kind::DENIED || class(who, OWNER).is_some() || m & over == 0);
            }
        }
    }
}
