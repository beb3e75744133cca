//! Commands of `headgate` that need no daemon: they measure servers, show that a machine can serve, and translate the
//! configurations of other servers. Also what all commands print with.
//!
//! Start with [`bench`], [`demo`] and [`import`]. The program is in the crate `gateway`, which has the command line.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

#[macro_use]
pub mod say;

pub mod bench;
pub mod cpu;
pub mod demo;
pub mod import;
pub mod interrupt;
pub mod journal;
pub mod password;
pub mod table;
