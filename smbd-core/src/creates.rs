//! CREATEs with a CreateGuid, by which a client repeats a CREATE whose answer was lost (MS-SMB2 section 3.3.5.9.10).
//!
//! *Memory.* One entry per CREATE with a CreateGuid, removed with its open.

use std::sync::{Arc, Weak};

use ahash::RandomState;
use dashmap::DashMap;

use crate::open::Open;

type Guid = [u8; 16];
/// ClientGuid and CreateGuid.
type Key = (Guid, Guid);

/// CREATEs with a CreateGuid, in progress or done.
#[derive(Default)]
pub struct Creates(DashMap<Key, Option<Weak<Open>>, RandomState>);

/// A CREATE in progress; if it fails, its CreateGuid is forgotten.
#[derive(Default)]
pub struct Ticket(Option<(Arc<Creates>, Key)>);

impl Creates {
    /// Begins a CREATE unless there is one with this key. Then returns its open, or `None` if it is in progress or its open has
    /// ended.
    pub(crate) fn begin(self: &Arc<Self>, key: Key) -> Result<Ticket, Option<Arc<Open>>> {
        match self.0.entry(key) {
            dashmap::Entry::Vacant(place) => {
                place.insert(None);
                Ok(Ticket(Some((self.clone(), key))))
            }
            dashmap::Entry::Occupied(place) => Err(place.get().as_ref().and_then(Weak::upgrade)),
        }
    }

    /// Begins another CREATE with this key, whatever the state of the earlier one.
    pub(crate) fn begin_again(self: &Arc<Self>, key: Key) -> Ticket {
        self.0.insert(key, None);
        Ticket(Some((self.clone(), key)))
    }

    /// Registers an open of an earlier run of the server under its CREATE.
    pub(crate) fn know(&self, open: &Arc<Open>) {
        if let Some(key) = open.durable.create() {
            self.0.insert(key, Some(Arc::downgrade(open)));
        }
    }

    /// Forgets the CREATE of a closed open.
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
    /// Returns whether the CREATE has a CreateGuid.
    pub(crate) fn is_named(&self) -> bool {
        self.0.is_some()
    }

    /// Notes that the CREATE is done and made this open.
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
