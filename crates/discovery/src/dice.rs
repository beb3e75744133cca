//! Random delays, so that hosts of a network do not answer at the same moment.

use std::time::Duration;

/// A source of numbers that need not be secret.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Starts from random bytes of the kernel, or from a fixed number if the kernel returns an error.
    pub fn new() -> Self {
        Self(getrandom::u64().unwrap_or(0x9E37_79B9_7F4A_7C15))
    }

    /// Starts from this number.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a time from the first up to the second, in milliseconds.
    pub fn between(&mut self, low: u64, high: u64) -> Duration {
        // splitmix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        Duration::from_millis(low + z % (high.saturating_sub(low) + 1))
    }
}

impl Default for Dice {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_within_their_bounds_and_differ() {
        let mut dice = Dice::seeded(7);
        let all: Vec<_> = (0..200).map(|_| dice.between(20, 120)).collect();
        assert!(all.iter().all(|d| (20..=120).contains(&d.as_millis())));
        assert!(all.iter().collect::<std::collections::HashSet<_>>().len() > 50);
        assert_eq!(dice.between(5, 5), Duration::from_millis(5));
        assert_eq!(dice.between(5, 4), Duration::from_millis(5));
    }
}
