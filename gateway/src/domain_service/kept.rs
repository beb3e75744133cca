//! Answers of the service that are kept for a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How long a number, a name, or that a domain exists, is kept.
pub(super) const KEPT: Duration = Duration::from_secs(3600);
/// How long the opposite is kept.
pub(super) const KEPT_NONE: Duration = Duration::from_secs(300);
/// How long it is kept while the controller is silent.
pub(super) const KEPT_UNSURE: Duration = Duration::from_secs(10);

struct Entry<V> {
    value: Option<V>,
    /// The end of its time; without one it serves only silence.
    until: Option<Instant>,
    /// A negative answer that no controller of the domain has given.
    is_unsure: bool,
}

impl<V> Entry<V> {
    fn is_fresh(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

/// Answers with the time until which they are valid.
pub(super) struct Kept<K, V>(HashMap<K, Entry<V>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    /// Returns an answer that is still valid.
    pub(super) fn fresh(&self, key: &K) -> Option<Option<V>> {
        self.0.get(key).filter(|entry| entry.is_fresh()).map(|entry| entry.value.clone())
    }

    /// Returns whether the answer is negative, still valid, and was given while a controller answered.
    pub(super) fn is_surely_none(&self, key: &K) -> bool {
        self.0
            .get(key)
            .is_some_and(|entry| entry.value.is_none() && entry.is_fresh() && !entry.is_unsure)
    }

    /// Returns whether the answer is negative, still valid, and was given while no controller answered.
    pub(super) fn is_unsure(&self, key: &K) -> bool {
        self.0.get(key).is_some_and(|entry| entry.is_unsure && entry.is_fresh())
    }

    /// Returns an answer of any age.
    pub(super) fn any(&self, key: &K) -> Option<Option<V>> {
        self.0.get(key).map(|entry| entry.value.clone())
    }

    /// Removes a negative answer; a positive one serves only silence from now on.
    pub(super) fn age(&mut self, key: &K) {
        match self.0.get_mut(key) {
            Some(entry) if entry.value.is_some() => entry.until = None,
            Some(_) => drop(self.0.remove(key)),
            None => {}
        }
    }

    /// Keeps an answer.
    pub(super) fn keep(&mut self, key: K, value: Option<V>, most: usize) {
        let time = if value.is_some() { KEPT } else { KEPT_NONE };
        self.keep_for(time, key, (value, false), most);
    }

    /// Keeps that a domain with a silent controller has not answered; an earlier value stays.
    pub(super) fn keep_unsure(&mut self, key: K, most: usize) {
        match self.any(&key).flatten() {
            Some(before) => self.keep(key, Some(before), most),
            None => self.keep_for(KEPT_UNSURE, key, (None, true), most),
        }
    }

    fn keep_for(
        &mut self,
        time: Duration,
        key: K,
        (value, is_unsure): (Option<V>, bool),
        most: usize,
    ) {
        if self.0.len() >= most && !self.0.contains_key(&key) {
            self.0.retain(|_, entry| entry.value.is_some() && entry.is_fresh());
            if self.0.len() >= most {
                self.0.clear();
            }
        }
        self.0.insert(key, Entry { value, until: Some(Instant::now() + time), is_unsure });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_table_forgets_and_never_grows() {
        let mut kept = Kept::<u32, u32>::default();
        for n in 0..100 {
            kept.keep(n, (n % 2 == 0).then_some(n), 10);
            assert!(kept.0.len() <= 10);
            assert_eq!(kept.fresh(&n), Some((n % 2 == 0).then_some(n)), "the newest stays");
        }
        assert_eq!(kept.any(&1000), None);
    }

    #[test]
    fn old_answers_serve_only_silence() {
        let mut kept = Kept::<u32, u32>::default();
        kept.keep_for(Duration::ZERO, 1, (None, false), 10);
        assert_eq!((kept.fresh(&1), kept.any(&1)), (None, Some(None)));
        let left = |kept: &Kept<u32, u32>, key| kept.0[&key].until.unwrap() - Instant::now();
        kept.keep(2, Some(7), 10);
        assert_eq!(kept.fresh(&2), Some(Some(7)));
        kept.keep(5, None, 10);
        kept.keep_unsure(6, 10);
        assert_eq!((kept.fresh(&5), kept.fresh(&6)), (Some(None), Some(None)));
        // A number stays valid for longer; what could not be asked is asked again soon.
        assert!(left(&kept, 2) > KEPT_NONE && left(&kept, 5) > KEPT_UNSURE);
        assert!(left(&kept, 5) <= KEPT_NONE && left(&kept, 6) <= KEPT_UNSURE);
        kept.keep(3, Some(8), 10);
        kept.age(&3);
        assert_eq!((kept.fresh(&3), kept.any(&3)), (None, Some(Some(8))));
        kept.keep(4, None, 10);
        kept.age(&4);
        assert_eq!((kept.fresh(&4), kept.any(&4)), (None, None));
        kept.keep(3, Some(8), 10);
        assert_eq!(kept.fresh(&3), Some(Some(8)), "an answer is new again");
        // Silence of the controller takes no value.
        kept.keep_unsure(3, 10);
        assert_eq!((kept.fresh(&3), kept.is_unsure(&3)), (Some(Some(8)), false));
        assert_eq!((kept.is_unsure(&6), kept.is_surely_none(&6)), (true, false));
        assert_eq!((kept.is_unsure(&5), kept.is_surely_none(&5)), (false, true));
        assert_eq!((kept.is_unsure(&1), kept.is_surely_none(&1)), (false, false), "too old");
    }
}
