//! The sequence window of a context (RFC 2203 section 5.3.3.1): each number is accepted once, and numbers below the window are
//! refused.

use std::sync::atomic::{AtomicU32, Ordering};

/// Size of the window, as reported to clients; the same as Linux' server.
pub(crate) const WINDOW: u32 = 128;

/// The numbers seen. It needs no lock: each number maps to one slot, whose value only grows.
#[derive(Debug)]
pub(crate) struct Window {
    /// The highest number seen plus one.
    next: AtomicU32,
    /// For each slot (number modulo the window), the last number seen plus one.
    taken: [AtomicU32; WINDOW as usize],
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { next: AtomicU32::new(0), taken: [const { AtomicU32::new(0) }; WINDOW as usize] }
    }

    /// Accepts a number that is new and not below the window. At most `MAXSEQ`.
    pub(crate) fn take(&self, number: u32) -> bool {
        let mark = number.saturating_add(1);
        let highest = self.next.fetch_max(mark, Ordering::Relaxed).max(mark);
        if highest - mark >= WINDOW {
            return false;
        }
        let place = usize::try_from(number % WINDOW).unwrap_or(0);
        // Numbers in the same slot differ by multiples of the window: a higher one there means that this one is below the window.
        let Some(place) = self.taken.get(place) else { return false };
        place.fetch_max(mark, Ordering::Relaxed) < mark
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicUsize;

    use proptest::prelude::*;

    use super::*;

    /// The rule as the specification states it.
    #[derive(Default)]
    struct Model {
        taken: BTreeSet<u32>,
    }

    impl Model {
        fn take(&mut self, number: u32) -> bool {
            let highest = self.taken.last().copied().unwrap_or(0).max(number);
            highest - number < WINDOW && self.taken.insert(number)
        }
    }

    proptest! {
        #[test]
        fn window_matches_model(
            start in prop::sample::select(vec![0u32, 1, 1000, 0x7fff_ff00]),
            steps in prop::collection::vec(0u32..400, 1..300),
        ) {
            let (window, mut model) = (Window::new(), Model::default());
            for step in steps {
                let number = (start + step).min(0x8000_0000);
                prop_assert_eq!(window.take(number), model.take(number), "{}", number);
            }
        }
    }

    #[test]
    fn number_is_accepted_once() {
        let (window, heard) = (Window::new(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..WINDOW {
                        heard.fetch_add(usize::from(window.take(number)), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(heard.into_inner(), WINDOW as usize);
    }

    #[test]
    fn highest_number_is_accepted_once() {
        let window = Window::new();
        assert!(window.take(0x8000_0000) && !window.take(0x8000_0000));
        assert!(!window.take(0x8000_0000 - WINDOW) && window.take(0x8000_0000 - WINDOW + 1));
    }
}
