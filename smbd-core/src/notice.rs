//! Delivers break notifications to clients, over any of their connections (MS-SMB2 sections 3.3.4.6 and 3.3.4.7).
//!
//! *Operation.* [`send`] uses the first connection that takes the notification; [`Following`] watches it until the break is over.
//! The notification is sent again over the client's next connection if the one used has ended or its peer is silent: its TCP has
//! acknowledged no data for [`SILENCE_MAX`] although the same data was retransmitted [`REPEATS_MAX`] times. A silent connection is
//! also ended, so that it loses no further notification and its client stops waiting for answers on it. The last connection of a
//! client is never ended in this way, because a failed client and a failed network look the same.
//!
//! *Memory.* One task for each pending break, which lives at most as long as the break.
//!
//! *Errors.* A notification that no connection takes is lost, and its holder's caching is revoked at the deadline.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rdma_transport::channel::Handle;
use rdma_transport::count;
use state::{Break, Stage};

use crate::answer;
use crate::caching::Lease;
use crate::conn::Conn;
use crate::server_state::ServerState;
use crate::session::{Kind, Session};
use crate::status::Status;
use crate::wire::{Command, Flags, Header};

/// A peer that acknowledges no data for this long may be silent.
const SILENCE_MAX: Duration = Duration::from_millis(1500);
/// The peer is silent only after this many retransmissions as well: they take longer on a slow path.
const REPEATS_MAX: u32 = 3;
/// Interval between checks.
const LOOK: Duration = Duration::from_millis(250);
/// Milliseconds for which a notification that needs no acknowledgement is followed.
pub(crate) const HEARD_MAX: u64 = 10_000;
/// The counter of notifications that were sent again over another connection.
const SILENT: &str = "notice-unheard";

/// The addressee of a notification.
pub(crate) enum To {
    /// The session of an oplock's open (MS-SMB2 section 3.3.4.6).
    Session(u64),
    /// Any connection of a lease's client (MS-SMB2 section 3.3.4.7): as with Windows, the oldest one. Connections of the lease's
    /// user come first, because another user's lease may have the same key.
    Lease(Arc<Lease>),
}

type Way = (Arc<Session>, Arc<Conn>);

/// Returns the connections that a notification may use, the best first.
pub(crate) fn ways(core: &ServerState, to: &To) -> Vec<Way> {
    let is_others = |s: &Session| match to {
        To::Session(_) => false,
        To::Lease(lease) => *s.owner() != *lease.owner(),
    };
    // Any client can present this ClientGuid: guests and anonymous users, which have no password, must not learn about other users'
    // leases.
    let may_hear = |s: &Session| !is_others(s) || s.user().is_some_and(|u| u.kind == Kind::User);
    let sessions: Vec<_> = match to {
        To::Session(id) => core.sessions.get(*id).into_iter().collect(),
        To::Lease(lease) => {
            let mut all = core.sessions.of_client(lease.client());
            all.retain(|s| may_hear(s));
            all
        }
    };
    let of = |s: Arc<Session>| {
        let conns = s.channels().into_iter().filter_map(|c| c.conn.upgrade());
        conns.map(|conn| (s.clone(), conn)).collect::<Vec<_>>()
    };
    let mut ways: Vec<_> = sessions.into_iter().flat_map(of).collect();
    ways.sort_by_key(|(session, conn)| (is_others(session), conn.id));
    ways
}

/// The connection that took a notification; does not keep the connection alive.
pub(crate) struct Sent {
    conn: u64,
    handle: Handle,
}

/// Sends over the first connection that takes it. Skips connections that take no data at the moment if there is another one.
pub(crate) async fn send(ways: Vec<Way>, to: &To, body: &[u8]) -> Option<Sent> {
    let mut ways = ways.into_iter().peekable();
    while let Some((session, conn)) = ways.next() {
        let push = push((&session, &conn), to, body);
        let taken = match ways.peek() {
            Some(_) => tokio::time::timeout(SILENCE_MAX, push).await.is_ok_and(|r| r.is_ok()),
            None => push.await.is_ok(),
        };
        if taken {
            return Some(Sent { conn: conn.id, handle: conn.handle.clone() });
        }
    }
    None
}

