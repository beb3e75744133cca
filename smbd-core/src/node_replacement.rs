//! A node that takes the place of another under its name: a file that becomes a link or a pipe, which is a node of its own kind.
//!
//! *Operation.* To clients it is the same file, so all that they hold of it goes along: opens with their share modes, oplocks and
//! leases. Before the new node can be found it is held as the old one is; when it stands in its place the old one is let go, and if
//! it never comes there, whoever was about to put it there being gone, the new one is. Records of persistent handles name both
//! nodes while it is about to take the place, so that a restart finds the file on either side of that step.
//! Byte-range locks do not go along, and somebody may wait for one: a file with locks takes no successor.

use std::sync::Arc;

use state::HolderId;
use vfs::backend::NodeRef;

use crate::caching::Lease;
use crate::open::Open;
use crate::persist;
use crate::server_state::ServerState;
use crate::status::Status;

/// Who holds something of the old node, and of the new one as well.
pub(crate) struct NodeReplacement<'a> {
    core: &'a Arc<ServerState>,
    old: NodeRef,
    new: NodeRef,
    opens: Vec<HolderId>,
    leases: Vec<Arc<Lease>>,
    /// Persistent handles whose records name the new node, too.
    announced: Vec<Arc<Open>>,
    /// It stands in its place.
    placed: bool,
}

impl<'a> NodeReplacement<'a> {
    /// The new node, which nobody can find yet, is held as the old one is.
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

    /// Has a restart find the file of each persistent handle, wherever the program is stopped from here on.
    pub(crate) async fn announce(&mut self) -> Result<(), Status> {
        let opens = self.core.opens.of_node(self.old.id());
        self.announced = opens.into_iter().filter(|o| o.durable.is_persistent()).collect();
        self.announced.iter().for_each(|o| o.durable.saving().next = Some(self.new.clone()));
        persist::save_all(self.core, &self.announced).await
    }

    /// It stands in its place.
    pub(crate) async fn succeeds(mut self) -> Result<(), Status> {
        self.placed = true;
        let (core, old, new) = (self.core, self.old.id(), self.new.id());
        let arbiter = core.namespace.arbiter();
        let moved = core.opens.becomes(old, &self.new);
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
        // What is written from here on names the new node alone.
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

/// Writes where persistent handles are now, whether or not the connection of who asked for it stays; one that cannot be written
/// keeps none from the others.
async fn save(core: &Arc<ServerState>, moved: Vec<Arc<Open>>) -> Result<(), Status> {
    if !moved.iter().any(|o| o.durable.is_persistent()) {
        return Ok(());
    }
    let core = core.clone();
    let saving = tokio::spawn(async move { persist::save_all(&core, &moved).await });
    // The program ends, else.
    saving.await.unwrap_or(Err(Status::INSUFFICIENT_RESOURCES))
}
