//! The NFSv4 server: state shared by all COMPOUNDs.

use std::sync::Arc;

use super::clients::Clients;
use super::names::Domain;
use crate::context::Conn;
use crate::server_state::ServerState;

pub struct Nfs4 {
    /// State shared with the other protocol versions.
    pub core: Arc<ServerState>,
    /// The clients and their state.
    pub clients: Arc<Clients>,
    /// Translates ids to names; without it, ids are sent as numbers.
    pub(super) domain: Option<Arc<Domain>>,
}

impl Nfs4 {
    /// The lease, in seconds: a client silent for longer may lose its state.
    pub fn lease_secs(&self) -> u32 {
        self.clients.lease_s()
    }

    /// Removes a closed connection from its sessions.
    pub fn connection_closed(&self, conn: &Arc<Conn>) {
        self.clients.connection_closed(conn.id);
    }
}
