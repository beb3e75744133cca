//! XDR (RFC 4506): the types of `wire`, and the declarations of the specifications' structures.
//!
//! The structures of the specifications are written once, field by field in the order of the `.x` file, by the macros of
//! this module, which make `parse` and `emit` of them. A list or opaque says its limit behind `as`, and a count is compared with it
//! before memory is taken.

mod macros;
#[cfg(test)]
pub(crate) mod sample;

pub use wire::xdr::{Bounded, Bulk, Chain, Xdr, data, decode, encode};

pub(crate) use macros::{choice, numbers, structs, union};
