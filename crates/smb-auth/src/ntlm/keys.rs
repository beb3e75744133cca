//! Key computations of MS-NLMP sections 3.3.2 and 3.4.

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use rc4::{Rc4, StreamCipher};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::flags;
use crate::NtHash;

pub(super) type Key = Zeroizing<[u8; 16]>;

pub(super) fn hmac_md5(key: &[u8; 16], pieces: &[&[u8]]) -> Key {
    // HMAC pads a key that is shorter than the block with zeros.
    let mut block = Zeroizing::new([0_u8; 64]);
    block[..16].copy_from_slice(key);
    let mut mac = Hmac::<Md5>::new((&*block).into());
    for piece in pieces {
        mac.update(piece);
    }
    Zeroizing::new(mac.finalize().into_bytes().into())
}

#[allow(clippy::expect_used)]
pub(crate) fn rc4(key: &[u8; 16], data: &mut [u8]) {
    // Invariant: RC4 accepts keys of 1 to 256 bytes.
    let mut cipher = Rc4::new_from_slice(key).expect("16 bytes");
    cipher.apply_keystream(data);
}

/// `NTOWFv2`: uses the user name in upper case, the domain unchanged.
pub(super) fn ntowf_v2(hash: &NtHash, user: &str, domain: &str) -> Key {
    let wide: Vec<u8> = user
        .chars()
        .map(upcase)
        .chain(domain.chars())
        .flat_map(|c| {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().flat_map(|u| u.to_le_bytes()).collect::<Vec<u8>>()
        })
        .collect();
    hmac_md5(&hash.0, &[&wide])
}

/// Converts to upper case. The table of Windows maps one character to one, so characters with a longer mapping stay unchanged.
pub(super) fn upcase(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// The direction of a message; each has separate keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ClientToServer,
    ServerToClient,
}

/// `GSS_GetMIC` of the first message in a direction, which is all that SPNEGO needs (MS-NLMP section 3.4.4.2).
#[derive(Clone)]
pub(crate) struct Mic {
    pub(super) key: Key,
    pub(super) flags: u32,
}

impl Mic {
    pub(super) fn new(exported: &Key, flags: u32) -> Self {
        Self { key: exported.clone(), flags }
    }

    /// Computes the MIC of a message.
    pub(crate) fn sign(&self, direction: Direction, message: &[u8]) -> [u8; 16] {
        let sequence = 0_u32.to_le_bytes();
        let full = hmac_md5(&sign_key(&self.key, direction), &[&sequence, message]);
        let mut checksum = [0; 8];
        checksum.copy_from_slice(&full[..8]);
        if self.flags & flags::KEY_EXCH != 0 {
            rc4(&seal_key(&self.key, self.flags, direction), &mut checksum);
        }
        let mut out = [0; 16];
        out[0] = 1;
        out[4..12].copy_from_slice(&checksum);
        out[12..].copy_from_slice(&sequence);
        out
    }

    /// Verifies a MIC in constant time.
    pub(crate) fn verify(&self, direction: Direction, message: &[u8], mic: &[u8]) -> bool {
        self.sign(direction, message).ct_eq(mic).into()
    }
}

/// Derives `SIGNKEY` with extended session security (section 3.4.5.2).
pub(super) fn sign_key(exported: &Key, direction: Direction) -> Key {
    magic(
        &exported[..],
        match direction {
            Direction::ClientToServer => {
                b"session key to client-to-server signing key magic constant\0"
            }
            Direction::ServerToClient => {
                b"session key to server-to-client signing key magic constant\0"
            }
        },
    )
}

/// Derives `SEALKEY` with extended session security (section 3.4.5.3).
pub(super) fn seal_key(exported: &Key, flags: u32, direction: Direction) -> Key {
    let used = if flags & flags::KEY_128 != 0 {
        16
    } else if flags & flags::KEY_56 != 0 {
        7
    } else {
        5
    };
    magic(
        &exported[..used],
        match direction {
            Direction::ClientToServer => {
                b"session key to client-to-server sealing key magic constant\0"
            }
            Direction::ServerToClient => {
                b"session key to server-to-client sealing key magic constant\0"
            }
        },
    )
}

fn magic(key: &[u8], words: &[u8]) -> Key {
    let mut hash = Md5::new();
    hash.update(key);
    hash.update(words);
    Zeroizing::new(hash.finalize().into())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Computes `SessionBaseKey` as a controller does.
    pub(crate) fn base_key_of(hash: &NtHash, (user, domain): (&str, &str), nt: &[u8]) -> Key {
        hmac_md5(&ntowf_v2(hash, user, domain), &[&nt[..16]])
    }
}
