//! Limits of SMB clients.

use smbd_core::directory_logon;
use smbd_core::domain_logon;
use smbd_core::limits::{
    ACCOUNT_GUESSES_FREE, ASYNC_MAX, CHANNELS_MAX, DERIVING_MAX, DERIVING_PER_ADDRESS_MAX,
    DERIVING_WAIT_MAX, LOCKS_OF_FILE_PER_ADDRESS_MAX, LOCKS_OF_FILE_PER_SESSION_MAX, LOGONS_MAX,
    LOGONS_PER_ADDRESS_MAX, LOGONS_PER_CONNECTION_MAX, OPENS_MAX, OPENS_OF_FILE_PER_ADDRESS_MAX,
    OPENS_OF_FILE_PER_SESSION_MAX, OPENS_PER_ADDRESS_MAX, PIPE_BYTES_MAX,
    PIPE_BYTES_PER_ADDRESS_MAX, PIPE_CALL_WAIT, PIPE_CALL_WAIT_MAX, PIPE_CALLS_MAX,
    PIPE_CALLS_PER_ADDRESS_MAX, SESSIONS_MAX, SESSIONS_PER_ADDRESS_MAX,
    SESSIONS_PER_CONNECTION_MAX, TREES_MAX, TREES_OF_ALL_MAX, TREES_PER_ADDRESS_MAX,
    WAITS_PER_ADDRESS_MAX, WATCH_EVENT_BYTES_MAX, WATCH_EVENT_BYTES_PER_ADDRESS_MAX,
    WATCHES_PER_ADDRESS_MAX,
};
use smbd_core::{membership, owners};

use super::super::rules::{NAMES, NAMES_OF_ADDRESS};
use super::{Bound, both, most, none, words};
use crate::domain_service;

const INSUFFICIENT: &str = "STATUS_INSUFFICIENT_RESOURCES";

pub(super) fn all() -> Vec<Bound> {
    [logons(), files(), shares(), waits(), accounts(), directory(), domain()]
        .into_iter()
        .flatten()
        .collect()
}

fn logons() -> Vec<Bound> {
    vec![
        Bound {
            what: "sessions of SMB",
            total: most("sessions", SESSIONS_MAX),
            of_address: most("sessions-of-address", SESSIONS_PER_ADDRESS_MAX),
            of_one: most(
                "sessions-of-connection",
                format!("{SESSIONS_PER_CONNECTION_MAX} of a connection"),
            ),
            next: "a session without opens that sent nothing for 5 s ends for it: of the same address, or, where all are taken, \
            of the \
                   address with most, and of that one also a used session where it has more than the new one. Else \
                   STATUS_INSUFFICIENT_RESOURCES",
            shown_by: &[
                "smbd-core/src/ops/tests/logon.rs::an_address_has_its_part_of_sessions",
                "smbd-core/src/ops/tests/logon.rs::a_new_address_finds_a_session",
                "smbd-core/src/ops/tests/logon.rs::sessions_of_connection_leave_others_theirs",
            ],
        },
        Bound {
            what: "logons of SMB that have begun and not ended",
            total: most("unfinished-logons", LOGONS_MAX),
            of_address: most("unfinished-logons-of-address", LOGONS_PER_ADDRESS_MAX),
            of_one: most(
                "unfinished-logons-of-connection",
                format!("{LOGONS_PER_CONNECTION_MAX} of a connection"),
            ),
            next: "the oldest one ends, of the same connection, the same address, or the address with most; its \
                client begins again",
            shown_by: &[
                "smbd-core/src/logons.rs::an_address_gives_way_to_itself",
                "smbd-core/src/logons.rs::the_address_with_most_gives_way_to_a_new_one",
                "smbd-core/tests/pipeline/logon.rs::unfinished_logons_give_way_to_newer_ones",
            ],
        },
        Bound {
            what: "wrong passwords for one account in ten minutes, from all addresses",
            total: most(smbd_core::users::accounts::LIMIT, ACCOUNT_GUESSES_FREE),
            of_address: words("addresses from which the account was used before are not slowed"),
            of_one: none(),
            next: "all other addresses have one answer in 2 s together, and wait 20 s for it \
            ([security](security.md#passwords)); then \
                   STATUS_LOGON_FAILURE, whatever the password was",
            shown_by: &[
                "smbd-core/src/ops/tests/logon.rs::an_account_that_many_guess_answers_in_turns_and_who_was_here_before_at_once",
            ],
        },
        Bound {
            what: "connections of a session",
            total: words("bounded by `connections`"),
            of_address: words("bounded by `connections-of-address`"),
            of_one: most("connections-of-session", CHANNELS_MAX),
            next: INSUFFICIENT,
            shown_by: &[
                "smbd-core/tests/pipeline/logon.rs::channels_of_session_leave_others_theirs",
            ],
        },
    ]
}

