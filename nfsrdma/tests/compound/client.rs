//! Clients of minor versions with sessions, each with a name, a connection and a slot; and encoders of their arguments.

use std::cell::Cell;
use std::sync::Arc;

use nfsrdma::context::Conn;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, op};
use rdma_transport::channel::Handle;
use rdma_transport::xdr::Writer;
use vfs::Cred;

pub use crate::harness::conn as conn_of;
use crate::harness::{Args, Harness, Results, fattr};

pub const BACK_CHAN: u32 = 2;

/// A client with one session.
pub struct Client<'k> {
    pub harness: &'k Harness,
    pub minor: u32,
    pub id: u64,
    pub session: Vec<u8>,
    pub conn: Arc<Conn>,
    pub cred: Cred,
    /// Sequence number of the last request on slot 0.
    pub sequence: Cell<u32>,
    /// `sr_status_flags` of the last SEQUENCE.
    pub flags: Cell<u32>,
}

/// Arguments of EXCHANGE_ID.
pub fn exchange(name: &[u8], verifier: u64, flags: u32) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.u64(verifier);
        w.opaque(name);
        w.u32(flags);
        w.u32(0);
        w.count(0);
    }
}

/// Arguments of CREATE_SESSION with these limits: request, response, cached response, operations, slots.
pub fn create(id: u64, sequence: u32, flags: u32, fore: [u32; 5]) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.u64(id);
        w.u32(sequence);
        w.u32(flags);
        for channel in [fore, [4096, 4096, 0, 2, 4]] {
            w.u32(0);
            channel.iter().for_each(|n| w.u32(*n));
            w.u32(0);
        }
        w.u32(0x4000_0000);
        // One AUTH_NONE.
        w.u32(1);
        w.u32(0);
    }
}

pub const FORE: [u32; 5] = [1 << 20, 1 << 20, 4096, 32, 4];

impl<'k> Client<'k> {
    /// Creates a client that has sent RECLAIM_COMPLETE.
    pub async fn new(harness: &'k Harness, name: &[u8]) -> Self {
        let c = Self::unreclaimed(harness, name, Handle::detached()).await;
        c.run(|c| c.op(op::RECLAIM_COMPLETE, |w| w.bool(false))).await.ok(&[op::RECLAIM_COMPLETE]);
        c
    }

    /// Creates a client that receives callbacks through this handle.
    pub async fn called_by(harness: &'k Harness, name: &[u8], handle: Handle) -> Self {
        let c = Self::unreclaimed(harness, name, handle).await;
        c.run(|c| c.op(op::RECLAIM_COMPLETE, |w| w.bool(false))).await.ok(&[op::RECLAIM_COMPLETE]);
        c
    }

    pub async fn unreclaimed(harness: &'k Harness, name: &[u8], handle: Handle) -> Self {
        Self::with(harness, name, handle, FORE).await
    }

    pub async fn with(harness: &'k Harness, name: &[u8], handle: Handle, fore: [u32; 5]) -> Self {
        Self::of_minor(1, harness, name, handle, fore).await
    }

    /// Creates a client of minor version 2 that has sent RECLAIM_COMPLETE.
    pub async fn of_minor_2(harness: &'k Harness, name: &[u8], handle: Handle) -> Self {
        let c = Self::of_minor(2, harness, name, handle, FORE).await;
        c.run(|c| c.op(op::RECLAIM_COMPLETE, |w| w.bool(false))).await.ok(&[op::RECLAIM_COMPLETE]);
        c
    }

