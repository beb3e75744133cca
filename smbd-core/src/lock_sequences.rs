//! `Open.LockSequenceArray` (MS-SMB2 section 3.3.1.10): the completed lock requests of an open that its client may repeat.

use std::sync::Mutex;

use mutex::locked;

/// Entries of `Open.LockSequenceArray` (MS-SMB2 section 3.3.1.10).
pub const LOCK_SEQUENCES: usize = 64;

/// The sequence numbers of completed locks: a client that lost the answer repeats the request with the same number.
pub struct LockSequences(Mutex<[Option<u8>; LOCK_SEQUENCES]>);

impl Default for LockSequences {
    fn default() -> Self {
        Self::of([None; LOCK_SEQUENCES])
    }
}

impl LockSequences {
    /// Restores the numbers that an earlier run of the server saved.
    pub fn of(numbers: [Option<u8>; LOCK_SEQUENCES]) -> Self {
        Self(Mutex::new(numbers))
    }

    pub fn all(&self) -> [Option<u8>; LOCK_SEQUENCES] {
        *locked(&self.0)
    }

    /// Returns whether this request was done before. If the slot holds another number, forgets that one.
    pub fn is_done(&self, slot: usize, number: u8) -> bool {
        let mut slots = locked(&self.0);
        let same = slots[slot] == Some(number);
        if !same {
            slots[slot] = None;
        }
        same
    }

    /// Records that this request has been done.
    pub fn done(&self, slot: usize, number: u8) {
        locked(&self.0)[slot] = Some(number);
    }
}
