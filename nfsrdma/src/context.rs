//! A connection, a call and its caller, and how a call ended.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdma_transport::channel::{Handle, Info};
use rdma_transport::refused::{self, Refused};
use vfs::Cred;
use vfs::audited::{Acting, Actor};
use vfs::backend::ReadInto;
use vfs::namespace::Protection;

use crate::rpc::Flavor;

/// One connection, from its first call to its end.
pub struct Conn {
    /// Different from all others of this run.
    pub id: u64,
    /// The peer, the transport, the pool.
    pub info: Arc<Info>,
    /// Calls the peer back; ends the connection.
    pub handle: Handle,
    /// It is one datagram, whose sender may be another than it says.
    is_datagram: bool,
    /// Where the buffers for its reads come from.
    pub read_into: ReadInto,
    /// The same, for data that nobody looks at before it leaves.
    paged: ReadInto,
    /// The rules that this peer has been reported for: one line in the log for each.
    pub(crate) reported: AtomicU32,
    /// The versions that it has called, a bit for each.
    versions: AtomicU32,
    pub(crate) last_cred: std::sync::Mutex<Option<LastCred>>,
}

/// The credential of the last call and what it meant: callers rarely change it.
pub(crate) struct LastCred {
    pub(crate) flavor: u32,
    pub(crate) body: Box<[u8]>,
    pub(crate) meant: (Flavor, Cred),
}

impl Conn {
    /// Of a channel.
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
        }
    }

    /// Of one datagram.
    pub(crate) fn datagram(info: Arc<Info>) -> Self {
        Self { is_datagram: true, ..Self::new(info, Handle::detached()) }
    }

    /// It is one datagram: no more than a counter may come of what is wrong with it, since anybody can send one in another's name.
    pub(crate) fn is_datagram(&self) -> bool {
        self.is_datagram
    }

    /// Counts a refusal, keeps it for `headgate status` and tells the log of it; of a datagram it is counted.
    pub(crate) fn refused(&self, one: Refused) {
        if self.is_datagram { refused::count(one.rule) } else { refused::note(one) }
    }

    /// What protects its calls.
    pub(crate) fn protection(&self) -> Protection {
        match self.info.tls.peer() {
            None => Protection::None,
            Some(peer) if peer.name.is_none() => Protection::Tls,
            Some(_) => Protection::Mutual,
        }
    }

    /// The peer's address.
    pub(crate) fn peer_ip(&self) -> IpAddr {
        self.info.peer.ip()
    }

    /// Where data is read to for this call, for [`Writer::attach`](rdma_transport::xdr::Writer::attach): pages of the file
    /// themselves, where nobody looks at what leaves.
    pub(crate) fn unseen(&self, call: &CallContext) -> &ReadInto {
        let pages = self.info.takes_pages.load(Ordering::Relaxed) && !call.flavor.is_protected();
        if pages { &self.paged } else { &self.read_into }
    }

    /// The peer calls this version of NFS.
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

/// A version of NFS with its minor version.
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

    /// Of version 4.
    pub(crate) fn of_minor(minor: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(minor).ok()?.checked_add(1)?).copied()
    }
}

/// One call, as its procedure sees it.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// Transaction number.
    pub xid: u32,
    /// How the caller said who it is.
    pub flavor: Flavor,
    /// Of a caller by Kerberos: the [fingerprint](crate::rpc::gss::fingerprint) of its principal; 0 for others.
    pub principal: u128,
    /// The caller's address.
    pub peer: IpAddr,
    /// Who it is. No share has squashed it yet: [`vfs::namespace::Share::squash`] does.
    pub cred: Cred,
    /// When the call was taken up, by the machine's clock: looked at once, for what is counted and what expires.
    pub began: Instant,
    /// The same, by the server's clock.
    pub now: Duration,
}

/// For the audit trail.
impl Actor for CallContext {
    fn acting(&self) -> Acting {
        Acting { peer: self.peer, protocol: "nfs", party: self.party() }
    }
}

impl CallContext {
    /// Who calls, for the audit trail: by the number that it is before a share squashes it, which is looked up there.
    pub(crate) fn party(&self) -> audit::Party {
        audit::Party::numbered(self.cred.uid)
    }
}

/// How a procedure ended, when its arguments could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The results are written. Doing the call again does no harm, so its reply need not be kept.
    Repeatable,
    /// The results are written, and a repetition of the call must get them again.
    Once,
    /// There is no such procedure.
    NoProcedure,
    /// No answer.
    Drop,
    /// The call came by a way, or with a flavor, that protects less than the share wants: AUTH_TOOWEAK (RFC 5531 section 9).
    TooWeak,
}
