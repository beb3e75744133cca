//! Rates: a command waits here until its share, user and client may do more.
//!
//! *Operation.* A command waits after its rights are checked and before it acts; a WRITE over SMB Direct before its data is
//! fetched. A long wait has an interim answer, and CANCEL or the end of session or tree ends it
//! ([`RequestContext::by_storage`]). Commands that give back opens, locks and caching do not count, because other clients may wait
//! for that. Changes through an open whose caching is being broken count and do not wait: the acknowledgement waits for them, and
//! other clients for it. Nor does a CREATE that reconnects, whose open would end.
//!
//! *Memory.* [`rates::Most`]. A connection that meets a rate gets [`CREDITS_PACED_MAX`] credits: its client sends no more than the
//! gateway would have to keep.
//!
//! *Errors.* STATUS_INSUFFICIENT_RESOURCES after [`RATE_WAIT_MAX`] ([`Limits::LONGEST`] in the middle of a chain), or where too
//! many wait: SMB has no error for which clients repeat a request.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use rates::{Ask, Caller, Kind, Limits};
use rdma_transport::channel::host_of;

use crate::lease;
use crate::limits::{PACED_REQUESTS, RATE_WAIT_MAX};
use crate::open::Open;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::Command;
use crate::wire::context::Asked;
use crate::wire::create::Request;

/// Chains of fewer bytes count as no payload memory.
const SMALL: usize = 4096;

impl RequestContext {
    /// Waits for the rates of operations without file data, for commands that count.
    pub(crate) async fn in_rates(&self, command: Command) -> Result<(), Status> {
        match command {
            Command::Create if self.namespace_limits().is_on() && self.is_reconnect() => self.owe(),
            Command::Create | Command::QueryDirectory | Command::QueryInfo => {
                self.pass(None, Kind::Other, 0, 0).await
            }
            // FLUSH, READ, WRITE, SET_INFO and IOCTL ask when they know their open.
            _ => Ok(()),
        }
    }

    /// Returns true for a CREATE that takes up an open of a lost connection.
    fn is_reconnect(&self) -> bool {
        let Ok(request) = Request::parse(&self.message) else { return false };
        let asked = Asked::parse(&request.contexts);
        asked.is_ok_and(|asked| asked.reconnect.is_some() || asked.reconnect_v2.is_some())
    }

    /// Counts an operation without file data that does not wait.
    fn owe(&self) -> Result<(), Status> {
        let Some(share) = self.tree()?.share().map(|share| share.id) else { return Ok(()) };
        let user = self.session()?.owner();
        let _ =
            self.admitted.set(self.namespace_limits().owe(&self.ask(share, &user, Kind::Other)));
        Ok(())
    }

    fn namespace_limits(&self) -> &Limits {
        &self.server.namespace.limits
    }

    fn ask<'a>(&self, share: u32, user: &'a str, kind: Kind) -> Ask<'a> {
        let host: IpAddr = host_of(self.conn.info.peer.ip());
        Ask { share, host, caller: Caller::Name(user), kind, bytes: 0, held: 0 }
    }

    /// Waits until a command that moves at most `bytes` and came with `held` of them may act on this file.
    pub(crate) async fn in_rates_of(
        &self,
        open: &Open,
        kind: Kind,
        bytes: u32,
        held: u32,
    ) -> Result<(), Status> {
        self.pass(Some(open), kind, bytes, held).await?;
        // A wait may outlast the handle.
        if open.is_closed() { Err(Status::FILE_CLOSED) } else { Ok(()) }
    }

    async fn pass(
        &self,
        open: Option<&Open>,
        kind: Kind,
        bytes: u32,
        held: u32,
    ) -> Result<(), Status> {
        if !self.namespace_limits().is_on() {
            self.conn.paced_for.store(0, Ordering::Relaxed);
            return Ok(());
        }
        let Some(share) = self.tree()?.share().map(|share| share.id) else { return Ok(()) };
        // Boxed, so that the future of every command does not include it.
        let user = self.session()?.owner();
        // A command of a chain keeps the message with those behind it.
        let behind = Some(self.behind).filter(|behind| *behind > SMALL).unwrap_or(0) as u64;
        let (bytes, held) = (u64::from(bytes), u64::from(held).max(behind));
        let ask = Ask { bytes, held, ..self.ask(share, &user, kind) };
        Box::pin(self.wait_for_rates(&ask, open.filter(|_| kind != Kind::Read))).await
    }

    /// Waits for the rates; for a change through `open`, until a break of its caching begins at most.
    async fn wait_for_rates(&self, ask: &Ask<'_>, open: Option<&Open>) -> Result<(), Status> {
        let limits = self.namespace_limits();
        // Without an interim answer, the client ends the connection after a minute.
        let longest = if self.may_go_async() { RATE_WAIT_MAX } else { Limits::LONGEST };
        let until_breaking = async {
            match open {
                Some(open) => lease::until_breaking(&self.server, open).await,
                None => std::future::pending().await,
            }
        };
        let work = async {
            tokio::select! {
                biased;
                done = limits.admit(ask, longest) => match open {
                    Some(open) if done.is_err() && lease::is_breaking(&self.server, open) => {
                        Ok(limits.owe(ask))
                    }
                    _ => done,
                },
                () = until_breaking => Ok(limits.owe(ask)),
            }
        };
        let admitted = self.by_storage(work).await?;
        let admitted = admitted.map_err(|why| {
            let (name, most) = why.limit();
            self.limited(name, most)
        })?;
        let paced_for = &self.conn.paced_for;
        match admitted.is_limited() {
            true => paced_for.store(PACED_REQUESTS, Ordering::Relaxed),
            false => {
                let less = |n: u32| n.checked_sub(1);
                let _ = paced_for.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
        }
        // A command asks once.
        let _ = self.admitted.set(admitted);
        Ok(())
    }

    /// Puts back what the command asked for and did not move, and counts what it copied.
    pub(crate) fn settle_rates(&self) {
        if let Some(admitted) = self.admitted.get() {
            let moved = self.moved.load(Ordering::Relaxed);
            let bytes = moved.max(self.copied.load(Ordering::Relaxed));
            self.namespace_limits().settle(*admitted, bytes);
        }
    }
}
