//! The running daemon as the source of snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use iobuf::Pool;
use nfsrdma::v4::Callbacks;
use rdma_transport::ibverbs::failures;
use rdma_transport::meter::Meters;
use rdma_transport::{count, refused};
use recovery::{Store, StoreTrouble};
use vfs::engine::threads::Engine;
use vfs::namespace::Namespace;
use vfs::wastebasket::counters;

use super::process::ProcessStatus;
use super::snapshot::{
    AuditStatus, CompressionStatus, DirectoryStatus, DomainStatus, HeapStatus, LossStatus,
    Nfs4Status, PoolStatus, SmbStatus, Snapshot, Source, StateStatus, StoreStatus, SyncStatus,
};
use super::usage::{self, Spaces};
use super::{operations, reloads, rules};
use crate::admission::Admission;
use crate::attempts::Attempts;
use crate::cluster::member;
use crate::descriptors;
use crate::domain_service::{self, Seen};
use crate::ldap;
use crate::listeners::{Served, Service};
use crate::shutdown::Connections;
use crate::stuck::Stuck;
use crate::tls::Tls;

/// Sources of a snapshot.
pub struct Daemon {
    /// The open connections.
    pub connections: Arc<Connections>,
    /// Counts refused clients.
    pub admission: Arc<Admission>,
    /// Outcomes of clients that tried RDMA.
    pub attempts: Arc<Attempts>,
    /// The certificate of NFS over TLS.
    pub tls: Arc<Tls>,
    /// Counts operations.
    pub meters: Arc<Meters>,
    pub payload: Pool,
    /// The namespace, which knows the state that clients hold.
    pub namespace: Arc<Namespace>,
    /// The NFS server, which counts its callbacks and the locks of version 3.
    pub nfs: Arc<nfsrdma::server::Server>,
    /// The SMB server, which knows its sessions and opens.
    pub smb: smbd_core::server::Server,
    /// The store of state that must survive a restart, if such state exists.
    pub store: Option<Store>,
    /// Addresses on which each service listens.
    pub served: Arc<Served>,
    /// Free space of the shares' file systems.
    pub spaces: Arc<Spaces>,
    /// Shares whose storage does not answer.
    pub stuck: Arc<Stuck>,
    /// Announcements on the network.
    pub announced: Arc<discovery::board::Board>,
}

impl Daemon {
    fn state(&self) -> StateStatus {
        let arbiter = self.namespace.arbiter();
        let c = &arbiter.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StateStatus {
            nodes: arbiter.state().nodes() as u64,
            grants: arbiter.state().grants() as u64,
            locks: arbiter.state().locks() as u64,
            recalls: read(&c.recalls),
            revocations: read(&c.revocations),
            waits: read(&c.waits),
            delays: read(&c.delays),
            denials: read(&c.denials),
            forged_lists: vfs::local::refused_lists(),
        }
    }

    fn nfs4(&self) -> Nfs4Status {
        let clients = &self.nfs.v4().clients;
        let (census, c) = (clients.census(), &clients.counters);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Nfs4Status {
            clients: census.known as u64,
            lapsed: census.lapsed as u64,
            lapsed_states: census.lapsed_states as u64,
            unstruck: census.unstruck as u64,
            reply_bytes: census.reply_bytes as u64,
            sessions: census.sessions as u64,
            expired: read(&c.expired),
            evicted: read(&c.evicted),
            moved: read(&c.moved),
            unkept: read(&c.unkept),
        }
    }

    fn smb(&self) -> SmbStatus {
        let core = self.smb.core();
        let logons = &core.sessions.logons;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SmbStatus {
            sessions: core.sessions.count() as u64,
            logons: read(&logons.user),
            guest_logons: read(&logons.guest) + read(&logons.anonymous),
            refused_logons: read(&logons.refused),
            opens: core.opens.count() as u64,
            waiting: core.opens.count_of(0) as u64,
            compression: compression(),
        }
    }

    fn callbacks(&self) -> BTreeMap<String, u64> {
        let c = &self.nfs.v4().clients.counters;
        let sorts = [("CB_RECALL", &c.recall), ("CB_GETATTR", &c.getattr)];
        let of = |(sort, c): (&str, &Callbacks)| {
            [("answered", &c.answered), ("failed", &c.failed)]
                .map(|(end, n)| (format!("{sort}/{end}"), n.load(Ordering::Relaxed)))
        };
        sorts.into_iter().flat_map(of).collect()
    }

