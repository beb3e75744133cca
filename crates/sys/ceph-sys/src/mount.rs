//! One client of a file system, and the users for which it acts.

use std::ffi::{CStr, CString};
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, RwLock, RwLockReadGuard, Weak,
};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use mutex::{locked, reading, writing};

use crate::ffi::{self, Api, CEPH_RECLAIM_RESET};
use crate::{Errno, load};

/// Size of the buffer for the value of a setting.
const SETTING_MAX: usize = 1024;

/// Number of sessions ended at the same time: each needs a client with several threads.
const ENDED_AT_ONCE: usize = 32;

/// Options of a mount.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// Ceph user without `client.`; `None`: `admin`.
    pub id: Option<&'a str>,
    /// Configuration file; `None`: the default places (`CEPH_CONF`, /etc/ceph/ceph.conf).
    pub conf: Option<&'a Path>,
    /// Settings that override the configuration.
    pub settings: &'a [(&'a str, &'a str)],
    /// New defaults for settings: an option, the library's default, and the value to use if the configuration keeps that default.
    pub defaults: &'a [(&'a str, &'a str, &'a str)],
    pub fs: &'a str,
    /// Absolute path of the folder that becomes the root.
    pub root: &'a str,
    /// Identifier that stays the same between runs. The MDS ends earlier sessions with this identifier before the new one begins.
    pub uuid: Option<&'a str>,
    /// Identifiers of further sessions to end first. All are ended at the same time, because the monitors publish changes at most
    /// once per `paxos_propose_interval`, usually a second.
    pub ended: &'a [&'a str],
}

/// A step of mounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Loading the library.
    Load,
    /// Reading the configuration, or a setting.
    Configure,
    /// Connecting to the monitors and authenticating.
    Monitors,
    /// Ending the session of an earlier run.
    Reset,
    /// Opening the file system and the folder.
    Mount,
}

/// The reason why mounting failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountError {
    /// The failed step.
    pub step: Step,
    /// The error of the library.
    pub errno: Errno,
    /// Description of the error.
    pub why: String,
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for MountError {}

/// Counts the mounts of this process.
struct Counts {
    mounted: usize,
    /// Number of mounts that threads of [`unmount_aside`] are ending.
    ending: usize,
}

/// The counts, and the condition for waiting threads.
static COUNTS: (Mutex<Counts>, Condvar) =
    (Mutex::new(Counts { mounted: 0, ending: 0 }), Condvar::new());

fn counts() -> MutexGuard<'static, Counts> {
    // Numbers are consistent after every step.
    locked(&COUNTS.0)
}

/// Waits until the count is zero. Returns false if the time is over first.
fn wait(limit: Duration, of: fn(&Counts) -> usize) -> bool {
    let waited = COUNTS.1.wait_timeout_while(counts(), limit, |counts| of(counts) > 0);
    of(&waited.unwrap_or_else(PoisonError::into_inner).0) == 0
}

/// Waits until every mount has ended, before the process exits. An abandoned session keeps its cached rights from other clients
/// until the cluster considers it dead. Returns false if the time is over first.
pub fn wait_unmounted(limit: Duration) -> bool {
    wait(limit, |counts| counts.mounted)
}

/// Time limit at exit for unmounts in progress.
const EXIT_MAX: Duration = Duration::from_secs(3);

/// Waits at process exit for unmounts in progress. At exit the library destroys its own data, starting with its table of options;
/// an unmount that reads an option afterwards aborts the process (`boost::bad_get`). Exit handlers run in reverse order, and the
/// library is already loaded and used when this one is registered.
fn wait_at_exit() {
    extern "C" fn at_exit() {
        wait(EXIT_MAX, |counts| counts.ending);
    }
    static ONCE: Once = Once::new();
    // SAFETY: a function without arguments that does not unwind. If registration fails, the process exits as before.
    ONCE.call_once(|| _ = unsafe { libc::atexit(at_exit) });
}

/// Drops a mount on a separate thread, because unmounting waits for the cluster.
pub fn unmount_aside(mount: Arc<Mount>) {
    struct Ending;
    impl Drop for Ending {
        fn drop(&mut self) {
            counts().ending -= 1;
            COUNTS.1.notify_all();
        }
    }
    counts().ending += 1;
    let ending = Ending;
    // If no thread can be started, the mount is dropped here.
    let _ = std::thread::Builder::new().name("ceph-unmount".into()).spawn(move || {
        drop(mount);
        drop(ending);
    });
}

