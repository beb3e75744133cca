//! Counts violations by rule and refusals by limit, for `status`, and logs each.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use audit::PeerText;
use mutex::locked;

use crate::limits;
use crate::refused::{self, Refused};

/// Gives an enumeration of rules a `name` for each variant and `NAMES` for all: the set of counters is fixed at compile time.
#[macro_export]
macro_rules! rule_names {
    ($rule:ident { $($pattern:pat => $name:literal,)* }) => {
        impl $rule {
            /// The names of all variants.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// A stable name, for logs and counters.
            pub fn name(self) -> &'static str {
                match self { $($pattern => $name,)* }
            }
        }
    };
}

/// Bounded, because all names are constants of this program.
static BROKEN: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Counts a violation without logging it.
pub fn broken_again(rule: &'static str) {
    *locked(&BROKEN).entry(rule).or_default() += 1;
}

/// Counts and logs a violation.
pub fn broken(rule: &'static str, detail: &str, peer: SocketAddr) {
    broken_again(rule);
    tracing::warn!(%peer, rule, detail, "peer broke a rule");
}

/// The number of violations of each rule since the process began.
pub fn broken_rules() -> Vec<(&'static str, u64)> {
    let counts = locked(&BROKEN);
    counts.iter().map(|(rule, n)| (*rule, *n)).collect()
}

/// Bounded, because all names are constants of this program.
static MET: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Counts that a client reached a limit, without logging it.
pub fn limit_met(limit: &'static str) {
    limit_met_times(limit, 1);
}

/// Counts that clients reached a limit this many times, without logging it.
pub fn limit_met_times(limit: &'static str, times: u64) {
    *locked(&MET).entry(limit).or_default() += times;
}

/// Counts that a client reached a limit with this maximum, and got an error for it; keeps it among the refusals ([`refused`]), and
/// logs it at most once a minute.
pub fn limited(limit: &'static str, most: usize, peer: SocketAddr) {
    limit_met(limit);
    let remedy = limits::remedy(limit);
    let (user, share) = (PeerText::default(), PeerText::default());
    if refused::record(Refused { peer: peer.ip(), user, share, rule: limit, remedy: remedy.into() })
    {
        tracing::warn!(%peer, limit, most, "a client has reached a limit; {remedy}");
    }
}

/// How often each limit was reached since the process began.
pub fn limits_met() -> Vec<(&'static str, u64)> {
    let counts = locked(&MET);
    counts.iter().map(|(limit, n)| (*limit, *n)).collect()
}
