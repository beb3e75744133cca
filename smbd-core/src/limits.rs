//! Every number that bounds what a client can make this server keep or do.

use std::time::Duration;

/// Bytes of one READ, WRITE or transact buffer in dialects with multi-credit requests.
pub const IO_BYTES_MAX: u32 = 8 << 20;
/// The same in dialects 2.0.2 and 2.1 (what Windows offers there).
pub const IO_BYTES_MAX_2: u32 = 1 << 20;
/// The same in dialect 2.0.2, which has no multi-credit requests: one credit pays for 64 KiB (MS-SMB2 3.1.5.2).
pub const IO_BYTES_MAX_SINGLE: u32 = 64 << 10;
/// Bytes that one credit pays for (MS-SMB2 section 3.1.5.2).
pub const CREDIT_BYTES: u32 = 64 << 10;
/// Bytes of a whole message beside its payload: header, body, names, contexts and the transform header.
pub const MESSAGE_OVERHEAD_MAX: usize = 128 << 10;
/// Bytes of a command without any part of variable length, with its header and whatever padding a client puts behind it.
pub const FIXED_COMMAND_BYTES_MAX: usize = 4096;
/// Message ids that a client may have ready for use: the width of its window. What Windows grants.
pub const CREDITS_MAX: u16 = 8192;
/// The same before somebody has logged on.
pub const CREDITS_BEFORE_LOGON_MAX: u16 = 64;
/// Messages of one connection that are answered apart from its serve loop, of a chain until its end: with the one that is refused
/// 512, as with Windows Server.
pub const ASYNC_MAX: usize = 511;
/// Time after which a READ, WRITE, FLUSH or QUERY_DIRECTORY that waits for storage gets an interim answer, so that the client does
/// not end the connection. Clients wait at least 20 s. The programs rclone and `smb` refuse an interim answer, so short waits have
/// none.
pub const STORAGE_SILENT_MAX: Duration = Duration::from_secs(5);
/// Requests that wait for another client, for a lock or for the end of the grace period, of one address, or IPv6 network of 64
/// bits.
pub const WAITS_PER_ADDRESS_MAX: usize = 1024;
/// Requests of one connection that wait, beyond which a rename that has to wait as well is answered apart, with an interim answer.
pub const SILENT_WAITS_MAX: usize = 32;
/// Storage that takes longer than this can be given up by CANCEL.
pub const STORAGE_USUAL_MAX: Duration = Duration::from_millis(10);
/// Messages in one chain.
pub const CHAIN_MAX: usize = 64;
/// Bytes of one security token.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;
/// Rounds of one authentication.
pub const AUTH_ROUNDS_MAX: u32 = 10;
/// Sessions of one connection.
pub const SESSIONS_PER_CONNECTION_MAX: usize = 1024;
/// Logons of one connection that have begun and not ended; a further one takes the place of the oldest.
pub const LOGONS_PER_CONNECTION_MAX: usize = 4;
/// The same of one address, or IPv6 network of 64 bits, by all its connections.
pub const LOGONS_PER_ADDRESS_MAX: usize = 256;
/// The same of the whole server: the oldest one of the address that has most gives way.
pub const LOGONS_MAX: usize = 4096;
/// Sessions of the whole server whose users have logged on.
pub const SESSIONS_MAX: usize = 65_536;
/// Of these, sessions of one address, or IPv6 network of 64 bits.
pub const SESSIONS_PER_ADDRESS_MAX: usize = 8_192;
/// A session without opens that was not used for so long gives way to a new one where a limit is met.
pub const SESSION_IDLE: Duration = Duration::from_secs(5);
/// Connections of one session (MS-SMB2 note to 3.3.5.5.2: Windows allows 32).
pub const CHANNELS_MAX: usize = 32;
/// Trees of one session.
pub const TREES_MAX: usize = 4096;
/// Trees of the whole server.
pub const TREES_OF_ALL_MAX: usize = 262_144;
/// Of these, trees of one address, or IPv6 network of 64 bits.
pub const TREES_PER_ADDRESS_MAX: usize = 65_536;
/// Opens of one session, where the configuration says nothing else (MS-SMB2 note to 3.3.1.1: Windows allows 16,384; many clients
/// share one session here).
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
/// Of these, opens of one address, or IPv6 network of 64 bits.
pub const OPENS_PER_ADDRESS_MAX: usize = 262_144;
/// Directories that one address, or IPv6 network of 64 bits, watches.
pub const WATCHES_PER_ADDRESS_MAX: usize = 8_192;
/// Bytes that pipes of the whole server keep: of calls that are not whole, and of answers that were not read.
pub const PIPE_BYTES_MAX: usize = 128 << 20;
/// Of these, bytes of one address, or IPv6 network of 64 bits.
pub const PIPE_BYTES_PER_ADDRESS_MAX: usize = 8 << 20;
/// Bytes of compressed messages of more than 64 KiB that are expanded, until their commands are done.
pub const EXPANDED_BYTES_MAX: usize = 128 << 20;
/// Of these, bytes of one address, or IPv6 network of 64 bits.
pub const EXPANDED_BYTES_PER_ADDRESS_MAX: usize = 32 << 20;
/// A compressed message that waits longer for memory, or for a thread, ends its connection.
pub const EXPANSION_WAIT_MAX: Duration = Duration::from_secs(90);
/// Bytes of an answer that are worth compressing, as with Windows.
pub const COMPRESSED_ANSWER_MIN: usize = 4097;
/// Wrong passwords of one address in [`GUESS_WINDOW`] that are answered at once.
pub const GUESSES_FREE: u32 = 10;
/// The minute in which wrong passwords are counted.
pub const GUESS_WINDOW: Duration = Duration::from_secs(60);
/// How long every SESSION_SETUP of an address waits that guessed more often.
pub const GUESS_DELAY: Duration = Duration::from_secs(2);
/// Addresses that are watched for wrong passwords.
pub const GUESSERS_MAX: usize = 4096;
/// Wrong passwords for one account in [`ACCOUNT_WINDOW`], from all addresses, that are answered at once.
pub const ACCOUNT_GUESSES_FREE: u32 = 20;
/// The ten minutes in which they are counted.
pub const ACCOUNT_WINDOW: Duration = Duration::from_secs(600);
/// Then an account has one answer in this time for addresses that it was not used from.
pub const ACCOUNT_TURN: Duration = Duration::from_secs(2);
/// Who would wait longer for an answer is refused.
pub const ACCOUNT_WAIT_MAX: Duration = Duration::from_secs(20);
/// Names for which wrong passwords are counted.
pub const ACCOUNTS_MAX: usize = 4096;
/// Pairs of an account and an address that it was used from.
pub const KNOWN_MAX: usize = 16_384;
/// Of these, pairs of one account.
pub const KNOWN_OF_ACCOUNT_MAX: usize = 64;
