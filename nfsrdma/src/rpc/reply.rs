//! The head of a reply (RFC 5531 section 9, `reply_body`).

use super::RPC_VERSION;
use super::auth::AuthStat;
use crate::xdr::Writer;

const REPLY: u32 = 1;
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;

/// What became of a call that was accepted (RFC 5531 section 9, `accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStat {
    /// Results follow.
    Success,
    /// The program is not served here.
    ProgUnavail,
    /// The program is, in versions of this range.
    ProgMismatch(u32, u32),
    /// The version has no such procedure.
    ProcUnavail,
    /// The arguments cannot be read.
    GarbageArgs,
    /// This server failed.
    SystemErr,
}

/// Begins a reply to an accepted call, with the empty verifier of AUTH_NONE. Results follow [`AcceptStat::Success`].
pub fn accepted(w: &mut Writer, xid: u32, stat: AcceptStat) {
    w.u32(xid);
    w.u32(REPLY);
    w.u32(MSG_ACCEPTED);
    w.u32(super::auth::AUTH_NONE);
    w.u32(0);
    match stat {
        AcceptStat::Success => w.u32(0),
        AcceptStat::ProgUnavail => w.u32(1),
        AcceptStat::ProgMismatch(low, high) => {
            w.u32(2);
            w.u32(low);
            w.u32(high);
        }
        AcceptStat::ProcUnavail => w.u32(3),
        AcceptStat::GarbageArgs => w.u32(4),
        AcceptStat::SystemErr => w.u32(5),
    }
}

/// The whole reply to a call of another RPC version.
pub fn rpc_mismatch(w: &mut Writer, xid: u32) {
    w.u32(xid);
    w.u32(REPLY);
    w.u32(MSG_DENIED);
    w.u32(0);
    w.u32(RPC_VERSION);
    w.u32(RPC_VERSION);
}

/// The whole reply to a call whose credential is refused.
pub fn auth_error(w: &mut Writer, xid: u32, stat: AuthStat) {
    w.u32(xid);
    w.u32(REPLY);
    w.u32(MSG_DENIED);
    w.u32(1);
    w.u32(stat as u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(f: impl FnOnce(&mut Writer)) -> Vec<u32> {
        let mut w = Writer::new();
        f(&mut w);
        let head = w.into_reply().head;
        head.chunks(4).map(|c| u32::from_be_bytes(c.try_into().unwrap())).collect()
    }

    #[test]
    fn every_reply_head_has_the_words_of_the_specification() {
        let acc = |s| words(|w| accepted(w, 9, s));
        assert_eq!(acc(AcceptStat::Success), [9, 1, 0, 0, 0, 0]);
        assert_eq!(acc(AcceptStat::ProgUnavail), [9, 1, 0, 0, 0, 1]);
        assert_eq!(acc(AcceptStat::ProgMismatch(3, 4)), [9, 1, 0, 0, 0, 2, 3, 4]);
        assert_eq!(acc(AcceptStat::ProcUnavail), [9, 1, 0, 0, 0, 3]);
        assert_eq!(acc(AcceptStat::GarbageArgs), [9, 1, 0, 0, 0, 4]);
        assert_eq!(acc(AcceptStat::SystemErr), [9, 1, 0, 0, 0, 5]);
        assert_eq!(words(|w| rpc_mismatch(w, 9)), [9, 1, 1, 0, 2, 2]);
        assert_eq!(words(|w| auth_error(w, 9, AuthStat::TooWeak)), [9, 1, 1, 1, 5]);
    }
}
