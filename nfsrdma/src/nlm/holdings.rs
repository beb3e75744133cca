//! Lists and ends the locks and reservations of hosts for the administrator. NFSv3 cannot report the loss to the host: a notice of
//! restart would make it reclaim everything.

use std::sync::atomic::Ordering;

use state::{HolderId, Rights};

use super::Nlm;
use super::hosts::{Host, Sort};
use crate::v4::holdings::{Held, Holding, Whom};
use crate::v4::name::shown;

impl Nlm {
    /// Lists the holdings of all hosts. Visits every host.
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

    /// Ends these hosts with their locks and waiting requests, and returns their number. Their records are struck durably first, so
    /// that no host reclaims after a restart a lock that another client has since taken.
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

    /// Takes this lock or reservation from its host. False if it was released meanwhile.
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
