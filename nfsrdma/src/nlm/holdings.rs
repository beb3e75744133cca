//! What hosts hold by locks and reservations, for the administrator, and the end of it where the administrator says so. A host of
//! NFS version 3 cannot be told: a notice of a restart would have it take everything again.

use std::sync::atomic::Ordering;

use state::{HolderId, Rights};

use super::Nlm;
use super::hosts::{Host, Sort};
use crate::v4::holdings::{Held, Holding, Whom};
use crate::v4::name::shown;

impl Nlm {
    /// What hosts hold now. Looks at all of it.
    pub fn holdings(&self) -> Vec<Holding> {
        self.hosts.all().iter().flat_map(|host| self.of(host)).collect()
    }

    fn of(&self, host: &Host) -> Vec<Holding> {
        let (client, ip) = (shown(&host.key.name), host.key.ip);
        let held = host.held();
        let holding = held.iter().map(|((owner, node), held)| {
            let holder = held.party.holder;
            let how = match owner.sort {
                Sort::Lock => Held::Locked,
                Sort::Share => {
                    let access = self.core.reservations.access(ip, *node, holder);
                    Held::Open(access.unwrap_or(Rights::NONE))
                }
            };
            let (client, node) = (client.clone(), held.node.clone());
            Holding { holder, client, at: Some(ip), node, held: how }
        });
        holding.collect()
    }

    /// Ends these hosts with all that they hold and wait for: durably first, so that none reclaims after a restart what others take
    /// now. How many there were.
    pub async fn disconnect_client(&self, whom: &Whom) -> usize {
        let hosts = self.hosts.all();
        let mut ended = 0;
        for host in hosts.iter().filter(|h| whom.is(&h.key.name, Some(h.key.ip))) {
            if host.monitored.swap(false, Ordering::AcqRel)
                && let Err(e) = self.monitors.strike(&host.key).await
            {
                host.monitored.store(true, Ordering::Release);
                tracing::error!(error = %e, "a host's record cannot be removed");
                continue;
            }
            let (_, shares) = host.release(|_| true, self.core.namespace.arbiter().state());
            self.forget_waiting(host, &shares);
            ended += 1;
        }
        self.core.namespace.arbiter().released();
        ended
    }

    /// Takes this from the host that holds it. False when none does any more.
    pub fn take_away(&self, holder: HolderId) -> bool {
        let arbiter = self.core.namespace.arbiter();
        let taken = self.hosts.all().iter().any(|host| {
            let (number, shares) = host.release(|h| h.party.holder == holder, arbiter.state());
            self.forget_reservations(host, &shares);
            number > 0
        });
        arbiter.released();
        taken
    }
}
