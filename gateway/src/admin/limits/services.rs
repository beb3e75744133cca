//! Limits of services other than files: names, storage that may stop answering, the admin address, the audit trail.

use vfs::engine::limits::{
    COPY_THREADS, IO_THREADS, LONG_THREADS, QUEUE_MAX, SYNC_THREADS, of_client,
};

use super::super::listener::{CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX, HEADER_SECONDS};
use super::super::rules::SILENT_STORAGE;
use super::super::{actions, logins};
use super::{Bound, most, none, words};

pub(super) fn all() -> Vec<Bound> {
    [names(), storage(), admin()].into_iter().flatten().collect()
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
            what: "datagrams whose senders are looked up by name",
            total: most(crate::portmap::DATAGRAMS_UNKNOWN, "64, beside 256 of known senders"),
            of_address: most(
                crate::portmap::DATAGRAMS_OF_ADDRESS,
                "16, beside 64 of a known sender",
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
                "{QUEUE_MAX} jobs of each kind; {IO_THREADS}, {LONG_THREADS}, {COPY_THREADS} and {SYNC_THREADS} threads"
            )),
            of_address: words(format!(
                "half of the jobs; {}, {}, {} and {} threads",
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
                 its transfers, and three quarters for those of all such shares beside the thirty-second that is each share's own",
            ),
            of_address: words("two of three of the threads"),
            of_one: words("2 s for a turn, and none once an operation has waited in vain"),
            next: "NFS: NFS3ERR_JUKEBOX, NFS4ERR_DELAY; SMB: an error",
            shown_by: &[
                "vfs/src/engine/threads.rs::separate_engine_limits_own_jobs",
                "vfs/src/engine/far.rs::hanging_volume_leaves_payload_for_others",
            ],
        },
        Bound {
            what: "records of the [audit trail](audit.md) that wait to be written",
            total: most(audit::LIMIT, audit::QUEUE_MAX),
            of_address: words(format!(
                "{} for all clients that have not proved who they are, and {} in a minute",
                audit::QUEUE_OF_STRANGERS_MAX,
                audit::STRANGERS_PER_MINUTE
            )),
            of_one: none(),
            next: "the record is lost, counted and told in the trail; with `audit: {required: true}` what must be recorded is \
            refused instead",
            shown_by: &["crates/audit/src/writer.rs::unauthenticated_clients_have_limited_records"],
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
            what: "looks whose a connection to the admin address is",
            total: most("admin-local-user", "2 at a time"),
            of_address: words("this host is one client"),
            of_one: words("5 s for a turn"),
            next: "it is refused, as another user of this host is",
            shown_by: &[
                "gateway/src/local_user.rs::readings_for_one_purpose_take_no_turns_of_another",
            ],
        },
        Bound {
            what: "tokens of `headgate admin-token` that were not used, for 10 minutes each",
            total: most("admin-tokens", logins::TOKENS_MAX),
            of_address: words("only administrators make them"),
            of_one: none(),
            next: "the oldest one goes for it",
            shown_by: &["gateway/src/admin/logins.rs::the_oldest_one_goes_for_a_new_one"],
        },
        Bound {
            what: "sessions on the status page, an hour each",
            total: most("admin-sessions", logins::SESSIONS_MAX),
            of_address: words("only administrators begin them, by a token"),
            of_one: none(),
            next: "the oldest one ends for it",
            shown_by: &["gateway/src/admin/logins.rs::the_oldest_one_goes_for_a_new_one"],
        },
        Bound {
            what: "actions of the status page",
            total: most("admin-action", format!("{} at once", actions::ACTIONS_MAX)),
            of_address: words("only administrators start them"),
            of_one: words("50 s; one that takes longer goes on, and the page is told so"),
            next: "it is told to try again",
            shown_by: &["gateway/src/admin/actions.rs::actions_beyond_the_limit_are_refused"],
        },
    ]
}
