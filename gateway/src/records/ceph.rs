//! A folder in CephFS for the files that move with a service: its records, its secret, its users.
//!
//! *Operation.* Uses a separate mount, whose session name depends only on the folder, so that every node uses the same name:
//! opening it ends the session of the previous holder, whose writes the OSDs then refuse (`ceph_start_reclaim` with `RESET`).
//! The holder's sessions for its shares in the same file system end too, since their names also derive from the folders. This
//! fencing precedes the first read. It also prevents a leftover session from keeping capabilities on the parent folders of
//! the records.
//!
//! *Durability.* The library caches writes until the next sync (`client_oc`), as a kernel does. For a write that it sends at
//! once, libcephfs 16 does not report that the OSDs refused it; for a sync it does ([`CephFile::sync_data`]). A change of a
//! file's length is in the MDS journal after the next sync.
//!
//! *Errors.* Returns the library's error numbers. When the cluster has blocklisted this client, [`Options::lost`] is called,
//! at most a second later ([`watch`]).

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ceph_sys::ffi::{CEPH_SETATTR_SIZE, ceph_statx};
use ceph_sys::{Changes, Errno, File, Inode, Name, Perm};
use config::Ceph;
use mutex::locked;
use recovery::{Folder, StorageBackend};
use rustix::io::Errno as Number;
use vfs::ceph::{CephConfig, MountError, Step};

/// Maximum size in bytes of a file that is read as a whole. A larger file is an error, because its content is written back
/// after a change.
pub(super) const FILE_MAX: u64 = 64 << 20;
/// The gateway's folder in a share, and the folder in it for files that move with the service.
const FOLDERS: [&str; 2] = [".headgate", "records"];
/// File that is written periodically, to notice when writes are refused.
const ALIVE: &str = "alive";
/// Time between two writes.
const LOOK: Duration = Duration::from_secs(1);
const OWNER_ONLY: u32 = 0o700;
const PRIVATE: u32 = 0o600;
/// Bits for the type of a file in its mode, and the value for a folder (inode(7)).
const TYPE: u16 = 0o170_000;
const DIRECTORY: u16 = 0o040_000;

/// Called when the cluster has cut this client off.
pub type Lost = Box<dyn Fn(&Path) + Send + Sync>;

/// Options for opening a folder.
pub struct Options {
    /// Name of the session: an earlier session with this name is cut off. `None` opens the folder for reading, without
    /// affecting its holder.
    pub uuid: Option<String>,
    /// Names of other sessions to end.
    pub ended: Vec<String>,
    /// Called once, when the cluster refuses this client.
    pub lost: Lost,
}

impl Options {
    /// Opens the folder without affecting its holder.
    pub fn look() -> Self {
        Self { uuid: None, ended: Vec::new(), lost: Box::new(|_| ()) }
    }

    /// Opens the folder with a session name for `part`, to change one file while a gateway may serve the folder; a later caller
    /// with the same `part` cuts off the earlier one.
    pub fn alone(ceph: &Ceph, part: &str, lost: Lost) -> Self {
        Self { uuid: Some(session(part, ceph)), ended: Vec::new(), lost }
    }
}

/// Returns the name of a session on this folder.
fn session(part: &str, ceph: &Ceph) -> String {
    format!("headgate/{part}{}", ceph.path)
}

/// Returns the session name of a share, for a gateway that keeps its records in CephFS.
pub(crate) fn session_of_share(name: &str, ceph: &Ceph) -> String {
    session(&format!("share/{name}"), ceph)
}

/// Detects that the cluster refuses this client.
struct Refusals {
    path: PathBuf,
    is_lost: AtomicBool,
    lost: Lost,
    /// Folder whose attributes are requested after another error, once it is open.
    asked: OnceLock<(Arc<Inode>, Arc<Perm>)>,
}

impl Refusals {
    fn done<T>(&self, answer: Result<T, Errno>) -> io::Result<T> {
        answer.map_err(|e| {
            // The library reports an I/O error or a bad descriptor for a file that was open when this client was cut off.
            let asked = || {
                self.asked.get().is_some_and(|(dir, perm)| dir.getattr(perm).is_err_and(is_refusal))
            };
            if (is_refusal(e) || asked()) && !self.is_lost.swap(true, Ordering::Relaxed) {
                (self.lost)(&self.path);
            }
            io::Error::from_raw_os_error(e.0)
        })
    }
}

