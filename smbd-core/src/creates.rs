//! Creates that carry a GUID, by which a client asks again when the answer was lost (MS-SMB2 section 3.3.5.9.10).
//!
//! *Memory.* One entry per create that carries a GUID, gone with its open.

use std::sync::{Arc, Weak};

use dashmap::DashMap;

use crate::open::Open;

type Guid = [u8; 16];
/// Client and name of a create.
type Key = (Guid, Guid);

/// Creates that carry a GUID: under way, or done.
#[derive(Default)]
pub struct Creates(DashMap<Key, Option<Weak<Open>>>);

/// A create that is under way; one with a GUID is forgotten when it fails.
#[derive(Default)]
pub struct Ticket(Option<(Arc<Creates>, Key)>);

impl Creates {
    /// A create of this name begins, unless there is one already. Gives the open of that; `None`: it is under way, or its open is
    /// gone.
    pub(crate) fn begin(self: &Arc<Self>, key: Key) -> Result<Ticket, Option<Arc<Open>>> {
        match self.0.entry(key) {
            dashmap::Entry::Vacant(place) => {
                place.insert(None);
                Ok(Ticket(Some((self.clone(), key))))
            }
            dashmap::Entry::Occupied(place) => Err(place.get().as_ref().and_then(Weak::upgrade)),
        }
    }

    /// Another create of this name begins, whatever has become of the one before.
    pub(crate) fn begin_again(self: &Arc<Self>, key: Key) -> Ticket {
        self.0.insert(key, None);
        Ticket(Some((self.clone(), key)))
    }

    /// An open of another run of the server is known by its create again.
    pub(crate) fn know(&self, open: &Arc<Open>) {
        if let Some(key) = open.durable.create() {
            self.0.insert(key, Some(Arc::downgrade(open)));
        }
    }

    /// An open has gone.
    pub(crate) fn closed(&self, open: &Open) {
        if let Some(key) = open.durable.create() {
            let mine = |_: &_, o: &Option<Weak<Open>>| {
                o.as_ref().is_some_and(|o| std::ptr::eq(o.as_ptr(), open))
            };
            self.0.remove_if(&key, mine);
        }
    }
}

impl Ticket {
    /// The create has a GUID.
    pub(crate) fn is_named(&self) -> bool {
        self.0.is_some()
    }

    /// The create is done, and this is its open.
    pub(crate) fn done(mut self, open: &Arc<Open>) {
        if let Some((creates, key)) = self.0.take() {
            open.durable.set_replayable();
            creates.0.insert(key, Some(Arc::downgrade(open)));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some((creates, key)) = &self.0 {
            creates.0.remove(key);
        }
    }
}
