//! How often peers broke which rule, and how often which limit kept a client from more, for `status`; one log line for each time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use audit::PeerText;
use mutex::locked;

use crate::limits;
use crate::refused::{self, Refused};

/// Gives an enumeration of rules a `name` for each and `NAMES` of all: what may be counted is known before it happens.
#[macro_export]
macro_rules! rule_names {
    ($rule:ident { $($pattern:pat => $name:literal,)* }) => {
        impl $rule {
            /// The names of all of them.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// Stable name, for logs and counters.
            pub fn name(self) -> &'static str {
                match self { $($pattern => $name,)* }
            }
        }
    };
}

/// Bounded by the number of rules: every name is a constant of this program.
static BROKEN: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// A peer broke this rule again: counted, not logged.
pub fn broken_again(rule: &'static str) {
    *locked(&BROKEN).entry(rule).or_default() += 1;
}

/// A peer broke this rule.
pub fn broken(rule: &'static str, detail: &str, peer: SocketAddr) {
    broken_again(rule);
    tracing::warn!(%peer, rule, detail, "peer broke a rule");
}

/// How often each rule was broken since the process began.
pub fn broken_rules() -> Vec<(&'static str, u64)> {
    let counts = locked(&BROKEN);
    counts.iter().map(|(rule, n)| (*rule, *n)).collect()
}

/// Bounded by the number of limits: every name is a constant of this program.
static MET: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// A client met this limit: counted, not logged.
pub fn limit_met(limit: &'static str) {
    limit_met_times(limit, 1);
}

/// Clients met this limit so many times more: counted, not logged.
pub fn limit_met_times(limit: &'static str, times: u64) {
    *locked(&MET).entry(limit).or_default() += times;
}

/// A client met this limit, of so many of whatever it bounds, and is told so by its protocol: counted, kept among the refusals
/// ([`refused`]), and logged once a minute.
pub fn limited(limit: &'static str, most: usize, peer: SocketAddr) {
    limit_met(limit);
    let remedy = limits::remedy(limit);
    let (user, share) = (PeerText::default(), PeerText::default());
    if refused::record(Refused { peer: peer.ip(), user, share, rule: limit, remedy: remedy.into() })
    {
        tracing::warn!(%peer, limit, most, "a client has reached a limit; {remedy}");
    }
}

/// How often each limit was met since the process began.
pub fn limits_met() -> Vec<(&'static str, u64)> {
    let counts = locked(&MET);
    counts.iter().map(|(limit, n)| (*limit, *n)).collect()
}
