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
            list(from, entries_max, |at| quotactl::next(volume.root.as_fd(), kind, at))
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
        let block = rustix::fs::fstatvfs(root).map_or(0, |s| s.f_frsize);
        let bytes = whole(bytes, block);
        let limits = QuotaLimits { soft: None, hard: Some(bytes) };
        let is_so =
            quotactl::get(root, QuotaKind::Project, id).is_ok_and(|now| now.limits == limits);
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

/// Lists quotas by calls for the next one at this number or a greater one.
fn list(
    from: u32,
    entries_max: usize,
    mut next: impl FnMut(u32) -> VfsResult<Option<Quota>>,
) -> VfsResult<Vec<Quota>> {
    /// The kernel has no such user, and refuses to begin with it.
    const END: u32 = u32::MAX;
    let (mut all, mut at) = (Vec::new(), from);
    while all.len() < entries_max.min(ENTRIES_MAX)
        && at != END
        && let Some(found) = next(at)?
    {
        all.push(found);
        // A file system that counts backwards would never end.
        at = found.id.checked_add(1).filter(|next| *next > at).unwrap_or(END);
    }
    Ok(all)
}

/// Rounds a limit up to what the host stores unchanged: ext4 whole units of the kernel, XFS whole blocks.
fn whole(bytes: u64, block: u64) -> u64 {
    let unit = block.max(1).next_multiple_of(quotactl::UNIT);
    bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX / unit * unit)
}

/// Says how the limit of a project is set if the gateway has no right to.
fn lacks_right(id: u32, bytes: u64) -> String {
    format!(
        "`size`: the gateway may not set the limit of project {id}, which needs CAP_SYS_ADMIN: set it with \
         `setquota -P {id} 0 {} 0 0 MOUNTPOINT` and remove `size`, since clients see that limit as the size of the share; or give \
         the gateway that right, which is nearly all of root's (`systemctl edit headgate`: `CapabilityBoundingSet=CAP_SYS_ADMIN` \
         in `[Service]`)",
        bytes / quotactl::UNIT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_ends_behind_last_user() {
        let users = [3, 7, u32::MAX - 1];
        let next = |from| match from {
            u32::MAX => Err(VfsError::NotSupported),
            from => {
                let id = users.into_iter().find(|id| *id >= from);
                Ok(id.map(|id| Quota { id, ..Quota::default() }))
            }
        };
        let ids = |from, entries_max| {
            list(from, entries_max, next).map(|all| all.iter().map(|q| q.id).collect::<Vec<_>>())
        };
        assert_eq!(ids(0, 9), Ok(users.to_vec()));
        assert_eq!(ids(4, 1), Ok(vec![7]));
        assert_eq!(ids(u32::MAX, 9), Ok(vec![]));
        let backwards = |_| Ok(Some(Quota { id: 2, ..Quota::default() }));
        assert_eq!(list(2, 9, backwards).unwrap().len(), 2);
        let fails = list(0, 9, |_| Err(VfsError::Io));
        assert_eq!(fails, Err(VfsError::Io));
    }

    #[test]
    fn size_is_rounded_to_what_host_stores() {
        let mib = 1 << 20;
        for (block, wanted) in [(4096, mib + 4096), (512, mib + 1024), (0, mib + 1024)] {
            assert_eq!(whole(mib + 1, block), wanted, "{block}");
        }
        assert_eq!(whole(mib, 65_536), mib);
        assert_eq!(whole(u64::MAX, 4096), u64::MAX - 4095);
    }
}
