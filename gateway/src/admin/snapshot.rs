//! A snapshot of the daemon's state, as data: the source of `/status`, `/metrics` and `headgate status`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

use audit::PeerText;
use discovery::board::LinkStatus;
use rdma_transport::channel::{Facts, Info, Traffic};
use rdma_transport::refused::Row;
use serde::{Deserialize, Serialize};

use super::operations::OperationStatus;
use super::process::ProcessStatus;
use super::protocol::{Protocol, transport_name};
use super::reloads::ReloadStatus;
use super::usage::{ShareStatus, UserStatus};
use super::why::{Story, WhyNot};

/// Bytes and requests by direction, as the server counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Requests received.
    pub requests: u64,
    /// Bytes that clients got with RDMA Write.
    pub rdma_write: u64,
    /// Bytes that clients gave with RDMA Read.
    pub rdma_read: u64,
    /// Bytes received inside messages.
    pub inline_in: u64,
    /// Bytes sent inside messages.
    pub inline_out: u64,
    /// Sends that took a client's registration back.
    pub invalidations: u64,
    /// How often messages began to wait for a credit of the client.
    pub credit_waits: u64,
}

impl Moved {
    /// Reads the counters of one connection.
    pub fn of(traffic: &Traffic) -> Self {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            requests: read(&traffic.requests),
            rdma_write: read(&traffic.rdma_write),
            rdma_read: read(&traffic.rdma_read),
            inline_in: read(&traffic.inline_in),
            inline_out: read(&traffic.inline_out),
            invalidations: read(&traffic.invalidations),
            credit_waits: read(&traffic.credit_waits),
        }
    }

    /// Returns the difference since `before`.
    pub fn minus(self, before: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            rdma_write: self.rdma_write.saturating_sub(before.rdma_write),
            rdma_read: self.rdma_read.saturating_sub(before.rdma_read),
            inline_in: self.inline_in.saturating_sub(before.inline_in),
            inline_out: self.inline_out.saturating_sub(before.inline_out),
            invalidations: self.invalidations.saturating_sub(before.invalidations),
            credit_waits: self.credit_waits.saturating_sub(before.credit_waits),
        }
    }

    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            rdma_write: self.rdma_write + other.rdma_write,
            rdma_read: self.rdma_read + other.rdma_read,
            inline_in: self.inline_in + other.inline_in,
            inline_out: self.inline_out + other.inline_out,
            invalidations: self.invalidations + other.invalidations,
            credit_waits: self.credit_waits + other.credit_waits,
        }
    }
}

/// One open connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// Different from all others of this run.
    pub id: u64,
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
    /// What protects its messages: `none`, `sign` or `seal`.
    pub protection: String,
    /// Bulk data went directly into or out of the client's memory, protected as the messages are.
    pub placed: bool,
    /// Why it is not on RDMA, or what it gave up there.
    pub why_not: Option<WhyNot>,
    /// Messages that wait now because the client granted no credit for them.
    pub credits_waiting: u64,
    /// What it moved.
    pub moved: Moved,
    /// Facts about it and its client, in the order in which they were learnt.
    pub facts: Vec<(String, PeerText)>,
}

/// Facts about a connection that its own state does not contain.
pub struct Around {
    /// Number of the connection.
    pub id: u64,
    /// Seconds since it was opened.
    pub age_seconds: u64,
    /// Ports on which clients dial its protocol over RDMA; empty if it is not served there.
    pub rdma_ports: Vec<u16>,
    /// Connections of the same client on RDMA.
    pub others_on_rdma: usize,
    /// Error of the client's last failed attempt on RDMA.
    pub failed: Option<String>,
}

