//! The identity of a caller that owns state of version 4.

use crate::context::CallContext;
use crate::rpc::Flavor;

/// A caller as the owner of a client and of its opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Principal {
    /// AUTH_SYS or AUTH_NONE.
    plain: Option<Flavor>,
    uid: u32,
    /// Fingerprint of the Kerberos principal, whatever the protection of its calls.
    pub(super) gss: u128,
}

impl Principal {
    /// The principal of an AUTH_SYS user.
    #[cfg(test)]
    pub(super) fn of_uid(uid: u32) -> Self {
        Self { plain: Some(Flavor::Sys), uid, gss: 0 }
    }

    /// Returns whether the caller has proved its identity.
    pub(super) fn is_proven(&self) -> bool {
        self.plain.is_none()
    }

    /// Returns the caller of this call.
    pub(super) fn of(call: &CallContext) -> Self {
        match call.flavor {
            // Machines share the anonymous user for files, but each owns its client separately.
            Flavor::Gss(_) => Self { plain: None, uid: 0, gss: call.principal },
            plain => Self { plain: Some(plain), uid: call.cred.uid, gss: 0 },
        }
    }
}