/// All mounts, for [`leave`].
static MOUNTS: Mutex<Vec<Weak<Mount>>> = Mutex::new(Vec::new());

/// Ends all sessions that have an identifier in an orderly way and at the same time, even if their inodes are in use: for a process
/// that is about to exit, so that the cluster need not evict it. Waits for calls in progress; later calls never return.
pub fn leave() {
    let all: Vec<_> = locked(&MOUNTS).iter().filter_map(Weak::upgrade).collect();
    std::thread::scope(|scope| {
        for mount in &all {
            // If no thread can be started, the session remains, as if the process had been killed.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || mount.leave());
        }
    });
    // Dropping the last one would unmount it, and wait for itself.
    std::mem::forget(all);
}

/// A mounted file system.
pub struct Mount {
    api: &'static Api,
    pub(crate) raw: NonNull<ffi::ceph_mount_info>,
    uuid: Option<CString>,
    /// All calls hold it for reading; ending the session holds it for writing.
    calls: RwLock<()>,
}

/// The library's functions for one call on a mount, during which the mount cannot be left.
pub(crate) struct Calls<'a> {
    api: &'static Api,
    _shared: RwLockReadGuard<'a, ()>,
}

impl Deref for Calls<'_> {
    type Target = Api;

    fn deref(&self) -> &Api {
        self.api
    }
}

// SAFETY: the library takes its own lock in each call on a mount, on any thread.
unsafe impl Send for Mount {}
// SAFETY: see above.
unsafe impl Sync for Mount {}

/// An inode number and its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vino {
    pub ino: u64,
    /// Number of the snapshot; [`ffi::CEPH_NOSNAP`] for the live file system.
    pub snap: u64,
}

/// A mount under construction, released if a step fails.
struct PendingMount {
    api: &'static Api,
    raw: NonNull<ffi::ceph_mount_info>,
}

impl Drop for PendingMount {
    fn drop(&mut self) {
        // SAFETY: created by `ceph_create` and never mounted.
        unsafe { (self.api.ceph_release)(self.raw.as_ptr()) };
    }
}

fn c_string(text: impl Into<Vec<u8>>, step: Step) -> Result<CString, MountError> {
    CString::new(text).map_err(|_| MountError {
        step,
        errno: Errno(libc::EINVAL),
        why: "a name with a zero byte".into(),
    })
}

fn failed(step: Step, what: &str) -> impl FnOnce(Errno) -> MountError {
    let what = what.to_owned();
    move |errno| MountError { step, errno, why: format!("{what}: {errno}") }
}

impl Mount {
    /// Mounts the file system. Blocks for at most the library's `client_mount_timeout`.
    pub fn open(options: &Options<'_>) -> Result<Arc<Self>, MountError> {
        let mount = PendingMount::ready(options)?;
        let (api, raw) = (mount.api, mount.raw);
        mount.end_sessions(options)?;
        let uuid = options.uuid.map(|uuid| c_string(uuid, Step::Reset)).transpose()?;
        if let Some(uuid) = &uuid {
            // SAFETY: an initialised mount that is not mounted yet, and a C string.
            unsafe { (api.ceph_set_uuid)(raw.as_ptr(), uuid.as_ptr()) };
        }
        let root = c_string(options.root, Step::Mount)?;
        // SAFETY: an initialised mount and a C string.
        let done = Errno::check(unsafe { (api.ceph_mount)(raw.as_ptr(), root.as_ptr()) });
        done.map_err(failed(Step::Mount, "mount"))?;
        std::mem::forget(mount);
        // Modes are used unchanged; the library's default mask is 002.
        // SAFETY: a mounted mount.
        unsafe { (api.ceph_umask)(raw.as_ptr(), 0) };
        counts().mounted += 1;
        wait_at_exit();
        let mount = Arc::new(Self { api, raw, uuid, calls: RwLock::default() });
        let mut all = locked(&MOUNTS);
        all.retain(|mount| mount.strong_count() > 0);
        all.push(Arc::downgrade(&mount));
        Ok(mount)
    }

