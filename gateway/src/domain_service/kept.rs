//! Answers of the service that are kept for a time.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How long a number, or that a domain exists, is kept.
pub(super) const KEPT: Duration = Duration::from_secs(3600);
/// How long a name is kept, or the SID of one: the directory may give it to another identity.
pub(super) const KEPT_NAME: Duration = Duration::from_secs(360);
/// Time after which the gateway asks again about a name that it uses.
pub(super) const RENEWED: Duration = Duration::from_secs(240);
/// How long the opposite is kept.
pub(super) const KEPT_NONE: Duration = Duration::from_secs(300);
/// How long it is kept while the controller is silent.
pub(super) const KEPT_UNSURE: Duration = Duration::from_secs(10);

struct Entry<V> {
    value: Option<V>,
    /// When the service gave the answer.
    at: Instant,
    /// When it was last looked at.
    used: Cell<Instant>,
    /// When the service was last asked about it.
    asked: Cell<Instant>,
    /// The end of its time; without one it serves only silence.
    until: Option<Instant>,
    /// A negative answer that no controller of the domain has given.
    is_unsure: bool,
    /// A controller has given this answer, perhaps longer ago.
    was_sure: bool,
}

impl<V> Entry<V> {
    fn is_fresh(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

/// Answers with the time until which they are valid.
pub(super) struct Kept<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// How long a value is valid.
    time: Duration,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), time: KEPT }
    }
}

impl<K, V> Kept<K, V> {
    /// Creates a table of names, which change.
    pub(super) fn of_names() -> Self {
        Self { entries: HashMap::new(), time: KEPT_NAME }
    }
}

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    /// Returns an answer that is still valid.
    pub(super) fn fresh(&self, key: &K) -> Option<Option<V>> {
        let entry = self.entries.get(key)?;
        entry.used.set(Instant::now());
        entry.is_fresh().then(|| entry.value.clone())
    }

    /// Returns whether the answer is negative, still valid, and was given while a controller answered.
    pub(super) fn is_surely_none(&self, key: &K) -> bool {
        self.entries
            .get(key)
            .is_some_and(|entry| entry.value.is_none() && entry.is_fresh() && !entry.is_unsure)
    }

    /// Returns whether the answer is negative, still valid, and was given while no controller answered.
    pub(super) fn is_unsure(&self, key: &K) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.is_unsure && entry.is_fresh())
    }

    /// Returns whether the answer is negative, and no controller has ever given it.
    pub(super) fn is_open(&self, key: &K) -> bool {
        self.entries.get(key).is_none_or(|entry| entry.value.is_none() && !entry.was_sure)
    }

    /// Returns an answer of any age.
    pub(super) fn any(&self, key: &K) -> Option<Option<V>> {
        self.entries.get(key).map(|entry| entry.value.clone())
    }

    /// Removes a negative answer; a positive one serves only silence from now on.
    pub(super) fn age(&mut self, key: &K) {
        match self.entries.get_mut(key) {
            Some(entry) if entry.value.is_some() => entry.until = None,
            Some(_) => drop(self.entries.remove(key)),
            None => {}
        }
    }

    /// Keeps an answer.
    pub(super) fn keep(&mut self, key: K, value: Option<V>, most: usize) {
        let time = if value.is_some() { self.time } else { KEPT_NONE };
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
        if self.entries.len() >= most && !self.entries.contains_key(&key) {
            self.entries.retain(|_, entry| entry.value.is_some() && entry.is_fresh());
            if self.entries.len() >= most {
                self.entries.clear();
            }
        }
        let now = Instant::now();
        // An answer that comes again is not used by that.
        let before = self.entries.get(&key);
        let used = Cell::new(before.map_or(now, |before| before.used.get()));
        let was_sure = !is_unsure || before.is_some_and(|one| one.value.is_none() && one.was_sure);
        let until = Some(now + time);
        let entry =
            Entry { value, at: now, used, asked: Cell::new(now), until, is_unsure, was_sure };
        self.entries.insert(key, entry);
    }

    /// Returns the keys of values to ask about again, as many as `most`: those that were used within [`KEPT`], first those whose
    /// last question is longest ago. A question that gets no answer would else keep the others from theirs.
    pub(super) fn due(&self, now: Instant, most: usize) -> Vec<K>
    where
        K: Clone,
    {
        let is_due = |entry: &Entry<V>| {
            entry.value.is_some() && now >= entry.at + RENEWED && now < entry.used.get() + KEPT
        };
        let mut due: Vec<_> = self.entries.iter().filter(|(_, entry)| is_due(entry)).collect();
        due.sort_by_key(|(_, entry)| entry.asked.get());
        due.truncate(most);
        due.iter().for_each(|(_, entry)| entry.asked.set(now));
        due.into_iter().map(|(key, _)| key.clone()).collect()
    }

    /// Makes all answers older by this time.
    #[cfg(test)]
    pub(super) fn age_by(&mut self, time: Duration) {
        for entry in self.entries.values_mut() {
            entry.at -= time;
            entry.used.set(entry.used.get() - time);
            entry.asked.set(entry.asked.get() - time);
            entry.until = entry.until.map(|until| until - time);
        }
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
            assert!(kept.entries.len() <= 10);
            assert_eq!(kept.fresh(&n), Some((n % 2 == 0).then_some(n)), "the newest stays");
        }
        assert_eq!(kept.any(&1000), None);
    }

    #[test]
    fn used_names_are_asked_about_again_before_they_are_old() {
        let mut kept = Kept::<u32, u32>::of_names();
        let due = |kept: &Kept<u32, u32>, most| {
            let mut due = kept.due(Instant::now(), most);
            due.sort_unstable();
            due
        };
        for (key, value) in [(1, Some(7)), (2, None), (3, Some(9))] {
            kept.keep(key, value, 10);
        }
        assert!(due(&kept, 9).is_empty());
        kept.age_by(RENEWED);
        // Listings do not wait for it.
        assert_eq!((due(&kept, 9), kept.fresh(&1)), (vec![1, 3], Some(Some(7))));
        // What got no answer comes last.
        let turns = [due(&kept, 1), due(&kept, 1)].concat();
        assert!(turns == [1, 3] || turns == [3, 1], "{turns:?}");
        kept.keep(1, Some(8), 10);
        assert_eq!((due(&kept, 9), kept.fresh(&1)), (vec![3], Some(Some(8))), "renamed");
        kept.age_by(KEPT_NAME - RENEWED);
        assert_eq!((kept.fresh(&3), kept.any(&3)), (None, Some(Some(9))), "for silence");
        // A renewal is not a use.
        kept.age_by(KEPT / 2);
        kept.keep(1, Some(8), 10);
        kept.age_by(KEPT / 2);
        assert!(due(&kept, 9).is_empty(), "not used for long");
        let _ = kept.fresh(&1);
        assert_eq!(due(&kept, 9), [1]);
    }

    #[test]
    fn old_answers_serve_only_silence() {
        let mut kept = Kept::<u32, u32>::default();
        kept.keep_for(Duration::ZERO, 1, (None, false), 10);
        assert_eq!((kept.fresh(&1), kept.any(&1)), (None, Some(None)));
        let left = |kept: &Kept<u32, u32>, key| kept.entries[&key].until.unwrap() - Instant::now();
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
        // An old answer of a controller counts for more than none.
        kept.keep_unsure(1, 10);
        assert_eq!(
            [1, 2, 5, 6, 7].map(|key| kept.is_open(&key)),
            [false, false, false, true, true]
        );
        kept.keep(6, None, 10);
        assert!(kept.is_unsure(&1) && !kept.is_open(&6));
    }
}
