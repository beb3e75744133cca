//! Calls to the client over the backchannel of its session (RFC 8881 section 20): CB_SEQUENCE with CB_RECALL or CB_GETATTR.
//!
//! *Operation.* A callback occupies a slot until it is answered: after a lost connection the same sequence number is sent on the
//! next one, so the client executes it once. Over RDMA it follows RFC 8167, which is invisible here.
//!
//! *Memory.* One message of a few hundred bytes.
//!
//! *Errors.* [`Failed`]; the caller decides whether to retry.

use std::time::Duration;

use nfs_proto::nfs4::attrs::{Fattr4, Value};
use nfs_proto::nfs4::cb::{self, Args, Compounded, Results, op};
use nfs_proto::nfs4::ops::Res;
use nfs_proto::nfs4::{Nfsstat4, attr};
use nfs_proto::oncrpc::{AcceptStat, CallHead, OpaqueAuth, ReplyBody, ReplyHead};
use nfs_proto::xdr::{self, Xdr};
use vfs::DelegatedTimes;
use wire::Malformed;

use super::attrs::{Bitmap, time_of};
use super::session::{CallbackCred, Session};
use super::status::Status;
use super::wire::Stateid;
use crate::fh::Fh;

/// Version of the client's callback program.
const CB_VERSION: u32 = 1;
/// The attributes requested from the holder of a write delegation (RFC 8881 section 10.4.3).
const ASKED: Bitmap = Bitmap::of(&[attr::CHANGE, attr::SIZE]);
/// The attributes requested from a holder that also keeps the times (RFC 9754 section 5).
const ASKED_WITH_TIMES: Bitmap =
    ASKED.or(&Bitmap::of(&[attr::TIME_DELEG_ACCESS, attr::TIME_DELEG_MODIFY]));
/// Largest accepted attribute values, in bytes.
const ATTRIBUTES_MAX: usize = 256;
/// Limit on the client's answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Number of connections tried for one callback.
const TRIES_MAX: usize = 3;

/// The reason why a callback failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The session has no connection that answers.
    PathDown,
    /// All slots wait for answers.
    Busy,
    /// The client returned this status.
    Refused(Status),
    /// The client's answer is invalid.
    Nonsense,
}

/// The operation to call.
#[derive(Clone, Copy, Debug)]
enum Ask<'a> {
    /// CB_RECALL (RFC 8881 section 20.2).
    Recall(Stateid, &'a Fh),
    /// CB_GETATTR (RFC 8881 section 20.1) for these attributes.
    Attributes(&'a Fh, Bitmap),
    /// No operation after CB_SEQUENCE: whether the client answers.
    Nothing,
}

impl Ask<'_> {
    /// The operations of the call, with CB_SEQUENCE.
    fn operations(&self) -> u32 {
        if matches!(self, Self::Nothing) { 1 } else { 2 }
    }
}

/// The client's answer to a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Done,
    Attributes(Attributes),
}

/// A file's attributes in the cache of the write delegation's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    /// The value that the client was given, or another one if it has modified the file.
    pub(super) change: u64,
    pub(super) size: u64,
    /// Sent if the delegation covers the times.
    pub(super) times: DelegatedTimes,
}

/// Asks the client to return a delegation.
pub(super) async fn recall(session: &Session, stateid: Stateid, fh: &Fh) -> Result<(), Failed> {
    call(session, Ask::Recall(stateid, fh)).await.map(drop)
}

/// Asks whether the client answers callbacks.
pub(super) async fn reach(session: &Session) -> Result<(), Failed> {
    call(session, Ask::Nothing).await.map(drop)
}

/// Queries the holder of a write delegation for the cached attributes; `times`: it also keeps the times.
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

