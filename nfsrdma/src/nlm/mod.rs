//! NLM version 4 (RFC 1813 appendix II): byte-range locks and share reservations for clients of NFS version 3.
//!
//! *Operation.* Locks are stored in `state` together with those of NFSv4 and SMB, so conflicts are found across protocols. An owner
//! with a lock also has the file open in `state`, for reading or writing as its lock requires: caching rights of other clients are
//! recalled first, and no new ones are granted while the lock is held. A conflicting lock request that may wait joins a
//! [`blocked::Queue`]; once granted, its host is notified with GRANTED until it answers. The asynchronous procedures (`_MSG`) are
//! answered by calls to the host's lock manager.
//!
//! After a restart, hosts that held locks are notified ([`crate::nsm`]) and may reclaim them in the grace period shared with NFSv4.
//! New locks are granted only after it ends.
//!
//! *Memory.* One record for each host, for each pair of owner and file, and for each waiting lock; [`limits`] bounds each of them.
//!
//! *Errors.* The [`Stat`] of the procedure. Versions 1 and 3, used with NFS version 2, get PROG_MISMATCH.

mod answers;
pub(crate) mod blocked;
mod granting;
mod holdings;
mod hosts;
pub mod limits;
mod locks;
mod monitors;
pub(crate) mod patience;
pub(crate) mod reservations;
mod shares;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use nfs_proto::nlm::Args;
use recovery::Store;
use state::{HolderId, Millis, NodeId};

pub use hosts::{Host, Key};
pub(crate) use monitors::Monitored;
pub use reservations::Reservations;

use crate::context::{CallContext, Conn, Outcome};
use crate::server_state::ServerState;
use crate::v4::Clients;
use answers::Answer;
use blocked::Queue;
use hosts::{Hosts, Released};
use monitors::Monitors;
use rdma_transport::parts::Parts;
use rdma_transport::xdr::{Reader, Writer, XdrResult};

pub use nfs_proto::nlm::{Stat, VERSION, procedure};

/// True if a retransmission must get the first reply again: a late LOCK would lock a range that was unlocked since.
pub fn is_once(number: u32) -> bool {
    use procedure as p;
    matches!(number, p::LOCK | p::CANCEL | p::UNLOCK | p::SHARE | p::UNSHARE | p::NM_LOCK)
}

/// Counts calls of the lock manager and their results.
#[derive(Debug, Default)]
pub struct Counters {
    /// Locks granted, at once or after a wait.
    pub granted: AtomicU64,
    /// Lock requests refused because of a conflict.
    pub denied: AtomicU64,
    pub blocked: AtomicU64,
    /// Locks granted after a wait and released again, because the host could not be notified.
    pub untold: AtomicU64,
    pub grace: AtomicU64,
    pub reclaimed: AtomicU64,
    /// Requests refused because a limit was reached.
    pub limited: AtomicU64,
    /// Host restarts reported to this server.
    pub reboots: AtomicU64,
    /// Hosts that acknowledged the notice of our restart.
    pub notified: AtomicU64,
    /// Notices from addresses that may use no share.
    pub strangers: AtomicU64,
    /// Notices that released no lock: sent from an address that the named host did not lock from, or no news.
    pub ignored: AtomicU64,
}

/// Settings that tests change.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port of rpcbind on client hosts.
    pub rpcbind_port: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { rpcbind_port: crate::portmap::PORT }
    }
}

pub struct Nlm {
    core: Arc<ServerState>,
    clients: Arc<Clients>,
    hosts: Hosts,
    queue: Queue,
    /// Places for lock requests that wait for a recall.
    patient: Arc<Parts>,
    pub(crate) monitors: Monitors,
    pub(crate) options: Options,
    answers: Arc<Parts>,
    pub counters: Counters,
    me: Weak<Self>,
}

