//! Snapshots in the text format of Prometheus (OpenMetrics 1.0). Names are a contract with dashboards and must not change.
//!
//! *Operation.* [`TABLE`] is the one list of metrics: the text, `docs/metrics.md` and the test of the Grafana dashboard are made
//! from it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rdma_transport::ibverbs::failures;
use rdma_transport::meter::Histogram;
use vfs::wastebasket::counters;

use super::operations::OperationStatus;
use super::protocol::Protocol;
use super::snapshot::{
    AuditStatus, ConnectionStatus, DirectoryStatus, Moved, PoolStatus, RateStatus, ServiceStatus,
    Snapshot,
};
use super::usage::{ShareStatus, Space, WastebasketStatus};
use super::why::Reason;
use super::{limits, rules};

pub(crate) mod text_format;

/// Prefix of every name.
pub const PREFIX: &str = "headgate";

/// Upper bounds of the latency buckets in Prometheus, as powers of two microseconds: 32 us to 4 s.
pub const LATENCY_OCTAVES: [usize; 12] = [5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 22];

pub struct Metric {
    /// Name of the metric, without [`PREFIX`] and without the suffix of its kind.
    pub name: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// The help text.
    pub help: &'static str,
    values: Values,
}

/// Values of the labels, in the order of their names, with the metric's value.
type Many = Vec<(Vec<String>, u64)>;

/// Latencies, with the values of the labels.
type Latencies = Vec<(Vec<String>, Histogram)>;

enum Values {
    Gauge(fn(&Snapshot) -> Many),
    Counter(fn(&Snapshot) -> Many),
    /// Milliseconds; the metric is in seconds.
    Milliseconds(fn(&Snapshot) -> Option<u64>),
    /// As [`Self::Milliseconds`], with labels.
    ManyMilliseconds(fn(&Snapshot) -> Many),
    Latency(fn(&Snapshot) -> Latencies),
}

impl Metric {
    /// Returns the kind in the format's terms.
    pub fn kind(&self) -> &'static str {
        match self.values {
            Values::Gauge(_) => "gauge",
            Values::Counter(_) | Values::Milliseconds(_) | Values::ManyMilliseconds(_) => "counter",
            Values::Latency(_) => "histogram",
        }
    }

    /// Returns the names of the series, as queries use them.
    pub fn series(&self) -> Vec<String> {
        let of_process = PROCESS.iter().any(|m| m.name == self.name);
        let name = format!("{}_{}", if of_process { PROCESS_PREFIX } else { PREFIX }, self.name);
        match self.values {
            Values::Gauge(_) => vec![name],
            Values::Counter(_) | Values::Milliseconds(_) | Values::ManyMilliseconds(_) => {
                vec![format!("{name}_total")]
            }
            Values::Latency(_) => ["bucket", "count", "sum"].map(|s| format!("{name}_{s}")).into(),
        }
    }
}

const WAY: &[&str] = &["protocol", "transport"];
const OPERATION: &[&str] = &["protocol", "transport", "operation"];
const OF_SHARE: &[&str] = &["share", "operation"];
const RATE: &[&str] = &["scope", "name", "measure"];

/// NFS operations with their own latency series; the others share the series [`OTHER`]. This bounds the series, however many kinds
/// of operations clients send, at [`LATENCY_OCTAVES`] buckets for each of these.
const MEASURED: [&str; 15] = [
    "READ",
    "WRITE",
    "COMMIT",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "OPEN",
    "CLOSE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "READDIR",
    "READDIRPLUS",
    "LOCK",
];
const OTHER: &str = "other";