/// Makes the call. Must not be canceled: the slot would stay busy.
async fn call(session: &Session, ask: Ask<'_>) -> Result<Said, Failed> {
    let (at, sequence) = take_slot(session).ok_or(Failed::Busy)?;
    let done = deliver(session, at, sequence, ask).await;
    let mut back = session.back();
    if let Some(place) = back.slots.get_mut(at) {
        // If the client did not count the request, its sequence number is reused.
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
            Ok(Ok(answer)) => return decode(answer.as_slice(), ask.operations()),
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
    let call = CallHead {
        // The channel sets the xid.
        xid: 0,
        program,
        version: CB_VERSION,
        procedure: cb::PROC_COMPOUND,
        cred: cred.as_auth(),
        verf: OpaqueAuth::NONE,
    };
    let compound = cb::Compound {
        tag: b"",
        minorversion: session.minor,
        // Only minor version 0 uses this field.
        callback_ident: 0,
        argarray: ask.operations(),
    };
    let order = cb::Sequence {
        sessionid: session.id,
        sequenceid: sequence,
        slotid: u32::try_from(slot).unwrap_or(u32::MAX),
        highest_slotid: session.back_attrs.slots.saturating_sub(1),
        cachethis: false,
        referring_call_lists: Vec::new(),
    };
    let asked = match ask {
        Ask::Recall(stateid, fh) => {
            let recall = cb::Recall { stateid, truncate: false, fh: fh.as_bytes() };
            Some((op::RECALL, Args::Recall(recall)))
        }
        Ask::Attributes(fh, attr_request) => {
            Some((op::GETATTR, Args::Getattr(cb::Getattr { fh: fh.as_bytes(), attr_request })))
        }
        Ask::Nothing => None,
    };
    let mut out = Vec::new();
    call.emit(&mut out);
    compound.emit(&mut out);
    op::SEQUENCE.emit(&mut out);
    order.emit(&mut out);
    if let Some((number, args)) = asked {
        number.emit(&mut out);
        args.emit(&mut out);
    }
    out
}

/// Decodes the client's answer to a callback of this many operations.
fn decode(answer: &[u8], operations: u32) -> Result<Said, Failed> {
    let (rest, head) = wire::decode(answer, ReplyHead::parse).map_err(nonsense)?;
    let ReplyBody::Accepted(_, AcceptStat::Success) = head.body else {
        return Err(Failed::Nonsense);
    };
    let (mut rest, done) = xdr::decode::<Compounded<'_>>(rest).map_err(nonsense)?;
    for at in 0..done.resarray.min(2) {
        let (result, number) = xdr::decode::<u32>(rest).map_err(nonsense)?;
        let parsed = wire::decode(result, |i| Results::parse(number, i)).map_err(nonsense)?;
        rest = parsed.0;
        let refused = match (at, parsed.1) {
            (0, Some(Results::Sequence(Res::Ok(_)))) if operations == 1 => return Ok(Said::Done),
            (0, Some(Results::Sequence(Res::Ok(_)))) => continue,
            (1, Some(Results::Status(Nfsstat4::Ok))) if number == op::RECALL => {
                return Ok(Said::Done);
            }
            (1, Some(Results::Getattr(Res::Ok(fattr)))) => {
                return attributes_of(&fattr).map(Said::Attributes).ok_or(Failed::Nonsense);
            }
            (
                0,
                Some(Results::Sequence(Res::Err(
                    Nfsstat4::BadSession | Nfsstat4::BadSlot | Nfsstat4::SeqMisordered,
                ))),
            ) => return Err(Failed::Nonsense),
            (_, Some(Results::Sequence(Res::Err(status)) | Results::Getattr(Res::Err(status)))) => {
                status
            }
            (_, Some(Results::Status(status))) if number == op::RECALL => status,
            _ => return Err(Failed::Nonsense),
        };
        return match refused {
            // The client executed the first attempt, whose answer was lost and not cached: it has received the recall.
            Nfsstat4::RetryUncachedRep => Ok(Said::Done),
            refused => Err(Failed::Refused(refused.into())),
        };
    }
    Err(Failed::Nonsense)
}

fn nonsense(_: Malformed<'_>) -> Failed {
    Failed::Nonsense
}

/// Decodes the holder's attributes, which begin with the requested ones; further ones follow. `None` if they are invalid.
fn attributes_of(said: &Fattr4<'_>) -> Option<Attributes> {
    if !said.attrmask.iter().take(2).eq(ASKED.iter()) || said.attr_vals.len() > ATTRIBUTES_MAX {
        return None;
    }
    let (mut change, mut size, mut times) = (0, 0, DelegatedTimes::default());
    let mut rest = said.attr_vals;
    for number in said.attrmask.iter().take_while(|&number| ASKED_WITH_TIMES.has(number)) {
        let (behind, value) = wire::decode(rest, |i| Value::parse(number, i)).ok()?;
        rest = behind;
        match value {
            Some(Value::Change(number)) => change = number,
            Some(Value::Size(bytes)) => size = bytes,
            Some(Value::TimeDelegAccess(time)) => times.atime = Some(time_of(time)?),
            Some(Value::TimeDelegModify(time)) => times.mtime = Some(time_of(time)?),
            _ => return None,
        }
    }
    // The value is reported to other clients as the file size, which is signed (`off_t`, and EndOfFile of MS-FSCC 2.4.13).
    i64::try_from(size).ok()?;
    Some(Attributes { change, size, times })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::Time;

    const OP_CB_GETATTR: u32 = 3;
    const OP_CB_RECALL: u32 = 4;
    const OP_CB_SEQUENCE: u32 = 11;

    fn answer(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    /// xid, REPLY, accepted, AUTH_NONE, no body, SUCCESS; then status, no tag.
    const HEAD: [u32; 8] = [7, 1, 0, 0, 0, 0, 0, 0];
    const SEQUENCE_OK: [u32; 10] = [OP_CB_SEQUENCE, 0, 1, 2, 3, 4, 1, 0, 0, 0];

    fn outcome(rest: &[u32]) -> Result<Said, Failed> {
        decode(&answer(&[&HEAD[..], rest].concat()), 2)
    }

    #[test]
    fn recall_answer_is_decoded() {
        let both = |status| outcome(&[&[2][..], &SEQUENCE_OK, &[OP_CB_RECALL, status]].concat());
        assert_eq!(both(0), Ok(Said::Done));
        assert_eq!(both(10_008), Err(Failed::Refused(Status::Delay)));
        assert_eq!(both(10_025), Err(Failed::Refused(Status::BadStateId)));
        assert_eq!(both(4_242), Err(Failed::Nonsense));
        assert_eq!(outcome(&[1, OP_CB_SEQUENCE, 10_008]), Err(Failed::Refused(Status::Delay)));
        assert_eq!(outcome(&[1, OP_CB_SEQUENCE, 10_052]), Err(Failed::Nonsense));
        assert_eq!(outcome(&[1, OP_CB_SEQUENCE, 10_068]), Ok(Said::Done));
        assert_eq!(outcome(&[0]), Err(Failed::Nonsense));
        assert_eq!(outcome(&[9]), Err(Failed::Nonsense));
        assert_eq!(decode(&answer(&[7, 1, 1, 0, 0]), 2), Err(Failed::Nonsense));
        assert_eq!(decode(&answer(&[7]), 2), Err(Failed::Nonsense));
        assert_eq!(outcome(&[&[1][..], &SEQUENCE_OK].concat()), Err(Failed::Nonsense));
        let alone = answer(&[&HEAD[..], &[1], &SEQUENCE_OK].concat());
        assert_eq!(decode(&alone, 1), Ok(Said::Done));
        let refused = answer(&[&HEAD[..], &[1, OP_CB_SEQUENCE, 10_008]].concat());
        assert_eq!(decode(&refused, 1), Err(Failed::Refused(Status::Delay)));
    }

    #[test]
    fn holder_times_are_decoded() {
        let said =
            |rest: &[u32]| outcome(&[&[2][..], &SEQUENCE_OK, &[OP_CB_GETATTR, 0], rest].concat());
        let times = |nsec: u32| [3, 0b1_1000, 0, 3 << 20, 40, 0, 1, 0, 2, 0, 5, 6, 0, 7, nsec];
        let Ok(Said::Attributes(all)) = said(&times(8)) else { panic!("understood") };
        assert_eq!((all.change, all.size), (1, 2));
        assert_eq!(all.times.atime, Some(Time { sec: 5, nsec: 6 }));
        assert_eq!(all.times.mtime, Some(Time { sec: 7, nsec: 8 }));
        assert_eq!(said(&times(1_000_000_000)), Err(Failed::Nonsense));
        assert_eq!(said(&times(8)[..14]), Err(Failed::Nonsense));
    }

    #[test]
    fn holder_attributes_are_decoded() {
        let said =
            |rest: &[u32]| outcome(&[&[2][..], &SEQUENCE_OK, &[OP_CB_GETATTR, 0], rest].concat());
        let times = DelegatedTimes::default();
        let attributes = Attributes { change: 0x1_0000_0002, size: 0x3_0000_0004, times };
        let all = [1, 0b1_1000, 16, 1, 2, 3, 4];
        assert_eq!(said(&all), Ok(Said::Attributes(attributes)));
        assert_eq!(said(&[1, 0b1000, 8, 1, 2]), Err(Failed::Nonsense), "the size is missing");
        assert_eq!(said(&[1, 0b11_1000, 20, 1, 2, 3, 4, 5]), Ok(Said::Attributes(attributes)));
        assert_eq!(said(&[1, 0b1_1010, 20, 2, 1, 2, 3, 4]), Err(Failed::Nonsense));
        assert_eq!(said(&[1, 0b1_1000, 257, 1, 2, 3, 4]), Err(Failed::Nonsense));
        let largest = [1, 0b1_1000, 16, 1, 2, u32::MAX >> 1, u32::MAX];
        assert!(matches!(said(&largest), Ok(Said::Attributes(_))));
        let larger_than_any_file = [1, 0b1_1000, 16, 1, 2, 1 << 31, 0];
        assert_eq!(said(&larger_than_any_file), Err(Failed::Nonsense));
        assert_eq!(said(&all[..5]), Err(Failed::Nonsense));
        let refused = outcome(&[&[2][..], &SEQUENCE_OK, &[OP_CB_GETATTR, 10_001]].concat());
        assert_eq!(refused, Err(Failed::Refused(Status::BadHandle)));
    }
}