    async fn of_minor(
        minor: u32,
        harness: &'k Harness,
        name: &[u8],
        handle: Handle,
        fore: [u32; 5],
    ) -> Self {
        let (conn, cred) = (conn_of(handle), Cred::root());
        let mut r = harness
            .run_on(&conn, &cred, minor, |c| c.op(op::EXCHANGE_ID, exchange(name, 1, 0)))
            .await;
        r.expect(op::EXCHANGE_ID, Status::Ok);
        let (id, sequence) = (r.u64(), r.u32());
        let args = create(id, sequence, BACK_CHAN, fore);
        let mut r = harness.run_on(&conn, &cred, minor, |c| c.op(op::CREATE_SESSION, args)).await;
        r.expect(op::CREATE_SESSION, Status::Ok);
        let session = r.fixed(16);
        let (sequence, flags) = (Cell::new(0), Cell::new(0));
        Self { harness, minor, id, session, conn, cred, sequence, flags }
    }

    /// Runs the next COMPOUND of slot 0, with SEQUENCE in front.
    pub async fn run(&self, build: impl FnOnce(Args) -> Args) -> Results {
        self.sequence.set(self.sequence.get() + 1);
        let mut r = self.send(0, self.sequence.get(), false, build).await;
        self.read_sequence(&mut r);
        r
    }

    /// Sends a COMPOUND with any slot and number.
    pub async fn send(
        &self,
        slot: u32,
        sequence: u32,
        keep: bool,
        build: impl FnOnce(Args) -> Args,
    ) -> Results {
        self.send_on(&self.conn, slot, sequence, keep, build).await
    }

    pub async fn send_on(
        &self,
        conn: &Arc<Conn>,
        slot: u32,
        sequence: u32,
        keep: bool,
        build: impl FnOnce(Args) -> Args,
    ) -> Results {
        let head = |w: &mut Writer| {
            w.fixed(&self.session);
            w.u32(sequence);
            w.u32(slot);
            w.u32(slot);
            w.bool(keep);
        };
        self.harness.run_on(conn, &self.cred, self.minor, |c| build(c.op(op::SEQUENCE, head))).await
    }

    pub fn read_sequence(&self, r: &mut Results) {
        r.expect(op::SEQUENCE, Status::Ok);
        assert_eq!(r.fixed(16), self.session);
        for _ in 0..4 {
            r.u32();
        }
        self.flags.set(r.u32());
    }

    /// Opens a file of the share `data`, creating it if needed.
    pub async fn open(
        &self,
        owner: &[u8],
        name: &[u8],
        share: (u32, u32),
    ) -> Result<Opened, Status> {
        let mut r = self
            .run(|c| c.data().op(op::OPEN, unchecked(0, owner, name, share, &[])).getfh())
            .await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]);
        if r.status != Status::Ok {
            let status = r.status;
            r.expect(op::OPEN, status).end(status);
            return Err(status);
        }
        let mut opened = read_open(&mut r);
        opened.fh = r.expect(op::GETFH, Status::Ok).opaque();
        Ok(opened)
    }

    /// Runs an operation on the file; returns the status, with the result still to decode.
    pub async fn on(
        &self,
        fh: &[u8],
        opcode: u32,
        args: impl FnOnce(&mut Writer),
    ) -> (Status, Results) {
        let mut r = self.run(|c| c.putfh(fh).op(opcode, args)).await;
        r.ok(&[op::PUTFH]);
        let status = r.status;
        r.expect(opcode, status);
        (status, r)
    }

    pub async fn close(&self, opened: &Opened) -> Status {
        self.on(&opened.fh, op::CLOSE, close(0, opened.stateid)).await.0
    }

    pub async fn write(&self, fh: &[u8], stateid: Stateid, data: &[u8]) -> Status {
        self.on(fh, op::WRITE, write(stateid, data)).await.0
    }

    pub async fn read(&self, fh: &[u8], stateid: Stateid) -> Status {
        self.on(fh, op::READ, read(stateid)).await.0
    }
}

pub fn read(stateid: Stateid) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.value(&stateid);
        w.u64(0);
        w.u32(16);
    }
}

pub fn write(stateid: Stateid, data: &[u8]) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.value(&stateid);
        w.u64(0);
        w.u32(2);
        w.opaque(data);
    }
}

pub fn close(seqid: u32, stateid: Stateid) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.u32(seqid);
        w.value(&stateid);
    }
}

