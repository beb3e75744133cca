//! `headgate close` and `headgate disconnect`: let the administrator end state of a client that blocks others.
//!
//! *Operation.* First, data that the client has written through the gateway is synced to disk. A client that may hold back data
//! (under a delegation, or a lease that allows writes) gets the usual recall, within the `recall` time; a client that is
//! disconnected entirely does not. Then the state ends, and the client gets its protocol's error: NFS4ERR_ADMIN_REVOKED or
//! NFS4ERR_BADSESSION, STATUS_FILE_CLOSED or STATUS_USER_SESSION_DELETED. NFS 3 has no such error.
//!
//! Clients may come back as before; to keep one out, change `clients` of a share.
//!
//! *Errors.* If data cannot be written, the log says so; the order is carried out anyway.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use audit::PeerText;
use nfsrdma::v4::holdings::Whom;
use serde::{Deserialize, Serialize};
use state::{Caching, Operation};
use vfs::{NodeId, NodeRef};

use super::files::{self, HeldFile, HeldFiles, Holding};
use crate::servers::Servers;
use crate::shutdown::Connections;

/// Time for the connections of a disconnected client to finish their requests. Afterwards the client loses its state in any case.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// The state to close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The entry with this number in the list of held files.
    Id(u64),
    /// All state of the file with this name: `/SHARE/PATH`.
    File(String),
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) if text.starts_with('/') => Ok(Self::File(text.trim_end_matches('/').into())),
            Err(_) => Err("write a file as `headgate files` shows it, /SHARE/PATH, or the number in front of it".into()),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::File(name) => f.write_str(name),
        }
    }
}

impl What {
    fn is(&self, file: &HeldFile) -> bool {
        match self {
            Self::Id(id) => file.id == *id,
            // Names are written as they are shown.
            Self::File(name) => file.path.as_ref().is_some_and(|path| {
                let (name, shown) =
                    (PeerText::from(name.as_str()), format!("/{}/{path}", file.share));
                name.as_str() == shown.trim_end_matches('/')
            }),
        }
    }
}

/// The client to disconnect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client(pub Whom);

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self(Whom::At(ip.to_canonical())));
        }
        if let Ok(at) = text.parse::<SocketAddr>() {
            return Err(format!("name the client by its address without a port: {}", at.ip()));
        }
        if text.trim().is_empty() {
            return Err(
                "write the client's address or name, as in `headgate status` and `headgate files`"
                    .into(),
            );
        }
        Ok(Self(Whom::Named(text.into())))
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Whom::At(ip) => ip.fmt(f),
            Whom::Named(name) => f.write_str(name),
        }
    }
}

/// State that a client lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disconnected {
    /// Connections that began to shut down.
    pub connections: usize,
    /// SMB sessions that ended, with their opens.
    pub smb_sessions: usize,
    /// SMB opens that waited for their client to come back.
    pub smb_waiting_opens: usize,
    /// NFSv4 clients whose state ended.
    pub nfs4_clients: usize,
    /// Hosts whose NFSv3 locks ended.
    pub nfs3_hosts: usize,
}

impl fmt::Display for Disconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("disconnected")?;
        let numbers = [
            ("connections", self.connections),
            ("SMB sessions", self.smb_sessions),
            ("SMB opens that waited for their client", self.smb_waiting_opens),
            ("NFS 4 clients with their opens and locks", self.nfs4_clients),
            ("NFS 3 hosts with their locks", self.nfs3_hosts),
        ];
        for (what, number) in numbers.into_iter().filter(|(_, n)| *n > 0) {
            write!(f, "\n  {what}: {number}")?;
        }
        Ok(())
    }
}

/// Disconnects a client: first its connections, which accept no more requests, and then its state. All counts are zero if it had no
/// state.
pub(crate) async fn disconnect(
    servers: &Servers,
    connections: &Connections,
    Client(whom): &Client,
) -> Disconnected {
    let theirs = |file: &HeldFile| match whom {
        Whom::At(ip) => file.address == Some(*ip),
        Whom::Named(name) => file.protocol == "nfs" && file.client == name.as_str(),
    };
    write_out(files::find(servers, theirs).await.iter()).await;
    let mut gone = Disconnected::default();
    // A name identifies an NFS client, which may share its connections with other clients of its host.
    if let Whom::At(ip) = whom {
        let leaving = servers.smb.core().leaving(*ip);
        let dismissed = connections
            .dismiss(|_, info| info.peer.ip() == *ip || leaving.peers.contains(&info.peer));
        gone.connections = dismissed.count();
        // On an open connection, the client would only open the files again and lose them once more.
        if !connections.wait_for(&dismissed, LAST_REQUESTS).await {
            tracing::warn!(client = %ip, limit = ?LAST_REQUESTS, "a disconnected client still has requests in progress");
        }
        let smb = servers.smb.core().disconnect_client(leaving).await;
        (gone.smb_sessions, gone.smb_waiting_opens) = (smb.sessions, smb.waiting);
    }
    gone.nfs4_clients = servers.nfs.v4().clients.disconnect_client(whom).await;
    gone.nfs3_hosts = servers.nfs.nlm().disconnect_client(whom).await;
    gone
}

