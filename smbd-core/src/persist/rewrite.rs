//! Retries writes that the store [could not complete](crate::unwritten).

use std::sync::Arc;

use super::{save, strike};
use crate::open::Open;
use crate::server_state::ServerState;

/// Starts a pass over the unwritten handles, unless one is running. Call it about once a second.
pub(crate) fn tick(core: &Arc<ServerState>) {
    if !core.unwritten.begin() {
        return;
    }
    let core = core.clone();
    tokio::spawn(async move {
        write(&core).await;
        core.unwritten.end();
    });
}

/// Writes one handle at a time and stops at the first error, so that a thousand waiting handles do not cause a thousand tries.
async fn write(core: &ServerState) {
    let mut owed = core.unwritten.take().into_iter();
    for (persistent, open) in owed.by_ref() {
        let is_there = |o: &Arc<Open>| o.durable.is_persistent() && !o.durable.saving().forgotten;
        match open.upgrade().filter(is_there) {
            // `save` notes the error.
            Some(open) => drop(save(core, &open).await),
            None => strike(core, &[persistent]).await,
        }
        if core.store.as_ref().is_some_and(|store| store.health().is_some()) {
            break;
        }
    }
    if core.unwritten.give_back(owed) {
        tracing::info!("all persistent handles are in the state folder as they are");
    }
}