impl ConnectionStatus {
    /// Returns the current status of a connection.
    pub fn new(protocol: Protocol, info: &Info, around: Around) -> Self {
        let facts: Vec<(String, PeerText)> = info.facts.list().into_iter().map(fact).collect();
        let moved = Moved::of(&info.traffic);
        let placed = moved.rdma_write + moved.rdma_read > 0;
        let protection = match info.facts.get(Facts::PROTECTION).as_deref() {
            Some("encrypted") => "seal",
            Some(tls) if tls.starts_with("TLS") => "seal",
            Some("signed") => "sign",
            _ => "none",
        };
        let story = Story {
            protocol,
            is_rdma: info.transport.is_rdma(),
            rdma_ports: &around.rdma_ports,
            has_placed: placed,
            facts: &facts,
            others_on_rdma: around.others_on_rdma,
            failed: around.failed,
        };
        Self {
            id: around.id,
            peer: info.peer.to_string(),
            local: info.local.to_string(),
            protocol,
            transport: transport_name(info.transport).to_owned(),
            age_seconds: around.age_seconds,
            protection: protection.to_owned(),
            placed,
            why_not: story.why_not(),
            credits_waiting: info.traffic.credits_waiting.load(Ordering::Relaxed),
            moved,
            facts,
        }
    }
}

/// Waits for state of other clients, and the state that clients hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStatus {
    /// Files that a client holds.
    pub nodes: u64,
    /// Files that a client may cache.
    pub grants: u64,
    /// Byte ranges that are locked.
    pub locks: u64,
    /// Breaks and recalls that were started.
    pub recalls: u64,
    /// Holders whose rights were revoked because they did not return them in time.
    pub revocations: u64,
    /// Requests that waited for rights to come back.
    pub waits: u64,
    /// Requests that clients must retry.
    pub delays: u64,
    /// Accesses and opens refused by a share mode or lock.
    pub denials: u64,
    /// Access control lists that were ignored, because the gateway had not written them for their file.
    #[serde(default)]
    pub forged_lists: u64,
}

/// The clients of NFSv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nfs4Status {
    /// Known clients.
    pub clients: u64,
    /// Silent ones among them, which keep what they hold as a courtesy.
    pub lapsed: u64,
    /// Opens, locks and delegations that these hold.
    pub lapsed_states: u64,
    /// Expired clients whose records could not be removed from the state folder yet.
    pub unstruck: u64,
    /// Bytes set aside for the replies that sessions keep.
    pub reply_bytes: u64,
    /// Sessions of versions 4.1 and 4.2.
    #[serde(default)]
    pub sessions: u64,
    /// Clients whose state ended because they were silent for too long.
    pub expired: u64,
    /// Silent clients whose state ended early, to make room or because of what it kept from others.
    pub evicted: u64,
    /// Active clients that restarted from another address.
    pub moved: u64,
    /// Requests refused because the state folder could not be written.
    pub unkept: u64,
}

/// Sessions, logons and opens of SMB clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmbStatus {
    /// Sessions, those included whose logon is not finished.
    pub sessions: u64,
    /// Logons that a user's password (or ticket) granted, so far.
    #[serde(default)]
    pub logons: u64,
    /// Logons as a guest, and without a name.
    #[serde(default)]
    pub guest_logons: u64,
    /// Logons that were refused.
    #[serde(default)]
    pub refused_logons: u64,
    /// Opens of files, folders and pipes.
    pub opens: u64,
    /// Durable ones among them, whose client has lost its connection and may return.
    pub waiting: u64,
    /// Messages that travelled compressed.
    #[serde(default)]
    pub compression: CompressionStatus,
}

/// Bytes of compressed SMB messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressionStatus {
    /// Answers before they were compressed.
    pub out_plain: u64,
    /// The same answers as they left.
    pub out_compressed: u64,
    /// Requests after they were expanded.
    pub in_plain: u64,
    /// The same requests as they came.
    pub in_compressed: u64,
}

/// One size class of the pool of payload memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Bytes of a buffer.
    pub buffer_bytes: u64,
    /// Buffers in use.
    pub used: u64,
    /// Buffers that may exist.
    pub max: u64,
    /// Requests that wait for one.
    pub waiting: u64,
}

/// Messages on the heap that count as payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapStatus {
    /// Bytes in use.
    pub bytes: u64,
    /// Bytes that may be in use.
    pub max: u64,
    /// Connections that wait with one.
    pub waiting: u64,
}

