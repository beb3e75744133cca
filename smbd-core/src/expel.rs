//! The end of a client, or of one open, where the administrator says so.
//!
//! *Operation.* What a client would lose by giving it up itself it loses here: sessions answer STATUS_USER_SESSION_DELETED, opens
//! STATUS_FILE_CLOSED (MS-SMB2 sections 3.3.4.12 and 3.3.4.17), durable and persistent opens do not wait for it any more.
//!
//! *Memory.* Lists of what ends.
//!
//! *Errors.* None: what is gone meanwhile is passed over.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use state::HolderId;

use crate::dispatch::{Loss, end_session};
use crate::ops::close;
use crate::server::Core;
use crate::session::Session;

/// What a client lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expelled {
    /// Sessions.
    pub sessions: usize,
    /// Durable opens that waited for it.
    pub waiting: usize,
    /// Its connections, which the caller may end.
    pub peers: Vec<SocketAddr>,
}

fn peers(session: &Session) -> impl Iterator<Item = SocketAddr> {
    session.channels().into_iter().filter_map(|c| Some(c.conn.upgrade()?.info.peer))
}

impl Core {
    /// Ends the sessions that have a connection from this address, and the durable opens of these clients, and those of others who
    /// were there last.
    pub async fn expel(self: &Arc<Self>, at: IpAddr) -> Expelled {
        let mut expelled = Expelled::default();
        let mut clients = HashSet::new();
        let here = |s: &Session| peers(s).any(|peer| peer.ip().to_canonical() == at);
        for session in self.sessions.all(here) {
            expelled.peers.extend(peers(&session));
            clients.insert(session.client_guid());
            end_session(self, &session, Loss::GivenUp).await;
            expelled.sessions += 1;
        }
        // Before dialect 2.1 a client had no name.
        clients.remove(&[0; 16]);
        let waits = |o: &crate::open::Open| {
            let theirs = clients.contains(&o.durable.client()) || o.durable.at() == Some(at);
            o.session_id() == 0 && theirs
        };
        for open in self.opens.all(waits) {
            close::end(self, &open).await;
            expelled.waiting += 1;
        }
        expelled
    }

    /// Closes the open that `state` knows as this holder. False when there is none.
    pub async fn close_open(self: &Arc<Self>, holder: HolderId) -> bool {
        let found = self.opens.all(|o| o.party.holder == holder && o.file().is_ok());
        for open in &found {
            close::end(self, open).await;
        }
        !found.is_empty()
    }
}
