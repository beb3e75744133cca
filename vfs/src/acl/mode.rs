//! Mode bits of a list, and a list of mode bits (RFC 8881 sections 6.3 and 6.4).

use super::{Ace, Acl, Owner, Sid, Who, flag, kind, mask};

/// Rights that a bit of one class stands for.
const R: u32 = mask::READ_DATA;
const W: u32 = mask::WRITE_DATA | mask::APPEND_DATA;
const X: u32 = mask::EXECUTE;

/// What everybody may whatever the mode.
const ANYBODY: u32 = mask::READ_ATTRIBUTES | mask::READ_CONTROL | mask::SYNCHRONIZE;
/// What the owner may beside.
const OWNERS: u32 = mask::WRITE_ATTRIBUTES | mask::WRITE_DAC;

/// A class of mode bits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Owner,
    Group,
    Other,
}

/// The class that an entry is about; `None` for a user or group that mode bits do not know.
fn class(who: &Who, owner: Owner) -> Option<Class> {
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

/// The three bits of a class that say these rights (RFC 8881 section 6.3.2).
fn bits_of(rights: u32) -> u32 {
    let bit = |all: u32, bit: u32| if rights & all == all { bit } else { 0 };
    bit(R, 4) | bit(W, 2) | bit(X, 1)
}

/// The rights that these three bits say. A directory's names are removed by whoever may add some.
pub(super) fn rights_of(bits: u32, is_dir: bool) -> u32 {
    let when = |bit: u32, rights: u32| if bits & bit != 0 { rights } else { 0 };
    when(4, R) | when(2, if is_dir { W | mask::DELETE_CHILD } else { W }) | when(1, X)
}

/// An entry whose rights are yet to be seen to be any.
fn some(kind: u8, who: Who, mask: u32) -> Option<Ace> {
    (mask != 0).then_some(Ace::Simple { kind, flags: 0, mask, who })
}

/// What a new mode does to a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// Owner and group of the file.
    pub(crate) owner: Owner,
    /// A directory.
    pub(crate) is_dir: bool,
    /// The nine bits.
    pub(crate) mode: u32,
    /// Those of them that are to be said; entries keep their rights in the others.
    pub(crate) said: u32,
    /// The most that users and groups have whom mode bits do not know: three bits.
    pub(crate) named: u32,
}

impl Change {
    /// Rights of all bits that are said, in this class.
    fn touched(&self, class: Class) -> u32 {
        rights_of(self.said >> shift(class) & 7, self.is_dir)
    }

    /// Rights that the new mode gives this class.
    fn given(&self, class: Class) -> u32 {
        rights_of((self.mode & self.said) >> shift(class) & 7, self.is_dir)
    }

    /// What an entry keeps of its rights: those that mode bits do not say, and of those that it denies what the mode denies, too.
    fn kept(&self, kind: u8, mask: u32, who: &Who) -> u32 {
        let of = |rights: fn(&Self, Class) -> u32, classes: &[Class]| {
            classes.iter().fold(0, |all, c| all | rights(self, *c))
        };
        let classes: &[Class] = match class(who, self.owner) {
            // It counts for owner and group as well.
            Some(Class::Other) => &[Class::Owner, Class::Group, Class::Other],
            Some(Class::Owner) => &[Class::Owner],
            Some(Class::Group) => &[Class::Group],
            None if kind == kind::DENIED => return mask,
            None => {
                let said = self.said >> 3 & 7;
                return mask & !rights_of(said & !self.named, self.is_dir);
            }
        };
        match kind {
            kind::DENIED => mask & !of(Self::given, classes),
            _ => mask & !of(Self::touched, classes),
        }
    }
}

fn shift(class: Class) -> u32 {
    match class {
        Class::Owner => 6,
        Class::Group => 3,
        Class::Other => 0,
    }
}

impl Acl {
    /// The list that says what mode bits say (RFC 8881 section 6.4.2), with entries that deny only where a class has less than
    /// those that it is part of.
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

