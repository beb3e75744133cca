//! The stored form of an access control list.
//!
//! *Operation.* A list is stored in a record of side data ([`crate::Node::side_get`], name [`NAME`]): the original list, and the
//! mode bits that the file got with it. When a client sets the mode, the list is changed and stored again
//! ([`crate::namespace::FileOps`]). Mode bits that were changed on the host apply to the list each time it is read ([`Kept::now`]),
//! so the gateway need not notice that change when it happens. All numbers are little-endian.
//!
//! *Earlier versions* showed lists without the rights to extended attributes, and stored them so when a client had changed one
//! entry: then a request of SMB for GENERIC_READ failed. A list of Windows that they stored is read as if each entry that allows
//! data, and names no right to extended attributes, allowed those that no later entry denies. [`EXACT`] marks the lists of later
//! versions, in which such an entry is meant.

use std::borrow::Cow;
use std::collections::BTreeMap;

use wire::{Parsed, Parser, Rule, bytes, known, le_u8, le_u16, le_u32, reject, take, times};

use super::{Ace, Acl, Owner, Sid, Who, kind, mask};

/// The name of the record among a node's side data.
pub const NAME: &str = "acl";

const VERSION: u8 = 1;

const HAS_ENTRIES: u8 = 1;
const HAS_OWNER: u8 = 2;
const HAS_GROUP: u8 = 4;
const HAS_AUDIT: u8 = 8;
/// Entries without the rights to extended attributes withhold them. Earlier versions ignore the bit.
const EXACT: u8 = 16;

const OWNER: u8 = 0;
const GROUP: u8 = 1;
const EVERYONE: u8 = 2;
const USER: u8 = 3;
const MEMBERS: u8 = 4;
const SID: u8 = 5;
const OTHER: u8 = 6;

/// The stored list with the state of the file when it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The nine mode bits that the file got with the list.
    pub mode: u32,
    /// The file's owner and group when the list was set.
    pub owner: Owner,
    pub acl: Acl,
}

impl Kept {
    /// Returns the list with all changes applied, for a file of this owner and mode.
    pub fn now(&self, owner: Owner, mode: u32, is_dir: bool) -> Cow<'_, Acl> {
        let mode = mode & 0o777;
        if mode == self.mode && owner == self.owner {
            return Cow::Borrowed(&self.acl);
        }
        let mut acl = self.acl.clone();
        if owner.uid != self.owner.uid {
            acl.owner = None;
        }
        if owner.gid != self.owner.gid {
            acl.group = None;
        }
        if mode == self.mode {
            return Cow::Owned(acl);
        }
        Cow::Owned(acl.chmod(owner, is_dir, self.mode, mode))
    }

    /// Encodes the list for side data.
    pub fn encode(&self) -> Vec<u8> {
        let acl = &self.acl;
        let has = |is: bool, bit: u8| if is { bit } else { 0 };
        let mut out = vec![VERSION];
        // Invariant: permission bits fit 16 bits.
        #[allow(clippy::cast_possible_truncation)]
        out.extend(((self.mode & 0o777) as u16).to_le_bytes());
        out.extend(self.owner.uid.to_le_bytes());
        out.extend(self.owner.gid.to_le_bytes());
        out.extend(acl.control.to_le_bytes());
        out.extend([
            acl.revision,
            has(acl.entries.is_some(), HAS_ENTRIES)
                | has(acl.owner.is_some(), HAS_OWNER)
                | has(acl.group.is_some(), HAS_GROUP)
                | has(acl.audit.is_some(), HAS_AUDIT)
                | EXACT,
        ]);
        acl.owner.iter().chain(&acl.group).for_each(|sid| sid.put(&mut out));
        if let Some(entries) = &acl.entries {
            put_len(entries.len(), &mut out);
            entries.iter().for_each(|ace| put_ace(ace, &mut out));
        }
        if let Some(audit) = &acl.audit {
            put_len(audit.len(), &mut out);
            out.extend(audit);
        }
        out
    }

    /// Reads a record; `None` if it is not in this format.
    pub fn decode(record: &[u8]) -> Option<Self> {
        let (rest, kept) = wire::decode(record, Self::parse).ok()?;
        rest.is_empty().then_some(kept)
    }

    fn parse(i: &[u8]) -> Parsed<'_, Self> {
        let (i, _) = known("version", le_u8("version"), |v| (v == VERSION).then_some(()))(i)?;
        let owner = (le_u32("uid"), le_u32("gid"));
        let mut head =
            (le_u16("mode"), owner, le_u16("control"), le_u8("revision"), le_u8("parts"));
        let (i, (mode, (uid, gid), control, revision, has)) = head.parse(i)?;
        let (i, owner) = part(has & HAS_OWNER, Sid::field)(i)?;
        let (i, group) = part(has & HAS_GROUP, Sid::field)(i)?;
        let (i, entries) = part(has & HAS_ENTRIES, entries)(i)?;
        let (i, audit) = part(has & HAS_AUDIT, body)(i)?;
        let mut acl = Acl { control, revision, owner, group, entries, audit };
        if has & EXACT == 0 && !acl.is_of_nfs() {
            acl.entries.iter_mut().for_each(|entries| mend(entries));
        }
        Ok((i, Self { mode: mode.into(), owner: Owner { uid, gid }, acl }))
    }
}

