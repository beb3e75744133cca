//! Which connections a gateway of a cluster has, kept where the next owner of the service reads them.
//!
//! *Operation.* When connections come or go the list is written beside the records, as soon as those that come together are
//! gathered, and while they come and go without end in a part of the time ([`pause`]); no request waits for it. A connection that
//! is not in the list when the node dies is not told of the next owner.
//!
//! *Errors.* What cannot be written is told once, and tried with the next change.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::tickle::{BROUGHT, FILE, FLOWS_MAX, Flow, to_bytes};
use rdma_transport::channel::Transport;
use rdma_transport::iwarp::Iwarp;

use tokio::task::JoinSet;

use super::member;
use crate::records::{ServiceFiles, replace};
use crate::shutdown::Connections;

/// How long changes are gathered.
const GATHERED: Duration = Duration::from_millis(10);
/// Writing takes one part in so many of the time.
const PARTS: u32 = 10;
/// No change waits longer than that for the end of a pause.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Keeps the list, where this gateway is one of a cluster.
pub(crate) fn keep_where_asked(
    tasks: &mut JoinSet<()>,
    connections: &Arc<Connections>,
    files: Option<&ServiceFiles>,
) {
    if let (Some(_), Some(files)) = (member::epoch(), files) {
        tasks.spawn(keep(connections.clone(), files.clone()));
    }
}

/// Brings the list of the owner before from CephFS into the state folder, where the runner of this node reads it when the gateway
/// is ready. What cannot be had is no reason not to serve. Blocks.
pub(crate) fn bring(files: &ServiceFiles, state: &Path) {
    let (ServiceFiles::Ceph(_), Some(_)) = (files, member::epoch()) else { return };
    let read = files.read(FILE);
    // What an earlier run brought is not true any more.
    let list = read.as_ref().ok().and_then(|read| read.as_ref()).map(|(bytes, _)| &**bytes);
    let brought = replace(&state.join(BROUGHT), list.unwrap_or_default());
    if let Err(error) = read.map(drop).and(brought) {
        tracing::warn!(%error, "the connections of the previous owner are not known");
    }
}

/// Keeps the list for as long as the gateway runs.
async fn keep(connections: Arc<Connections>, files: ServiceFiles) {
    let mut changed = connections.changed();
    let mut is_told = false;
    while changed.changed().await.is_ok() {
        tokio::time::sleep(GATHERED).await;
        changed.mark_unchanged();
        let began = Instant::now();
        let bytes = to_bytes(&flows(&connections));
        let files = files.clone();
        let written = tokio::task::spawn_blocking(move || files.replace(FILE, &bytes)).await;
        match written {
            Ok(Err(error)) if !is_told => {
                is_told = true;
                tracing::warn!(%error, "the list of connections cannot be written: after a takeover clients notice it late");
            }
            Ok(Ok(())) => is_told = false,
            // Told before, or the gateway ends.
            Ok(Err(_)) | Err(_) => {}
        }
        tokio::time::sleep(pause(began.elapsed())).await;
    }
}

/// After a list that took so long to write.
fn pause(took: Duration) -> Duration {
    took.saturating_mul(PARTS - 1).min(PAUSE_MAX)
}

/// Those that a kernel's TCP carries: of an RDMA card's it knows nothing.
fn flows(connections: &Connections) -> Vec<Flow> {
    let is_tcp = |transport| match transport {
        Transport::Tcp => true,
        Transport::Rdma(provider) => provider == Iwarp::NAME,
    };
    let canonical = rdma_transport::channel::canonical;
    let flows = connections.each(|info| {
        let flow = Flow { local: canonical(info.local), peer: canonical(info.peer) };
        is_tcp(info.transport).then_some(flow)
    });
    flows.into_iter().take(FLOWS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_takes_longer_is_written_less_often() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(1)), ms(9));
        assert_eq!(pause(ms(30)), ms(270));
        assert_eq!(
            pause(ms(2000)),
            PAUSE_MAX,
            "a list on slow storage is no older than that and its writing"
        );
        assert_eq!(pause(Duration::MAX), PAUSE_MAX);
    }
}
