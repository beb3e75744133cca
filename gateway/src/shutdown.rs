//! The connections of the daemon, and their end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdma_transport::channel::Handle;
use tokio::sync::Notify;

/// How long requests in work may take after the daemon was told to stop.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);

/// The connections that are open now.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<HashMap<u64, Handle>>,
    next: AtomicU64,
    gone: Notify,
}

/// One open connection; it counts until this is dropped, however its task ends.
#[derive(Debug)]
pub struct Open {
    connections: Arc<Connections>,
    id: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.id);
        self.connections.gone.notify_waiters();
    }
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
    pub fn add(self: &Arc<Self>, handle: Handle) -> Open {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(id, handle);
        Open { connections: self.clone(), id }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_drain_ends_with_the_last_connection_or_its_time() {
        let connections = Arc::new(Connections::default());
        assert!(connections.drain().await);
        let open = connections.add(Handle::detached());
        let drain = tokio::spawn({
            let connections = connections.clone();
            async move { connections.drain().await }
        });
        tokio::task::yield_now().await;
        assert!(!drain.is_finished());
        drop(open);
        assert!(drain.await.unwrap());
        let _stays = connections.add(Handle::detached());
        assert!(!connections.drain().await);
        assert_eq!(connections.count(), 1);
    }
}
