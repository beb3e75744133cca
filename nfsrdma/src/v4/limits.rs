//! Limits of NFSv4.

/// Operations in a COMPOUND of minor version 0; sessions have a separate limit.
pub const OPS_MAX: usize = 128;
/// Longest name accepted from a request, in bytes; the volume's own limit is checked later.
pub const NAME_MAX: usize = 4096;
/// Longest target of a symbolic link, in bytes.
pub const LINKTEXT_MAX: usize = 4096;
/// Longest name of an owner, in bytes.
pub const OWNER_MAX: usize = 256;
/// Entries of an access control list that a client sets.
pub const ACES_MAX: usize = 1_024;
/// Bytes of data in one READ or WRITE.
pub const IO_MAX: usize = 1 << 20;
/// Bytes of a reply of minor version 0, RPC header included: one READ of the largest size and its surroundings.
pub const REPLY_MAX: usize = IO_MAX + 64 * 1024;
/// Bytes of an extended attribute's value (as Linux: XATTR_SIZE_MAX).
pub const XATTR_VALUE_MAX: usize = 64 * 1024;
/// Bytes that one COPY transfers before it replies; the client sends another for the rest.
pub const COPY_MAX: u64 = 64 << 20;

/// Default limit on clients, confirmed or not.
pub const CLIENTS_MAX: usize = 16_384;
/// Smallest part of the limit for one address; an eighth of the limit if that is more.
pub const CLIENTS_OF_ADDRESS_MIN: usize = 16;
/// Default limit on files that all lapsed clients together may keep open as a courtesy.
pub const COURTESY_FILES_MAX: usize = 65_536;
/// Files of lapsed clients checked for a link count of 0 in one tick.
pub const LOOKED_AT_PER_TICK: usize = 1_024;
/// Share of [`LOOKED_AT_PER_TICK`] for one client.
pub const LOOKED_AT_EACH: usize = 64;
/// Records struck from the store in one round.
pub const STRIKES_AT_ONCE: usize = 1_024;
/// A request waits this long for the store, in seconds.
pub const STORE_SECONDS_MAX: u64 = 10;
pub const SESSIONS_PER_CLIENT_MAX: usize = 64;
/// Connections bound to the backchannel of one session.
pub const BACK_CONNS_MAX: usize = 16;
/// Connections bound to the fore channel of one session, where binding is enforced.
pub const FORE_CONNS_MAX: usize = 64;
/// Slots of a session.
pub const SLOTS_MAX: u32 = 128;
/// Bytes of a reply that is kept in a slot.
pub const REPLY_CACHED_MAX: usize = 8 * 1024;
/// Largest cached reply when memory for cached replies is scarce: the size that Linux' server has always given.
pub const REPLY_CACHED_FEW: usize = 2 * 1024;
/// Smallest size of a cached reply: every operation that is not idempotent fits.
pub const REPLY_CACHED_MIN: usize = 512;
/// Default limit on the replies cached by all sessions, in bytes.
pub const REPLIES_BYTES_MAX: usize = 64 << 20;
/// Smallest useful sizes of a channel, in bytes.
pub const CHANNEL_MIN: usize = 256;
/// Operations in a COMPOUND of a session.
pub const SESSION_OPS_MAX: u32 = 128;
/// Opens, lock owners' states and delegations of one client.
pub const STATES_PER_CLIENT_MAX: usize = 262_144;
/// Open owners, and lock owners, of one client.
pub const OWNERS_PER_CLIENT_MAX: usize = 65_536;
/// Owners of either sort, of all clients of one address.
pub const OWNERS_OF_ADDRESS_MAX: usize = 2 * OWNERS_PER_CLIENT_MAX;
/// All clients of one address together may hold as many opens, lock states and delegations as this many clients.
pub const STATES_OF_ADDRESS_CLIENTS: usize = 2;
/// Delegations of all clients.
pub const DELEGATIONS_MAX: usize = 65_536;
/// Delegations of all clients of one address.
pub const DELEGATIONS_OF_ADDRESS_MAX: usize = DELEGATIONS_MAX / 4;
/// Delegated files checked in one tick for changes made on the host.
pub const WATCHED_PER_TICK: usize = 512;
/// Stateids of one TEST_STATEID checked before the task yields.
pub const TEST_STATEIDS_AT_ONCE: usize = 1_024;
/// Threads that query the directory of users and groups at the same time.
pub const NAME_QUERIES_MAX: usize = 8;
/// The part of [`NAME_QUERIES_MAX`] for one address, or IPv6 network of 64 bits.
pub const NAME_QUERIES_OF_ADDRESS_MAX: usize = NAME_QUERIES_MAX / 2;