/// A rate that an administrator has set (`limits`), and what it made of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateStatus {
    /// `all`, `client` (each client address), `share` or `user`.
    pub scope: String,
    /// The name of the share or user; empty for others.
    pub name: String,
    /// `read` and `write` count bytes; `operations`, `read_operations` and `write_operations` count operations.
    pub measure: String,
    /// Bytes or operations that may pass in each second.
    pub rate: u64,
    /// Length of a burst after idle time: the time in which the rate would pass it.
    pub burst_ms: u64,
    /// Bytes or operations that have passed since the rate was set, of all clients together.
    pub passed: u64,
    /// Requests that had to wait before they passed.
    pub waited: u64,
    /// The time that they waited, together.
    pub waited_ms: u64,
    /// Requests that wait now.
    pub waiting: u64,
}

impl From<rates::Reading> for RateStatus {
    fn from(reading: rates::Reading) -> Self {
        let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            scope: reading.scope.kind().to_owned(),
            name: reading.scope.name().to_owned(),
            measure: reading.measure.to_string(),
            rate: reading.rate,
            burst_ms: ms(reading.burst),
            passed: reading.passed,
            waited: reading.waited,
            waited_ms: ms(reading.waited_for),
            waiting: reading.waiting as u64,
        }
    }
}

impl RateStatus {
    /// Names the scope and what is counted, for people.
    pub fn title(&self) -> String {
        let whose = match self.scope.as_str() {
            "client" => "each client".to_owned(),
            scope if self.name.is_empty() => scope.to_owned(),
            scope => format!("{scope} {}", self.name),
        };
        format!("{whose}, {}", self.measure.replace('_', " "))
    }

    /// Returns true if it counts bytes.
    pub fn is_bytes(&self) -> bool {
        matches!(self.measure.as_str(), "read" | "write")
    }
}

/// Data and changes that the storage below a share lost since the share was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossStatus {
    /// The share's name.
    pub share: String,
    /// Failures of storage to keep data or a change that it had accepted.
    pub count: u64,
    /// The file of the last, on the host.
    pub file: Option<PeerText>,
}

/// Counters of syncs to stable storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncStatus {
    /// Syncs of files, folders and volumes.
    pub syncs: u64,
    /// Requests that waited for them; several may share one.
    pub waited: u64,
    /// Syncs that failed.
    pub failed: u64,
    /// Syncs that wait for a thread now.
    pub queued: u64,
}

/// Reports that the state folder cannot be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// The folder.
    pub folder: String,
    /// Bytes that were free there at the last attempt, if the file system says so.
    pub free_bytes: Option<u64>,
    /// The error, its remedy, and its consequence for clients.
    pub what: String,
}

/// The service of a cluster that a gateway serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its cluster and its name: `headgate/files`.
    pub name: String,
    /// The node that serves it.
    pub node: String,
    /// The epoch in which it serves.
    pub epoch: u64,
    /// How long it may be served if its lease is not renewed, in milliseconds.
    pub lease_left_ms: u64,
}

/// What is announced on one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnouncedStatus {
    /// The network device.
    pub link: String,
    /// The name that resolves there; null while it is being claimed.
    pub name: Option<String>,
    /// The addresses of the name.
    pub addresses: Vec<String>,
    /// The protocols by which it is announced.
    pub by: Vec<String>,
    /// Why others are not in use.
    pub troubles: Vec<String>,
}

impl From<LinkStatus> for AnnouncedStatus {
    fn from(link: LinkStatus) -> Self {
        Self {
            link: link.link,
            name: link.name.map(|name| format!("{name}.local")),
            addresses: link.addresses.iter().map(ToString::to_string).collect(),
            by: link.protocols.into_iter().map(str::to_owned).collect(),
            troubles: link.troubles,
        }
    }
}

/// The audit trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditStatus {
    /// Where it goes.
    pub to: String,
    /// While the trail cannot be written, the gateway refuses what it must record.
    pub required: bool,
    /// Records that were written.
    pub written: u64,
    /// Records that were lost because they found no room.
    pub lost: u64,
    /// Records that wait to be written.
    pub waiting: u64,
    /// Why it cannot be written now.
    pub broken: Option<String>,
}

