//! Calls to the client over the backchannel of its session (RFC 8881 section 20): CB_SEQUENCE with CB_RECALL or CB_GETATTR.
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

use super::attrs::Bitmap;
use super::session::{CallbackCred, Session};
use super::status::Status;
use super::wire::{Stateid, attr};
use crate::fh::Fh;
use rdma_transport::xdr::{Reader, Writer, XdrError, XdrResult};
use vfs::{DelegatedTimes, Time};

const CB_COMPOUND: u32 = 1;
const OP_CB_GETATTR: u32 = 3;
const OP_CB_RECALL: u32 = 4;
const OP_CB_SEQUENCE: u32 = 11;
/// What the holder of a write delegation must know (RFC 8881 section 10.4.3).
const ASKED: Bitmap = Bitmap::of(&[attr::CHANGE, attr::SIZE]);
/// And when it keeps the times as well (RFC 9754 section 5).
const ASKED_WITH_TIMES: Bitmap =
    ASKED.or(&Bitmap::of(&[attr::TIME_DELEG_ACCESS, attr::TIME_DELEG_MODIFY]));
/// Bytes of an answer to that.
const ATTRIBUTES_MAX: usize = 256;
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

/// What the client is asked.
#[derive(Clone, Copy, Debug)]
enum Ask<'a> {
    /// CB_RECALL (RFC 8881 section 20.2).
    Recall(Stateid, &'a Fh),
    /// CB_GETATTR (RFC 8881 section 20.1) of these.
    Attributes(&'a Fh, Bitmap),
}

/// What the client answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Done,
    Attributes(Attributes),
}

/// Attributes of a file as the holder of its write delegation has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    /// The one that the client was given, or another when it has changed something since.
    pub(super) change: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Of a delegation that is for the times, too.
    pub(super) times: DelegatedTimes,
}

/// Asks the client to give a delegation back.
pub(super) async fn recall(session: &Session, stateid: Stateid, fh: &Fh) -> Result<(), Failed> {
    call(session, Ask::Recall(stateid, fh)).await.map(drop)
}

/// Asks the holder of a write delegation what the file is like in its cache; `times`: it keeps the times, too.
pub(super) async fn attributes(
    session: &Session,
    fh: &Fh,
    times: bool,
) -> Result<Attributes, Failed> {
    let asked = if times { ASKED_WITH_TIMES } else { ASKED };
    match call(session, Ask::Attributes(fh, asked)).await? {
        Said::Attributes(attributes) => Ok(attributes),
        Said::Done => Err(Failed::Nonsense),
    }
}

