//! Storage that the quotas of a caller leave.

use crate::backend::{Backend, NodeRef};
use crate::error::{VfsError, VfsResult};
use crate::quota::{Quota, QuotaKind};
use crate::types::{Cred, FsStat};

/// Returns the space of the volume of a node for this caller, at most as much as the quotas of user and group allow. Free space
/// stays unchanged. The superuser has no limits.
pub async fn space_of(
    backend: &dyn Backend,
    node: &NodeRef,
    cred: &Cred,
    now: i64,
) -> VfsResult<FsStat> {
    let mut space = backend.statfs_of(node).await?;
    if cred.uid == 0 || !backend.capabilities_of(node).quotas {
        return Ok(space);
    }
    for (_, quota) in of_caller(backend, node, cred).await? {
        quota.narrow(&mut space, now);
    }
    Ok(space)
}

/// Returns the quotas of the caller and of its first group, as far as the volume counts them and the process may know them.
async fn of_caller(
    backend: &dyn Backend,
    node: &NodeRef,
    cred: &Cred,
) -> VfsResult<Vec<(QuotaKind, Quota)>> {
    let mut found = Vec::new();
    for (kind, id) in [(QuotaKind::User, cred.uid), (QuotaKind::Group, cred.gid)] {
        match backend.quota(node, kind, id).await {
            Ok(quota) => found.push((kind, quota)),
            // Groups may not be counted, and the host may end its counting at any time.
            Err(VfsError::NotSupported | VfsError::Perm | VfsError::Access) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// Storage that a caller may still use, and that it uses (RFC 8881 sections 5.8.2.28 to 5.8.2.30).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes until the volume refuses.
    pub left: u64,
    /// Bytes until the caller may be warned.
    pub left_to_soft: u64,
    /// Bytes in use.
    pub used: u64,
}

/// Returns the storage that this caller may still use on the volume of a node.
pub async fn allowance(
    backend: &dyn Backend,
    node: &NodeRef,
    cred: &Cred,
    now: i64,
) -> VfsResult<Allowance> {
    let avail = backend.statfs_of(node).await?.avail_bytes;
    let mut all = Allowance { left: avail, left_to_soft: avail, used: 0 };
    for (kind, quota) in of_caller(backend, node, cred).await? {
        if kind == QuotaKind::User {
            all.used = quota.used;
        }
        // No limit applies to the superuser.
        if cred.uid != 0 {
            all.left = all.left.min(quota.left(now).unwrap_or(u64::MAX));
            all.left_to_soft = all.left_to_soft.min(quota.left_to_soft().unwrap_or(u64::MAX));
        }
    }
    Ok(all)
}
