//! What the daemon is doing now, as data: the source of `/status`, `/metrics` and `headgate status`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdma_transport::channel::{Facts, Info, Traffic, Transport};
use serde::{Deserialize, Serialize};

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// NFS, MOUNT and the port mapper's few procedures.
    Nfs,
    /// SMB 2 and 3.
    Smb,
}

impl Protocol {
    /// In metrics and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nfs => "nfs",
            Self::Smb => "smb",
        }
    }
}

/// The transport's name in metrics and tables.
pub fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Rdma(provider) => provider,
    }
}

/// Bytes and requests by the way they went; the server's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Requests received.
    pub requests: u64,
    /// Bytes that clients got by RDMA Write.
    pub rdma_write: u64,
    /// Bytes that clients gave by RDMA Read.
    pub rdma_read: u64,
    /// Bytes received inside messages.
    pub inline_in: u64,
    /// Bytes sent inside messages.
    pub inline_out: u64,
    /// Sends that took a client's registration back.
    pub invalidations: u64,
}

impl Moved {
    /// So far on one connection.
    pub fn of(traffic: &Traffic) -> Self {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            requests: read(&traffic.requests),
            rdma_write: read(&traffic.rdma_write),
            rdma_read: read(&traffic.rdma_read),
            inline_in: read(&traffic.inline_in),
            inline_out: read(&traffic.inline_out),
            invalidations: read(&traffic.invalidations),
        }
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            rdma_write: self.rdma_write + other.rdma_write,
            rdma_read: self.rdma_read + other.rdma_read,
            inline_in: self.inline_in + other.inline_in,
            inline_out: self.inline_out + other.inline_out,
            invalidations: self.invalidations + other.invalidations,
        }
    }
}

/// One open connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// Address and port of the client.
    pub peer: String,
    /// Address and port that it came to.
    pub local: String,
    /// What it speaks.
    pub protocol: Protocol,
    /// `tcp`, or the RDMA provider.
    pub transport: String,
    /// Seconds since it was opened.
    pub age_seconds: u64,
    /// Why it is not on RDMA, or what it gave up there; `None` when there is nothing to say.
    pub why_not_rdma: Option<String>,
    /// What it moved.
    pub moved: Moved,
    /// What is known of it and its client, in the order in which it was learnt.
    pub facts: Vec<(String, String)>,
}

impl ConnectionStatus {
    /// Of a connection that was opened so many seconds ago. `rdma_port` is where its protocol is served over RDMA, if it is.
    pub fn new(protocol: Protocol, info: &Info, age_seconds: u64, rdma_port: Option<u16>) -> Self {
        let facts: Vec<(String, String)> =
            info.facts.list().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self {
            peer: info.peer.to_string(),
            local: info.local.to_string(),
            protocol,
            transport: transport_name(info.transport).to_owned(),
            age_seconds,
            why_not_rdma: why_not(protocol, info.transport, rdma_port, &facts),
            moved: Moved::of(&info.traffic),
            facts,
        }
    }
}

/// The reason that a layer noted, or the one that follows from how the connection was made.
fn why_not(
    protocol: Protocol,
    transport: Transport,
    rdma_port: Option<u16>,
    facts: &[(String, String)],
) -> Option<String> {
    if let Some((_, why)) = facts.iter().find(|(name, _)| name == Facts::WHY_NOT_RDMA) {
        return Some(why.clone());
    }
    if transport.is_rdma() {
        return None;
    }
    let Some(port) = rdma_port else {
        return Some("RDMA is not served here (`rdma: off`)".into());
    };
    Some(match protocol {
        Protocol::Nfs => {
            format!("the client mounted by TCP; to use RDMA it mounts with proto=rdma,port={port}")
        }
        Protocol::Smb if facts.iter().any(|(name, _)| name == "interfaces") => format!(
            "the client was told where RDMA is served and has not come there by this connection: its edition may lack SMB \
             Direct, its adapter RDMA, or a firewall closes port {port}"
        ),
        Protocol::Smb => format!(
            "the client has not asked where RDMA is served, as one without multichannel does; Linux goes there by `mount -o \
             rdma,port={port}`"
        ),
    })
}

/// What requests waited for, and what clients hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStatus {
    /// Files that somebody holds.
    pub nodes: u64,
    /// Files that somebody may cache.
    pub grants: u64,
    /// Breaks and recalls that were started.
    pub recalls: u64,
    /// Holders whose time was over.
    pub revocations: u64,
    /// Requests that waited for rights to come back.
    pub waits: u64,
    /// Requests that were told to come back.
    pub delays: u64,
    /// Accesses and opens refused by a share mode or lock.
    pub denials: u64,
}

/// One class of the pool of payload memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Bytes of a buffer.
    pub buffer_bytes: u64,
    /// Buffers in use.
    pub used: u64,
    /// Buffers there may be.
    pub max: u64,
    /// Requests that wait for one.
    pub waiting: u64,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Of the program.
    pub version: String,
    /// It takes connections.
    pub ready: bool,
    /// Seconds since it began to serve.
    pub uptime_seconds: u64,
    /// Open now.
    pub connections: Vec<ConnectionStatus>,
    /// Connections that were refused for want of room.
    pub refused: u64,
    /// Connections that were opened so far, by protocol and transport.
    pub opened: BTreeMap<String, u64>,
    /// What went where so far, by protocol and transport: `nfs/tcp`, `smb/iwarp`.
    pub moved: BTreeMap<String, Moved>,
    /// What clients hold.
    pub state: StateStatus,
    /// Memory for payload.
    pub pool: Vec<PoolStatus>,
    /// How often peers broke which rule.
    pub violations: BTreeMap<String, u64>,
}

/// Where a snapshot comes from.
pub trait Source: Send + Sync + 'static {
    /// As it is now.
    fn snapshot(&self) -> Snapshot;
    /// It takes connections; cheap.
    fn is_ready(&self) -> bool;
}

/// Shared by the routes.
pub type SharedSource = Arc<dyn Source>;

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn a_connection_says_why_it_is_not_on_rdma() {
        let why = |p, t, port, f: &[_]| why_not(p, t, port, &facts(f)).unwrap_or_default();
        assert!(why(Protocol::Nfs, Transport::Tcp, Some(20049), &[]).contains("port=20049"));
        assert!(why(Protocol::Smb, Transport::Tcp, Some(5445), &[]).contains("5445"));
        assert!(why(Protocol::Nfs, Transport::Tcp, None, &[]).contains("rdma: off"));
        assert_eq!(why(Protocol::Nfs, Transport::Rdma("iwarp"), Some(1), &[]), "");
        let noted = [(Facts::WHY_NOT_RDMA, "it signs")];
        assert_eq!(why(Protocol::Smb, Transport::Rdma("iwarp"), Some(1), &noted), "it signs");
    }
}
