//! Callbacks of the server: CB_NULL, CB_SEQUENCE, CB_RECALL and CB_GETATTR (RFC 8881 section 20).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use iobuf::Buf;
use mutex::locked;
use nfs_proto::nfs4::attrs::{Bitmap4, Value, put_fattr};
use nfs_proto::nfs4::cb::{self, Args, Compound, Compounded, Results, Sequenced};
use nfs_proto::nfs4::ops::Res;
use nfs_proto::nfs4::{Nfsstat4, Nfstime4, Stateid4 as Stateid, attr};
use nfs_proto::oncrpc::{AcceptStat, CallHead, ReplyHead};
use nfs_proto::xdr::{Xdr, decode};
use tokio::sync::mpsc;

use super::Fh;
use crate::rpc::Callbacks;

/// The RPC program that the client names in CREATE_SESSION.
pub(super) const CB_PROGRAM: u32 = 0x4000_0000;

/// Maximum number of operations in one call.
const OPERATIONS_MAX: u32 = 16;
/// Maximum number of unprocessed recalls; beyond that the server gets NFS4ERR_DELAY.
const RECALLS_MAX: usize = 64;

/// A recall of a delegation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// Stateid of the delegation.
    pub stateid: Stateid,
    /// The file is about to be truncated.
    pub truncate: bool,
    pub fh: Fh,
}

/// The attributes of a file as the holder of a write delegation knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegatedAttrs {
    /// The change attribute from the server, or another value if the client has unwritten changes.
    pub change: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last read: seconds and nanoseconds.
    pub access: (i64, u32),
    /// Time of the last change.
    pub modify: (i64, u32),
}

/// The replies to CB_GETATTR by file; files that are missing here are unknown.
pub type Keeps = Arc<Mutex<HashMap<Fh, DelegatedAttrs>>>;

/// Handles callbacks, and passes recalls to a receiver.
#[derive(Debug)]
pub struct Recalls {
    recalls: mpsc::Sender<Recall>,
    keeps: Keeps,
}

impl Recalls {
    /// Returns the handler and the receiver of recalls.
    pub fn new() -> (Self, mpsc::Receiver<Recall>) {
        let (sender, receiver) = mpsc::channel(RECALLS_MAX);
        (Self { recalls: sender, keeps: Keeps::default() }, receiver)
    }

    /// Returns the replies to CB_GETATTR, by file handle.
    pub fn keeps(&self) -> Keeps {
        self.keeps.clone()
    }

