//! State that is bound to the credential of a machine: SP4_MACH_CRED (RFC 8881 sections 2.10.8.3 and 18.35.3).
//!
//! *Operation.* A client whose EXCHANGE_ID came by Kerberos with integrity or privacy may ask for it. From then on its sessions are
//! made, bound and ended by that principal alone, protected as well; a connection carries calls of a session only once it was
//! bound to it. What its users hold the machine may give back in their place, whose tickets may have run out.
//!
//! *Errors.* NFS4ERR_WRONG_CRED, and NFS4ERR_CONN_NOT_BOUND_TO_SESSION for a connection that was not bound.

use nfs_proto::nfs4::ops::StateProtectOps4;

use super::attrs::Bitmap;
use super::wire::op;

/// Always enforced, as by Linux' server: without one of them another could end what the rest protects.
const ENFORCED: Bitmap = Bitmap::of(&[
    op::BIND_CONN_TO_SESSION,
    op::EXCHANGE_ID,
    op::CREATE_SESSION,
    op::DESTROY_SESSION,
    op::DESTROY_CLIENTID,
]);
/// Enforced for clients that ask for it.
const ENFORCED_IF_ASKED: Bitmap = Bitmap::of(&[op::BACKCHANNEL_CTL, op::DELEGPURGE]);
/// What gives back or looks at state. Not WRITE and COMMIT: to files a machine is nobody; nor SECINFO, which looks a name up.
const ALLOWED: Bitmap = Bitmap::of(&[
    op::CLOSE,
    op::OPEN_DOWNGRADE,
    op::LOCKU,
    op::DELEGRETURN,
    op::TEST_STATEID,
    op::FREE_STATEID,
]);

/// Which operations a client has bound to its machine's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// Those that only the machine may send.
    pub(super) enforce: Bitmap,
    /// Those that the machine may send whoever holds the state.
    pub(super) allow: Bitmap,
}

impl Bound {
    /// What this server agrees to (RFC 8881 section 18.35.3, `spo_must_enforce` and `spo_must_allow`).
    pub(super) fn agree(asked: &StateProtectOps4) -> Self {
        Self {
            enforce: asked.must_enforce.and(&ENFORCED_IF_ASKED).or(&ENFORCED),
            allow: asked.must_allow.and(&ALLOWED),
        }
    }

    /// As the client is told.
    pub(super) fn on_wire(&self) -> StateProtectOps4 {
        StateProtectOps4 { must_enforce: self.enforce, must_allow: self.allow }
    }
}