/// Adds the rights to extended attributes that entries for data lack because an earlier version showed mode bits without them. An
/// entry with one of these rights was not made of such bits, so it means what it says, and so does a later entry that denies one.
fn mend(entries: &mut [Ace]) {
    const PAIRS: [(u32, u32); 2] =
        [(mask::READ_DATA, mask::READ_EA), (mask::WRITE_DATA, mask::WRITE_EA)];
    // Rights that later entries deny to users, and to others, of whom a user may be one.
    let mut of_users = BTreeMap::<u32, u32>::new();
    let (mut of_any_user, mut of_others) = (0, 0);
    for ace in entries.iter_mut().rev() {
        let Ace::Simple { kind, mask: rights, who, .. } = ace else { continue };
        let denied = match who {
            Who::User(uid) => of_others | of_users.get(uid).copied().unwrap_or_default(),
            _ => of_others | of_any_user,
        };
        match (*kind, who) {
            (kind::ALLOWED, _) if *rights & (mask::READ_EA | mask::WRITE_EA) == 0 => {
                let lacks = PAIRS.iter().filter(|(data, _)| *rights & data != 0);
                *rights |= lacks.fold(0, |all, (_, more)| all | more) & !denied;
            }
            (kind::DENIED, Who::User(uid)) => {
                *of_users.entry(*uid).or_default() |= *rights;
                of_any_user |= *rights;
            }
            (kind::DENIED, _) => of_others |= *rights,
            _ => {}
        }
    }
}

/// Reads a part that is present only if its bit is set.
fn part<'a, T>(
    bit: u8,
    each: impl Fn(&'a [u8]) -> Parsed<'a, T>,
) -> impl Fn(&'a [u8]) -> Parsed<'a, Option<T>> {
    move |i| match bit {
        0 => Ok((i, None)),
        _ => each(i).map(|(i, value)| (i, Some(value))),
    }
}

fn entries(i: &[u8]) -> Parsed<'_, Vec<Ace>> {
    // An entry has at least one byte, so a false count ends with the input.
    let (i, count) = le_u32("entries")(i)?;
    times(usize::try_from(count).unwrap_or(usize::MAX), ace)(i)
}

fn body(i: &[u8]) -> Parsed<'_, Vec<u8>> {
    let (i, len) = le_u32("length")(i)?;
    let (i, bytes) = take(usize::try_from(len).unwrap_or(usize::MAX), "body")(i)?;
    Ok((i, bytes.to_vec()))
}

fn ace(i: &[u8]) -> Parsed<'_, Ace> {
    let (at, [kind, flags, tag]) = bytes("entry")(i)?;
    if tag == OTHER {
        return body(at).map(|(i, body)| (i, Ace::Other { kind, flags, body }));
    }
    let (at, mask) = le_u32("mask")(at)?;
    let number = || le_u32("who")(at);
    let (at, who) = match tag {
        OWNER => (at, Who::Owner),
        GROUP => (at, Who::Group),
        EVERYONE => (at, Who::Everyone),
        USER => number().map(|(at, uid)| (at, Who::User(uid)))?,
        MEMBERS => number().map(|(at, gid)| (at, Who::Members(gid)))?,
        SID => Sid::field(at).map(|(at, sid)| (at, Who::Sid(sid)))?,
        _ => return Err(reject("who", Rule::Value, i)),
    };
    Ok((at, Ace::Simple { kind, flags, mask, who }))
}