/// Returns true if the error means that the cluster has cut this client off.
fn is_refusal(Errno(errno): Errno) -> bool {
    [Number::SHUTDOWN, Number::NOTCONN].contains(&Number::from_raw_os_error(errno))
}

/// The open folder. The superuser owns its files.
pub struct CephFolder {
    dir: Arc<Inode>,
    perm: Arc<Perm>,
    ceph: Ceph,
    refusals: Arc<Refusals>,
    /// Serializes changes of names: see `vfs::ceph` on renames.
    names: Mutex<()>,
    /// Dropping it ends the thread that watches.
    _watched: Option<mpsc::Sender<()>>,
}

impl fmt::Debug for CephFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CephFolder").field(&self.refusals.path).finish()
    }
}

fn name(text: &str) -> io::Result<Name> {
    Name::new(text.as_bytes()).map_err(|Errno(errno)| io::Error::from_raw_os_error(errno))
}

/// Checks that a file of this size may be read as a whole.
pub(super) fn check_size(bytes: u64) -> io::Result<()> {
    match bytes <= FILE_MAX {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("has more than {} MiB, which no file of the gateway has", FILE_MAX >> 20),
        )),
    }
}

/// Error of opening a folder.
#[derive(Debug)]
pub enum NotOpened {
    /// The file system could not be mounted.
    Mount(MountError),
    /// The folder in it is not usable.
    Io(PathBuf, io::Error),
}

impl CephFolder {
    /// Returns the path of the folder, for messages.
    pub fn path_of(ceph: &Ceph) -> PathBuf {
        PathBuf::from(ceph.to_string()).join(FOLDERS[0]).join(FOLDERS[1])
    }

    /// Mounts the folder of a share and creates the records folder in it. Blocks for some seconds if no monitor answers, and
    /// without limit if no MDS does.
    ///
    /// # Errors
    ///
    /// The mount failed, or users other than the superuser can access the folder.
    pub fn open(ceph: &Ceph, options: Options) -> Result<Arc<Self>, NotOpened> {
        let path = Self::path_of(ceph);
        let has_name = options.uuid.is_some();
        let config = CephConfig {
            id: ceph.user.clone(),
            conf: ceph.config.clone(),
            keyring: ceph.keyring.clone(),
            uuid: options.uuid,
            ..CephConfig::new(&ceph.fs, &ceph.path)
        };
        let ended: Vec<&str> = options.ended.iter().map(String::as_str).collect();
        let mount = vfs::ceph::mount(&config, &[("client_oc", "true")], &ended);
        let mount = mount.map_err(NotOpened::Mount)?;
        let (is_lost, asked) = (AtomicBool::new(false), OnceLock::new());
        let refusals = Refusals { path: path.clone(), is_lost, lost: options.lost, asked };
        let refusals = Arc::new(refusals);
        let opened = || -> io::Result<_> {
            let perm = refusals.done(Perm::new(&mount, 0, 0, &[]))?;
            let mut dir = refusals.done(mount.root())?;
            for folder in FOLDERS {
                dir = own_folder(&dir, folder, &perm, &refusals)?;
            }
            Ok((Arc::new(dir), Arc::new(perm)))
        };
        let (dir, perm) = opened().map_err(|e| NotOpened::Io(path.clone(), e))?;
        let _ = refusals.asked.set((dir.clone(), perm.clone()));
        let (ceph, names) = (ceph.clone(), Mutex::default());
        let mut folder = Self { dir, perm, ceph, refusals, names, _watched: None };
        if has_name {
            folder._watched = Some(watch(&folder).map_err(|e| NotOpened::Io(path, e))?);
        }
        Ok(Arc::new(folder))
    }

    /// Returns the configured folder of the share.
    pub fn ceph(&self) -> &Ceph {
        &self.ceph
    }

    fn find(&self, file: &str) -> io::Result<Option<(Arc<Inode>, ceph_statx)>> {
        match self.dir.lookup(&name(file)?, &self.perm) {
            Ok((inode, stat)) => Ok(Some((Arc::new(inode), stat))),
            Err(Errno(errno)) if Number::from_raw_os_error(errno) == Number::NOENT => Ok(None),
            Err(e) => self.refusals.done(Err(e)),
        }
    }

