//! Limits of services other than files: names, storage that may stop answering, the admin address, the audit trail.

use vfs::engine::limits::{
    COPY_THREADS, IO_THREADS, LONG_THREADS, QUEUE_MAX, SYNC_THREADS, of_client,
};
use vfs::wastebasket::FILES_MAX;

use super::super::listener::{CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX, HEADER_SECONDS};
use super::super::rules::SILENT_STORAGE;
use super::super::{actions, logins};
use super::{Bound, both, most, none, words};

pub(super) fn all() -> Vec<Bound> {
    [names(), storage(), baskets(), paced(), admin(), found()].into_iter().flatten().collect()
}

fn baskets() -> Vec<Bound> {
    vec![Bound {
        what: "files in the [wastebasket](operating.md#the-wastebasket) of a share",
        total: words(format!("{FILES_MAX}, and the storage that `most` of the share allows")),
        of_address: words(
            "of proven users, and of addresses for all other callers: the user with most of the largest part loses its oldest file \
             first",
        ),
        of_one: words("the time that `keep` of the share allows"),
        next: "the file is kept, and the oldest ones are removed within a minute (`displaced`)",
        shown_by: &[
            "vfs/src/waste_due.rs::much_of_one_user_displaces_its_own",
            "vfs/src/waste_due.rs::many_numbers_of_one_address_displace_their_own",
        ],
    }]
}

fn names() -> Vec<Bound> {
    vec![
        Bound {
            what: "time for names of users and groups ([permissions](permissions.md#names))",
            total: none(),
            of_address: none(),
            of_one: most("name-service", "5 s; 10 s for all that a configuration names"),
            next: "numbers are shown; a client that sets a name gets NFS4ERR_DELAY; the configuration is refused",
            shown_by: &["nfsrdma/src/v4/names.rs::stuck_directory_falls_back_to_numbers"],
        },
        Bound {
            what: "threads that ask for names of users and groups by which NFS 4 shows or sets owners",
            total: most("name-queries", nfsrdma::v4::limits::NAME_QUERIES_MAX),
            of_address: most(
                "name-queries-of-address",
                nfsrdma::v4::limits::NAME_QUERIES_OF_ADDRESS_MAX,
            ),
            of_one: words(
                "5 s for a turn and the answer; a thread that gets none later keeps its turn until then",
            ),
            next: "numbers are shown; a client that sets a name gets NFS4ERR_DELAY",
            shown_by: &[
                "nfsrdma/src/v4/names.rs::hanging_queries_of_address_leave_threads_to_others",
            ],
        },
        Bound {
            what: "look-ups of names of clients, where [`clients`](permissions.md#clients-by-name) has names",
            total: most(
                crate::client_names::LIMIT,
                "8 of clients that connect, 8 of host names and of clients that are connected, 2 because of datagrams",
            ),
            of_address: words("one of each at a time"),
            of_one: words("5 s"),
            next: "what is not known by name is refused",
            shown_by: &[
                "gateway/src/client_names.rs::a_host_whose_zone_gives_no_answer_takes_one_turn",
                "gateway/src/client_names.rs::a_name_service_that_does_not_answer_is_waited_for_a_while_and_by_few_threads",
            ],
        },
        Bound {
            what: "datagrams that wait for the names of their senders",
            total: most(crate::portmap::DATAGRAMS_UNKNOWN, "64, and 256 more of known senders"),
            of_address: most(
                crate::portmap::DATAGRAMS_OF_ADDRESS,
                "16, and 64 more of a known sender",
            ),
            of_one: none(),
            next: "the datagram is dropped, and its client sends it again",
            shown_by: &[
                "gateway/src/portmap.rs::senders_that_nobody_knows_take_no_place_of_others",
            ],
        },
    ]
}

