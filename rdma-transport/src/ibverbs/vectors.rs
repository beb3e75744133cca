//! Assigns completion vectors, and so interrupts, to connections.
//!
//! *Operation.* A device has several completion vectors, each with an interrupt, and the system spreads those over processors.
//! Connections take vectors in turn, so that no processor takes the interrupts of all. Both queues of a connection use
//! the same vector, because one task polls both.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// The completion vectors of one device.
#[derive(Debug)]
pub(super) struct Vectors {
    count: u32,
    next: AtomicU32,
}

impl Vectors {
    /// Creates the vectors of a device that reports this count.
    pub(super) fn new(count: c_int) -> Self {
        Self { count: u32::try_from(count).unwrap_or(1).max(1), next: AtomicU32::new(0) }
    }

    /// Returns the vector of the next connection.
    pub(super) fn take(&self) -> c_int {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.count;
        turn.cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_vectors_in_turn() {
        let vectors = Vectors::new(3);
        let taken: Vec<c_int> = (0..7).map(|_| vectors.take()).collect();
        assert_eq!(taken, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn device_without_vectors_gets_the_first() {
        for count in [c_int::MIN, -1, 0, 1] {
            let vectors = Vectors::new(count);
            assert_eq!((vectors.take(), vectors.take()), (0, 0), "{count}");
        }
    }
}
