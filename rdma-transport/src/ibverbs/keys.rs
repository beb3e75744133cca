//! The registrations of a connection: keys for memory in slabs and outside of them.
//!
//! *Operation.* Memory in a slab has the key of the slab, which is registered once in the domain of the connection. Other memory is
//! registered for one use. *Errors.* The text names the device and the remedy.
#![allow(unsafe_code)]

use std::io::{self, Error};
use std::sync::Arc;

use iobuf::Slab;

use super::device::Device;
use super::memory::{Registered, Slabs};

/// A key for memory, and its registration if it is temporary.
pub(super) struct Key {
    pub(super) local: u32,
    pub(super) registered: Option<Registered>,
}

/// The registrations of a connection.
#[derive(Clone)]
pub(super) struct Keys {
    // Dropped before the device.
    pub(super) slabs: Arc<Slabs>,
    pub(super) device: Arc<Device>,
}

impl Keys {
    /// Returns a key for memory in `slab`, or, without a slab, registers the memory temporarily with `rights`.
    ///
    /// # Safety
    ///
    /// The memory stays valid until the card is done with it and the key is dropped.
    pub(super) unsafe fn key(
        &self,
        slab: Option<Slab>,
        at: usize,
        len: usize,
        rights: u32,
    ) -> io::Result<Key> {
        let key = match slab {
            Some(slab) => self.slabs.key(slab).map(|local| Key { local, registered: None }),
            // SAFETY: as the caller says.
            None => unsafe { self.slabs.domain().register(at, len, rights) }
                .map(|r| Key { local: r.local_key(), registered: Some(r) }),
        };
        key.map_err(|e| self.explain(&e))
    }

    fn explain(&self, e: &Error) -> Error {
        let has = (self.slabs.count() * Slab::LEN) >> 20;
        let more = match e.raw_os_error() {
            Some(libc::ENOMEM) => {
                "; raise the limit of locked memory (LimitMEMLOCK= of systemd, `ulimit -l`, --ulimit memlock= of a container)"
            }
            _ => "",
        };
        let name = &self.device.name;
        let kind =
            if more.is_empty() { io::ErrorKind::Other } else { io::ErrorKind::QuotaExceeded };
        Error::new(
            kind,
            format!("RDMA device {name} registers no memory beyond {has} MiB: {e}{more}"),
        )
    }
}
