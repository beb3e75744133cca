//! Limits of NFS clients.

use nfsrdma::nlm::limits as nlm;
use nfsrdma::rpc::gss::table::{CONTEXTS_MAX, CONTEXTS_OF_ADDRESS_MAX};
use nfsrdma::rpc::outgoing::{CALLS_MAX, CALLS_TO_ADDRESS_MAX};
use nfsrdma::v4::limits::{
    DELEGATIONS_MAX, DELEGATIONS_OF_ADDRESS_MAX, OWNERS_OF_ADDRESS_MAX, OWNERS_PER_CLIENT_MAX,
    SESSIONS_PER_CLIENT_MAX, SLOTS_MAX,
};

use super::{Bound, both, most, none, words};

/// NFS 4.0 has a separate error for this; 4.1 and 4.2 do not.
const RESOURCE: &str =
    "NFS 4.0: NFS4ERR_RESOURCE. NFS 4.1 and 4.2: NFS4ERR_DELAY, until the client closes something";
const DENIED: &str = "NLM4_DENIED_NOLOCKS";

pub(super) fn all() -> Vec<Bound> {
    [of_version_4(), kept(), locks(), of_version_3(), of_kerberos()].into_iter().flatten().collect()
}

fn of_version_4() -> Vec<Bound> {
    vec![
        Bound {
            what: "opens, states of locks and delegations of NFS 4",
            total: words("bounded by `nfs-clients`"),
            of_address: most("nfs-opens-of-address", "twice what one client may have"),
            of_one: both(
                most("opens-of-client", "four times `limits.client_opens` of a client"),
                most("locks-of-client", "the same, where a lock has no room"),
            ),
            next: RESOURCE,
            shown_by: &[
                "nfsrdma/src/v4/opens.rs::clients_of_one_address_share_limit",
                "tests/tests/watching.rs::client_limits_are_reported_by_name",
            ],
        },
        Bound {
            what: "owners of opens and of locks of NFS 4",
            total: words("bounded by `nfs-clients`"),
            of_address: most("nfs-owners-of-address", OWNERS_OF_ADDRESS_MAX),
            of_one: most("owners-of-client", format!("{OWNERS_PER_CLIENT_MAX} of a client")),
            next: RESOURCE,
            shown_by: &[
                "nfsrdma/src/v4/opens.rs::clients_of_one_address_share_limit",
                "nfsrdma/src/v4/opens.rs::idle_owners_are_evicted_at_limit",
            ],
        },
        Bound {
            what: "delegations",
            total: most("delegations", DELEGATIONS_MAX),
            of_address: most("delegations-of-address", DELEGATIONS_OF_ADDRESS_MAX),
            of_one: words("bounded by `opens-of-client`"),
            next: "nothing is refused: a file is opened without a delegation",
            shown_by: &["nfsrdma/src/v4/usage.rs::delegations_of_an_address_leave_room"],
        },
    ]
}

fn kept() -> Vec<Bound> {
    vec![
        Bound {
            what: "clients of NFS 4; clients that never came back and silent ones make room",
            total: most("nfs-clients", "`limits.nfs_clients`, 16384"),
            of_address: most("nfs-clients-of-address", "an eighth of that, at least 16"),
            of_one: none(),
            next: "NFS 4.0: NFS4ERR_RESOURCE. NFS 4.1 and 4.2: NFS4ERR_DELAY, until the lease of another ends, or, where the \
            address has \
                   its part, NFS4ERR_SERVERFAULT",
            shown_by: &[
                "nfsrdma/src/v4/room.rs::clients_of_address_are_limited",
                "nfsrdma/tests/compound/room.rs::clients_per_address_are_limited",
            ],
        },
        Bound {
            what: "sessions of NFS 4",
            total: words("bounded by `nfs-clients`"),
            of_address: words("bounded by `nfs-clients-of-address`"),
            of_one: most(
                "sessions-of-client",
                format!("{SESSIONS_PER_CLIENT_MAX} of a client, of {SLOTS_MAX} slots"),
            ),
            next: "NFS4ERR_NOSPC",
            shown_by: &["nfsrdma/tests/compound/sessions.rs::sessions_per_client_are_limited"],
        },
        Bound {
            what: "memory for the replies that sessions keep",
            total: most("nfs-kept-replies", "an eighth of `memory`"),
            of_address: words("a quarter of that"),
            of_one: words(
                "while there is little, sessions get shorter kept replies (2 KiB) and fewer slots",
            ),
            next: "NFS4ERR_NOSPC to CREATE_SESSION, where not even one slot is left",
            shown_by: &[
                "nfsrdma/src/v4/room.rs::address_gets_quarter_of_replies",
                "nfsrdma/tests/compound/room.rs::session_replies_stay_within_memory",
            ],
        },
    ]
}

