//! Every limit of docs/limits.md: a client fills it here, or the reason why none can.

use std::collections::BTreeSet;

use tokio::time::timeout;

use super::fill::{FILLED, Other, fill, lower};
use super::{MEMORY, SOON, met, resident, served, world_with};

/// Why no client of this test fills a limit. The tests that the gateway's list names for its line show it instead.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// Several addresses at their own limits fill a total together, and then others are refused.
    Total,
    /// Time fills it: a minute without progress, ten minutes with wrong passwords.
    Time,
    /// It takes thousands of requests; its own tests have a lower limit.
    Many,
    /// It needs an RDMA device, or a client that is controlled byte by byte.
    Device,
    /// It needs a service of the host that does not answer: names, keytab, storage, disk of the trail.
    Service,
    /// Only administrators, or users of this host, reach it.
    Administrator,
}

use Why::{Administrator, Device, Many, Service, Time, Total};

/// Limits that other tests fill.
const ELSEWHERE: &[(Why, &[&str])] = &[
    (
        Total,
        &[
            "connections",
            "newcomers",
            "sessions",
            "unfinished-logons",
            "opens",
            "trees",
            "covered-folders",
            "names",
            "pipe-bytes",
            "waits",
            "delegations",
            "nfs-clients",
            "nlm-owners",
            "blocked-locks",
            "nlm-hosts",
            "patient-locks",
            "nlm-answers",
            "gss-contexts",
            "rdma-first-receives",
            "rdma-receives",
            "watches",
            "watch-events",
            "rate-waits",
            "rate-bytes",
        ],
    ),
    (
        Time,
        &[
            "gave-way",
            "memory-wait",
            "message-memory-wait",
            "no-progress",
            "no-progress-while-others-wait",
            "answers-not-taken",
            "guesses-of-account",
            "notice-behind-answer",
            "notice-unheard",
            "admin-header",
            "rate-wait",
        ],
    ),
    (
        Many,
        &[
            "sessions-of-address",
            "sessions-of-connection",
            "unfinished-logons-of-address",
            "unfinished-logons-of-connection",
            "opens-of-address",
            "opens-of-file-by-address",
            "opens-of-file-by-session",
            "locks-of-file-by-address",
            "locks-of-file-by-session",
            "locks-of-file",
            "locks-of-host",
            "trees-of-address",
            "trees-of-session",
            "watches-of-address",
            "covered-folders-of-address",
            "names-of-address",
            "pipe-bytes-of-address",
            "waits-of-address",
            "delegations-of-address",
            "nfs-owners-of-address",
            "owners-of-client",
            "sessions-of-client",
            "nfs-kept-replies",
            "nlm-owners-of-address",
            "blocked-locks-of-address",
            "patient-locks-of-address",
            "nlm-answers-of-address",
            "gss-contexts-of-address",
            "calls-to-hosts",
            "calls-to-hosts-of-address",
            "large-messages",
            "requests-in-work",
            "memory-of-address",
            "password-keys",
            "password-keys-of-address",
            "compressing-threads",
            "compressing-threads-of-address",
            "datagrams-of-unknown",
            "datagrams-of-address",
            "discovery-packets",
            "discovery-packets-of-address",
            "discovery-answers",
            "discovery-answers-of-address",
            "discovery-connections",
            "discovery-connections-of-address",
            "clients",
            "rate-waits-of-address",
            "rate-waits-of-connection",
            "rate-bytes-of-address",
        ],
    ),
    (
        Device,
        &[
            "rdma-device",
            "rdma-own-addresses",
            "rdma-local-user",
            "rdma-first-receives-of-address",
            "rdma-receives-of-address",
        ],
    ),
    (
        Service,
        &[
            "kerberos",
            "kerberos-nfs",
            "domain-logons",
            "logon-groups",
            "directory-look-ups",
            "domain-name-questions",
            "owner-questions",
            "domain-passwords",
            "domain-passwords-of-address",
            "domain-questions",
            "domain-questions-of-address",
            "domain-names",
            "domain-names-of-address",
            "name-service",
            "name-queries",
            "name-queries-of-address",
            "pipe-calls",
            "pipe-calls-of-address",
            "pipe-call-wait",
            "client-names",
            "silent-storage",
            "audit-queue",
            "audit-queue-of-address",
        ],
    ),
    (
        Administrator,
        &[
            "discovery-links",
            "admin-connections",
            "admin-local-user",
            "admin-tokens",
            "admin-sessions",
            "admin-action",
        ],
    ),
];

/// A new limit has a client that fills it, or a reason.
#[test]
fn each_limit_is_in_the_table_once() {
    let listed: BTreeSet<&str> = gateway::admin::limits::names().into_iter().collect();
    let elsewhere = ELSEWHERE.iter().flat_map(|(_, names)| names.iter().copied());
    let mut table: Vec<&str> = FILLED.into_iter().chain(elsewhere).collect();
    table.sort_unstable();
    let unique: BTreeSet<&str> = table.iter().copied().collect();
    assert_eq!(unique.len(), table.len(), "a limit is there twice: {table:?}");
    let missing: Vec<_> = listed.difference(&unique).collect();
    let unknown: Vec<_> = unique.difference(&listed).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
}

/// Each limit that a client can fill leaves others served, and the memory bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_filled_by_one_client_leave_others_served() {
    for name in FILLED {
        let (world, _dir) = world_with(|s| lower(name, s)).await;
        let other = Other::new(&world).await;
        let (before, memory) = (met(name), resident());
        let held = fill(name, &world).await;
        assert!(met(name) > before, "{name}");
        let took = served(world.running.nfs[0]).await;
        assert!(took < SOON, "{name}: NFS 3 takes {took:?}");
        assert!(timeout(SOON, other.by_smb()).await.is_ok(), "{name}: SMB takes longer");
        assert!(timeout(SOON, other.by_nfs()).await.is_ok(), "{name}: NFS 4 takes longer");
        // The clients are in this process, too, with buffers of their own.
        let grown = resident().saturating_sub(memory);
        assert!(grown < 2 * MEMORY as u64, "{name}: {} MiB", grown >> 20);
        drop((held, other));
        world.running.stop().await;
    }
}
