//! Where a store lies: a few files with fixed names in a folder of the host, or of another file system.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

/// A folder that keeps a store. Everything blocks, for as long as its file system gives no answer.
pub trait Folder: fmt::Debug + Send + Sync {
    /// Its path, for messages.
    fn path(&self) -> &Path;

    /// It has a file of this name. Errors: those of the file system.
    fn is_there(&self, name: &str) -> io::Result<bool>;

    /// Opens a file that is there, to read and write. Error: [`io::ErrorKind::NotFound`], and those of the file system.
    fn open(&self, name: &str) -> io::Result<Box<dyn StorageBackend>>;

    /// Makes a file that nobody else may read, empty also where there was one.
    fn create(&self, name: &str) -> io::Result<Box<dyn StorageBackend>>;

    /// Puts a file in the place of another; durable with the next [`Folder::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes names durable.
    fn sync(&self) -> io::Result<()>;

    /// Bytes that are free there for this process; `None` where the file system does not say.
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

/// A file of a [`Folder`], for redb.
#[derive(Debug)]
pub(crate) struct Any(pub(crate) Box<dyn StorageBackend>);

impl StorageBackend for Any {
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
