//! Kerberos for a server, and for a client as far as its context: MIT's `libgssapi_krb5.so.2`, loaded when it is first called.
//!
//! *Operation.* An [`Acceptor`] takes the tokens of one client (RFC 2743, RFC 4121; the krb5 mechanism alone, without SPNEGO) and
//! ends in an [`Established`] context, which says who the client is and gives the keys. The library reads the keytab, `krb5.conf`
//! (`KRB5_CONFIG`, else /etc/krb5.conf) and its replay cache, so all of that may wait for the disk: [`Pool`] runs it beside the
//! runtime's own threads, bounded. [`keytab`] reads what a keytab holds without the library. The program is not linked with the
//! library and starts where it is not installed; [`loaded`] says in words whether it is there.
//!
//! *Memory.* A context costs a few KiB until it is dropped. Keys are wiped when they are dropped.
//!
//! *Errors.* [`Error`] holds what the library says and a [`Cause`] for what an administrator can do about it. Whatever bytes a
//! client sends, nothing panics.
//!
//! *Threads.* A context may move between threads and is used by one at a time, which `&mut self` and the missing `Sync` see to.
#![allow(unsafe_code)]

mod accept;
mod error;
mod ffi;
mod initiate;
pub mod keytab;
mod load;
mod lucid;
mod names;
mod pool;

pub use accept::{Acceptor, Established, Step, accept};
pub use error::Error;
pub use gss_krb5::Cause;
pub use initiate::{Initiator, Tickets};
pub use load::loaded;
pub use lucid::{Lucid, LucidKey};
pub use pool::{Busy, Pool};
