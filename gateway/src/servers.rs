//! The servers that all connections share.

use std::sync::Arc;

use config::{PrivilegedPorts, Settings};
use nfsrdma::server::Server;
use nfsrdma::source_port::Asked;
use rates::{Most, OfShare, OfUser, Plan};
use tokio::sync::Notify;
use vfs::namespace::Namespace;

use crate::pools::{kept_replies, large_payload, names};
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
    /// Puts the rates in force. Numbers of users come from the database, so it must have the users of the settings.
    fn limit_rates(&self, settings: &Settings) {
        let shares = self.namespace.shares();
        let of_shares = settings.shares.iter().filter_map(|s| {
            let share = shares.iter().find(|share| share.name == s.name)?;
            Some(OfShare { id: share.id, name: s.name.clone(), rates: s.limits })
        });
        let of_users = settings.users.iter().map(|user| {
            // A number that is the gateway's own, or made of the name, is no user's of NFS.
            let known = self.book.known(&user.name).filter(|(_, is_known)| *is_known);
            let uid = known.map(|(cred, _)| cred.uid);
            OfUser { name: user.name.clone(), uid, rates: user.limits }
        });
        let plan = Plan {
            all: settings.limits.all,
            client: settings.limits.client,
            shares: of_shares.filter(|s| !s.rates.is_empty()).collect(),
            users: of_users.filter(|u| !u.rates.is_empty()).collect(),
        };
        self.namespace.limits.set(plan, Most::of_memory(large_payload(settings)));
    }

    /// Sets the limits of one client on the state of these servers.
    pub(crate) fn limit(&self, settings: &Settings) {
        self.nfs.set_replies_max(kept_replies(settings));
        self.namespace.names().set_memory(names(settings));
        self.nfs.core().source_ports.ask(match settings.privileged_ports {
            PrivilegedPorts::Local => Asked::Local,
            PrivilegedPorts::Required => Asked::All,
            PrivilegedPorts::Off => Asked::Nobody,
        });
        self.limit_rates(settings);
        self.nfs.v4().clients.set_clients_max(settings.limits.nfs_clients);
        // An open can come with the state of a lock owner, a state of another owner, and a delegation.
        self.nfs.v4().clients.set_states_max(settings.limits.client_opens.saturating_mul(4));
    }
}