fn files() -> Vec<Bound> {
    vec![
        Bound {
            what: "opens of SMB",
            total: most("opens", OPENS_MAX),
            of_address: most("opens-of-address", OPENS_PER_ADDRESS_MAX),
            of_one: most("opens-of-session", "`limits.client_opens`, 65536 of a session"),
            next: "STATUS_INSUFFICIENT_RESOURCES, or STATUS_TOO_MANY_OPENED_FILES for the session, before anything is made or cut. \
                   A long path counts once more for each KiB",
            shown_by: &[
                "smbd-core/src/ops/tests/create.rs::opens_of_an_address_are_counted_from_create_to_close",
                "tests/tests/watching.rs::client_limits_are_reported_by_name",
            ],
        },
        Bound {
            what: "opens of one file",
            total: words(format!("{} by all clients", state::Limits::DEFAULT.opens_per_node)),
            of_address: most(
                "opens-of-file-by-address",
                format!(
                    "{OPENS_OF_FILE_PER_ADDRESS_MAX} by SMB; {} by NFS",
                    state::Limits::DEFAULT.opens_per_host
                ),
            ),
            of_one: most(
                "opens-of-file-by-session",
                format!(
                    "{OPENS_OF_FILE_PER_SESSION_MAX} of a session; {} of an NFS client",
                    state::Limits::DEFAULT.opens_per_client
                ),
            ),
            next: "STATUS_INSUFFICIENT_RESOURCES. Other clients open the file as before. Over NFS: NFS4ERR_DELAY, not counted here",
            shown_by: &[
                "smbd-core/src/ops/tests/hold.rs::one_session_does_not_keep_others_out_of_a_file",
            ],
        },
        Bound {
            what: "byte ranges of one file that are locked over SMB",
            total: words(format!("{} by all clients", state::Limits::DEFAULT.locks_per_node)),
            of_address: most("locks-of-file-by-address", LOCKS_OF_FILE_PER_ADDRESS_MAX),
            of_one: most(
                "locks-of-file-by-session",
                format!("{LOCKS_OF_FILE_PER_SESSION_MAX} of a session"),
            ),
            next: "STATUS_INSUFFICIENT_RESOURCES. Other clients lock the file as before",
            shown_by: &[
                "smbd-core/src/ops/tests/hold.rs::one_session_does_not_keep_others_out_of_a_file",
            ],
        },
    ]
}

