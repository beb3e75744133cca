//! Violations of ONC RPC that still get a reply. Each is counted ([`rdma_transport::count`]) and logged once for each connection.

use std::sync::atomic::Ordering;

use rdma_transport::count;

use crate::context::Conn;

/// A violated rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A message that is not a call (RFC 5531 section 9).
    NotACall,
    /// An RPC version other than 2 (RFC 5531 section 9).
    RpcVersion,
    /// A call that ends before its credential (RFC 5531 section 9).
    ShortCall,
    /// A credential or verifier that cannot be decoded (RFC 5531 section 8), or, as a refusal, a flavor that is not served.
    Credential,
    /// Arguments that cannot be decoded (RFC 5531 section 9).
    Arguments,
    /// A verifier that does not match its call and context (RFC 2203 section 5.3.1).
    GssVerifier,
    /// Protected arguments that do not verify (RFC 2203 section 5.3.3.2).
    GssBody,
}

rdma_transport::rule_names!(Violation {
    Violation::NotACall => "rpc-not-a-call",
    Violation::RpcVersion => "rpc-version",
    Violation::ShortCall => "rpc-short-call",
    Violation::Credential => "rpc-credential",
    Violation::Arguments => "rpc-arguments",
    Violation::GssVerifier => "rpc-gss-verifier",
    Violation::GssBody => "rpc-gss-body",
});

impl Violation {
    /// Counts the violation, and logs the first of its kind on this connection. For a datagram it is only counted: each would be a
    /// new connection, from a sender that may be forged.
    pub(crate) fn note(self, conn: &Conn, detail: &str) {
        if !conn.is_datagram() && self.is_news(conn) {
            count::broken(self.name(), detail, conn.info.peer);
        } else {
            count::broken_again(self.name());
        }
    }

    /// True for the first of its kind on this connection.
    pub(crate) fn is_news(self, conn: &Conn) -> bool {
        let bit = 1 << self as u32;
        conn.reported.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}
