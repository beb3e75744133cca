//! Files of the gateway in its state folder: the lock that keeps a second gateway out, the secret that signs file handles, the
//! store of state that must survive, and the number of this run.
//!
//! If `records` is configured, the secret and the store are kept there ([`crate::records`]); the lock stays in the state folder.
//!
//! The folder is created with access for its owner only (0700). A folder that an earlier run made with wider access is narrowed;
//! one that belongs to another user, or holds other files, is left unchanged, with a line in the log.
//!
//! *Errors.* A configured state folder that cannot be used, or does not respond, stops the start. If an ordinary user cannot create
//! the default one, the gateway runs without it: handles then end with the process, as the log says.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use audit::PeerText;
use config::Settings;
use config::in_time::{self, LOOK_MAX, Silent};
use nfsrdma::server_state::Boot;
use recovery::{Change, Kind, Store};

use crate::cluster::member;
use crate::records::ServiceFiles;
use crate::records::ceph::CephFolder;

/// Key of the number of the last run, a big-endian 32-bit integer, among [`Kind::Server`].
const BOOTS: &[u8] = b"boots";
/// Key of the epoch of a cluster's service, a big-endian 64-bit integer, in the same kind.
const EPOCH: &[u8] = b"epoch";
/// Key of the cluster and the name of the service that owns these records, in the same kind.
const SERVICE: &[u8] = b"service";
/// Longest time for opening the state folder: after a crash of the gateway, the store is repaired.
const OPEN_MAX: Duration = Duration::from_secs(60);
const OWNER_ONLY: u32 = 0o700;
/// Bytes of the secret: a key for handles, and the server's GUID for SMB clients, which is not secret but lives as long.
const SECRET_LEN: usize = 32;
/// File name of the secret.
const SECRET: &str = "secret";

/// This run, with the lock of its state folder for as long as it lives.
#[derive(Debug)]
pub struct Run {
    pub boot: Boot,
    /// Signs file handles; the same in every run on one state folder.
    pub handle_key: [u8; 16],
    /// Differs from run to run.
    pub replay_key: [u8; 16],
    /// Identifies this server to SMB clients; the same in every run on one state folder.
    pub server_guid: [u8; 16],
    /// The state folder, if state survives.
    pub folder: Option<PathBuf>,
    /// Files that move with the service, if state survives.
    pub files: Option<ServiceFiles>,
    /// The store of state that must survive a restart, if state survives.
    pub store: Option<Store>,
    _lock: Option<Lock>,
}

/// The lock of a state folder (flock(2)), which keeps a second gateway out.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    /// Unlocks explicitly: the lock belongs to the open file, which a forked child also has open until it executes its program.
    /// Closing the file only here would keep the folder locked until then.
    fn drop(&mut self) {
        if let Err(e) = self.0.unlock() {
            tracing::debug!(error = %e, "the state folder is unlocked by closing its lock");
        }
    }
}

/// Takes the state folder like [`take`], even if its file system may not respond. Blocks for some seconds, or until the store of an
/// earlier run is opened, at most [`OPEN_MAX`].
///
/// # Errors
///
/// Fails like [`take`], or if the time is over.
pub fn take_in_time(settings: &Settings) -> Result<Run, String> {
    let folder = &settings.state;
    let silent = |_: Silent| {
        format!(
            "state folder {}: its file system does not respond; repair the mount, or give --state DIR",
            folder.display()
        )
    };
    let its = folder.clone();
    in_time::ask(folder, LOOK_MAX, move || fs::metadata(its).is_ok()).map_err(silent)?;
    let its = settings.clone();
    let Some(ceph) = &settings.records else {
        let taken = in_time::ask(folder, OPEN_MAX, move || take(&its).and_then(check_outside));
        return taken.map_err(silent)?;
    };
    let records = CephFolder::path_of(ceph);
    let taken = in_time::ask(&records, OPEN_MAX, move || take(&its));
    taken.map_err(|Silent| {
        format!("records {}: the Ceph cluster does not respond; repair it", records.display())
    })?
}