/// Every metric.
pub static TABLE: &[Metric] = &[
    Metric {
        name: "build_info",
        labels: &["version"],
        help: "Always 1; the version that runs",
        values: Values::Gauge(|s| vec![(vec![s.version.clone()], 1)]),
    },
    Metric {
        name: "ready",
        labels: &[],
        help: "1 while `/readyz` says so: the gateway takes connections, and can write its state folder",
        values: Values::Gauge(|s| one((s.ready && s.store.is_none()).into())),
    },
    Metric {
        name: "state_folder_writable",
        labels: &[],
        help: "0 while what must survive a restart cannot be written to the state folder; `headgate status` says why",
        values: Values::Gauge(|s| one(s.store.is_none().into())),
    },
    Metric {
        name: "audit_records",
        labels: &["outcome"],
        help: "Records of the audit trail: `written`, or `lost` because they found no room while it could not be written; absent \
               without a trail",
        values: Values::Counter(|s| {
            let of = |trail: &AuditStatus| [("written", trail.written), ("lost", trail.lost)];
            let all = s.audit.iter().flat_map(of);
            all.map(|(outcome, n)| (vec![outcome.to_owned()], n)).collect()
        }),
    },
    Metric {
        name: "audit_writable",
        labels: &[],
        help: "0 while the audit trail cannot be written; `headgate status` says why; absent without a trail",
        values: Values::Gauge(|s| {
            s.audit.iter().map(|trail| (Vec::new(), trail.broken.is_none().into())).collect()
        }),
    },
    Metric {
        name: "directory_answers",
        labels: &[],
        help: "0 while no server of the LDAP directory with users answers; `headgate status` says why; absent without a directory",
        values: Values::Gauge(|s| {
            s.directory.iter().map(|it| (Vec::new(), it.answers.into())).collect()
        }),
    },
    Metric {
        name: "directory_look_ups",
        labels: &["outcome"],
        help: "Questions of logons to the LDAP directory: `found`, `unknown` if the name is no user, or `unanswered`, where \
               earlier answers decide",
        values: Values::Counter(|s| {
            let of = |it: &DirectoryStatus| {
                [("found", it.found), ("unknown", it.unknown), ("unanswered", it.unanswered)]
            };
            let all = s.directory.iter().flat_map(of);
            all.map(|(outcome, n)| (vec![outcome.to_owned()], n)).collect()
        }),
    },
    Metric {
        name: "domain_answers",
        labels: &["by"],
        help: "0 while winbind or SSSD does not answer; `headgate status` says why; absent without one of them",
        values: Values::Gauge(|s| {
            s.domain.iter().map(|of| (vec![of.by.clone()], of.answers.into())).collect()
        }),
    },
    Metric {
        name: "service_epoch",
        labels: &["service", "node"],
        help: "The epoch of the service of a cluster that this gateway serves; absent without a cluster",
        values: Values::Gauge(|s| {
            let of = |it: &ServiceStatus| (vec![it.name.clone(), it.node.clone()], it.epoch);
            s.service.iter().map(of).collect()
        }),
    },
    Metric {
        name: "uptime_seconds",
        labels: &[],
        help: "Seconds since the start",
        values: Values::Gauge(|s| one(s.uptime_seconds)),
    },
    Metric {
        name: "connections_open",
        labels: WAY,
        help: "Connections now",
        values: Values::Gauge(|s| by_way(s, |_| 1)),
    },
    Metric {
        name: "connections_max",
        labels: &[],
        help: "Connections that are admitted: `connections`, or fewer where the process may open few files",
        values: Values::Gauge(|s| one(s.connections_max)),
    },
    Metric {
        name: "connections_without_rdma",
        labels: &["protocol", "reason"],
        help: "Connections now that are not on RDMA or gave up direct placement there, by the reason; \
               docs/why-not-rdma.md lists the reasons",
        values: Values::Gauge(without_rdma),
    },
    Metric {
        name: "connections_opened",
        labels: WAY,
        help: "Connections so far",
        values: Values::Counter(|s| keyed(s.opened.iter().map(|(way, n)| (way, *n)))),
    },
    Metric {
        name: "connections_refused",
        labels: &[],
        help: "Connections refused by a limit",
        values: Values::Counter(|s| one(s.connections_refused)),
    },
    Metric {
        name: "share_free_bytes",
        labels: &["share"],
        help: "Bytes free for ordinary users on the share's file system, as of some seconds ago",
        values: Values::Gauge(|s| spaces(s, |space| space.free_bytes)),
    },
    Metric {
        name: "share_size_bytes",
        labels: &["share"],
        help: "Bytes of the share's file system in all",
        values: Values::Gauge(|s| spaces(s, |space| space.total_bytes)),
    },
    Metric {
        name: "share_operations_stuck",
        labels: &["share"],
        help: "Operations that the share's storage has not answered for some seconds",
        values: Values::Gauge(|s| keyed(s.shares.iter().map(|share| (&share.name, share.waiting)))),
    },
    Metric {
        name: "share_ended",
        labels: &["share"],
        help: "1 while operations on the share fail because its cluster has cut the gateway off; a reload opens the share again",
        values: Values::Gauge(|s| {
            keyed(s.shares.iter().map(|share| (&share.name, u64::from(share.ended.is_some()))))
        }),
    },
    Metric {
        name: "share_wastebasket_files",
        labels: &["share"],
        help: "Files in the share's wastebasket, as of the last look at it",
        values: Values::Gauge(|s| baskets(s, |basket| basket.files)),
    },
    Metric {
        name: "share_wastebasket_bytes",
        labels: &["share"],
        help: "Storage of the files in the share's wastebasket, as of the last look at it",
        values: Values::Gauge(|s| baskets(s, |basket| basket.bytes)),
    },
    Metric {
        name: "share_links",
        labels: &["share"],
        help: "Folders of the share that the configuration says are on other servers",
        values: Values::Gauge(|s| {
            let linked = s.shares.iter().filter(|share| !share.links.is_empty());
            keyed(linked.map(|share| (&share.name, share.links.len() as u64)))
        }),
    },
    Metric {
        name: "share_referrals",
        labels: &["share", "protocol"],
        help: "Referrals that clients got for folders of the share that are on other servers",
        values: Values::Counter(|s| {
            let linked = s.shares.iter().filter(|share| share.msdfs || !share.links.is_empty());
            let of = |share: &ShareStatus| {
                let n = |protocol: &str, n| (vec![share.name.clone(), protocol.into()], n);
                [n("smb", share.referred.smb), n("nfs", share.referred.nfs)]
            };
            linked.flat_map(of).collect()
        }),
    },
    Metric {
        name: "smb_tree_connects",
        labels: &["share"],
        help: "SMB tree connects",
        values: Values::Gauge(|s| keyed(s.shares.iter().map(|share| (&share.name, share.trees)))),
    },
    Metric {
        name: "storage_losses",
        labels: &["share"],
        help: "Failures of storage to keep data or a change that it had accepted; clients must send uncommitted data again",
        values: Values::Counter(|s| keyed(s.losses.iter().map(|l| (&l.share, l.count)))),
    },
    Metric {
        name: "syncs",
        labels: &[],
        help: "Syncs of files, folders and volumes",
        values: Values::Counter(|s| one(s.syncs.syncs)),
    },
    Metric {
        name: "sync_waits",
        labels: &[],
        help: "Requests that waited for a sync; several may share one",
        values: Values::Counter(|s| one(s.syncs.waited)),
    },
    Metric {
        name: "syncs_failed",
        labels: &[],
        help: "Syncs that failed",
        values: Values::Counter(|s| one(s.syncs.failed)),
    },
    Metric {
        name: "syncs_queued",
        labels: &[],
        help: "Syncs that wait for a thread",
        values: Values::Gauge(|s| one(s.syncs.queued)),
    },
    Metric {
        name: "requests",
        labels: WAY,
        help: "Requests received; one may hold several operations",
        values: Values::Counter(|s| moved(s, |m| m.requests)),
    },
    Metric {
        name: "transferred_bytes",
        labels: &["protocol", "transport", "path"],
        help: "Bytes moved, by way: rdma_write and inline_out to clients, rdma_read and inline_in from them",
        values: Values::Counter(paths),
    },
    Metric {
        name: "invalidations",
        labels: WAY,
        help: "Sends with Invalidate",
        values: Values::Counter(|s| moved(s, |m| m.invalidations)),
    },
    Metric {
        name: "credits_waiting",
        labels: WAY,
        help: "Messages that wait now because the client granted no credit for them (SMB Direct)",
        values: Values::Gauge(|s| by_way(s, |c| c.credits_waiting)),
    },
    Metric {
        name: "credit_waits",
        labels: WAY,
        help: "How often a connection began to wait for a credit of its client (SMB Direct)",
        values: Values::Counter(|s| moved(s, |m| m.credit_waits)),
    },
    Metric {
        name: "operation_seconds",
        labels: OPERATION,
        help: "How long operations took from their arrival to their answer, waits for other clients included; its `_count` is \
               how many there were. Rare operations of NFS are counted as `other`",
        values: Values::Latency(|s| latencies(s, by_operation)),
    },
    Metric {
        name: "share_operation_seconds",
        labels: OF_SHARE,
        help: "The same of each share: `read`, `write` and `other`",
        values: Values::Latency(|s| latencies(s, by_share)),
    },
    Metric {
        name: "share_operation_errors",
        labels: OF_SHARE,
        help: "Of these, answered with an error",
        values: Values::Counter(|s| summed(s, by_share, |o| o.errors)),
    },
    Metric {
        name: "share_operation_bytes",
        labels: OF_SHARE,
        help: "Bytes of file data that they read or wrote",
        values: Values::Counter(|s| summed(s, by_share, |o| o.bytes)),
    },
    Metric {
        name: "operations",
        labels: OPERATION,
        help: "Operations that were answered, each by its own name",
        values: Values::Counter(|s| summed(s, by_name, |o| o.count)),
    },
    Metric {
        name: "operation_errors",
        labels: OPERATION,
        help: "Operations that were answered with an error, look-ups of missing files included",
        values: Values::Counter(|s| summed(s, by_name, |o| o.errors)),
    },
    Metric {
        name: "operation_bytes",
        labels: OPERATION,
        help: "Bytes of file data that operations read or wrote",
        values: Values::Counter(|s| summed(s, by_name, |o| o.bytes)),
    },
    Metric {
        name: "held_files",
        labels: &[],
        help: "Files that a client holds open, locked or cached",
        values: Values::Gauge(|s| one(s.state.nodes)),
    },
    Metric {
        name: "cached_files",
        labels: &[],
        help: "Files that a client may cache",
        values: Values::Gauge(|s| one(s.state.grants)),
    },
    Metric {
        name: "locks",
        labels: &[],
        help: "Byte ranges that clients have locked",
        values: Values::Gauge(|s| one(s.state.locks)),
    },
    Metric {
        name: "conflicts",
        labels: &["outcome"],
        help: "Effects of conflicts between clients: a recall of caching rights, a revocation after its time, a \
            wait, a delay (the client must retry), a denial, a forged access control list",
        values: Values::Counter(conflicts),
    },
    Metric {
        name: "nfs4_clients",
        labels: &["standing"],
        help: "Clients of NFSv4: known, and of those lapsed (silent for longer than their lease, they keep what they hold as a \
               courtesy) and unstruck (expired, but their record could not be removed from the state folder yet)",
        values: Values::Gauge(|s| {
            let n = [
                ("known", s.nfs4.clients),
                ("lapsed", s.nfs4.lapsed),
                ("unstruck", s.nfs4.unstruck),
            ];
            n.map(|(standing, n)| (vec![standing.to_owned()], n)).into()
        }),
    },
    Metric {
        name: "nfs4_clients_ended",
        labels: &["why"],
        help: "Clients of NFSv4 whose state was released: silent ones (expired), of those some early, to make room or because \
               of what they kept from others (evicted), and active ones that restarted from another address (moved)",
        values: Values::Counter(|s| {
            let n =
                [("expired", s.nfs4.expired), ("evicted", s.nfs4.evicted), ("moved", s.nfs4.moved)];
            n.map(|(why, n)| (vec![why.to_owned()], n)).into()
        }),
    },
    Metric {
        name: "nfs4_lapsed_states",
        labels: &[],
        help: "Opens, locks and delegations that lapsed clients of NFSv4 hold as a courtesy",
        values: Values::Gauge(|s| one(s.nfs4.lapsed_states)),
    },
    Metric {
        name: "nfs4_sessions",
        labels: &[],
        help: "Sessions of NFSv4.1 and 4.2",
        values: Values::Gauge(|s| one(s.nfs4.sessions)),
    },
    Metric {
        name: "nfs4_reply_bytes",
        labels: &[],
        help: "Memory set aside for the replies that sessions of NFSv4 keep, of an eighth of `memory`",
        values: Values::Gauge(|s| one(s.nfs4.reply_bytes)),
    },
    Metric {
        name: "tls_certificate_expiry_seconds",
        labels: &[],
        help: "When the certificate of NFS over TLS expires, in seconds since 1970; absent without one",
        values: Values::Gauge(|s| {
            s.tls_certificate_ends.into_iter().map(|n| (Vec::new(), n)).collect()
        }),
    },
    Metric {
        name: "smb_sessions",
        labels: &[],
        help: "Sessions of SMB, those included whose logon is not finished",
        values: Values::Gauge(|s| one(s.smb.sessions)),
    },
    Metric {
        name: "smb_compression_bytes",
        labels: &["direction", "form"],
        help: "Bytes of SMB messages that were compressed, by `direction` (`in`, `out`): `plain` counts them as they were before \
               or after, `compressed` as they were sent",
        values: Values::Counter(|s| {
            let c = s.smb.compression;
            let n = |direction: &str, form: &str, n| (vec![direction.into(), form.into()], n);
            vec![
                n("in", "compressed", c.in_compressed),
                n("in", "plain", c.in_plain),
                n("out", "compressed", c.out_compressed),
                n("out", "plain", c.out_plain),
            ]
        }),
    },
    Metric {
        name: "smb_logons",
        labels: &["outcome"],
        help: "SMB logons: of a user, of a guest or without a name, and refused; a connection that joins a session logs on, too",
        values: Values::Counter(|s| {
            let (smb, n) = (&s.smb, |outcome: &str, n| (vec![outcome.to_owned()], n));
            vec![
                n("user", smb.logons),
                n("guest", smb.guest_logons),
                n("refused", smb.refused_logons),
            ]
        }),
    },
    Metric {
        name: "reloads",
        labels: &["outcome"],
        help: "Reloads of the configuration: done, or refused, which changes nothing",
        values: Values::Counter(|s| {
            let n = [("done", s.reloads.done), ("refused", s.reloads.refused)];
            n.map(|(outcome, n)| (vec![outcome.to_owned()], n)).into()
        }),
    },
    Metric {
        name: "reload_refused",
        labels: &[],
        help: "1 when the last reload was refused: the file differs from the configuration in force",
        values: Values::Gauge(|s| one(s.reloads.last_refused.into())),
    },
    Metric {
        name: "smb_opens",
        labels: &["standing"],
        help: "Opens of SMB clients: held, and of those waiting (durable, of a client that has lost its connection)",
        values: Values::Gauge(|s| {
            let n = [("held", s.smb.opens), ("waiting", s.smb.waiting)];
            n.map(|(standing, n)| (vec![standing.to_owned()], n)).into()
        }),
    },
    Metric {
        name: "nfs4_unkept",
        labels: &[],
        help: "Requests of NFSv4 refused because what must survive a restart could not be written to the state folder",
        values: Values::Counter(|s| one(s.nfs4.unkept)),
    },
    Metric {
        name: "callbacks",
        labels: &["operation", "outcome"],
        help: "Calls of NFSv4 clients over their backchannel: CB_RECALL asks for a delegation, CB_GETATTR for size and times of a \
               file that its client writes by one; answered, or failed (no way to the client, or a refusal)",
        values: Values::Counter(|s| keyed(s.callbacks.iter().map(|(key, n)| (key, *n)))),
    },
    Metric {
        name: "nlm",
        labels: &["event"],
        help: "Locks of NFSv3: granted, denied, blocked (began to wait), untold (granted after a wait, but the client could \
               not be notified), refused in the grace period, reclaimed, limited; and restarts: reboot (a client restarted), \
               notified (a client was notified of ours), stranger (a notification from an address that no share admits), \
               ignored (a notification that releases nothing: from another address than its client locked from, or repeated)",
        values: Values::Counter(|s| {
            s.nlm.iter().map(|(event, n)| (vec![event.clone()], *n)).collect()
        }),
    },
    Metric {
        name: "pool_buffers_used",
        labels: &["bytes"],
        help: "Buffers of this size in use",
        values: Values::Gauge(|s| pool(s, |c| c.used)),
    },
    Metric {
        name: "pool_buffers_max",
        labels: &["bytes"],
        help: "Buffers of this size that may exist",
        values: Values::Gauge(|s| pool(s, |c| c.max)),
    },
    Metric {
        name: "pool_waiting",
        labels: &["bytes"],
        help: "Requests that wait for a buffer of this size",
        values: Values::Gauge(|s| pool(s, |c| c.waiting)),
    },
    Metric {
        name: "limits_met",
        labels: &["limit"],
        help: "How often clients reached a limit; docs/limits.md lists them",
        values: Values::Counter(|s| from_zero(limits::names(), &s.limits)),
    },
    Metric {
        name: "refusals",
        labels: &["rule"],
        help: "How often clients were refused a logon, a share or a call by a rule of the configuration; the rules are below. \
               Refusals by a limit are in `headgate_limits_met_total`",
        values: Values::Counter(|s| from_zero(rules::refusals(), &s.refusals)),
    },
    Metric {
        name: "announced_links",
        labels: &[],
        help: "Links on which the gateway is announced under a name that it owns there",
        values: Values::Gauge(|s| {
            one(s.announced.iter().filter(|link| link.name.is_some()).count() as u64)
        }),
    },
    Metric {
        name: "discovery_packets",
        labels: &["protocol", "outcome"],
        help: "Packets by which hosts look for others: `answered`, `ignored` because they did not concern this gateway, `far` from \
               outside of the link's networks, `bad` because they were no message, `limited` because there were too many",
        values: Values::Counter(|s| keyed(s.discovery_packets.iter().map(|(of, n)| (of, *n)))),
    },
    Metric {
        name: "discovery_conflicts",
        labels: &[],
        help: "How often another host of a link had the gateway's name",
        values: Values::Counter(|s| one(s.discovery_conflicts)),
    },
    Metric {
        name: "rate",
        labels: RATE,
        help: "What may pass in each second, for each rate of `limits`: bytes (`read`, `write`) or operations",
        values: Values::Gauge(|s| rates(s, |r| r.rate)),
    },
    Metric {
        name: "rate_passed",
        labels: RATE,
        help: "What passed under the rate: bytes or operations; of scope `client`, of all clients together",
        values: Values::Counter(|s| rates(s, |r| r.passed)),
    },
    Metric {
        name: "rate_waits",
        labels: RATE,
        help: "Requests that had to wait for the rate and passed",
        values: Values::Counter(|s| rates(s, |r| r.waited)),
    },
    Metric {
        name: "rate_waited_seconds",
        labels: RATE,
        help: "The time that these requests waited",
        values: Values::ManyMilliseconds(|s| rates(s, |r| r.waited_ms)),
    },
    Metric {
        name: "rate_waiting",
        labels: RATE,
        help: "Requests that wait for the rate now",
        values: Values::Gauge(|s| rates(s, |r| r.waiting)),
    },
    Metric {
        name: "violations",
        labels: &["rule"],
        help: "How often clients broke a rule of their protocol; the rules are below",
        values: Values::Counter(|s| {
            from_zero(rules::families().into_iter().flat_map(|f| f.names), &s.violations)
        }),
    },
    Metric {
        name: "wastebasket_files",
        labels: &["outcome"],
        help: "Files that clients removed from shares with a wastebasket: kept; of these restored, expired or displaced (too \
               many); not kept, because they are on an other_file_system, or there was no_space, or it is not_supported",
        values: Values::Counter(|s| {
            from_zero(counters().named().into_iter().map(|(name, _)| name), &s.wastebasket)
        }),
    },
    Metric {
        name: "rdma_failures",
        labels: &["status"],
        help: "Work requests that an RDMA device completed with an error, which ends their connection; the log has the vendor's \
               code, and the statuses are below",
        values: Values::Counter(|s| from_zero(failures::names(), &s.rdma_failures)),
    },
];

