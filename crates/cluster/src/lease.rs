//! The lease of a node in etcd, with which everything ends that the node owns.
//!
//! *Operation.* [`keep`] has a thread ask etcd for a lease and renew it every third of its TTL. A lease that ended is followed by a
//! new one, under which services are elected anew. The thread does nothing else and has a runtime of its own: a service that
//! blocks threads delays no renewal.
//!
//! *Time.* The lease counts from when the last renewal that was answered was sent ([`Hold`]).
//!
//! *Errors.* A failed renewal is repeated until that time is over. The lease is not revoked then: it keeps other nodes away while
//! the services of this one stop.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::etcd::Etcd;
use crate::hold::{Hold, now};
use crate::outage;

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Its number in etcd.
    pub(crate) id: u64,
    /// Until when the node may act by it.
    pub(crate) hold: Hold,
}

/// The lease of the node, as last renewed; `None` while it has none.
pub(crate) type Leased = watch::Receiver<Option<Lease>>;

/// Keeps a lease until all receivers are dropped.
pub(crate) fn keep(etcd: Arc<Etcd>, ttl: Duration) -> io::Result<Leased> {
    let (lease, leased) = watch::channel(None);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let keep = move || {
        runtime.block_on(async {
            tokio::select! {
                () = forever(&etcd, ttl, &lease) => {}
                () = lease.closed() => {}
            }
        });
        // Without waiting for the name of an endpoint that is still being looked up.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("lease".into()).spawn(keep)?;
    Ok(leased)
}

async fn forever(etcd: &Etcd, ttl: Duration, lease: &watch::Sender<Option<Lease>>) {
    loop {
        // It counts from here; it cannot begin sooner in etcd.
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

/// Renews a lease until its time is over or etcd has ended it.
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