fn locks() -> Vec<Bound> {
    let of_file = state::Limits::DEFAULT;
    vec![
        Bound {
            what: "byte ranges of one file that are locked over NFS",
            total: words(format!("{} by all clients", of_file.locks_per_node)),
            of_address: most("locks-of-file-by-address", of_file.locks_per_host),
            of_one: most("locks-of-file", format!("{} of a client", of_file.locks_per_client)),
            next: "NFS 4.0: NFS4ERR_RESOURCE. NFS 4.1 and 4.2: NFS4ERR_DELAY. NFS 3: NLM4_DENIED_NOLOCKS. Other \
                clients lock the file as before",
            shown_by: &[
                "nfsrdma/tests/compound/locks.rs::clients_of_host_share_file_limits",
                "nfsrdma/tests/nlm/limits.rs::file_locks_per_address_are_limited",
            ],
        },
        Bound {
            what: "owners of NFS 3 locks, counted once for each file",
            total: most("nlm-owners", nlm::HOLDERS_MAX),
            of_address: most("nlm-owners-of-address", nlm::HOLDERS_OF_ADDRESS_MAX),
            of_one: most(
                "locks-of-host",
                format!(
                    "{} of a host; {} on one file, {} with the other hosts of its address",
                    nlm::HOLDERS_PER_HOST_MAX,
                    of_file.opens_per_client,
                    of_file.opens_per_host
                ),
            ),
            next: DENIED,
            shown_by: &["nfsrdma/src/nlm/hosts.rs::hosts_of_one_address_share_limit"],
        },
        Bound {
            what: "NFS 3 locks for which clients wait",
            total: most("blocked-locks", nlm::BLOCKED_MAX),
            of_address: most("blocked-locks-of-address", nlm::BLOCKED_OF_ADDRESS_MAX),
            of_one: none(),
            next: DENIED,
            shown_by: &[
                "nfsrdma/src/nlm/blocked.rs::wait_queue_is_limited",
                "nfsrdma/tests/nlm/limits.rs::waiting_locks_per_address_are_limited",
            ],
        },
    ]
}

fn of_version_3() -> Vec<Bound> {
    vec![
        Bound {
            what: "hosts with NFS 3 locks; each name that a client gives itself is one. A host without locks is forgotten \
            after 5 minutes",
            total: most("nlm-hosts", nlm::HOSTS_MAX),
            of_address: most("nlm-hosts-of-address", nlm::HOSTS_OF_ADDRESS_MAX),
            of_one: none(),
            next: DENIED,
            shown_by: &["nfsrdma/tests/nlm/limits.rs::host_limit_is_enforced_and_shown"],
        },
        Bound {
            what: "NFS 3 LOCKs that wait until other clients have given back caching",
            total: most("patient-locks", nlm::PATIENT_MAX),
            of_address: most("patient-locks-of-address", nlm::PATIENT_OF_ADDRESS_MAX),
            of_one: words(format!("{} s", nlm::RECALL_SECONDS_MAX)),
            next: "it waits for a tenth of a second, then NLM4_DENIED_GRACE_PERIOD",
            shown_by: &["nfsrdma/tests/nlm/holders.rs::waiting_lock_yields_thread"],
        },
        Bound {
            what: "calls to hosts of clients: locks that are granted, restarts, answers of the lock manager. Their sockets count \
            with the files that clients hold",
            total: most("calls-to-hosts", CALLS_MAX),
            of_address: most("calls-to-hosts-of-address", CALLS_TO_ADDRESS_MAX),
            of_one: words("3 s to connect, 5 s for the answer"),
            next: "it waits for 5 s; then the call is made again later, and the host has as much longer to \
                   answer, at most twice its time",
            shown_by: &[
                "nfsrdma/src/rpc/outgoing.rs::calls_to_silent_address_leave_others_theirs",
                "nfsrdma/src/nlm/patience.rs::own_limits_are_not_silence_of_the_host",
            ],
        },
        Bound {
            what: "answers of the lock manager of NFS 3 that are calls of the gateway (`_RES`) and under way",
            total: most("nlm-answers", nlm::ANSWERS_MAX),
            of_address: most("nlm-answers-of-address", nlm::ANSWERS_OF_ADDRESS_MAX),
            of_one: none(),
            next: "the answer is not sent, and the client asks again",
            shown_by: &["nfsrdma/src/nlm/answers.rs::answers_to_an_address_leave_room"],
        },
    ]
}

fn of_kerberos() -> Vec<Bound> {
    vec![
        Bound {
            what: "Kerberos contexts of NFS clients",
            total: most("gss-contexts", CONTEXTS_MAX),
            of_address: most("gss-contexts-of-address", CONTEXTS_OF_ADDRESS_MAX),
            of_one: none(),
            next: "the least recently used context ends, of the same address or of the one with most, and its \
                client makes a new one",
            shown_by: &["nfsrdma/tests/gss.rs::address_evicts_only_own_contexts"],
        },
        Bound {
            what: "NFS tickets in verification",
            total: most(nfsrdma::rpc::gss::LIMIT, "4 at once"),
            of_address: words("2 at once"),
            of_one: words(
                "5 s for a turn, and 5 s for the keytab and the name service; 48 KiB for a ticket",
            ),
            next: "the client gets the error of a failed server, and may try again",
            shown_by: &["crates/sys/gss-sys/src/pool.rs::one_address_never_takes_all_threads"],
        },
    ]
}
