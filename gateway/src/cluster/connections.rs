//! Keeps the list of a clustered gateway's connections where the next owner of the service reads it.
//!
//! *Operation.* Changes of connections are gathered for a moment, and then the list is written next to the records. If connections
//! change all the time, writing takes a bounded part of the time ([`pause`]); no request waits for it. If the node dies, the next
//! owner does not notify connections that are missing in the list.
//!
//! *Errors.* A failed write is logged once, and repeated with the next change.

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
/// Writing takes at most one part in this many of the time.
const PARTS: u32 = 10;
/// Longest pause between two writes.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Keeps the list if this gateway belongs to a cluster.
pub(crate) fn keep_where_asked(
    tasks: &mut JoinSet<()>,
    connections: &Arc<Connections>,
    files: Option<&ServiceFiles>,
) {
    if let (Some(_), Some(files)) = (member::epoch(), files) {
        tasks.spawn(keep(connections.clone(), files.clone()));
    }
}

/// Copies the previous owner's list from CephFS into the state folder, where the runner of this node reads it when the gateway is
/// ready. Only logs errors, which must not keep the gateway from serving. Blocks.
pub(crate) fn bring(files: &ServiceFiles, state: &Path) {
    let (ServiceFiles::Ceph(_), Some(_)) = (files, member::epoch()) else { return };
    let read = files.read(FILE);
    // A list that an earlier run copied is outdated.
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
            // The failure was already logged, or the gateway is ending.
            Ok(Err(_)) | Err(_) => {}
        }
        tokio::time::sleep(pause(began.elapsed())).await;
    }
}

/// Returns the pause after a write that took this long.
fn pause(took: Duration) -> Duration {
    took.saturating_mul(PARTS - 1).min(PAUSE_MAX)
}

/// Returns the connections of the kernel's TCP, which knows no connections of an RDMA card.
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
