//! Limits of NLM and NSM. For limits per address, an IPv6 /64 counts as one address.

use rdma_transport::parts::Limit;

pub const HOSTS_MAX: usize = 4096;
/// Hosts at one address. A client chooses its own name, so it can pose as many hosts.
pub const HOSTS_OF_ADDRESS_MAX: usize = HOSTS_MAX / 4;
/// Pairs of lock owner and file, over all hosts.
pub const HOLDERS_MAX: usize = 524_288;
/// Pairs of lock owner and file, over all hosts of one address.
pub const HOLDERS_OF_ADDRESS_MAX: usize = HOLDERS_MAX / 4;
/// Pairs of lock owner and file of one host.
pub const HOLDERS_PER_HOST_MAX: usize = 65_536;
/// Waiting lock requests of all hosts.
pub const BLOCKED_MAX: usize = 4096;
/// Waiting lock requests of one address.
pub const BLOCKED_OF_ADDRESS_MAX: usize = BLOCKED_MAX / 4;
/// Asynchronous answers (`_MSG` procedures) in progress. Further calls are dropped, and the client repeats them.
pub const ANSWERS_MAX: usize = 256;
/// Asynchronous answers in progress to one address: each may wait for a host that does not answer.
pub const ANSWERS_OF_ADDRESS_MAX: usize = ANSWERS_MAX / 4;
/// A host is notified of a granted lock for at most this long, in seconds.
pub const GRANT_SECONDS_MAX: u64 = 60;
/// Pause before the second notice, in milliseconds. It doubles up to [`AGAIN_MS_MAX`].
pub const AGAIN_MS: u64 = 500;
pub const AGAIN_MS_MAX: u64 = 10_000;
/// Interval at which waiting requests are retried without a release, in seconds: a lease may have lapsed.
pub const RECHECK_SECONDS: u64 = 10;
/// A lock request waits this long for the recall of other clients' caching rights, in seconds.
pub const RECALL_SECONDS_MAX: u64 = 3;
/// Lock requests that may wait that long at once; others wait only [`vfs::arbiter::WAIT_MS`], as any access does.
pub const PATIENT_MAX: usize = 64;
/// Share of [`PATIENT_MAX`] for one address.
pub const PATIENT_OF_ADDRESS_MAX: usize = 16;
/// A host without locks remains monitored for this long after its last call, in seconds.
pub const IDLE_SECONDS_MAX: u64 = 300;
/// A host is notified of a server restart for at most this long, in seconds.
pub const NOTIFY_SECONDS_MAX: u64 = 15 * 60;
/// Hosts notified at the same time.
pub const NOTIFIES_AT_ONCE: usize = 64;

/// Limit on the holders of one host.
pub(super) const HOLDERS_OF_HOST: Limit = Limit::new("locks-of-host", HOLDERS_PER_HOST_MAX);
/// Owners that have one file open through their locks.
pub(super) const HOLDERS_OF_FILE: Limit =
    Limit::new("locks-of-host", state::Limits::DEFAULT.opens_per_client);
pub(super) const LOCKS_OF_FILE: Limit =
    Limit::new("locks-of-file", state::Limits::DEFAULT.locks_per_client);
/// Byte ranges of one file held from one address.
pub(super) const LOCKS_OF_FILE_BY_ADDRESS: Limit =
    Limit::new("locks-of-file-by-address", state::Limits::DEFAULT.locks_per_host);

/// A total limit, and its part for one address.
pub(super) type Both = [Limit; 2];

pub(super) const HOSTS: Both =
    [Limit::new("nlm-hosts", HOSTS_MAX), Limit::new("nlm-hosts-of-address", HOSTS_OF_ADDRESS_MAX)];
pub(super) const HOLDERS: Both = [
    Limit::new("nlm-owners", HOLDERS_MAX),
    Limit::new("nlm-owners-of-address", HOLDERS_OF_ADDRESS_MAX),
];
pub(super) const BLOCKED: Both = [
    Limit::new("blocked-locks", BLOCKED_MAX),
    Limit::new("blocked-locks-of-address", BLOCKED_OF_ADDRESS_MAX),
];
pub(super) const PATIENT: Both = [
    Limit::new("patient-locks", PATIENT_MAX),
    Limit::new("patient-locks-of-address", PATIENT_OF_ADDRESS_MAX),
];
pub(super) const ANSWERS: Both = [
    Limit::new("nlm-answers", ANSWERS_MAX),
    Limit::new("nlm-answers-of-address", ANSWERS_OF_ADDRESS_MAX),
];
