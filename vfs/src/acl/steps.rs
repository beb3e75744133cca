//! The order in which a node gets a list and the equivalent mode bits.

/// One step of setting a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Sets the bits common to the old and the new mode.
    Close(u32),
    /// Stores the new list.
    Keep,
    /// Removes the host's own lists.
    TakeAway,
    /// Sets the mode that is equivalent to the list.
    Open(u32),
}

/// Returns the steps by which a file of mode `old` gets a list with the equivalent bits `new`. Rights are removed before new ones
/// are granted: at no time, also after a failure half-way, does the file admit a caller that neither the old list nor the new one
/// admits. The group's bits limit a list of the host, which decides until it is removed.
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
    fn list_set_removes_before_granting() {
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
                // After each step the bits grant no right that the list in force at that time does not.
                assert!(is_alone || mode & 0o777 == both, "{old:o} to {new:o}: {mode:o} {step:?}");
            }
            assert_eq!(mode, 0o4000 | new);
        }
    }
}
