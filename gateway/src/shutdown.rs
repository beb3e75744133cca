//! The connections of the daemon, and their end.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdma_transport::channel::Handle;
use tokio::sync::Notify;

/// How long requests in work may take after the daemon was told to stop.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);

/// The connections that are open now.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<HashMap<u64, Handle>>,
    gone: Notify,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Handle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// One more.
    pub fn add(&self, id: u64, handle: Handle) {
        self.lock().insert(id, handle);
    }

    /// One less.
    pub fn remove(&self, id: u64) {
        self.lock().remove(&id);
        self.gone.notify_waiters();
    }

    /// Asks every connection to answer what it has in work and to close, and waits until they are gone. False when some were
    /// not within [`DRAIN_MAX`].
    pub async fn drain(&self) -> bool {
        let handles: Vec<Handle> = self.lock().values().cloned().collect();
        let all_gone = async {
            for handle in handles {
                handle.shutdown().await;
            }
            loop {
                let gone = self.gone.notified();
                tokio::pin!(gone);
                // Listens before it looks, so that no end is missed.
                gone.as_mut().enable();
                if self.count() == 0 {
                    return;
                }
                gone.await;
            }
        };
        tokio::time::timeout(DRAIN_MAX, all_gone).await.is_ok()
    }
}
