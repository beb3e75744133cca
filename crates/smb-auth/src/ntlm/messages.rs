//! Adapters between the NTLM messages of [`smb_proto::ntlm`] and both sides.

use smb_proto::ntlm::Negotiate;
pub(crate) use smb_proto::ntlm::SIGNATURE;
pub(super) use smb_proto::ntlm::{
    Authenticate, Challenge, ClientChallenge, MIC_AT, av, pairs, put_pair,
};
use smb_proto::smb2::put_utf16;

use crate::{Identity, Refusal};

/// Returns `NegotiateFlags` of a NEGOTIATE_MESSAGE.
pub(super) fn parse_negotiate(message: &[u8]) -> Result<u32, Refusal> {
    Ok(Negotiate::parse(message)?.flags)
}

/// Returns `Version` of a NEGOTIATE_MESSAGE, if present.
pub(super) fn version(message: &[u8]) -> Option<[u8; 8]> {
    Negotiate::parse(message).ok()?.version
}

/// Builds a NEGOTIATE_MESSAGE without names.
pub(super) fn emit_negotiate(flags: u32) -> Vec<u8> {
    Negotiate::new(flags).emit()
}

/// Builds `TargetInfo` of a server: its names and the time. The time obliges the client to send a MIC.
pub(super) fn target_info(identity: &Identity, time: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, name) in [
        (av::NB_DOMAIN, &identity.domain),
        (av::NB_COMPUTER, &identity.computer),
        (av::DNS_DOMAIN, &identity.dns_domain),
        (av::DNS_COMPUTER, &identity.dns_computer),
    ] {
        let mut wide = Vec::new();
        put_utf16(&mut wide, name);
        put_pair(&mut out, id, &wide);
    }
    put_pair(&mut out, av::TIMESTAMP, &time.to_le_bytes());
    put_pair(&mut out, av::EOL, &[]);
    out
}
