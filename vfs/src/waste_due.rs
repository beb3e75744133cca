//! Decides which files of a wastebasket are due.
//!
//! *Operation.* Files older than the rules allow are due. While the rest has more storage, or are more files, than allowed, the
//! oldest file of the user with the largest part is due: a user that removes much does not displace what others removed.
//!
//! *Memory.* 24 bytes for each file, and as many again for those that are due.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use crate::waste_record::Id;
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

/// A user's files, the oldest first.
#[derive(Default)]
struct OfUser {
    files: VecDeque<Weight>,
    bytes: u64,
}

/// Returns the files that are due at `now`, in microseconds since 1970. A file of the future counts as new.
pub fn due(mut all: Vec<Weight>, bounds: Bounds, now: u64) -> Due {
    all.sort_unstable_by_key(|weight| weight.id);
    let keep = u64::try_from(bounds.keep.as_micros()).unwrap_or(u64::MAX);
    let fresh = all.partition_point(|weight| now.saturating_sub(weight.id.at) > keep);
    let expired = all.iter().take(fresh).map(|weight| weight.id).collect();
    let mut users: BTreeMap<u32, OfUser> = BTreeMap::new();
    let (mut bytes, mut rest) = (0_u64, 0_usize);
    for weight in all.drain(fresh..) {
        let user = users.entry(weight.id.uid).or_default();
        user.bytes = user.bytes.saturating_add(weight.used);
        bytes = bytes.saturating_add(weight.used);
        rest += 1;
        user.files.push_back(weight);
    }
    let mut displaced = Vec::new();
    for by_bytes in [true, false] {
        let size = |user: &OfUser| if by_bytes { user.bytes } else { user.files.len() as u64 };
        // Returns equal parts in the order of their oldest files.
        let part = |(uid, user): (&u32, &OfUser)| {
            let oldest = user.files.front().map(|w| std::cmp::Reverse(w.id))?;
            Some((size(user), oldest, *uid))
        };
        let mut heap: BinaryHeap<_> = users.iter().filter_map(part).collect();
        while if by_bytes { bytes > bounds.bytes } else { rest > bounds.files } {
            let Some((_, _, uid)) = heap.pop() else { break };
            let Some(user) = users.get_mut(&uid) else { break };
            let Some(oldest) = user.files.pop_front() else { break };
            user.bytes = user.bytes.saturating_sub(oldest.used);
            bytes = bytes.saturating_sub(oldest.used);
            rest -= 1;
            displaced.push(oldest.id);
            heap.extend(part((&uid, user)));
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
                let part = |uid: u32| -> u64 {
                    left.iter()
                        .filter(|w| w.id.uid == uid)
                        .map(|w| if by_bytes { w.used } else { 1 })
                        .sum()
                };
                let most = left.iter().map(|w| part(w.id.uid)).max().unwrap();
                let at = left.iter().position(|w| part(w.id.uid) == most).unwrap();
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
            files in prop::collection::vec((0_u64..40, 0_u32..4, 0_u64..30), 0..40),
            keep in 0_u64..50, bytes in 0_u64..300, most in 0_usize..40,
        ) {
            let weight = |(n, (at, uid, used)): (usize, &(u64, u32, u64))| {
                Weight { id: Id { at: *at, uid: *uid, number: u32::try_from(n).unwrap() }, used: *used }
            };
            let all: Vec<_> = files.iter().enumerate().map(weight).collect();
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
}
