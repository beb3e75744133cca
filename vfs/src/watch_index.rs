//! The watches of directories by their paths. A change finds the watches of its folder and of the folders above, and visits no
//! other watch.
//!
//! *Operation.* A change at a path of `n` names costs `n` look-ups in the tree of its share. The rename of a directory visits the
//! watches at and below it.
//!
//! *Memory.* The path of each watched directory once more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The values of watched directories, by share and path from its root.
pub(crate) struct WatchIndex<T> {
    by_share: HashMap<u32, BTreeMap<Vec<u8>, Vec<Arc<T>>>>,
    len: usize,
}

impl<T> Default for WatchIndex<T> {
    fn default() -> Self {
        Self { by_share: HashMap::new(), len: 0 }
    }
}

impl<T> WatchIndex<T> {
    /// Counts the values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if this share has a value.
    pub(crate) fn has(&self, share: u32) -> bool {
        self.by_share.contains_key(&share)
    }

    pub(crate) fn add(&mut self, share: u32, path: Vec<u8>, value: Arc<T>) {
        self.by_share.entry(share).or_default().entry(path).or_default().push(value);
        self.len += 1;
    }

    /// Removes a value that was added at this path, or moved there.
    pub(crate) fn remove(&mut self, share: u32, path: &[u8], value: &Arc<T>) {
        let Some(by_path) = self.by_share.get_mut(&share) else { return };
        let Some(here) = by_path.get_mut(path) else { return };
        let Some(at) = here.iter().position(|v| Arc::ptr_eq(v, value)) else { return };
        here.swap_remove(at);
        self.len -= 1;
        if here.is_empty() {
            by_path.remove(path);
        }
        if by_path.is_empty() {
            self.by_share.remove(&share);
        }
    }

    /// Returns the values of a path and of the directories above it, from the root on, each with the rest of the path after its
    /// directory.
    pub(crate) fn up_from<'a>(
        &'a self,
        share: u32,
        path: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Arc<T>)> {
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        let root = (!path.is_empty()).then_some(0);
        let by_path = self.by_share.get(&share);
        let here = move |end: usize| {
            let (dir, rest) = path.split_at(end);
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            let values = by_path.and_then(|by_path| by_path.get(dir));
            values.into_iter().flatten().map(move |value| (rest, value))
        };
        root.into_iter().chain(ends).chain([path.len()]).flat_map(here)
    }

    /// Moves the values of a directory and of all below it to another path, and returns each with its new path.
    pub(crate) fn moves(&mut self, share: u32, from: &[u8], to: &[u8]) -> Vec<(Arc<T>, Vec<u8>)> {
        let Some(by_path) = self.by_share.get_mut(&share) else { return Vec::new() };
        // The paths below are those that begin with the directory and a slash; the byte after a slash is a zero.
        let (first, end) = ([from, b"/"].concat(), [from, b"0"].concat());
        let mut old: Vec<Vec<u8>> =
            by_path.range(first..end).map(|(path, _)| path.clone()).collect();
        if by_path.contains_key(from) {
            old.push(from.to_vec());
        }
        // All leave before the first arrives, because one path may be below the other.
        let gone: Vec<_> = old.into_iter().filter_map(|path| by_path.remove_entry(&path)).collect();
        let mut moved = Vec::new();
        for (path, values) in gone {
            let new = [to, &path[from.len()..]].concat();
            moved.extend(values.iter().map(|value| (value.clone(), new.clone())));
            by_path.entry(new).or_default().extend(values);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Names that sort before, at and after a slash, and one that begins as another does.
    const NAMES: [&str; 5] = ["a", "a!", "a/b", "a0", "b"];

    #[derive(Clone, Debug)]
    enum Step {
        Add(u32, Vec<u8>),
        /// Removes one of the values.
        Remove(usize),
        Move(u32, Vec<u8>, Vec<u8>),
        Look(u32, Vec<u8>),
    }

    fn path() -> impl Strategy<Value = Vec<u8>> {
        let names = prop::collection::vec(prop::sample::select(&NAMES[..]), 0..4);
        names.prop_map(|names| names.join("/").into_bytes())
    }

    fn step() -> impl Strategy<Value = Step> {
        let share = || 0_u32..2;
        let dir = || path().prop_filter("the root never moves", |path| !path.is_empty());
        prop_oneof![
            (share(), path()).prop_map(|(share, path)| Step::Add(share, path)),
            (0_usize..20).prop_map(Step::Remove),
            (share(), dir(), dir()).prop_map(|(share, from, to)| Step::Move(share, from, to)),
            (share(), path()).prop_map(|(share, path)| Step::Look(share, path)),
        ]
    }

    /// Checks name by name that the directory is this path or above it.
    fn is_above(dir: &[u8], path: &[u8]) -> bool {
        let names = |path: &[u8]| -> Vec<Vec<u8>> {
            path.split(|b| *b == b'/').filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect()
        };
        names(path).starts_with(&names(dir))
    }

    proptest! {
        /// The slow model is a list that every step walks.
        #[test]
        fn index_matches_slow_model(steps in prop::collection::vec(step(), 0..40)) {
            let mut index = WatchIndex::default();
            let mut all: Vec<(u32, Vec<u8>, Arc<usize>)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Add(share, path) => {
                        let value = Arc::new(number);
                        index.add(share, path.clone(), value.clone());
                        all.push((share, path, value));
                    }
                    Step::Remove(at) if at < all.len() => {
                        let (share, path, value) = all.swap_remove(at);
                        index.remove(share, &path, &value);
                        index.remove(share, &path, &value);
                    }
                    Step::Remove(_) => {}
                    Step::Move(share, from, to) => {
                        let mut moved = Vec::new();
                        for (of, path, value) in &mut all {
                            if *of == share && is_above(&from, path) {
                                *path = [&to[..], &path[from.len()..]].concat();
                                moved.push((value.clone(), path.clone()));
                            }
                        }
                        let mut found = index.moves(share, &from, &to);
                        moved.sort();
                        found.sort();
                        prop_assert_eq!(found, moved);
                    }
                    Step::Look(share, path) => {
                        let found = index.up_from(share, &path);
                        let mut found: Vec<_> = found.map(|(_, value)| value.clone()).collect();
                        let above = |(of, dir, _): &&(u32, Vec<u8>, _)| *of == share && is_above(dir, &path);
                        let mut want: Vec<_> = all.iter().filter(above).map(|one| one.2.clone()).collect();
                        found.sort();
                        want.sort();
                        prop_assert_eq!(found, want);
                    }
                }
                prop_assert_eq!(index.len(), all.len());
                for share in 0..2 {
                    prop_assert_eq!(index.has(share), all.iter().any(|one| one.0 == share));
                }
            }
        }
    }
}
