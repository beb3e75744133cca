//! NTLM version 2 (MS-NLMP), both sides. Recognizes LM and NTLM version 1 and refuses them.

mod acceptor;
mod initiator;
mod keys;
pub(crate) mod messages;
mod protection;

pub use acceptor::Acceptor;
pub(crate) use acceptor::Judged;
pub use initiator::{Credentials, Initiator};
pub(crate) use keys::{Direction, Mic, rc4};
pub use protection::{Protection, SIGNATURE_LEN};

#[cfg(test)]
pub(crate) use keys::tests::base_key_of;
#[cfg(test)]
mod tests;

/// `NegotiateFlags` (MS-NLMP section 2.2.2.5).
pub(crate) mod flags {
    pub(crate) use smb_proto::ntlm::flag::*;

    /// Flags that an acceptor grants on request.
    pub(crate) const GRANTED: u32 = UNICODE
        | REQUEST_TARGET
        | SIGN
        | SEAL
        | NTLM
        | ALWAYS_SIGN
        | EXTENDED_SESSIONSECURITY
        | VERSION
        | KEY_128
        | KEY_EXCH
        | KEY_56;
}
