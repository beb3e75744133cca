//! What all connections share, and the way a new one begins.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use iobuf::Buf;
use rdma_transport::channel::{BoxFuture, Handle, Info, ReadChunkData, Reply, Service};
use recovery::Store;
use state::Millis;
use vfs::namespace::Namespace;

use crate::caching::Leases;
use crate::compound;
use crate::conn::Conn;
use crate::creates::Creates;
use crate::interfaces::Interfaces;
use crate::logons::Logons;
use crate::open::Opens;
use crate::persist::NotRestored;
use crate::reauthorize::Taken;
use crate::session::Sessions;
use crate::settings::{Settings, ShareSettings};
use crate::users::Users;
use crate::users::accounts::Accounts;
use crate::users::logon_throttle::LogonThrottle;
use crate::violation::Violation;

/// What all connections share.
pub struct ServerState {
    /// The shares and the state of their users.
    pub namespace: Arc<Namespace>,
    settings: RwLock<Arc<Settings>>,
    /// Who may log on.
    pub users: Arc<dyn Users>,
    /// Who is logged on.
    pub sessions: Sessions,
    /// Who is logging on.
    pub logons: Arc<Logons>,
    /// What is open.
    pub opens: Opens,
    /// What is cached under keys.
    pub leases: Arc<Leases>,
    /// Creates that may be sent again.
    pub creates: Arc<Creates>,
    /// Where the server can be reached.
    pub interfaces: Interfaces,
    /// What must survive a restart; without it nothing does, and no handle is persistent.
    pub(crate) store: Option<Store>,
    /// Wrong passwords, by address.
    pub(crate) logon_throttle: Mutex<LogonThrottle>,
    pub(crate) accounts: Mutex<Accounts>,
    begun: (Instant, SystemTime),
}

impl ServerState {
    /// Over these shares.
    pub fn new(namespace: Arc<Namespace>, settings: Settings, users: Arc<dyn Users>) -> Self {
        Self {
            opens: Opens::new(namespace.clone()),
            namespace,
            settings: RwLock::new(Arc::new(settings)),
            users,
            sessions: Sessions::default(),
            logons: Arc::default(),
            leases: Arc::default(),
            creates: Arc::default(),
            interfaces: Interfaces::default(),
            store: None,
            logon_throttle: Mutex::default(),
            accounts: Mutex::default(),
            begun: (Instant::now(), SystemTime::now()),
        }
    }

    /// Keeps what must survive a restart here. [`Server::restore`] is to be called before anybody is served.
    pub fn with_store(self, store: Option<Store>) -> Self {
        Self { store, ..self }
    }

    /// Handles of a share with these settings can outlive the server (`Share.IsCA`).
    pub(crate) fn is_continuous(&self, share: &ShareSettings) -> bool {
        share.continuous && self.store.is_some()
    }

    /// What the configuration says, as it is now.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Milliseconds on the clock by which what clients hold runs.
    pub fn now(&self) -> Millis {
        self.namespace.arbiter().now()
    }

    /// How long it has run.
    pub fn since_start(&self) -> Duration {
        self.begun.0.elapsed()
    }

    /// When the server began, as a FILETIME.
    pub fn started(&self) -> u64 {
        filetime(self.begun.1)
    }

    /// The time of day as a FILETIME. Never goes back while the server runs.
    pub fn filetime(&self) -> u64 {
        filetime(self.begun.1 + self.begun.0.elapsed())
    }
}

/// 100-nanosecond intervals since 1601 (MS-DTYP section 2.3.3).
fn filetime(t: SystemTime) -> u64 {
    const UNIX_EPOCH_FILETIME: u64 = 116_444_736_000_000_000;
    let since = t.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ticks = u64::try_from(since.as_nanos() / 100).unwrap_or(u64::MAX);
    ticks.saturating_add(UNIX_EPOCH_FILETIME)
}

/// The SMB server.
#[derive(Clone)]
pub struct Server {
    core: Arc<ServerState>,
}

impl Server {
    /// A server.
    pub fn new(core: ServerState) -> Self {
        let core = Arc::new(core);
        crate::lease::attach(&core);
        Self { core }
    }

    /// Opens again what was persistent when the server ended, for clients that come back; gives how many. To be called once, before
    /// anybody is served. One handle may take as long as `limit`.
    ///
    /// # Errors
    ///
    /// The store cannot be used, or the file system of a share gives no answer.
    pub async fn restore(&self, limit: Duration) -> Result<usize, NotRestored> {
        crate::persist::restore(&self.core, limit).await
    }

    /// What all connections share.
    pub fn core(&self) -> &Arc<ServerState> {
        &self.core
    }

    /// Works by these settings from now on. Who is connected is judged by them when [`Server::reauthorize`] is called.
    pub fn set_settings(&self, settings: Settings) {
        self.core.set_settings(settings);
    }

    /// Takes from those who are logged on what they would not get any more: see [`crate::reauthorize`].
    pub async fn reauthorize(&self) -> Taken {
        crate::reauthorize::reauthorize(&self.core).await
    }

    /// To be called at the end, when all connections are gone: files that were to be removed when a client closes them, and whose
    /// client is waited for, are removed.
    pub async fn stop(&self) {
        crate::durable::stop(&self.core).await;
    }

    /// What has to happen although nobody calls; to be called about once a second.
    pub async fn tick(&self) {}

    /// A new connection. [`Connection::end`] is to be called when its channel has ended.
    pub fn connection(&self, info: Arc<Info>, handle: Handle) -> Arc<Connection> {
        let conn = Arc::new(Conn::new(info, handle));
        Arc::new(Connection { core: self.core.clone(), conn })
    }
}

/// One connection, for the serve loop.
pub struct Connection {
    core: Arc<ServerState>,
    conn: Arc<Conn>,
}

impl Connection {
    /// The connection as commands see it.
    pub fn conn(&self) -> &Arc<Conn> {
        &self.conn
    }

    /// Waits until somebody is logged on.
    pub async fn logged_on(&self) {
        self.conn.logged_on().await;
    }

    /// Something is open by a session of this connection, which the end of the connection would close or leave waiting.
    pub fn holds_opens(&self) -> bool {
        let sessions = self.conn.session_ids();
        !sessions.is_empty() && self.core.opens.any(|open| sessions.contains(&open.session_id()))
    }

    /// Ends a connection on which nobody has logged on for too long.
    pub async fn end_silent(&self) {
        Violation::Silent.end(&self.conn, "nobody logged on").await;
    }

    /// Its channel has ended: what waits is told, sessions that have no other connection end.
    pub async fn end(&self) {
        crate::dispatch::end_of_connection(&self.core, &self.conn).await;
    }
}

impl Service for Connection {
    fn call(
        &self,
        body: Buf,
        read_chunks: Vec<ReadChunkData>,
    ) -> BoxFuture<'static, Option<Reply>> {
        compound::call(self.core.clone(), self.conn.clone(), body, read_chunks)
    }
}
