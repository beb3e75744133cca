//! Lists and revokes the state of clients for the administrator.
//!
//! A client with sessions learns of a revoked open or lock from NFS4ERR_ADMIN_REVOKED and from SEQ4_STATUS_ADMIN_STATE_REVOKED,
//! until it has freed the stateid (RFC 8881 section 8.5); a client of version 4.0 from NFS4ERR_BAD_STATEID, because it cannot free
//! one. A disconnected client has to introduce itself again.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use state::{HolderId, Rights};
use vfs::NodeRef;

use super::client::Client;
use super::clients::Clients;
use super::name::shown;
use super::opens::Entry;

/// The kind of state on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Open, for reading, writing or both.
    Open(Rights),
    /// The client holds locks on it.
    Locked,
    /// A delegation.
    Delegated {
        /// True for a write delegation.
        write: bool,
    },
}

/// One file held by one client.
pub struct Holding {
    /// The number of the holder in `state`.
    pub holder: HolderId,
    /// The client's name for itself.
    pub client: String,
    /// The address from which it introduced itself.
    pub at: Option<IpAddr>,
    pub node: NodeRef,
    pub held: Held,
}

/// The clients that the administrator selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    At(IpAddr),
    /// The client of this name, as in [`Holding::client`].
    Named(String),
}

impl Whom {
    /// True if the client is selected.
    pub(crate) fn is(&self, name: &[u8], at: Option<IpAddr>) -> bool {
        match self {
            Self::At(ip) => at == Some(*ip),
            Self::Named(meant) => shown(name) == *meant,
        }
    }
}

impl Clients {
    /// Lists the state of all clients. Visits every client.
    pub fn holdings(&self) -> Vec<Holding> {
        self.all().iter().flat_map(|client| of(client)).collect()
    }

    /// Ends the selected clients with their state, as if each had sent DESTROY_CLIENTID, and returns their number. Records are
    /// struck durably first, so that no client reclaims after a restart what another has since taken.
    pub async fn disconnect_client(&self, whom: &Whom) -> usize {
        let mut ended = 0;
        for client in self.all().iter().filter(|c| whom.is(own_name(c), c.at())) {
            // If its record cannot be struck, the client stays; the log has the reason.
            ended += usize::from(self.leave(client).await.is_ok());
        }
        ended
    }

    /// Revokes the state of this holder. False if it was released meanwhile.
    pub fn take_away(&self, holder: HolderId) -> bool {
        let taken = self.all().iter().any(|client| self.take_from(client, holder));
        self.core.namespace.arbiter().released();
        taken
    }

    fn take_from(&self, client: &Arc<Client>, holder: HolderId) -> bool {
        let arbiter = self.core.namespace.arbiter();
        let table = arbiter.state();
        let mut held = client.held();
        let Some(number) = held.number_of_any(holder) else { return false };
        if let Some(Entry::Delegation(d)) = held.get_mut(number) {
            if d.revoked {
                return false;
            }
            d.revoked = true;
            let node = d.node.id();
            client.revoked.fetch_add(1, Ordering::AcqRel);
            self.delegations.fetch_sub(1, Ordering::Relaxed);
            self.counters.revoked.fetch_add(1, Ordering::Relaxed);
            drop(held);
            arbiter.close(node, holder);
            return true;
        }
        let gone = held.take_one(number, table);
        if has_sessions(client) {
            let revoked = gone.into_iter().map(|(number, what)| held.note_revoked(number, what));
            client.admin_revoked.fetch_add(revoked.count(), Ordering::AcqRel);
        }
        true
    }
}

fn has_sessions(client: &Client) -> bool {
    client.name.as_bytes().first() == Some(&1)
}

/// The name without the byte that this server puts in front.
fn own_name(client: &Client) -> &[u8] {
    client.name.as_bytes().get(1..).unwrap_or_default()
}

fn of(client: &Client) -> Vec<Holding> {
    let (name, at) = (shown(own_name(client)), client.at());
    let holding = |entry: &Entry| {
        let (party, node, held) = match entry {
            Entry::Open(o) => (&o.party, &o.node, Held::Open(o.share.access)),
            Entry::Lock(l) => (&l.party, &l.node, Held::Locked),
            Entry::Delegation(d) if d.revoked => return None,
            Entry::Delegation(d) => (&d.party, &d.node, Held::Delegated { write: d.write }),
            Entry::Closed(_) | Entry::Revoked(_) => return None,
        };
        Some(Holding { holder: party.holder, client: name.clone(), at, node: node.clone(), held })
    };
    client.held().entries().filter_map(holding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_selected_by_address_or_name() {
        let at = IpAddr::from([192, 0, 2, 7]);
        assert!(Whom::At(at).is(b"x", Some(at)));
        assert!(
            !Whom::At(at).is(b"x", None) && !Whom::At(at).is(b"x", Some([192, 0, 2, 8].into()))
        );
        assert!(Whom::Named("a b".into()).is(b"a\nb", None));
        assert!(!Whom::Named("a".into()).is(b"a b", Some(at)));
    }
}
