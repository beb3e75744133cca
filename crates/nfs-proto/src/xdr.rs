//! XDR (RFC 4506): the types of `wire`, and macros that declare the specifications' structures.
//!
//! Each structure is declared once, field by field in the order of the `.x` file; the macros of this module generate `parse` and
//! `emit`. The limit of a list or opaque field follows `as`, and a count is checked against it before memory is allocated.

mod macros;
#[cfg(test)]
pub(crate) mod sample;

pub use wire::xdr::{Bounded, Bulk, Chain, Xdr, data, decode, encode};

pub(crate) use macros::{choice, numbers, structs, union};