    /// Returns the attributes of a file; `None` if it does not exist.
    pub fn stat(&self, file: &str) -> io::Result<Option<ceph_statx>> {
        let Some((inode, _)) = self.find(file)? else { return Ok(None) };
        self.refusals.done(inode.getattr(&self.perm)).map(Some)
    }

    /// Returns the bytes and the mode of a file; `None` if it does not exist. Fails if the file is too large to be one of the
    /// gateway's.
    pub fn read(&self, file: &str) -> io::Result<Option<(Vec<u8>, u32)>> {
        let Some(stat) = self.stat(file)? else { return Ok(None) };
        check_size(stat.stx_size)?;
        let mut bytes = vec![0; usize::try_from(stat.stx_size).unwrap_or(usize::MAX)];
        self.file(file)?.read(0, &mut bytes)?;
        Ok(Some((bytes, stat.stx_mode.into())))
    }

    /// Replaces a file atomically: after a crash it has the old content or the new content.
    pub fn replace(&self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let new = format!("{file}.new");
        let made = self.make(&new)?;
        made.write(0, bytes)?;
        made.sync_data()?;
        self.rename(&new, file)?;
        self.sync()
    }

    fn file(&self, file: &str) -> io::Result<CephFile> {
        let Some((inode, _)) = self.find(file)? else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let opened = self.refusals.done(inode.open(READ_WRITE, &self.perm))?;
        Ok(self.adopt(inode, opened))
    }

    fn adopt(&self, inode: Arc<Inode>, file: File) -> CephFile {
        let (perm, refusals) = (self.perm.clone(), self.refusals.clone());
        CephFile { inode, file, perm, refusals, has_grown: AtomicBool::new(true) }
    }

    fn make(&self, file: &str) -> io::Result<CephFile> {
        if self.find(file)?.is_some() {
            let there = self.file(file)?;
            there.set_len(0)?;
            return Ok(there);
        }
        let made = self.dir.create(&name(file)?, PRIVATE, &self.perm);
        let (inode, file, _) = self.refusals.done(made)?;
        Ok(self.adopt(inode, file))
    }
}

/// `O_RDWR`.
const READ_WRITE: i32 = 2;

/// Opens or creates a folder of the superuser that no other user can read.
fn own_folder(parent: &Inode, folder: &str, perm: &Perm, all: &Refusals) -> io::Result<Inode> {
    let named = name(folder)?;
    let is = |e: &Errno, number| Number::from_raw_os_error(e.0) == number;
    let found = match parent.lookup(&named, perm) {
        Err(e) if is(&e, Number::NOENT) => match parent.mkdir(&named, OWNER_ONLY, perm) {
            // Another client created it meanwhile.
            Err(e) if is(&e, Number::EXIST) => parent.lookup(&named, perm),
            made => made,
        },
        found => found,
    };
    let (dir, stat) = all.done(found)?;
    if stat.stx_mode & TYPE != DIRECTORY || stat.stx_uid != 0 || stat.stx_mode & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "`{folder}` is not a folder of root with mode 700, as the gateway creates it; move it away"
        )));
    }
    Ok(dir)
}

/// Writes periodically while the folder is open, since the cluster does not notify a client that it cuts off.
fn watch(folder: &CephFolder) -> io::Result<mpsc::Sender<()>> {
    let file = folder.make(ALIVE)?;
    let (watched, ended) = mpsc::channel();
    let watch = move || {
        let mut number = 0_u64;
        while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            // Other errors are reported by the record writer.
            let _ = file.write(0, &number.to_be_bytes()).and_then(|()| file.sync_data());
            number = number.wrapping_add(1);
        }
    };
    std::thread::Builder::new().name("records-watch".into()).spawn(watch)?;
    Ok(watched)
}

impl Folder for CephFolder {
    fn path(&self) -> &Path {
        &self.refusals.path
    }

