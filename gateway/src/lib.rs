//! The program `headgate`: command line, daemon, demonstration, check and measurement.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

#[macro_use]
extern crate tools;

pub mod accept;
pub mod admin;
pub mod admission;
mod announce;
pub mod attempts;
pub mod boot;
pub mod changes;
pub mod check;
pub mod cli;
mod client_names;
pub mod cluster;
pub mod control;
pub mod daemon;
mod datagram_socket;
mod demo;
mod descriptors;
mod domain;
mod domain_service;
pub mod generate;
mod greeting;
mod host_name;
mod http;
mod identities;
pub mod interfaces;
mod keytab;
mod ldap;
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
mod secret_files;
pub mod serve;
mod servers;
pub mod shares;
pub mod shutdown;
pub mod smb;
pub mod stuck;
mod tickets;
pub mod tls;
pub mod top;
mod trail;
mod trust;
pub mod user;
pub mod users;
mod wastebasket;
mod weak;
mod writable;
