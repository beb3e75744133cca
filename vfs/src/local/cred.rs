//! Switches the file system identity of a thread to the caller.
//!
//! *Operation.* Linux keeps a file system user, group and supplementary groups for each thread. [`Identity::enter`] sets them to
//! the caller's, and dropping its guard restores user and group, so that no other code of the thread runs as a client. The
//! supplementary groups stay, and are changed only for a caller with different ones: for a thread whose file system user is root
//! with `CAP_DAC_OVERRIDE` they have no effect. A root caller needs no system call. The kernel drops the file system capabilities
//! (`CAP_DAC_OVERRIDE`, `CAP_CHOWN`, ...) of a thread while its file system user is not root, so all its rules apply: ownership,
//! modes, access control lists, sticky bits, quota. `CAP_SYS_RESOURCE` is not among them and would let a writer use root's reserve
//! and exceed quotas, so it is dropped permanently in every thread that has acted as a caller.
//!
//! *Errors.* A user or group that the kernel rejects (not mapped in this user namespace) is [`VfsError::Access`].

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

use rustix::thread::CapabilitySet;

use crate::error::{VfsError, VfsResult};
use crate::types::Cred;

use super::{apart, sys};

thread_local! {
    /// The supplementary groups that this thread has set last. A new thread inherits unknown ones.
    static GROUPS: RefCell<Option<Arc<[u32]>>> = const { RefCell::new(None) };
    /// This thread has dropped its right to root's reserve.
    static LOWERED: Cell<bool> = const { Cell::new(false) };
}

/// Checks that a caller's thread may bypass for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Past {
    /// Mode bits and POSIX lists.
    Modes,
    /// A change of names that must also respect sticky folders.
    Sticky,
}

/// Whether this process can switch identity, and from which one.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The process's own user, group and groups.
    own: Cred,
    switches: bool,
    /// Not every user or group exists here, so each switch is verified.
    partial: bool,
    /// Threads of the runtime keep their identity: see [`apart`].
    apart: bool,
}

impl Identity {
    /// Determines the process's capabilities. If `alone` is set, the identity is not switched even if possible. A superuser that
    /// cannot switch is refused: it would serve every caller as itself.
    pub(crate) fn probe(alone: bool, apart: bool) -> VfsResult<Self> {
        let own = Cred {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: rustix::process::getgroups()
                .unwrap_or_default()
                .into_iter()
                .map(rustix::process::Gid::as_raw)
                .collect(),
            token: crate::Token::NONE,
        };
        let switches = !alone && own.uid == 0;
        if switches && !has_capabilities() {
            tracing::error!(
                "running as root without CAP_SETUID, CAP_SETGID and CAP_DAC_OVERRIDE: callers cannot be served as \
                 themselves; give these capabilities, or run as the user that all callers shall be"
            );
            return Err(VfsError::Perm);
        }
        let partial = !(all_mapped("/proc/self/uid_map") && all_mapped("/proc/self/gid_map"));
        Ok(Self { own, switches, partial, apart })
    }

    /// True if an operation for `cred` needs an identity other than the process's own.
    pub(crate) fn differs(&self, cred: &Cred) -> bool {
        self.switches && cred.uid != self.own.uid
    }

    /// True if every caller is served as the process itself.
    pub(crate) fn is_single(&self) -> bool {
        !self.switches
    }

    /// The identity under which an operation for `cred` is done.
    pub(crate) fn effective<'a>(&'a self, cred: &'a Cred) -> &'a Cred {
        if self.switches { cred } else { &self.own }
    }

    /// Switches this thread to the caller until the guard is dropped.
    fn enter(&self, cred: &Cred) -> VfsResult<Scope> {
        let mut scope = Scope { uid: None, gid: None, on_this_thread: PhantomData };
        if !self.switches {
            return Ok(scope);
        }
        if cred.gid != self.own.gid {
            scope.gid = Some(self.own.gid);
            sys::set_fsgid(cred.gid);
            if cred.gid == u32::MAX || self.partial && sys::fsgid() != cred.gid {
                return Err(VfsError::Access);
            }
        }
        if cred.uid != self.own.uid {
            set_groups(&cred.groups)?;
            lower_reserve();
            scope.uid = Some(self.own.uid);
            sys::set_fsuid(cred.uid);
            if cred.uid == u32::MAX || self.partial && sys::fsuid() != cred.uid {
                return Err(VfsError::Access);
            }
        }
        Ok(scope)
    }

