//! AUTH_TLS: a client proposes TLS by a call of NULL (RFC 9289 section 4.1).
//!
//! *Operation.* The answer that agrees has STARTTLS in its verifier, and TLS begins behind it. A client that is told nothing goes
//! on in clear, or not at all: that is for its administrator to say. TLS is proposed by the first call of a connection, so that no
//! answer to another stands between.
//!
//! *Errors.* A proposal that breaks a rule is answered by AUTH_ERROR, as is one inside TLS.

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

/// The answer to a call whose credential is AUTH_TLS.
pub(crate) fn answer(conn: &Conn, head: &CallHead<'_>, offer: ServedPrograms) -> Reply {
    if let Err(stat) = check(conn, head) {
        Violation::Credential.note(conn, "AUTH_TLS");
        let mut out = Writer::new();
        auth_error(&mut out, head.xid, stat);
        return out.into_reply();
    }
    // By these programs their clients never use TLS.
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
