//! Answers of winbind that are kept for a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How long a number, a name, or that a domain exists, is kept.
pub(super) const KEPT: Duration = Duration::from_secs(3600);
/// How long the opposite is kept.
pub(super) const KEPT_NONE: Duration = Duration::from_secs(300);

/// Answers with their time; without one they serve only silence.
pub(super) struct Kept<K, V>(HashMap<K, (Option<V>, Option<Instant>)>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    /// Returns an answer that is still valid.
    pub(super) fn fresh(&self, key: &K) -> Option<Option<V>> {
        let (value, at) = self.0.get(key)?;
        (at.as_ref()?.elapsed() < Self::time(value.as_ref())).then(|| value.clone())
    }

    /// Returns an answer of any age.
    pub(super) fn any(&self, key: &K) -> Option<Option<V>> {
        self.0.get(key).map(|(value, _)| value.clone())
    }

    /// Removes a negative answer; a positive one serves only silence from now on.
    pub(super) fn age(&mut self, key: &K) {
        match self.0.get_mut(key) {
            Some((Some(_), at)) => *at = None,
            Some(_) => drop(self.0.remove(key)),
            None => {}
        }
    }

    fn time(value: Option<&V>) -> Duration {
        if value.is_some() { KEPT } else { KEPT_NONE }
    }

    pub(super) fn keep(&mut self, key: K, value: Option<V>, most: usize) {
        if self.0.len() >= most && !self.0.contains_key(&key) {
            let is_new = |at: &Option<Instant>| at.is_some_and(|at| at.elapsed() < KEPT);
            self.0.retain(|_, (value, at)| value.is_some() && is_new(at));
            if self.0.len() >= most {
                self.0.clear();
            }
        }
        self.0.insert(key, (value, Some(Instant::now())));
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
        let old = Instant::now().checked_sub(KEPT_NONE);
        kept.0.insert(1, (None, old));
        assert_eq!((kept.fresh(&1), kept.any(&1)), (None, Some(None)));
        kept.0.insert(2, (Some(7), old));
        if old.is_some() {
            assert_eq!(kept.fresh(&2), Some(Some(7)), "a number stays valid for longer");
        }
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