    fn nlm(&self) -> BTreeMap<String, u64> {
        let c = &self.nfs.nlm().counters;
        let counts = [
            ("granted", &c.granted),
            ("denied", &c.denied),
            ("blocked", &c.blocked),
            ("untold", &c.untold),
            ("grace", &c.grace),
            ("reclaimed", &c.reclaimed),
            ("limited", &c.limited),
            ("reboot", &c.reboots),
            ("notified", &c.notified),
            ("stranger", &c.strangers),
            ("ignored", &c.ignored),
        ];
        counts.map(|(event, n)| (event.to_owned(), n.load(Ordering::Relaxed))).into()
    }

    fn discovery_packets(&self) -> BTreeMap<String, u64> {
        let packets = self.announced.packets().into_iter();
        packets.map(|(protocol, outcome, n)| (format!("{protocol}/{outcome}"), n)).collect()
    }

    fn pool(&self) -> Vec<PoolStatus> {
        let class = |c: iobuf::ClassStats| PoolStatus {
            buffer_bytes: c.size as u64,
            used: c.in_use as u64,
            max: c.buffers_max as u64,
            waiting: c.waiting as u64,
        };
        self.payload.stats().into_iter().map(class).collect()
    }

    fn heap(&self) -> HeapStatus {
        let heap = self.payload.heap_stats();
        HeapStatus {
            bytes: heap.in_use as u64,
            max: heap.bytes_max as u64,
            waiting: heap.waiting as u64,
        }
    }
}

/// Counts syncs to stable storage.
fn syncs() -> SyncStatus {
    let (c, threads) = (vfs::durability::counters(), Engine::common().sync_stats());
    SyncStatus {
        syncs: c.syncs.load(Ordering::Relaxed),
        waited: c.waited.load(Ordering::Relaxed),
        failed: c.failed.load(Ordering::Relaxed),
        queued: threads.waiting as u64,
    }
}

/// Returns a time in seconds since 1970.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Daemon {
    fn store_trouble(&self) -> Option<StoreTrouble> {
        self.store.as_ref()?.health()
    }

    fn losses(&self) -> Vec<LossStatus> {
        let shares = self.namespace.shares();
        let of_share = |share: &Arc<vfs::namespace::Share>| {
            let lost = share.backend.losses();
            LossStatus {
                share: share.name.clone(),
                count: lost.count,
                file: lost.last.map(Into::into),
            }
        };
        shares.iter().map(of_share).filter(|lost| lost.count > 0).collect()
    }
}

