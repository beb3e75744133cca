//! What the server asks of its client: CB_NULL, CB_SEQUENCE, CB_RECALL and CB_GETATTR (RFC 8881 section 20).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use iobuf::Buf;
use nfs_proto::nfs4::{Stateid4 as Stateid, attr};
use nfsrdma::xdr::{Reader, Writer, XdrError, XdrResult};
use tokio::sync::mpsc;

use super::Fh;
use super::attrs::{put_bitmap, read_bitmap};
use crate::rpc::Callbacks;

/// The RPC program that the client names in CREATE_SESSION.
pub(super) const CB_PROGRAM: u32 = 0x4000_0000;

const OP_CB_GETATTR: u32 = 3;
const OP_CB_RECALL: u32 = 4;
const NFS4ERR_BADHANDLE: u32 = 10001;
const OP_CB_SEQUENCE: u32 = 11;
const NFS4ERR_NOTSUPP: u32 = 10004;
/// Recalls that wait for someone to look at them; the server hears NFS4ERR_DELAY when there are more.
const RECALLS_MAX: usize = 64;
const NFS4ERR_DELAY: u32 = 10008;

/// A delegation that the server wants back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// Which one.
    pub stateid: Stateid,
    /// The file is about to be truncated.
    pub truncate: bool,
    /// The file.
    pub fh: Fh,
}

/// What the holder of a write delegation says of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBack {
    /// The change attribute that it was given, or another when it has something to write.
    pub change: u64,
    /// Bytes.
    pub size: u64,
    /// Of the last read: seconds and nanoseconds.
    pub access: (i64, u32),
    /// Of the last change.
    pub modify: (i64, u32),
}

/// Answers CB_GETATTR; of a file that is not here it knows nothing.
pub type Keeps = Arc<Mutex<HashMap<Fh, KeptBack>>>;

/// Answers callbacks, and hands recalls to whoever holds the other end.
#[derive(Debug)]
pub struct Recalls {
    recalls: mpsc::Sender<Recall>,
    keeps: Keeps,
}

impl Recalls {
    /// The callbacks to connect with, and where recalls come out.
    pub fn new() -> (Self, mpsc::Receiver<Recall>) {
        let (sender, receiver) = mpsc::channel(RECALLS_MAX);
        (Self { recalls: sender, keeps: Keeps::default() }, receiver)
    }

    /// What is said to CB_GETATTR, by file handle.
    pub fn keeps(&self) -> Keeps {
        self.keeps.clone()
    }

    fn getattr(&self, r: &mut Reader<'_>, w: &mut Writer) -> XdrResult<u32> {
        let (fh, asked) = (Fh::new(r.opaque(128)?), read_bitmap(r)?);
        let known = self.keeps.lock().unwrap_or_else(PoisonError::into_inner).get(&fh).copied();
        let Some(kept) = known else {
            w.u32(NFS4ERR_BADHANDLE);
            return Ok(NFS4ERR_BADHANDLE);
        };
        let mut values = Writer::new();
        for number in &asked {
            let mut time = |(sec, nsec): (i64, u32)| {
                values.i64(sec);
                values.u32(nsec);
            };
            match *number {
                attr::CHANGE => values.u64(kept.change),
                attr::SIZE => values.u64(kept.size),
                attr::TIME_DELEG_ACCESS => time(kept.access),
                attr::TIME_DELEG_MODIFY => time(kept.modify),
                _ => return Err(XdrError::BadValue),
            }
        }
        w.u32(0);
        put_bitmap(w, &asked);
        w.opaque(values.bytes());
        Ok(0)
    }

    fn compound(&self, r: &mut Reader<'_>, w: &mut Writer) -> XdrResult<()> {
        let tag = r.opaque(1024)?;
        let (_minor, _ident) = (r.u32()?, r.u32()?);
        let count = r.count(16)?;
        let status_at = w.len();
        w.u32(0);
        w.opaque(tag);
        let count_at = w.len();
        w.u32(0);
        for done in 1..=count {
            let op = r.u32()?;
            w.u32(op);
            let status = self.operation(op, r, w)?;
            w.patch_u32(count_at, u32::try_from(done).unwrap_or(0));
            if status != 0 {
                w.patch_u32(status_at, status);
                break;
            }
        }
        Ok(())
    }

    /// Writes the status and the result; gives the status.
    fn operation(&self, op: u32, r: &mut Reader<'_>, w: &mut Writer) -> XdrResult<u32> {
        match op {
            OP_CB_SEQUENCE => {
                let session: [u8; 16] = r.fixed()?;
                let (sequence, slot, highest) = (r.u32()?, r.u32()?, r.u32()?);
                let _keep = r.bool()?;
                for _ in 0..r.count(16)? {
                    r.fixed::<16>()?;
                    for _ in 0..r.count(256)? {
                        r.u64()?;
                    }
                }
                w.u32(0);
                w.fixed(&session);
                for word in [sequence, slot, highest, highest] {
                    w.u32(word);
                }
                Ok(0)
            }
            OP_CB_RECALL => {
                let stateid = r.value::<Stateid>()?;
                let recall = Recall { stateid, truncate: r.bool()?, fh: Fh::new(r.opaque(128)?) };
                // Nobody listens: the delegation cannot be returned, as with a client that is busy.
                let status = if self.recalls.try_send(recall).is_ok() { 0 } else { NFS4ERR_DELAY };
                w.u32(status);
                Ok(status)
            }
            OP_CB_GETATTR => self.getattr(r, w),
            _ => {
                w.u32(NFS4ERR_NOTSUPP);
                Ok(NFS4ERR_NOTSUPP)
            }
        }
    }

    fn answer(&self, message: &Buf) -> XdrResult<Vec<u8>> {
        let mut r = Reader::new(message, &[]);
        let (xid, _call, _rpc_version) = (r.u32()?, r.u32()?, r.u32()?);
        let (_program, _version, procedure) = (r.u32()?, r.u32()?, r.u32()?);
        for _ in 0..2 {
            r.u32()?;
            r.opaque(400)?;
        }
        let mut w = Writer::new();
        // REPLY, accepted, an empty verifier, SUCCESS.
        for word in [xid, 1, 0, 0, 0, 0] {
            w.u32(word);
        }
        if procedure == 1 {
            self.compound(&mut r, &mut w)?;
        }
        Ok(w.bytes().to_vec())
    }
}

impl Callbacks for Recalls {
    fn call(&self, message: &Buf) -> Option<Vec<u8>> {
        self.answer(message).ok()
    }
}
