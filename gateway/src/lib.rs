//! The program `headgate`: command line, daemon, demonstration, check and measurement.

pub mod cli;
pub mod serve;
