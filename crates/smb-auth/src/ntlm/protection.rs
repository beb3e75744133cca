//! Signed and encrypted messages of a finished exchange (MS-NLMP section 3.4), for calls that are protected below SMB.
//!
//! *Operation.* Each direction has a key stream that continues over all messages, and numbers them. The caller passes messages in
//! the order in which they are sent.

use std::ops::Range;

use hmac::KeyInit;
use rc4::{Rc4, StreamCipher};
use subtle::ConstantTimeEq;

use super::flags;
use super::keys::{Direction, Key, Mic, hmac_md5, seal_key, sign_key};

/// Length of a signature, in bytes (`NTLMSSP_MESSAGE_SIGNATURE`).
pub const SIGNATURE_LEN: usize = 16;

/// Both directions of one exchange.
pub struct Protection {
    ours: Half,
    theirs: Half,
}

struct Half {
    sign: Key,
    stream: Rc4,
    sequence: u32,
    /// The check sum is encrypted as well.
    has_key_exchange: bool,
}

impl Half {
    #[allow(clippy::expect_used)]
    fn new(exported: &Key, flags: u32, direction: Direction) -> Self {
        let seal = seal_key(exported, flags, direction);
        Self {
            sign: sign_key(exported, direction),
            // Invariant: RC4 accepts keys of 1 to 256 bytes.
            stream: Rc4::new_from_slice(&seal[..]).expect("16 bytes"),
            sequence: 0,
            has_key_exchange: flags & flags::KEY_EXCH != 0,
        }
    }

    /// Computes `MAC` of a plain message whose data has passed the key stream (section 3.4.4.2).
    fn sum(&self, message: &[u8]) -> [u8; 8] {
        let full = hmac_md5(&self.sign, &[&self.sequence.to_le_bytes(), message]);
        let mut sum = [0; 8];
        sum.copy_from_slice(&full[..8]);
        sum
    }

    fn signature(&mut self, mut sum: [u8; 8]) -> [u8; SIGNATURE_LEN] {
        if self.has_key_exchange {
            self.stream.apply_keystream(&mut sum);
        }
        let mut out = [0; SIGNATURE_LEN];
        out[0] = 1;
        out[4..12].copy_from_slice(&sum);
        out[12..].copy_from_slice(&self.sequence.to_le_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        out
    }
}

impl Protection {
    /// Begins with the first message of both directions, if the peers have agreed on strong protection.
    pub(super) fn new(exported: &Key, flags: u32, own: Direction) -> Option<Self> {
        const NEEDED: u32 =
            flags::SIGN | flags::SEAL | flags::EXTENDED_SESSIONSECURITY | flags::KEY_128;
        let other = match own {
            Direction::ClientToServer => Direction::ServerToClient,
            Direction::ServerToClient => Direction::ClientToServer,
        };
        let half = |direction| Half::new(exported, flags, direction);
        (flags & NEEDED == NEEDED).then(|| Self { ours: half(own), theirs: half(other) })
    }

    /// Encrypts the part `data` of a message, in place, and returns the signature of the whole message.
    pub fn seal(&mut self, message: &mut [u8], data: Range<usize>) -> [u8; SIGNATURE_LEN] {
        let sum = self.ours.sum(message);
        if let Some(data) = message.get_mut(data) {
            self.ours.stream.apply_keystream(data);
        }
        self.ours.signature(sum)
    }

    /// Decrypts the part `data` of a message, in place. False if the message has another signature; then no further message can be
    /// read.
    #[must_use]
    pub fn unseal(&mut self, message: &mut [u8], data: Range<usize>, signature: &[u8]) -> bool {
        let Some(data) = message.get_mut(data) else { return false };
        self.theirs.stream.apply_keystream(data);
        let sum = self.theirs.sum(message);
        self.theirs.signature(sum).ct_eq(signature).into()
    }
}

impl Mic {
    /// Begins the protection of messages that follow the exchange, if the peers have agreed on strong protection.
    pub(super) fn protection(&self, own: Direction) -> Option<Protection> {
        Protection::new(&self.key, self.flags, own)
    }
}

impl std::fmt::Debug for Protection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Protection({} sent, {} received)", self.ours.sequence, self.theirs.sequence)
    }
}
