//! Messages from fragments (MS-SMBD section 3.1.5.8): pure. Says where the next data belongs; moves none.

use super::violation::Violation;

/// What a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// No data: credits, or a sign of life.
    Nothing,
    /// A message by itself.
    Whole,
    /// The first of a message of so many bytes; it may be empty.
    First(usize),
    /// One of those between.
    More,
    /// The last one of its message.
    Last,
}

/// Follows the fragments of one direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reassembly {
    /// Bytes that are left of the message that has begun.
    left: Option<usize>,
}

impl Reassembly {
    /// A message has begun and not ended.
    pub(super) fn is_inside(&self) -> bool {
        self.left.is_some()
    }

    /// A message came with `len` bytes of data, which says that `remaining` follow. Both together were checked against the
    /// largest message.
    ///
    /// Peers were seen to grant credits between two fragments by a message without any data; that takes nothing from the
    /// message that has begun.
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
    fn an_empty_first_fragment_announces_its_message() {
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
    fn what_is_left_must_be_what_was_said() {
        for (len, remaining) in [(10, 0), (10, 81), (10, 79), (100, 0), (0, 91)] {
            let mut r = Reassembly::default();
            assert_eq!(r.next(10, 90), Ok(Step::First(100)));
            let said = (len + remaining) as u64;
            assert_eq!(r.next(len, remaining), Err(Violation::DataRemaining(said, 90)));
        }
    }

    proptest! {
        /// However a message is cut, its last fragment is its last.
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
