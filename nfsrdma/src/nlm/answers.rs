//! The asynchronous procedures: the call is answered by nothing, and its result by a call of ours to the host's lock manager.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use super::wire::Answer;
use super::{Nlm, VERSION, procedure as p};
use crate::context::Conn;
use crate::rpc::outgoing::{Callee, Route};
use crate::rpc::program;
use crate::xdr::Writer;

/// The procedure that carries the result of an asynchronous one; `None` when the procedure is answered by its reply.
pub(super) fn result_of(number: u32) -> Option<u32> {
    match number {
        p::TEST_MSG => Some(p::TEST_RES),
        p::LOCK_MSG => Some(p::LOCK_RES),
        p::CANCEL_MSG => Some(p::CANCEL_RES),
        p::UNLOCK_MSG => Some(p::UNLOCK_RES),
        p::GRANTED_MSG => Some(p::GRANTED_RES),
        _ => None,
    }
}

impl Nlm {
    /// Sends a result. One that does not arrive is asked for again by the caller, who repeats its call.
    pub(super) fn answer_later(&self, conn: &Conn, result: u32, cookie: &[u8], answer: &Answer) {
        let Some(me) = self.me.upgrade() else { return };
        let mut w = Writer::new();
        answer.encode(&mut w, cookie);
        let args = w.into_reply().head;
        let canonical = |ip: IpAddr| ip.to_canonical();
        let route = Route::new(canonical(conn.info.peer.ip()), canonical(conn.info.local.ip()));
        tokio::spawn(async move {
            let Ok(_place) = me.answers.try_acquire() else {
                me.counters.limited.fetch_add(1, Ordering::Relaxed);
                return;
            };
            let callee = Callee { program: program::NLM, version: VERSION, procedure: result };
            if let Err(e) = route.call(me.options.rpcbind_port, callee, &args).await {
                tracing::debug!(error = %e, result, "a lock manager did not take a result");
            }
        });
    }
}
