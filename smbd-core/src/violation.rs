//! Rules of SMB2 that a peer can break. Each is counted ([`rdma_transport::count`]) and logged once per connection.

use std::sync::atomic::Ordering;

use rdma_transport::count;

use crate::conn::Conn;

/// Counted like a violation, but no rule is broken: an address with too many wrong passwords had to wait.
pub const LOGON_SLOWED: &str = "smb-logon-slowed";

/// A violation that ends the connection, with detail for the log.
pub(crate) type Fatal = (Violation, &'static str);

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Bytes that are not a message (MS-SMB2 section 3.3.5.2): ends the connection.
    NotAMessage,
    /// A message id that was not granted, or was used before (3.3.5.2.3): ends the connection.
    MessageId,
    /// A signature that is wrong or missing (3.3.5.2.4).
    Signature,
    /// An encrypted message that cannot be decrypted (3.3.5.2.1.1): ends the connection.
    Sealed,
    /// A compressed message that cannot be expanded, or without agreed compression (3.3.5.2.1.2): ends the connection.
    Compressed,
    /// An unencrypted message where encryption is required (3.3.5.2.9, 3.3.5.2.11).
    Clear,
    /// A chain with invalid offsets (3.3.5.2.7): ends the connection.
    Chain,
    /// A command before NEGOTIATE, or a second NEGOTIATE (3.3.5.3, 3.3.5.4): ends the connection.
    Order,
    /// More data than the credit charge pays for (3.3.5.2.5).
    CreditCharge,
    /// A body that does not follow its format (3.3.5).
    Format,
    /// No user logged on in time: ends the connection.
    Silent,
    /// A validation request that differs from the negotiation (3.3.5.15.12): ends the connection.
    Downgrade,
    /// Data sent over RDMA that does not match its signature or tag (3.3.5.13).
    Payload,
}

rdma_transport::rule_names!(Violation {
    Violation::NotAMessage => "smb-not-a-message",
    Violation::MessageId => "smb-message-id",
    Violation::Signature => "smb-signature",
    Violation::Sealed => "smb-sealed",
    Violation::Compressed => "smb-compressed",
    Violation::Clear => "smb-clear",
    Violation::Chain => "smb-chain",
    Violation::Order => "smb-order",
    Violation::CreditCharge => "smb-credit-charge",
    Violation::Format => "smb-format",
    Violation::Silent => "smb-silent",
    Violation::Downgrade => "smb-downgrade",
    Violation::Payload => "smb-payload",
});

impl Violation {
    /// Counts the violation, and logs the first of its kind on this connection.
    pub(crate) fn note(self, conn: &Conn, detail: &str) {
        let bit = 1 << self as u32;
        if conn.reported.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            count::broken(self.name(), detail, conn.info.peer);
        } else {
            count::broken_again(self.name());
        }
    }

    /// As [`Violation::note`], for a rule that ends the connection.
    pub(crate) async fn end(self, conn: &Conn, detail: &str) {
        self.note(conn, detail);
        conn.handle.shutdown().await;
    }
}