fn shares() -> Vec<Bound> {
    vec![
        Bound {
            what: "connections of sessions to shares",
            total: most("trees", TREES_OF_ALL_MAX),
            of_address: most("trees-of-address", TREES_PER_ADDRESS_MAX),
            of_one: most("trees-of-session", format!("{TREES_MAX} of a session")),
            next: INSUFFICIENT,
            shown_by: &[
                "smbd-core/src/ops/tests/logon.rs::an_address_has_its_part_of_trees",
                "smbd-core/src/ops/tests/logon.rs::trees_of_session_leave_others_theirs",
            ],
        },
        Bound {
            what: "folders that clients watch",
            total: most("watches", vfs::watch::WATCHES_MAX),
            of_address: most("watches-of-address", WATCHES_PER_ADDRESS_MAX),
            of_one: none(),
            next: INSUFFICIENT,
            shown_by: &[
                "smbd-core/src/ops/tests/listing.rs::an_address_has_its_part_of_the_directories_that_are_watched",
            ],
        },
        Bound {
            what: "bytes of changes that wait for the clients that watch folders",
            total: most("watch-events", format!("{} MiB", WATCH_EVENT_BYTES_MAX >> 20)),
            of_address: most(
                "watch-events-of-address",
                format!("{} MiB", WATCH_EVENT_BYTES_PER_ADDRESS_MAX >> 20),
            ),
            of_one: words(format!(
                "{} KiB and {} changes of a watch",
                vfs::watch::EVENT_BYTES_MAX >> 10,
                vfs::watch::EVENTS_MAX
            )),
            next: "the changes of the watch are dropped, and its client is told to list the folder again",
            shown_by: &[
                "smbd-core/src/ops/tests/listing.rs::an_address_has_its_part_of_the_changes_that_wait",
                "vfs/src/watch.rs::events_limited_by_room_of_client",
            ],
        },
        Bound {
            what: "folders in which watches see what other programs of this host do, counted for each watch; the watches of one \
            folder \
                   share one descriptor",
            total: most(
                "covered-folders",
                "half of the files that clients may hold open, at most 32768",
            ),
            of_address: most("covered-folders-of-address", "a quarter of that"),
            of_one: words(format!("{} of a watch", vfs::watch::COVERED_MAX)),
            next: "nothing is refused: in further folders the watch reports only changes by clients",
            shown_by: &[
                "smbd-core/src/ops/tests/listing.rs::covered_folders_count_for_their_address",
            ],
        },
        Bound {
            what: "names of folders in which clients look for a name in another case",
            total: most(NAMES, "a sixteenth of `memory`"),
            of_address: most(NAMES_OF_ADDRESS, "three quarters of that"),
            of_one: words(
                "a folder is listed once for all that look there; one address has one folder listed at a time, all have eight",
            ),
            next: "nothing is refused: the least recently used folder is forgotten, and listed again when it is needed. Of a \
                   folder with more than 262144 names, or more than fit, only so many are found in another case",
            shown_by: &["vfs/src/names.rs::indexes_fit_into_their_memory"],
        },
        Bound {
            what: "bytes that named pipes keep: of calls that are not whole, and of answers that were not read",
            total: most("pipe-bytes", format!("{} MiB", PIPE_BYTES_MAX >> 20)),
            of_address: most(
                "pipe-bytes-of-address",
                format!("{} MiB", PIPE_BYTES_PER_ADDRESS_MAX >> 20),
            ),
            of_one: none(),
            next: "STATUS_INSUFFICIENT_RESOURCES, and the pipe is disconnected",
            shown_by: &["smbd-core/src/pipe/tests.rs::an_address_has_its_part_of_pipe_bytes"],
        },
    ]
}