impl Nlm {
    /// Builds a lock manager for these shares, which shares the grace period of these NFSv4 clients. Reads the disk.
    pub(crate) fn new(
        core: Arc<ServerState>,
        clients: Arc<Clients>,
        store: Option<Store>,
        options: Options,
    ) -> std::io::Result<Arc<Self>> {
        let monitors = Monitors::new(store);
        clients.expect_reclaims(monitors.all()?.iter().map(|m| reclaim_name(&m.key)));
        Ok(Arc::new_cyclic(|me| Self {
            core,
            clients,
            hosts: Hosts::default(),
            queue: Queue::default(),
            patient: Parts::new(limits::PATIENT),
            monitors,
            options,
            answers: Parts::new(limits::ANSWERS),
            counters: Counters::default(),
            me: me.clone(),
        }))
    }

    /// The state shared by all connections.
    pub fn core(&self) -> &Arc<ServerState> {
        &self.core
    }

    /// The number of this run for status monitors: odd, and different at each start.
    pub fn state_number(&self) -> i32 {
        let number = self.core.boot.instance.wrapping_mul(2) | 1;
        i32::try_from(number & 0x7fff_ffff).unwrap_or(1)
    }

    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// True if this host has locked a file in this run.
    pub(crate) fn is_known(&self, key: &Key) -> bool {
        self.hosts.find(key).is_some()
    }

