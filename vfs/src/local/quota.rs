//! Quotas of the file system of a share, and its size by the quota of a project.
//!
//! *Operation.* The kernel permits every user to read its own quota. To list entries and to set limits the process needs
//! CAP_SYS_ADMIN, which the packaged service does not have. All calls run on threads, because the kernel may read quotas from the
//! disk.

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::backend::BoxFuture;
use crate::error::{VfsError, VfsResult};
use crate::quota::{Quota, QuotaKind, QuotaLimits, QuotaState};

use super::{Volume, probe, quotactl};

/// Most entries that one call reads.
const ENTRIES_MAX: usize = 1024;

impl Volume {
    fn on_thread<'a, T: Send + 'static>(
        self: &'a Arc<Self>,
        ask: impl FnOnce(&Self) -> VfsResult<T> + Send + 'static,
    ) -> BoxFuture<'a, VfsResult<T>> {
        let volume = self.clone();
        self.steps(self.engine.run_long(move || ask(&volume)))
    }

    /// See [`Backend::quota_state`](crate::backend::Backend::quota_state).
    pub(super) fn quota_state(
        self: &Arc<Self>,
        kind: QuotaKind,
    ) -> BoxFuture<'_, VfsResult<QuotaState>> {
        self.on_thread(move |volume| {
            let root = volume.root.as_fd();
            let enforces = quotactl::enforces(root, kind)?;
            Ok(QuotaState { enforces, has_default: probe::is_xfs(root)? })
        })
    }

    /// See [`Backend::quota`](crate::backend::Backend::quota).
    pub(super) fn quota(
        self: &Arc<Self>,
        kind: QuotaKind,
        id: u32,
    ) -> BoxFuture<'_, VfsResult<Quota>> {
        self.on_thread(move |volume| match quotactl::get(volume.root.as_fd(), kind, id) {
            Err(VfsError::Perm) if !volume.identity.is_single() => {
                quotactl::get_as_itself(volume.root.as_fd(), kind, id)
            }
            done => done,
        })
    }

    /// See [`Backend::quotas`](crate::backend::Backend::quotas).
    pub(super) fn quotas(
        self: &Arc<Self>,
        kind: QuotaKind,
        from: u32,
        entries_max: usize,
    ) -> BoxFuture<'_, VfsResult<Vec<Quota>>> {
        self.on_thread(move |volume| {
            let (mut all, mut from) = (Vec::new(), Some(from));
            while all.len() < entries_max.min(ENTRIES_MAX)
                && let Some(at) = from
                && let Some(found) = quotactl::next(volume.root.as_fd(), kind, at)?
            {
                // A file system that counts backwards would never end.
                from = found.id.checked_add(1).filter(|next| *next > at);
                all.push(found);
            }
            Ok(all)
        })
    }

    /// See [`Backend::quota_set`](crate::backend::Backend::quota_set).
    pub(super) fn quota_set(
        self: &Arc<Self>,
        kind: QuotaKind,
        id: u32,
        limits: QuotaLimits,
    ) -> BoxFuture<'_, VfsResult<()>> {
        self.on_thread(move |volume| {
            volume.writable()?;
            quotactl::set(volume.root.as_fd(), kind, id, limits)
        })
    }

    /// See [`Backend::limit_size`](crate::backend::Backend::limit_size). Blocks.
    pub(super) fn limit_size(&self, bytes: u64, sets: bool) -> Result<(), String> {
        let (root, folder) = (self.root.as_fd(), self.folder.display());
        match quotactl::enforces(root, QuotaKind::Project) {
            Ok(true) => {}
            Ok(false) | Err(VfsError::NotSupported) => {
                return Err(format!(
                    "`size` needs project quotas, which the file system of {folder} does not enforce: mount XFS or ext4 with \
                     `prjquota` (ext4 needs `tune2fs -O project,quota` once, while it is not mounted), or remove `size`"
                ));
            }
            Err(e) => return Err(format!("`size`: the quotas of {folder} cannot be read: {e}")),
        }
        let project = quotactl::project(root)
            .map_err(|e| format!("`size`: the project of {folder} cannot be read: {e}"))?;
        let id = match project {
            (id, true) if id != 0 => id,
            _ => {
                return Err(format!(
                    "`size` is the limit of the folder's own project, and {folder} has none: choose a number that no other folder \
                     has, like 42, and give it with `xfs_quota -x -c 'project -s -p {folder} 42' MOUNTPOINT` on XFS, or \
                     `chattr -R +P -p 42 {folder}` on ext4"
                ));
            }
        };
        let limits = QuotaLimits { soft: None, hard: Some(bytes) };
        let is_so = quotactl::get(root, QuotaKind::Project, id)
            .is_ok_and(|now| now.limits == QuotaLimits { hard: Some(bytes.max(1)), ..limits });
        if is_so {
            return Ok(());
        }
        if !sets {
            return match probe::may_administer() {
                true => Ok(()),
                false => Err(lacks_right(id, bytes)),
            };
        }
        match quotactl::set(root, QuotaKind::Project, id, limits) {
            Ok(()) => Ok(()),
            Err(VfsError::Perm) => Err(lacks_right(id, bytes)),
            Err(e) => Err(format!("`size`: the limit of project {id} cannot be set: {e}")),
        }
    }
}

/// Says how the limit of a project is set if the gateway has no right to.
fn lacks_right(id: u32, bytes: u64) -> String {
    format!(
        "`size`: the gateway may not set the limit of project {id}, which needs CAP_SYS_ADMIN: give it (`systemctl edit headgate`: \
         `CapabilityBoundingSet=CAP_SYS_ADMIN` in `[Service]`), or set the limit with `setquota -P {id} 0 {} 0 0 MOUNTPOINT` and \
         remove `size`: clients see that limit as the size of the share",
        bytes.div_ceil(quotactl::UNIT)
    )
}
