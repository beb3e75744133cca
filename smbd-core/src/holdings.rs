//! Lists open files with their users, for the administrator.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use state::{HolderId, Rights};
use vfs::namespace::Share;

use crate::open::Open;
use crate::server_state::ServerState;

pub struct Holding {
    /// The holder under which [`state`] records it.
    pub holder: HolderId,
    /// One of its client's connections; `None` while the open waits for its client.
    pub client: Option<SocketAddr>,
    /// Its client's present or last address; `None` if the client has not reconnected since the server started.
    pub at: Option<IpAddr>,
    /// The open file.
    pub node: vfs::NodeRef,
    /// The holder of its caching: its lease's, or its own.
    pub caches_as: HolderId,
    /// The user that opened it.
    pub user: Option<String>,
    pub share: Arc<Share>,
    /// The path from the root of the share, with `\` between names; empty for the root. In a share of homes it begins with the
    /// user's own folder.
    pub path: String,
    /// The stream, unless the file itself is open.
    pub stream: Option<String>,
    /// Granted access; empty for attributes only.
    pub access: Rights,
    /// Access that others are denied.
    pub denied: Rights,
}

impl ServerState {
    /// Returns all present opens of files. Visits all opens.
    pub fn holdings(&self) -> Vec<Holding> {
        let files = self.opens.all(|o| o.file().is_ok() && !o.is_closed());
        files.iter().filter_map(|o| self.holding(o)).collect()
    }

    fn holding(&self, open: &Open) -> Option<Holding> {
        let file = open.file().ok()?;
        let session = self.sessions.get(open.session_id());
        let channels = session.iter().flat_map(|s| s.channels());
        let client = channels.filter_map(|c| c.conn.upgrade()).map(|c| c.info.peer).next();
        let stands = Open::opening(open.granted, open.shared, false).share;
        let last = open.durable.at();
        let user = session.and_then(|s| s.user()).map(|u| u.name.clone());
        let mut path = file.place().path;
        if file.share.rules.homes {
            let owner = user.clone().or_else(|| {
                let name = open.durable.owner();
                Some(self.users.find(&name).map_or(name, |account| account.name))
            });
            path = crate::path::join(&owner.unwrap_or_default(), &path);
        }
        Some(Holding {
            holder: open.party.holder,
            client,
            at: client.map(|c| c.ip()).or(last),
            node: file.node(),
            caches_as: open.caching.lease().map_or(open.party.holder, |l| l.party.holder),
            user,
            share: file.share.clone(),
            path,
            stream: file.stream(),
            access: stands.access,
            denied: stands.deny,
        })
    }
}
