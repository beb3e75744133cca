//! The server, and the way a new connection begins.

use std::sync::Arc;
use std::time::Duration;

use iobuf::Buf;
use rdma_transport::channel::{BoxFuture, Handle, Info, ReadChunkData, Reply, Service};

use crate::compound;
use crate::conn::Conn;
use crate::reauthorize::Taken;
use crate::restore::NotRestored;
use crate::server_state::ServerState;
use crate::settings::Settings;
use crate::violation::Violation;

/// The SMB server.
#[derive(Clone)]
pub struct Server {
    core: Arc<ServerState>,
}

impl Server {
    /// A server.
    pub fn new(core: ServerState) -> Self {
        let core = Arc::new(core);
        crate::recall::attach(&core);
        Self { core }
    }

    /// Opens again what was persistent when the server ended, for clients that come back; gives how many. To be called once, before
    /// anybody is served. One handle may take as long as `limit`.
    ///
    /// # Errors
    ///
    /// The store cannot be used, or the file system of a share gives no answer.
    pub async fn restore(&self, limit: Duration) -> Result<usize, NotRestored> {
        crate::restore::restore(&self.core, limit).await
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
        crate::teardown::stop(&self.core).await;
    }

    /// What has to happen although nobody calls; to be called about once a second.
    pub async fn tick(&self) {
        crate::persist::rewrite::tick(&self.core);
    }

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
        self.conn.session_ids().into_iter().any(|session| self.core.opens.count_of(session) > 0)
    }

    /// Ends a connection on which nobody has logged on for too long.
    pub async fn end_silent(&self) {
        Violation::Silent.end(&self.conn, "nobody logged on").await;
    }

    /// Its channel has ended: what waits is told, sessions that have no other connection end.
    pub async fn end(&self) {
        crate::teardown::end_of_connection(&self.core, &self.conn).await;
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
