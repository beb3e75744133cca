//! Executes one COMPOUND: the loop over its operations.
//!
//! *Operation.* The loop enforces the rules of RFC 8881 sections 2.10.6.4 and 16.2 on positions and counts, performs operations
//! until one fails, and writes opcode and status of each. SEQUENCE answers retransmissions of minor version 1 and up through
//! [`Compound::replay`].
//!
//! *Memory.* One reply; the body of a failed operation is removed again unless its error has one.
//!
//! *Errors.* A [`wire::Fault`] only if tag, minor version or count cannot be decoded.

use std::sync::Arc;
use std::time::Instant;

use nfs_proto::nfs4::{self, Compounded, Nfsstat4};
use nfs_proto::xdr::Xdr;
use rdma_transport::meter::{Done, NO_SHARE};
use rdma_transport::xdr::{Reader, Writer, XdrResult};
use rdma_transport::{turn, watchdog};
use wire::{Parsed, Rule, reject};

use super::attrs::Bitmap;
use super::compound::{Compound, ReplyLimits};
use super::nfs4::Nfs4;
use super::object::Object;
use super::status::Status;
use super::wire::{MINOR_MAX, op};
use super::{dispatch, limits};
use crate::context::{CallContext, Conn, Outcome, Version};
use crate::operation;

impl Compound<'_> {
    /// The status for a reply that exceeds its limit.
    fn too_big(&self) -> Status {
        if self.minor == 0 { Status::Resource } else { Status::RepTooBig }
    }

    /// Checks before an operation that its opcode is allowed at this position, and that its result will fit.
    fn admit(&self, opcode: u32) -> Result<(), Status> {
        if let Some(status) = self.refuse_rest {
            return Err(status);
        }
        if !dispatch::is_known(opcode, self.minor) {
            return Err(Status::OpIllegal);
        }
        if self.minor > 0 {
            self.admit_position(opcode)?;
        }
        // Operations that are not idempotent must be refused before execution.
        let need = self.out.total_len().saturating_add(dispatch::result_reserve(opcode));
        if need > self.limits.reply_max {
            return Err(self.too_big());
        }
        if self.limits.cached_max.is_some_and(|max| need > max) {
            return Err(Status::RepTooBigToCache);
        }
        Ok(())
    }

    /// RFC 8881 sections 2.10.2.1, 18.46.3: SEQUENCE is the first operation and only that; operations allowed without it must be
    /// the only one.
    fn admit_position(&self, opcode: u32) -> Result<(), Status> {
        match (self.index, opcode) {
            (0, op::SEQUENCE) => Ok(()),
            (_, op::SEQUENCE) => Err(Status::SequencePos),
            (_, op::BIND_CONN_TO_SESSION) if self.count > 1 => Err(Status::NotOnlyOp),
            (
                0,
                op::EXCHANGE_ID
                | op::CREATE_SESSION
                | op::DESTROY_SESSION
                | op::BIND_CONN_TO_SESSION
                | op::DESTROY_CLIENTID,
            ) => {
                if self.count == 1 {
                    Ok(())
                } else {
                    Err(Status::NotOnlyOp)
                }
            }
            (0, _) => Err(Status::OpNotInSession),
            _ => Ok(()),
        }
    }

    /// Performs the next operation and writes its result.
    async fn step(&mut self) -> Status {
        let Ok(opcode) = self.args.value::<u32>() else {
            self.out.value(&op::ILLEGAL);
            self.out.value(&Nfsstat4::BadXdr);
            return Status::BadXdr;
        };
        self.opcode = opcode;
        let start = self.out.len();
        watchdog::operation(operation::name(operation::of_v4(opcode)));
        let shown = if dispatch::is_known(opcode, self.minor) { opcode } else { op::ILLEGAL };
        self.out.value(&shown);
        self.out.value(&Nfsstat4::Ok);
        let body = self.out.len();
        self.once |= self.minor == 0 && dispatch::changes_something(opcode);
        let mut done = match self.admit(opcode) {
            Ok(()) => self.in_rates(opcode).await,
            Err(status) => Err(status),
        };
        if done.is_ok() && self.out.total_len() > self.limits.reply_max {
            done = Err(self.too_big());
        } else if done.is_ok()
            && self.limits.cached_max.is_some_and(|max| self.out.total_len() > max)
        {
            done = Err(Status::RepTooBigToCache);
        }
        let status = done.err().unwrap_or(Status::Ok);
        if status != Status::Ok {
            if !dispatch::error_has_body(opcode, status) {
                self.out.truncate(body);
            }
            if opcode == op::SETATTR && self.out.len() == body {
                // SETATTR4res has its bitmap after every status.
                self.out.value(&Bitmap::EMPTY);
            }
            self.out.patch_u32(start + 4, status.to_u32());
        }
        status
    }

    /// Counts an operation; returns the time at which the next one begins.
    ///
    /// An operation that only prepares the next one is counted separately only if it fails, otherwise its time is added to the
    /// next: reading the clock after each would cost a small READ more than all other statistics.
    fn record(&mut self, opcode: u32, began: Instant, status: Status) -> Instant {
        let prepares = matches!(
            opcode,
            op::SEQUENCE | op::PUTFH | op::PUTROOTFH | op::PUTPUBFH | op::SAVEFH | op::RESTOREFH
        );
        if prepares && status == Status::Ok && self.index + 1 < self.count {
            return began;
        }
        let share = match &self.current {
            Some(Object::Node(at)) => at.share.id,
            _ => NO_SHARE,
        };
        let done = Done {
            share,
            operation: operation::of_v4(opcode),
            bytes: std::mem::take(&mut self.moved),
            failed: status != Status::Ok,
        };
        let named = || self.nfs.core.namespace.share(share).map(|s| s.name.clone());
        self.conn.info.meter.record(began, done, || named().unwrap_or_default())
    }

    /// Performs operations until one fails. `start` and `results_at` are the offsets of the status and the number of results in the
    /// reply.
    async fn perform_all(&mut self, start: usize, results_at: usize) {
        let mut status = Status::Ok;
        let mut results = 0u32;
        let mut began = self.call.began;
        while self.index < self.count && status == Status::Ok {
            let opcode = self.args.clone().value().unwrap_or(op::ILLEGAL);
            status = self.step().await;
            began = self.record(opcode, began, status);
            turn::pause_as_seen().await;
            results += 1;
            self.index += 1;
            if let Some(kept) = self.replay.take() {
                self.out.truncate(start);
                self.out.head().extend_from_slice(&kept);
                return;
            }
        }
        self.out.patch_u32(start, status.to_u32());
        self.out.patch_u32(results_at, results);
    }
}

