//! Identifies the user and client of an operation, for the audit trail.

use std::net::IpAddr;

use audit::Party;

/// The user and client of an operation, as the audit trail names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    /// Address of the client.
    pub peer: IpAddr,
    /// `smb` or `nfs`.
    pub protocol: &'static str,
    /// The user that acts.
    pub party: Party,
    /// True if the user has proved its identity, with a password or a ticket: another user of the same address cannot pose as it.
    pub is_proven: bool,
}

/// Provides the user and client of an operation; asked only when a record is written.
pub trait Actor: Send + Sync {
    /// Returns the caller, before a share maps it to another user.
    fn acting(&self) -> Acting;
}

impl std::fmt::Debug for dyn Actor + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Actor")
    }
}