/// Returns the session for the header of a notification. An oplock belongs to one session, and Windows names it in every dialect
/// since Server 2016 (section 3.3.4.6 and its product note; earlier versions sent 0). A lease belongs to a client, and its
/// notification names no session (section 3.3.4.7). An encrypted notification names the session of its keys, or the client discards
/// it (section 3.2.5.1.1.1).
fn session_named(to: &To, keys: Option<u64>) -> u64 {
    match to {
        To::Session(id) => *id,
        To::Lease(_) => keys.unwrap_or(0),
    }
}

/// Sends a notification of this session over this connection; `body` is the output of `emit`.
async fn push((session, conn): (&Session, &Conn), to: &To, body: &[u8]) -> Result<(), Status> {
    let keys = session.encrypts().then_some(session);
    let header = Header {
        credit_charge: 0,
        status: 0,
        command: Command::OplockBreak as u16,
        credits: 0,
        flags: Flags(Flags::RESPONSE),
        next: 0,
        // Marks a message that is not an answer; it is never signed.
        message_id: u64::MAX,
        tree_or_async: 0,
        session_id: session_named(to, keys.map(|s| s.id)),
        signature: [0; 16],
    };
    let mut head = header.emit().to_vec();
    head.extend_from_slice(body);
    let reply = answer::notice(head, keys)?;
    conn.push(reply).await
}

/// A sent notification that is followed until it is heard.
pub(crate) struct Following {
    pub(crate) core: Weak<ServerState>,
    pub(crate) what: Break,
    pub(crate) to: To,
    pub(crate) body: Vec<u8>,
    pub(crate) sent: Sent,
}

impl Following {
    /// Follows the notification until the break is over, the peer has received one that needs no acknowledgement, or no other
    /// connection is left.
    pub(crate) async fn until_heard(mut self) {
        let mut tried = vec![self.sent.conn];
        while let Some(ways) = self.lost(&tried).await {
            count::limit_met(SILENT);
            self.sent
                .handle
                .abort("the client does not answer, and a break notification waits for it")
                .await;
            // The client must learn that this connection has ended before it answers over another one.
            let _ = tokio::time::timeout(LOOK, self.sent.handle.closed()).await;
            let Some(sent) = send(ways, &self.to, &self.body).await else { return };
            tracing::debug!(what = ?self.what, conn = sent.conn, "break notification sent again");
            tried.push(sent.conn);
            self.sent = sent;
        }
    }

    /// Waits for a reason to send again and returns the connections to use; `None` if the notification will not be sent again.
    async fn lost(&self, tried: &[u64]) -> Option<Vec<Way>> {
        loop {
            tokio::select! {
                () = self.sent.handle.closed() => {
                    return self.is_wanted().then(|| self.others(tried)).flatten();
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            if !self.is_wanted() {
                return None;
            }
            // A connection that reports no state, or whose state is late because it has much to send, is not known to be silent.
            let asked = tokio::time::timeout(LOOK, self.sent.handle.silence()).await;
            let Ok(Ok(silence)) = asked else { continue };
            if !silence.owes && self.what.stage == Stage::Done {
                return None;
            }
            let is_silent =
                silence.owes && silence.lasts >= SILENCE_MAX && silence.repeats >= REPEATS_MAX;
            // Do this check last, because it visits all sessions.
            if is_silent && let Some(others) = self.others(tried) {
                return Some(others);
            }
        }
    }

    /// Returns the connections that were not tried; `None` if all were.
    fn others(&self, tried: &[u64]) -> Option<Vec<Way>> {
        let mut others = ways(&*self.core.upgrade()?, &self.to);
        others.retain(|(_, conn)| !tried.contains(&conn.id));
        (!others.is_empty()).then_some(others)
    }

    /// Returns whether the holder still needs the notification.
    fn is_wanted(&self) -> bool {
        let Some(core) = self.core.upgrade() else { return false };
        let held = core.namespace.arbiter().state().held(self.what.node, self.what.holder);
        match self.what.stage {
            Stage::Done => held.is_none_or(|h| h.rights == self.what.to),
            _ => held.is_some_and(|h| h.breaking_to == Some(self.what.to)),
        }
    }
}
