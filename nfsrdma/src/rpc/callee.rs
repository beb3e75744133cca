//! What is called on a client's host, and by what it is reached.

use nfs_proto::oncrpc::program;

/// The program that is asked where others are.
pub(crate) const RPCBIND: u32 = program::PORTMAP;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callee {
    /// Program.
    pub program: u32,
    /// Version.
    pub version: u32,
    /// Procedure.
    pub procedure: u32,
}

/// By what a program is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCP.
    Stream,
    /// UDP.
    Datagrams,
}
