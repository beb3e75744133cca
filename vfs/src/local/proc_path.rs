//! Paths of open files below `/proc`.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A path by which the kernel finds an open file, also one opened with `O_PATH`.
pub(super) struct ProcPath {
    room: [u8; 26],
    end: usize,
}

impl ProcPath {
    pub(super) fn of(fd: BorrowedFd<'_>) -> Self {
        let mut room = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
        let mut digits = [0; 12];
        let digits = decimal(fd.as_raw_fd(), &mut digits);
        let end = 14 + digits.len();
        room[14..end].copy_from_slice(digits);
        Self { room, end }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.room[..self.end]
    }
}

/// Writes a descriptor's number in decimal, for a name in `/proc/self/fd`.
pub(super) fn decimal(fd: i32, room: &mut [u8; 12]) -> &[u8] {
    let mut n = fd.unsigned_abs();
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + u8::try_from(n % 10).unwrap_or(0);
        n /= 10;
        if n == 0 {
            return &room[at..];
        }
    }
}
