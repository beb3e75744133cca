//! The server, and the start of a new connection.

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

#[derive(Clone)]
pub struct Server {
    core: Arc<ServerState>,
}

impl Server {
    pub fn new(core: ServerState) -> Self {
        let core = Arc::new(core);
        crate::recall::attach(&core);
        Self { core }
    }

    /// Reopens the handles that were persistent when the server ended, for clients that reconnect, and returns their number. Call
    /// it once, before the first client is served. `limit`: the longest time for one handle.
    ///
    /// # Errors
    ///
    /// The store cannot be used, or the file system of a share does not answer.
    pub async fn restore(&self, limit: Duration) -> Result<usize, NotRestored> {
        crate::restore::restore(&self.core, limit).await
    }

    /// Returns the state shared by all connections.
    pub fn core(&self) -> &Arc<ServerState> {
        &self.core
    }

    /// Replaces the settings. [`Server::reauthorize`] applies them to existing sessions.
    pub fn set_settings(&self, settings: Settings) {
        self.core.set_settings(settings);
    }

    /// Revokes access that the settings no longer grant: see [`crate::reauthorize`].
    pub async fn reauthorize(&self) -> Taken {
        crate::reauthorize::reauthorize(&self.core).await
    }

    /// Removes files that wait for the close of a disconnected client's handle. Call it at the end, when all connections have
    /// ended.
    pub async fn stop(&self) {
        crate::teardown::stop(&self.core).await;
    }

    /// Performs periodic work; call it about once a second.
    pub async fn tick(&self) {
        crate::persist::rewrite::tick(&self.core);
    }

    /// Starts a connection. Call [`Connection::end`] when its channel has ended.
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
    /// Returns the connection as commands see it.
    pub fn conn(&self) -> &Arc<Conn> {
        &self.conn
    }

    /// Waits until a user is logged on.
    pub async fn logged_on(&self) {
        self.conn.logged_on().await;
    }

    /// Returns whether a session of this connection has opens, which the end of the connection would close or leave waiting.
    pub fn holds_opens(&self) -> bool {
        self.conn.session_ids().into_iter().any(|session| self.core.opens.count_of(session) > 0)
    }

    /// Ends a connection on which no user has logged on in time.
    pub async fn end_silent(&self) {
        Violation::Silent.end(&self.conn, "nobody logged on").await;
    }

    /// Cleans up after its channel has ended: ends waiting requests, and sessions without another connection.
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
