//! Bindings of CephFS for a server: libcephfs's low-level calls (`ceph_ll_*`) with types that release their resources.
//!
//! *Operation.* Start with [`Mount`], one client of a CephFS file system. It returns [`Inode`]s, which return further inodes,
//! [`File`]s and [`Dir`]s. Each call is made for a user ([`Perm`]): like a kernel, the library checks owner, group, mode and access
//! control list. The program is not linked with the library and starts without it; [`loaded`] reports whether it is installed. The
//! crate uses only functions with the same signature in libcephfs 16 to 20.
//!
//! *Memory.* An inode keeps its mount alive, a file its inode: dropping the last one unmounts, as the library requires (16.2
//! crashes if an inode is used after the unmount). A process that ends may [`leave`] all mounts at once. `tests/layout.rs` compares
//! structures and constants with the C header.
//!
//! *Errors.* [`Errno`], the number that the library returned. If a mount fails, [`MountError`] names the step.
//!
//! *Threads.* The library has its own locks: all types may be used by several threads at once, except [`Dir`], which has a
//! position. Each call blocks until the cluster answers.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]
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

/// The error of a call: a positive errno(3) number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Converts the result of a call that returns zero or more, or a negative errno(3) number.
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
