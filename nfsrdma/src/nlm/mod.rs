//! NLM version 4 (RFC 1813 appendix II): byte-range locks and share reservations for clients of NFS version 3.
//!
//! *Operation.* Locks are in `state` with those of NFSv4 and SMB, so all of them meet there. An owner that holds a lock has the
//! file open in `state` too, for reading or writing as its lock is: caching that another client was given is taken back first, and
//! none is given beside the lock. A lock that is in somebody's way and is to be waited for stands in a [`blocked::Queue`]; when it
//! was given, its host is told by GRANTED until it has understood. The asynchronous procedures (`_MSG`) are answered by calls of
//! ours to the host's lock manager.
//!
//! After a restart the hosts that held something are told ([`crate::nsm`]) and may reclaim in the grace period that NFSv4 has too;
//! nothing new is given before its end.
//!
//! *Memory.* A record per host, per owner and file, per lock that is waited for; each with a limit ([`limits`]).
//!
//! *Errors.* The [`Stat`] of the procedure. Versions 1 and 3, which serve NFS version 2, are answered by PROG_MISMATCH.

mod answers;
pub(crate) mod blocked;
mod granting;
mod holdings;
mod hosts;
pub mod limits;
mod locks;
mod monitors;
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

/// A repetition of this call must get the first reply again: late repetitions of LOCK would lock what was unlocked since.
pub fn is_once(number: u32) -> bool {
    use procedure as p;
    matches!(number, p::LOCK | p::CANCEL | p::UNLOCK | p::SHARE | p::UNSHARE | p::NM_LOCK)
}

/// How often what happened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Locks that were given, at once or later.
    pub granted: AtomicU64,
    /// Requests for locks that others were in the way of.
    pub denied: AtomicU64,
    /// Requests for locks that began to wait.
    pub blocked: AtomicU64,
    /// Locks given after a wait that nobody took: the host could not be told.
    pub untold: AtomicU64,
    /// Requests refused in the grace period.
    pub grace: AtomicU64,
    /// Locks that were reclaimed.
    pub reclaimed: AtomicU64,
    /// Requests refused because a limit of this server was reached.
    pub limited: AtomicU64,
    /// Restarts of hosts that we were told of.
    pub reboots: AtomicU64,
    /// Hosts that were told of our restart.
    pub notified: AtomicU64,
    /// Notices from addresses that no share lets in.
    pub strangers: AtomicU64,
    /// Notices that freed nothing: not from an address that the named host locked from, or no news.
    pub ignored: AtomicU64,
}

/// What tests choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the rpcbind of a client's host is.
    pub rpcbind_port: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { rpcbind_port: crate::portmap::PORT }
    }
}

/// The lock manager.
pub struct Nlm {
    core: Arc<ServerState>,
    clients: Arc<Clients>,
    hosts: Hosts,
    queue: Queue,
    /// Locks that wait for caching of others to come back.
    patient: Arc<Parts>,
    pub(crate) monitors: Monitors,
    pub(crate) options: Options,
    answers: Arc<Parts>,
    /// How often what happened.
    pub counters: Counters,
    me: Weak<Self>,
}

impl Nlm {
    /// Over these shares, with the grace period of these clients. Blocks on the disk.
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

    /// What all connections share.
    pub fn core(&self) -> &Arc<ServerState> {
        &self.core
    }

    /// The number of this run for status monitors: odd, and another one at each start.
    pub fn state_number(&self) -> i32 {
        let number = self.core.boot.instance.wrapping_mul(2) | 1;
        i32::try_from(number & 0x7fff_ffff).unwrap_or(1)
    }

    /// Hosts that are known.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// This host has locked something in this run.
    pub(crate) fn is_known(&self, key: &Key) -> bool {
        self.hosts.find(key).is_some()
    }

    /// Locks that are waited for.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn now(&self) -> Millis {
        self.core.namespace.arbiter().now()
    }

    /// Nothing new may be taken yet.
    pub(crate) fn in_grace(&self) -> bool {
        self.clients.in_grace()
    }

    pub(crate) fn grace_is_stuck(&self) -> bool {
        self.clients.grace_is_stuck()
    }

    /// This host takes something back: it may if it held something before the restart.
    pub(crate) fn reclaims(&self, key: &Key) -> bool {
        self.clients.grace().reclaim(&reclaim_name(key), self.now())
    }

    /// Somebody at this address says that a host of this name has been restarted: what it held is released. `state` is the number
    /// of its status monitor; without one it is a FREE_ALL, which has none to compare.
    ///
    /// Only the host itself is believed: the notice comes from the address that the host locked from, and its number is later than
    /// that under which it locked, and than that of the last notice (X/Open XNFS section 11.2.7: the number changes with each
    /// start of the host). What it has taken since under the new number stays. Others are counted and ignored.
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

    /// A LOCK of this host says the number of its status monitor. A later one than before proves a restart as well as a notice.
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

    /// What a host waits for, and these reservations of it, are gone.
    fn forget_waiting(&self, host: &Host, shares: &[(NodeId, HolderId)]) {
        self.queue.forget(|blocked| blocked.host.key == host.key);
        self.forget_reservations(host, shares);
    }

    fn forget_reservations(&self, host: &Host, shares: &[(NodeId, HolderId)]) {
        shares.iter().for_each(|(node, holder)| {
            self.core.reservations.remove(host.key.ip, *node, *holder);
        });
    }

    /// A share is not served any more: locks and reservations in it end, and nobody waits for one there. `root` is the share's.
    /// How many there were. Who asks about them is told NLM4_STALE_FH.
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

    /// To be called about once a second: hosts that hold nothing any more need not be told of a restart.
    pub async fn tick(&self) {
        for host in self.hosts.take_idle(self.now(), |host| self.queue.has_host(&host.key)) {
            if host.monitored.load(Ordering::Acquire)
                && let Err(e) = self.monitors.strike(&host.key).await
            {
                tracing::error!(error = %e, "a host's record cannot be removed");
            }
        }
    }

    /// One call. `args` stands at the arguments; results are appended to `out`.
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
            // This server waits for nobody's locks.
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

/// How a host is known to the grace period, beside clients of NFSv4, whose names begin with 0 or 1.
fn reclaim_name(key: &Key) -> Box<[u8]> {
    const FAMILY: u8 = 2;
    let mut name = vec![FAMILY];
    name.extend_from_slice(&key.name);
    name.into()
}