    fn is_there(&self, name: &str) -> io::Result<bool> {
        Ok(self.find(name)?.is_some())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.file(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.make(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let _alone = locked(&self.names);
        if self.find(from)?.is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let renamed = self.dir.rename(&name(from)?, &self.dir, &name(to)?, &self.perm);
        self.refusals.done(renamed)
    }

    fn sync(&self) -> io::Result<()> {
        self.refusals.done(self.dir.sync())
    }

    fn free(&self) -> Option<u64> {
        let stat = self.dir.statfs().ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

struct CephFile {
    inode: Arc<Inode>,
    file: File,
    perm: Arc<Perm>,
    refusals: Arc<Refusals>,
    /// The length changed since the last sync, so the MDS must make it durable, too.
    has_grown: AtomicBool,
}

impl fmt::Debug for CephFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CephFile").field(&self.refusals.path).finish()
    }
}

impl StorageBackend for CephFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.refusals.done(self.inode.getattr(&self.perm))?.stx_size)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < out.len() {
            let into = &mut [IoSliceMut::new(&mut out[at..])];
            match self.refusals.done(self.file.read(offset + at as u64, into))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => at += n,
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let to = ceph_statx { stx_size: len, ..ceph_statx::empty() };
        let changes = Changes { mask: CEPH_SETATTR_SIZE, to };
        self.has_grown.store(true, Ordering::Relaxed);
        self.refusals.done(self.inode.setattr(&changes, &self.perm))
    }

    fn sync_data(&self) -> io::Result<()> {
        let has_grown = self.has_grown.swap(false, Ordering::Relaxed);
        // A client that was cut off has discarded its cached data, so its fsync reports success. The getattr then fails, because
        // access ends at the same time.
        let synced = self.file.fsync(!has_grown);
        let done = self.refusals.done(synced.and_then(|()| self.inode.getattr(&self.perm)));
        let done = done.map(drop);
        if done.is_err() && has_grown {
            self.has_grown.store(true, Ordering::Relaxed);
        }
        done
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = 0;
        while at < data.len() {
            let from = &[IoSlice::new(&data[at..])];
            match self.refusals.done(self.file.write(offset + at as u64, from))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => at += n,
            }
        }
        Ok(())
    }
}

/// Returns why a folder was not opened, and the remedy.
pub(crate) fn why_not(ceph: &Ceph, why: &NotOpened) -> String {
    let path = CephFolder::path_of(ceph);
    match why {
        NotOpened::Mount(e @ MountError { step: Step::Reset, .. }) => format!(
            "records {}: {e}; the previous gateway still has them open, and no MDS ends its session: is one active (`ceph fs \
             status {}`)?",
            path.display(),
            ceph.fs
        ),
        NotOpened::Mount(e) => {
            format!("records {}: {}", path.display(), no_mount(ceph, e))
        }
        NotOpened::Io(path, e) => {
            recovery::Error::io(path.join(recovery::FILE), io::Error::new(e.kind(), e.to_string()))
                .to_string()
        }
    }
}

/// Returns the remedy for a failed mount.
pub(crate) fn no_mount(ceph: &Ceph, e: &MountError) -> String {
    use std::io::ErrorKind::{NotFound, PermissionDenied, TimedOut};
    let user = ceph.user.as_deref().unwrap_or("admin");
    let fs = &ceph.fs;
    let kind = std::io::Error::from_raw_os_error(e.errno.0).kind();
    let help = match (e.step, kind) {
        (Step::Load, _) => "install the cluster's library (Debian: libcephfs2)".to_owned(),
        (Step::Configure, NotFound) => "set `ceph.config` if the file is elsewhere".to_owned(),
        (Step::Configure, _) => return e.to_string(),
        (Step::Monitors, TimedOut) => "no monitor of the cluster answers".to_owned(),
        (Step::Monitors, NotFound) => format!(
            "there is no key of client.{user}: set `ceph.keyring` to a file with the output of `ceph auth get client.{user}`"
        ),
        (Step::Monitors, _) => format!("the cluster does not accept the key of client.{user}"),
        (Step::Reset, _) => {
            "the MDS does not end the session: is one active (`ceph fs status`)?".to_owned()
        }
        (Step::Mount, NotFound) => {
            format!("`{fs}`, or the folder in it, does not exist (`ceph fs ls`)")
        }
        (Step::Mount, PermissionDenied) => format!(
            "client.{user} may not mount it: `ceph fs authorize {fs} client.{user} {} rw`",
            ceph.path
        ),
        (Step::Mount, _) => format!("is an MDS active (`ceph fs status {fs}`)?"),
    };
    format!("{e}; {help}")
}