/// Takes the state folder of these settings. Blocks.
///
/// # Errors
///
/// One line for the user: the folder belongs to another gateway, or cannot be used.
pub fn take(settings: &Settings) -> Result<Run, String> {
    let folder = &settings.state;
    let refused = |e: &io::Error| {
        matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    };
    let may_do_without = *folder == Settings::default().state && settings.records.is_none();
    match prepare(folder) {
        Ok(lock) => on_folder(folder, settings, lock),
        Err(e) if refused(&e) && may_do_without => {
            tracing::warn!(
                folder = %folder.display(), error = %e,
                "no state folder: file handles become stale when this process ends; give --state DIR to keep them"
            );
            ephemeral()
        }
        Err(e) if folder.is_dir() => {
            Err(format!("state folder {}", unusable(&folder.join("lock"), e)))
        }
        Err(e) => Err(format!("state folder {}", unusable(folder, e))),
    }
}

/// Describes an error of a path in the state folder; if its file system is full, includes the remedy.
fn unusable(path: &Path, why: io::Error) -> String {
    let text = format!("{}: {why}", path.display());
    let why = recovery::Error::io(path, why);
    if why.is_full() { why.to_string() } else { text }
}

fn prepare(folder: &Path) -> io::Result<File> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(OWNER_ONLY).create(folder) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => narrow(folder)?,
        made => made?,
    }
    private().create(true).write(true).truncate(false).open(folder.join("lock"))
}

/// Removes other users' access to a folder that an earlier run created.
fn narrow(folder: &Path) -> io::Result<()> {
    let opened = File::open(folder)?;
    let about = opened.metadata()?;
    let mode = about.mode() & 0o7777;
    if mode & 0o077 == 0 || !about.is_dir() {
        return Ok(());
    }
    let is_own = about.uid() == rustix::process::geteuid().as_raw();
    if is_own && (folder.join("secret").exists() || fs::read_dir(folder)?.next().is_none()) {
        return opened.set_permissions(fs::Permissions::from_mode(OWNER_ONLY));
    }
    tracing::warn!(
        folder = %folder.display(), mode = format_args!("{mode:o}"), owner = about.uid(),
        "other users can read the state folder; give it to the gateway's user, and `chmod 700` it"
    );
    Ok(())
}

/// Returns options that create a file for its owner only.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

fn on_folder(folder: &Path, settings: &Settings, lock: File) -> Result<Run, String> {
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(format!(
                "another headgate uses the state folder {}; stop it, or give another --state DIR",
                folder.display()
            ));
        }
        Err(TryLockError::Error(e)) => {
            return Err(format!("cannot lock {}", unusable(&folder.join("lock"), e)));
        }
    }
    let files = match &settings.records {
        Some(ceph) => crate::records::take(ceph, &settings.shares)?,
        None => ServiceFiles::Local(folder.to_owned()),
    };
    let secret = secret(&files).map_err(|e| unusable(&files.path(SECRET), e))?;
    let store = files.store().map_err(|e| e.to_string())?;
    if let Some(epoch) = member::epoch() {
        begin_epoch(&store, epoch, files.folder())?;
    }
    crate::cluster::connections::bring(&files, folder);
    let count = count(&store).map_err(|e| e.to_string())?;
    let (handle_key, server_guid) = halves(secret);
    Ok(Run {
        boot: Boot { instance: count, ..Boot::now() },
        handle_key,
        replay_key: halves(random()?).1,
        server_guid,
        folder: Some(folder.to_owned()),
        files: Some(files),
        store: Some(store),
        _lock: Some(Lock(lock)),
    })
}

/// Returns a run whose state ends with the process.
pub fn ephemeral() -> Result<Run, String> {
    let (handle_key, replay_key) = halves(random()?);
    let (server_guid, _) = halves(random()?);
    Ok(Run {
        boot: Boot::now(),
        handle_key,
        replay_key,
        server_guid,
        folder: None,
        files: None,
        store: None,
        _lock: None,
    })
}

fn halves(secret: [u8; SECRET_LEN]) -> ([u8; 16], [u8; 16]) {
    (std::array::from_fn(|i| secret[i]), std::array::from_fn(|i| secret[16 + i]))
}

fn random() -> Result<[u8; SECRET_LEN], String> {
    let mut bytes = [0; SECRET_LEN];
    getrandom::fill(&mut bytes).map_err(|e| format!("no random numbers: {e}"))?;
    Ok(bytes)
}