    /// Runs `f` as the caller.
    pub(crate) fn run<T: Send>(
        &self,
        cred: &Cred,
        f: impl FnOnce() -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        self.run_with(cred, None, f)
    }

    /// Runs one call as the caller, bypassing mode bits. The caller of this function has an [`Override`](super::decide::Override).
    pub(super) fn run_past<T: Send>(
        &self,
        cred: &Cred,
        past: Past,
        f: impl FnOnce() -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        self.run_with(cred, Some(past), f)
    }

    fn run_with<T: Send>(
        &self,
        cred: &Cred,
        past: Option<Past>,
        f: impl FnOnce() -> VfsResult<T> + Send,
    ) -> VfsResult<T> {
        let acts = || {
            let scope = self.enter(cred)?;
            if let Some(past) = past.filter(|_| scope.uid.is_some()) {
                raise(past)?;
            }
            let answer = f();
            drop(scope);
            answer
        };
        let is_other = self.switches && (cred.uid != self.own.uid || cred.gid != self.own.gid);
        match self.apart && is_other && tokio::runtime::Handle::try_current().is_ok() {
            true => apart::run(acts),
            false => acts(),
        }
    }
}

/// Gives capabilities to this thread, which acts as a caller. They end with the file system user, when the kernel restores all of
/// them.
fn raise(past: Past) -> VfsResult<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective |= match past {
        Past::Modes => CapabilitySet::DAC_OVERRIDE,
        Past::Sticky => CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER,
    };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Drops `CAP_SYS_RESOURCE`, which threads never need for callers: it grants root's reserve, and files beyond a quota.
fn lower_reserve() {
    if LOWERED.get() {
        return;
    }
    LOWERED.set(true);
    let Ok(mut sets) = rustix::thread::capabilities(None) else { return };
    if sets.effective.contains(CapabilitySet::SYS_RESOURCE) {
        sets.effective.remove(CapabilitySet::SYS_RESOURCE);
        if let Err(error) = rustix::thread::set_capabilities(None, sets) {
            tracing::warn!(%error, "a thread keeps CAP_SYS_RESOURCE: callers may use root's reserve");
        }
    }
}

fn set_groups(groups: &Arc<[u32]>) -> VfsResult<()> {
    GROUPS.with_borrow_mut(|now| {
        if now.as_ref().is_some_and(|n| n == groups) {
            return Ok(());
        }
        *now = None;
        sys::set_groups(groups).map_err(|_| VfsError::Access)?;
        *now = Some(groups.clone());
        Ok(())
    })
}

/// True if the user namespace maps every id, as the initial one does.
fn all_mapped(map: &str) -> bool {
    std::fs::read_to_string(map).is_ok_and(|m| m.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// Drops the right to create devices (`CAP_MKNOD`), for this thread and all that it starts. Must be called before other threads
/// exist. A process that lacks it cannot create devices for callers.
pub fn give_up_devices() {
    let Ok(mut sets) = rustix::thread::capabilities(None) else { return };
    if !sets.permitted.contains(CapabilitySet::MKNOD) {
        return;
    }
    for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
        set.remove(CapabilitySet::MKNOD);
    }
    if let Err(error) = rustix::thread::set_capabilities(None, sets) {
        tracing::warn!(%error, "the process keeps CAP_MKNOD");
    }
}

/// True if the process has the capabilities for switching.
fn has_capabilities() -> bool {
    let needed = CapabilitySet::DAC_OVERRIDE | CapabilitySet::SETGID | CapabilitySet::SETUID;
    rustix::thread::capabilities(None).is_ok_and(|c| c.effective.contains(needed))
}

/// While this exists, the thread acts as a caller. It cannot leave the thread.
struct Scope {
    uid: Option<u32>,
    gid: Option<u32>,
    on_this_thread: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        // The kernel always allows returning to the process's own ids.
        if let Some(uid) = self.uid {
            sys::set_fsuid(uid);
        }
        if let Some(gid) = self.gid {
            sys::set_fsgid(gid);
        }
    }
}
