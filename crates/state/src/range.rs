//! Byte-range locks of one file.
//!
//! The owner is generic, so that NFS lock owners, NLM and SMB opens share the rules and the tests use letters. Setting and
//! clearing follow POSIX (and RFC 8881 section 18.10): an owner's locks never overlap each other, a new one replaces what it
//! covers of the old, neighbours of one kind join, and a hole splits.

use std::fmt;

/// Bytes `first` to `last`, both included, so that a lock to the end of all files needs no special case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// First byte.
    pub first: u64,
    /// Last byte.
    pub last: u64,
}

impl Range {
    /// Everything.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };

    /// `length` bytes from `offset`; all ones means to the end. `None` for an empty range and one whose end, offset and length
    /// added up, is beyond 64 bits (RFC 8881 section 18.10.3).
    pub fn new(offset: u64, length: u64) -> Option<Self> {
        match length {
            0 => None,
            u64::MAX => Some(Self { first: offset, last: u64::MAX }),
            _ => offset.checked_add(length).map(|end| Self { first: offset, last: end - 1 }),
        }
    }

    /// The length as NFS says it: all ones when it goes to the end.
    pub fn length(self) -> u64 {
        if self.last == u64::MAX { u64::MAX } else { self.last - self.first + 1 }
    }

    /// Has a byte in common with `other`.
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Overlaps `other` or stands directly beside it.
    fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Beside others of its kind (READ_LT).
    Shared,
    /// Alone (WRITE_LT).
    Exclusive,
}

/// Whom a lock binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Enforce {
    /// Those who ask for locks.
    Advisory,
    /// Reads and writes of SMB clients too, who know no other locks than binding ones.
    Smb,
    /// All reads and writes.
    Mandatory,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock<O> {
    /// Who holds it.
    pub owner: O,
    /// Where.
    pub range: Range,
    /// How.
    pub kind: LockKind,
    /// Against whom.
    pub enforce: Enforce,
}

/// The locks of a file, ordered by their first byte.
#[derive(Clone)]
pub struct RangeSet<O> {
    locks: Vec<Lock<O>>,
}

impl<O> Default for RangeSet<O> {
    fn default() -> Self {
        Self { locks: Vec::new() }
    }
}

impl<O: fmt::Debug> fmt::Debug for RangeSet<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.locks).finish()
    }
}

impl<O: Clone + Eq> RangeSet<O> {
    /// Locks that are held.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// None is held.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// All of them, by first byte.
    pub fn iter(&self) -> impl Iterator<Item = &Lock<O>> {
        self.locks.iter()
    }

