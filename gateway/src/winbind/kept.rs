//! Answers of winbind that are kept for a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How long a number, a name, or that a domain exists, is kept.
pub(super) const KEPT: Duration = Duration::from_secs(3600);
/// How long the opposite is kept.
pub(super) const KEPT_NONE: Duration = Duration::from_secs(300);
/// How long it is kept while the controller is silent.
pub(super) const KEPT_UNSURE: Duration = Duration::from_secs(10);

/// Answers with the time until which they are valid; without one they serve only silence.
pub(super) struct Kept<K, V>(HashMap<K, (Option<V>, Option<Instant>)>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    /// Returns an answer that is still valid.
    pub(super) fn fresh(&self, key: &K) -> Option<Option<V>> {
        let (value, until) = self.0.get(key)?;
        (Instant::now() < *until.as_ref()?).then(|| value.clone())
    }

    /// Returns whether the answer is negative, and was given while a controller answered.
    pub(super) fn is_surely_none(&self, key: &K) -> bool {
        let unsure = Instant::now() + KEPT_UNSURE;
        matches!(self.0.get(key), Some((None, Some(until))) if *until > unsure)
    }

    /// Returns an answer of any age.
    pub(super) fn any(&self, key: &K) -> Option<Option<V>> {
        self.0.get(key).map(|(value, _)| value.clone())
    }

    /// Removes a negative answer; a positive one serves only silence from now on.
    pub(super) fn age(&mut self, key: &K) {
        match self.0.get_mut(key) {
            Some((Some(_), until)) => *until = None,
            Some(_) => drop(self.0.remove(key)),
            None => {}
        }
    }

    /// Keeps an answer.
    pub(super) fn keep(&mut self, key: K, value: Option<V>, most: usize) {
        let time = if value.is_some() { KEPT } else { KEPT_NONE };
        self.keep_for(time, key, value, most);
    }

    /// Keeps a negative answer of a domain with a silent controller.
    pub(super) fn keep_unsure(&mut self, key: K, most: usize) {
        self.keep_for(KEPT_UNSURE, key, None, most);
    }

    fn keep_for(&mut self, time: Duration, key: K, value: Option<V>, most: usize) {
        if self.0.len() >= most && !self.0.contains_key(&key) {
            let now = Instant::now();
            let is_new = |until: &Option<Instant>| until.is_some_and(|until| now < until);
            self.0.retain(|_, (value, until)| value.is_some() && is_new(until));
            if self.0.len() >= most {
                self.0.clear();
            }
        }
        self.0.insert(key, (value, Some(Instant::now() + time)));
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
        kept.keep_for(Duration::ZERO, 1, None, 10);
        assert_eq!((kept.fresh(&1), kept.any(&1)), (None, Some(None)));
        let left = |kept: &Kept<u32, u32>, key| kept.0[&key].1.unwrap() - Instant::now();
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
    }
}