fn storage() -> Vec<Bound> {
    vec![
        Bound {
            what: "jobs that wait for disks of this host, and threads for them: reads and writes, what takes long, copies, syncs",
            total: words(format!(
                "{QUEUE_MAX} jobs of each kind; {IO_THREADS}, {LONG_THREADS}, {COPY_THREADS} and {SYNC_THREADS} threads, and one \
                for each processor for reads of what is in memory, which never wait for a disk"
            )),
            of_address: words(format!(
                "half of the jobs; {}, {}, {} and {} threads, and two of three of those for what is in memory, or both of two",
                of_client(IO_THREADS),
                of_client(LONG_THREADS),
                of_client(COPY_THREADS),
                of_client(SYNC_THREADS)
            )),
            of_one: none(),
            next: "it waits for a thread, in turns of addresses; then NFS3ERR_JUKEBOX, NFS4ERR_DELAY or an error of SMB",
            shown_by: &["vfs/src/engine/threads.rs::jobs_of_a_client_leave_threads_to_others"],
        },
        Bound {
            what: "operations under way on a share whose file system asks another program or server (FUSE, NFS, CIFS, Ceph, 9p \
            and the like)",
            total: most(
                SILENT_STORAGE,
                "48, and 64 of its transfers, copies and syncs, also of clients that have gone; a quarter of `memory` for the \
                data of \
                 its transfers, and three quarters for the data of all such shares, in addition to a thirty-second for each share",
            ),
            of_address: words("two of three of the threads"),
            of_one: words("2 s for a turn, and no wait once an operation has waited in vain"),
            next: "NFS: NFS3ERR_JUKEBOX, NFS4ERR_DELAY; SMB: an error",
            shown_by: &[
                "vfs/src/engine/threads.rs::separate_engine_limits_own_jobs",
                "vfs/src/engine/far.rs::hanging_volume_leaves_payload_for_others",
            ],
        },
        Bound {
            what: "records of the [audit trail](audit.md) that wait to be written",
            total: most(audit::LIMIT, audit::QUEUE_MAX),
            of_address: most(
                audit::LIMIT_OF_ADDRESS,
                format!(
                    "{}; {} for all clients that have not proved who they are, and {} in a minute",
                    audit::QUEUE_OF_ADDRESS_MAX,
                    audit::QUEUE_OF_STRANGERS_MAX,
                    audit::STRANGERS_PER_MINUTE
                ),
            ),
            of_one: none(),
            next: "the record is lost, counted and noted in the trail; with `audit: {required: true}` what must be recorded is \
            refused instead",
            shown_by: &[
                "crates/audit/src/writer.rs::records_of_address_leave_room_to_others",
                "crates/audit/src/writer.rs::unauthenticated_clients_have_limited_records",
            ],
        },
    ]
}

fn paced() -> Vec<Bound> {
    vec![
        Bound {
            what: "requests that wait for a [rate](tuning.md#rates)",
            total: most("rate-waits", rates::Most::REQUESTS),
            of_address: most("rate-waits-of-address", rates::Most::REQUESTS_OF_ADDRESS),
            of_one: both(
                most(
                    "rate-waits-of-connection",
                    format!("{} of an NFS connection", nfsrdma::limits::RATE_WAITS_MAX),
                ),
                most(
                    "rate-wait",
                    format!(
                        "{} s by NFS, {} s by SMB",
                        rates::Limits::LONGEST.as_secs(),
                        smbd_core::limits::RATE_WAIT_MAX.as_secs()
                    ),
                ),
            ),
            next: NOT_YET,
            shown_by: &[
                "crates/rates/src/tests.rs::who_waits_is_limited_in_all_and_of_each_address",
                "crates/rates/src/tests.rs::late_and_cancelled_requests_leave_their_places",
            ],
        },
        Bound {
            what: "data of writes that wait for a rate",
            total: most(
                "rate-bytes",
                "half of the payload memory in 1 MiB buffers, at least 16 MiB",
            ),
            of_address: most("rate-bytes-of-address", "a quarter of that memory, at least 8 MiB"),
            of_one: words("16 MiB of an SMB connection, by its credits"),
            next: NOT_YET,
            shown_by: &[
                "crates/rates/src/tests.rs::who_waits_is_limited_in_all_and_of_each_address",
            ],
        },
    ]
}

/// The answer to a request that may not wait any longer.
const NOT_YET: &str = "NFS: NFS3ERR_JUKEBOX, NFS4ERR_DELAY; SMB: STATUS_INSUFFICIENT_RESOURCES";

