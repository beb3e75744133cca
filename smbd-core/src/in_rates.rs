//! Rates: a command waits here until its share, user and client may do more.
//!
//! *Operation.* A command waits after its rights are checked and before it acts; a WRITE over SMB Direct before its data is
//! fetched. A long wait has an interim answer, and CANCEL or the end of session or tree ends it
//! ([`RequestContext::by_storage`]). Commands that give back opens, locks and caching do not count, because other clients may wait
//! for that.
//!
//! *Memory.* [`rates::Most`]. A connection that meets a rate gets [`CREDITS_PACED_MAX`] credits: its client sends no more than the
//! gateway would have to keep.
//!
//! *Errors.* STATUS_INSUFFICIENT_RESOURCES after [`RATE_WAIT_MAX`], or where too many wait: SMB has no error for which clients
//! repeat a request.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use rates::{Ask, Caller, Kind};
use rdma_transport::channel::host_of;

use crate::limits::RATE_WAIT_MAX;
use crate::open::Open;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::Command;

impl RequestContext {
    /// Waits for the rates of operations without file data, for commands that count.
    pub(crate) async fn in_rates(&self, command: Command) -> Result<(), Status> {
        match command {
            Command::Create
            | Command::Flush
            | Command::QueryDirectory
            | Command::QueryInfo
            | Command::SetInfo => self.pass(Kind::Other, 0, 0).await,
            // READ, WRITE and IOCTL ask when they know what they do.
            _ => Ok(()),
        }
    }

    /// Waits until a command that moves at most `bytes` and came with `held` of them may act on this file.
    pub(crate) async fn in_rates_of(
        &self,
        open: &Open,
        kind: Kind,
        bytes: u32,
        held: u32,
    ) -> Result<(), Status> {
        self.pass(kind, bytes, held).await?;
        // A wait may outlast the handle.
        if open.is_closed() { Err(Status::FILE_CLOSED) } else { Ok(()) }
    }

    async fn pass(&self, kind: Kind, bytes: u32, held: u32) -> Result<(), Status> {
        let limits = &self.server.namespace.limits;
        if !limits.is_on() {
            self.conn.is_paced.store(false, Ordering::Relaxed);
            return Ok(());
        }
        let Some(share) = self.tree()?.share().map(|share| share.id) else { return Ok(()) };
        // Boxed, so that the future of every command does not include it.
        Box::pin(self.wait_for_rates(share, kind, bytes, held)).await
    }

    async fn wait_for_rates(
        &self,
        share: u32,
        kind: Kind,
        bytes: u32,
        held: u32,
    ) -> Result<(), Status> {
        let user = self.session()?.owner();
        let host: IpAddr = host_of(self.conn.info.peer.ip());
        let (bytes, held) = (u64::from(bytes), u64::from(held));
        let ask = Ask { share, host, caller: Caller::Name(&user), kind, bytes, held };
        let limits = &self.server.namespace.limits;
        let admitted = self.by_storage(limits.admit(&ask, RATE_WAIT_MAX)).await?;
        let admitted = admitted.map_err(|why| {
            let (name, most) = why.limit();
            self.limited(name, most)
        })?;
        self.conn.is_paced.store(admitted.is_limited(), Ordering::Relaxed);
        // A command asks once.
        let _ = self.admitted.set(admitted);
        Ok(())
    }

    /// Puts back what the command asked for and did not move, and counts what it copied.
    pub(crate) fn settle_rates(&self) {
        if let Some(admitted) = self.admitted.get() {
            let moved = self.moved.load(Ordering::Relaxed);
            let bytes = moved.max(self.copied.load(Ordering::Relaxed));
            self.server.namespace.limits.settle(*admitted, bytes);
        }
    }
}
