//! The folder of a store: a few files with fixed names, on the host or on another file system.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

/// A folder that contains a store. All methods block until the file system answers.
pub trait Folder: fmt::Debug + Send + Sync {
    /// Returns the path, for messages.
    fn path(&self) -> &Path;

    /// Checks whether a file of this name exists.
    fn is_there(&self, name: &str) -> io::Result<bool>;

    /// Opens an existing file for reading and writing; [`io::ErrorKind::NotFound`] if it does not exist.
    fn open(&self, name: &str) -> io::Result<Box<dyn StorageBackend>>;

    /// Creates a file that only its owner can read; truncates an existing one.
    fn create(&self, name: &str) -> io::Result<Box<dyn StorageBackend>>;

    /// Renames a file over another; durable after the next [`Folder::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes created and renamed names durable.
    fn sync(&self) -> io::Result<()>;

    /// Returns the free space for this process, in bytes; `None` if the file system does not report it.
    fn free(&self) -> Option<u64>;
}

/// A folder of the host.
#[derive(Debug)]
pub(crate) struct Local(pub(crate) PathBuf);

impl Folder for Local {
    fn path(&self) -> &Path {
        &self.0
    }

    fn is_there(&self, name: &str) -> io::Result<bool> {
        self.0.join(name).try_exists()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        let file = OpenOptions::new().read(true).write(true).open(self.0.join(name))?;
        backend(file)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(true).mode(0o600);
        backend(how.open(self.0.join(name))?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn free(&self) -> Option<u64> {
        let free = rustix::fs::statvfs(&self.0).ok();
        free.map(|s| s.f_bavail.saturating_mul(s.f_frsize))
    }
}

fn backend(file: File) -> io::Result<Box<dyn StorageBackend>> {
    let file = FileBackend::new(file).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(Box::new(file))
}

/// Adapts a file of a [`Folder`] to redb.
#[derive(Debug)]
pub(crate) struct AnyBackend(pub(crate) Box<dyn StorageBackend>);

impl StorageBackend for AnyBackend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.0.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.query_lock_range(start, end)
    }
}
