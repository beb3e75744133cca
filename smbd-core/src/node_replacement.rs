//! Replaces a file's node by another node under the same name: a file that becomes a link or a pipe, which is a node of another
//! kind.
//!
//! *Operation.* Clients see the same file, so their state moves along: opens with their share modes, oplocks and leases. Before the
//! new node can be found, every holder of the old node also gets it. Once the new node is in place the old one is released; if it
//! never gets there, because the operation was abandoned, the new one is released. During the step, records of persistent handles
//! name both nodes, so that a restart finds the file before and after it. Byte-range locks do not move, and another client may wait
//! for one: the node of a file with locks is not replaced.

use std::sync::Arc;

use state::HolderId;
use vfs::backend::NodeRef;

use crate::caching::Lease;
use crate::open::Open;
use crate::persist;
use crate::server_state::ServerState;
use crate::status::Status;

/// The holders of the old node, which also hold the new one.
pub(crate) struct NodeReplacement<'a> {
    core: &'a Arc<ServerState>,
    old: NodeRef,
    new: NodeRef,
    opens: Vec<HolderId>,
    leases: Vec<Arc<Lease>>,
    /// Persistent handles whose records also name the new node.
    announced: Vec<Arc<Open>>,
    /// True once the new node is in place.
    placed: bool,
}

impl<'a> NodeReplacement<'a> {
    /// Makes every holder of the old node hold the new one, which cannot be found by name yet.
    pub(crate) fn new(
        core: &'a Arc<ServerState>,
        old: NodeRef,
        new: NodeRef,
    ) -> Result<Self, Status> {
        let table = core.namespace.arbiter().state();
        let all = core.opens.of_node(old.id());
        if all.iter().any(|o| !table.smb_locks_of(old.id(), o.party.holder).is_empty()) {
            return Err(Status::FILE_LOCK_CONFLICT);
        }
        let mut leases: Vec<Arc<Lease>> = Vec::new();
        for lease in all.iter().filter_map(|o| o.caching.lease()) {
            if !leases.iter().any(|l| Arc::ptr_eq(l, &lease)) {
                leases.push(lease);
            }
        }
        let opens = all.iter().map(|o| o.party.holder).collect();
        let this = Self { core, old, new, opens, leases, announced: Vec::new(), placed: false };
        for holder in this.holders() {
            table.follow(this.old.id(), this.new.id(), holder);
        }
        Ok(this)
    }

    fn holders(&self) -> impl Iterator<Item = HolderId> {
        self.opens.iter().copied().chain(self.leases.iter().map(|l| l.party.holder))
    }

    /// Writes both nodes to the records of persistent handles, so that a restart at any point finds the file.
    pub(crate) async fn announce(&mut self) -> Result<(), Status> {
        let opens = self.core.opens.of_node(self.old.id());
        self.announced = opens.into_iter().filter(|o| o.durable.is_persistent()).collect();
        self.announced.iter().for_each(|o| o.durable.saving().next = Some(self.new.clone()));
        persist::save_all(self.core, &self.announced).await
    }

    /// Notes that the new node is in place, and moves all state to it.
    pub(crate) async fn succeeds(mut self) -> Result<(), Status> {
        self.placed = true;
        let (core, old, new) = (self.core, self.old.id(), self.new.id());
        let arbiter = core.namespace.arbiter();
        let moved = core.opens.becomes(old, &self.new).await;
        for lease in &self.leases {
            if !core.leases.becomes(lease, new) {
                // Its last open has been closed.
                arbiter.close(new, lease.party.holder);
            }
        }
        for holder in &self.opens {
            if !moved.iter().any(|o| o.party.holder == *holder) {
                arbiter.close(new, *holder);
            }
        }
        self.holders().for_each(|holder| arbiter.close(old, holder));
        if arbiter.state().is_cached(new) {
            arbiter.watch_external(&self.new);
        }
        // Records name only the new node from here on.
        self.announced.drain(..).for_each(|open| open.durable.saving().next = None);
        save(core, moved).await
    }
}

impl Drop for NodeReplacement<'_> {
    fn drop(&mut self) {
        self.announced.iter().for_each(|open| open.durable.saving().next = None);
        if !self.placed {
            let arbiter = self.core.namespace.arbiter();
            self.holders().for_each(|holder| arbiter.close(self.new.id(), holder));
        }
    }
}

/// Writes the moved persistent handles, even if the requesting connection is lost. An error with one handle does not affect the
/// others.
async fn save(core: &Arc<ServerState>, moved: Vec<Arc<Open>>) -> Result<(), Status> {
    if !moved.iter().any(|o| o.durable.is_persistent()) {
        return Ok(());
    }
    let core = core.clone();
    let saving = tokio::spawn(async move { persist::save_all(&core, &moved).await });
    // Fails only if the program is ending.
    saving.await.unwrap_or(Err(Status::INSUFFICIENT_RESOURCES))
}
