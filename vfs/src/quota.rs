//! Quotas of the file system of a share: how much a user, a group or a project uses, and its limits.
//!
//! *Operation.* The host counts and enforces. A backend reads one entry, lists entries, and changes limits; protocols decide which
//! callers may do so. A soft limit may be exceeded until its time is over ([`Quota::bytes_until`]); then it refuses like a hard
//! limit.

use crate::types::FsStat;

/// The kind of owner that storage is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuotaKind {
    /// Files of a user.
    User,
    /// Files of a group.
    Group,
    /// Files below folders that belong to a project.
    Project,
}

/// Limits in bytes; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// May be exceeded for a time.
    pub soft: Option<u64>,
    /// Is never exceeded.
    pub hard: Option<u64>,
}

/// Storage that one user, group or project uses, and its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Number of the user, group or project.
    pub id: u32,
    /// Bytes of storage.
    pub used: u64,
    /// Limits for them.
    pub limits: QuotaLimits,
    /// When the exceeded soft limit begins to refuse, in seconds since 1970. Absent while it is not exceeded.
    pub bytes_until: Option<i64>,
    /// Number of files.
    pub files: u64,
    /// Limits for that number.
    pub file_limits: QuotaLimits,
    /// Like `bytes_until`, for the number of files.
    pub files_until: Option<i64>,
}

/// The treatment of one kind of quota by a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaState {
    /// It refuses what exceeds a limit. Otherwise it only counts.
    pub enforces: bool,
    /// The limits of number 0 apply to every user without limits (XFS).
    pub has_default: bool,
}

impl Quota {
    /// Returns how many bytes may be added at this time, if there is a limit.
    pub fn left(&self, now: i64) -> Option<u64> {
        let is_over = self.bytes_until.is_some_and(|until| until <= now);
        let soft = self.limits.soft.filter(|_| is_over);
        let limit = [soft, self.limits.hard].into_iter().flatten().min()?;
        Some(limit.saturating_sub(self.used))
    }

    /// Returns how many bytes may be added before the soft limit, or the hard one without it, is exceeded, if there is a limit.
    pub fn left_to_soft(&self) -> Option<u64> {
        let limit = self.limits.soft.or(self.limits.hard)?;
        Some(limit.saturating_sub(self.used))
    }

    /// Limits the space of a volume to the quota.
    pub(crate) fn narrow(&self, space: &mut FsStat, now: i64) {
        if let Some(limit) = self.limits.hard.or(self.limits.soft) {
            space.total_bytes = space.total_bytes.min(limit);
        }
        if let Some(left) = self.left(now) {
            space.avail_bytes = space.avail_bytes.min(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(used: u64, soft: Option<u64>, hard: Option<u64>, until: Option<i64>) -> Quota {
        let limits = QuotaLimits { soft, hard };
        Quota { used, limits, bytes_until: until, ..Quota::default() }
    }

    #[test]
    fn exceeded_soft_limit_refuses_when_its_time_is_over() {
        let over = quota(150, Some(100), Some(200), Some(1000));
        assert_eq!((over.left(999), over.left(1000)), (Some(50), Some(0)));
        assert_eq!(over.left_to_soft(), Some(0));
        assert_eq!(quota(150, Some(100), None, Some(1000)).left(999), None);
        assert_eq!(quota(150, Some(100), None, Some(1000)).left(1000), Some(0));
        assert_eq!(quota(50, None, Some(200), None).left_to_soft(), Some(150));
        assert_eq!(quota(50, None, None, None).left(0), None);
        assert_eq!(quota(250, None, Some(200), None).left(0), Some(0), "root wrote for the user");
    }

    #[test]
    fn space_is_that_of_the_smaller_limit() {
        let volume =
            FsStat { total_bytes: 1000, free_bytes: 500, avail_bytes: 400, ..FsStat::default() };
        let with = |quota: Quota| {
            let mut space = volume;
            quota.narrow(&mut space, 0);
            (space.total_bytes, space.free_bytes, space.avail_bytes)
        };
        assert_eq!(with(quota(100, None, Some(300), None)), (300, 500, 200));
        assert_eq!(with(quota(100, Some(200), None, None)), (200, 500, 400));
        assert_eq!(with(quota(100, None, Some(9000), None)), (1000, 500, 400));
        assert_eq!(with(quota(100, None, None, None)), (1000, 500, 400));
    }
}
