//! Bindings of Kerberos for a server, and for a client until its context is established: MIT's `libgssapi_krb5.so.2`, loaded at its
//! first use.
//!
//! *Operation.* Start with [`Acceptor`]: it processes the tokens of one client (RFC 2743, RFC 4121; only the krb5 mechanism,
//! without SPNEGO) and returns an [`Established`] context with the client's identity and the keys. The library reads the keytab,
//! `krb5.conf` (`KRB5_CONFIG`, otherwise /etc/krb5.conf) and its replay cache, which may block on the disk: [`Pool`] runs the calls
//! on a bounded number of separate threads. [`keytab`] reads the entries of a keytab without the library, and [`prove`] asks a KDC
//! whether its keys are current. The program is not linked
//! with the library and starts without it; [`loaded`] reports whether it is installed.
//!
//! *Memory.* A context takes a few KiB until it is dropped. Keys are wiped when dropped.
//!
//! *Errors.* [`Error`] has the library's message and a [`Cause`] that an administrator can act on. No input of a client causes a
//! panic.
//!
//! *Threads.* A context may move between threads but has one user at a time, which `&mut self` and the missing `Sync` ensure.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]
#![allow(unsafe_code)]

mod accept;
mod error;
mod fault;
mod ffi;
mod initiate;
pub mod keytab;
mod load;
mod lucid;
mod names;
mod pool;
mod prove;

pub use accept::{Acceptor, Established, Step, accept};
pub use error::Error;
pub use fault::Fault;
pub use gss_krb5::Cause;
pub use initiate::{Initiator, Tickets};
pub use load::loaded;
pub use lucid::{Lucid, LucidKey};
pub use pool::{Busy, Pool};
pub use prove::prove;