    /// The nine mode bits of a list (RFC 8881 section 6.3.2). Owner and group may also be named by their numbers.
    pub fn mode(&self, owner: Owner) -> u32 {
        let of = |own: Class| {
            bits_of(self.allowed_where(|who| {
                class(who, owner).is_some_and(|c| c == own || c == Class::Other)
            }))
        };
        of(Class::Owner) << 6 | of(Class::Group) << 3 | of(Class::Other)
    }

    /// The list after the mode was changed (RFC 8881 section 6.4.1.1): its own mode is the new one, users and groups that it
    /// names have no more than the group class, and what it passes on stays.
    pub(crate) fn with_mode(&self, change: &Change) -> Self {
        let Some(entries) = &self.entries else {
            return Self {
                entries: Self::of_mode(change.mode, change.is_dir).entries,
                ..self.clone()
            };
        };
        let [owner, group, other] = [Class::Owner, Class::Group, Class::Other]
            .map(|c| (change.given(c), change.touched(c)));
        let mut out = Vec::with_capacity(entries.len() + 5);
        let (mut named, mut denied) = (0, 0);
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
                // What was denied to everybody here does not come back to those that are named further on.
                denied |= whole & !left;
            }
            named |= if *k == kind::ALLOWED { left } else { 0 };
            if left == whole {
                out.push(ace.clone());
                continue;
            }
            if left != 0 {
                let flags = flags & !flag::PASSING_ON;
                out.push(Ace::Simple { kind: *k, flags, mask: left, who: who.clone() });
            }
            if flags & flag::PASSING_ON != 0 {
                let flags = flags | flag::INHERIT_ONLY;
                out.push(Ace::Simple { kind: *k, flags, mask: *m, who: who.clone() });
            }
        }
        let denied_owner = owner.1 & !owner.0 & (group.0 | other.0 | named);
        let first = [
            some(kind::DENIED, Who::Owner, denied_owner),
            some(kind::ALLOWED, Who::Owner, owner.0),
        ];
        let last = [
            some(kind::DENIED, Who::Group, group.1 & !group.0 & other.0),
            some(kind::ALLOWED, Who::Group, group.0),
            some(kind::ALLOWED, Who::Everyone, other.0),
        ];
        let all = first.into_iter().flatten().chain(out).chain(last.into_iter().flatten());
        Self { entries: Some(merged(all)), ..self.clone() }
    }

    /// The list of something new that a client made with these mode bits: they take away, and give nothing. The mode bits that
    /// are left come with it. What is no directory keeps the right to be run, which programs of Windows have without a bit.
    pub(crate) fn limited(&self, mode: u32, owner: Owner, is_dir: bool) -> (Self, u32) {
        let own = self.mode(owner);
        let said = if is_dir { 0o777 } else { 0o666 };
        let change = Change { owner, is_dir, mode: own & mode, said, named: mode >> 3 & 7 };
        let exceeds = |(k, m, who): (u8, u32, &Who)| {
            k == kind::ALLOWED && class(who, owner).is_none() && change.kept(k, m, who) != m
        };
        if (own & !mode) & said == 0 && !self.effective().any(exceeds) {
            return (self.clone(), own & mode);
        }
        (self.with_mode(&change), own & mode)
    }
}

