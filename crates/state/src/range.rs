//! Byte-range locks of one file.
//!
//! The owner type is generic: NFS lock owners, NLM and SMB opens share the rules, and the tests use letters. Setting and clearing
//! follow POSIX (and RFC 8881 section 18.10): locks of one owner never overlap, a new lock replaces the parts of older ones that it
//! covers, adjacent locks of one kind merge, and clearing the middle of a lock splits it.

use std::fmt;

/// Bytes `first` to `last` inclusive, so that a lock to the end of all files needs no special case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    pub first: u64,
    pub last: u64,
}

impl Range {
    /// Every byte of a file.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };

    /// Returns the range of `length` bytes from `offset`; a length of all ones means to the end. `None` if the range is empty or if
    /// offset plus length exceeds 64 bits (RFC 8881 section 18.10.3).
    pub fn new(offset: u64, length: u64) -> Option<Self> {
        match length {
            0 => None,
            u64::MAX => Some(Self { first: offset, last: u64::MAX }),
            _ => offset.checked_add(length).map(|end| Self { first: offset, last: end - 1 }),
        }
    }

    /// Returns the length in NFS form: all ones if the range extends to the end.
    pub fn length(self) -> u64 {
        if self.last == u64::MAX { u64::MAX } else { self.last - self.first + 1 }
    }

    /// Checks for a common byte.
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Checks whether the ranges overlap or are adjacent.
    fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Compatible with other shared locks (READ_LT).
    Shared,
    /// Compatible with no other lock (WRITE_LT).
    Exclusive,
}

/// The operations for which a lock is binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Enforce {
    /// Lock requests only.
    Advisory,
    /// Lock requests, and reads and writes of SMB clients, because SMB has only mandatory locks.
    Smb,
    /// All reads and writes.
    Mandatory,
}

/// A lock and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock<O> {
    pub owner: O,
    pub range: Range,
    pub kind: LockKind,
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
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Iterates over the locks, ordered by first byte.
    pub fn iter(&self) -> impl Iterator<Item = &Lock<O>> {
        self.locks.iter()
    }

    /// Returns the locks of other owners that conflict with a lock request of `owner`, ordered by first byte.
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

    /// Returns the locks of other owners that forbid this access: those enforced at level `binding` or stricter.
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

    /// Sets a lock for `owner`. The caller has checked for conflicts.
    pub fn set(&mut self, owner: &O, range: Range, kind: LockKind, enforce: Enforce) {
        self.clear(owner, range);
        let mut whole = range;
        // Merge adjacent locks of the same kind. After `clear` no lock of this owner overlaps the range.
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

    /// Removes the locks of `owner` in this range.
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

    /// Removes all locks of the owners that `gone` selects. Returns true if a lock was removed.
    pub fn release(&mut self, gone: impl Fn(&O) -> bool) -> bool {
        let before = self.locks.len();
        self.locks.retain(|l| !gone(&l.owner));
        before != self.locks.len()
    }

    /// Checks whether the owner has a lock on the file.
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
    fn wire_lengths_convert_to_ranges() {
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
    fn adjacent_locks_merge() {
        assert_eq!(shown(&set(&[('a', 0, 4, X), ('a', 5, 9, X)])), [('a', 0, 9, X)]);
        assert_eq!(shown(&set(&[('a', 5, 9, S), ('a', 0, 4, S)])), [('a', 0, 9, S)]);
        assert_eq!(
            shown(&set(&[('a', 0, 4, S), ('a', 5, 9, X)])),
            [('a', 0, 4, S), ('a', 5, 9, X)]
        );
    }

    #[test]
    fn lock_of_other_kind_splits() {
        assert_eq!(
            shown(&set(&[('a', 0, 9, X), ('a', 3, 5, S)])),
            [('a', 0, 2, X), ('a', 3, 5, S), ('a', 6, 9, X)]
        );
    }

    #[test]
    fn unlock_in_middle_splits_lock() {
        let mut s = set(&[('a', 0, u64::MAX, X)]);
        s.clear(&'a', r(10, 19));
        assert_eq!(shown(&s), [('a', 0, 9, X), ('a', 20, u64::MAX, X)]);
        s.clear(&'a', r(20, u64::MAX));
        assert_eq!(shown(&s), [('a', 0, 9, X)]);
        s.clear(&'b', Range::ALL);
        assert_eq!(s.len(), 1);
    }

    #[test]
    fn shared_locks_coexist_exclusive_conflict() {
        let s = set(&[('a', 0, 4, S), ('b', 3, 9, S), ('c', 20, 29, X)]);
        assert!(s.conflicts(&'d', r(0, 9), S).next().is_none());
        assert_eq!(s.conflicts(&'d', r(4, 9), X).count(), 2);
        assert_eq!(s.conflicts(&'a', r(0, 9), X).count(), 1);
        assert_eq!(s.conflicts(&'d', r(29, 29), S).count(), 1);
        assert!(s.conflicts(&'c', r(20, 29), X).next().is_none());
    }

    #[test]
    fn only_mandatory_locks_block_io() {
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

    /// The obvious model: the kind of lock that each owner has on each byte.
    #[derive(Default)]
    struct Bytes(std::collections::BTreeMap<(u64, char), LockKind>);

    proptest! {
        /// Tries random histories over 16 bytes and 3 owners. Every byte is locked as in the model, the set is ordered, locks of
        /// one owner never overlap, and adjacent ones of one kind are merged.
        #[test]
        fn range_set_matches_byte_model(history in proptest::collection::vec(
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
