//! How a break notice reaches its client, by whichever of its connections (MS-SMB2 sections 3.3.4.6 and 3.3.4.7).
//!
//! *Operation.* [`send`] takes the first connection that takes the notice; [`Following`] stays with it until the break is over. The
//! notice goes again by the next connection of its client when the one that it took has ended, or when nothing is heard of the
//! peer there: its TCP has acknowledged nothing for [`SILENCE_MAX`] though the same was sent again [`REPEATS_MAX`] times. Such a
//! connection is ended as well, so that no further notice is lost there and its client sees that it must not wait for answers. The
//! last connection of a client is never ended so: nothing tells whether the client or the network is gone.
//!
//! *Memory.* One task for each break that is not over, which has at most the time of the break.
//!
//! *Errors.* A notice that no connection takes is lost, and its holder is overruled when its time is over.

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

/// A peer that acknowledges nothing for so long is silent.
const SILENCE_MAX: Duration = Duration::from_millis(1500);
/// And only when the same was sent again so often: on a slow way that takes longer.
const REPEATS_MAX: u32 = 3;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// Milliseconds for which a notice is followed that nobody has to answer.
pub(crate) const HEARD_MAX: u64 = 10_000;
/// The name by which it is counted that a notice went by another connection.
const SILENT: &str = "notice-unheard";

/// Whom a notice is for.
pub(crate) enum To {
    /// The session of an oplock's open (MS-SMB2 section 3.3.4.6).
    Session(u64),
    /// Any connection of a lease's client (MS-SMB2 section 3.3.4.7): as with Windows the one that it has had for longest. Those
    /// of its user come first, because another user's lease may have the same key.
    Lease(Arc<Lease>),
}

type Way = (Arc<Session>, Arc<Conn>);

/// The connections that a notice may take, the best first.
pub(crate) fn ways(core: &ServerState, to: &To) -> Vec<Way> {
    let is_others = |s: &Session| match to {
        To::Session(_) => false,
        To::Lease(lease) => *s.owner() != *lease.owner(),
    };
    // Anybody may call itself by the client's name: whoever has no password hears nothing of another's leases.
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

/// The connection that a notice took; does not keep it.
pub(crate) struct Sent {
    conn: u64,
    handle: Handle,
}

/// By the first connection that takes it. One that takes nothing meanwhile is passed over when there is another.
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

/// The session that the header of a notice names. An oplock is of one session, and Windows names it in every dialect since Server
/// 2016 (section 3.3.4.6 and its product note; earlier ones sent 0). A lease is of a client, and its notice names no session
/// (section 3.3.4.7). An encrypted notice names the session of its keys: a client discards it otherwise (section 3.2.5.1.1.1).
fn session_named(to: &To, keys: Option<u64>) -> u64 {
    match to {
        To::Session(id) => *id,
        To::Lease(_) => keys.unwrap_or(0),
    }
}

/// Sends a notice of this session over this connection; its body is as `emit` gives it.
async fn push((session, conn): (&Session, &Conn), to: &To, body: &[u8]) -> Result<(), Status> {
    let keys = session.encrypts().then_some(session);
    let header = Header {
        credit_charge: 0,
        status: 0,
        command: Command::OplockBreak as u16,
        credits: 0,
        flags: Flags(Flags::RESPONSE),
        next: 0,
        // Says that it answers nothing; it is never signed.
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

/// A notice that was sent.
pub(crate) struct Following {
    pub(crate) core: Weak<ServerState>,
    pub(crate) what: Break,
    pub(crate) to: To,
    pub(crate) body: Vec<u8>,
    pub(crate) sent: Sent,
}

impl Following {
    /// Until the break is over, or the notice was heard where it needs no acknowledgement, or no other connection is left.
    pub(crate) async fn until_heard(mut self) {
        let mut tried = vec![self.sent.conn];
        while let Some(ways) = self.lost(&tried).await {
            count::limit_met(SILENT);
            self.sent
                .handle
                .abort("the client does not answer, and a break notification waits for it")
                .await;
            // Its client knows that this connection has ended before it answers by another.
            let _ = tokio::time::timeout(LOOK, self.sent.handle.closed()).await;
            let Some(sent) = send(ways, &self.to, &self.body).await else { return };
            tracing::debug!(what = ?self.what, conn = sent.conn, "break notification sent again");
            tried.push(sent.conn);
            self.sent = sent;
        }
    }

    /// The connections by which it must be sent again; `None` when it need not be, and will not.
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
            // What cannot be asked, or does not answer because it has too much to send, is not known to be silent.
            let asked = tokio::time::timeout(LOOK, self.sent.handle.silence()).await;
            let Ok(Ok(silence)) = asked else { continue };
            if !silence.owes && self.what.stage == Stage::Done {
                return None;
            }
            let is_silent =
                silence.owes && silence.lasts >= SILENCE_MAX && silence.repeats >= REPEATS_MAX;
            // All sessions are looked at for this, so that it comes last.
            if is_silent && let Some(others) = self.others(tried) {
                return Some(others);
            }
        }
    }

    /// The connections that are left; `None` when there are none.
    fn others(&self, tried: &[u64]) -> Option<Vec<Way>> {
        let mut others = ways(&*self.core.upgrade()?, &self.to);
        others.retain(|(_, conn)| !tried.contains(&conn.id));
        (!others.is_empty()).then_some(others)
    }

    /// The holder has still to be told.
    fn is_wanted(&self) -> bool {
        let Some(core) = self.core.upgrade() else { return false };
        let held = core.namespace.arbiter().state().held(self.what.node, self.what.holder);
        match self.what.stage {
            Stage::Done => held.is_none_or(|h| h.rights == self.what.to),
            _ => held.is_some_and(|h| h.breaking_to == Some(self.what.to)),
        }
    }
}
