//! Detects changes of delegated files outside the server: by a program on this host, or by another server of the same volume.
//!
//! *Operation.* A delegation promises that the file does not change unnoticed, but the server sees only its own changes. Every
//! second it therefore checks some delegated files, in rotation, and recalls a delegation if the change attribute differs from the
//! one at the grant. With up to [`limits::WATCHED_PER_TICK`] delegations a client sees a foreign change as soon as its attribute
//! cache would have shown it without a delegation.
//!
//! *Errors.* A file that cannot be read any more is treated as changed.

use std::sync::Arc;

use state::{ClientId, Operation};
use vfs::NodeRef;

use super::clients::Clients;
use super::limits;
use super::opens::Entry;

impl Clients {
    /// Called about once a second: ends what is over, and checks delegated files.
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

    /// The file of a read delegation that was not returned, and its change attribute at the grant. Holders of write delegations
    /// change the file themselves.
    fn delegated(&self, client: ClientId, number: u32) -> Option<(NodeRef, u64)> {
        let client = self.find(client)?;
        let held = client.held();
        match held.get(number)? {
            Entry::Delegation(d) if !d.revoked && !d.write => Some((d.node.clone(), d.change)),
            _ => None,
        }
    }
}