/// Prefix of the names in [`PROCESS`].
pub const PROCESS_PREFIX: &str = "process";

/// Resource use of this process, under the names that all Prometheus clients use.
pub static PROCESS: &[Metric] = &[
    Metric {
        name: "cpu_seconds",
        labels: &[],
        help: "Seconds of processor time, user's and system's",
        values: Values::Milliseconds(|s| s.process.cpu_milliseconds),
    },
    Metric {
        name: "resident_memory_bytes",
        labels: &[],
        help: "Bytes of memory that are resident",
        values: Values::Gauge(|s| some(s.process.resident_bytes)),
    },
    Metric {
        name: "virtual_memory_bytes",
        labels: &[],
        help: "Bytes of address space",
        values: Values::Gauge(|s| some(s.process.virtual_bytes)),
    },
    Metric {
        name: "open_fds",
        labels: &[],
        help: "Descriptors that are open",
        values: Values::Gauge(|s| some(s.process.open_fds)),
    },
    Metric {
        name: "max_fds",
        labels: &[],
        help: "Descriptors that may be open",
        values: Values::Gauge(|s| some(s.process.max_fds)),
    },
    Metric {
        name: "threads",
        labels: &[],
        help: "Threads",
        values: Values::Gauge(|s| some(s.process.threads)),
    },
    Metric {
        name: "start_time_seconds",
        labels: &[],
        help: "When the process began, in seconds since 1970-01-01 00:00 UTC",
        values: Values::Gauge(|s| some(s.process.start_seconds)),
    },
];

