//! A program to call on a client's host, and the transport to use.

use nfs_proto::oncrpc::program;

/// The program that knows the ports of other programs.
pub(crate) const RPCBIND: u32 = program::PORTMAP;

/// A program and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callee {
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
}

/// The transport of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Calls over TCP.
    Stream,
    /// Calls over UDP.
    Datagrams,
}
