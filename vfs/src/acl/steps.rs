//! The order in which a node gets a list and the mode bits that stand for it.

/// A part of setting a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The mode that old and new have in common.
    Close(u32),
    /// The list itself.
    Keep,
    /// The host's own lists go.
    TakeAway,
    /// The mode that stands for the list.
    Open(u32),
}

/// How a file of the mode `old` gets a list that the bits `new` stand for. It closes before it opens: to nobody the file is open
/// whom neither the old list nor the new one lets in, also where this ends halfway. The bits of the group limit a list of the
/// host's own, which decides until it is taken away.
pub(crate) fn steps(old: u32, new: u32) -> impl Iterator<Item = Step> {
    let (narrow, wide) = (old & (0o7000 | new), old & 0o7000 | new);
    let close = (old != narrow).then_some(Step::Close(narrow));
    let open = (wide != narrow).then_some(Step::Open(wide));
    [close, Some(Step::Keep), Some(Step::TakeAway), open].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_set_by_closing_first_and_opening_last() {
        for (old, new) in (0..=0o777).flat_map(|old| (0..=0o777).map(move |new| (old, new))) {
            let (mut mode, mut is_kept, mut is_alone) = (0o4000 | old, false, false);
            for step in steps(0o4000 | old, new) {
                match step {
                    Step::Close(to) => (mode, _) = (to, assert!(!is_kept)),
                    Step::Keep => is_kept = true,
                    Step::TakeAway => is_alone = true,
                    Step::Open(to) => (mode, _) = (to, assert!(is_kept && is_alone)),
                }
                let both = old & new;
                // Wherever it ends, nobody has by the bits what the list that goes with them does not give.
                assert!(is_alone || mode & 0o777 == both, "{old:o} to {new:o}: {mode:o} {step:?}");
            }
            assert_eq!(mode, 0o4000 | new);
        }
    }
}
