//! Who holds which file, for the administrator, and the end of it where the administrator says so.
//!
//! A client with sessions learns of an open or lock that was taken from it by NFS4ERR_ADMIN_REVOKED and by
//! SEQ4_STATUS_ADMIN_STATE_REVOKED, until it has freed the stateid (RFC 8881 section 8.5); one of version 4.0 by
//! NFS4ERR_BAD_STATEID, because it has no way to free one. A client that was ended as a whole has to introduce itself anew.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use state::{Caching, HolderId, Rights};
use vfs::NodeRef;

use super::client::Client;
use super::clients::Clients;
use super::name::shown;
use super::opens::Entry;

/// How a file is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Open, for reading, writing or both.
    Open(Rights),
    /// There are locks on it.
    Locked,
    /// Cached under a delegation, which may let its holder write.
    Delegated {
        /// The holder may write without telling.
        write: bool,
    },
}

/// One file that one client holds.
pub struct Holding {
    /// What `state` knows it by.
    pub holder: HolderId,
    /// How the client names itself.
    pub client: String,
    /// Where it introduced itself from.
    pub at: Option<IpAddr>,
    /// The file.
    pub node: NodeRef,
    /// How.
    pub held: Held,
}

/// Which clients the administrator means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// All at this address.
    At(IpAddr),
    /// The one that calls itself so, as [`Holding::client`] shows it.
    Named(String),
}

impl Whom {
    /// This client is meant.
    pub(crate) fn is(&self, name: &[u8], at: Option<IpAddr>) -> bool {
        match self {
            Self::At(ip) => at == Some(*ip),
            Self::Named(meant) => shown(name) == *meant,
        }
    }
}

impl Clients {
    /// What clients hold now. Looks at all of it.
    pub fn holdings(&self) -> Vec<Holding> {
        self.all().iter().flat_map(|client| of(client)).collect()
    }

    /// Ends these clients with all that they hold, as if each had said itself that it goes: durably first, so that none can reclaim
    /// after a restart what others take now. How many there were.
    pub async fn disconnect_client(&self, whom: &Whom) -> usize {
        let mut ended = 0;
        for client in self.all().iter().filter(|c| whom.is(own_name(c), c.at())) {
            // A record that cannot be written is in the log, and the client stays.
            ended += usize::from(self.leave(client).await.is_ok());
        }
        ended
    }

    /// Takes this from whoever holds it. False when nobody does any more.
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
            arbiter.acknowledge(node, holder, Caching::NONE);
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

/// Before a client's name for itself stands a byte of this server.
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
    fn a_client_is_meant_by_its_address_or_by_the_name_that_is_shown() {
        let at = IpAddr::from([192, 0, 2, 7]);
        assert!(Whom::At(at).is(b"x", Some(at)));
        assert!(
            !Whom::At(at).is(b"x", None) && !Whom::At(at).is(b"x", Some([192, 0, 2, 8].into()))
        );
        assert!(Whom::Named("a b".into()).is(b"a\nb", None));
        assert!(!Whom::Named("a".into()).is(b"a b", Some(at)));
    }
}
