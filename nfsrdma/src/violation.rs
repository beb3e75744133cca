//! Rules of ONC RPC and NFS that a peer can break, each with a counter and one line in the log per connection.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::Conn;

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A message that is no call, where only calls are taken (RFC 5531 section 9).
    NotACall,
    /// An RPC version other than 2 (RFC 5531 section 9).
    RpcVersion,
    /// A call that ends before its credential (RFC 5531 section 9).
    ShortCall,
    /// A credential or verifier that cannot be read, or of a flavor that is not served (RFC 5531 section 8).
    Credential,
    /// Arguments that cannot be read (RFC 5531 section 9).
    Arguments,
}

impl Violation {
    /// Every rule.
    pub const ALL: [Self; 5] =
        [Self::NotACall, Self::RpcVersion, Self::ShortCall, Self::Credential, Self::Arguments];

    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotACall => "rpc-not-a-call",
            Self::RpcVersion => "rpc-version",
            Self::ShortCall => "rpc-short-call",
            Self::Credential => "rpc-credential",
            Self::Arguments => "rpc-arguments",
        }
    }
}

/// How often each rule was broken.
#[derive(Debug, Default)]
pub struct Violations {
    counts: [AtomicU64; Violation::ALL.len()],
}

impl Violations {
    /// Times that this rule was broken.
    pub fn count(&self, rule: Violation) -> u64 {
        self.counts[rule as usize].load(Ordering::Relaxed)
    }

    /// Counts it, and logs it when it is the first of its kind on this connection.
    pub(crate) fn note(&self, conn: &Conn, rule: Violation) {
        self.counts[rule as usize].fetch_add(1, Ordering::Relaxed);
        let bit = 1 << rule as u32;
        if conn.reported.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            tracing::warn!(peer = %conn.info.peer, rule = rule.name(), "peer broke a rule");
        }
    }
}
