//! What an administrator says of a share and its server obeys, as values that mean the same in the configuration, in the namespace
//! and to both servers: protocols, squash, flavors of RPC, ranges of addresses. Pure; each is read from its word and shown by it.
//!
//! *Errors.* A word that is none is refused by one line that names those that are.

mod cidr;
mod share;
mod words;

pub use cidr::Cidr;
pub use share::{Flavor, Protocols, Squash};
pub use words::listed;