fn waits() -> Vec<Bound> {
    let [compressing, compressing_of_address] = smbd_core::limits::compressing();
    let seconds = PIPE_CALL_WAIT_MAX.as_secs();
    vec![
        Bound {
            what: "requests of SMB that wait: for another client, for a lock, for the end of the grace period; of a connection \
            also for \
                   changes of a folder, for pipes and for slow storage",
            total: most("waits", vfs::arbiter::PATIENT_MAX),
            of_address: most("waits-of-address", WAITS_PER_ADDRESS_MAX),
            of_one: most("waiting-requests", format!("{} of a connection", ASYNC_MAX + 1)),
            next: INSUFFICIENT,
            shown_by: &[
                "smbd-core/src/ops/tests/hold.rs::an_address_has_its_part_of_the_places_of_those_who_wait",
                "smbd-core/src/ops/tests/pipes.rs::so_many_reads_of_a_connection_wait_and_no_more",
            ],
        },
        Bound {
            what: "time for which a client may keep the notice from itself that takes an oplock or a lease back",
            total: none(),
            of_address: none(),
            of_one: both(
                most("notice-behind-answer", "1 s, by not taking the answer that grants the right"),
                most(
                    "notice-unheard",
                    "1.5 s, by acknowledging nothing of what TCP sent, three times the same sent again; where it has another \
                    connection",
                ),
            ),
            next: "the notice goes before the answer, or by the other connection, and the silent one ends",
            shown_by: &[
                "smbd-core/src/ops/tests/hold.rs::a_notice_does_not_wait_for_ever_for_an_answer_to_leave",
                "smbd-core/src/ops/tests/notices.rs::a_notice_goes_by_the_next_connection_when_nothing_is_heard_on_its_own",
            ],
        },
        Bound {
            what: "threads on which named pipes call the host, for names of users and groups",
            total: most("pipe-calls", PIPE_CALLS_MAX),
            of_address: most("pipe-calls-of-address", PIPE_CALLS_PER_ADDRESS_MAX),
            of_one: most(
                PIPE_CALL_WAIT,
                format!(
                    "{seconds} s for a turn, {seconds} s for the result; a thread keeps its turn until it ends"
                ),
            ),
            next: INSUFFICIENT,
            shown_by: &[
                "smbd-core/src/ops/tests/pipes.rs::pipe_calls_of_address_leave_threads_to_others",
            ],
        },
        Bound {
            what: "threads that compress and expand messages of more than 64 KiB",
            total: most(compressing.name, "one for each processor"),
            of_address: most(compressing_of_address.name, "half of them"),
            of_one: words(
                "90 s for a request, as for memory (`message-memory-wait`); 0.1 s for an answer",
            ),
            next: "an answer is sent as it is; the connection of a request ends, not as the fault of the client",
            shown_by: &["rdma-transport/src/turns.rs::amounts_are_waited_for_and_given_back"],
        },
        Bound {
            what: "SMB tickets in verification",
            total: most("kerberos", "4 at once"),
            of_address: words("2 at once"),
            of_one: words("5 s for a turn, and 5 s for the answer"),
            next: "STATUS_INSUFFICIENT_RESOURCES, and the client logs on again",
            shown_by: &["crates/sys/gss-sys/src/pool.rs::one_address_never_takes_all_threads"],
        },
    ]
}

fn accounts() -> Vec<Bound> {
    vec![
        Bound {
            what: "threads that derive keys for changes of passwords",
            total: most("password-keys", DERIVING_MAX),
            of_address: most("password-keys-of-address", DERIVING_PER_ADDRESS_MAX),
            of_one: words(format!(
                "{} s for a turn; 1,000,000 rounds",
                DERIVING_WAIT_MAX.as_secs()
            )),
            next: INSUFFICIENT,
            shown_by: &[
                "smbd-core/src/ops/password.rs::derivations_of_an_address_leave_threads_to_others",
            ],
        },
        Bound {
            what: "questions to the host about groups of users that log on",
            total: most(membership::LIMIT, "8 at once"),
            of_address: words("4 at once"),
            of_one: words("2 s for a turn, and 2 s for the answer"),
            next: "the user has the groups that were known",
            shown_by: &["crates/sys/gss-sys/src/pool.rs::one_address_never_takes_all_threads"],
        },
    ]
}

