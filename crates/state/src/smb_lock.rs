//! Byte-range locks as Windows has them (MS-FSA section 2.1.5.8): each is of one open, stands by itself, and is taken away only
//! by naming exactly its range. They never merge or split; a shared one may stand on an exclusive one of the same open; one of no
//! length holds a place between two bytes.

use crate::range::{LockKind, Range};

/// Where such a lock is. Unlike a [`Range`] it may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SmbLockRange {
    /// First byte.
    pub offset: u64,
    /// Bytes; may be 0.
    pub length: u64,
}

impl SmbLockRange {
    /// `None` when it would end beyond 64 bits (MS-FSA section 2.1.5.8: STATUS_INVALID_LOCK_RANGE). The byte of the highest number
    /// counts as within.
    pub fn new(offset: u64, length: u64) -> Option<Self> {
        let fits = length == 0 || offset.checked_add(length - 1).is_some();
        fits.then_some(Self { offset, length })
    }

    fn end(self) -> u128 {
        u128::from(self.offset) + u128::from(self.length)
    }

    /// The two cannot be apart. An empty one stands in the way only inside another, not at its edges, and never of another empty
    /// one.
    pub fn overlaps(self, other: Self) -> bool {
        u128::from(self.offset) < other.end() && u128::from(other.offset) < self.end()
    }

    /// The bytes, for protocols that know no empty locks.
    pub fn range(self) -> Range {
        let last = self.offset.saturating_add(self.length.saturating_sub(1));
        Range { first: self.offset, last }
    }

    /// Of a lock of another protocol.
    pub fn of(range: Range) -> Self {
        // A range to the last byte of all has a length that does not fit; it is one byte short, and no file has that byte.
        let length = (range.last - range.first).saturating_add(1);
        Self { offset: range.first, length }
    }
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmbLock<O> {
    /// Who holds it.
    pub owner: O,
    /// Where.
    pub lock_range: SmbLockRange,
    /// How.
    pub kind: LockKind,
}

/// The locks of a file, in the order in which they were given.
#[derive(Clone, Debug)]
pub struct SmbLocks<O>(Vec<SmbLock<O>>);

impl<O> Default for SmbLocks<O> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<O: Clone + Eq> SmbLocks<O> {
    /// Locks that are held.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &SmbLock<O>> {
        self.0.iter()
    }

