//! The crate `rdma-sys` of the registry in the place of the workspace's own: what its bindings leave out, and no more.
#![allow(missing_docs)] // The names are those of the libraries.

pub use registry::*;

// Of a C enumeration without a name, whose members bindgen was not asked for.
pub const RDMA_OPTION_ID: u32 = 0;
pub const RDMA_OPTION_ID_REUSEADDR: u32 = 1;

/// An enumeration of Rust there, a module of numbers here.
pub mod ibv_event_type {
    pub use registry::ibv_event_type::*;

    pub type Type = registry::ibv_event_type;
}

/// Its program is linked with both libraries, or does not start.
pub fn loaded() -> Result<(), String> {
    Ok(())
}
