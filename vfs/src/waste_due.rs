//! Decides which files of a wastebasket are due.
//!
//! *Operation.* Files older than the rules allow are due. While the rest has more storage, or are more files, than allowed, a file
//! of the largest [`Part`] is due: the oldest of the user with most of that part. A user that removes much does not displace what
//! others removed, nor does an address whose callers claim to be many users.
//!
//! *Memory.* 24 bytes for each file, and as many again for those that are due.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use crate::waste_record::{Id, Part};
use crate::wastebasket::Weight;

/// Limits of one wastebasket.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How long a file is kept.
    pub keep: Duration,
    /// Storage of all files in bytes.
    pub bytes: u64,
    /// Number of files.
    pub files: usize,
}

/// Files that are due, each list with the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Too old.
    pub expired: Vec<Id>,
    /// Too many.
    pub displaced: Vec<Id>,
    /// Number of all others.
    pub rest: usize,
    /// Storage of all others.
    pub bytes: u64,
}

/// A user's files in one part, the oldest first.
#[derive(Default)]
struct OfUser {
    files: VecDeque<Weight>,
    bytes: u64,
}

/// A size, and the file that goes first; of equal sizes the one with the oldest file counts as larger.
type Size = (u64, Reverse<Id>);

impl OfUser {
    fn size(&self, by_bytes: bool) -> Option<Size> {
        let oldest = self.files.front()?;
        let size = if by_bytes { self.bytes } else { self.files.len() as u64 };
        Some((size, Reverse(oldest.id)))
    }
}

/// The files of one part.
#[derive(Default)]
struct OfPart {
    users: BTreeMap<u32, OfUser>,
    /// The users by size.
    order: BinaryHeap<(Size, u32)>,
    bytes: u64,
    files: usize,
}

impl OfPart {
    fn add(&mut self, weight: Weight) {
        let user = self.users.entry(weight.id.uid).or_default();
        user.bytes = user.bytes.saturating_add(weight.used);
        user.files.push_back(weight);
        self.bytes = self.bytes.saturating_add(weight.used);
        self.files += 1;
    }

    fn sort(&mut self, by_bytes: bool) {
        let of = |(uid, user): (&u32, &OfUser)| Some((user.size(by_bytes)?, *uid));
        self.order = self.users.iter().filter_map(of).collect();
    }

    fn size(&self, by_bytes: bool) -> Option<Size> {
        let ((_, first), _) = self.order.peek()?;
        Some((if by_bytes { self.bytes } else { self.files as u64 }, *first))
    }

    /// Takes the oldest file of the user with most.
    fn take(&mut self, by_bytes: bool) -> Option<Weight> {
        let (_, uid) = self.order.pop()?;
        let user = self.users.get_mut(&uid)?;
        let oldest = user.files.pop_front()?;
        user.bytes = user.bytes.saturating_sub(oldest.used);
        self.bytes = self.bytes.saturating_sub(oldest.used);
        self.files -= 1;
        self.order.extend(user.size(by_bytes).map(|size| (size, uid)));
        Some(oldest)
    }
}

