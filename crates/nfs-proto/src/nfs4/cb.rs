//! Callbacks from a server to its client (RFC 8881 section 20).

pub use super::Compounded;
use super::attrs::{Bitmap4, Fattr4};
use super::ops::Res;
use super::{FHSIZE, Fsid4, LIST_MAX, Nfsstat4, SESSIONID_SIZE, StateOwner4, Stateid4, UNLIMITED};
use crate::xdr::{choice, structs, union};

/// CB_COMPOUND; the only other procedure is CB_NULL.
pub const PROC_COMPOUND: u32 = 1;

/// Operation numbers (`nfs_cb_opnum4`).
#[allow(missing_docs)] // Names from the specification, without OP_CB_.
pub mod op {
    pub const GETATTR: u32 = 3;
    pub const RECALL: u32 = 4;
    pub const LAYOUTRECALL: u32 = 5;
    pub const RECALL_ANY: u32 = 8;
    pub const RECALLABLE_OBJ_AVAIL: u32 = 9;
    pub const RECALL_SLOT: u32 = 10;
    pub const SEQUENCE: u32 = 11;
    pub const WANTS_CANCELLED: u32 = 12;
    pub const NOTIFY_LOCK: u32 = 13;
    pub const OFFLOAD: u32 = 15;
    pub const ILLEGAL: u32 = 10_044;
}

structs! {
    /// `CB_COMPOUND4args` up to the operations.
    #[derive(Copy)]
    pub struct Compound<'a> {
        tag: &'a [u8] as UNLIMITED,
        minorversion: u32,
        callback_ident: u32,
        argarray: u32,
    }

    /// `CB_GETATTR4args`.
    #[derive(Copy)]
    pub struct Getattr<'a> {
        fh: &'a [u8] as FHSIZE,
        attr_request: Bitmap4,
    }

    /// `CB_RECALL4args`.
    #[derive(Copy)]
    pub struct Recall<'a> {
        stateid: Stateid4,
        truncate: bool,
        fh: &'a [u8] as FHSIZE,
    }

    /// `layoutrecall_file4`.
    #[derive(Copy)]
    pub struct LayoutrecallFile<'a> {
        fh: &'a [u8] as FHSIZE,
        offset: u64,
        length: u64,
        stateid: Stateid4,
    }

    /// `CB_LAYOUTRECALL4args`.
    #[derive(Copy)]
    pub struct Layoutrecall<'a> {
        layout_type: u32,
        iomode: u32,
        layoutchanged: bool,
        recall: Layoutrecall4<'a>,
    }

    /// `CB_RECALL_ANY4args`.
    #[derive(Copy)]
    pub struct RecallAny {
        objects_to_keep: u32,
        type_mask: Bitmap4,
    }

    /// `referring_call4`.
    #[derive(Copy)]
    pub struct ReferringCall4 {
        sequenceid: u32,
        slotid: u32,
    }

    /// `referring_call_list4`.
    pub struct ReferringCallList4 {
        sessionid: [u8; SESSIONID_SIZE],
        referring_calls: Vec<ReferringCall4> as LIST_MAX,
    }

    /// `CB_SEQUENCE4args`.
    pub struct Sequence {
        sessionid: [u8; SESSIONID_SIZE],
        sequenceid: u32,
        slotid: u32,
        highest_slotid: u32,
        cachethis: bool,
        referring_call_lists: Vec<ReferringCallList4> as LIST_MAX,
    }

    /// `CB_SEQUENCE4resok`.
    #[derive(Copy)]
    pub struct Sequenced {
        sessionid: [u8; SESSIONID_SIZE],
        sequenceid: u32,
        slotid: u32,
        highest_slotid: u32,
        target_highest_slotid: u32,
    }

    /// `CB_WANTS_CANCELLED4args`.
    #[derive(Copy)]
    pub struct WantsCancelled {
        contended_wants_cancelled: bool,
        resourced_wants_cancelled: bool,
    }

    /// `CB_NOTIFY_LOCK4args`.
    #[derive(Copy)]
    pub struct NotifyLock<'a> {
        fh: &'a [u8] as FHSIZE,
        lock_owner: StateOwner4<'a>,
    }

    /// `CB_OFFLOAD4args`.
    pub struct Offload<'a> {
        fh: &'a [u8] as FHSIZE,
        stateid: Stateid4,
        offload_info: OffloadInfo4,
    }
}

union! {
    /// `layoutrecall4`.
    #[derive(Copy)]
    pub enum Layoutrecall4<'a> switch "recalltype" {
        1 => File(LayoutrecallFile<'a>),
        2 => Fsid(Fsid4),
        3 => All,
    }
}

/// `offload_info4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffloadInfo4 {
    /// NFS4_OK.
    Ok(super::ops::WriteResponse4),
    /// The error status, and the number of bytes that were copied.
    Failed(Nfsstat4, u64),
}

impl<'a> crate::xdr::Xdr<'a> for OffloadInfo4 {
    fn field(_: &'static str, input: &'a [u8]) -> wire::Parsed<'a, Self> {
        match Nfsstat4::field("status", input)? {
            (rest, Nfsstat4::Ok) => {
                super::ops::WriteResponse4::parse(rest).map(|(rest, ok)| (rest, Self::Ok(ok)))
            }
            (rest, status) => {
                u64::field("bytes_copied", rest).map(|(rest, n)| (rest, Self::Failed(status, n)))
            }
        }
    }

    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ok(ok) => {
                Nfsstat4::Ok.emit(out);
                ok.emit(out);
            }
            Self::Failed(status, copied) => {
                status.emit(out);
                copied.emit(out);
            }
        }
    }
}

choice! {
    /// Arguments, selected by the operation number.
    pub enum Args<'a> {
        3 => Getattr(Getattr<'a>),
        4 => Recall(Recall<'a>),
        5 => Layoutrecall(Layoutrecall<'a>),
        8 => RecallAny(RecallAny),
        9 => RecallableObjAvail(RecallAny),
        10 => RecallSlot(u32),
        11 => Sequence(Sequence),
        12 => WantsCancelled(WantsCancelled),
        13 => NotifyLock(NotifyLock<'a>),
        15 => Offload(Offload<'a>),
    }

    /// Results, selected by the operation number.
    pub enum Results<'a> {
        3 => Getattr(Res<Fattr4<'a>>),
        11 => Sequence(Res<Sequenced>),
        4 | 5 | 8 | 9 | 10 | 12 | 13 | 15 | 10044 => Status(Nfsstat4),
    }
}
