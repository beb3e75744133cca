//! Location of the files that move with a service: the store, the secret, the users, and the list of connections.
//!
//! *Operation.* The files are in the state folder, or in a folder of CephFS ([`ceph`]) if `records` is configured. The state
//! folder always has the files of one process: its lock and its control socket. The store records the owner and the epoch of
//! the records: the session of a dead owner blocks all files in CephFS, so they can only be read after it is ended.
//!
//! *Errors.* A gateway that the cluster has cut off from its records logs that and ends at once: another gateway now serves
//! them.

pub mod ceph;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{Settings, Share, Source};
use rdma_transport::lease;
use recovery::{Folder, Store};

use self::ceph::{CephFolder, FILE_MAX, Options, check_size, session_of_share, why_not};

/// Session names of a gateway, and of a change of one file.
const SERVES: &str = "serves";
const CHANGES: &str = "changes";

/// Identity of a file and time of its last change.
pub(crate) type Stamp = Option<(u64, i64, i64, u64)>;

/// The files that move with a service. Every operation blocks on their file system.
#[derive(Clone, Debug)]
pub enum ServiceFiles {
    Local(PathBuf),
    Ceph(Arc<CephFolder>),
}

impl ServiceFiles {
    /// Opens the files for a command that only reads, while a gateway may serve them.
    pub(crate) fn look(state: &Path, records: Option<&config::Ceph>) -> Result<Self, String> {
        let Some(ceph) = records else { return Ok(Self::Local(state.to_owned())) };
        let opened = CephFolder::open(ceph, Options::look());
        opened.map(Self::Ceph).map_err(|why| why_not(ceph, &why))
    }

    /// As [`ServiceFiles::look`], for these settings.
    pub(crate) fn of(settings: &Settings) -> Result<Self, String> {
        Self::look(&settings.state, settings.records.as_ref())
    }

    /// Opens the files to read, change and write one. Of several such callers in CephFS the last one continues and the others
    /// fail.
    pub(crate) fn to_change(&self) -> Result<Self, String> {
        let Self::Ceph(folder) = self else { return Ok(self.clone()) };
        let options = Options::alone(folder.ceph(), CHANGES, Box::new(|_| ()));
        let opened = CephFolder::open(folder.ceph(), options);
        opened.map(Self::Ceph).map_err(|why| why_not(folder.ceph(), &why))
    }

    /// Returns the path of a file, for messages.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder().join(file)
    }

    /// Returns their folder, for messages.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::Local(folder) => folder,
            Self::Ceph(folder) => folder.path(),
        }
    }

    /// Returns the bytes and the mode of a file; `None` if it does not exist.
    pub(crate) fn read(&self, file: &str) -> io::Result<Option<(Vec<u8>, u32)>> {
        let folder = match self {
            Self::Local(folder) => folder,
            Self::Ceph(folder) => return folder.read(file),
        };
        let file = match File::open(folder.join(file)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let (mode, mut bytes) = (file.metadata()?.mode(), Vec::new());
        file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
        check_size(bytes.len() as u64)?;
        Ok(Some((bytes, mode)))
    }

    /// Replaces a private file atomically: after a crash it has the old content or the new content.
    pub(crate) fn replace(&self, file: &str, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Local(folder) => replace(&folder.join(file), bytes),
            Self::Ceph(folder) => folder.replace(file, bytes),
        }
    }

    /// Returns a value that differs after a change of the file.
    pub(crate) fn stamp(&self, file: &str) -> Stamp {
        match self {
            Self::Local(folder) => {
                let about = fs::metadata(folder.join(file)).ok();
                about.map(|m| (m.ino(), m.mtime(), m.mtime_nsec(), m.size()))
            }
            Self::Ceph(folder) => {
                let about = folder.stat(file).ok()?;
                about.map(|s| (s.stx_ino, s.stx_mtime.tv_sec, s.stx_mtime.tv_nsec, s.stx_size))
            }
        }
    }

    /// Opens or creates the store.
    pub(crate) fn store(&self) -> Result<Store, recovery::Error> {
        match self {
            Self::Local(folder) => Store::open(folder),
            Self::Ceph(folder) => Store::open_in(folder.clone()),
        }
    }
}

/// Opens the records of a gateway in CephFS. Cuts off the previous holder, also from its shares in the same file system;
/// shares in other file systems do so when they are opened.
pub(crate) fn take(ceph: &config::Ceph, shares: &[Share]) -> Result<ServiceFiles, String> {
    let is_reached = |its: &&config::Ceph| {
        (&its.fs, &its.user, &its.config) == (&ceph.fs, &ceph.user, &ceph.config)
    };
    let session = |share: &Share| match &share.source {
        Source::Ceph(its) => {
            Some(its).filter(is_reached).map(|its| session_of_share(&share.name, its))
        }
        _ => None,
    };
    let ended = shares.iter().filter_map(session).collect();
    let options = Options { ended, ..Options::alone(ceph, SERVES, Box::new(cut_off)) };
    let opened = CephFolder::open(ceph, options);
    opened.map(ServiceFiles::Ceph).map_err(|why| why_not(ceph, &why))
}

/// Another gateway has the records: this one must not send any further answer.
fn cut_off(path: &Path) {
    tracing::error!(
        records = %path.display(),
        "the cluster has cut this gateway off from its records: another gateway has opened them, or its address is in `ceph osd \
         blocklist ls`; this gateway ends"
    );
    lease::end()
}

/// Replaces a file atomically: after a crash it has the old content or the new content.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // A file left by a crash would keep its mode.
    let _ = fs::remove_file(&new);
    let mut how = OpenOptions::new();
    let mut file = how.mode(0o600).create(true).write(true).truncate(true).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
