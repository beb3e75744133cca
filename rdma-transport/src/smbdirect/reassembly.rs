//! Assembles messages from fragments (MS-SMBD section 3.1.5.8). No I/O: it decides where data belongs, without moving it.

use super::violation::Violation;

/// The kind of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// No data: credits, or a keepalive.
    Nothing,
    /// The fragment is a whole message.
    Whole,
    /// The first fragment of a message of this size; it may be empty.
    First(usize),
    /// A fragment in the middle.
    More,
    /// The last fragment of its message.
    Last,
}

/// Follows the fragments of one direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reassembly {
    /// Remaining bytes of the current message.
    left: Option<usize>,
}

impl Reassembly {
    /// True if a message has begun and not ended.
    pub(super) fn is_inside(&self) -> bool {
        self.left.is_some()
    }

    /// Handles a fragment with `len` bytes of data that announces `remaining` more. Their sum was checked against the largest
    /// message.
    ///
    /// Some peers grant credits between two fragments in a message without data, which does not count as a fragment.
    pub(super) fn next(&mut self, len: usize, remaining: usize) -> Result<Step, Violation> {
        let Some(left) = self.left else {
            self.left = Some(remaining).filter(|n| *n > 0);
            return Ok(match (len, remaining) {
                (0, 0) => Step::Nothing,
                (_, 0) => Step::Whole,
                _ => Step::First(len + remaining),
            });
        };
        if (len, remaining) == (0, 0) {
            return Ok(Step::Nothing);
        }
        if len + remaining != left {
            return Err(Violation::DataRemaining((len + remaining) as u64, left));
        }
        self.left = Some(remaining).filter(|n| *n > 0);
        Ok(if remaining == 0 { Step::Last } else { Step::More })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_first_fragment_announces_size() {
        let mut r = Reassembly::default();
        assert_eq!(r.next(0, 10), Ok(Step::First(10)));
        assert_eq!(r.next(0, 10), Ok(Step::More));
        assert_eq!(r.next(0, 0), Ok(Step::Nothing), "a grant between fragments");
        assert_eq!(r.next(9, 1), Ok(Step::More));
        assert_eq!(r.next(1, 0), Ok(Step::Last));
        assert_eq!(r.left, None);
        assert_eq!(r.next(0, 0), Ok(Step::Nothing));
        assert_eq!(r.next(5, 0), Ok(Step::Whole));
    }

    #[test]
    fn remaining_bytes_must_match() {
        for (len, remaining) in [(10, 0), (10, 81), (10, 79), (100, 0), (0, 91)] {
            let mut r = Reassembly::default();
            assert_eq!(r.next(10, 90), Ok(Step::First(100)));
            let said = (len + remaining) as u64;
            assert_eq!(r.next(len, remaining), Err(Violation::DataRemaining(said, 90)));
        }
    }

    proptest! {
        /// However a message is split, its last fragment is recognized.
        #[test]
        fn any_cut_is_followed(sizes in proptest::collection::vec(0usize..50, 1..40)) {
            let total: usize = sizes.iter().sum();
            prop_assume!(total > 0);
            let (mut r, mut left) = (Reassembly::default(), total);
            for (i, len) in sizes.iter().enumerate() {
                if left == 0 {
                    break;
                }
                left -= len;
                let expected = match (i, left) {
                    (0, 0) => Step::Whole,
                    (0, _) => Step::First(total),
                    (_, 0) => Step::Last,
                    _ => Step::More,
                };
                prop_assert_eq!(r.next(*len, left), Ok(expected));
            }
            prop_assert_eq!(r.left, None);
        }
    }
}
