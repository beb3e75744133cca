//! The configuration: a YAML file and command-line options, one set of rules, one [`Settings`] at the end.
//!
//! *Operation.* [`load`] reads the file into a [`tree`] of nodes that know where they stand, turns nodes and options into
//! values ([`file`], [`Options`]), lays the options over the file and checks what rules join several values ([`rules`]).
//! Nothing is served and nothing is changed by that; the only questions asked of the system are whether a share's folder
//! and a user's password are there; [`Known`] answers what is another crate's to know.
//!
//! *Errors.* Every [`Fault`] says where (file, line, column and the line itself, or the option), what is wrong, and what to
//! write instead. All faults are reported, not the first one.

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
mod lines;
mod log;
mod options;
mod overlap;
mod paths;
mod reader;
mod records;
mod refer;
mod rights;
mod rules;
mod sec;
mod settings;
mod suggest;
#[cfg(test)]
mod tests;
mod text;
mod tls;
mod tree;
mod units;

pub use access::{Access, Member, OnHost, Who};
pub use addresses::address;
pub use append::NewShare;
pub use audit::{Audit, AuditTo, Audited};
pub use ceph::Ceph;
pub use client::{Client, Whom};
pub use cluster::{Cluster, Endpoint, Moving, Service, load_cluster};
pub use elsewhere::Elsewhere;
pub use export::Export;
pub use fault::{Fault, Faults, Location};
pub use kerberos::{HostName, Kerberos, KerberosMap, Realm};
pub use lines::{Lines, Step};
pub use log::{LogFilter, LogFormat};
pub use options::{Options, ShareOption, UserOption};
pub use policy::{Cidr, Flavor, Protocols, Squash};
pub use records::records_of;
pub use refer::{Refer, ReferHost};
pub use rights::{Force, List, Masks, Mode, Symlinks};
pub use rules::{Known, admin_of, load, state_of};
pub use sec::Secs;
pub use settings::{
    Admin, Domain, Durability, Encryption, Identity, Limits, Names, NfsLocks, Ntlm, Portmap,
    PrivilegedPorts, Rdma, RdmaCrc, RdmaTransforms, RelaxedOrdering, Settings, Share, Signing, Smb,
    Source, User, user_name,
};
pub use suggest::nearest;
pub use tls::{ShareTls, Tls};
pub use units::{Port, Size, Span, Spin};