    /// Returns the functions for one call.
    pub(crate) fn calls(&self) -> Calls<'_> {
        Calls { api: self.api, _shared: reading(&self.calls) }
    }

    fn leave(&self) {
        let Some(uuid) = &self.uuid else { return };
        std::mem::forget(writing(&self.calls));
        // Do not unmount: unless the folder is the root of the file system, that waits for the library's next tick, up to a second
        // (16.2). Written data must first reach the OSDs and the MDS, because ending a session does not flush it.
        // SAFETY: the mount exists, no call is in progress or can begin, and the argument is a C string. Setting an identifier ends
        // the session.
        unsafe {
            if (self.api.ceph_sync_fs)(self.raw.as_ptr()) == 0 {
                (self.api.ceph_set_uuid)(self.raw.as_ptr(), uuid.as_ptr());
            }
        }
    }

    /// Returns the number of the file system in its cluster.
    pub fn fscid(&self) -> Result<u64, Errno> {
        // SAFETY: a live mount.
        Errno::check(unsafe { (self.calls().ceph_get_fs_cid)(self.raw.as_ptr()) })
    }

    /// Returns the value of a setting; ENOENT if it does not exist.
    pub fn setting(&self, option: &str) -> Result<String, Errno> {
        let name = CString::new(option).map_err(|_| Errno(libc::EINVAL))?;
        setting(self.api, self.raw, &name)
    }

    /// Returns the cluster's identifier of this client, as in a blocklist and in `ceph tell mds.* session ls`.
    pub fn client_id(&self) -> u64 {
        // SAFETY: a live mount.
        unsafe { (self.calls().ceph_get_instance_id)(self.raw.as_ptr()) }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // SAFETY: mounted, and without inodes, files or folders: each of those keeps the mount alive.
        unsafe {
            (self.api.ceph_unmount)(self.raw.as_ptr());
            (self.api.ceph_release)(self.raw.as_ptr());
        }
        counts().mounted -= 1;
        COUNTS.1.notify_all();
    }
}

impl PendingMount {
    /// Creates a client of the file system without a session.
    fn ready(options: &Options<'_>) -> Result<Self, MountError> {
        let api = load::api().map_err(|why| MountError {
            step: Step::Load,
            errno: Errno(libc::ENOSYS),
            why: why.to_owned(),
        })?;
        let id = c_string(options.id.unwrap_or("admin"), Step::Configure)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a place for a pointer and a C string.
        let made = Errno::check(unsafe { (api.ceph_create)(&raw mut raw, id.as_ptr()) });
        let raw = made.ok().and_then(|_| NonNull::new(raw)).ok_or_else(|| MountError {
            step: Step::Configure,
            errno: Errno(libc::ENOMEM),
            why: "the library makes no mount".into(),
        })?;
        let mount = Self { api, raw };
        mount.configure(options)?;
        // SAFETY: a mount that was made and configured.
        let ready = Errno::check(unsafe { (api.ceph_init)(raw.as_ptr()) });
        ready.map_err(failed(Step::Monitors, "the monitors"))?;
        let fs = c_string(options.fs, Step::Mount)?;
        // SAFETY: an initialised mount and a C string.
        let chosen =
            Errno::check(unsafe { (api.ceph_select_filesystem)(raw.as_ptr(), fs.as_ptr()) });
        chosen.map_err(failed(Step::Mount, "the file system"))?;
        Ok(mount)
    }

