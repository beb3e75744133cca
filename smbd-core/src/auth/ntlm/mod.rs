//! NTLM version 2 (MS-NLMP), both ends. LM and NTLM version 1 are recognised and refused.

mod acceptor;
mod initiator;
mod keys;
pub(crate) mod wire;

pub use acceptor::Acceptor;
pub use initiator::{Credentials, Initiator};
pub(crate) use keys::{Direction, Mic};

#[cfg(test)]
mod tests;

/// `NegotiateFlags` (MS-NLMP section 2.2.2.5).
pub(crate) mod flags {
    pub(crate) const UNICODE: u32 = 0x0000_0001;
    pub(crate) const OEM: u32 = 0x0000_0002;
    pub(crate) const REQUEST_TARGET: u32 = 0x0000_0004;
    pub(crate) const SIGN: u32 = 0x0000_0010;
    pub(crate) const SEAL: u32 = 0x0000_0020;
    pub(crate) const NTLM: u32 = 0x0000_0200;
    pub(crate) const ANONYMOUS: u32 = 0x0000_0800;
    pub(crate) const ALWAYS_SIGN: u32 = 0x0000_8000;
    pub(crate) const TARGET_TYPE_SERVER: u32 = 0x0002_0000;
    pub(crate) const EXTENDED_SESSIONSECURITY: u32 = 0x0008_0000;
    pub(crate) const TARGET_INFO: u32 = 0x0080_0000;
    pub(crate) const VERSION: u32 = 0x0200_0000;
    pub(crate) const KEY_128: u32 = 0x2000_0000;
    pub(crate) const KEY_EXCH: u32 = 0x4000_0000;
    pub(crate) const KEY_56: u32 = 0x8000_0000;
    /// What an acceptor grants when it is asked.
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