fn put_len(len: usize, out: &mut Vec<u8>) {
    // Side data has a limit far below.
    out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_ace(ace: &Ace, out: &mut Vec<u8>) {
    let (kind, flags, mask, who) = match ace {
        Ace::Simple { kind, flags, mask, who } => (kind, flags, mask, who),
        Ace::Other { kind, flags, body } => {
            out.extend([*kind, *flags, OTHER]);
            put_len(body.len(), out);
            out.extend(body);
            return;
        }
    };
    let (tag, number) = match who {
        Who::Owner => (OWNER, None),
        Who::Group => (GROUP, None),
        Who::Everyone => (EVERYONE, None),
        Who::User(uid) => (USER, Some(*uid)),
        Who::Members(gid) => (MEMBERS, Some(*gid)),
        Who::Sid(_) => (SID, None),
    };
    out.extend([*kind, *flags, tag]);
    out.extend(mask.to_le_bytes());
    if let Some(number) = number {
        out.extend(number.to_le_bytes());
    }
    if let Who::Sid(sid) = who {
        sid.put(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::control;
    use super::super::tests::any_acl;
    use super::*;
    use proptest::prelude::*;

    fn full() -> Kept {
        let mut acl = Acl::new(vec![
            Ace::allow(Who::Sid(Sid::administrators()), mask::FILE_ALL, 0x1f),
            Ace::Other { kind: 5, flags: 3, body: vec![1, 2, 3, 4] },
        ]);
        acl.control |= control::DACL_PROTECTED;
        acl.revision = 4;
        acl.owner = Some(Sid::system());
        acl.group = Some(Sid::network());
        acl.audit = Some(vec![9; 8]);
        Kept { mode: 0o640, owner: Owner { uid: 1000, gid: 50 }, acl }
    }

    #[test]
    fn everything_is_kept() {
        let null = Kept { acl: Acl::default(), ..full() };
        for kept in [full(), null] {
            assert_eq!(Kept::decode(&kept.encode()), Some(kept));
        }
    }

    #[test]
    fn invalid_record_is_ignored() {
        let good = full().encode();
        for n in 0..good.len() {
            assert_eq!(Kept::decode(&good[..n]), None);
        }
        assert_eq!(Kept::decode(&[&good[..], b"x"].concat()), None);
        let mut other = good;
        other[0] = 2;
        assert_eq!(Kept::decode(&other), None, "of a later version");
    }

    /// GENERIC_READ of SMB includes READ_EA, which lists of earlier versions lack.
    #[test]
    fn list_of_earlier_version_is_mended() {
        let entries = vec![
            Ace::Simple { kind: kind::DENIED, flags: 0, mask: mask::READ_EA, who: Who::User(8) },
            Ace::allow(Who::User(8), mask::READ_DATA, 0),
            Ace::allow(Who::User(7), mask::READ_DATA | mask::WRITE_DATA, 0),
            Ace::allow(Who::User(9), mask::EXECUTE, 0),
            Ace::allow(Who::User(6), mask::READ_DATA | mask::READ_EA | mask::WRITE_DATA, 0),
            Ace::allow(Who::User(5), mask::READ_DATA | mask::WRITE_DATA, 0),
            Ace::Simple { kind: kind::DENIED, flags: 0, mask: mask::WRITE_EA, who: Who::User(5) },
        ];
        let kept = Kept { acl: Acl::new(entries), ..full() };
        let now = kept.encode();
        assert_eq!(Kept::decode(&now).as_ref(), Some(&kept), "a later version means what it says");
        // The parts are named behind version, mode, owner, group, control and revision.
        let mut earlier = now;
        earlier[14] &= !EXACT;
        let mended = Kept::decode(&earlier).unwrap().acl;
        let rights = |uid: u32| {
            let no_token = crate::Token::NONE;
            let user =
                crate::Cred { uid, gid: uid, groups: std::sync::Arc::new([]), token: no_token };
            mended.allowed(&user, kept.owner)
        };
        let both = mask::READ_DATA | mask::WRITE_DATA | mask::READ_EA | mask::WRITE_EA;
        assert_eq!(rights(7), both);
        assert_eq!(rights(8), mask::READ_DATA, "an entry denies it");
        assert_eq!(rights(9), mask::EXECUTE);
        assert_eq!(rights(6), both & !mask::WRITE_EA, "a client chose the rights to attributes");
        assert_eq!(rights(5), both & !mask::WRITE_EA, "a later entry denies it");
        // A group, which the user may be in, and everybody.
        let data = mask::READ_DATA | mask::WRITE_DATA;
        for who in [Who::Members(5), Who::Everyone] {
            let deny = Ace::Simple { kind: kind::DENIED, flags: 0, mask: mask::WRITE_EA, who };
            let entries = vec![Ace::allow(Who::User(7), data, 0), deny];
            let mut earlier = Kept { acl: Acl::new(entries), ..full() }.encode();
            earlier[14] &= !EXACT;
            let mended = Kept::decode(&earlier).unwrap().acl.entries.unwrap();
            assert_eq!(mended[0], Ace::allow(Who::User(7), data | mask::READ_EA, 0));
        }
    }

    #[test]
    fn mode_change_reversible_on_stored_list() {
        let mut kept = full();
        kept.acl.entries = Acl::new(vec![
            Ace::allow(Who::User(7), mask::FILE_ALL, 0),
            Ace::allow(Who::Owner, mask::FILE_ALL, 0),
            Ace::allow(Who::Group, mask::FILE_READ, 0),
        ])
        .entries;
        let now = |mode, uid| kept.now(Owner { uid, gid: 50 }, mode, false).into_owned();
        assert_eq!(now(0o4640, 1000), kept.acl);
        let user = crate::Cred {
            uid: 7,
            gid: 7,
            groups: std::sync::Arc::new([]),
            token: crate::Token::NONE,
        };
        let of = |acl: Acl| acl.allowed(&user, Owner { uid: 1000, gid: 50 });
        let data = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA | mask::EXECUTE;
        let rest = mask::FILE_ALL & !(data | mask::READ_EA | mask::WRITE_EA);
        assert_eq!(of(now(0o600, 1000)), rest, "mode bits say nothing of the rest");
        assert_eq!(of(now(0o640, 1000)), mask::FILE_ALL);
        assert_eq!(now(0o640, 1001).owner, None, "it has another owner now");
        assert_eq!(now(0o640, 1001).group, kept.acl.group);
    }

    /// Windows clients run a program without an execute bit. Once one of these bits was changed, all three decide who runs the
    /// file, and no class loses a right that its bit still grants.
    #[test]
    fn execute_bits_count_after_change() {
        let everybody = Acl::new(vec![
            Ace::allow(Who::User(7), mask::FILE_ALL, 0),
            Ace::allow(Who::Everyone, mask::FILE_ALL, 0),
        ]);
        let owner = Owner { uid: 1000, gid: 50 };
        let runs = |before, after, is_dir| {
            let kept = Kept { mode: before, owner, acl: everybody.clone() };
            let acl = kept.now(owner, after, is_dir).into_owned();
            [(1000, 1), (2, 50), (3, 3), (7, 7)].map(|(uid, gid)| {
                let cred = crate::Cred {
                    uid,
                    gid,
                    groups: std::sync::Arc::new([]),
                    token: crate::Token::NONE,
                };
                acl.allowed(&cred, owner) & mask::EXECUTE != 0
            })
        };
        for (before, after, want) in [
            (0o666, 0o600, [true, false, false, false]),
            (0o666, 0o640, [true, true, false, true]),
            (0o775, 0o755, [true, true, true, true]),
            (0o764, 0o744, [true, true, true, true]),
            (0o764, 0o704, [true, false, true, true]),
            (0o777, 0o677, [false, true, true, true]),
            (0o777, 0o767, [true, false, true, true]),
            (0o777, 0o766, [true, false, false, false]),
            (0o777, 0o776, [true, true, false, true]),
            (0o666, 0o766, [true, false, false, false]),
        ] {
            assert_eq!(runs(before, after, false), want, "{before:o} to {after:o}");
        }
        assert_eq!(runs(0o666, 0o600, true), [false; 4], "to search a directory takes a bit");
    }

    proptest! {
        #[test]
        fn records_round_trip(acl in any_acl(), mode in 0..0o1000_u32, uid: u32, gid: u32) {
            let kept = Kept { mode, owner: Owner { uid, gid }, acl };
            prop_assert_eq!(Kept::decode(&kept.encode()), Some(kept));
        }

        #[test]
        fn no_bytes_make_it_fall_over(bytes: Vec<u8>) {
            let _ = Kept::decode(&[&[VERSION][..], &bytes].concat());
        }
    }
}
