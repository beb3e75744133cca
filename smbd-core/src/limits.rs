//! Every limit on what a client can make this server store or do.

use std::time::Duration;

use rdma_transport::parts::Limit;

/// Bytes of one READ, WRITE or transact buffer in dialects with multi-credit requests.
pub const IO_BYTES_MAX: u32 = 8 << 20;
/// The same limit in dialects 2.0.2 and 2.1, as in Windows.
pub const IO_BYTES_MAX_2: u32 = 1 << 20;
/// The same limit in dialect 2.0.2, which has no multi-credit requests: one credit pays for 64 KiB (MS-SMB2 3.1.5.2).
pub const IO_BYTES_MAX_SINGLE: u32 = 64 << 10;
/// Bytes that one credit pays for (MS-SMB2 section 3.1.5.2).
pub const CREDIT_BYTES: u32 = 64 << 10;
/// Bytes of a message in addition to its payload: header, body, names, contexts and the transform header.
pub const MESSAGE_OVERHEAD_MAX: usize = 128 << 10;
/// Bytes of a command without variable-length parts, with its header and any padding that a client adds.
pub const FIXED_COMMAND_BYTES_MAX: usize = 4096;
/// Width of a client's window of message ids, as granted by Windows.
pub const CREDITS_MAX: u16 = 8192;
/// The same before a user has logged on.
pub const CREDITS_BEFORE_LOGON_MAX: u16 = 64;
/// The same while rates limit the connection's requests: what it sends while it waits is 16 MiB at most.
pub const CREDITS_PACED_MAX: u16 = 256;
/// Requests without a rate after which a connection that met one gets more credits again: a client of a limited share also asks for
/// attributes, and may use other shares.
pub const PACED_REQUESTS: u32 = 64;
/// The longest wait for a rate. Clients wait longer for a request with an interim answer.
pub const RATE_WAIT_MAX: Duration = Duration::from_secs(600);
/// Messages of one connection that are answered outside its serve loop; a chain counts until its end. Together with the refused one
/// these are 512, as with Windows Server.
pub const ASYNC_MAX: usize = 511;
/// Time after which a READ, WRITE, FLUSH or QUERY_DIRECTORY that waits for storage gets an interim answer, so that the client does
/// not end the connection. Clients wait at least 20 s. The programs rclone and `smb` reject interim answers, so short waits have no
/// interim answer.
pub const STORAGE_SILENT_MAX: Duration = Duration::from_secs(5);
/// Requests of one address, or IPv6 network of 64 bits, that wait for another client, for a lock or for the end of the grace
/// period.
pub const WAITS_PER_ADDRESS_MAX: usize = 1024;
/// Waiting requests of one connection beyond which a rename that must wait is answered outside the serve loop, with an interim
/// answer.
pub const SILENT_WAITS_MAX: usize = 32;
/// Storage operations that take longer than this can be cancelled with CANCEL.
pub const STORAGE_USUAL_MAX: Duration = Duration::from_millis(10);
/// Messages in one chain.
pub const CHAIN_MAX: usize = 64;
/// Bytes of one security token.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;
/// Rounds of one authentication.
pub const AUTH_ROUNDS_MAX: u32 = 10;
/// Sessions of one connection.
pub const SESSIONS_PER_CONNECTION_MAX: usize = 1024;
/// Unfinished logons of one connection; a further one replaces the oldest.
pub const LOGONS_PER_CONNECTION_MAX: usize = 4;
/// Unfinished logons of one address, or IPv6 network of 64 bits, over all its connections.
pub const LOGONS_PER_ADDRESS_MAX: usize = 256;
/// Unfinished logons of the whole server; a further one evicts the oldest logon of the address that has the most.
pub const LOGONS_MAX: usize = 4096;
/// Sessions of the whole server whose users have logged on.
pub const SESSIONS_MAX: usize = 65_536;
/// The part of [`SESSIONS_MAX`] for one address, or IPv6 network of 64 bits.
pub const SESSIONS_PER_ADDRESS_MAX: usize = 8_192;
/// A session without opens that was idle for this long may be evicted by a new one at a limit.
pub const SESSION_IDLE: Duration = Duration::from_secs(5);
/// Connections of one session (MS-SMB2 note to 3.3.5.5.2: Windows allows 32).
pub const CHANNELS_MAX: usize = 32;
/// Trees of one session.
pub const TREES_MAX: usize = 4096;
/// Trees of the whole server.
pub const TREES_OF_ALL_MAX: usize = 262_144;
/// The part of [`TREES_OF_ALL_MAX`] for one address, or IPv6 network of 64 bits.
pub const TREES_PER_ADDRESS_MAX: usize = 65_536;
/// Opens of one session, unless the configuration sets another limit (MS-SMB2 note to 3.3.1.1: Windows allows 16,384; here many
/// clients share one session).
pub const OPENS_PER_SESSION_MAX: usize = 65_536;
/// Opens of one file by one session.
pub const OPENS_OF_FILE_PER_SESSION_MAX: usize = 8_192;
/// Opens of one file by all sessions of one address, or IPv6 network of 64 bits.
pub const OPENS_OF_FILE_PER_ADDRESS_MAX: usize = 16_384;
/// Byte ranges of one file that one session has locked.
pub const LOCKS_OF_FILE_PER_SESSION_MAX: usize = 16_384;
/// Byte ranges of one file that all sessions of one address, or IPv6 network of 64 bits, have locked.
pub const LOCKS_OF_FILE_PER_ADDRESS_MAX: usize = 32_768;
/// Opens of the whole server.
pub const OPENS_MAX: usize = 1_048_576;
/// The part of [`OPENS_MAX`] for one address, or IPv6 network of 64 bits.
pub const OPENS_PER_ADDRESS_MAX: usize = 262_144;
/// Bytes of a path in UTF-16 for which an open, which keeps the path, counts once more in [`OPENS_MAX`].
pub const PATH_BYTES_OF_OPEN: usize = 1024;
/// Directories that one address, or IPv6 network of 64 bits, watches.
pub const WATCHES_PER_ADDRESS_MAX: usize = 8_192;
/// Bytes of changes that wait for the watches of all clients.
pub const WATCH_EVENT_BYTES_MAX: usize = 64 << 20;
/// The part of [`WATCH_EVENT_BYTES_MAX`] for one address, or IPv6 network of 64 bits.
pub const WATCH_EVENT_BYTES_PER_ADDRESS_MAX: usize = 8 << 20;
/// Bytes buffered for pipes of the whole server: incomplete calls and unread answers.
pub const PIPE_BYTES_MAX: usize = 128 << 20;
/// The part of [`PIPE_BYTES_MAX`] for one address, or IPv6 network of 64 bits.
pub const PIPE_BYTES_PER_ADDRESS_MAX: usize = 8 << 20;
/// Threads on which named pipes call the host, whose name service may wait for another machine.
pub const PIPE_CALLS_MAX: usize = 16;
/// The part of [`PIPE_CALLS_MAX`] for one address, or IPv6 network of 64 bits.
pub const PIPE_CALLS_PER_ADDRESS_MAX: usize = PIPE_CALLS_MAX / 2;
/// A request to a pipe waits for a thread, and then for its result, for at most this long.
pub const PIPE_CALL_WAIT_MAX: Duration = Duration::from_secs(10);
/// The name of the limit on the result.
pub const PIPE_CALL_WAIT: &str = "pipe-call-wait";
/// Threads that derive keys from passwords, each for about a second if the client wants.
pub const DERIVING_MAX: usize = 2;
/// The part of [`DERIVING_MAX`] for one address, or IPv6 network of 64 bits.
pub const DERIVING_PER_ADDRESS_MAX: usize = 1;
/// A change of a password waits for such a thread for at most this long.
pub const DERIVING_WAIT_MAX: Duration = Duration::from_secs(5);
/// Smallest answer worth compressing, as with Windows.
pub const COMPRESSED_ANSWER_MIN: usize = 4097;
/// Wrong passwords of one address within [`GUESS_WINDOW`] that are answered without delay.
pub const GUESSES_FREE: u32 = 10;
/// The minute in which wrong passwords are counted.
pub const GUESS_WINDOW: Duration = Duration::from_secs(60);
/// Delay of every SESSION_SETUP from an address with more wrong passwords.
pub const GUESS_DELAY: Duration = Duration::from_secs(2);
/// Addresses that are watched for wrong passwords.
pub const GUESSERS_MAX: usize = 4096;
/// Wrong passwords for one account within [`ACCOUNT_WINDOW`], from all addresses, that are answered without delay.
pub const ACCOUNT_GUESSES_FREE: u32 = 20;
/// The ten minutes in which they are counted.
pub const ACCOUNT_WINDOW: Duration = Duration::from_secs(600);
/// After that, the account gets one answer per this interval for addresses that it was not used from.
pub const ACCOUNT_TURN: Duration = Duration::from_secs(2);
/// A logon that would wait longer than this is refused.
pub const ACCOUNT_WAIT_MAX: Duration = Duration::from_secs(20);
/// Account names for which wrong passwords are counted.
pub const ACCOUNTS_MAX: usize = 4096;
/// Pairs of an account and an address that it was used from.
pub const KNOWN_MAX: usize = 16_384;
/// The part of [`KNOWN_MAX`] for one account.
pub const KNOWN_OF_ACCOUNT_MAX: usize = 64;

/// Limits on the threads that compress and expand messages: one for each processor, of which one address may use half.
pub fn compressing() -> [Limit; 2] {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    [
        Limit::new("compressing-threads", threads),
        Limit::new("compressing-threads-of-address", threads.div_ceil(2)),
    ]
}