    /// Ends the sessions of earlier runs.
    fn end_sessions(&self, options: &Options<'_>) -> Result<(), MountError> {
        let others = Mutex::new(options.ended.iter());
        let end_others = || -> Result<(), MountError> {
            loop {
                let Some(uuid) = locked(&others).next() else { return Ok(()) };
                // A client can ask the MDS about only one session at a time.
                Self::ready(options)?.reset(uuid)?;
            }
        };
        std::thread::scope(|scope| {
            let count = options.ended.len().min(ENDED_AT_ONCE);
            let start =
                |_| std::thread::Builder::new().spawn_scoped(scope, end_others).map_err(drop);
            let threads: Vec<_> = (0..count).flat_map(start).collect();
            let own = options.uuid.map_or(Ok(()), |uuid| self.reset(uuid));
            // Sessions for which no thread could be started.
            let rest = end_others();
            let joined = |thread: ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
            };
            threads.into_iter().map(joined).fold(own.and(rest), Result::and)
        })
    }

    fn configure(&self, options: &Options<'_>) -> Result<(), MountError> {
        use std::os::unix::ffi::OsStrExt;
        let conf = match options.conf {
            Some(path) => Some(c_string(path.as_os_str().as_bytes(), Step::Configure)?),
            None => None,
        };
        let path = conf.as_ref().map_or(std::ptr::null(), |c| c.as_ptr());
        // SAFETY: a mount that was made, and a C string or null.
        let read = Errno::check(unsafe { (self.api.ceph_conf_read_file)(self.raw.as_ptr(), path) });
        let named = options.conf.map_or("ceph.conf".into(), |p| p.display().to_string());
        read.map_err(failed(Step::Configure, &named))?;
        for (option, value) in options.settings {
            self.set(option, value)?;
        }
        for (option, own, value) in options.defaults {
            let name = c_string(*option, Step::Configure)?;
            let now = setting(self.api, self.raw, &name);
            if now.map_err(failed(Step::Configure, option))? == *own {
                self.set(option, value)?;
            }
        }
        Ok(())
    }

    fn set(&self, option: &str, value: &str) -> Result<(), MountError> {
        let name = c_string(option, Step::Configure)?;
        let value = c_string(value, Step::Configure)?;
        // SAFETY: a mount that was made, and two C strings.
        let set = Errno::check(unsafe {
            (self.api.ceph_conf_set)(self.raw.as_ptr(), name.as_ptr(), value.as_ptr())
        });
        set.map(drop).map_err(failed(Step::Configure, option))
    }

    /// Ends the earlier session with this identifier.
    fn reset(&self, uuid: &str) -> Result<(), MountError> {
        let uuid = c_string(uuid, Step::Reset)?;
        // SAFETY: an initialised mount and a C string.
        let done = Errno::check(unsafe {
            (self.api.ceph_start_reclaim)(self.raw.as_ptr(), uuid.as_ptr(), CEPH_RECLAIM_RESET)
        });
        match done {
            // The session does not exist: this is the first run, or the session ended in an orderly way.
            Ok(_) | Err(Errno(libc::ENOENT)) => {}
            Err(e) => return Err(failed(Step::Reset, "the session of the run before")(e)),
        }
        // SAFETY: an initialised mount that is not mounted yet.
        unsafe { (self.api.ceph_finish_reclaim)(self.raw.as_ptr()) };
        Ok(())
    }
}

/// Returns the value of a setting of a mount under construction.
fn setting(
    api: &Api,
    mount: NonNull<ffi::ceph_mount_info>,
    option: &CStr,
) -> Result<String, Errno> {
    let mut room = [0_u8; SETTING_MAX];
    // SAFETY: a mount that was made, a C string, and room for as many bytes as are said.
    let answer = unsafe {
        (api.ceph_conf_get)(mount.as_ptr(), option.as_ptr(), room.as_mut_ptr().cast(), room.len())
    };
    Errno::check(answer)?;
    let value = CStr::from_bytes_until_nul(&room).map_err(|_| Errno(libc::EIO))?;
    Ok(value.to_string_lossy().into_owned())
}

/// A user with groups, for whom calls are made.
pub struct Perm {
    api: &'static Api,
    raw: NonNull<ffi::UserPerm>,
    /// The library keeps a pointer to them.
    _groups: Box<[libc::gid_t]>,
}

// SAFETY: the library only reads it.
unsafe impl Send for Perm {}
// SAFETY: see above.
unsafe impl Sync for Perm {}

impl Perm {
    /// Builds credentials for this user with the primary group `gid`; fails with ENOMEM.
    pub fn new(mount: &Mount, uid: u32, gid: u32, groups: &[u32]) -> Result<Self, Errno> {
        let mut groups: Box<[libc::gid_t]> = groups.into();
        let count = libc::c_int::try_from(groups.len()).map_err(|_| Errno(libc::EINVAL))?;
        let api = mount.api;
        // SAFETY: the list has `count` numbers and lives as long as this value.
        let raw = unsafe { (api.ceph_userperm_new)(uid, gid, count, groups.as_mut_ptr()) };
        let raw = NonNull::new(raw).ok_or(Errno(libc::ENOMEM))?;
        Ok(Self { api, raw, _groups: groups })
    }

    pub(crate) fn as_ptr(&self) -> *const ffi::UserPerm {
        self.raw.as_ptr()
    }
}

impl Drop for Perm {
    fn drop(&mut self) {
        // SAFETY: created by `ceph_userperm_new`, with no other owner.
        unsafe { (self.api.ceph_userperm_destroy)(self.raw.as_ptr()) };
    }
}
