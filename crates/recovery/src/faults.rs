//! A disk in memory that can be made full, faulty or unresponsive, for tests of users of the store.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use mutex::locked;
use redb::StorageBackend;

use crate::error::Error;
use crate::store::Store;

/// How the disk handles writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Writes succeed.
    #[default]
    None,
    /// Writes fail because the disk is full.
    Full,
    /// Writes fail.
    Broken,
    /// Writes hang until the fault is changed.
    Hangs,
}

#[derive(Debug, Default)]
struct Platter {
    bytes: Vec<u8>,
    fault: Fault,
    /// Number of hanging writes.
    hanging: usize,
}

/// Handle of the disk. Clones share the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<(Mutex<Platter>, Condvar)>);

impl Disk {
    fn platter(&self) -> MutexGuard<'_, Platter> {
        locked(&self.0.0)
    }

    /// Opens the store on this disk, and creates it if the disk is empty. The previous store must be closed.
    pub fn store(&self) -> Result<Store, Error> {
        let fresh = self.platter().bytes.is_empty();
        let disk = self.clone();
        Store::on_backend(fresh, move || disk.clone())
    }

    /// Sets the fault of subsequent writes.
    pub fn set(&self, fault: Fault) {
        self.platter().fault = fault;
        self.0.1.notify_all();
    }

    /// Blocks until a write hangs.
    pub fn wait_for_hanging(&self) {
        let mut platter = self.platter();
        while platter.hanging == 0 {
            platter = self.0.1.wait(platter).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Platter) -> io::Result<T>) -> io::Result<T> {
        let mut platter = self.platter();
        if platter.fault == Fault::Hangs {
            platter.hanging += 1;
            self.0.1.notify_all();
            while platter.fault == Fault::Hangs {
                platter = self.0.1.wait(platter).unwrap_or_else(PoisonError::into_inner);
            }
            platter.hanging -= 1;
        }
        match platter.fault {
            Fault::Full => Err(io::ErrorKind::StorageFull.into()),
            Fault::Broken => Err(io::Error::other("the disk is broken")),
            Fault::None | Fault::Hangs => change(&mut platter),
        }
    }
}

fn place(offset: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
    let beyond = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let at = usize::try_from(offset).map_err(|_| beyond())?;
    Ok(at..at.checked_add(len).ok_or_else(beyond)?)
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.platter().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.platter();
        let place = place(offset, out.len())?;
        let from = platter.bytes.get(place).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(from);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = place(0, usize::try_from(len).unwrap_or(usize::MAX))?.end;
        self.change(|platter| {
            platter.bytes.resize(len, 0);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(|_| Ok(()))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let place = place(offset, data.len())?;
        self.change(|platter| {
            let to = platter.bytes.get_mut(place).ok_or(io::ErrorKind::UnexpectedEof)?;
            to.copy_from_slice(data);
            Ok(())
        })
    }
}
