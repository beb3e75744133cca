//! Helpers for tests of several formats.

use proptest::prelude::*;

use super::Sid;

/// Generates any identifier.
pub(crate) fn any_sid() -> impl Strategy<Value = Sid> {
    (0..1_u64 << 48, proptest::collection::vec(any::<u32>(), 0..=15))
        .prop_map(|(a, s)| Sid::new(a, &s).unwrap())
}
