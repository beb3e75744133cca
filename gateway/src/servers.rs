//! The servers that all connections share.

use std::sync::Arc;

use config::{PrivilegedPorts, Settings};
use nfsrdma::server::Server;
use nfsrdma::source_port::Asked;
use tokio::sync::Notify;
use vfs::namespace::Namespace;

use crate::pools::{kept_replies, names};
use crate::users::UserDb;

pub(crate) struct Servers {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) nfs: Arc<Server>,
    pub(crate) smb: smbd_core::server::Server,
    pub(crate) book: Arc<UserDb>,
    /// Notified after the database of users was written.
    pub(crate) users_changed: Notify,
}

impl Servers {
    /// Sets the limits of one client on the state of these servers.
    pub(crate) fn limit(&self, settings: &Settings) {
        self.nfs.set_replies_max(kept_replies(settings));
        self.namespace.names().set_memory(names(settings));
        self.nfs.core().source_ports.ask(match settings.privileged_ports {
            PrivilegedPorts::Local => Asked::Local,
            PrivilegedPorts::Required => Asked::All,
            PrivilegedPorts::Off => Asked::Nobody,
        });
        self.nfs.v4().clients.set_clients_max(settings.limits.nfs_clients);
        // An open can come with the state of a lock owner, a state of another owner, and a delegation.
        self.nfs.v4().clients.set_states_max(settings.limits.client_opens.saturating_mul(4));
    }
}
