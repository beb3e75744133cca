//! Performs an operation when the rates of its share, user and client allow it.
//!
//! *Operation.* Operations that work on a file count; those that give back state, locks or sessions do not, because other clients
//! may wait for that. GETATTR and ACCESS after another operation belong to it, and a GETATTR before another one is free:
//! DELEGRETURN often follows one.
//!
//! *Errors.* NFS4ERR_DELAY. An OPEN of minor version 0 proceeds instead: the error would advance the owner's sequence number (RFC
//! 7530 section 9.1.7) at the client, but not here.

use nfs_proto::nfs4::ops::{Read, Write};
use rates::{Admitted, Kind};

use super::compound::Compound;
use super::dispatch;
use super::limits::IO_MAX;
use super::object::Object;
use super::status::Status;
use super::wire::op;
use crate::pace::{self, Asked};

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
        let Some(asked) = self.rated(opcode) else { return Ok(Admitted::FREE) };
        let share = match &self.current {
            // An operation on a share that is closed to the caller is refused.
            Some(Object::Node(at)) if at.closed.is_none() => at.share.id,
            _ => return Ok(Admitted::FREE),
        };
        self.is_rated = true;
        let nfs = self.nfs;
        match pace::admit(&nfs.core, (self.conn, self.call), share, asked).await {
            Ok(admitted) if admitted.has_waited() => self.may_still(share).map(|()| admitted),
            Ok(admitted) => Ok(admitted),
            Err(_) if self.minor == 0 && opcode == op::OPEN => Ok(Admitted::FREE),
            Err(_) => Err(Status::Delay),
        }
    }

    /// Returns what the operation is about to do; `None` if rates do not count it.
    fn rated(&self, opcode: u32) -> Option<Asked> {
        let is_last = self.index + 1 == self.count;
        match opcode {
            op::READ | op::READ_PLUS => {
                let Read { count, .. } = self.args.clone().value().ok()?;
                Some(Asked::read(usize::try_from(count).unwrap_or(IO_MAX).min(IO_MAX)))
            }
            op::WRITE => {
                let Write { data, .. } = self.args.clone().value().ok()?;
                Some(Asked { held: data.len, ..Asked::write(data.len.min(IO_MAX)) })
            }
            // Its bytes are known when it is done.
            op::COPY => Some(Asked { kind: Kind::Write, ..Asked::OTHER }),
            op::GETATTR if self.is_rated || !is_last => None,
            op::ACCESS if self.is_rated => None,
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
            | op::SETXATTR => Some(Asked::OTHER),
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
