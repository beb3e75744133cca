//! Transfers between files and buffers: in place if the data is cached, else on separate threads.

pub mod far;
mod jobs;
pub mod limits;
pub mod threads;
pub mod transfer;
pub(crate) mod wakes;