/// The service of the host that knows the users of the domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainStatus {
    /// `winbind` or `sssd`.
    pub by: String,
    /// It has answered the last question.
    pub answers: bool,
    /// Why it has not.
    pub why_not: Option<String>,
    /// NetBIOS name of this machine in the domain, once known.
    pub machine: Option<String>,
    /// NetBIOS name of the domain, once known.
    pub domain: Option<String>,
    /// DNS name of the domain, once known.
    pub dns_domain: Option<String>,
}

/// The LDAP directory with users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryStatus {
    /// Its servers and base.
    pub directory: String,
    /// A server has answered the last question.
    pub answers: bool,
    /// Why none has.
    pub why_not: Option<String>,
    /// Users whose last answers are known.
    pub users: u64,
    /// Answers about users.
    pub found: u64,
    /// Answers that a name, or its entry, is not a user.
    pub unknown: u64,
    /// Questions of logons without an answer: earlier ones decided.
    pub unanswered: u64,
}

/// Sanitizes a fact for display, because clients choose the names of users and of clients.
fn fact((name, value): (&'static str, String)) -> (String, PeerText) {
    (name.to_owned(), value.into())
}

/// Refusals of one client for the same reason: a logon, a share or a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedStatus {
    /// The client's address; IPv4 as IPv4.
    pub client: String,
    /// The user, as far as one is known: a name, or `uid 1000`.
    pub user: PeerText,
    /// The share; empty if the refusal concerns no particular share.
    pub share: PeerText,
    /// The rule or limit that refused it.
    pub rule: String,
    /// The change that lets the client in.
    pub remedy: String,
    /// How often.
    pub count: u64,
    /// When the last was, in seconds since 1970-01-01 00:00 UTC.
    pub last: u64,
    /// Seconds since the last.
    pub age_seconds: u64,
}

impl From<Row> for RefusedStatus {
    fn from(row: Row) -> Self {
        let Row { refused, count, last } = row;
        Self {
            client: refused.peer.to_string(),
            user: refused.user,
            share: refused.share,
            rule: refused.rule.to_owned(),
            remedy: refused.remedy.into_owned(),
            count,
            last: last.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            age_seconds: last.elapsed().unwrap_or_default().as_secs(),
        }
    }
}

