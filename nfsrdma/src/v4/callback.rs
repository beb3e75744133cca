//! Calls to the client over the backchannel of its session (RFC 8881 section 20): CB_SEQUENCE and CB_RECALL.
//!
//! *Operation.* A callback takes a slot and keeps it until it is answered: after a lost connection the same number is sent again
//! on the next one, so the client executes it once. On RDMA the connection carries it as RFC 8167 says; here that looks
//! the same.
//!
//! *Memory.* One message of a few hundred bytes.
//!
//! *Errors.* [`Failed`]; who calls decides whether to try again.

use std::time::Duration;

use iobuf::Buf;

use super::session::{CallbackCred, Session};
use super::status::Status;
use super::wire::Stateid;
use crate::fh::Fh;
use crate::xdr::{Reader, Writer, XdrError, XdrResult};

const CB_COMPOUND: u32 = 1;
const OP_CB_RECALL: u32 = 4;
const OP_CB_SEQUENCE: u32 = 11;
/// An answer that takes longer will not come.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Connections that one callback is tried on.
const TRIES_MAX: usize = 3;

/// Why a callback had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// No connection, or none that answers.
    PathDown,
    /// Every slot waits for an answer.
    Busy,
    /// The client refused it with this status.
    Refused(Status),
    /// The client's answer makes no sense.
    Nonsense,
}

/// Asks the client to give a delegation back.
pub(super) async fn recall(session: &Session, stateid: Stateid, fh: &Fh) -> Result<(), Failed> {
    let (slot, sequence) = take_slot(session).ok_or(Failed::Busy)?;
    let done = deliver(session, slot, sequence, stateid, fh).await;
    let mut back = session.back();
    if let Some(place) = back.slots.get_mut(slot) {
        // A request that the client never counted gives its number back.
        let counted = !matches!(done, Err(Failed::PathDown | Failed::Refused(Status::Delay)));
        *place = (if counted { sequence } else { sequence.wrapping_sub(1) }, false);
    }
    if done == Err(Failed::Nonsense) {
        back.fault = true;
    }
    done
}

fn take_slot(session: &Session) -> Option<(usize, u32)> {
    let mut back = session.back();
    let slot = back.slots.iter().position(|(_, busy)| !busy)?;
    let (last, busy) = &mut back.slots[slot];
    *busy = true;
    Some((slot, last.wrapping_add(1)))
}

async fn deliver(
    session: &Session,
    slot: usize,
    sequence: u32,
    stateid: Stateid,
    fh: &Fh,
) -> Result<(), Failed> {
    for _ in 0..TRIES_MAX {
        let (message, conn) = {
            let mut back = session.back();
            let conn = back.conn().ok_or(Failed::PathDown)?;
            let cred = back.cred.clone().ok_or(Failed::PathDown)?;
            (encode(session, back.program, &cred, (slot, sequence), stateid, fh), conn)
        };
        match tokio::time::timeout(ANSWER_MAX, conn.handle.call(message)).await {
            Ok(Ok(answer)) => return decode(&answer).unwrap_or(Err(Failed::Nonsense)),
            _ => session.back().unbind(conn.id),
        }
    }
    Err(Failed::PathDown)
}

fn encode(
    session: &Session,
    program: u32,
    cred: &CallbackCred,
    (slot, sequence): (usize, u32),
    stateid: Stateid,
    fh: &Fh,
) -> Vec<u8> {
    let mut w = Writer::new();
    // xid (the channel's), CALL, RPC version 2, program, version 1, CB_COMPOUND.
    for v in [0, 0, 2, program, 1, CB_COMPOUND] {
        w.u32(v);
    }
    match cred {
        CallbackCred::None => {
            w.u32(0);
            w.u32(0);
        }
        CallbackCred::Sys(body) => {
            w.u32(1);
            w.opaque(body);
        }
    }
    w.u32(0);
    w.u32(0);
    // tag, minor version, callback_ident (of minor version 0 only), two operations.
    w.opaque(b"");
    w.u32(session.minor);
    w.u32(0);
    w.u32(2);
    w.u32(OP_CB_SEQUENCE);
    w.fixed(&session.id);
    w.u32(sequence);
    w.count(slot);
    w.u32(session.back_attrs.slots.saturating_sub(1));
    w.bool(false);
    w.count(0);
    w.u32(OP_CB_RECALL);
    stateid.encode(&mut w);
    w.bool(false);
    w.opaque(fh.as_bytes());
    w.into_reply().head
}

