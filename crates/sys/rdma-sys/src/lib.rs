//! The part of libibverbs and librdmacm that Headgate uses, under the libraries' own names.
//!
//! *Operation.* Every function looks its library up when it is first called (`dlopen`) and calls it from then on; what is
//! inline in the C headers (posting, polling) goes through the context's own table and costs no look-up. The program is
//! not linked with either library, so it starts where they are not installed. Names and types are those of the crate
//! `rdma-sys` of the registry, so that one line of a manifest puts that one in this one's place.
//!
//! *Memory.* As the C headers say. `tests/layout.rs` compares size and offsets of every structure with the headers.
//!
//! *Errors.* As the manual pages say. Where a library or a function is missing, the answer is null or -1, and `errno` is
//! `EOPNOTSUPP`; [`loaded`] tells it in words.
#![allow(unsafe_code, non_camel_case_types, missing_docs, clippy::missing_safety_doc)]

mod cma;
mod load;
mod verbs;

pub use cma::*;
pub use load::loaded;
pub use verbs::*;
