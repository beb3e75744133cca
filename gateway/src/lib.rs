//! The program `headgate`: command line, daemon, demonstration, check and measurement.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

#[macro_use]
mod say;

pub mod accept;
pub mod admin;
pub mod admission;
pub mod attempts;
pub mod bench;
pub mod boot;
pub mod changes;
pub mod check;
pub mod cli;
mod client_names;
pub mod cluster;
pub mod control;
pub mod cpu;
pub mod daemon;
mod datagram_socket;
pub mod demo;
mod descriptors;
mod domain;
pub mod generate;
mod greeting;
mod http;
mod identities;
pub mod import;
pub mod interfaces;
mod interrupt;
mod journal;
mod keytab;
pub mod listen;
pub mod listeners;
pub mod load;
mod local_user;
pub mod logs;
mod lost_access;
mod manager;
mod memory;
pub mod networks;
mod passdb;
mod place;
mod pools;
pub mod port;
mod portmap;
mod pulse;
mod rdma;
pub mod records;
pub mod reload;
mod reloads;
pub mod serve;
mod servers;
pub mod shares;
pub mod shutdown;
pub mod smb;
pub mod stuck;
pub mod table;
mod tickets;
pub mod tls;
pub mod top;
mod trail;
mod trust;
pub mod user;
pub mod users;
mod weak;
mod writable;
