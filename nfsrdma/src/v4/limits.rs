//! The numbers of NFS version 4.

/// Operations in a COMPOUND of minor version 0; sessions say their own limit.
pub const OPS_MAX: usize = 128;
/// Bytes of a name in a request, before the volume's own limit is asked.
pub const NAME_MAX: usize = 4096;
/// Bytes of a link's target.
pub const LINKTEXT_MAX: usize = 4096;
/// Bytes of an owner's name.
pub const OWNER_MAX: usize = 256;
/// Entries of an access control list that a client sets.
pub const ACES_MAX: usize = 1_024;
/// Bytes of data in one READ or WRITE.
pub const IO_MAX: usize = 1 << 20;
/// Bytes of a reply of minor version 0, RPC header included: one READ of the largest size and its surroundings.
pub const REPLY_MAX: usize = IO_MAX + 64 * 1024;
/// Bytes of an extended attribute's value (as Linux: XATTR_SIZE_MAX).
pub const XATTR_VALUE_MAX: usize = 64 * 1024;
/// Bytes that one COPY does before it answers; the client goes on from there.
pub const COPY_MAX: u64 = 64 << 20;

/// Clients that are known, confirmed or not, when nothing else is said.
pub const CLIENTS_MAX: usize = 16_384;
/// Clients that may come from one address, at least; more where an eighth of all is more.
pub const CLIENTS_OF_ADDRESS_MIN: usize = 16;
/// Files that silent clients may keep open as a courtesy, all together, when nothing else is said.
pub const COURTESY_FILES_MAX: usize = 65_536;
/// Files of lapsed clients that are looked at in one tick for having lost their last name, ...
pub const LOOKED_AT_PER_TICK: usize = 1_024;
/// ... and of one client.
pub const LOOKED_AT_EACH: usize = 64;
/// Records that are struck from the store in one round.
pub const STRIKES_AT_ONCE: usize = 1_024;
/// A request waits this long for the store, in seconds.
pub const STORE_SECONDS_MAX: u64 = 10;
/// Sessions of one client.
pub const SESSIONS_PER_CLIENT_MAX: usize = 64;
/// Connections bound to the backchannel of one session.
pub const BACK_CONNS_MAX: usize = 16;
/// Connections bound to the fore channel of one session, where binding is enforced.
pub const FORE_CONNS_MAX: usize = 64;
/// Slots of a session.
pub const SLOTS_MAX: u32 = 128;
/// Bytes of a reply that is kept in a slot.
pub const REPLY_CACHED_MAX: usize = 8 * 1024;
/// The same while memory for kept replies is scarce: what the Linux server has always given.
pub const REPLY_CACHED_FEW: usize = 2 * 1024;
/// The least, which the reply of every operation that must not be repeated fits into.
pub const REPLY_CACHED_MIN: usize = 512;
/// Memory for the replies that all sessions keep, in bytes, when nothing else is said.
pub const REPLIES_BYTES_MAX: usize = 64 << 20;
/// Smallest sizes of a channel that can carry anything, in bytes.
pub const CHANNEL_MIN: usize = 256;
/// Operations in a COMPOUND of a session.
pub const SESSION_OPS_MAX: u32 = 128;
/// Opens, lock owners' states and delegations of one client.
pub const STATES_PER_CLIENT_MAX: usize = 262_144;
/// Open owners, and lock owners, of one client.
pub const OWNERS_PER_CLIENT_MAX: usize = 65_536;
/// Owners of either sort, of all clients of one address.
pub const OWNERS_OF_ADDRESS_MAX: usize = 2 * OWNERS_PER_CLIENT_MAX;
/// All clients of one address hold as many opens, states and delegations as so many may.
pub const STATES_OF_ADDRESS_CLIENTS: usize = 2;
/// Delegations of all clients.
pub const DELEGATIONS_MAX: usize = 65_536;
/// Of these, delegations of all clients of one address.
pub const DELEGATIONS_OF_ADDRESS_MAX: usize = DELEGATIONS_MAX / 4;
/// Delegated files that are looked at in one tick for changes made outside.
pub const WATCHED_PER_TICK: usize = 512;
/// Stateids of one TEST_STATEID that are looked at before other requests have their turn.
pub const TEST_STATEIDS_AT_ONCE: usize = 1_024;
