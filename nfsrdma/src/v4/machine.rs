//! State protection by a machine credential: SP4_MACH_CRED (RFC 8881 sections 2.10.8.3 and 18.35.3).
//!
//! *Operation.* A client may request it if its EXCHANGE_ID came with Kerberos integrity or privacy. From then on only that
//! principal, with the same protection, may create, bind and end the client's sessions; a connection must be bound to a session
//! before it carries the session's calls. The machine may release state on behalf of users, whose tickets may have expired.
//!
//! *Errors.* NFS4ERR_WRONG_CRED, and NFS4ERR_CONN_NOT_BOUND_TO_SESSION for an unbound connection.

use nfs_proto::nfs4::ops::StateProtectOps4;

use super::attrs::Bitmap;
use super::wire::op;

/// Always enforced, as by Linux' server: each of these operations could otherwise undo the protection.
const ENFORCED: Bitmap = Bitmap::of(&[
    op::BIND_CONN_TO_SESSION,
    op::EXCHANGE_ID,
    op::CREATE_SESSION,
    op::DESTROY_SESSION,
    op::DESTROY_CLIENTID,
]);
/// Enforced if the client requests it.
const ENFORCED_IF_ASKED: Bitmap = Bitmap::of(&[op::BACKCHANNEL_CTL, op::DELEGPURGE]);
/// Operations that release or inspect state. Excluded are WRITE and COMMIT, because a machine has no rights on files, and SECINFO,
/// because it looks up a name.
const ALLOWED: Bitmap = Bitmap::of(&[
    op::CLOSE,
    op::OPEN_DOWNGRADE,
    op::LOCKU,
    op::DELEGRETURN,
    op::TEST_STATEID,
    op::FREE_STATEID,
]);

/// The operations that a client has bound to its machine's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// Operations that only the machine may use.
    pub(super) enforce: Bitmap,
    /// Operations that the machine may use on any user's state.
    pub(super) allow: Bitmap,
}

impl Bound {
    /// Negotiates the operations (RFC 8881 section 18.35.3, `spo_must_enforce` and `spo_must_allow`).
    pub(super) fn agree(asked: &StateProtectOps4) -> Self {
        Self {
            enforce: asked.must_enforce.and(&ENFORCED_IF_ASKED).or(&ENFORCED),
            allow: asked.must_allow.and(&ALLOWED),
        }
    }

    /// Converts for the reply.
    pub(super) fn on_wire(&self) -> StateProtectOps4 {
        StateProtectOps4 { must_enforce: self.enforce, must_allow: self.allow }
    }
}
