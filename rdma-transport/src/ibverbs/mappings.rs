//! Mappings that the process may still have.
//!
//! *Operation.* The queues of a connection are mappings, of which the kernel lets a process have so many (`vm.max_map_count`). A
//! thread needs a few as well, and where it gets none in its first steps the standard library ends the process. So a connection is
//! refused that would leave fewer than threads need.
//! *Memory.* [`SPARE`] pages of addresses, for the moment of the look.
//! *Errors.* `io::Error` of the kernel: `ENOMEM`.
#![allow(unsafe_code)]

use std::io;
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::param::page_size;

/// What must be left: a thread needs six (its stack, that of its signals and its heap, with a guard each), and two may start.
const SPARE: usize = 16;

/// That there are so many more to be had.
pub(super) fn some_are_left() -> io::Result<()> {
    let page = page_size();
    let len = SPARE * page;
    // SAFETY: new addresses, where nothing is read or written.
    let start =
        unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE)? };
    // Each second page is a mapping of its own then, and each between them.
    let apart = (1..SPARE).step_by(2).try_for_each(|n| {
        // SAFETY: a page of what was mapped just now, which nobody else knows.
        unsafe { mprotect(start.wrapping_byte_add(n * page), page, MprotectFlags::READ) }
    });
    // SAFETY: as before; nothing refers to it.
    unsafe { munmap(start, len)? };
    Ok(apart?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_few_mappings_has_some_left() {
        assert!(
            (0..=65_536 / SPARE).all(|_| some_are_left().is_ok()),
            "one look leaves mappings to the next"
        );
    }
}