    /// Locks of others that forbid `owner` this one, by first byte.
    pub fn conflicts<'a>(
        &'a self,
        owner: &'a O,
        range: Range,
        kind: LockKind,
    ) -> impl Iterator<Item = &'a Lock<O>> {
        self.locks.iter().take_while(move |l| l.range.first <= range.last).filter(move |l| {
            l.range.overlaps(range)
                && l.owner != *owner
                && (kind == LockKind::Exclusive || l.kind == LockKind::Exclusive)
        })
    }

    /// Locks that forbid this access to somebody who is not their owner: those that are `binding` to him, or more than that.
    pub fn blocks_io<'a>(
        &'a self,
        owner: Option<&'a O>,
        range: Range,
        write: bool,
        binding: Enforce,
    ) -> impl Iterator<Item = &'a Lock<O>> {
        self.locks.iter().take_while(move |l| l.range.first <= range.last).filter(move |l| {
            l.enforce >= binding
                && l.range.overlaps(range)
                && Some(&l.owner) != owner
                && (write || l.kind == LockKind::Exclusive)
        })
    }

    /// Gives `owner` this lock. The caller has looked for conflicts.
    pub fn set(&mut self, owner: &O, range: Range, kind: LockKind, enforce: Enforce) {
        self.clear(owner, range);
        let mut whole = range;
        // What stands beside it and is of its kind becomes part of it. After `clear` nothing of this owner overlaps.
        self.locks.retain(|l| {
            let joins = l.owner == *owner
                && l.kind == kind
                && l.enforce == enforce
                && l.range.touches(range);
            if joins {
                whole.first = whole.first.min(l.range.first);
                whole.last = whole.last.max(l.range.last);
            }
            !joins
        });
        self.insert(Lock { owner: owner.clone(), range: whole, kind, enforce });
    }

    /// Takes away what `owner` holds of this range.
    pub fn clear(&mut self, owner: &O, range: Range) {
        let mut tails = Vec::new();
        self.locks.retain_mut(|l| {
            if l.owner != *owner || !l.range.overlaps(range) {
                return true;
            }
            let keeps_head = l.range.first < range.first;
            if l.range.last > range.last {
                let rest = Range { first: range.last + 1, last: l.range.last };
                tails.push(Lock { range: rest, ..l.clone() });
            }
            if keeps_head {
                l.range.last = range.first - 1;
            }
            keeps_head
        });
        for tail in tails {
            self.insert(tail);
        }
    }

    /// Takes away everything of the owners that `gone` names. True when something was held.
    pub fn release(&mut self, gone: impl Fn(&O) -> bool) -> bool {
        let before = self.locks.len();
        self.locks.retain(|l| !gone(&l.owner));
        before != self.locks.len()
    }

    /// The owner holds a lock here.
    pub fn holds(&self, owner: &O) -> bool {
        self.locks.iter().any(|l| l.owner == *owner)
    }

    fn insert(&mut self, lock: Lock<O>) {
        let at = self.locks.partition_point(|l| l.range.first <= lock.range.first);
        self.locks.insert(at, lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use LockKind::{Exclusive as X, Shared as S};

    fn r(first: u64, last: u64) -> Range {
        Range { first, last }
    }

    fn set(list: &[(char, u64, u64, LockKind)]) -> RangeSet<char> {
        let mut s = RangeSet::default();
        for &(o, a, b, k) in list {
            s.set(&o, r(a, b), k, Enforce::Advisory);
        }
        s
    }

    fn shown(s: &RangeSet<char>) -> Vec<(char, u64, u64, LockKind)> {
        s.iter().map(|l| (l.owner, l.range.first, l.range.last, l.kind)).collect()
    }

    #[test]
    fn lengths_of_the_wire() {
        assert_eq!(Range::new(5, 0), None);
        assert_eq!(Range::new(5, u64::MAX), Some(r(5, u64::MAX)));
        assert_eq!(Range::new(u64::MAX, u64::MAX), Some(r(u64::MAX, u64::MAX)));
        assert_eq!(Range::new(u64::MAX, 1), None);
        assert_eq!(Range::new(u64::MAX - 1, 1), Some(r(u64::MAX - 1, u64::MAX - 1)));
        assert_eq!(Range::new(5, 3), Some(r(5, 7)));
        assert_eq!(r(5, 7).length(), 3);
        assert_eq!(r(5, u64::MAX).length(), u64::MAX);
        assert_eq!(Range::ALL.length(), u64::MAX);
    }

    #[test]
    fn neighbours_join() {
        assert_eq!(shown(&set(&[('a', 0, 4, X), ('a', 5, 9, X)])), [('a', 0, 9, X)]);
        assert_eq!(shown(&set(&[('a', 5, 9, S), ('a', 0, 4, S)])), [('a', 0, 9, S)]);
        assert_eq!(
            shown(&set(&[('a', 0, 4, S), ('a', 5, 9, X)])),
            [('a', 0, 4, S), ('a', 5, 9, X)]
        );
    }

    #[test]
    fn another_kind_splits() {
        assert_eq!(
            shown(&set(&[('a', 0, 9, X), ('a', 3, 5, S)])),
            [('a', 0, 2, X), ('a', 3, 5, S), ('a', 6, 9, X)]
        );
    }

    #[test]
    fn a_hole_splits_and_the_end_of_all_is_an_end() {
        let mut s = set(&[('a', 0, u64::MAX, X)]);
        s.clear(&'a', r(10, 19));
        assert_eq!(shown(&s), [('a', 0, 9, X), ('a', 20, u64::MAX, X)]);
        s.clear(&'a', r(20, u64::MAX));
        assert_eq!(shown(&s), [('a', 0, 9, X)]);
        s.clear(&'b', Range::ALL);
        assert_eq!(s.len(), 1);
    }

    #[test]
    fn shared_locks_stand_together_and_exclusive_alone() {
        let s = set(&[('a', 0, 4, S), ('b', 3, 9, S), ('c', 20, 29, X)]);
        assert!(s.conflicts(&'d', r(0, 9), S).next().is_none());
        assert_eq!(s.conflicts(&'d', r(4, 9), X).count(), 2);
        assert_eq!(s.conflicts(&'a', r(0, 9), X).count(), 1);
        assert_eq!(s.conflicts(&'d', r(29, 29), S).count(), 1);
        assert!(s.conflicts(&'c', r(20, 29), X).next().is_none());
    }

    #[test]
    fn only_mandatory_locks_bind_reads_and_writes() {
        fn blocked(s: &RangeSet<char>, owner: Option<&char>, at: Range, write: bool) -> bool {
            s.blocks_io(owner, at, write, Enforce::Mandatory).next().is_some()
        }
        let mut s = set(&[('a', 0, 9, X)]);
        assert!(!blocked(&s, None, r(0, 0), true));
        let of_smb =
            |s: &RangeSet<char>| s.blocks_io(None, r(0, 0), true, Enforce::Smb).next().is_some();
        assert!(!of_smb(&s));
        s.set(&'a', r(0, 9), X, Enforce::Smb);
        assert!(of_smb(&s) && !blocked(&s, None, r(0, 0), true));
        s.set(&'b', r(10, 19), S, Enforce::Mandatory);
        s.set(&'b', r(20, 29), X, Enforce::Mandatory);
        assert!(!blocked(&s, None, r(10, 19), false));
        assert!(blocked(&s, None, r(10, 19), true));
        assert!(blocked(&s, None, r(0, 20), false));
        assert!(!blocked(&s, Some(&'b'), r(0, 29), true));
    }

    /// The obvious version: who holds each single byte, and how.
    #[derive(Default)]
    struct Bytes(std::collections::BTreeMap<(u64, char), LockKind>);

    proptest! {
        /// Any history over 16 bytes and 3 owners: every byte is held as the obvious version says, the set is ordered, nothing
        /// of one owner overlaps, and neighbours of one kind are one lock.
        #[test]
        fn agrees_with_bytes(history in proptest::collection::vec(
            (0..3u8, 0..16u64, 0..16u64, 0..3u8), 1..40)) {
            let mut fast = RangeSet::default();
            let mut slow = Bytes::default();
            for (owner, a, b, what) in history {
                let owner = char::from(b'a' + owner);
                let range = r(a.min(b), a.max(b));
                let kind = match what { 0 => None, 1 => Some(S), _ => Some(X) };
                match kind {
                    Some(kind) => {
                        let refused = (range.first..=range.last).any(|at| {
                            slow.0.iter().any(|((byte, o), k)| {
                                *byte == at && *o != owner && (*k == X || kind == X)
                            })
                        });
                        prop_assert_eq!(fast.conflicts(&owner, range, kind).next().is_some(), refused);
                        if refused { continue; }
                        fast.set(&owner, range, kind, Enforce::Advisory);
                    }
                    None => fast.clear(&owner, range),
                }
                for at in range.first..=range.last {
                    match kind {
                        Some(k) => { slow.0.insert((at, owner), k); }
                        None => { slow.0.remove(&(at, owner)); }
                    }
                }
                let mut seen = std::collections::BTreeMap::new();
                let mut last_first = 0;
                for l in fast.iter() {
                    prop_assert!(l.range.first >= last_first);
                    last_first = l.range.first;
                    for at in l.range.first..=l.range.last {
                        prop_assert!(seen.insert((at, l.owner), l.kind).is_none());
                    }
                    prop_assert!(!fast.iter().any(|m| m.owner == l.owner && m.kind == l.kind
                        && l.range.last.checked_add(1) == Some(m.range.first)));
                }
                prop_assert_eq!(&seen, &slow.0);
            }
        }
    }
}