/// The whole status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of the program.
    pub version: String,
    /// It takes connections.
    pub ready: bool,
    /// The reason why the state folder cannot be written.
    #[serde(default)]
    pub store: Option<StoreStatus>,
    /// The audit trail, where there is one.
    #[serde(default)]
    pub audit: Option<AuditStatus>,
    /// The service of the host that knows the users of the domain, where there is one.
    #[serde(default)]
    pub domain: Option<DomainStatus>,
    /// The LDAP directory with users, where there is one.
    #[serde(default)]
    pub directory: Option<DirectoryStatus>,
    /// The service of a cluster that this gateway serves.
    #[serde(default)]
    pub service: Option<ServiceStatus>,
    /// When the certificate of NFS over TLS expires, in seconds since 1970.
    #[serde(default)]
    pub tls_certificate_ends: Option<u64>,
    /// Seconds since it began to serve.
    pub uptime_seconds: u64,
    /// What is served.
    #[serde(default)]
    pub shares: Vec<ShareStatus>,
    /// Processor time, memory and descriptors of the process.
    #[serde(default)]
    pub process: ProcessStatus,
    /// Reloads of the configuration.
    #[serde(default)]
    pub reloads: ReloadStatus,
    /// Users that are logged on over SMB.
    #[serde(default)]
    pub users: Vec<UserStatus>,
    /// Open connections.
    pub connections: Vec<ConnectionStatus>,
    /// Connections that are admitted: `connections`, or fewer where the process may open few files.
    #[serde(default)]
    pub connections_max: u64,
    /// Connections that were refused, by a limit or because no share admits the address.
    #[serde(default)]
    pub connections_refused: u64,
    /// Recent refusals, the newest first.
    #[serde(default)]
    pub refused: Vec<RefusedStatus>,
    /// How often each rule refused a client.
    #[serde(default)]
    pub refusals: BTreeMap<String, u64>,
    /// Connections that were opened so far, by protocol and transport.
    pub opened: BTreeMap<String, u64>,
    /// Bytes and requests so far, by protocol and transport: `nfs/tcp`, `smb/iwarp`.
    pub moved: BTreeMap<String, Moved>,
    /// Operations, by share, protocol, transport and name.
    pub operations: Vec<OperationStatus>,
    /// The rates that are set, in the order all, each client, shares, users.
    #[serde(default)]
    pub rates: Vec<RateStatus>,
    /// What clients hold.
    pub state: StateStatus,
    /// The clients of NFSv4.
    pub nfs4: Nfs4Status,
    /// What SMB clients have.
    #[serde(default)]
    pub smb: SmbStatus,
    /// Calls to NFSv4 clients over their backchannel, by call and outcome: `CB_RECALL/answered`.
    pub callbacks: BTreeMap<String, u64>,
    /// Outcomes of locks of NFSv3 (NLM), and restarts of its hosts.
    pub nlm: BTreeMap<String, u64>,
    /// Memory for payload.
    pub pool: Vec<PoolStatus>,
    /// Memory of large messages, outside the pool.
    #[serde(default)]
    pub heap: HeapStatus,
    /// The shares whose storage failed to keep data.
    #[serde(default)]
    pub losses: Vec<LossStatus>,
    /// Syncs to stable storage.
    #[serde(default)]
    pub syncs: SyncStatus,
    /// Announcements on the network, by link.
    #[serde(default)]
    pub announced: Vec<AnnouncedStatus>,
    /// Packets by which hosts look for others, by protocol and outcome: `mdns/answered`, `mdns/ignored` (it did not concern this
    /// gateway), `mdns/far` (from outside of the link's networks), `mdns/bad` (no message), `mdns/limited` (too many).
    #[serde(default)]
    pub discovery_packets: BTreeMap<String, u64>,
    /// How often another host of a link had the gateway's name.
    #[serde(default)]
    pub discovery_conflicts: u64,
    /// How often clients reached each limit.
    pub limits: BTreeMap<String, u64>,
    /// How often peers broke each rule.
    pub violations: BTreeMap<String, u64>,
    /// Files that clients removed from shares with a wastebasket, by what became of them: `kept`, `restored`, `expired`,
    /// `displaced` (too many), or why they were not kept: `other_file_system`, `no_space`, `not_supported`.
    #[serde(default)]
    pub wastebasket: BTreeMap<String, u64>,
    /// Work that failed on RDMA devices, by status.
    #[serde(default)]
    pub rdma_failures: BTreeMap<String, u64>,
}

/// A source of snapshots.
pub trait Source: Send + Sync + 'static {
    /// Returns the current status.
    fn snapshot(&self) -> Snapshot;
    /// Returns in one line why the daemon is not ready: it accepts no connections, or cannot write state that must survive. Cheap.
    fn unready(&self) -> Option<String>;
    /// Returns in one line what does not work although the daemon is ready. Cheap.
    fn impaired(&self) -> Option<String>;
}

pub type SharedSource = Arc<dyn Source>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::testing::connection;

    /// Other programs read `headgate status --json`, so its keys must not change.
    #[test]
    fn the_keys_of_a_connection_stay_as_they_are() {
        let value = serde_json::to_value(connection(Moved::default())).unwrap();
        let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let expected = [
            "age_seconds",
            "credits_waiting",
            "facts",
            "id",
            "local",
            "moved",
            "peer",
            "placed",
            "protection",
            "protocol",
            "transport",
            "why_not",
        ];
        assert_eq!(keys, expected);
        assert_eq!(value["why_not"]["reason"], "not-asked");
    }

    #[test]
    fn the_keys_of_a_refusal_stay_as_they_are() {
        let value = serde_json::to_value(crate::admin::testing::refused()).unwrap();
        let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let expected =
            ["age_seconds", "client", "count", "last", "remedy", "rule", "share", "user"];
        assert_eq!(keys, expected);
    }
}