/// Puts entries that allow the same one something together, where no entry that denies stands between them, and leaves out what an
/// entry before has decided for the same one.
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
            if *m == 0 {
                continue;
            }
        }
        if *flags & flag::INHERIT_ONLY == 0 {
            decided.push((who.clone(), *m));
        }
        if *k == kind::DENIED {
            from = out.len() + 1;
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

    use super::super::tests::any_acl;
    use super::*;
    use crate::types::Cred;
    use proptest::prelude::*;

    const OWNER: Owner = Owner { uid: 1000, gid: 50 };

    fn change(mode: u32, is_dir: bool) -> Change {
        Change { owner: OWNER, is_dir, mode, said: 0o777, named: mode >> 3 & 7 }
    }

    #[test]
    fn a_plain_mode_needs_no_entry_that_denies() {
        let acl = Acl::of_mode(0o640, false);
        assert_eq!(
            acl.entries(),
            [
                Ace::allow(Who::Owner, R | W | ANYBODY | OWNERS, 0),
                Ace::allow(Who::Group, R | ANYBODY, 0),
                Ace::allow(Who::Everyone, ANYBODY, 0),
            ]
        );
        let odd = Acl::of_mode(0o017, true);
        assert_eq!(odd.entries().len(), 5, "owner and group are told what they have not");
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
    fn only_the_three_classes_make_the_mode() {
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
    fn a_changed_mode_limits_those_that_the_list_names() {
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

    #[test]
    fn what_is_made_gets_no_more_than_its_folder_passes_on() {
        let acl = Acl::new(vec![
            Ace::allow(Who::User(8), R | W | X, 0),
            Ace::allow(Who::Owner, R | W | X, 0),
            Ace::allow(Who::Group, R, 0),
        ]);
        let (same, mode) = acl.limited(0o666, OWNER, false);
        assert_eq!((same, mode), (acl.clone(), 0o640));
        let (less, mode) = acl.limited(0o600, OWNER, false);
        assert_eq!(mode, 0o600);
        let user = Cred { uid: 8, gid: 8, groups: Arc::new([]) };
        assert_eq!(less.allowed(&user, OWNER), X, "to run a program is no matter of mode");
        let (dir, mode) = acl.limited(0o750, OWNER, true);
        assert_eq!(mode, 0o740);
        assert_eq!(dir.allowed(&user, OWNER), R | X);
    }

    #[test]
    fn entries_are_put_together_where_none_between_denies() {
        let a = |who, m| Ace::allow(who, m, 0);
        let all = [a(Who::Owner, 1), a(Who::Group, 1), a(Who::Owner, 2)];
        assert_eq!(merged(all.into_iter()), [a(Who::Owner, 3), a(Who::Group, 1)]);
        let all = [a(Who::Owner, 1), Ace::deny(Who::Group, 2, 0), a(Who::Owner, 2)];
        assert_eq!(merged(all.clone().into_iter()), all);
    }

    proptest! {
        #[test]
        fn mode_bits_survive_as_a_list(mode in 0..0o1000_u32, is_dir in any::<bool>()) {
            prop_assert_eq!(Acl::of_mode(mode, is_dir).mode(OWNER), mode);
        }

        /// RFC 8881 section 6.4.1.1, and its three rules for those that the list names.
        #[test]
        fn a_changed_mode_is_the_mode_of_the_list(acl in any_acl(), mode in 0..0o1000_u32, is_dir: bool) {
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
            // Two that pass on to the same may have become one.
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

        /// A list does not grow when its mode is changed again and again.
        #[test]
        fn a_mode_changed_again_adds_nothing(acl in any_acl(), mode in 0..0o1000_u32, is_dir: bool) {
            let once = acl.with_mode(&change(mode, is_dir));
            let twice = once.with_mode(&change(mode, is_dir));
            prop_assert!(twice.entries().len() <= once.entries().len());
        }

        /// Nobody but the owner gets by mode bits at creation what the list does not give.
        #[test]
        fn a_mode_at_creation_gives_nothing(acl in any_acl(), mode in 0..0o1000_u32, is_dir: bool, uid in 1000..1005_u32) {
            let (now, left) = acl.limited(mode, OWNER, is_dir);
            prop_assert_eq!(left & !mode, 0);
            let said = if is_dir { 0o777 } else { 0o666 };
            prop_assert_eq!(now.mode(OWNER) & said, left & said);
            let user = Cred { uid, gid: 51, groups: Arc::new([52]) };
            prop_assert_eq!(now.allowed(&user, OWNER) & !acl.allowed(&user, OWNER) & (R | X | mask::DELETE), 0);
        }
    }
}
