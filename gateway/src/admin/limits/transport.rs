//! Limits of connections and memory.

use rdma_transport::limits::{
    HEAP_FREE_MAX, LARGE_MESSAGES, MEMORY_WAIT, MEMORY_WAIT_MAX, MESSAGE_WAIT, MESSAGE_WAIT_MAX,
    REQUESTS_IN_WORK, REQUESTS_IN_WORK_MAX, STALL, STALL_BYTES_MIN, STALL_BYTES_PRESSED,
    STALL_PRESSED, STALL_SECONDS_MAX, STALL_SECONDS_PRESSED, UNTAKEN, UNTAKEN_MAX, UNTAKEN_MORE,
};
use rdma_transport::receives::{FIRST, FIRST_OF_ADDRESS, RECEIVES, RECEIVES_OF_ADDRESS};

use super::{Bound, both, most, none, words};

pub(super) fn all() -> Vec<Bound> {
    [connections(), of_rdma(), memory(), progress()].into_iter().flatten().collect()
}

fn connections() -> Vec<Bound> {
    vec![
        Bound {
            what: "connections",
            total: most(
                "connections",
                "[`connections`](configuration.md), 2048, or fewer where the process may open few files ([tuning](tuning.md))",
            ),
            of_address: most(
                "connections-of-address",
                "`limits.client_connections`, three quarters of `connections`; all of them where there are fewer than 64",
            ),
            of_one: most("gave-way", "5 s without a byte, where one of these limits is reached"),
            next: "a connection is closed for it: the one that is idle for longest, first of addresses that have more than their \
            part \
                   (the limit divided by the addresses that are connected). For an address within its part an active connection is \
                   closed too, of the address with most. A connection with SMB opens stays, unless its address has more than its \
                   part and nothing else can go. Else the new connection is closed",
            shown_by: &[
                "gateway/src/admission.rs::one_address_cannot_take_all_unless_there_are_few",
                "tests/tests/limits/main.rs::connections_of_address_leave_others_served",
                "gateway/tests/admission.rs::idle_connections_give_way_when_all_places_are_taken",
                "tests/tests/watching.rs::client_limits_are_reported_by_name",
            ],
        },
        Bound {
            what: "newcomers: connections on which no client has logged on (SMB), or no share has admitted a call (NFS). \
                   NULL and refused calls do not introduce a client",
            total: most("newcomers", "half of `connections`"),
            of_address: most(
                "newcomers-of-address",
                "a quarter of `connections`; all of them where there are fewer than 64",
            ),
            of_one: both(
                most("first-request", "NFS: `limits.introduction`, 45 s"),
                most("logon", "SMB: the same"),
            ),
            next: "the same, among newcomers. A connection whose time is over ends",
            shown_by: &[
                "gateway/src/admission.rs::each_limit_is_met_and_left_again",
                "gateway/src/admission.rs::one_address_cannot_take_all_unless_there_are_few",
                "tests/tests/stuck_clients.rs::stuck_clients_do_not_delay_others",
                "tests/tests/limits/table.rs::limits_filled_by_one_client_leave_others_served",
            ],
        },
        Bound {
            what: "addresses",
            total: none(),
            of_address: most("clients", "the `clients` of all shares of the protocol"),
            of_one: none(),
            next: "it is closed on accept: no share admits its address",
            shown_by: &[
                "gateway/tests/admission.rs::an_address_that_no_share_admits_is_closed_before_it_says_anything",
            ],
        },
        Bound {
            what: "requests in work",
            total: words("bounded by `connections`"),
            of_address: words("bounded by `connections-of-address`"),
            of_one: most(REQUESTS_IN_WORK, format!("{REQUESTS_IN_WORK_MAX} of a connection")),
            next: "it waits with the client",
            shown_by: &["rdma-transport/src/serve/tests.rs::requests_beyond_the_limit_wait"],
        },
    ]
}

fn of_rdma() -> Vec<Bound> {
    vec![
        Bound {
            what: "RDMA connections",
            total: most("rdma-device", "what the RDMA device of this host holds"),
            of_address: words("bounded by `connections-of-address`"),
            of_one: none(),
            next: "its RDMA connection is not set up; the log line names the remedy",
            shown_by: &[
                "gateway/src/accept/tests.rs::a_device_that_is_full_is_told_of_and_the_next_client_is_served",
            ],
        },
        Bound {
            what: "look-ups whether an iWARP connection comes from this host, and from which of its users",
            total: both(
                most(
                    "rdma-own-addresses",
                    "own addresses: 5 s for a turn, and one look-up for all that wait",
                ),
                most("rdma-local-user", "users: 5 s for a turn, two at a time"),
            ),
            of_address: words("this host is one client"),
            of_one: none(),
            next: "NFS: the connection ends, and its client connects again",
            shown_by: &[
                "gateway/src/accept/tests.rs::a_connection_that_nobody_had_time_to_look_at_ends",
            ],
        },
        Bound {
            what: "first receives of 4 KiB of RDMA connections, 5 for each",
            total: most(
                FIRST,
                "5 for each of `connections`, and three quarters of an eighth of `memory` at most",
            ),
            of_address: most(FIRST_OF_ADDRESS, "seven eighths of these"),
            of_one: none(),
            next: "its RDMA connection is not set up; the log line names the remedy",
            shown_by: &[
                "rdma-transport/src/receives.rs::first_receives_of_address_leave_others_theirs",
            ],
        },
        Bound {
            what: "receives of 4 KiB beyond the first few (4 credits) of each RDMA connection, which it has when its client has \
            introduced itself",
            total: most(
                RECEIVES,
                "RDMA has an eighth of `memory`; a quarter of it at least is for these",
            ),
            of_address: most(RECEIVES_OF_ADDRESS, "half of these"),
            of_one: words("64 (RPC-over-RDMA), 255 (SMB Direct)"),
            next: "fewer credits: its connections do less at once",
            shown_by: &["rdma-transport/src/receives.rs::unknown_peer_gets_fewer_receives"],
        },
    ]
}

