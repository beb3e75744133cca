//! The header of an encrypted message (MS-SMB2 section 2.2.41).

use wire::{Parser, bytes, le_u16, le_u32, le_u64};

use super::Parsed;
use crate::parse::{constant, whole};

/// The first four bytes of the message.
pub const PROTOCOL_ID: [u8; 4] = *b"\xfdSMB";
/// Length of the header in bytes; the ciphertext follows.
pub const LEN: usize = 52;
/// The additional authenticated data: from `Nonce` to the end of the header.
pub const AAD: std::ops::Range<usize> = 20..LEN;
/// Position of the tag.
pub const SIGNATURE: std::ops::Range<usize> = 4..20;
/// `Flags` in 3.1.1, `EncryptionAlgorithm` in earlier dialects: both are 1.
const ENCRYPTED: u16 = 1;

/// An SMB2_TRANSFORM_HEADER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// The authentication tag.
    pub signature: [u8; 16],
    /// Nonce of the cipher; unused bytes are zero.
    pub nonce: [u8; 16],
    /// Length of the message, in bytes.
    pub original_len: u32,
    /// Selects the keys.
    pub session_id: u64,
}

impl Transform {
    /// Parses it.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        whole(message, |i| {
            let (i, ()) = constant("ProtocolId", bytes("ProtocolId"), PROTOCOL_ID)(i)?;
            let (i, (signature, nonce)) = (bytes("Signature"), bytes("Nonce")).parse(i)?;
            let (i, (original_len, _)) =
                (le_u32("OriginalMessageSize"), le_u16("Reserved")).parse(i)?;
            let (i, ()) = constant("Flags", le_u16("Flags"), ENCRYPTED)(i)?;
            let (i, session_id) = le_u64("SessionId")(i)?;
            Ok((i, Self { signature, nonce, original_len, session_id }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..4].copy_from_slice(&PROTOCOL_ID);
        out[SIGNATURE].copy_from_slice(&self.signature);
        out[20..36].copy_from_slice(&self.nonce);
        out[36..40].copy_from_slice(&self.original_len.to_le_bytes());
        out[42..44].copy_from_slice(&ENCRYPTED.to_le_bytes());
        out[44..52].copy_from_slice(&self.session_id.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::test_harness::named;

    #[test]
    fn value_round_trips() {
        let t = Transform { signature: [3; 16], nonce: [7; 16], original_len: 99, session_id: 5 };
        let mut bytes = t.emit();
        assert_eq!(Transform::parse(&bytes), Ok(t));
        assert_eq!(named(Transform::parse(&bytes[..51])), Err("SessionId"));
        bytes[42] = 2;
        assert_eq!(named(Transform::parse(&bytes)), Err("Flags"));
    }
}