    /// Number of waiting lock requests.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn now(&self) -> Millis {
        self.core.namespace.arbiter().now()
    }

    /// True while no new locks are granted.
    pub(crate) fn in_grace(&self) -> bool {
        self.clients.in_grace()
    }

    pub(crate) fn grace_is_stuck(&self) -> bool {
        self.clients.grace_is_stuck()
    }

    /// Decides whether this host may reclaim: it must have held a lock before the restart.
    pub(crate) fn reclaims(&self, key: &Key) -> bool {
        self.clients.grace().reclaim(&reclaim_name(key), self.now())
    }

    /// Handles a report that the host of this name at this address has restarted: releases its holdings. `state` is the number of
    /// its status monitor; `None` for FREE_ALL, which carries no number.
    ///
    /// Only a report from the host itself is accepted: it must come from the address that the host locked from, and its number must
    /// be later than the one under which the locks were taken and than that of the last notice (X/Open XNFS section 11.2.7: the
    /// number changes with each start of the host). Locks taken under the new number stay. Other reports are counted and ignored.
    pub fn rebooted(&self, name: &[u8], ip: IpAddr, state: Option<i32>) {
        let table = self.core.namespace.arbiter().state();
        let released = self.hosts.named(name, ip).and_then(|host| {
            let released = match state {
                Some(state) => host.notified(state, table),
                None => Some(host.release(|_| true, table)),
            };
            released.map(|released| (host, released))
        });
        let Some((host, released)) = released else {
            self.counters.ignored.fetch_add(1, Ordering::Relaxed);
            let shown = audit::PeerText::of(name);
            tracing::debug!(host = %shown, %ip, state, "a restart notification released no locks");
            return;
        };
        self.was_restarted(&host, state, &released);
    }

    /// Handles the status monitor's number in a LOCK of this host. A number later than the known one proves a restart just as a
    /// notice does.
    pub(super) fn note_state(&self, host: &Host, state: i32) {
        let table = self.core.namespace.arbiter().state();
        if let Some(released) = host.note_state(state, table) {
            self.was_restarted(host, Some(state), &released);
        }
    }

    fn was_restarted(&self, host: &Host, state: Option<i32>, (holders, shares): &Released) {
        self.counters.reboots.fetch_add(1, Ordering::Relaxed);
        self.forget_waiting(host, shares);
        tracing::warn!(
            host = %audit::PeerText::of(&host.key.name), ip = %host.key.ip, state, holders,
            "a client restarted: its NFSv3 locks are released"
        );
        self.core.namespace.arbiter().released();
    }

    /// Forgets the waiting requests of a host and these of its reservations.
    fn forget_waiting(&self, host: &Host, shares: &[(NodeId, HolderId)]) {
        self.queue.forget(|blocked| blocked.host.key == host.key);
        self.forget_reservations(host, shares);
    }

    fn forget_reservations(&self, host: &Host, shares: &[(NodeId, HolderId)]) {
        shares.iter().for_each(|(node, holder)| {
            self.core.reservations.remove(host.key.ip, *node, *holder);
        });
    }

    /// Ends the locks, reservations and waiting requests in a share that is no longer served, and returns how many there were.
    /// `root` is the share's root. Later calls on them get NLM4_STALE_FH.
    pub fn leave_share(&self, root: &dyn vfs::backend::Node) -> usize {
        let arbiter = self.core.namespace.arbiter();
        self.queue.forget(|blocked| blocked.node.is_beside(root));
        let mut ended = 0;
        for host in self.hosts.all() {
            let (number, shares) = host.release(|h| h.node.is_beside(root), arbiter.state());
            self.forget_reservations(&host, &shares);
            ended += number;
        }
        arbiter.released();
        ended
    }

    /// Called about once a second: removes hosts without locks from the durable list.
    pub async fn tick(&self) {
        for host in self.hosts.take_idle(self.now(), |host| self.queue.has_host(&host.key)) {
            if host.monitored.load(Ordering::Acquire)
                && let Err(e) = self.monitors.strike(&host.key).await
            {
                tracing::error!(error = %e, "a host's record cannot be removed");
            }
        }
    }

    /// Executes one call. `args` is positioned at the arguments; results are appended to `out`.
    pub(crate) async fn serve(
        &self,
        conn: &Conn,
        call: &CallContext,
        number: u32,
        args: &mut Reader<'_>,
        out: &mut Writer,
    ) -> XdrResult<Outcome> {
        let args = args.parse(|i| Args::parse(number, i))?;
        let Some(args) = args else { return Ok(Outcome::NoProcedure) };
        let monitored = number != procedure::NM_LOCK;
        let (cookie, answer) = match args {
            Args::Null | Args::TestRes(_) | Args::Res(_) => return Ok(Outcome::Repeatable),
            Args::FreeAll(notify) => {
                if self.core.may_use_any(conn) {
                    self.rebooted(notify.name, conn.info.peer.ip(), None);
                } else {
                    self.counters.strangers.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(Outcome::Repeatable);
            }
            Args::Test(a) => (a.cookie, self.test(conn, call, a.exclusive, &a.alock).await),
            Args::Lock(a) => {
                let (block, exclusive, reclaim, state) = (a.block, a.exclusive, a.reclaim, a.state);
                let how = locks::How { block, exclusive, reclaim, monitored, state };
                (a.cookie, Answer::Stat(self.lock(conn, call, how, &a.alock).await))
            }
            Args::Cancel(a) => {
                (a.cookie, Answer::Stat(self.cancel(conn, a.exclusive, &a.alock).await))
            }
            Args::Unlock(a) => (a.cookie, Answer::Stat(self.unlock(conn, &a.alock).await)),
            // This server never waits for locks of others.
            Args::Granted(a) => (a.cookie, Answer::Stat(Stat::Denied)),
            Args::Share(a) => {
                (a.cookie, Answer::Share(self.share(conn, call, &a.share, a.reclaim).await))
            }
            Args::Unshare(a) => (a.cookie, Answer::Share(self.unshare(conn, &a.share).await)),
        };
        if let Some(result) = answers::result_of(number) {
            self.answer_later(conn, result, cookie, &answer);
        } else {
            answer.emit(cookie, out.head());
        }
        Ok(if is_once(number) { Outcome::Once } else { Outcome::Repeatable })
    }
}

/// The name of a host in the grace period's records. Its prefix differs from the names of NFSv4 clients, which begin with 0 or 1.
fn reclaim_name(key: &Key) -> Box<[u8]> {
    const FAMILY: u8 = 2;
    let mut name = vec![FAMILY];
    name.extend_from_slice(&key.name);
    name.into()
}
