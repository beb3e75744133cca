//! How bytes get from a file to a buffer: in place when they are at hand, else on threads of our own.

pub mod far;
pub mod limits;
pub mod threads;
pub mod transfer;
pub(crate) mod wakes;
