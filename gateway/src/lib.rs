//! The program `headgate`: command line, daemon, demonstration, check and measurement.

#[macro_use]
mod say;

pub mod accept;
pub mod admin;
pub mod admission;
pub mod attempts;
pub mod bench;
pub mod boot;
pub mod check;
pub mod cli;
mod client_names;
pub mod control;
pub mod cpu;
pub mod daemon;
pub mod demo;
mod descriptors;
pub mod doors;
pub mod generate;
mod greeting;
mod http;
pub mod import;
pub mod interfaces;
mod interrupt;
pub mod listen;
mod local_user;
pub mod logs;
mod manager;
mod memory;
pub mod networks;
mod people;
mod place;
pub mod port;
mod portmap;
mod pulse;
mod rdma;
pub mod reload;
mod reloads;
pub mod serve;
pub mod shares;
pub mod shutdown;
pub mod smb;
pub mod stuck;
pub mod table;
pub mod top;
pub mod user;
pub mod users;