/// Returns the service's secret, which the first run creates.
fn secret(files: &ServiceFiles) -> io::Result<[u8; SECRET_LEN]> {
    if let Some((bytes, _)) = files.read(SECRET)? {
        return bytes.first_chunk().copied().ok_or(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = [0; SECRET_LEN];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    files.replace(SECRET, &bytes)?;
    Ok(bytes)
}

/// Returns the key for handles and seals of runs on this state folder; `None` before the first run, and if records are in Ceph.
///
/// # Errors
///
/// One line: the key cannot be read.
pub(crate) fn handle_key(settings: &Settings) -> Result<Option<[u8; 16]>, String> {
    if settings.records.is_some() {
        return Ok(None);
    }
    let at = settings.state.join(SECRET);
    match std::fs::read(&at) {
        Ok(bytes) => Ok(bytes.first_chunk().copied().map(|secret| halves(secret).0)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unusable(&at, e)),
    }
}

/// Returns the number of this run: one more than the last. A new store starts with the current time, which exceeds any number that
/// an earlier store on this machine can have counted to.
fn count(store: &Store) -> Result<u32, recovery::Error> {
    let known = store.read(Kind::Server)?.into_iter().find(|(key, _)| **key == *BOOTS);
    let last = known.and_then(|(_, n)| Some(u32::from_be_bytes((*n).try_into().ok()?)));
    let this = last.unwrap_or(Boot::now().instance).wrapping_add(1).max(1);
    store.commit_blocking(vec![Change::put(Kind::Server, BOOTS, &this.to_be_bytes())])?;
    Ok(this)
}

/// Returns the service and epoch of the records of a service that no gateway serves. Evicts any client that has them open in
/// CephFS. Blocks.
///
/// # Errors
///
/// One line: another gateway on this node has them, or they cannot be read.
pub(crate) fn whose(settings: &Settings) -> Result<(Option<String>, Option<u64>), String> {
    let run = take(settings)?;
    let Some(store) = &run.store else { return Ok((None, None)) };
    let read = store.read(Kind::Server).map_err(|e| e.to_string())?;
    let known = |key: &[u8]| read.iter().find(|(at, _)| **at == *key).map(|(_, value)| value);
    let service = known(SERVICE).map(|name| String::from_utf8_lossy(name).into_owned());
    let epoch = known(EPOCH).and_then(|n| Some(u64::from_be_bytes((**n).try_into().ok()?)));
    Ok((service, epoch))
}

/// Refuses records of a cluster's service if no `headgate cluster run` started this gateway: they may be a copy, or on storage that
/// another node uses, and two gateways would grant the same locks and handles to different clients. Records in CephFS need no
/// check: opening them has evicted the other gateway.
fn check_outside(run: Run) -> Result<Run, String> {
    let (Some(store), Some(folder)) = (&run.store, &run.folder) else { return Ok(run) };
    if member::epoch().is_some() || member::is_outside() {
        return Ok(run);
    }
    let read = store.read(Kind::Server).map_err(|e| e.to_string())?;
    let known = |key: &[u8]| read.iter().find(|(at, _)| **at == *key).map(|(_, value)| value);
    if known(EPOCH).is_none() {
        return Ok(run);
    }
    let service = known(SERVICE).map(|name| PeerText::of(name).to_string()).unwrap_or_default();
    Err(format!(
        "the records in {} are of the service {service} of a cluster, which another node may serve: start it \
         with `headgate cluster \
         run`; if no gateway of the cluster serves them any more, `headgate serve --outside-cluster` does",
        folder.display()
    ))
}

/// Records that a cluster's service is in this epoch. Fails if the records belong to a later epoch or to another service.
fn begin_epoch(store: &Store, epoch: u64, folder: &Path) -> Result<(), String> {
    let read = store.read(Kind::Server).map_err(|e| e.to_string())?;
    let known = |key: &[u8]| read.iter().find(|(at, _)| **at == *key).map(|(_, value)| value);
    let mut changes = vec![Change::put(Kind::Server, EPOCH, &epoch.to_be_bytes())];
    if let Some(own) = member::service() {
        if let Some(other) = known(SERVICE)
            && **other != *own.as_bytes()
        {
            return Err(format!(
                "the records in {} belong to the service {}, and this is {own}; set `state` to the folder of this service, or \
                 move those records away, which ends what clients hold by them",
                folder.display(),
                String::from_utf8_lossy(other)
            ));
        }
        changes.push(Change::put(Kind::Server, SERVICE, own.as_bytes()));
    }
    let last = known(EPOCH).and_then(|n| Some(u64::from_be_bytes((**n).try_into().ok()?)));
    if let Some(last) = last
        && last > epoch
    {
        return Err(format!(
            "the records in {} are of epoch {last}, and this node was elected in epoch {epoch}: another node has served since, \
             or etcd has lost data; if no gateway serves these records any more, run `headgate cluster adopt`, or move them \
             away, which ends what clients hold by them",
            folder.display()
        ));
    }
    store.commit_blocking(changes).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(folder: &Path) -> Settings {
        Settings { state: folder.to_owned(), ..Settings::default() }
    }

    #[test]
    fn records_of_a_cluster_start_outside_by_word() {
        let folder = tempfile::tempdir().unwrap();
        let state = settings(&folder.path().join("state"));
        let run = take_in_time(&state).unwrap();
        let epoch = Change::put(Kind::Server, EPOCH, &7_u64.to_be_bytes());
        let service = Change::put(Kind::Server, SERVICE, b"office/files");
        run.store.as_ref().unwrap().commit_blocking(vec![epoch, service]).unwrap();
        drop(run);
        let why = take_in_time(&state).map(drop).unwrap_err();
        assert!(why.contains("office/files") && why.contains("--outside-cluster"), "{why}");
        assert_eq!(whose(&state), Ok((Some("office/files".to_owned()), Some(7))));
        member::serve_outside();
        assert!(take_in_time(&state).is_ok());
    }

    #[test]
    fn the_handle_key_stays_and_the_run_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let first = take(&settings(&state)).unwrap();
        let (key, instance) = (first.handle_key, first.boot.instance);
        let mode = fs::metadata(state.join("secret")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(first);
        let second = take(&settings(&state)).unwrap();
        assert_eq!((second.handle_key, second.boot.instance), (key, instance + 1));
    }

    /// Simulates a child between fork(2) and execve(2), which still has files open that close on exec.
    #[test]
    fn a_run_that_ends_leaves_its_folder_also_where_another_has_its_files_open() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(&settings(folder.path())).unwrap();
        let inherited: Vec<File> = first._lock.iter().map(|l| l.0.try_clone().unwrap()).collect();
        assert_eq!(inherited.len(), 1);
        drop(first);
        take(&settings(folder.path())).unwrap();
    }

    #[test]
    fn nobody_else_looks_into_the_state_folder() {
        let parent = tempfile::tempdir().unwrap();
        let state = parent.path().join("a/state");
        let mode = || fs::metadata(&state).unwrap().mode() & 0o7777;
        drop(take(&settings(&state)).unwrap());
        assert_eq!(mode(), OWNER_ONLY, "as it is made");
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
        drop(take(&settings(&state)).unwrap());
        assert_eq!(mode(), OWNER_ONLY, "as an earlier run left it");
        // The gateway does not narrow a folder that also holds other files.
        let other = parent.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("file"), b"").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
        drop(take(&settings(&other)).unwrap());
        assert_eq!(fs::metadata(&other).unwrap().mode() & 0o7777, 0o755);
    }

    #[test]
    fn a_second_gateway_on_one_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let _first = take(&settings(folder.path())).unwrap();
        let why = take(&settings(folder.path())).unwrap_err();
        assert!(why.contains("another headgate"), "{why}");
    }

    #[test]
    fn a_store_that_is_lost_stops_the_start_and_can_be_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(&settings(folder.path())).unwrap();
        let key = first.handle_key;
        drop(first);
        fs::remove_file(folder.path().join(recovery::FILE)).unwrap();
        let why = take(&settings(folder.path())).unwrap_err();
        assert!(why.contains("recovery.redb is missing"), "{why}");
        fs::remove_file(folder.path().join(recovery::MADE)).unwrap();
        let next = take(&settings(folder.path())).unwrap();
        assert_eq!(next.handle_key, key, "mounts go on");
        let clock = Boot::now().instance;
        assert!(next.boot.instance + 60 > clock, "numbers go on where the clock is");
    }

    #[test]
    fn a_damaged_state_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret"), b"short").unwrap();
        let why = take(&settings(folder.path())).unwrap_err();
        assert!(why.contains("secret"), "{why}");
    }
}
