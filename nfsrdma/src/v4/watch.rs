//! Delegated files that are changed by others than clients: a program on this host, or another server of the same volume.
//!
//! *Operation.* A delegation promises that nobody changes the file unseen, and only changes through this server are seen. So
//! every second some delegated files are looked at, each in its turn, and where the change attribute is another than when the
//! delegation was given, it is recalled. With up to [`limits::WATCHED_PER_TICK`] delegations a client sees a foreign change as soon
//! as it would without one, by the usual life of its attribute cache.
//!
//! *Errors.* A file that cannot be looked at any more is treated as changed.

use std::sync::Arc;

use state::{ClientId, Operation};
use vfs::NodeRef;

use super::clients::Clients;
use super::limits;
use super::opens::Entry;

impl Clients {
    /// To be called about once a second: ends what is over, and looks at delegated files.
    pub async fn tick(self: &Arc<Self>) {
        self.tidy(self.now());
        self.settle().await;
        for _ in 0..self.watched.len().min(limits::WATCHED_PER_TICK) {
            let Some((client, number)) = self.watched.next() else { return };
            let Some((node, given)) = self.delegated(client, number) else { continue };
            let is_same = node.getattr().await.is_ok_and(|attr| attr.change == given);
            if !is_same {
                self.core.namespace.arbiter().changed_externally(node.id(), Operation::Write);
            }
            self.watched.add(client, number);
        }
    }

    /// The file of a read delegation that is still out, and its change attribute when it was given. Who may write changes it.
    fn delegated(&self, client: ClientId, number: u32) -> Option<(NodeRef, u64)> {
        let client = self.find(client)?;
        let held = client.held();
        match held.get(number)? {
            Entry::Delegation(d) if !d.revoked && !d.write => Some((d.node.clone(), d.change)),
            _ => None,
        }
    }
}
