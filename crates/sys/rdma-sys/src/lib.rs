//! The part of libibverbs and librdmacm that Headgate uses, under the C names.
//!
//! *Operation.* Every function looks up its library at the first call (`dlopen`) and calls it directly afterwards. Inline functions
//! of the C headers (posting, polling) use the context's function table and need no look-up. The program is not linked with either
//! library, so it starts without them. Names and types match the registry's crate `rdma-sys`, so that changing one line of a
//! manifest replaces this crate by that one.
//!
//! *Memory.* Follow the C headers. `tests/layout.rs` compares size and offsets of every structure with the headers.
//!
//! *Errors.* Follow the manual pages. If a library or function is missing, the result is null or -1, and `errno` is `EOPNOTSUPP`;
//! [`loaded`] describes the cause.
#![allow(unsafe_code, non_camel_case_types, missing_docs, clippy::missing_safety_doc)]

mod cma;
mod load;
mod verbs;

pub use cma::*;
pub use load::loaded;
pub use verbs::*;