fn memory() -> Vec<Bound> {
    let [seconds, longer] = [MEMORY_WAIT_MAX, MESSAGE_WAIT_MAX].map(|time| time.as_secs());
    vec![
        Bound {
            what: "payload memory",
            total: words("`memory`, less what other lines of this table have of it"),
            of_address: most("memory-of-address", "`limits.client_memory`, three quarters"),
            of_one: both(
                most(
                    MEMORY_WAIT,
                    format!("{seconds} s for the memory of a READ or of the data of a WRITE"),
                ),
                most(
                    MESSAGE_WAIT,
                    format!("{longer} s for a request without an answer before it is read"),
                ),
            ),
            next: "it waits, and then NFS3ERR_JUKEBOX, NFS4ERR_DELAY or STATUS_INSUFFICIENT_RESOURCES. The connection stays; the \
            data of \
                   the write is thrown away, and the client sends it again. Writes that begin to wait within 1 s after one was \
                   refused \
                   are refused with it. Encrypted or compressed SMB messages, NFS 4 with krb5i or krb5p, RPC messages that are \
                   themselves fetched, and other large requests cannot be answered before they are read: their connection ends, \
                   not as the fault of the client, which repeats them on the next one",
            shown_by: &[
                "rdma-transport/tests/tcp.rs::record_without_memory_ends_its_connection_in_time",
                "gateway/src/admission.rs::connections_of_one_address_share_its_payload_memory",
                "tests/tests/stuck_clients.rs::address_cannot_exhaust_payload_memory",
            ],
        },
        Bound {
            what: "buffers for what comes over TCP, of 4 KiB and 64 KiB",
            total: words("a sixteenth of `memory`"),
            of_address: words("three quarters of that"),
            of_one: words("two at most, while something is in them"),
            next: "its connection is read when another has given a buffer back. A client that holds one with half of a request \
            has 5 s \
                   for 1 KiB of progress while others wait (`no-progress-while-others-wait`)",
            shown_by: &[
                "tests/tests/limits/main.rs::half_requests_leave_receive_buffers_to_others",
            ],
        },
        Bound {
            what: "requests that come in pieces, of more than 1 KiB, without the data of WRITEs",
            total: most(LARGE_MESSAGES, "an eighth of `memory`"),
            of_address: words("three quarters of that, or an eighth of `limits.client_memory`"),
            of_one: words(format!("{HEAP_FREE_MAX} bytes of each request in work are not counted")),
            next: "the rest of the request stays with the client, and its connection is read no further until there is room. Each \
                   request counts with what it weighs until it is answered; while it comes, one that does not say how long it is \
                   counts as the longest possible",
            shown_by: &["tests/tests/large_messages.rs::held_calls_are_limited"],
        },
        Bound {
            what: "answers that a client does not take",
            total: words("bounded by payload memory"),
            of_address: words("bounded by `memory-of-address`"),
            of_one: most(
                UNTAKEN,
                format!(
                    "{} KiB of a connection (an RDMA card: 4 MiB that it has not sent), and one byte more for each 128 that the \
                    client \
                     has taken, up to {} MiB; in addition, reads whose data has not arrived: 1 MiB, up to 8 MiB as the client \
                     takes answers",
                    UNTAKEN_MAX >> 10,
                    UNTAKEN_MORE >> 20
                ),
            ),
            next: "its further reads wait before they take memory, so that it holds about one answer, or ten where it has worked \
            before. \
                   Counted when that held reads back for a second",
            shown_by: &["tests/tests/deaf_clients.rs::stalled_clients_do_not_delay_address"],
        },
    ]
}

fn progress() -> Vec<Bound> {
    vec![
        Bound {
            what: "time without progress, for each direction: answers that the client takes, the rest of its record, \
            its RDMA \
                   Reads that land. A client whose request waits for memory of the gateway does not count",
            total: none(),
            of_address: none(),
            of_one: most(
                STALL,
                format!(
                    "{STALL_SECONDS_MAX} s with less than {} KiB moved, inside a message",
                    STALL_BYTES_MIN >> 10
                ),
            ),
            next: "the connection ends",
            shown_by: &["rdma-transport/src/stall.rs::time_counts_from_last_byte"],
        },
        Bound {
            what: "the same, of a client that holds memory for which another client, or another of its requests, waits",
            total: none(),
            of_address: words(
                "1 s and 204 bytes, where another of its connections met this limit within a minute",
            ),
            of_one: most(
                STALL_PRESSED,
                format!(
                    "{STALL_SECONDS_PRESSED} s with less than {} KiB moved",
                    STALL_BYTES_PRESSED >> 10
                ),
            ),
            next: "the connection ends. Requests that come are no progress with answers that are not taken",
            shown_by: &[
                "rdma-transport/src/stall.rs::contended_memory_shortens_limit",
                "tests/tests/deaf_clients.rs::stalled_clients_do_not_delay_address",
            ],
        },
    ]
}
