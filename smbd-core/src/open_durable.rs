//! What an open has to do with durability, as data: whether it waits for its client when its connection is gone, for how long, and
//! what is known of the create that it came by (MS-SMB2 section 3.3.1.10). What is done with it is [`crate::durable`]'s.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use state::SmbLockRange;
use tokio::sync::Notify;
use vfs::NodeRef;

use mutex::locked;

type Guid = [u8; 16];

/// An open without a connection is kept for this long when its client does not say (MS-SMB2 note to 3.3.5.9.10).
pub const TIMEOUT_DEFAULT_MS: u32 = 60_000;
/// It is kept for this long at most.
pub const TIMEOUT_MAX_MS: u32 = 300_000;

/// Which sort of durable open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `SMB2_CREATE_DURABLE_HANDLE_REQUEST`
    One,
    /// `SMB2_CREATE_DURABLE_HANDLE_REQUEST_V2`
    Two,
}

/// What is known of an open's client and of the create that it came by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CreateInfo {
    /// `Open.DurableOpenTimeout`
    pub(crate) timeout_ms: u32,
    /// `Open.ClientGuid`
    pub(crate) client: Guid,
    /// Name of the account that may take it up again.
    pub(crate) owner: String,
    /// `Open.CreateGuid`.
    pub(crate) create: Option<Guid>,
    /// `Open.AppInstanceId`
    pub(crate) app_instance: Option<Guid>,
    /// `Open.ApplicationInstanceVersionHigh` and `Low`
    pub(crate) app_version: Option<(u64, u64)>,
    /// `CreateAction` of the answer, for a create that is sent again.
    pub(crate) action: u32,
}

/// How durable an open is.
#[derive(Default)]
pub(crate) struct Durability {
    /// It waits for its client when the connection is lost.
    pub(crate) version: Option<Version>,
    /// `Open.IsPersistent`
    pub(crate) persistent: bool,
    /// `Open.IsResilient`
    resilient: bool,
    /// What is known of its client and its create.
    pub(crate) facts: CreateInfo,
    /// Counts losses of the connection, so that a timer knows its own.
    losses: u64,
    /// When the last one was.
    pub(crate) lost_at: Option<Instant>,
    /// Where its client was last; of another run of the server that is not known.
    at: Option<IpAddr>,
    /// While it waits for its client, that has sent a create with the lease key of this one and another CreateGuid.
    pub(crate) sent_anew: bool,
}

/// What the record of a persistent handle says beside what it is and holds.
#[derive(Default)]
pub(crate) struct Saving {
    /// It is not to be written to the store any more.
    pub(crate) forgotten: bool,
    /// The node that is about to take the place of its file.
    pub(crate) next: Option<NodeRef>,
    /// What it has locked still, and unlocks as soon as that is written.
    pub(crate) releasing: Vec<SmbLockRange>,
    /// Places and numbers of the LOCKs that are done as soon as they are written.
    pub(crate) sequences: Vec<(usize, u8)>,
    /// How often a record was handed to the store.
    submitted: u64,
    /// The digest of the record that is in the store; `None` where another one may be.
    pub(crate) durable: Option<u64>,
}

impl Saving {
    /// A record is handed to the store: returns its number.
    pub(crate) fn submit(&mut self) -> u64 {
        self.durable = None;
        self.submitted += 1;
        self.submitted
    }

    /// The record of this number is durable. One that was handed over later may replace it.
    pub(crate) fn is_durable(&mut self, number: u64, digest: u64) {
        if self.submitted == number {
            self.durable = Some(digest);
        }
    }
}

/// What an open has to do with durability.
#[derive(Default)]
pub struct OpenDurable {
    durability: Mutex<Durability>,
    /// `Open.IsReplayEligible`
    replayable: AtomicBool,
    saving: Mutex<Saving>,
    /// Something is written, or could not be.
    pub(crate) settled: Notify,
}

impl OpenDurable {
    /// How durable it is now.
    pub(crate) fn durability(&self) -> MutexGuard<'_, Durability> {
        locked(&self.durability)
    }

    /// It waits for its client when the connection is lost.
    pub fn is_durable(&self) -> bool {
        self.durability().version.is_some()
    }

    /// Something was done with it, so its client has the answer to the create (MS-SMB2 sections 3.3.5.10 and following).
    pub fn not_replayable(&self) {
        if self.replayable.load(Ordering::Relaxed) {
            self.replayable.store(false, Ordering::Relaxed);
        }
    }

    /// Its client may not have the answer to the create.
    pub(crate) fn is_replayable(&self) -> bool {
        self.replayable.load(Ordering::Relaxed)
    }

    /// See [`OpenDurable::is_replayable`].
    pub(crate) fn set_replayable(&self) {
        self.replayable.store(true, Ordering::Relaxed);
    }

    /// Name of the account that may take it up again.
    pub fn owner(&self) -> String {
        self.durability().facts.owner.clone()
    }

    /// Where its client was last.
    pub fn at(&self) -> Option<IpAddr> {
        self.durability().at
    }

    /// Its client is here.
    pub(crate) fn note_at(&self, at: IpAddr) {
        self.durability().at = Some(at);
    }

    /// Its client.
    pub fn client(&self) -> Guid {
        self.durability().facts.client
    }

    /// It outlives the server.
    pub fn is_persistent(&self) -> bool {
        self.durability().persistent
    }

    /// It gives way to nobody while it waits for its client.
    pub fn stands(&self) -> bool {
        let durability = self.durability();
        durability.persistent || durability.resilient
    }

    pub(crate) fn facts(&self) -> CreateInfo {
        self.durability().facts.clone()
    }

    /// An open of another run of the server, whose client may send the create again or come back.
    pub(crate) fn set_persistent(&self, facts: CreateInfo) {
        let mut durability = self.durability();
        (durability.version, durability.persistent, durability.facts) =
            (Some(Version::Two), true, facts);
        self.replayable.store(true, Ordering::Relaxed);
    }

    /// MS-SMB2 section 3.3.5.15.9: it waits for its client for this long, whatever it caches.
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

    /// Held while what it is gets written, so that writes are in the order of the changes.
    pub(crate) fn saving(&self) -> MutexGuard<'_, Saving> {
        locked(&self.saving)
    }

    /// It has lost its connection: for how many milliseconds it waits for its client, and the number of this loss.
    pub(crate) fn lose_connection(&self) -> (u32, u64) {
        let mut durability = self.durability();
        durability.losses += 1;
        durability.lost_at = Some(Instant::now());
        (durability.facts.timeout_ms, durability.losses)
    }

    /// The number of its last loss of a connection.
    pub(crate) fn losses(&self) -> u64 {
        self.durability().losses
    }

    /// Client and GUID of its create, where that has one.
    pub(crate) fn create(&self) -> Option<(Guid, Guid)> {
        let durability = self.durability();
        durability.facts.create.map(|guid| (durability.facts.client, guid))
    }
}
