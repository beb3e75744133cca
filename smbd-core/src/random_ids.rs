//! Random identifiers of opens, taken from the kernel many at a time, to save a system call for each open.

use std::sync::Mutex;

use mutex::locked;

use crate::status::Status;

/// Identifiers that one system call fetches.
const BATCH: usize = 64;

static FETCHED: Mutex<Vec<[u64; 2]>> = Mutex::new(Vec::new());

/// Returns 128 random bits that no other call returned, or STATUS_INSUFFICIENT_RESOURCES if the kernel has none.
pub(crate) fn take() -> Result<[u64; 2], Status> {
    let mut fetched = locked(&FETCHED);
    if fetched.is_empty() {
        let mut random = [[[0; 8]; 2]; BATCH];
        getrandom::fill(random.as_flattened_mut().as_flattened_mut())
            .map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        fetched.extend(random.map(|pair| pair.map(u64::from_le_bytes)));
    }
    fetched.pop().ok_or(Status::INSUFFICIENT_RESOURCES)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn identifiers_of_many_batches_are_distinct() {
        let taken: HashSet<_> = (0..BATCH * 4).map(|_| take().unwrap()).collect();
        assert_eq!(taken.len(), BATCH * 4);
        assert!(taken.iter().all(|id| *id != [0, 0]));
    }
}
