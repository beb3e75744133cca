//! Who acts, for the audit trail.

use std::net::IpAddr;

use audit::Party;

/// Who acts, as the audit trail names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    /// Address of the client.
    pub peer: IpAddr,
    /// `smb` or `nfs`.
    pub protocol: &'static str,
    /// The user.
    pub party: Party,
}

/// Says who acts: asked where something is recorded, and not before.
pub trait Actor: Send + Sync {
    /// The caller, before a share makes another one of it.
    fn acting(&self) -> Acting;
}

impl std::fmt::Debug for dyn Actor + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Actor")
    }
}