fn rates(s: &Snapshot, of: fn(&RateStatus) -> u64) -> Many {
    let labels = |r: &RateStatus| vec![r.scope.clone(), r.name.clone(), r.measure.clone()];
    s.rates.iter().map(|r| (labels(r), of(r))).collect()
}

fn some(value: Option<u64>) -> Many {
    value.into_iter().map(|value| (Vec::new(), value)).collect()
}

fn one(value: u64) -> Many {
    vec![(Vec::new(), value)]
}

/// Returns a sum over connections for each protocol and transport that was ever used. Ways without a connection report 0 and do not
/// disappear, so that plots fall and alarms can compare.
fn by_way(s: &Snapshot, of: fn(&ConnectionStatus) -> u64) -> Many {
    let mut sums: BTreeMap<_, u64> = s.opened.keys().map(|key| (way(key), 0)).collect();
    for c in &s.connections {
        *sums.entry(vec![c.protocol.name().to_owned(), c.transport.clone()]).or_insert(0) += of(c);
    }
    sums.into_iter().collect()
}

/// Returns all counters, with 0 for the known ones that did not happen: `rate()` misses the first event of a counter that appears
/// with it.
fn from_zero(
    known: impl IntoIterator<Item = &'static str>,
    happened: &BTreeMap<String, u64>,
) -> Many {
    let mut all: BTreeMap<&str, u64> = known.into_iter().map(|name| (name, 0)).collect();
    all.extend(happened.iter().map(|(name, n)| (name.as_str(), *n)));
    all.into_iter().map(|(name, n)| (vec![name.to_owned()], n)).collect()
}

