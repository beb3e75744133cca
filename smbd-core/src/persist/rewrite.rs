//! Writes again what the store [could not be told](crate::unwritten).

use std::sync::Arc;

use super::{save, strike};
use crate::open::Open;
use crate::server_state::ServerState;

/// Begins to write what is not written, unless that is under way. To be called about once a second.
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

/// One after the other, until the store fails again: a thousand that wait are no thousand tries.
async fn write(core: &ServerState) {
    let mut owed = core.unwritten.take().into_iter();
    for (persistent, open) in owed.by_ref() {
        let is_there = |o: &Arc<Open>| o.durable.is_persistent() && !o.durable.saving().forgotten;
        match open.upgrade().filter(is_there) {
            // An error is noted.
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
