//! Reads the configuration, a YAML file plus command-line options, and checks it against one set of rules.
//!
//! Start with [`load`] and [`Settings`]. [`load`] parses the file into a [`tree`] of nodes with known positions, converts nodes and
//! options to values ([`file`], [`Options`]), lets options override the file, and checks the rules that combine several values
//! ([`rules`]). It has no side effects and asks the system only whether a share's folder and a user's password
//! exist; [`Known`] answers questions that belong to other crates.
//!
//! *Errors.* Every [`Fault`] has a position (file, line, column and text, or the option), a description and a suggested correction.
//! All faults are reported, not only the first.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]

mod access;
mod addresses;
mod append;
mod audit;
mod ceph;
mod client;
mod cluster;
mod elsewhere;
mod export;
mod fault;
mod file;
pub mod in_time;
mod kerberos;
pub mod keys;
mod ldap;
mod lines;
mod links;
mod log;
mod macos;
mod options;
mod paths;
mod rates;
mod reader;
mod records;
mod refer;
mod rights;
mod rules;
mod sec;
mod server;
mod settings;
mod suggest;
mod targets;
#[cfg(test)]
mod tests;
mod text;
mod tls;
mod tree;
mod units;
mod wastebasket;

pub use access::{Access, Member, OnHost, Privileges, Who};
pub use addresses::address;
pub use append::NewShare;
pub use audit::{Audit, AuditTo, Audited};
pub use ceph::Ceph;
pub use client::{Client, Whom};
pub use cluster::{Cluster, Endpoint, Moving, Service, load_cluster};
pub use elsewhere::Elsewhere;
pub use export::Export;
pub use fault::{Fault, Faults, Location};
pub use kerberos::{DomainBy, HostName, Kerberos, KerberosMap, Realm};
pub use ldap::{LdapServer, UsersFrom};
pub use lines::{Lines, Step};
pub use links::{Link, Links};
pub use log::{LogFilter, LogFormat};
pub use macos::{Model, TimeMachine};
pub use options::{Options, ShareOption, UserOption};
pub use policy::{Cidr, Flavor, Measure, Protocols, Rates, SnapshotPattern, Squash};
pub use rates::{ByteRate, OperationRate, rates_text};
pub use records::records_of;
pub use refer::{Refer, ReferHost};
pub use rights::{Force, List, Masks, Mode, Symlinks};
pub use rules::{Known, admin_of, load, password_length_of, state_of};
pub use sec::Secs;
pub use settings::{
    Admin, Compression, DirectoryLeases, Discovery, Domain, Durability, Encryption, Identity,
    Limits, Names, NfsLocks, Ntlm, Portmap, PrivilegedPorts, Rdma, RdmaCrc, RdmaTransforms,
    RelaxedOrdering, Settings, Share, Signing, Smb, Source, User, user_name,
};
pub use suggest::nearest;
pub use tls::{ShareTls, Tls};
pub use units::{Dscp, PasswordLength, Port, Size, Span, Spin};
pub use wastebasket::{Age, Excluded, Wastebasket};
