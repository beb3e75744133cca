//! Rates: a call waits here until its share, user, and client may do more.
//!
//! *Operation.* The call stays in the set of its connection, after the caller's rights to the share are known and before it acts.
//! It holds its slot and its data, no lock and no thread.
//!
//! *Memory.* [`RATE_WAITS_MAX`] calls of a connection wait, and three quarters of a session's slots, so that calls for other shares
//! find a place; [`rates::Most`] limits all.
//!
//! *Errors.* NFS3ERR_JUKEBOX or NFS4ERR_DELAY where the call would wait too long, or where too many wait: its client repeats it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rates::{Admitted, Ask, Caller, Kind, Limits, Refused};
use rdma_transport::channel::host_of;
use rdma_transport::count;

use crate::context::{CallContext, Conn};
use crate::limits::RATE_WAITS_MAX;
use crate::server_state::ServerState;

/// What a call is about to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) kind: Kind,
    /// Bytes of file data that it moves at most.
    pub(crate) bytes: usize,
    /// Bytes of file data that came with it.
    pub(crate) held: usize,
}

impl Asked {
    /// An operation without file data.
    pub(crate) const OTHER: Self = Self { kind: Kind::Other, bytes: 0, held: 0 };

    pub(crate) fn read(bytes: usize) -> Self {
        Self { kind: Kind::Read, bytes, held: 0 }
    }

    pub(crate) fn write(bytes: usize) -> Self {
        Self { kind: Kind::Write, bytes, held: bytes }
    }
}

/// The calls of a connection or a session that wait.
#[derive(Clone, Copy)]
pub(crate) struct Waits<'a> {
    pub(crate) now: &'a AtomicUsize,
    pub(crate) most: usize,
}

impl<'a> Waits<'a> {
    /// Enters one more. True: the others take all places, so it may not wait.
    fn enter(self) -> (Place<'a>, bool) {
        let others = self.now.fetch_add(1, Ordering::Relaxed);
        (Place(self.now), others >= self.most)
    }
}

/// A place among those.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until the call may act on the share.
///
/// # Errors
///
/// The call is not done, and its client must try again.
pub(crate) async fn admit(
    core: &ServerState,
    (conn, call): (&Conn, &CallContext),
    share: u32,
    asked: Asked,
    session: Option<Waits<'_>>,
) -> Result<Admitted, Refused> {
    let limits = &core.namespace.limits;
    // A datagram has no connection in whose set it could wait.
    if !limits.is_on() || conn.is_datagram() {
        return Ok(Admitted::FREE);
    }
    // Boxed, so that the future of every call does not include it.
    Box::pin(wait(limits, conn, &ask(call, share, asked), session)).await
}

/// Counts a call that does not wait, because others wait for it.
pub(crate) fn owe(core: &ServerState, call: &CallContext, share: u32, asked: Asked) -> Admitted {
    core.namespace.limits.owe(&ask(call, share, asked))
}

fn ask(call: &CallContext, share: u32, asked: Asked) -> Ask<'_> {
    let size = |n: usize| n as u64;
    Ask {
        share,
        host: host_of(call.peer),
        caller: Caller::Uid(call.cred.uid),
        kind: asked.kind,
        bytes: size(asked.bytes),
        held: size(asked.held),
    }
}

async fn wait(
    limits: &Limits,
    conn: &Conn,
    ask: &Ask<'_>,
    session: Option<Waits<'_>>,
) -> Result<Admitted, Refused> {
    let (_place, is_full) = Waits { now: &conn.rate_waits, most: RATE_WAITS_MAX }.enter();
    // A session has its slots over all its connections.
    let of_session = session.map(Waits::enter);
    let is_full = is_full || of_session.as_ref().is_some_and(|(_, is_full)| *is_full);
    let longest = if is_full { Duration::ZERO } else { Limits::LONGEST };
    let done = tokio::select! {
        biased;
        done = limits.admit(ask, longest) => done,
        // No answer can be sent any more.
        () = conn.handle.closed() => return Err(Refused::Late),
    };
    done.inspect_err(|why| {
        let (name, most) = match why {
            Refused::Late if is_full => ("rate-waits-of-connection", RATE_WAITS_MAX),
            why => why.limit(),
        };
        count::limited(name, most, conn.info.peer);
    })
}
