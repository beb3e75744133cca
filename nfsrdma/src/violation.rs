//! Rules of ONC RPC that a peer can break and still be answered. Each is counted ([`rdma_transport::count`]) and has one line in
//! the log per connection.

use std::sync::atomic::Ordering;

use rdma_transport::count;

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
    /// A credential or verifier that cannot be read (RFC 5531 section 8). A flavor that is not served is a refusal of this name.
    Credential,
    /// Arguments that cannot be read (RFC 5531 section 9).
    Arguments,
    /// A verifier that is not of its call and context (RFC 2203 section 5.3.1).
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
    /// Counts it, and logs it when it is the first of its kind on this connection. A datagram is counted alone: each would be a
    /// connection of its own, of whomever its sender says to be.
    pub(crate) fn note(self, conn: &Conn, detail: &str) {
        if !conn.is_datagram() && self.is_news(conn) {
            count::broken(self.name(), detail, conn.info.peer);
        } else {
            count::broken_again(self.name());
        }
    }

    /// It is the first of its kind on this connection.
    pub(crate) fn is_news(self, conn: &Conn) -> bool {
        let bit = 1 << self as u32;
        conn.reported.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}
