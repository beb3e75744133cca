//! Durability of an open, as data: whether and how long it waits for its client after its connection is lost, and the facts of the
//! CREATE that made it (MS-SMB2 section 3.3.1.10). The operations are in [`crate::durable`].

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use state::SmbLockRange;
use tokio::sync::Notify;
use vfs::NodeRef;

use mutex::locked;

type Guid = [u8; 16];

/// How long an open without a connection is kept if its client names no timeout (MS-SMB2 note to 3.3.5.9.10).
pub const TIMEOUT_DEFAULT_MS: u32 = 60_000;
/// The longest timeout that a client can get.
pub const TIMEOUT_MAX_MS: u32 = 300_000;

/// The version of the durable handle request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `SMB2_CREATE_DURABLE_HANDLE_REQUEST`
    One,
    /// `SMB2_CREATE_DURABLE_HANDLE_REQUEST_V2`
    Two,
}

/// The client of an open and the facts of its CREATE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CreateInfo {
    /// `Open.DurableOpenTimeout`
    pub(crate) timeout_ms: u32,
    /// `Open.ClientGuid`
    pub(crate) client: Guid,
    /// Name of the account that may reclaim it.
    pub(crate) owner: String,
    /// `Open.CreateGuid`.
    pub(crate) create: Option<Guid>,
    /// `Open.AppInstanceId`
    pub(crate) app_instance: Option<Guid>,
    /// `Open.ApplicationInstanceVersionHigh` and `Low`
    pub(crate) app_version: Option<(u64, u64)>,
    /// `CreateAction` of the answer, for a CREATE that is sent again.
    pub(crate) action: u32,
}

#[derive(Default)]
pub(crate) struct Durability {
    /// Set if the open waits for its client when the connection is lost.
    pub(crate) version: Option<Version>,
    /// `Open.IsPersistent`
    pub(crate) persistent: bool,
    /// `Open.IsResilient`
    resilient: bool,
    /// Facts about its client and its CREATE.
    pub(crate) facts: CreateInfo,
    /// Counts connection losses, so that a timer recognizes the loss that started it.
    losses: u64,
    /// When the last loss was.
    pub(crate) lost_at: Option<Instant>,
    /// The client's last address; unknown for an open of an earlier run of the server.
    at: Option<IpAddr>,
    /// Set if, while the open waited for its client, that client sent a CREATE with the same lease key and another CreateGuid.
    pub(crate) sent_anew: bool,
}

/// State of a persistent handle's record that the open itself does not hold.
#[derive(Default)]
pub(crate) struct Saving {
    /// The record must not be written to the store any more.
    pub(crate) forgotten: bool,
    /// The node that is about to replace the node of its file.
    pub(crate) next: Option<NodeRef>,
    /// Ranges that are still locked and are unlocked once the record says so.
    pub(crate) releasing: Vec<SmbLockRange>,
    /// Slots and numbers of LOCKs that count as done once the record is written.
    pub(crate) sequences: Vec<(usize, u8)>,
    /// How many records were handed to the store.
    submitted: u64,
    /// The digest of the record in the store; `None` if the store may have another record.
    pub(crate) durable: Option<u64>,
}

impl Saving {
    /// Notes that a record is handed to the store, and returns its number.
    pub(crate) fn submit(&mut self) -> u64 {
        self.durable = None;
        self.submitted += 1;
        self.submitted
    }

    /// Notes that the record with this number is durable. A later record may still replace it.
    pub(crate) fn is_durable(&mut self, number: u64, digest: u64) {
        if self.submitted == number {
            self.durable = Some(digest);
        }
    }
}

/// The durability state of an open.
#[derive(Default)]
pub struct OpenDurable {
    durability: Mutex<Durability>,
    /// `Open.IsReplayEligible`
    replayable: AtomicBool,
    saving: Mutex<Saving>,
    /// Notified when a write to the store has ended, successfully or not.
    pub(crate) settled: Notify,
}

impl OpenDurable {
    /// Locks and returns the durability.
    pub(crate) fn durability(&self) -> MutexGuard<'_, Durability> {
        locked(&self.durability)
    }

    /// Returns whether it waits for its client when the connection is lost.
    pub fn is_durable(&self) -> bool {
        self.durability().version.is_some()
    }

    /// Ends the replay of its CREATE: a command used the open, so the client has the answer to the CREATE (MS-SMB2 sections
    /// 3.3.5.10 and following).
    pub fn not_replayable(&self) {
        if self.replayable.load(Ordering::Relaxed) {
            self.replayable.store(false, Ordering::Relaxed);
        }
    }

    /// Returns whether the client may lack the answer to the CREATE.
    pub(crate) fn is_replayable(&self) -> bool {
        self.replayable.load(Ordering::Relaxed)
    }

    /// See [`OpenDurable::is_replayable`].
    pub(crate) fn set_replayable(&self) {
        self.replayable.store(true, Ordering::Relaxed);
    }

    /// Returns the name of the account that may reclaim it.
    pub fn owner(&self) -> String {
        self.durability().facts.owner.clone()
    }

    /// Returns the client's last address.
    pub fn at(&self) -> Option<IpAddr> {
        self.durability().at
    }

    /// Records the client's address.
    pub(crate) fn note_at(&self, at: IpAddr) {
        self.durability().at = Some(at);
    }

    pub fn client(&self) -> Guid {
        self.durability().facts.client
    }

    /// Returns whether it outlives the server.
    pub fn is_persistent(&self) -> bool {
        self.durability().persistent
    }

    /// Returns whether no conflicting request can close it while it waits for its client.
    pub fn stands(&self) -> bool {
        let durability = self.durability();
        durability.persistent || durability.resilient
    }

    pub(crate) fn facts(&self) -> CreateInfo {
        self.durability().facts.clone()
    }

    /// Restores an open of an earlier run of the server, whose client may replay the CREATE or reconnect.
    pub(crate) fn set_persistent(&self, facts: CreateInfo) {
        let mut durability = self.durability();
        (durability.version, durability.persistent, durability.facts) =
            (Some(Version::Two), true, facts);
        self.replayable.store(true, Ordering::Relaxed);
    }

    /// Makes it resilient: it waits this long for its client, whatever it caches (MS-SMB2 section 3.3.5.15.9).
    pub(crate) fn set_resilient(&self, client: Guid, owner: String, timeout_ms: u32) {
        let mut durability = self.durability();
        durability.resilient = true;
        durability.version.get_or_insert(Version::One);
        (durability.facts.client, durability.facts.owner) = (client, owner);
        durability.facts.timeout_ms = match timeout_ms {
            0 => TIMEOUT_DEFAULT_MS,
            ms => ms,
        };
    }

    /// Locks the record's state; held while a record is written, so that writes are in the order of the changes.
    pub(crate) fn saving(&self) -> MutexGuard<'_, Saving> {
        locked(&self.saving)
    }

    /// Records a lost connection. Returns the milliseconds to wait for the client, and the number of this loss.
    pub(crate) fn lose_connection(&self) -> (u32, u64) {
        let mut durability = self.durability();
        durability.losses += 1;
        durability.lost_at = Some(Instant::now());
        (durability.facts.timeout_ms, durability.losses)
    }

    /// Returns the number of the last loss of its connection.
    pub(crate) fn losses(&self) -> u64 {
        self.durability().losses
    }

    /// Returns the client and the CreateGuid, if the CREATE had one.
    pub(crate) fn create(&self) -> Option<(Guid, Guid)> {
        let durability = self.durability();
        durability.facts.create.map(|guid| (durability.facts.client, guid))
    }
}
