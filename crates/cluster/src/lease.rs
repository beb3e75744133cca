//! The lease of a node in etcd, with which all of the node's ownerships end.
//!
//! *Operation.* [`keep`] starts a thread that requests a lease from etcd and renews it every third of its TTL. If the lease ends,
//! it requests a new one, under which services are elected again. The thread has its own runtime and no other work, so that a
//! service that blocks threads cannot delay a renewal.
//!
//! *Time.* The lease counts from the time when the last answered renewal was sent ([`Hold`]).
//!
//! *Errors.* A failed renewal is retried until the hold is over. The lease is not revoked then, so that it keeps other nodes away
//! while the services of this node stop.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::etcd::Etcd;
use crate::hold::{Hold, now};
use crate::outage;

/// A granted lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Number of the lease in etcd.
    pub(crate) id: u64,
    /// The time until which the node may act.
    pub(crate) hold: Hold,
}

/// The current lease of the node; `None` while it has no lease.
pub(crate) type LeaseWatch = watch::Receiver<Option<Lease>>;

/// Keeps a lease until all receivers are dropped.
pub(crate) fn keep(etcd: Arc<Etcd>, ttl: Duration) -> io::Result<LeaseWatch> {
    let (lease, leased) = watch::channel(None);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let keep = move || {
        runtime.block_on(async {
            tokio::select! {
                () = forever(&etcd, ttl, &lease) => {}
                () = lease.closed() => {}
            }
        });
        // Do not wait for a name look-up of an endpoint.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("lease".into()).spawn(keep)?;
    Ok(leased)
}

async fn forever(etcd: &Etcd, ttl: Duration, lease: &watch::Sender<Option<Lease>>) {
    loop {
        // Count from here, because the lease cannot begin earlier in etcd.
        let hold = Hold::new(ttl, now());
        match etcd.grant(ttl).await {
            Ok(id) => {
                lease.send_replace(Some(Lease { id, hold }));
                renew(etcd, ttl, Lease { id, hold }, lease).await;
                lease.send_replace(None);
                tracing::error!(
                    "the lease of this node was not renewed in time: all its services stop"
                );
            }
            Err(e) => {
                if outage::is_news("lease", "") {
                    tracing::warn!("this node has no lease: {e}");
                }
                sleep(ttl / 10).await;
            }
        }
    }
}

/// Renews a lease until its hold is over or etcd has ended it.
async fn renew(
    etcd: &Etcd,
    ttl: Duration,
    Lease { id, mut hold }: Lease,
    lease: &watch::Sender<Option<Lease>>,
) {
    let mut pause = ttl / 3;
    loop {
        sleep(pause.min(hold.left(now()))).await;
        let sent = now();
        match timeout(hold.left(sent), etcd.keep_alive(id)).await {
            Ok(Ok(true)) => {
                hold.renewed(sent);
                lease.send_replace(Some(Lease { id, hold }));
                pause = ttl / 3;
            }
            Ok(Err(e)) => {
                if outage::is_news("renewal", "") {
                    tracing::warn!("the lease of this node was not renewed: {e}");
                }
                pause = ttl / 20;
            }
            Ok(Ok(false)) | Err(_) => return,
        }
    }
}