fn without_rdma(s: &Snapshot) -> Many {
    let protocols = s.opened.keys().map(|key| way(key).swap_remove(0));
    let mut sums: BTreeMap<_, u64> = protocols
        .flat_map(|p| Reason::ALL.map(|reason| (vec![p.clone(), reason.name().to_owned()], 0)))
        .collect();
    for c in &s.connections {
        if let Some(why) = &c.why_not {
            let labels = vec![c.protocol.name().to_owned(), why.reason.clone()];
            *sums.entry(labels).or_insert(0) += 1;
        }
    }
    sums.into_iter().collect()
}

/// Splits `nfs/tcp` into two labels.
fn way(key: &str) -> Vec<String> {
    let (protocol, transport) = key.split_once('/').unwrap_or((key, ""));
    vec![protocol.to_owned(), transport.to_owned()]
}

fn keyed<'a>(values: impl Iterator<Item = (&'a String, u64)>) -> Many {
    values.map(|(key, n)| (way(key), n)).collect()
}

fn moved(s: &Snapshot, of: fn(&Moved) -> u64) -> Many {
    keyed(s.moved.iter().map(|(key, m)| (key, of(m))))
}

fn paths(s: &Snapshot) -> Many {
    type Path = (&'static str, fn(&Moved) -> u64);
    let paths: [Path; 4] = [
        ("rdma_write", |m| m.rdma_write),
        ("rdma_read", |m| m.rdma_read),
        ("inline_in", |m| m.inline_in),
        ("inline_out", |m| m.inline_out),
    ];
    let of_way = |(key, m): (&String, &Moved)| {
        paths.map(|(path, of)| {
            let mut labels = way(key);
            labels.push(path.to_owned());
            (labels, of(m))
        })
    };
    s.moved.iter().flat_map(of_way).collect()
}

/// Returns the labels under which an operation is counted, if it is.
type Labels = fn(&OperationStatus) -> Option<Vec<String>>;

fn by_name(o: &OperationStatus) -> Option<Vec<String>> {
    Some(vec![o.protocol.name().to_owned(), o.transport.clone(), o.operation.clone()])
}

fn by_operation(o: &OperationStatus) -> Option<Vec<String>> {
    let is_rare = o.protocol == Protocol::Nfs && !MEASURED.contains(&o.operation.as_str());
    let operation = if is_rare { OTHER } else { &o.operation };
    Some(vec![o.protocol.name().to_owned(), o.transport.clone(), operation.to_owned()])
}

fn by_share(o: &OperationStatus) -> Option<Vec<String>> {
    let kind = match o.operation.as_str() {
        "READ" | "READ_PLUS" => "read",
        "WRITE" => "write",
        _ => OTHER,
    };
    (!o.share.is_empty()).then(|| vec![o.share.clone(), kind.to_owned()])
}

fn summed(s: &Snapshot, by: Labels, of: fn(&OperationStatus) -> u64) -> Many {
    let mut sums: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for o in &s.operations {
        if let Some(labels) = by(o) {
            *sums.entry(labels).or_default() += of(o);
        }
    }
    sums.into_iter().collect()
}

fn latencies(s: &Snapshot, by: Labels) -> Latencies {
    let mut sums: BTreeMap<Vec<String>, Histogram> = BTreeMap::new();
    for o in &s.operations {
        if let Some(labels) = by(o) {
            sums.entry(labels).or_default().add(&o.histogram());
        }
    }
    sums.into_iter().collect()
}

fn conflicts(s: &Snapshot) -> Many {
    let s = &s.state;
    let counts = [
        ("recall", s.recalls),
        ("revocation", s.revocations),
        ("wait", s.waits),
        ("delay", s.delays),
        ("denial", s.denials),
        ("forged_list", s.forged_lists),
    ];
    counts.into_iter().map(|(outcome, n)| (vec![outcome.to_owned()], n)).collect()
}

fn pool(s: &Snapshot, of: fn(&PoolStatus) -> u64) -> Many {
    s.pool.iter().map(|c| (vec![c.buffer_bytes.to_string()], of(c))).collect()
}

fn spaces(s: &Snapshot, of: fn(&Space) -> u64) -> Many {
    let known = s.shares.iter().filter_map(|share| Some((&share.name, of(share.space.as_ref()?))));
    keyed(known)
}

fn baskets(s: &Snapshot, of: fn(&WastebasketStatus) -> u64) -> Many {
    let with = |share: &'_ ShareStatus| Some(of(share.wastebasket.as_ref()?));
    keyed(s.shares.iter().filter_map(|share| Some((&share.name, with(share)?))))
}

/// Encodes a snapshot as text.
pub fn encode(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let (snapshot, mut out) = (Arc::new(snapshot), String::new());
    for (prefix, table) in [(PREFIX, TABLE), (PROCESS_PREFIX, PROCESS)] {
        let mut registry = Registry::with_prefix(prefix);
        registry.register_collector(Box::new(Scrape(snapshot.clone(), table)));
        text::encode_registry(&mut out, &registry)?;
    }
    text::encode_eof(&mut out)?;
    Ok(out)
}

struct Scrape(Arc<Snapshot>, &'static [Metric]);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrape({} metrics)", self.1.len())
    }
}

