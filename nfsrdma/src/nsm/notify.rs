//! Tells the hosts that held locks that the server was restarted (SM_NOTIFY, X/Open XNFS section 11.2.7).
//!
//! *Operation.* All at once, each again and again with growing pauses until it has answered, for at most
//! [`limits::NOTIFY_SECONDS_MAX`]. A host that has answered and taken nothing back when the grace period is over, or that never
//! answered, is struck from the list.
//!
//! The notice names this server by the address by which the host called it, and comes from there: that is what status monitors
//! compare.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use nfs_proto::nsm::StatChge;
use nfs_proto::xdr::encode;
use tokio::time::{Instant, sleep};

use super::{VERSION, procedure};
use crate::nlm::{Monitored, Nlm, limits};
use crate::rpc::callee::Callee;
use crate::rpc::outgoing::Route;
use crate::rpc::program;

impl Nlm {
    /// Tells everybody who held something before the restart. To be called once, when this server can be reached.
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
        let until = Instant::now() + Duration::from_secs(limits::NOTIFY_SECONDS_MAX);
        let mut pause = limits::AGAIN_MS;
        loop {
            match route.call(self.options.rpcbind_port, callee, &args).await {
                Ok(_) => {
                    self.counters.notified.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(e) => tracing::debug!(host = %host.key.ip, error = %e, "SM_NOTIFY"),
            }
            if Instant::now() + Duration::from_millis(pause) > until {
                tracing::warn!(
                    host = %host.key.ip,
                    "a client with NFSv3 locks could not be notified of the restart; is its rpcbind reachable?"
                );
                return;
            }
            sleep(Duration::from_millis(pause)).await;
            pause = (pause * 2).min(limits::AGAIN_MS_MAX);
        }
    }

    /// Those who did not come back hold nothing any more.
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