pub const R: (u32, u32) = (1, 0);
pub const W: (u32, u32) = (2, 0);
pub const RW: (u32, u32) = (3, 0);

/// The first arguments of OPEN, up to `openhow`.
pub fn open_head(w: &mut Writer, seqid: u32, client: u64, owner: &[u8], share: (u32, u32)) {
    w.u32(seqid);
    w.u32(share.0);
    w.u32(share.1);
    w.u64(client);
    w.opaque(owner);
}

/// OPEN by name, UNCHECKED4, with mode 0644 and further attributes, such as a size.
pub fn unchecked(
    seqid: u32,
    owner: &[u8],
    name: &[u8],
    share: (u32, u32),
    size: &[u64],
) -> impl FnOnce(&mut Writer) {
    move |w| {
        open_head(w, seqid, 0, owner, share);
        w.u32(1);
        w.u32(0);
        match size {
            [] => fattr(w, &[33], |v| v.u32(0o644)),
            sizes => fattr(w, &[4, 33], |v| {
                sizes.iter().for_each(|n| v.u64(*n));
                v.u32(0o644);
            }),
        }
        w.u32(0);
        w.opaque(name);
    }
}

/// The results of OPEN.
#[derive(Clone, Debug)]
pub struct Opened {
    pub stateid: Stateid,
    pub rflags: u32,
    pub change: (u64, u64),
    pub set: Vec<u32>,
    /// `open_delegation_type4`, and the stateid of the delegation.
    pub delegation: (u32, Option<Stateid>),
    pub fh: Vec<u8>,
}

pub fn read_stateid(r: &mut Results) -> Stateid {
    Stateid { seqid: r.u32(), other: r.fixed(12).try_into().unwrap() }
}

pub fn read_open(r: &mut Results) -> Opened {
    r.expect(op::OPEN, Status::Ok);
    let stateid = read_stateid(r);
    r.bool();
    let change = (r.u64(), r.u64());
    let rflags = r.u32();
    let set = r.bitmap();
    let delegation = match r.u32() {
        kind @ (1 | 2 | 4 | 5) => {
            let id = read_stateid(r);
            assert!(!r.bool(), "no recall at once");
            if matches!(kind, 2 | 5) {
                assert_eq!((r.u32(), r.u64()), (1, 0), "no storage is reserved");
            }
            for _ in 0..3 {
                r.u32();
            }
            r.opaque();
            (kind, Some(id))
        }
        3 => {
            if matches!(r.u32(), 1 | 2) {
                r.bool();
            }
            (3, None)
        }
        other => (other, None),
    };
    Opened { stateid, rflags, change, set, delegation, fh: Vec::new() }
}

pub const READ_LT: u32 = 1;
pub const WRITE_LT: u32 = 2;

/// The owner's first LOCK on a file.
pub fn first_lock(
    kind: u32,
    range: (u64, u64),
    open: Stateid,
    owner: &[u8],
    reclaim: bool,
) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.u32(kind);
        w.bool(reclaim);
        w.u64(range.0);
        w.u64(range.1);
        w.bool(true);
        w.u32(0);
        w.value(&open);
        w.u32(0);
        w.u64(0);
        w.opaque(owner);
    }
}

pub fn next_lock(kind: u32, range: (u64, u64), lock: Stateid) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.u32(kind);
        w.bool(false);
        w.u64(range.0);
        w.u64(range.1);
        w.bool(false);
        w.value(&lock);
        w.u32(0);
    }
}

pub fn locku(range: (u64, u64), lock: Stateid) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.u32(READ_LT);
        w.u32(0);
        w.value(&lock);
        w.u64(range.0);
        w.u64(range.1);
    }
}

pub fn lockt(kind: u32, range: (u64, u64), owner: &[u8]) -> impl FnOnce(&mut Writer) {
    move |w| {
        w.u32(kind);
        w.u64(range.0);
        w.u64(range.1);
        w.u64(0);
        w.opaque(owner);
    }
}