impl Collector for Scrape {
    fn encode(&self, mut e: DescriptorEncoder<'_>) -> fmt::Result {
        self.1.iter().try_for_each(|metric| encode_one(&mut e, metric, &self.0))
    }
}

fn encode_one(e: &mut DescriptorEncoder<'_>, metric: &Metric, s: &Snapshot) -> fmt::Result {
    let kind = match metric.values {
        Values::Gauge(_) => MetricType::Gauge,
        Values::Counter(_) | Values::Milliseconds(_) | Values::ManyMilliseconds(_) => {
            MetricType::Counter
        }
        Values::Latency(_) => MetricType::Histogram,
    };
    let mut out = e.encode_descriptor(metric.name, metric.help, None, kind)?;
    let write = |out: MetricEncoder<'_>, value: u64| match kind {
        MetricType::Counter => ConstCounter::new(value).encode(out),
        _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(out),
    };
    match metric.values {
        Values::Gauge(of) | Values::Counter(of) if metric.labels.is_empty() => {
            of(s).first().map_or(Ok(()), |(_, value)| write(out, *value))
        }
        Values::Gauge(of) | Values::Counter(of) => of(s).iter().try_for_each(|(labels, value)| {
            write(out.encode_family(&pairs(metric, labels).as_slice())?, *value)
        }),
        #[allow(clippy::cast_precision_loss)]
        // Exact for some hundred thousand years of processor time.
        Values::Milliseconds(of) => {
            of(s).map_or(Ok(()), |n| ConstCounter::new(n as f64 / 1000.0).encode(out))
        }
        #[allow(clippy::cast_precision_loss)] // As above.
        Values::ManyMilliseconds(of) => of(s).iter().try_for_each(|(labels, n)| {
            let seconds = ConstCounter::new(*n as f64 / 1000.0);
            seconds.encode(out.encode_family(&pairs(metric, labels).as_slice())?)
        }),
        Values::Latency(of) => of(s).iter().try_for_each(|(labels, took)| {
            histogram(&mut out.encode_family(&pairs(metric, labels).as_slice())?, took)
        }),
    }
}

/// Pairs label names with their values.
fn pairs<'a>(metric: &Metric, values: &'a [String]) -> Vec<(&'static str, &'a str)> {
    metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect()
}

fn histogram(e: &mut MetricEncoder<'_>, took: &Histogram) -> fmt::Result {
    let count = took.count();
    let mut buckets = Vec::with_capacity(LATENCY_OCTAVES.len() + 1);
    let mut before = 0;
    for octave in LATENCY_OCTAVES {
        let within = took.within_octave(octave);
        #[allow(clippy::cast_precision_loss)] // Powers of two up to 2^22.
        buckets.push(((1u64 << octave) as f64 / 1e6, within - before));
        before = within;
    }
    buckets.push((f64::INFINITY, count - before));
    e.encode_histogram::<[(&str, &str); 0]>(took.sum.as_secs_f64(), count, &buckets, None)
}

#[cfg(test)]
mod tests;