    /// Locks that forbid this one, also of `owner` itself: an exclusive lock stands on nothing, a shared one on what is shared or
    /// the owner's.
    pub fn conflicts<'a>(
        &'a self,
        owner: Option<&'a O>,
        lock_range: SmbLockRange,
        kind: LockKind,
    ) -> impl Iterator<Item = &'a SmbLock<O>> {
        self.0.iter().filter(move |l| {
            l.lock_range.overlaps(lock_range)
                && (kind == LockKind::Exclusive
                    || l.kind == LockKind::Exclusive && Some(&l.owner) != owner)
        })
    }

    /// As [`Self::conflicts`] for a protocol whose locks are ranges; such a lock is never of the same owner.
    pub fn conflicts_range(
        &self,
        range: Range,
        kind: LockKind,
    ) -> impl Iterator<Item = &SmbLock<O>> {
        self.conflicts(None, SmbLockRange::of(range), kind)
    }

    /// Locks that forbid this access to somebody (MS-FSA section 2.1.4.10): others' exclusive ones, and for a write every shared
    /// one, also his own.
    pub fn blocks_io<'a>(
        &'a self,
        owner: Option<&'a O>,
        range: Range,
        write: bool,
    ) -> impl Iterator<Item = &'a SmbLock<O>> {
        let lock_range = SmbLockRange::of(range);
        self.0.iter().filter(move |l| {
            let forbids = match l.kind {
                LockKind::Exclusive => Some(&l.owner) != owner,
                LockKind::Shared => write,
            };
            forbids && l.lock_range.overlaps(lock_range)
        })
    }

    /// Gives a lock. The caller has looked for conflicts.
    pub fn set(&mut self, owner: &O, lock_range: SmbLockRange, kind: LockKind) {
        self.0.push(SmbLock { owner: owner.clone(), lock_range, kind });
    }

    /// Takes away one lock of exactly this range, an exclusive one before shared ones that stand on it. False when there is none.
    pub fn clear(&mut self, owner: &O, lock_range: SmbLockRange) -> bool {
        let mine = |l: &SmbLock<O>| l.owner == *owner && l.lock_range == lock_range;
        let exclusive = self.0.iter().position(|l| mine(l) && l.kind == LockKind::Exclusive);
        let at = exclusive.or_else(|| self.0.iter().position(mine));
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Takes away the last lock of exactly this range and kind: a lock that was given and is not to be, and no other of the same
    /// range. False when there is none.
    pub fn undo(&mut self, owner: &O, lock_range: SmbLockRange, kind: LockKind) -> bool {
        let is_it =
            |l: &SmbLock<O>| l.owner == *owner && l.lock_range == lock_range && l.kind == kind;
        let at = self.0.iter().rposition(is_it);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Takes away everything of the owners that `gone` names.
    pub fn release(&mut self, gone: impl Fn(&O) -> bool) {
        self.0.retain(|l| !gone(&l.owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use LockKind::{Exclusive as X, Shared as S};

    fn e(offset: u64, length: u64) -> SmbLockRange {
        SmbLockRange::new(offset, length).unwrap()
    }

    fn free(s: &SmbLocks<char>, owner: char, lock_range: SmbLockRange, kind: LockKind) -> bool {
        s.conflicts(Some(&owner), lock_range, kind).next().is_none()
    }

    #[test]
    fn an_extent_ends_within_64_bits() {
        assert!(SmbLockRange::new(u64::MAX, 1).is_some());
        assert!(SmbLockRange::new(u64::MAX, 2).is_none());
        assert!(SmbLockRange::new(u64::MAX, 0).is_some());
        assert!(SmbLockRange::new(1, u64::MAX).is_some());
        assert!(SmbLockRange::new(2, u64::MAX).is_none());
    }

    #[test]
    fn an_empty_lock_is_in_the_way_only_inside_another() {
        assert!(e(10, 0).overlaps(e(9, 2)) && e(9, 2).overlaps(e(10, 0)));
        assert!(!e(10, 0).overlaps(e(10, 5)));
        assert!(!e(10, 0).overlaps(e(5, 5)));
        assert!(!e(10, 0).overlaps(e(10, 0)));
        assert!(e(0, u64::MAX).overlaps(e(u64::MAX - 1, 1)));
    }

    #[test]
    fn a_shared_lock_stands_on_ones_own_exclusive_lock_and_not_the_other_way() {
        let mut s = SmbLocks::default();
        s.set(&'a', e(0, 10), X);
        assert!(free(&s, 'a', e(0, 10), S));
        assert!(!free(&s, 'a', e(0, 10), X), "not even one's own");
        assert!(!free(&s, 'b', e(9, 1), S));
        assert!(free(&s, 'b', e(10, 1), X));
        s.set(&'a', e(0, 10), S);
        assert!(s.clear(&'a', e(0, 10)));
        assert!(free(&s, 'b', e(0, 10), S), "the exclusive one went first");
        assert!(!s.clear(&'a', e(0, 9)), "only the exact range");
        assert!(!s.clear(&'b', e(0, 10)));
        assert!(s.clear(&'a', e(0, 10)) && s.is_empty());
    }

    #[test]
    fn what_is_undone_is_the_last_of_its_kind_and_no_other() {
        let mut s = SmbLocks::default();
        s.set(&'a', e(0, 10), X);
        s.set(&'a', e(0, 10), S);
        assert!(!s.undo(&'b', e(0, 10), S) && !s.undo(&'a', e(0, 9), S));
        assert!(s.undo(&'a', e(0, 10), S) && !s.undo(&'a', e(0, 10), S));
        assert!(!free(&s, 'b', e(0, 10), S), "the exclusive one stays");
        assert!(s.undo(&'a', e(0, 10), X) && s.is_empty());
    }

    #[test]
    fn a_shared_lock_forbids_writing_to_its_owner_too() {
        let mut s = SmbLocks::default();
        s.set(&'a', e(0, 10), S);
        s.set(&'a', e(20, 10), X);
        let may = |requester, first, last, write| {
            s.blocks_io(requester, Range { first, last }, write).next().is_none()
        };
        assert!(may(Some(&'b'), 0, 9, false));
        assert!(!may(Some(&'b'), 9, 9, true));
        assert!(!may(Some(&'a'), 0, 0, true));
        assert!(may(Some(&'a'), 20, 29, true) && may(Some(&'a'), 20, 29, false));
        assert!(!may(Some(&'b'), 25, 25, false) && !may(None, 0, u64::MAX, false));
    }
}
