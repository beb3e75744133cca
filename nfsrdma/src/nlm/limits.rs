//! The numbers of NLM and NSM. Where one address has a part, it is an IPv4 address or an IPv6 /64.

use rdma_transport::parts::Limit;

/// Hosts that lock.
pub const HOSTS_MAX: usize = 4096;
/// Of these, hosts of one address: a client names itself, and may do so in many ways.
pub const HOSTS_OF_ADDRESS_MAX: usize = HOSTS_MAX / 4;
/// Owners of all hosts with locks on a file, counted once for each file.
pub const HOLDERS_MAX: usize = 524_288;
/// The same of all hosts of one address.
pub const HOLDERS_OF_ADDRESS_MAX: usize = HOLDERS_MAX / 4;
/// Owners of one host with locks on a file, counted once for each file.
pub const HOLDERS_PER_HOST_MAX: usize = 65_536;
/// Locks that are waited for, of all hosts.
pub const BLOCKED_MAX: usize = 4096;
/// Of these, locks of one address.
pub const BLOCKED_OF_ADDRESS_MAX: usize = BLOCKED_MAX / 4;
/// Asynchronous answers under way (`_MSG` procedures); more calls of that kind are dropped, and come again.
pub const ANSWERS_MAX: usize = 256;
/// Of these, answers to one address: each may wait for a host that does not answer.
pub const ANSWERS_OF_ADDRESS_MAX: usize = ANSWERS_MAX / 4;
/// A host is told for this long that a lock was given to it, in seconds.
pub const GRANT_SECONDS_MAX: u64 = 60;
/// First pause before a host is told again, in milliseconds; each next one is twice as long up to a limit.
pub const AGAIN_MS: u64 = 500;
/// Longest such pause, in milliseconds.
pub const AGAIN_MS_MAX: u64 = 10_000;
/// How often locks that are waited for are tried although nothing was released, in seconds: a lease may have lapsed.
pub const RECHECK_SECONDS: u64 = 10;
/// A request for a lock waits this long for caching rights of others to come back, in seconds.
pub const RECALL_SECONDS_MAX: u64 = 3;
/// Requests for locks that wait so long at once; others wait as any access does, for [`vfs::arbiter::WAIT_MS`].
pub const PATIENT_MAX: usize = 64;
/// Of these, requests of one address.
pub const PATIENT_OF_ADDRESS_MAX: usize = 16;
/// A host that holds nothing is monitored for this long after it was last heard of, in seconds.
pub const IDLE_SECONDS_MAX: u64 = 300;
/// A host is told for this long that the server was restarted, in seconds.
pub const NOTIFY_SECONDS_MAX: u64 = 15 * 60;
/// Hosts that are told at once.
pub const NOTIFIES_AT_ONCE: usize = 64;

/// What one host may hold.
pub(super) const HOLDERS_OF_HOST: Limit = Limit::new("locks-of-host", HOLDERS_PER_HOST_MAX);
/// Owners that have one file open by their locks.
pub(super) const HOLDERS_OF_FILE: Limit =
    Limit::new("locks-of-host", state::Limits::DEFAULT.opens_per_client);
/// Byte ranges of one file.
pub(super) const LOCKS_OF_FILE: Limit =
    Limit::new("locks-of-file", state::Limits::DEFAULT.locks_per_client);
/// The same of one address.
pub(super) const LOCKS_OF_FILE_BY_ADDRESS: Limit =
    Limit::new("locks-of-file-by-address", state::Limits::DEFAULT.locks_per_host);

/// All that there may be, and the part of one address.
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