fn directory() -> Vec<Bound> {
    vec![
        Bound {
            what: "look-ups of users in the LDAP directory",
            total: most(directory_logon::LIMIT, "4 at once"),
            of_address: words("2 at once"),
            of_one: words(
                "3 s for a turn, and 3 s for the answer; 64 KiB in a message, 256 KiB in all, and 1,000 groups",
            ),
            next: "STATUS_LOGON_FAILURE, with the reason in the log, unless the last answer about the user is younger than \
                   a minute",
            shown_by: &[
                "crates/sys/gss-sys/src/pool.rs::one_address_never_takes_all_threads",
                "gateway/src/ldap/faults_tests.rs::faults_of_server_end_in_time",
                "smbd-core/src/directory_logon.rs::look_up_without_a_turn_is_no_silence_of_the_directory",
            ],
        },
        Bound {
            what: "users of the LDAP directory whose last answers are kept",
            total: words("8192"),
            of_address: words("names that the directory has alone take a place"),
            of_one: words("1,000 groups"),
            next: "the oldest answer is dropped: its user cannot log on while the directory is silent; sessions of the user \
                   go on, for as long as `users_from.keep` says since the answer",
            shown_by: &[
                "gateway/src/ldap/cache.rs::full_tables_forget_and_never_grow",
                "gateway/src/ldap/cache.rs::session_goes_on_though_others_have_taken_the_place_of_its_user",
            ],
        },
    ]
}

fn domain() -> Vec<Bound> {
    vec![
        Bound {
            what: "passwords of domain users that winbind is asked about",
            total: most(domain_logon::LIMIT, "8 at once"),
            of_address: words("4 at once"),
            of_one: words("10 s for a turn, and 10 s for the answer"),
            next: "STATUS_LOGON_FAILURE, with the reason in the log",
            shown_by: &["crates/sys/gss-sys/src/pool.rs::one_address_never_takes_all_threads"],
        },
        Bound {
            what: "questions whether a client's name is that of a domain, to winbind or SSSD",
            total: most(domain_logon::NAME_LIMIT, "4 at once"),
            of_address: words("2 at once"),
            of_one: words("5 s for a turn, and 5 s for the answer"),
            next: "STATUS_LOGON_FAILURE, with the reason in the log",
            shown_by: &[
                "smbd-core/src/domain_logon.rs::users_of_this_server_wait_for_no_password_of_domain",
            ],
        },
        Bound {
            what: "questions to winbind or SSSD about owners of files and numbers of callers",
            total: most(owners::LIMIT, "8 at once"),
            of_address: words("4 at once"),
            of_one: words("4 s for a turn, and 4 s for the answer; a caller waits for 1 s"),
            next: "the owner is shown as a user of this host; the caller may be any user of the domain",
            shown_by: &["crates/sys/gss-sys/src/pool.rs::one_address_never_takes_all_threads"],
        },
        Bound {
            what: "questions to winbind about passwords that have not returned",
            total: most(domain_service::PASSWORDS_LIMIT, "32"),
            of_address: most(domain_service::PASSWORDS_LIMIT_OF_ADDRESS, "16"),
            of_one: words("until the library returns"),
            next: "STATUS_LOGON_FAILURE, and if all are held, a line at /readyz",
            shown_by: &["gateway/src/domain_service/tests.rs::late_questions_leave_their_places"],
        },
        Bound {
            what: "other questions to winbind or SSSD that have not returned",
            total: most(domain_service::QUESTIONS_LIMIT, "32"),
            of_address: most(domain_service::QUESTIONS_LIMIT_OF_ADDRESS, "16"),
            of_one: words("until the library returns"),
            next: "earlier answers, otherwise as while the service is away",
            shown_by: &["gateway/src/domain_service/tests.rs::late_questions_leave_their_places"],
        },
        Bound {
            what: "questions to winbind or SSSD about names and SIDs",
            total: most(domain_service::NAMES_LIMIT, "8 at once"),
            of_address: most(domain_service::NAMES_LIMIT_OF_ADDRESS, "4 at once"),
            of_one: words("3 s for the answer"),
            next: "earlier answers, otherwise SIDs and numbers instead of names",
            shown_by: &[
                "gateway/src/domain_service/names/tests.rs::client_leaves_questions_to_others",
            ],
        },
    ]
}
