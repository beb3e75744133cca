//! State shared by all connections: the shares, the settings and the tables of sessions, opens and leases.

use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mutex::{reading, writing};
use recovery::Store;
use state::Millis;
use vfs::namespace::Namespace;

use rdma_transport::parts::Limit;
use rdma_transport::turns::Turns;

use crate::auth::Identity;
use crate::caching::Leases;
use crate::creates::Creates;
use crate::interfaces::Interfaces;
use crate::limits::{
    self, OPENS_MAX, OPENS_PER_ADDRESS_MAX, PIPE_BYTES_MAX, PIPE_BYTES_PER_ADDRESS_MAX,
    TREES_OF_ALL_MAX, TREES_PER_ADDRESS_MAX, WAITS_PER_ADDRESS_MAX, WATCH_EVENT_BYTES_MAX,
    WATCH_EVENT_BYTES_PER_ADDRESS_MAX, WATCHES_PER_ADDRESS_MAX,
};
use crate::logons::Logons;
use crate::open::Opens;
use crate::parts::Parts;
use crate::session::Sessions;
use crate::settings::{Settings, ShareSettings};
use crate::unwritten::Unwritten;
use crate::users::Users;
use crate::users::accounts::Accounts;
use crate::users::logon_throttle::LogonThrottle;

/// State shared by all connections.
pub struct ServerState {
    /// The shares and the arbiter of their state.
    pub namespace: Arc<Namespace>,
    settings: RwLock<Arc<Settings>>,
    /// The accounts.
    pub users: Arc<dyn Users>,
    /// Sessions, including those whose logon is in progress.
    pub sessions: Sessions,
    /// Logons in progress.
    pub logons: Arc<Logons>,
    pub opens: Opens,
    /// Quota of opens by address.
    pub(crate) opens_by_address: Parts,
    /// Quota of tree connects by address.
    pub(crate) trees_by_address: Parts,
    /// Quota of requests that wait for other clients.
    pub(crate) waits_by_address: Parts,
    /// Quota of directories that clients watch.
    pub(crate) watches_by_address: Parts,
    /// Quota of bytes of changes that wait for watches.
    pub(crate) watch_events_by_address: Parts,
    /// Quota of directories in which watches see changes by other host processes.
    pub(crate) covered_by_address: Parts,
    /// Quota of bytes that pipes buffer.
    pub(crate) pipe_bytes: Parts,
    /// Threads that compress and expand messages.
    pub(crate) compressing: Arc<Turns>,
    /// Threads on which pipes call the host.
    pub(crate) pipe_calls: Arc<Turns>,
    /// Threads that derive keys from passwords.
    pub(crate) deriving: Arc<Turns>,
    /// Leases and oplocks.
    pub leases: Arc<Leases>,
    /// CREATEs that may be sent again.
    pub creates: Arc<Creates>,
    /// Addresses of the server.
    pub interfaces: Interfaces,
    /// The store of persistent handles. If it is missing, no handle is persistent and no state survives a restart.
    pub(crate) store: Option<Store>,
    /// Changes that could not be written to the store.
    pub(crate) unwritten: Unwritten,
    /// Wrong passwords, by address.
    pub(crate) logon_throttle: Mutex<LogonThrottle>,
    pub(crate) accounts: Mutex<Accounts>,
    begun: (Instant, SystemTime),
}

