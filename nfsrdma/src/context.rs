//! A connection, a call and its caller, and how a call ended.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mutex::locked;
use rdma_transport::channel::{Handle, Info};
use rdma_transport::refused::{self, Refused};
use vfs::Cred;
use vfs::audited::{Acting, Actor};
use vfs::backend::ReadInto;
use vfs::namespace::Protection;

use crate::rpc::Flavor;

/// One connection, from its first call to its end.
pub struct Conn {
    /// Unique within this run.
    pub id: u64,
    pub info: Arc<Info>,
    /// Sends calls to the peer and ends the connection.
    pub handle: Handle,
    /// The call is a single datagram, whose sender address may be forged.
    is_datagram: bool,
    /// Where the buffers for its reads come from.
    pub read_into: ReadInto,
    /// Buffers for data that leaves without being inspected or changed (file pages).
    paged: ReadInto,
    /// Rules whose violation by this peer is logged already: one log line for each rule.
    pub(crate) reported: AtomicU32,
    /// A bit for each version that the peer has called.
    versions: AtomicU32,
    pub(crate) last_cred: std::sync::Mutex<Option<LastCred>>,
    /// Its calls that wait for a rate.
    pub(crate) rate_waits: AtomicUsize,
}

/// The credential of the last call and its decoded form. Most callers repeat it.
pub(crate) struct LastCred {
    pub(crate) flavor: u32,
    pub(crate) body: Box<[u8]>,
    pub(crate) meant: (Flavor, Cred),
    /// When the service of a domain was last asked about its numbers, if there is one.
    pub(crate) learned: Option<Instant>,
}

/// How long no number of the last caller of a connection is looked up again.
const LEARNED_FOR: Duration = Duration::from_secs(10);

impl LastCred {
    /// Returns whether the service of a domain was asked about its numbers lately.
    pub(crate) fn is_learned(&self, now: Instant) -> bool {
        self.learned.is_some_and(|at| now < at + LEARNED_FOR)
    }
}

impl Conn {
    /// Notes that the service of a domain was asked about the numbers of this caller.
    pub(crate) fn note_learned(&self, cred: &Cred, now: Instant) {
        if let Some(last) = locked(&self.last_cred).as_mut().filter(|last| last.meant.1 == *cred) {
            last.learned = Some(now);
        }
    }

    /// Builds the state of a connection over a channel.
    pub fn new(info: Arc<Info>, handle: Handle) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (pool, account) = (info.pool.clone(), info.account);
        let backpressure = Some(info.backpressure.clone());
        let read_into = ReadInto { pool, account, backpressure, pages: false, attributes: false };
        let paged = ReadInto { pages: true, ..read_into.clone() };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            id,
            info,
            handle,
            is_datagram: false,
            read_into,
            paged,
            reported: AtomicU32::new(0),
            versions: AtomicU32::new(0),
            last_cred: std::sync::Mutex::new(None),
            rate_waits: AtomicUsize::new(0),
        }
    }

    pub(crate) fn datagram(info: Arc<Info>) -> Self {
        Self { is_datagram: true, ..Self::new(info, Handle::detached()) }
    }

    /// True for a datagram: violations are only counted, because any host can forge the sender address.
    pub(crate) fn is_datagram(&self) -> bool {
        self.is_datagram
    }

    /// Counts a refusal, keeps it for `headgate status` and logs it. Datagrams are only counted.
    pub(crate) fn refused(&self, one: Refused) {
        if self.is_datagram { refused::count(one.rule) } else { refused::note(one) }
    }

    /// The protection (TLS or none) of this connection's calls.
    pub(crate) fn protection(&self) -> Protection {
        match self.info.tls.peer() {
            None => Protection::None,
            Some(peer) if peer.name.is_none() => Protection::Tls,
            Some(_) => Protection::Mutual,
        }
    }

    pub(crate) fn peer_ip(&self) -> IpAddr {
        self.info.peer.ip()
    }

    /// Returns the buffers to read this call's data into, for [`Writer::attach`](rdma_transport::xdr::Writer::attach): the file's
    /// own pages if the reply is neither encrypted nor checksummed.
    pub(crate) fn unseen(&self, call: &CallContext) -> &ReadInto {
        let pages = self.info.takes_pages.load(Ordering::Relaxed) && !call.flavor.is_protected();
        if pages { &self.paged } else { &self.read_into }
    }

    /// Records that the peer calls this version of NFS.
    pub(crate) fn calls(&self, version: Version) {
        let bit = 1 << version as u32;
        if self.versions.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        let all = self.versions.fetch_or(bit, Ordering::Relaxed) | bit;
        let called = Version::ALL.into_iter().filter(|v| all & (1 << *v as u32) != 0);
        let names: Vec<&str> = called.map(Version::name).collect();
        self.info.facts.note("NFS", names.join(", "));
    }
}

/// A version of NFS, including the minor version of NFSv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V3,
    V40,
    V41,
    V42,
}

impl Version {
    const ALL: [Self; 4] = [Self::V3, Self::V40, Self::V41, Self::V42];

    fn name(self) -> &'static str {
        match self {
            Self::V3 => "3",
            Self::V40 => "4.0",
            Self::V41 => "4.1",
            Self::V42 => "4.2",
        }
    }

    /// The version for a minor version of NFSv4.
    pub(crate) fn of_minor(minor: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(minor).ok()?.checked_add(1)?).copied()
    }
}

/// One call, as passed to its procedure.
#[derive(Clone, Debug)]
pub struct CallContext {
    pub xid: u32,
    /// The authentication flavor of the call.
    pub flavor: Flavor,
    /// The [fingerprint](crate::rpc::gss::fingerprint) of the Kerberos principal; 0 for other flavors.
    pub principal: u128,
    pub peer: IpAddr,
    /// The caller's identity before any share squashes it: [`vfs::namespace::Share::squash`] does that.
    pub cred: Cred,
    /// The machine's time when the call was taken from the queue. It is read once, for statistics and deadlines.
    pub began: Instant,
    /// The server's time at that moment.
    pub now: Duration,
}

/// The caller's identity in audit records.
impl Actor for CallContext {
    fn acting(&self) -> Acting {
        let (party, is_proven) = (self.party(), self.flavor.of_share().is_kerberos());
        Acting { peer: self.peer, protocol: "nfs", party, is_proven }
    }
}

impl CallContext {
    /// The user in audit records: the number before squashing; the audit log looks up its name.
    pub(crate) fn party(&self) -> audit::Party {
        audit::Party::numbered(self.cred.uid)
    }
}

/// How a procedure ended, when its arguments could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The results are written. The call is idempotent, so its reply need not be kept.
    Repeatable,
    /// The results are written, and a retransmission must get the same reply.
    Once,
    /// The procedure does not exist.
    NoProcedure,
    /// Sends no reply.
    Drop,
    /// The transport or flavor of the call protects less than the share requires: AUTH_TOOWEAK (RFC 5531 section 9).
    TooWeak,
}
