//! Who has which file open, for the administrator.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use state::{HolderId, Rights};
use vfs::namespace::Share;

use crate::open::Open;
use crate::server_state::ServerState;

/// One open file.
pub struct Holding {
    /// What `state` knows it by.
    pub holder: HolderId,
    /// One of the connections of its client; `None` while it waits for its client to come back.
    pub client: Option<SocketAddr>,
    /// Where its client is, or was last; `None` when it has not come back since the server began.
    pub at: Option<IpAddr>,
    /// What is open.
    pub node: vfs::NodeRef,
    /// Under which holder its client caches, if it does.
    pub caches_as: HolderId,
    /// Who opened it.
    pub user: Option<String>,
    /// The share.
    pub share: Arc<Share>,
    /// The path from the root of the share, with `\` between names; empty for the root. In a share of homes it begins with the
    /// user's own folder.
    pub path: String,
    /// The stream, if it is not the file itself.
    pub stream: Option<String>,
    /// What it was opened for; nothing for attributes only.
    pub access: Rights,
    /// What others are kept from.
    pub denied: Rights,
}

impl ServerState {
    /// What is open now. Looks at all of it.
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
