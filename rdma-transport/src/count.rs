//! How often peers broke which rule, for `status`; one log line for each time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

/// Bounded by the number of rules: every name is a constant of this program.
static BROKEN: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// A peer broke this rule again: counted, not logged.
pub fn broken_again(rule: &'static str) {
    *BROKEN.lock().unwrap_or_else(PoisonError::into_inner).entry(rule).or_default() += 1;
}

/// A peer broke this rule.
pub fn broken(rule: &'static str, detail: &str, peer: SocketAddr) {
    broken_again(rule);
    tracing::warn!(%peer, rule, detail, "peer broke a rule");
}

/// How often each rule was broken since the process began.
pub fn broken_rules() -> Vec<(&'static str, u64)> {
    let counts = BROKEN.lock().unwrap_or_else(PoisonError::into_inner);
    counts.iter().map(|(rule, n)| (*rule, *n)).collect()
}
