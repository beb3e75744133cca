//! Notifies hosts that held locks of the server's restart (SM_NOTIFY, X/Open XNFS section 11.2.7).
//!
//! *Operation.* All hosts are notified concurrently, each with growing pauses until it answers, for at most
//! [`limits::NOTIFY_SECONDS_MAX`]. A host that never answered, or that answered but reclaimed no lock by the end of the grace
//! period, is removed from the list.
//!
//! The notice names the server by the address that the host uses, and is sent from it: status monitors compare that.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use nfs_proto::nsm::StatChge;
use nfs_proto::xdr::encode;
use tokio::time::sleep;

use super::{VERSION, procedure};
use crate::nlm::patience::Patience;
use crate::nlm::{Monitored, Nlm, limits};
use crate::rpc::callee::Callee;
use crate::rpc::outgoing::Route;
use crate::rpc::program;

impl Nlm {
    /// Notifies every host that held locks before the restart. Called once, when this server is reachable.
    pub async fn notify_all(self: Arc<Self>) {
        let hosts = match self.monitors.all() {
            Ok(hosts) => hosts,
            Err(e) => {
                return tracing::error!(error = %e, "clients with NFSv3 locks are not notified of the restart");
            }
        };
        if hosts.is_empty() {
            return;
        }
        tracing::info!(
            hosts = hosts.len(),
            "notifying clients with NFSv3 locks that they may reclaim them"
        );
        let me = &self;
        stream::iter(hosts)
            .for_each_concurrent(limits::NOTIFIES_AT_ONCE, |host| async move {
                me.notify(&host).await;
            })
            .await;
        while self.in_grace() {
            sleep(Duration::from_secs(1)).await;
        }
        self.strike_absent().await;
    }

    async fn notify(&self, host: &Monitored) {
        let name = host.local.to_string();
        let change = StatChge { mon_name: name.as_bytes(), state: self.state_number() };
        let args = encode(&change);
        let callee =
            Callee { program: program::NSM, version: VERSION, procedure: procedure::NOTIFY };
        let route = Route::new(host.key.ip, host.local);
        let mut patience = Patience::new(limits::NOTIFY_SECONDS_MAX);
        loop {
            match route.call(self.options.rpcbind_port, callee, &args).await {
                Ok(_) => {
                    self.counters.notified.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(e) => {
                    patience.failed(&e);
                    tracing::debug!(host = %host.key.ip, error = %e, "SM_NOTIFY");
                }
            }
            let Some(pause) = patience.pause() else {
                tracing::warn!(
                    host = %host.key.ip,
                    "a client with NFSv3 locks could not be notified of the restart; {}", patience.advice()
                );
                return;
            };
            sleep(pause).await;
        }
    }

    /// Hosts that did not reclaim have lost their locks, so their records are removed.
    async fn strike_absent(&self) {
        let hosts = match self.monitors.all() {
            Ok(hosts) => hosts,
            Err(e) => return tracing::error!(error = %e, "records of hosts cannot be read"),
        };
        for host in hosts {
            if self.is_known(&host.key) {
                continue;
            }
            if let Err(e) = self.monitors.strike(&host.key).await {
                tracing::error!(error = %e, "a host's record cannot be removed");
            }
        }
    }
}