fn found() -> Vec<Bound> {
    use discovery::{guard, link, links, metadata};
    vec![
        Bound {
            what: "links on which the gateway is announced",
            total: most(links::LINKS, links::LINKS_MAX),
            of_address: words("no client makes them"),
            of_one: words(format!("{} addresses", links::ADDRESSES_MAX)),
            next: "the first by the kernel's number stay; the log and `headgate check` name the others",
            shown_by: &["crates/discovery/src/links.rs::links_beyond_the_limit_are_counted"],
        },
        Bound {
            what: "packets by which hosts look for others ([found on the network](operating.md#found-on-the-network)), on each \
                   link",
            total: most(guard::PACKETS, format!("{} in a second", guard::PACKETS_PER_SECOND)),
            of_address: most(
                guard::PACKETS_OF_ADDRESS,
                format!("{} in a second", guard::PACKETS_OF_ADDRESS_PER_SECOND),
            ),
            of_one: words(format!(
                "{} bytes by DNS, with 64 questions and 128 records; {} by WS-Discovery, 12 elements deep",
                discovery::dns::MESSAGE_MAX,
                discovery::wsd::MESSAGE_MAX
            )),
            next: "the packet is dropped; hosts ask again",
            shown_by: &[
                "crates/discovery/src/guard.rs::packets_of_an_address_leave_room_for_others",
                "crates/discovery/src/board.rs::flood_on_a_link_leaves_other_links_theirs",
            ],
        },
        Bound {
            what: "WS-Discovery answers that wait for their random delay, on each link",
            total: most(link::LATER, link::LATER_MAX),
            of_address: most(link::LATER_OF_ADDRESS, link::LATER_OF_ADDRESS_MAX),
            of_one: words("three times the bytes of the request, at least 512"),
            next: "the request has no answer; hosts ask again",
            shown_by: &["crates/discovery/src/link.rs::waiting_answers_for_an_address_leave_room"],
        },
        Bound {
            what: "connections that read what Windows shows of this gateway (TCP port 5357)",
            total: most(metadata::CONNECTIONS, metadata::CONNECTIONS_MAX),
            of_address: most(
                metadata::CONNECTIONS_OF_ADDRESS,
                metadata::CONNECTIONS_OF_ADDRESS_MAX,
            ),
            of_one: words(format!(
                "{} s, {} bytes",
                metadata::SECONDS_MAX,
                discovery::wsd::MESSAGE_MAX
            )),
            next: "it is closed",
            shown_by: &[
                "crates/discovery/src/metadata.rs::connections_of_an_address_leave_room_for_others",
            ],
        },
    ]
}

fn admin() -> Vec<Bound> {
    vec![
        Bound {
            what: "connections to the admin address",
            total: most("admin-connections", CONNECTIONS_MAX),
            of_address: words(CONNECTIONS_OF_ADDRESS_MAX.to_string()),
            of_one: most(
                "admin-header",
                format!("{HEADER_SECONDS} s for the header of a request; 60 s in all"),
            ),
            next: "the oldest one without a request in work is closed for it",
            shown_by: &[
                "gateway/src/admin/listener.rs::the_oldest_connection_without_a_request_gives_way_to_a_new_one",
                "gateway/src/admin/listener.rs::there_are_no_more_than_that_from_all_addresses",
            ],
        },
        Bound {
            what: "look-ups of the user that opened a connection to the admin address",
            total: most("admin-local-user", "2 at a time"),
            of_address: words("this host is one client"),
            of_one: words("5 s for a turn"),
            next: "it is refused, as another user of this host is",
            shown_by: &[
                "gateway/src/local_user.rs::readings_for_one_purpose_take_no_turns_of_another",
            ],
        },
        Bound {
            what: "unused tokens of `headgate admin-token`, for 10 minutes each",
            total: most("admin-tokens", logins::TOKENS_MAX),
            of_address: words("only administrators make them"),
            of_one: none(),
            next: "the oldest one goes for it",
            shown_by: &["gateway/src/admin/logins.rs::the_oldest_one_goes_for_a_new_one"],
        },
        Bound {
            what: "sessions on the status page, an hour each",
            total: most("admin-sessions", logins::SESSIONS_MAX),
            of_address: words("only administrators begin them, with a token"),
            of_one: none(),
            next: "the oldest one ends for it",
            shown_by: &["gateway/src/admin/logins.rs::the_oldest_one_goes_for_a_new_one"],
        },
        Bound {
            what: "actions of the status page",
            total: most("admin-action", format!("{} at once", actions::ACTIONS_MAX)),
            of_address: words("only administrators start them"),
            of_one: words("50 s; one that takes longer continues, and the page shows that"),
            next: "it gets an error and may try again",
            shown_by: &["gateway/src/admin/actions.rs::actions_beyond_the_limit_are_refused"],
        },
    ]
}