/// What the answer says of the recall.
fn decode(answer: &Buf) -> XdrResult<Result<(), Failed>> {
    let mut r = Reader::new(answer, &[]);
    r.u32()?;
    // REPLY, MSG_ACCEPTED, verifier, SUCCESS.
    if r.u32()? != 1 || r.u32()? != 0 {
        return Ok(Err(Failed::Nonsense));
    }
    r.u32()?;
    r.opaque(400)?;
    if r.u32()? != 0 {
        return Ok(Err(Failed::Nonsense));
    }
    let _status = r.u32()?;
    r.opaque(1024)?;
    let results = r.count(2)?;
    for at in 0..results {
        let op = r.u32()?;
        let status = Status::from_u32(r.u32()?).ok_or(XdrError::BadValue)?;
        match (at, op, status) {
            (0, OP_CB_SEQUENCE, Status::Ok) => {
                r.fixed::<16>()?;
                for _ in 0..4 {
                    r.u32()?;
                }
            }
            (1, OP_CB_RECALL, Status::Ok) => return Ok(Ok(())),
            // The first answer was lost, and the client did not keep it: it has been told.
            (_, _, Status::RetryUncachedRep) => return Ok(Ok(())),
            (0, OP_CB_SEQUENCE, Status::BadSession | Status::BadSlot | Status::SeqMisordered) => {
                return Ok(Err(Failed::Nonsense));
            }
            (_, OP_CB_SEQUENCE | OP_CB_RECALL, refused) => {
                return Ok(Err(Failed::Refused(refused)));
            }
            _ => return Ok(Err(Failed::Nonsense)),
        }
    }
    Ok(Err(Failed::Nonsense))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(words: &[u32]) -> Buf {
        Buf::from(words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>())
    }

    /// xid, REPLY, accepted, AUTH_NONE, no body, SUCCESS; then status, no tag.
    const HEAD: [u32; 8] = [7, 1, 0, 0, 0, 0, 0, 0];
    const SEQUENCE_OK: [u32; 10] = [OP_CB_SEQUENCE, 0, 1, 2, 3, 4, 1, 0, 0, 0];

    fn outcome(rest: &[u32]) -> Result<Result<(), Failed>, XdrError> {
        decode(&answer(&[&HEAD[..], rest].concat()))
    }

    #[test]
    fn the_answer_says_what_became_of_the_recall() {
        let both = |status| outcome(&[&[2][..], &SEQUENCE_OK, &[OP_CB_RECALL, status]].concat());
        assert_eq!(both(0), Ok(Ok(())));
        assert_eq!(both(10_008), Ok(Err(Failed::Refused(Status::Delay))));
        assert_eq!(both(10_025), Ok(Err(Failed::Refused(Status::BadStateId))));
        assert_eq!(both(4_242), Err(XdrError::BadValue));
        assert_eq!(outcome(&[1, OP_CB_SEQUENCE, 10_008]), Ok(Err(Failed::Refused(Status::Delay))));
        assert_eq!(outcome(&[1, OP_CB_SEQUENCE, 10_052]), Ok(Err(Failed::Nonsense)));
        assert_eq!(outcome(&[1, OP_CB_SEQUENCE, 10_068]), Ok(Ok(())));
        assert_eq!(outcome(&[0]), Ok(Err(Failed::Nonsense)));
        assert_eq!(outcome(&[9]), Err(XdrError::TooLong));
        assert_eq!(decode(&answer(&[7, 1, 1, 0, 0])), Ok(Err(Failed::Nonsense)));
        assert_eq!(decode(&answer(&[7])), Err(XdrError::Short));
    }
}
