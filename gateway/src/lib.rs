//! The program `headgate`: command line, daemon, demonstration, check and measurement.

pub mod bench;
pub mod boot;
pub mod check;
pub mod cli;
pub mod cpu;
pub mod demo;
pub mod networks;
pub mod port;
pub mod serve;
pub mod shutdown;
pub mod table;