/// Not to be given up half way: the slot would stay busy.
async fn call(session: &Session, ask: Ask<'_>) -> Result<Said, Failed> {
    let (at, sequence) = take_slot(session).ok_or(Failed::Busy)?;
    let done = deliver(session, at, sequence, ask).await;
    let mut back = session.back();
    if let Some(place) = back.slots.get_mut(at) {
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
    ask: Ask<'_>,
) -> Result<Said, Failed> {
    for _ in 0..TRIES_MAX {
        let (message, conn) = {
            let mut back = session.back();
            let conn = back.conn().ok_or(Failed::PathDown)?;
            let cred = back.cred.clone().ok_or(Failed::PathDown)?;
            (encode(session, back.program, &cred, (slot, sequence), ask), conn)
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
    ask: Ask<'_>,
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
    match ask {
        Ask::Recall(stateid, fh) => {
            w.u32(OP_CB_RECALL);
            w.value(&stateid);
            w.bool(false);
            w.opaque(fh.as_bytes());
        }
        Ask::Attributes(fh, asked) => {
            w.u32(OP_CB_GETATTR);
            w.opaque(fh.as_bytes());
            w.value(&asked);
        }
    }
    w.into_reply().head
}

/// What the answer says.
fn decode(answer: &Buf) -> XdrResult<Result<Said, Failed>> {
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
            (1, OP_CB_RECALL, Status::Ok) => return Ok(Ok(Said::Done)),
            (1, OP_CB_GETATTR, Status::Ok) => {
                return decode_attributes(&mut r).map(|a| Ok(Said::Attributes(a)));
            }
            // The first answer was lost, and the client did not keep it: it has been told.
            (_, _, Status::RetryUncachedRep) => return Ok(Ok(Said::Done)),
            (0, OP_CB_SEQUENCE, Status::BadSession | Status::BadSlot | Status::SeqMisordered) => {
                return Ok(Err(Failed::Nonsense));
            }
            (_, OP_CB_SEQUENCE | OP_CB_RECALL | OP_CB_GETATTR, refused) => {
                return Ok(Err(Failed::Refused(refused)));
            }
            _ => return Ok(Err(Failed::Nonsense)),
        }
    }
    Ok(Err(Failed::Nonsense))
}

/// `fattr4`, which begins with what was asked for; what else a client says stands behind that.
fn decode_attributes(r: &mut Reader<'_>) -> XdrResult<Attributes> {
    let said = r.value::<Bitmap>()?;
    if !said.iter().take(2).eq(ASKED.iter()) {
        return Err(XdrError::BadValue);
    }
    let _length = r.count(ATTRIBUTES_MAX)?;
    let (change, size) = (r.u64()?, r.u64()?);
    let mut times = DelegatedTimes::default();
    for number in said.iter().skip(2) {
        match number {
            attr::TIME_DELEG_ACCESS => times.atime = Some(decode_time(r)?),
            attr::TIME_DELEG_MODIFY => times.mtime = Some(decode_time(r)?),
            _ => break,
        }
    }
    // Others are told it as the size of the file: no file is larger (`off_t`, and EndOfFile of MS-FSCC 2.4.13, are signed).
    if i64::try_from(size).is_err() {
        return Err(XdrError::BadValue);
    }
    Ok(Attributes { change, size, times })
}

fn decode_time(r: &mut Reader<'_>) -> XdrResult<Time> {
    let time = Time { sec: r.i64()?, nsec: r.u32()? };
    if time.nsec < 1_000_000_000 { Ok(time) } else { Err(XdrError::BadValue) }
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

    fn outcome(rest: &[u32]) -> Result<Result<Said, Failed>, XdrError> {
        decode(&answer(&[&HEAD[..], rest].concat()))
    }

    #[test]
    fn the_answer_says_what_became_of_the_recall() {
        let both = |status| outcome(&[&[2][..], &SEQUENCE_OK, &[OP_CB_RECALL, status]].concat());
        assert_eq!(both(0), Ok(Ok(Said::Done)));
        assert_eq!(both(10_008), Ok(Err(Failed::Refused(Status::Delay))));
        assert_eq!(both(10_025), Ok(Err(Failed::Refused(Status::BadStateId))));
        assert_eq!(both(4_242), Err(XdrError::BadValue));
        assert_eq!(outcome(&[1, OP_CB_SEQUENCE, 10_008]), Ok(Err(Failed::Refused(Status::Delay))));
        assert_eq!(outcome(&[1, OP_CB_SEQUENCE, 10_052]), Ok(Err(Failed::Nonsense)));
        assert_eq!(outcome(&[1, OP_CB_SEQUENCE, 10_068]), Ok(Ok(Said::Done)));
        assert_eq!(outcome(&[0]), Ok(Err(Failed::Nonsense)));
        assert_eq!(outcome(&[9]), Err(XdrError::TooLong));
        assert_eq!(decode(&answer(&[7, 1, 1, 0, 0])), Ok(Err(Failed::Nonsense)));
        assert_eq!(decode(&answer(&[7])), Err(XdrError::Short));
    }

    #[test]
    fn a_holder_that_keeps_the_times_says_them() {
        let said =
            |rest: &[u32]| outcome(&[&[2][..], &SEQUENCE_OK, &[OP_CB_GETATTR, 0], rest].concat());
        let times = |nsec: u32| [3, 0b1_1000, 0, 3 << 20, 40, 0, 1, 0, 2, 0, 5, 6, 0, 7, nsec];
        let Ok(Ok(Said::Attributes(all))) = said(&times(8)) else { panic!("understood") };
        assert_eq!((all.change, all.size), (1, 2));
        assert_eq!(all.times.atime, Some(Time { sec: 5, nsec: 6 }));
        assert_eq!(all.times.mtime, Some(Time { sec: 7, nsec: 8 }));
        assert_eq!(said(&times(1_000_000_000)), Err(XdrError::BadValue));
        assert_eq!(said(&times(8)[..14]), Err(XdrError::Short));
    }

    #[test]
    fn the_holder_of_a_write_delegation_says_what_it_has() {
        let said =
            |rest: &[u32]| outcome(&[&[2][..], &SEQUENCE_OK, &[OP_CB_GETATTR, 0], rest].concat());
        let times = DelegatedTimes::default();
        let attributes = Attributes { change: 0x1_0000_0002, size: 0x3_0000_0004, times };
        let all = [1, 0b1_1000, 16, 1, 2, 3, 4];
        assert_eq!(said(&all), Ok(Ok(Said::Attributes(attributes))));
        assert_eq!(said(&[1, 0b1000, 8, 1, 2]), Err(XdrError::BadValue), "the size is missing");
        assert_eq!(said(&[1, 0b11_1000, 20, 1, 2, 3, 4, 5]), Ok(Ok(Said::Attributes(attributes))));
        assert_eq!(said(&[1, 0b1_1010, 20, 2, 1, 2, 3, 4]), Err(XdrError::BadValue));
        assert_eq!(said(&[1, 0b1_1000, 257, 1, 2, 3, 4]), Err(XdrError::TooLong));
        let largest = [1, 0b1_1000, 16, 1, 2, u32::MAX >> 1, u32::MAX];
        assert!(matches!(said(&largest), Ok(Ok(Said::Attributes(_)))));
        let larger_than_any_file = [1, 0b1_1000, 16, 1, 2, 1 << 31, 0];
        assert_eq!(said(&larger_than_any_file), Err(XdrError::BadValue));
        assert_eq!(said(&all[..5]), Err(XdrError::Short));
        let refused = outcome(&[&[2][..], &SEQUENCE_OK, &[OP_CB_GETATTR, 10_001]].concat());
        assert_eq!(refused, Ok(Err(Failed::Refused(Status::BadHandle))));
    }
}
