//! The server of version 4: what all its COMPOUNDs share.

use std::sync::Arc;

use super::clients::Clients;
use super::names::Domain;
use crate::context::Conn;
use crate::server_state::ServerState;

/// The version 4 server.
pub struct Nfs4 {
    /// What all versions share.
    pub core: Arc<ServerState>,
    /// The clients and what they hold.
    pub clients: Arc<Clients>,
    /// Where users and groups have names; without it they are numbers.
    pub(super) domain: Option<Arc<Domain>>,
}

impl Nfs4 {
    /// How long clients may be silent before their state is forgotten, in seconds.
    pub fn lease_secs(&self) -> u32 {
        self.clients.lease_s()
    }

    /// The connection has ended: it carries no session any more.
    pub fn connection_closed(&self, conn: &Arc<Conn>) {
        self.clients.connection_closed(conn.id);
    }
}