/// Returns the files that are due at `now`, in microseconds since 1970. A file of the future counts as new.
pub fn due(mut all: Vec<Weight>, bounds: Bounds, now: u64) -> Due {
    all.sort_unstable_by_key(|weight| weight.id);
    let keep = u64::try_from(bounds.keep.as_micros()).unwrap_or(u64::MAX);
    let fresh = all.partition_point(|weight| now.saturating_sub(weight.id.at) > keep);
    let expired = all.iter().take(fresh).map(|weight| weight.id).collect();
    let mut parts: BTreeMap<Part, OfPart> = BTreeMap::new();
    let (mut bytes, mut rest) = (0_u64, 0_usize);
    for weight in all.drain(fresh..) {
        bytes = bytes.saturating_add(weight.used);
        rest += 1;
        parts.entry(weight.id.part()).or_default().add(weight);
    }
    let mut displaced = Vec::new();
    for by_bytes in [true, false] {
        parts.values_mut().for_each(|part| part.sort(by_bytes));
        let of = |(key, part): (&Part, &OfPart)| Some((part.size(by_bytes)?, *key));
        let mut order: BinaryHeap<(Size, Part)> = parts.iter().filter_map(of).collect();
        while if by_bytes { bytes > bounds.bytes } else { rest > bounds.files } {
            let Some((_, key)) = order.pop() else { break };
            let Some(part) = parts.get_mut(&key) else { break };
            let Some(oldest) = part.take(by_bytes) else { break };
            bytes = bytes.saturating_sub(oldest.used);
            rest -= 1;
            displaced.push(oldest.id);
            order.extend(part.size(by_bytes).map(|size| (size, key)));
        }
    }
    Due { expired, displaced, rest, bytes }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rule, step by step.
    fn slow(mut all: Vec<Weight>, bounds: Bounds, now: u64) -> Due {
        all.sort_by_key(|w| w.id);
        let keep = u64::try_from(bounds.keep.as_micros()).unwrap();
        let (old, mut left): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|w| w.id.at < now && now - w.id.at > keep);
        let mut displaced = Vec::new();
        for by_bytes in [true, false] {
            loop {
                let bytes: u64 = left.iter().map(|w| w.used).sum();
                let over = if by_bytes { bytes > bounds.bytes } else { left.len() > bounds.files };
                if !over {
                    break;
                }
                let sum = |which: &dyn Fn(&Weight) -> bool| -> u64 {
                    let size = |w: &Weight| if by_bytes { w.used } else { 1 };
                    left.iter().filter(|w| which(w)).map(size).sum()
                };
                let part = |w: &Weight| sum(&|other| other.id.part() == w.id.part());
                let user = |w: &Weight| {
                    sum(&|other| other.id.part() == w.id.part() && other.id.uid == w.id.uid)
                };
                // In each part the oldest file of the user with most, then the oldest of these in the largest part.
                let first_of = |w: &&Weight| {
                    let mut rivals = left.iter().filter(|o| o.id.part() == w.id.part());
                    rivals.all(|o| (user(o), Reverse(o.id)) <= (user(w), Reverse(w.id)))
                };
                let firsts: Vec<_> = left.iter().filter(first_of).collect();
                let goes = *firsts.iter().max_by_key(|w| (part(w), Reverse(w.id))).unwrap();
                let at = left.iter().position(|w| w.id == goes.id).unwrap();
                displaced.push(left.remove(at).id);
            }
        }
        let bytes = left.iter().map(|w| w.used).sum();
        let expired = old.into_iter().map(|w| w.id).collect();
        Due { expired, displaced, rest: left.len(), bytes }
    }

    proptest! {
        #[test]
        fn due_files_match_slow_model(
            files in prop::collection::vec((0_u64..40, 0_u32..4, 0_u64..30, 0_u32..3), 0..40),
            keep in 0_u64..50, bytes in 0_u64..300, most in 0_usize..40,
        ) {
            let weight = |(n, (at, uid, used, mark)): (u32, &(u64, u32, u64, u32))| {
                Weight { id: Id { at: *at, uid: *uid, number: mark << 16 | n }, used: *used }
            };
            let all: Vec<_> = (0..).zip(&files).map(weight).collect();
            let bounds = Bounds { keep: Duration::from_micros(keep), bytes, files: most };
            prop_assert_eq!(due(all.clone(), bounds, 30), slow(all, bounds, 30));
        }
    }

    #[test]
    fn much_of_one_user_displaces_its_own() {
        let weight = |at, uid, used| Weight { id: Id { at, uid, number: 0 }, used };
        let all = vec![weight(1, 7, 10), weight(2, 9, 60), weight(3, 9, 60)];
        let bounds = Bounds { keep: Duration::from_secs(1), bytes: 100, files: 9 };
        let found = due(all, bounds, 10);
        assert_eq!(found.displaced, [Id { at: 2, uid: 9, number: 0 }]);
        assert_eq!((found.rest, found.bytes), (2, 70));
    }

    /// An address whose callers claim to be many users has one part, and of proven users each has one.
    #[test]
    fn many_numbers_of_one_address_displace_their_own() {
        let weight =
            |at, uid, mark: u32, used| Weight { id: Id { at, uid, number: mark << 16 }, used };
        let others = [weight(1, 7, 0, 30), weight(2, 8, 5, 30)];
        let many = (0..40).map(|n| weight(3 + u64::from(n), 1000 + n, 9, 1));
        let all: Vec<_> = others.into_iter().chain(many).collect();
        for (bytes, files) in [(90, 99), (1000, 32)] {
            let bounds = Bounds { keep: Duration::from_secs(1), bytes, files };
            let gone = due(all.clone(), bounds, 10).displaced;
            let its_oldest: Vec<_> = all.iter().skip(2).take(10).map(|w| w.id).collect();
            assert_eq!(gone, its_oldest);
        }
    }
}