    /// CB_GETATTR. Omits attributes that this client does not keep.
    fn getattr(&self, asked: &cb::Getattr<'_>, out: &mut Vec<u8>) -> Nfsstat4 {
        let fh = Fh::new(asked.fh);
        let known = locked(&self.keeps).get(&fh).copied();
        let Some(kept) = known else { return just(Nfsstat4::BadHandle, out) };
        let time = |(seconds, nseconds)| Nfstime4 { seconds, nseconds };
        let all = [
            (attr::CHANGE, Value::Change(kept.change)),
            (attr::SIZE, Value::Size(kept.size)),
            (attr::TIME_DELEG_ACCESS, Value::TimeDelegAccess(time(kept.access))),
            (attr::TIME_DELEG_MODIFY, Value::TimeDelegModify(time(kept.modify))),
        ];
        let said = all.into_iter().filter(|(number, _)| asked.attr_request.has(*number));
        let (numbers, values): (Vec<u32>, Vec<Value<'_>>) = said.unzip();
        Nfsstat4::Ok.emit(out);
        put_fattr(&Bitmap4::of(&numbers), &values, out);
        Nfsstat4::Ok
    }

    /// Appends the result of an operation; returns the status.
    fn operation(&self, args: Option<Args<'_>>, out: &mut Vec<u8>) -> Nfsstat4 {
        match args {
            Some(Args::Sequence(asked)) => {
                let done = Sequenced {
                    sessionid: asked.sessionid,
                    sequenceid: asked.sequenceid,
                    slotid: asked.slotid,
                    highest_slotid: asked.highest_slotid,
                    target_highest_slotid: asked.highest_slotid,
                };
                Results::Sequence(Res::Ok(done)).emit(out);
                Nfsstat4::Ok
            }
            Some(Args::Recall(asked)) => {
                let (stateid, truncate) = (asked.stateid, asked.truncate);
                let recall = Recall { stateid, truncate, fh: Fh::new(asked.fh) };
                match self.recalls.try_send(recall) {
                    Ok(()) => just(Nfsstat4::Ok, out),
                    // The receiver is gone or full, so the delegation cannot be returned: reply like a busy client.
                    Err(_) => just(Nfsstat4::Delay, out),
                }
            }
            Some(Args::Getattr(asked)) => self.getattr(&asked, out),
            _ => just(Nfsstat4::NotSupp, out),
        }
    }

    /// Processes a COMPOUND; `None` if it cannot be parsed.
    fn compound(&self, arguments: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let (mut rest, asked) = decode::<Compound<'_>>(arguments).ok()?;
        if asked.argarray > OPERATIONS_MAX {
            return None;
        }
        let mut done = Compounded { status: Nfsstat4::Ok, tag: asked.tag, resarray: 0 };
        let mut results = Vec::new();
        while done.resarray < asked.argarray && done.status == Nfsstat4::Ok {
            let (behind, number) = decode::<u32>(rest).ok()?;
            let (behind, args) = wire::decode(behind, |i| Args::parse(number, i)).ok()?;
            number.emit(&mut results);
            done.status = self.operation(args, &mut results);
            done.resarray += 1;
            rest = behind;
        }
        done.emit(out);
        out.extend_from_slice(&results);
        Some(())
    }
}

/// Appends a result with only a status.
fn just(status: Nfsstat4, out: &mut Vec<u8>) -> Nfsstat4 {
    Results::Status(status).emit(out);
    status
}

impl Callbacks for Recalls {
    fn call(&self, message: &Buf) -> Option<Vec<u8>> {
        let (arguments, head) = CallHead::decode(message.as_slice()).ok()?;
        let mut out = Vec::new();
        ReplyHead::accepted(head.xid, AcceptStat::Success).emit(&mut out);
        if head.procedure == cb::PROC_COMPOUND {
            self.compound(arguments, &mut out)?;
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::nfs4::cb::op;

    /// Builds a CB_COMPOUND of these operations with AUTH_NONE.
    fn call(count: u32, operations: &[u32]) -> Buf {
        let head = [7, 0, 2, CB_PROGRAM, 1, cb::PROC_COMPOUND, 0, 0, 0, 0, 0, 1, 0, count];
        let words = [&head[..], operations].concat();
        Buf::from(words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>())
    }

    /// Returns the words of the reply after its header and an empty tag: the status, the count, the results.
    fn answer(recalls: &Recalls, message: &Buf) -> Option<Vec<u32>> {
        let answer = recalls.call(message)?;
        let words: Vec<u32> = answer.chunks(4).map(|w| decode(w).unwrap().1).collect();
        assert_eq!(words[..6], [7, 1, 0, 0, 0, 0]);
        assert_eq!(words[7], 0, "the tag");
        Some([&words[6..7], &words[8..]].concat())
    }

    const SEQUENCE: [u32; 10] = [op::SEQUENCE, 1, 2, 3, 4, 5, 6, 7, 0, 0];
    const SEQUENCED: [u32; 10] = [op::SEQUENCE, 0, 1, 2, 3, 4, 5, 6, 7, 7];

    #[test]
    fn getattr_returns_only_kept_attributes() {
        let (recalls, _receiver) = Recalls::new();
        let kept = DelegatedAttrs { change: 8, size: 9, access: (1, 2), modify: (3, 4) };
        recalls.keeps().lock().unwrap().insert(Fh::new(&[0, 0, 0, 5]), kept);
        // CHANGE, SIZE and MODE of a known file, and of an unknown one.
        let asked = |fh| [&SEQUENCE[..], &[op::GETATTR, 4, fh, 2, 0b1_1000, 2]].concat();
        let said = answer(&recalls, &call(2, &asked(5))).unwrap();
        let all = [op::GETATTR, 0, 1, 0b1_1000, 16, 0, 8, 0, 9];
        assert_eq!(said, [&[0, 2][..], &SEQUENCED, &all].concat());
        let said = answer(&recalls, &call(2, &asked(6))).unwrap();
        assert_eq!(said, [&[10_001, 2][..], &SEQUENCED, &[op::GETATTR, 10_001]].concat());
    }

    #[test]
    fn unreceived_recall_is_delayed() {
        let (recalls, mut receiver) = Recalls::new();
        let recall = [op::RECALL, 1, 2, 3, 4, 1, 4, 5];
        let said = answer(&recalls, &call(1, &recall)).unwrap();
        assert_eq!(said, [0, 1, op::RECALL, 0]);
        let taken = receiver.try_recv().unwrap();
        assert_eq!((taken.stateid.seqid, taken.truncate), (1, true));
        drop(receiver);
        let said = answer(&recalls, &call(2, &[recall, recall].concat())).unwrap();
        assert_eq!(said, [10_008, 1, op::RECALL, 10_008]);
    }

    #[test]
    fn malformed_callback_gets_no_reply() {
        let (recalls, _receiver) = Recalls::new();
        assert_eq!(answer(&recalls, &call(1, &SEQUENCE[..9])), None);
        assert_eq!(answer(&recalls, &call(OPERATIONS_MAX + 1, &[])), None);
        let said = answer(&recalls, &call(1, &[op::RECALL_SLOT, 3])).unwrap();
        assert_eq!(said, [10_004, 1, op::RECALL_SLOT, 10_004]);
    }
}
