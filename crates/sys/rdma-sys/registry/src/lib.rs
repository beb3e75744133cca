//! Adds to the registry's `rdma-sys` crate what it lacks, so that it can replace the workspace's crate of that name.
#![allow(missing_docs)] // The names come from the libraries.

pub use registry::*;

// A member of an anonymous C enumeration that bindgen omitted.
pub const RDMA_OPTION_ID: u32 = 0;
pub const RDMA_OPTION_ID_TOS: u32 = 0;
pub const RDMA_OPTION_ID_REUSEADDR: u32 = 1;
pub const RDMA_OPTION_ID_ACK_TIMEOUT: u32 = 3;

/// A Rust enumeration in the registry's crate, but a module of constants here.
pub mod ibv_event_type {
    pub use registry::ibv_event_type::*;

    pub type Type = registry::ibv_event_type;
}

/// A program with the registry's crate is linked with both libraries, or does not start.
pub fn loaded() -> Result<(), String> {
    Ok(())
}
