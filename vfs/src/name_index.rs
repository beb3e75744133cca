//! An index of the names of one directory by their upper case.
//!
//! *Operation.* All names are in one block of bytes; buckets of hashes, computed from the upper case of each name, point into it. A
//! removed name leaves its bytes behind until [`NameIndex::is_worn`] tells the owner to build the index again.
//!
//! *Memory.* [`NameIndex::bytes`]: about 16 bytes and the name itself, for each name.

/// Entries in a bucket of a fresh index.
const BUCKET: usize = 128;
/// Bytes of an entry without the name, including spare room in its bucket.
const ENTRY: usize = 16;

/// A name's hash, its offset, and its length.
type Entry = (u32, u32, u16);

/// The names of one directory.
#[derive(Debug, Default)]
pub(crate) struct NameIndex {
    /// All names, one after the other.
    names: Vec<u8>,
    /// Buckets by the lowest bits of the hashes, each sorted; their count is a power of two.
    buckets: Vec<Vec<Entry>>,
    count: usize,
    /// Bytes of `names` that belong to removed names.
    unused: usize,
}

impl NameIndex {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let buckets: usize = self.buckets.iter().map(|b| b.capacity() * size_of::<Entry>()).sum();
        self.names.capacity() + buckets + self.buckets.capacity() * size_of::<Vec<Entry>>()
    }

    /// Returns the additional memory that these names would take.
    pub(crate) fn bytes_of<'a>(names: impl Iterator<Item = &'a [u8]>) -> usize {
        names.map(|name| name.len() + ENTRY).sum()
    }

    /// Returns true if more than half of its memory belongs to removed names.
    pub(crate) fn is_worn(&self) -> bool {
        self.unused > self.names.len() / 2 && self.unused > 4096
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let rest = self.names.get(entry.1 as usize..).unwrap_or_default();
        rest.get(..usize::from(entry.2)).unwrap_or_default()
    }

    fn bucket(&self, number: u32) -> usize {
        number as usize & self.buckets.len().saturating_sub(1)
    }

    /// Returns the entries of this hash, as a range of its bucket.
    fn range(&self, number: u32) -> &[Entry] {
        let Some(bucket) = self.buckets.get(self.bucket(number)) else { return &[] };
        let from = bucket.partition_point(|e| e.0 < number);
        let len = bucket[from..].partition_point(|e| e.0 == number);
        &bucket[from..from + len]
    }

    /// Adds a name, unless it is present. A name longer than any file system allows, or beyond 4 GiB of names, is left out.
    pub(crate) fn insert(&mut self, number: u32, name: &[u8]) {
        let places = (u32::try_from(self.names.len()), u16::try_from(name.len()));
        let (Ok(at), Ok(len)) = places else { return };
        if self.range(number).iter().any(|e| self.name(e) == name) {
            return;
        }
        if self.count >= self.buckets.len() * BUCKET * 2 {
            self.spread();
        }
        if self.names.capacity() - self.names.len() < name.len() {
            // Doubling, the default growth, would be too much for a large index.
            self.names.reserve_exact(name.len().max(self.names.len() / 16));
        }
        self.names.extend(name);
        self.count += 1;
        let which = self.bucket(number);
        if let Some(bucket) = self.buckets.get_mut(which) {
            bucket.insert(bucket.partition_point(|e| e.0 < number), (number, at, len));
        }
    }

    pub(crate) fn remove(&mut self, number: u32, name: &[u8]) {
        let found = self.range(number).iter().copied().find(|e| self.name(e) == name);
        let Some(found) = found else { return };
        let which = self.bucket(number);
        if let Some(bucket) = self.buckets.get_mut(which) {
            bucket.retain(|e| *e != found);
            self.unused += name.len();
            self.count -= 1;
        }
    }

    /// Returns the matching name of this hash: the first in byte order of several.
    pub(crate) fn find(&self, number: u32, is_meant: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let names = self.range(number).iter().map(|e| self.name(e));
        names.filter(|name| is_meant(name)).min().map(<[u8]>::to_vec)
    }

    /// Doubles the number of buckets.
    fn spread(&mut self) {
        let count = (self.count / BUCKET).next_power_of_two().max(1) * 2;
        let old = std::mem::replace(&mut self.buckets, vec![Vec::new(); count]);
        for entry in old.into_iter().flatten() {
            let which = self.bucket(entry.0);
            self.buckets[which].push(entry);
        }
        self.buckets.iter_mut().for_each(|bucket| bucket.sort_unstable());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn is_same(name: &[u8], text: &str) -> bool {
        name.eq_ignore_ascii_case(text.as_bytes())
    }

    fn number(text: &str) -> u32 {
        // A small range, so that names share hashes.
        text.to_uppercase().bytes().fold(0, |h: u32, b| h * 31 + u32::from(b)) % 777
    }

    proptest! {
        #[test]
        fn index_equals_set_of_names(steps in prop::collection::vec((any::<bool>(), "[abAB]{1,4}"), 0..2000)) {
            let (mut index, mut model) = (NameIndex::default(), BTreeSet::new());
            for (add, name) in &steps {
                match add {
                    true => {
                        index.insert(number(name), name.as_bytes());
                        model.insert(name.clone());
                    }
                    false => {
                        index.remove(number(name), name.as_bytes());
                        model.remove(name);
                    }
                }
            }
            prop_assert_eq!(index.len(), model.len());
            for (_, name) in &steps {
                let first = model.iter().find(|n| n.eq_ignore_ascii_case(name));
                let found = index.find(number(name), |n| is_same(n, name));
                prop_assert_eq!(found, first.map(|n| n.clone().into_bytes()));
            }
        }
    }

    #[test]
    fn memory_is_little_more_than_names() {
        let mut index = NameIndex::default();
        let name = |i: u32| format!("file-with-some-longer-name-{i:07}");
        let number = |i: u32| i.wrapping_mul(0x9e37_79b9);
        for i in 0..60_000_u32 {
            index.insert(number(i), name(i).as_bytes());
        }
        let plain = 60_000 * (name(0).len() + ENTRY);
        assert!(index.bytes() < plain * 9 / 8, "{} for {plain}", index.bytes());
        assert_eq!(index.find(number(7), |_| true), Some(name(7).into_bytes()));
        for i in 0..40_000_u32 {
            index.remove(number(i), name(i).as_bytes());
        }
        assert!(index.is_worn() && index.len() == 20_000);
    }
}
