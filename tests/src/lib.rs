//! Code shared by the end-to-end tests, which are in `tests/tests`; the lab with real kernels is in `tests/lab`.

// The crate is not published; a doc comment that repeats a name helps no reader.
#![allow(missing_docs)]

pub mod fuzz;
#[cfg(feature = "world")]
pub mod kdc;
pub mod raw;

#[cfg(feature = "world")]
pub mod process;
#[cfg(feature = "world")]
pub mod record;
#[cfg(feature = "world")]
pub mod relay;
#[cfg(feature = "world")]
pub mod sizes;
#[cfg(feature = "world")]
pub mod world;