impl ServerState {
    /// Builds the state over these shares.
    pub fn new(namespace: Arc<Namespace>, settings: Settings, users: Arc<dyn Users>) -> Self {
        // Each watched directory may take a file descriptor.
        let covered_max = vfs::local::descriptors_max() / 2;
        Self {
            opens: Opens::new(namespace.clone()),
            namespace,
            settings: RwLock::new(Arc::new(settings)),
            users,
            sessions: Sessions::default(),
            logons: Arc::default(),
            opens_by_address: Parts::new([
                Limit::new("opens", OPENS_MAX),
                Limit::new("opens-of-address", OPENS_PER_ADDRESS_MAX),
            ]),
            trees_by_address: Parts::new([
                Limit::new("trees", TREES_OF_ALL_MAX),
                Limit::new("trees-of-address", TREES_PER_ADDRESS_MAX),
            ]),
            waits_by_address: Parts::new([
                Limit::new("waits", vfs::arbiter::PATIENT_MAX),
                Limit::new("waits-of-address", WAITS_PER_ADDRESS_MAX),
            ]),
            watches_by_address: Parts::new([
                Limit::new("watches", vfs::watch::WATCHES_MAX),
                Limit::new("watches-of-address", WATCHES_PER_ADDRESS_MAX),
            ]),
            watch_events_by_address: Parts::new([
                Limit::new("watch-events", WATCH_EVENT_BYTES_MAX),
                Limit::new("watch-events-of-address", WATCH_EVENT_BYTES_PER_ADDRESS_MAX),
            ]),
            covered_by_address: Parts::new([
                Limit::new("covered-folders", covered_max),
                Limit::new("covered-folders-of-address", covered_max / 4),
            ]),
            pipe_bytes: Parts::new([
                Limit::new("pipe-bytes", PIPE_BYTES_MAX),
                Limit::new("pipe-bytes-of-address", PIPE_BYTES_PER_ADDRESS_MAX),
            ]),
            compressing: Turns::new(limits::compressing()),
            pipe_calls: Turns::new([
                Limit::new("pipe-calls", limits::PIPE_CALLS_MAX),
                Limit::new("pipe-calls-of-address", limits::PIPE_CALLS_PER_ADDRESS_MAX),
            ]),
            deriving: Turns::new([
                Limit::new("password-keys", limits::DERIVING_MAX),
                Limit::new("password-keys-of-address", limits::DERIVING_PER_ADDRESS_MAX),
            ]),
            leases: Arc::default(),
            creates: Arc::default(),
            interfaces: Interfaces::default(),
            store: None,
            unwritten: Unwritten::default(),
            logon_throttle: Mutex::default(),
            accounts: Mutex::default(),
            begun: (Instant::now(), SystemTime::now()),
        }
    }

    /// Sets the store for state that survives a restart. Call [`Server::restore`](crate::server::Server::restore) before the first
    /// client is served.
    pub fn with_store(self, store: Option<Store>) -> Self {
        Self { store, ..self }
    }

    /// Returns whether handles of a share with these settings can outlive the server (`Share.IsCA`).
    pub(crate) fn is_continuous(&self, share: &ShareSettings) -> bool {
        share.continuous && self.store.is_some()
    }

    /// Returns the present settings.
    pub fn settings(&self) -> Arc<Settings> {
        reading(&self.settings).clone()
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        *writing(&self.settings) = Arc::new(settings);
    }

    /// Returns the names of this machine: those of its account in the domain, if it has one.
    pub(crate) fn identity(&self) -> Identity {
        let in_domain = self.users.engine().and_then(|engine| engine.machine());
        in_domain.unwrap_or_else(|| Identity::standalone(&self.settings().host))
    }

    /// Returns the milliseconds of the clock that times leases and handles.
    pub fn now(&self) -> Millis {
        self.namespace.arbiter().now()
    }

    /// Returns how long the server has run.
    pub fn since_start(&self) -> Duration {
        self.begun.0.elapsed()
    }

    /// Returns the start time of the server as a FILETIME.
    pub fn started(&self) -> u64 {
        filetime(self.begun.1)
    }

    /// Returns the time of day as a FILETIME. Never decreases while the server runs.
    pub fn filetime(&self) -> u64 {
        filetime(self.begun.1 + self.begun.0.elapsed())
    }
}

/// Converts to 100-nanosecond intervals since 1601 (MS-DTYP section 2.3.3).
fn filetime(t: SystemTime) -> u64 {
    const UNIX_EPOCH_FILETIME: u64 = 116_444_736_000_000_000;
    let since = t.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ticks = u64::try_from(since.as_nanos() / 100).unwrap_or(u64::MAX);
    ticks.saturating_add(UNIX_EPOCH_FILETIME)
}
