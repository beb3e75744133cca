//! Bindings of winbind's client library, Samba's `libwbclient.so.0`, loaded at its first use.
//!
//! *Operation.* Start with [`Context`]: a connection to the winbindd of this host, which is a member of a domain. It tells the
//! machine and its domain, asks a domain controller about a password ([`Context::authenticate`]), and maps identifiers to numbers
//! and names and back. Every call may block for minutes while winbindd or its controller is silent, so callers use bounded threads.
//! The library reconnects after a restart of winbindd. The program is not linked with the library and starts without it; [`loaded`]
//! reports whether it is installed.
//!
//! *Memory.* Answers of the library are copied and freed at once. Keys are wiped when dropped.
//!
//! *Errors.* [`Error`] if winbindd does not answer; `None` for a name or identifier that does not exist.
//!
//! *Threads.* A context may move between threads but has one user at a time, which `&mut self` and the missing `Sync` ensure.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]
#![allow(unsafe_code)]

mod context;
mod error;
mod ffi;
mod logon;
mod names;
mod text;

pub use context::{Context, Details, DomainNames, Kind, Name, Number};
pub use error::Error;
pub use ffi::loaded;
pub use logon::{LoggedOn, Refused, Response};
