//! Encodes the answers of procedures. An asynchronous call gets an empty reply; its result is sent as a separate call to the host's
//! lock manager.

use std::sync::atomic::Ordering;

use nfs_proto::nlm::{self as wire, Testres, Testrply};
use nfs_proto::xdr::Xdr;
use rdma_transport::count;
use state::{LockKind, Range};

use super::{Nlm, Stat, VERSION, procedure as p};
use crate::context::Conn;
use crate::rpc::callee::Callee;
use crate::rpc::outgoing::Route;
use crate::rpc::program;

/// The conflicting lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) kind: LockKind,
    /// The process that holds it; 0 if the holder does not use NLM.
    pub(super) svid: i32,
    /// The lock owner; empty if the holder does not use NLM.
    pub(super) oh: Box<[u8]>,
    pub(super) range: Range,
}

/// The results of a procedure after the cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// `nlm4_res`, and `nlm4_testres` without a holder.
    Stat(Stat),
    /// `nlm4_testres`: NLM4_DENIED because of this lock.
    Held(Holder),
    /// `nlm4_shareres`.
    Share(Stat),
}

impl Answer {
    /// Appends the encoded results.
    pub(super) fn emit(&self, cookie: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Stat(stat) => wire::Res { cookie, stat: *stat }.emit(out),
            // Clients do not use `sequence`.
            Self::Share(stat) => wire::Shareres { cookie, stat: *stat, sequence: 0 }.emit(out),
            Self::Held(holder) => {
                let length = holder.range.length();
                let holder = wire::Holder {
                    exclusive: holder.kind == LockKind::Exclusive,
                    svid: holder.svid,
                    oh: &holder.oh,
                    l_offset: holder.range.first,
                    l_len: if length == u64::MAX { 0 } else { length },
                };
                Testres { cookie, stat: Testrply::Denied(holder) }.emit(out);
            }
        }
    }
}

/// The procedure number that carries the result of an asynchronous procedure; `None` for synchronous ones.
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
    /// Sends the result of an asynchronous call. If it is lost, the caller repeats the call.
    pub(super) fn answer_later(&self, conn: &Conn, result: u32, cookie: &[u8], answer: &Answer) {
        let Some(me) = self.me.upgrade() else { return };
        let mut args = Vec::new();
        answer.emit(cookie, &mut args);
        let peer = conn.info.peer.ip();
        let place = match self.answers.take(peer) {
            Ok(place) => place,
            Err(limit) => {
                count::limit_met(limit.name);
                self.counters.limited.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        let route = Route::new(peer, conn.info.local.ip());
        tokio::spawn(async move {
            let _place = place;
            let callee = Callee { program: program::NLM, version: VERSION, procedure: result };
            if let Err(e) = route.call(me.options.rpcbind_port, callee, &args).await {
                tracing::debug!(error = %e, result, "a client's lock manager did not accept the result of its request");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_an_address_leave_room() {
        let answers = rdma_transport::parts::Parts::new(super::super::limits::ANSWERS);
        let at = |n: u8| answers.take([192, 0, 2, n].into());
        let silent: Vec<_> = std::iter::from_fn(|| at(1).ok()).collect();
        assert_eq!(silent.len(), super::super::limits::ANSWERS_OF_ADDRESS_MAX);
        assert_eq!(at(1).unwrap_err().name, "nlm-answers-of-address");
        assert!(at(2).is_ok());
    }

    #[test]
    fn lock_to_end_has_zero_length() {
        let as_words = |a: Answer| {
            let mut bytes = Vec::new();
            a.emit(b"abcd", &mut bytes);
            let words = bytes.chunks(4).map(|c| u32::from_be_bytes(c.try_into().unwrap()));
            words.skip(2).collect::<Vec<_>>()
        };
        let oh = Box::from(&b"me"[..]);
        let range = Range { first: 3, last: 12 };
        let held = Holder { kind: LockKind::Exclusive, svid: 9, oh, range };
        let wanted = [1, 1, 9, 2, 0x6d65_0000, 0, 3, 0, 10];
        assert_eq!(as_words(Answer::Held(held.clone())), wanted);
        let range = Range { first: 3, last: u64::MAX };
        let held = Holder { kind: LockKind::Shared, range, ..held };
        let wanted = [1, 0, 9, 2, 0x6d65_0000, 0, 3, 0, 0];
        assert_eq!(as_words(Answer::Held(held)), wanted);
    }
}
