//! The program `headgate`: command line, daemon, demonstration, check and measurement.

pub mod bench;
pub mod cli;
pub mod cpu;
pub mod demo;
pub mod serve;
pub mod table;
