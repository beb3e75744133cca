//! Helpers for the tests of this folder.

use super::operations::OperationStatus;
use super::process::ProcessStatus;
use super::protocol::Protocol;
use super::reloads::ReloadStatus;
use super::snapshot::{
    AnnouncedStatus, AuditStatus, CompressionStatus, ConnectionStatus, DirectoryStatus,
    DomainStatus, HeapStatus, LossStatus, Moved, Nfs4Status, PoolStatus, RateStatus, RefusedStatus,
    ServiceStatus, SmbStatus, Snapshot, StateStatus, StoreStatus, SyncStatus,
};
use super::usage::{LinkStatus, Referrals, ShareStatus, Space, UserStatus, WastebasketStatus};
use super::why::WhyNot;

/// Checks that a file of the repository holds this text; writes it first if `HEADGATE_WRITE_DOCS` is set.
pub(crate) fn in_step(path: &str, expected: &str) {
    let full = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("HEADGATE_WRITE_DOCS").is_some() {
        std::fs::write(&full, expected).unwrap();
    }
    let there = std::fs::read_to_string(&full).unwrap_or_default();
    assert!(
        there == expected,
        "{path} is not in step: run `HEADGATE_WRITE_DOCS=1 cargo test -p gateway` and look at the difference"
    );
}

/// Returns an SMB connection over TCP with these counters.
pub(crate) fn connection(moved: Moved) -> ConnectionStatus {
    ConnectionStatus {
        id: 1,
        peer: "192.0.2.7:700".into(),
        local: "192.0.2.1:445".into(),
        protocol: Protocol::Smb,
        transport: "tcp".into(),
        age_seconds: 61,
        protection: "sign".into(),
        placed: moved.rdma_write + moved.rdma_read > 0,
        why_not: Some(WhyNot { reason: "not-asked".into(), text: "it signs".into() }),
        credits_waiting: 0,
        moved,
        facts: vec![("dialect".into(), "3.1.1".into())],
    }
}

/// Returns the refusals of a client with wrong passwords.
pub(crate) fn refused() -> RefusedStatus {
    RefusedStatus {
        client: "192.0.2.8".into(),
        user: "ann".into(),
        share: "".into(),
        rule: "logon".into(),
        remedy: "give the client the password of the user".into(),
        count: 12,
        last: 1_700_000_000,
        age_seconds: 61,
    }
}

fn audit_trail() -> AuditStatus {
    let to = "/var/log/headgate/audit.jsonl".into();
    AuditStatus { to, required: false, written: 70, lost: 2, waiting: 1, broken: None }
}

fn domain() -> DomainStatus {
    DomainStatus {
        by: "winbind".into(),
        answers: true,
        why_not: None,
        machine: Some("GW".into()),
        domain: Some("LAB".into()),
        dns_domain: Some("lab.test".into()),
    }
}

fn directory() -> DirectoryStatus {
    DirectoryStatus {
        directory: "ldaps://ldap.example.org:636 below dc=example,dc=org".into(),
        answers: true,
        why_not: None,
        users: 12,
        found: 40,
        unknown: 5,
        unanswered: 3,
    }
}

fn service() -> ServiceStatus {
    ServiceStatus {
        name: "headgate/files".into(),
        node: "gw1".into(),
        epoch: 7,
        lease_left_ms: 3100,
    }
}

fn shares() -> Vec<ShareStatus> {
    vec![
        ShareStatus {
            name: "data".into(),
            protocols: "both".into(),
            space: Some(Space { free_bytes: 3 << 30, total_bytes: 4 << 30 }),
            ended: Some("its cluster has cut this gateway off".into()),
            trees: 2,
            links: vec![LinkStatus {
                at: "projects/old".into(),
                to: vec!["gw2.example.org:/archive".into()],
            }],
            referred: Referrals { smb: 3, nfs: 4 },
            wastebasket: Some(WastebasketStatus { files: 5, bytes: 6 << 20 }),
            ..ShareStatus::default()
        },
        ShareStatus {
            name: "archive".into(),
            protocols: "both".into(),
            servers: vec!["gw2.example.org:/archive".into()],
            ..ShareStatus::default()
        },
    ]
}

