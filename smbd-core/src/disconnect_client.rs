//! Disconnects a client, or closes one open, on request of the administrator.
//!
//! *Operation.* The client loses the same as if it had given up its state itself: sessions answer STATUS_USER_SESSION_DELETED,
//! opens STATUS_FILE_CLOSED (MS-SMB2 sections 3.3.4.12 and 3.3.4.17), and durable and persistent opens no longer wait for it.
//!
//! *Memory.* Lists of the ended objects.
//!
//! *Errors.* None: objects that end in the meantime are skipped.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use state::HolderId;

use crate::open::Open;
use crate::server_state::ServerState;
use crate::session::Session;
use crate::teardown::{TeardownReason, end_open, end_session};

/// A client to disconnect, and its state.
#[derive(Debug)]
pub struct Leaving {
    at: IpAddr,
    sessions: HashSet<u64>,
    /// The ClientGuids under which its durable opens know it.
    clients: HashSet<[u8; 16]>,
    /// Durable opens that wait for it.
    waiting: usize,
    /// The peers of its connections. These must end first, because the client could log on again over a remaining one.
    pub peers: Vec<SocketAddr>,
}

/// Counts of what a client lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expelled {
    pub sessions: usize,
    /// Durable opens that waited for it.
    pub waiting: usize,
}

fn peers(session: &Session) -> impl Iterator<Item = SocketAddr> {
    session.channels().into_iter().filter_map(|c| Some(c.conn.upgrade()?.info.peer))
}

impl ServerState {
    /// Collects the clients that have a session with a connection from this address, or had their last one from there.
    pub fn leaving(&self, at: IpAddr) -> Leaving {
        let sessions = self.sessions.all(|s| is_at(s, at));
        let mut clients: HashSet<_> = sessions.iter().map(|s| s.client_guid()).collect();
        // Before dialect 2.1 clients have no ClientGuid.
        clients.remove(&[0; 16]);
        let peers = sessions.iter().flat_map(|s| peers(s)).collect();
        let sessions = sessions.iter().map(|s| s.id).collect();
        let mut leaving = Leaving { at, sessions, clients, waiting: 0, peers };
        leaving.waiting = self.opens.all(|o| leaving.is_waited_for_by(o)).len();
        leaving
    }

    /// Ends their sessions and the durable opens that wait for them, including those made while their connections ended.
    pub async fn disconnect_client(self: &Arc<Self>, leaving: Leaving) -> Expelled {
        let theirs = |s: &Session| leaving.sessions.contains(&s.id) || is_at(s, leaving.at);
        for session in self.sessions.all(theirs) {
            end_session(self, &session, TeardownReason::GivenUp, "administrator").await;
        }
        for open in self.opens.all(|o| leaving.is_waited_for_by(o)) {
            end_open(self, &open).await;
        }
        Expelled { sessions: leaving.sessions.len(), waiting: leaving.waiting }
    }

    /// Closes the open with this holder in `state`. Returns false if there is none.
    pub async fn close_open(self: &Arc<Self>, holder: HolderId) -> bool {
        let found = self.opens.all(|o| o.party.holder == holder && o.file().is_ok());
        for open in &found {
            end_open(self, open).await;
        }
        !found.is_empty()
    }
}

impl Leaving {
    fn is_waited_for_by(&self, open: &Open) -> bool {
        let theirs =
            self.clients.contains(&open.durable.client()) || open.durable.at() == Some(self.at);
        open.session_id() == 0 && theirs
    }
}

fn is_at(session: &Session, at: IpAddr) -> bool {
    peers(session).any(|peer| peer.ip() == at)
}
