//! CephFS for a server: libcephfs's low-level calls (`ceph_ll_*`) behind types that free what they hold.
//!
//! *Operation.* A [`Mount`] is one client of a CephFS file system. It gives [`Inode`]s, and those give each other, [`File`]s and
//! [`Dir`]s. Each call names the user it is made for ([`Perm`]): the library compares that user with owner, group, mode and access
//! control list, as a kernel does. The program is not linked with the library and starts where it is not installed; [`loaded`]
//! says in words whether it is there. Only functions are used that libcephfs 16 to 20 have with the same arguments.
//!
//! *Memory.* An inode holds its mount, a file its inode: the mount ends when the last of them is dropped, as the library demands
//! (16.2 crashes at the next call on an inode that was held in an unmount). A process that ends may [`leave`] all at once.
//! `tests/layout.rs` compares structures and constants with the C header.
//!
//! *Errors.* [`Errno`], the library's own number. Where a mount fails, [`MountError`] says at which step.
//!
//! *Threads.* The library locks: everything here may be used by several threads at once, but for a [`Dir`], which has a place.
//! Each call blocks for as long as the cluster gives no answer.
#![allow(unsafe_code)]

mod dir;
pub mod ffi;
mod file;
mod inode;
mod load;
mod mount;

use std::fmt;

pub use dir::{Dir, Entry};
pub use file::{Fallocate, File};
pub use inode::{Changes, Inode, Name};
pub use load::{loaded, version};
pub use mount::{
    Mount, MountError, Options, Perm, Step, Vino, leave, unmount_aside, wait_unmounted,
};

/// Why a call failed: a number of errno(3), positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The answer of a call that gives zero or more, or a negative number of errno(3).
    fn check(answer: impl Into<i64>) -> Result<u64, Self> {
        let answer = answer.into();
        u64::try_from(answer)
            .map_err(|_| Self(i32::try_from(answer.saturating_neg()).unwrap_or(libc::EIO)))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}
