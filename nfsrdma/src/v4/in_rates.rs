//! Performs an operation when the rates of its share, user and client allow it.
//!
//! *Operation.* Operations that work on a file count; those that give back state, locks or sessions do not, because other clients
//! may wait for that. A few GETATTR and ACCESS after another operation belong to it, and a GETATTR before DELEGRETURN is free:
//! clients send one. Operations that another client may wait for count and do not wait: changes of a file while the
//! caller's delegation of it is recalled, and opens that reclaim or that replace a delegation.
//!
//! *Errors.* NFS4ERR_DELAY. An OPEN of minor version 0 proceeds instead: the error would advance the owner's sequence number (RFC
//! 7530 section 9.1.7) at the client, but not here.

use nfs_proto::nfs4::ops::{Copy4, Open, OpenClaim4, Read, Write};
use rates::{Admitted, Kind, Refused};

use super::attrs::Bitmap;
use super::compound::Compound;
use super::deleg;
use super::dispatch;
use super::limits::{COPY_MAX, IO_MAX};
use super::object::{Located, Object};
use super::status::Status;
use super::wire::op;
use crate::pace::{self, Asked};

/// Calls of fewer bytes count as no payload memory.
const SMALL: usize = 4096;
/// GETATTR and ACCESS after an operation: of the file, of its directory, and one more.
const FREE_READS: u8 = 3;

impl Compound<'_> {
    /// Performs the operation, whose arguments come next.
    pub(super) async fn in_rates(&mut self, opcode: u32) -> Result<(), Status> {
        if !self.nfs.core.namespace.limits.is_on() {
            return dispatch::perform(self, opcode).await;
        }
        let admitted = self.pass(opcode).await?;
        let done = dispatch::perform(self, opcode).await;
        let bytes = self.moved.max(std::mem::take(&mut self.copied));
        self.nfs.core.namespace.limits.settle(admitted, bytes);
        done
    }

    async fn pass(&mut self, opcode: u32) -> Result<Admitted, Status> {
        if matches!(opcode, op::PUTFH | op::PUTROOTFH | op::PUTPUBFH) {
            self.free_reads = 0;
        }
        if matches!(opcode, op::GETATTR | op::ACCESS) && self.free_reads > 0 {
            self.free_reads -= 1;
            return Ok(Admitted::FREE);
        }
        let Some(mut asked) = self.rated(opcode) else { return Ok(Admitted::FREE) };
        let at = match &self.current {
            // An operation on a share that is closed to the caller is refused.
            Some(Object::Node(at)) if at.closed.is_none() => at.clone(),
            _ => return Ok(Admitted::FREE),
        };
        // The call keeps the data of the operations behind this one.
        let behind = self.args.unread();
        asked.held = asked.held.max(if behind > SMALL { behind } else { 0 });
        self.free_reads = FREE_READS;
        let share = at.share.id;
        if opcode == op::OPEN && self.reclaims() {
            return Ok(pace::owe(&self.nfs.core, self.call, share, asked));
        }
        match self.admit_unless_recalled(&at, asked).await {
            Ok(admitted) if admitted.has_waited() => self.may_still(share).map(|()| admitted),
            Ok(admitted) => Ok(admitted),
            Err(_) if self.minor == 0 && opcode == op::OPEN => {
                Ok(pace::owe(&self.nfs.core, self.call, share, asked))
            }
            Err(_) => Err(Status::Delay),
        }
    }

    async fn admit_unless_recalled(&self, at: &Located, asked: Asked) -> Result<Admitted, Refused> {
        let core = &self.nfs.core;
        let session = self.slot.as_ref().map(|slot| slot.session.rate_waits());
        let admitted = pace::admit(core, (self.conn, self.call), at.share.id, asked, session);
        let Some(client) = self.client.as_ref().filter(|_| asked.kind != Kind::Read) else {
            return admitted.await;
        };
        let owed = || Ok(pace::owe(core, self.call, at.share.id, asked));
        tokio::select! {
            biased;
            done = admitted => match done {
                Err(_) if deleg::is_recalled(self, client, at) => owed(),
                done => done,
            },
            () = deleg::until_recalled(self, client, at) => owed(),
        }
    }

    /// Returns true for an OPEN that takes up state which the client has had before.
    fn reclaims(&self) -> bool {
        let open = self.args.clone().value::<Open<'_>>();
        open.is_ok_and(|open| !matches!(open.claim, OpenClaim4::Null(_) | OpenClaim4::Fh))
    }

    /// Returns true if the operation after this GETATTR gives back state.
    fn gives_back_next(&self) -> bool {
        let mut args = self.args.clone();
        let next = args.value::<Bitmap>().and_then(|_| args.value::<u32>());
        matches!(next, Ok(op::CLOSE | op::DELEGRETURN | op::LOCKU | op::OPEN_DOWNGRADE))
    }

    /// Returns what the operation is about to do; `None` if rates do not count it.
    fn rated(&self, opcode: u32) -> Option<Asked> {
        match opcode {
            op::READ | op::READ_PLUS => {
                let Read { count, .. } = self.args.clone().value().ok()?;
                Some(Asked::read(usize::try_from(count).unwrap_or(IO_MAX).min(IO_MAX)))
            }
            op::WRITE => {
                let Write { data, .. } = self.args.clone().value().ok()?;
                Some(Asked { held: data.len, ..Asked::write(data.len.min(IO_MAX)) })
            }
            op::COPY => {
                let Copy4 { count, .. } = self.args.clone().value().ok()?;
                // Zero means up to the end of the source, whose size is not known yet.
                let most = if count == 0 { COPY_MAX } else { count.min(COPY_MAX) };
                let bytes = usize::try_from(most).unwrap_or(usize::MAX);
                Some(Asked { held: 0, ..Asked::write(bytes) })
            }
            op::GETATTR if self.gives_back_next() => None,
            op::GETATTR
            | op::ACCESS
            | op::ALLOCATE
            | op::CLONE
            | op::COMMIT
            | op::CREATE
            | op::DEALLOCATE
            | op::GETXATTR
            | op::LINK
            | op::LISTXATTRS
            | op::LOOKUP
            | op::LOOKUPP
            | op::OPEN
            | op::READDIR
            | op::READLINK
            | op::REMOVE
            | op::REMOVEXATTR
            | op::RENAME
            | op::SEEK
            | op::SETATTR
            | op::SETXATTR
            | op::VERIFY
            | op::NVERIFY => Some(Asked::OTHER),
            _ => None,
        }
    }

    /// Checks again, after a wait, that the caller may use the share: a reload may have changed the rules.
    fn may_still(&self, share: u32) -> Result<(), Status> {
        let core = &self.nfs.core;
        let share = core.namespace.share(share).ok_or(Status::Stale)?;
        let judged = core.judge(self.conn, self.call, &share);
        judged.map(drop).map_err(|why| self.closed(&share, why))
    }
}