fn process() -> ProcessStatus {
    ProcessStatus {
        cpu_milliseconds: Some(1250),
        resident_bytes: Some(5 << 20),
        virtual_bytes: Some(9 << 20),
        open_fds: Some(33),
        counted_fds: Some(20),
        max_fds: Some(1024),
        threads: Some(7),
        start_seconds: Some(1_700_000_000),
    }
}

fn announced() -> AnnouncedStatus {
    AnnouncedStatus {
        link: "eth0".into(),
        name: Some("gw.local".into()),
        addresses: vec!["192.0.2.1".into()],
        by: vec!["mdns".into()],
        troubles: vec!["llmnr is left to another program".into()],
    }
}

fn rate() -> RateStatus {
    RateStatus {
        scope: "share".into(),
        name: "data".into(),
        measure: "read".into(),
        rate: 8 << 20,
        burst_ms: 1000,
        passed: 40960,
        waited: 4,
        waited_ms: 1200,
        waiting: 3,
    }
}

/// Returns a snapshot with one item in each list.
pub(crate) fn snapshot() -> Snapshot {
    let moved = Moved { requests: 7, rdma_write: 4 << 20, ..Moved::default() };
    Snapshot {
        version: "1.2.3".into(),
        ready: true,
        store: None,
        audit: Some(audit_trail()),
        domain: Some(domain()),
        directory: Some(directory()),
        service: Some(service()),
        tls_certificate_ends: Some(1_800_000_000),
        uptime_seconds: 7300,
        shares: shares(),
        users: vec![UserStatus {
            name: "ann".into(),
            sessions: 1,
            clients: vec!["192.0.2.7".into()],
            shares: vec!["data".into()],
            ..UserStatus::default()
        }],
        connections: vec![connection(moved)],
        connections_max: 2048,
        connections_refused: 2,
        refused: vec![refused()],
        refusals: [("logon".to_owned(), 12)].into(),
        losses: vec![LossStatus {
            share: "data".into(),
            count: 3,
            file: Some("/srv/data/f".into()),
        }],
        syncs: SyncStatus { syncs: 8, waited: 20, failed: 1, queued: 0 },
        opened: [("smb/tcp".to_owned(), 3)].into(),
        moved: [("smb/tcp".to_owned(), moved)].into(),
        operations: vec![OperationStatus {
            share: "data".into(),
            protocol: Protocol::Smb,
            transport: "tcp".into(),
            operation: "READ".into(),
            count: 10,
            errors: 1,
            bytes: 40960,
            nanoseconds: 3_600_000,
            // Nine operations took about 50 microseconds, one about 3 milliseconds.
            buckets: vec![(26, 9), (50, 1)],
        }],
        rates: vec![rate()],
        state: StateStatus { nodes: 5, ..StateStatus::default() },
        nfs4: Nfs4Status { clients: 3, lapsed: 1, lapsed_states: 7, ..Nfs4Status::default() },
        smb: SmbStatus {
            sessions: 2,
            logons: 5,
            guest_logons: 1,
            refused_logons: 12,
            opens: 6,
            waiting: 1,
            compression: CompressionStatus {
                out_plain: 300,
                out_compressed: 100,
                in_plain: 90,
                in_compressed: 40,
            },
        },
        process: process(),
        reloads: ReloadStatus { done: 2, refused: 1, last_refused: true, last_done: 1_700_000_100 },
        callbacks: [("CB_RECALL/answered".to_owned(), 2)].into(),
        nlm: [("granted".to_owned(), 4)].into(),
        pool: vec![PoolStatus { buffer_bytes: 4096, used: 1, max: 10, waiting: 0 }],
        heap: HeapStatus { bytes: 5000, max: 1 << 20, waiting: 1 },
        announced: vec![announced()],
        discovery_packets: [("mdns/answered".to_owned(), 3)].into(),
        discovery_conflicts: 1,
        limits: [("opens-of-session".to_owned(), 3)].into(),
        violations: [("smb-signature".to_owned(), 1)].into(),
        wastebasket: [("kept".to_owned(), 7)].into(),
        rdma_failures: [("retries-exceeded".to_owned(), 2)].into(),
    }
}

/// Returns a snapshot of a daemon whose state folder is full.
pub(crate) fn full() -> Snapshot {
    let (folder, what) = ("/var/lib/headgate".to_owned(), "make space".to_owned());
    Snapshot { store: Some(StoreStatus { folder, free_bytes: Some(0), what }), ..snapshot() }
}
