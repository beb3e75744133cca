//! Names and counts of work that failed on a card.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mutex::locked;
use rdma_sys::ibv_wc_status::{self, *};

/// Statuses by their names in the specification of verbs.
const STATUSES: &[(ibv_wc_status::Type, &str)] = &[
    (IBV_WC_LOC_LEN_ERR, "local-length"),
    (IBV_WC_LOC_QP_OP_ERR, "local-operation"),
    (IBV_WC_LOC_PROT_ERR, "local-protection"),
    (IBV_WC_MW_BIND_ERR, "window-bind"),
    (IBV_WC_BAD_RESP_ERR, "bad-response"),
    (IBV_WC_LOC_ACCESS_ERR, "local-access"),
    (IBV_WC_REM_INV_REQ_ERR, "remote-invalid-request"),
    (IBV_WC_REM_ACCESS_ERR, "remote-access"),
    (IBV_WC_REM_OP_ERR, "remote-operation"),
    (IBV_WC_RETRY_EXC_ERR, "retries-exceeded"),
    (IBV_WC_RNR_RETRY_EXC_ERR, "receiver-not-ready-retries-exceeded"),
    (IBV_WC_REM_ABORT_ERR, "remote-abort"),
    (IBV_WC_FATAL_ERR, "fatal"),
    (IBV_WC_RESP_TIMEOUT_ERR, "response-timeout"),
    (IBV_WC_GENERAL_ERR, "general"),
];
const OTHER: &str = "other";

/// Returns every name that [`counts`] can return.
pub fn names() -> impl Iterator<Item = &'static str> {
    STATUSES.iter().map(|(_, name)| *name).chain([OTHER])
}

/// Bounded by the number of names.
static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Returns the number of failures with each status since the process started. Work that was flushed at the end of a connection does
/// not count.
pub fn counts() -> Vec<(&'static str, u64)> {
    locked(&COUNTS).iter().map(|(name, n)| (*name, *n)).collect()
}

/// Returns the name of a failure, or `None` for success and flushed work.
pub(super) fn name(status: ibv_wc_status::Type) -> Option<&'static str> {
    match status {
        IBV_WC_SUCCESS | IBV_WC_WR_FLUSH_ERR => None,
        _ => Some(STATUSES.iter().find(|(s, _)| *s == status).map_or(OTHER, |(_, name)| name)),
    }
}

/// Counts one failure.
pub(super) fn count(name: &'static str) {
    *locked(&COUNTS).entry(name).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_names_and_flushes_none() {
        assert_eq!((name(IBV_WC_SUCCESS), name(IBV_WC_WR_FLUSH_ERR)), (None, None));
        assert_eq!(name(IBV_WC_RETRY_EXC_ERR), Some("retries-exceeded"));
        let mut all: Vec<&str> = names().collect();
        let before = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), before, "each name once");
        for (status, _) in STATUSES {
            assert!(name(*status).is_some_and(|name| all.contains(&name)));
        }
    }

    #[test]
    fn counted_failures_are_told() {
        let of = |name| counts().into_iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| n);
        let before = of("window-bind");
        count("window-bind");
        assert_eq!(of("window-bind"), before + 1);
    }
}