/// Decodes the head of a COMPOUND: tag, minor version, number of operations.
fn head(input: &[u8]) -> Parsed<'_, (&[u8], u32, usize)> {
    let (rest, nfs4::Compound { tag, minorversion, argarray }) = Xdr::parse(input)?;
    // Each operation takes at least four bytes, so the size of the request bounds their number.
    let max = rest.len() / 4;
    match usize::try_from(argarray) {
        Ok(count) if count <= max => Ok((rest, (tag, minorversion, count))),
        _ => Err(reject("argarray", Rule::OverLimit { max }, input)),
    }
}

/// Executes the COMPOUND with arguments `args` and appends its reply to `out`, after the RPC header.
pub(super) async fn run(
    nfs: &Nfs4,
    conn: &Arc<Conn>,
    call: &CallContext,
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    // Only the message size limits `utf8str_cs`, and the reply repeats it: if that leaves no room for a result, the first operation
    // fails.
    let (tag, minor, count) = args.parse(head)?;
    if let Some(version) = Version::of_minor(minor) {
        conn.calls(version);
    }

    let start = out.len();
    out.value(&Compounded { status: Nfsstat4::Ok, tag, resarray: 0 });
    // The number of results is the last word.
    let results_at = out.len() - 4;

    let refused = match minor {
        0 if count > limits::OPS_MAX => Some(Status::Resource),
        0..=MINOR_MAX => None,
        _ => Some(Status::MinorVersMismatch),
    };
    if let Some(status) = refused {
        out.patch_u32(start, status.to_u32());
        return Ok(Outcome::Repeatable);
    }

    let mut cx = Compound {
        nfs,
        conn,
        call,
        minor,
        args: args.clone(),
        out: std::mem::take(out),
        index: 0,
        opcode: op::ILLEGAL,
        count,
        current: None,
        found_at: None,
        saved: None,
        current_stateid: None,
        saved_stateid: None,
        limits: ReplyLimits { reply_max: limits::REPLY_MAX, cached_max: None },
        once: false,
        replay: None,
        client: None,
        slot: None,
        moved: 0,
        copied: 0,
        free_reads: 0,
        refuse_rest: None,
    };
    cx.perform_all(start, results_at).await;
    if let Some(slot) = cx.slot.take() {
        slot.finish(&cx.out, start, cx.nfs.clients.now());
    }
    *out = cx.out;
    Ok(if cx.once { Outcome::Once } else { Outcome::Repeatable })
}
