//! Checks how many memory mappings the process may still create.
//!
//! *Operation.* The queues of a connection are mappings, whose number the kernel limits for each process (`vm.max_map_count`).
//! Threads need a few as well, and if one cannot get them in its first steps, the standard library aborts the process. A connection
//! is therefore refused if it would leave too few for threads. *Memory.* [`SPARE`] pages of address space during the check.
//! *Errors.* `io::Error` of the kernel: `ENOMEM`.
#![allow(unsafe_code)]

use std::io;
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::param::page_size;

/// Mappings to keep free: a thread needs six (stack, signal stack and heap, each with a guard page), and two threads may start.
const SPARE: usize = 16;

/// Checks that this many mappings are available.
pub(super) fn some_are_left() -> io::Result<()> {
    let page = page_size();
    let len = SPARE * page;
    // SAFETY: new addresses, where nothing is read or written.
    let start =
        unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE)? };
    // Changing every second page splits the area into that many mappings.
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
    fn check_passes_with_few_mappings() {
        assert!(
            (0..=65_536 / SPARE).all(|_| some_are_left().is_ok()),
            "one look leaves mappings to the next"
        );
    }
}
