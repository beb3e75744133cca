//! AUTH_TLS: a client starts TLS with a NULL call (RFC 9289 section 4.1).
//!
//! *Operation.* An agreeing reply carries STARTTLS in its verifier, and the TLS handshake follows. Without it the client continues
//! in clear or gives up, as its administrator configured. TLS must be requested in the first call of a connection, so that no other
//! reply is in between.
//!
//! *Errors.* A request that violates a rule, or comes inside TLS, gets AUTH_ERROR.

use std::sync::atomic::Ordering;

use nfs_proto::oncrpc::{
    AUTH_NONE, AcceptStat, AuthStat, CallHead, OpaqueAuth, ReplyBody, ReplyHead, STARTTLS, program,
};
use rdma_transport::channel::Reply;
use rdma_transport::xdr::Writer;

use crate::context::Conn;
use crate::rpc::reply::{auth_error, refusal};
use crate::served_programs::ServedPrograms;
use crate::violation::Violation;

/// Answers a call whose credential is AUTH_TLS.
pub(crate) fn answer(conn: &Conn, head: &CallHead<'_>, offer: ServedPrograms) -> Reply {
    if let Err(stat) = check(conn, head) {
        Violation::Credential.note(conn, "AUTH_TLS");
        let mut out = Writer::new();
        auth_error(&mut out, head.xid, stat);
        return out.into_reply();
    }
    // Clients of these programs never use TLS.
    let has_tls = ![program::PORTMAP, program::NSM].contains(&head.program);
    if !offer.has(head.program) {
        return refusal(head.xid, AcceptStat::ProgUnavail);
    }
    let is_first = conn.info.traffic.requests.load(Ordering::Relaxed) <= 1;
    let starts_tls = has_tls && is_first && !conn.is_datagram() && conn.info.tls.is_offered();
    let body: &[u8] = if starts_tls { STARTTLS } else { &[] };
    let verifier = OpaqueAuth { flavor: AUTH_NONE, body };
    let mut out = Writer::new();
    ReplyHead { xid: head.xid, body: ReplyBody::Accepted(verifier, AcceptStat::Success) }
        .emit(out.head());
    Reply { starts_tls, ..out.into_reply() }
}

fn check(conn: &Conn, head: &CallHead<'_>) -> Result<(), AuthStat> {
    if !head.cred.body.is_empty() || head.procedure != 0 || conn.info.tls.peer().is_some() {
        return Err(AuthStat::BadCred);
    }
    if head.verf != OpaqueAuth::NONE {
        return Err(AuthStat::BadVerf);
    }
    Ok(())
}