impl Source for Daemon {
    fn snapshot(&self) -> Snapshot {
        let ports = |protocol| self.served.ports(Service::of(protocol, true));
        let (mut opened, mut moved) = (BTreeMap::new(), BTreeMap::new());
        for (way, number, bytes) in self.connections.totals() {
            opened.insert(way.clone(), number);
            moved.insert(way, bytes);
        }
        let sessions = self.smb.core().sessions.all(|_| true);
        let [of_address, of_all] = self.namespace.names().displaced();
        let of_files = [
            (rules::NAMES_OF_ADDRESS, of_address),
            (rules::NAMES, of_all),
            (rules::SILENT_STORAGE, vfs::engine::far::refused()),
            (rules::MEMORY_WAIT, vfs::engine::transfer::waited_in_vain()),
        ];
        let of_files = of_files.into_iter().filter(|(_, n)| *n > 0);
        // Both lists can contain the same limit, because READs and WRITEs meet some of them; add them up.
        let mut met = BTreeMap::new();
        for (limit, n) in count::limits_met().into_iter().chain(of_files) {
            *met.entry(limit.to_owned()).or_default() += n;
        }
        let broken = count::broken_rules().into_iter();
        let failed = failures::counts().into_iter();
        Snapshot {
            version: env!("CARGO_PKG_VERSION").into(),
            ready: self.connections.is_serving(),
            store: self.store_trouble().map(StoreStatus::from),
            audit: audit::status().map(AuditStatus::from),
            domain: domain_service::seen().map(DomainStatus::from),
            directory: ldap::seen().map(DirectoryStatus::from),
            service: member::standing(),
            tls_certificate_ends: self.tls.ends().map(seconds),
            uptime_seconds: self.connections.uptime_seconds(),
            shares: usage::shares(&self.namespace, (&self.spaces, &self.stuck), &sessions),
            users: usage::users(&sessions),
            process: ProcessStatus {
                counted_fds: Some(descriptors::counted(self.admission.connections())),
                ..ProcessStatus::own()
            },
            reloads: reloads::seen(),
            connections: self.connections.list(ports, &self.attempts),
            connections_max: self.admission.connections_max() as u64,
            connections_refused: self.admission.refusals(),
            refused: refused::list().into_iter().map(Into::into).collect(),
            refusals: refused::counts().into_iter().map(|(rule, n)| (rule.to_owned(), n)).collect(),
            opened,
            moved,
            operations: operations::list(&self.meters),
            rates: self.namespace.limits.read().into_iter().map(Into::into).collect(),
            state: self.state(),
            nfs4: self.nfs4(),
            smb: self.smb(),
            callbacks: self.callbacks(),
            nlm: self.nlm(),
            pool: self.pool(),
            heap: self.heap(),
            losses: self.losses(),
            syncs: syncs(),
            announced: self.announced.links().into_iter().map(Into::into).collect(),
            discovery_packets: self.discovery_packets(),
            discovery_conflicts: self.announced.conflicts(),
            limits: met,
            violations: broken.map(|(rule, n)| (rule.to_owned(), n)).collect(),
            wastebasket: counters()
                .named()
                .into_iter()
                .map(|(name, n)| (name.to_owned(), n))
                .collect(),
            rdma_failures: failed.map(|(status, n)| (status.to_owned(), n)).collect(),
        }
    }

    fn unready(&self) -> Option<String> {
        if !self.connections.is_serving() {
            return Some("stopping".into());
        }
        self.store_trouble().map(|trouble| trouble.to_string()).or_else(|| {
            let trail = audit::status().filter(|trail| trail.required)?;
            let (sink, why) = (&trail.sink, trail.broken.as_ref()?);
            Some(format!(
                "the audit trail cannot be written to {sink}: {why}; what must be recorded is refused until it can"
            ))
        })
    }

    fn impaired(&self) -> Option<String> {
        let domain = domain_service::seen().and_then(|seen| {
            let what = domain_service::what_fails(seen.checks_passwords);
            Some(format!("{what}: {}", seen.away?))
        });
        let directory = ldap::seen().and_then(|seen| seen.away).map(|why| {
            format!(
                "new users of the LDAP directory cannot log on, and earlier answers decide: {why}"
            )
        });
        let all: Vec<String> = [domain, directory].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl From<ldap::Seen> for DirectoryStatus {
    fn from(seen: ldap::Seen) -> Self {
        let ldap::Seen { directory, away, users, found, unknown, unanswered } = seen;
        let answers = away.is_none();
        Self { directory, answers, why_not: away, users, found, unknown, unanswered }
    }
}

impl From<Seen> for DomainStatus {
    fn from(seen: Seen) -> Self {
        let Seen { by, machine, away, .. } = seen;
        let names = machine.map(|of| (of.machine, of.domain, of.dns_domain));
        let (machine, domain, dns_domain) =
            names.map_or((None, None, None), |(m, d, dns)| (Some(m), Some(d), Some(dns)));
        Self { by: by.into(), answers: away.is_none(), why_not: away, machine, domain, dns_domain }
    }
}

impl From<audit::TrailStatus> for AuditStatus {
    fn from(trail: audit::TrailStatus) -> Self {
        let audit::TrailStatus { sink, written, lost, waiting, broken, required } = trail;
        Self { to: sink, required, written, lost, waiting: waiting as u64, broken }
    }
}

impl From<StoreTrouble> for StoreStatus {
    fn from(trouble: StoreTrouble) -> Self {
        let what = trouble.to_string();
        Self { folder: trouble.folder.display().to_string(), free_bytes: trouble.free, what }
    }
}

/// Counts bytes of compressed messages.
fn compression() -> CompressionStatus {
    let bytes = smbd_core::compression::bytes();
    CompressionStatus {
        out_plain: bytes.sent_plain,
        out_compressed: bytes.sent_compressed,
        in_plain: bytes.received_plain,
        in_compressed: bytes.received_compressed,
    }
}
