//! Byte-range locks with Windows semantics (MS-FSA section 2.1.5.8). Each lock belongs to one open, is independent of all others
//! and is removed only by naming its exact range. Locks never merge or split. A shared lock may overlap an exclusive one of the
//! same open. A lock of length zero marks the position between two bytes.

use crate::range::{LockKind, Range};

/// The range of an SMB lock. Unlike a [`Range`] it may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SmbLockRange {
    pub offset: u64,
    /// Length in bytes; may be 0.
    pub length: u64,
}

impl SmbLockRange {
    /// Returns `None` if the range would end beyond 64 bits (MS-FSA section 2.1.5.8: STATUS_INVALID_LOCK_RANGE). The byte with the
    /// highest number is allowed.
    pub fn new(offset: u64, length: u64) -> Option<Self> {
        let fits = length == 0 || offset.checked_add(length - 1).is_some();
        fits.then_some(Self { offset, length })
    }

    fn end(self) -> u128 {
        u128::from(self.offset) + u128::from(self.length)
    }

    /// Checks whether two ranges overlap. An empty range overlaps only a range that contains it in its interior, and never another
    /// empty one.
    pub fn overlaps(self, other: Self) -> bool {
        u128::from(self.offset) < other.end() && u128::from(other.offset) < self.end()
    }

    /// Converts to a byte range for protocols without empty locks.
    pub fn range(self) -> Range {
        let last = self.offset.saturating_add(self.length.saturating_sub(1));
        Range { first: self.offset, last }
    }

    /// Converts the range of another protocol's lock.
    pub fn of(range: Range) -> Self {
        // The length of a range up to the last possible byte does not fit; it is reduced by one, and no file has that byte.
        let length = (range.last - range.first).saturating_add(1);
        Self { offset: range.first, length }
    }
}

/// A lock and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmbLock<O> {
    pub owner: O,
    pub lock_range: SmbLockRange,
    pub kind: LockKind,
}

/// The locks of a file, in the order in which they were granted.
#[derive(Clone, Debug)]
pub struct SmbLocks<O>(Vec<SmbLock<O>>);

impl<O> Default for SmbLocks<O> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<O: Clone + Eq> SmbLocks<O> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &SmbLock<O>> {
        self.0.iter()
    }

    /// Returns the locks that conflict with a lock request, including locks of `owner`: an exclusive lock may overlap no other, a
    /// shared one only shared locks and the owner's locks.
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

    /// Like [`Self::conflicts`] for protocols whose locks are byte ranges; such a lock never belongs to the same owner.
    pub fn conflicts_range(
        &self,
        range: Range,
        kind: LockKind,
    ) -> impl Iterator<Item = &SmbLock<O>> {
        self.conflicts(None, SmbLockRange::of(range), kind)
    }

    /// Returns the locks that forbid this access (MS-FSA section 2.1.4.10): exclusive locks of other owners and, for a write, every
    /// shared lock including those of `owner`.
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

    /// Adds a lock. The caller has checked for conflicts.
    pub fn set(&mut self, owner: &O, lock_range: SmbLockRange, kind: LockKind) {
        self.0.push(SmbLock { owner: owner.clone(), lock_range, kind });
    }

    /// Removes one lock of exactly this range, an exclusive one before shared ones that overlap it. Returns false if there is none.
    pub fn clear(&mut self, owner: &O, lock_range: SmbLockRange) -> bool {
        let mine = |l: &SmbLock<O>| l.owner == *owner && l.lock_range == lock_range;
        let exclusive = self.0.iter().position(|l| mine(l) && l.kind == LockKind::Exclusive);
        let at = exclusive.or_else(|| self.0.iter().position(mine));
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Removes the newest lock of exactly this range and kind, and no other of the same range; used to undo a lock just granted.
    /// Returns false if there is none.
    pub fn undo(&mut self, owner: &O, lock_range: SmbLockRange, kind: LockKind) -> bool {
        let is_it =
            |l: &SmbLock<O>| l.owner == *owner && l.lock_range == lock_range && l.kind == kind;
        let at = self.0.iter().rposition(is_it);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Removes all locks of the owners that `gone` selects.
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
    fn lock_range_must_fit_64_bits() {
        assert!(SmbLockRange::new(u64::MAX, 1).is_some());
        assert!(SmbLockRange::new(u64::MAX, 2).is_none());
        assert!(SmbLockRange::new(u64::MAX, 0).is_some());
        assert!(SmbLockRange::new(1, u64::MAX).is_some());
        assert!(SmbLockRange::new(2, u64::MAX).is_none());
    }

    #[test]
    fn empty_lock_conflicts_only_inside_another() {
        assert!(e(10, 0).overlaps(e(9, 2)) && e(9, 2).overlaps(e(10, 0)));
        assert!(!e(10, 0).overlaps(e(10, 5)));
        assert!(!e(10, 0).overlaps(e(5, 5)));
        assert!(!e(10, 0).overlaps(e(10, 0)));
        assert!(e(0, u64::MAX).overlaps(e(u64::MAX - 1, 1)));
    }

    #[test]
    fn shared_lock_may_overlap_own_exclusive() {
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
    fn undo_removes_newest_lock_of_kind() {
        let mut s = SmbLocks::default();
        s.set(&'a', e(0, 10), X);
        s.set(&'a', e(0, 10), S);
        assert!(!s.undo(&'b', e(0, 10), S) && !s.undo(&'a', e(0, 9), S));
        assert!(s.undo(&'a', e(0, 10), S) && !s.undo(&'a', e(0, 10), S));
        assert!(!free(&s, 'b', e(0, 10), S), "the exclusive one stays");
        assert!(s.undo(&'a', e(0, 10), X) && s.is_empty());
    }

    #[test]
    fn shared_lock_forbids_owner_writes() {
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