/// Closes the selected state, and returns it.
pub(crate) async fn close(servers: &Servers, what: &What) -> HeldFiles {
    let found = files::find(servers, |file| what.is(file)).await;
    write_out(found.iter()).await;
    recall(servers, &found).await;
    let mut closed: HashMap<u64, HeldFile> =
        found.into_iter().map(|h| (h.file.id, h.file)).collect();
    // A client that returned a delegation has meanwhile opened the files that it had open under it.
    for left in files::find(servers, |file| what.is(file)).await {
        let is_closed = servers.nfs.v4().clients.take_away(left.holder)
            || servers.nfs.nlm().take_away(left.holder)
            || servers.smb.core().close_open(left.holder).await;
        if is_closed {
            closed.insert(left.file.id, left.file);
        }
    }
    let mut files: Vec<HeldFile> = closed.into_values().collect();
    files.sort();
    HeldFiles { files, left_out: 0 }
}

/// Makes written data durable.
async fn write_out(held: impl Iterator<Item = &Holding>) {
    let nodes: HashMap<NodeId, &NodeRef> = held.map(|h| (h.node.id(), &h.node)).collect();
    for node in nodes.into_values() {
        if let Err(error) = node.commit(0, 0).await {
            tracing::error!(%error, "data of a file that an administrator closes could not be written to storage");
        }
    }
}

/// Recalls delegations and leases under which clients may hold back data, and waits for their return.
async fn recall(servers: &Servers, held: &[Holding]) {
    let arbiter = servers.namespace.arbiter();
    let caching = |h: &Holding| {
        let held = arbiter.state().held(h.node.id(), h.caches_as).unwrap_or_default();
        (!held.rights.is_none()).then_some(held)
    };
    let keeps = |h: &&Holding| {
        caching(h).is_some_and(|c| c.rights.has(Caching::WRITE) || h.file.protocol == "nfs")
    };
    for one in held.iter().filter(keeps) {
        arbiter.changed_externally(one.node.id(), Operation::Write);
    }
    let is_out = |h: &Holding| {
        caching(h).is_some_and(|c| c.rights.has(Caching::WRITE) || c.breaking_to.is_some())
    };
    let all_back = async {
        loop {
            let mut returned = std::pin::pin!(arbiter.returned());
            // Register before the check, so that no return is missed.
            returned.as_mut().enable();
            if !held.iter().any(is_out) {
                return;
            }
            returned.await;
        }
    };
    let limit = Duration::from_millis(arbiter.state().deadlines().wait_ms());
    // State that was not returned in time is revoked by now.
    let _ = tokio::time::timeout(limit, all_back).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_name_and_no_connection() {
        let parsed = |text: &str| text.parse::<Client>();
        assert_eq!(parsed("192.0.2.7").unwrap().0, Whom::At([192, 0, 2, 7].into()));
        assert_eq!(parsed("::ffff:192.0.2.7").unwrap().0, Whom::At([192, 0, 2, 7].into()));
        assert_eq!(parsed("Linux NFSv4.2 a").unwrap().0, Whom::Named("Linux NFSv4.2 a".into()));
        let refused = parsed("192.0.2.7:800").unwrap_err();
        assert!(refused.contains("without a port: 192.0.2.7"), "{refused}");
        assert!(parsed("[2001:db8::1]:800").unwrap_err().contains("2001:db8::1"));
        assert!(parsed(" ").is_err());
        for text in ["192.0.2.7", "2001:db8::1", "a name"] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_closed_is_a_number_or_a_file() {
        let parsed = |text: &str| text.parse::<What>();
        assert_eq!(parsed("17"), Ok(What::Id(17)));
        assert_eq!(parsed("/data/a b/"), Ok(What::File("/data/a b".into())));
        assert!(parsed("data/a").unwrap_err().contains("/SHARE/PATH"));
        assert!(parsed("-1").is_err() && parsed("").is_err());
    }
}
