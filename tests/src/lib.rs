//! What the end-to-end tests share. The tests themselves are in `tests/tests`; the lab, with real kernels, is in
//! `tests/lab`.

pub mod fuzz;
pub mod process;
pub mod raw;
pub mod record;
pub mod sizes;
pub mod world;
