//! Where that lies which moves with a service: the store, the secret, the users, which connections there are.
//!
//! *Operation.* In the state folder, or in a folder of CephFS ([`ceph`]) where the configuration says `records`. In the state
//! folder stays what is of one process: its lock and its control socket. Whose the records are, and of which epoch, stands in the
//! store: the session of a dead owner keeps all files of CephFS from others, so that nothing can be read before it is ended.
//!
//! *Errors.* A gateway that the cluster has cut off from its records says so and ends at once: whoever did it serves them.

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

/// Names the session of the gateway, and that of a change of one file.
const SERVES: &str = "serves";
const CHANGES: &str = "changes";

/// When a file last changed, and which file it was.
pub(crate) type Stamp = Option<(u64, i64, i64, u64)>;

/// The files that move with a service. Everything blocks on their file system.
#[derive(Clone, Debug)]
pub enum ServiceFiles {
    /// In the state folder.
    Local(PathBuf),
    /// In CephFS.
    Ceph(Arc<CephFolder>),
}

impl ServiceFiles {
    /// For a command that looks, beside a gateway that may serve them.
    pub(crate) fn look(state: &Path, records: Option<&config::Ceph>) -> Result<Self, String> {
        let Some(ceph) = records else { return Ok(Self::Local(state.to_owned())) };
        let opened = CephFolder::open(ceph, Options::look());
        opened.map(Self::Ceph).map_err(|why| why_not(ceph, &why))
    }

    /// As [`ServiceFiles::look`], of these settings.
    pub(crate) fn of(settings: &Settings) -> Result<Self, String> {
        Self::look(&settings.state, settings.records.as_ref())
    }

    /// To read a file, change it and write it: of several who do so in CephFS the last goes on, and the others fail.
    pub(crate) fn to_change(&self) -> Result<Self, String> {
        let Self::Ceph(folder) = self else { return Ok(self.clone()) };
        let options = Options::alone(folder.ceph(), CHANGES, Box::new(|_| ()));
        let opened = CephFolder::open(folder.ceph(), options);
        opened.map(Self::Ceph).map_err(|why| why_not(folder.ceph(), &why))
    }

    /// Where a file is, for messages.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder().join(file)
    }

    /// Where they are, for messages.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::Local(folder) => folder,
            Self::Ceph(folder) => folder.path(),
        }
    }

    /// The bytes of a file and its mode; `None` where there is none.
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

    /// Writes a file that nobody else may read, so that after a crash there is the old one or the new one.
    pub(crate) fn replace(&self, file: &str, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Local(folder) => replace(&folder.join(file), bytes),
            Self::Ceph(folder) => folder.replace(file, bytes),
        }
    }

    /// What tells that a file has changed.
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

    /// Opens the store, or makes it.
    pub(crate) fn store(&self) -> Result<Store, recovery::Error> {
        match self {
            Self::Local(folder) => Store::open(folder),
            Self::Ceph(folder) => Store::open_in(folder.clone()),
        }
    }
}

/// Opens the records of a gateway in CephFS: whoever had them is cut off, from its shares in the same file system as well. Those in
/// others cut it off when they are opened.
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

/// Another gateway has the records: nothing may be answered any more.
fn cut_off(path: &Path) {
    tracing::error!(
        records = %path.display(),
        "the cluster has cut this gateway off from its records: another gateway has opened them, or its address is in `ceph osd \
         blocklist ls`; this gateway ends"
    );
    lease::end()
}

/// Writes a file so that after a crash there is the old one or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // What a crash left would keep its mode.
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
