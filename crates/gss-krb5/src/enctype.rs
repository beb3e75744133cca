//! The encryption types and their key derivation (RFC 3961 section 5, RFC 3962, RFC 8009).

use aws_lc_rs::cipher::{
    AES_128, AES_256, Algorithm, DecryptingKey, DecryptionContext, EncryptingKey,
    EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::Failed;

/// Length of an AES block, in bytes.
pub(crate) const BLOCK: usize = 16;
/// Length of the longest checksum in bytes, which is the one of aes256-cts-hmac-sha384-192.
pub(crate) const TAG_MAX: usize = 24;

/// An encryption type with its Kerberos number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enctype {
    /// aes128-cts-hmac-sha1-96 (RFC 3962).
    Aes128Sha1 = 17,
    /// aes256-cts-hmac-sha1-96 (RFC 3962).
    Aes256Sha1 = 18,
    /// aes128-cts-hmac-sha256-128 (RFC 8009).
    Aes128Sha2 = 19,
    /// aes256-cts-hmac-sha384-192 (RFC 8009).
    Aes256Sha2 = 20,
}

impl Enctype {
    /// All supported types. Older ones (DES, RC4) are not supported.
    pub const ALL: [Self; 4] =
        [Self::Aes128Sha1, Self::Aes256Sha1, Self::Aes128Sha2, Self::Aes256Sha2];

    /// Returns the type with this number; `None` if it is not supported.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|e| *e as i32 == number)
    }

    /// Returns the Kerberos name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Sha1 => "aes128-cts-hmac-sha1-96",
            Self::Aes256Sha1 => "aes256-cts-hmac-sha1-96",
            Self::Aes128Sha2 => "aes128-cts-hmac-sha256-128",
            Self::Aes256Sha2 => "aes256-cts-hmac-sha384-192",
        }
    }

    /// Returns the length of a key, in bytes.
    #[must_use]
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha2 => 16,
            Self::Aes256Sha1 | Self::Aes256Sha2 => 32,
        }
    }

    /// Returns the length of a checksum and of the tag after a ciphertext, in bytes.
    #[must_use]
    pub fn tag_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 12,
            Self::Aes128Sha2 => 16,
            Self::Aes256Sha2 => 24,
        }
    }

    /// Checks whether the tag covers the ciphertext (RFC 8009) or the plaintext (RFC 3962).
    pub(crate) fn tags_ciphertext(self) -> bool {
        matches!(self, Self::Aes128Sha2 | Self::Aes256Sha2)
    }

    fn aes(self) -> &'static Algorithm {
        if self.key_len() == 16 { &AES_128 } else { &AES_256 }
    }

    fn hash(self) -> hmac::Algorithm {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Aes128Sha2 => hmac::HMAC_SHA256,
            Self::Aes256Sha2 => hmac::HMAC_SHA384,
        }
    }

    fn mac_key_len(self) -> usize {
        match self {
            Self::Aes256Sha2 => 24,
            other => other.key_len(),
        }
    }
}

/// The use of a derived key: the last byte of the derivation constant.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Checksum = 0x99,
    Encryption = 0xaa,
    Integrity = 0x55,
}

/// The keys of one key usage number.
pub(crate) struct UsageKeys {
    pub(crate) enctype: Enctype,
    pub(crate) encrypt: EncryptingKey,
    pub(crate) decrypt: DecryptingKey,
    pub(crate) integrity: hmac::Key,
    pub(crate) checksum: hmac::Key,
}

impl UsageKeys {
    /// Derives the keys from a protocol key.
    pub(crate) fn derive(enctype: Enctype, key: &[u8], usage: u32) -> Result<Self, Failed> {
        if key.len() != enctype.key_len() {
            return Err(Failed);
        }
        let of = |purpose| derived(enctype, key, usage, purpose);
        let macs = [of(Purpose::Integrity)?, of(Purpose::Checksum)?];
        Self::of(enctype, &of(Purpose::Encryption)?, macs.each_ref().map(|key| &key[..]))
    }

    /// Builds the keys from derived ones: Ke, then Ki and Kc.
    pub(crate) fn of(
        enctype: Enctype,
        cipher: &[u8],
        [integrity, checksum]: [&[u8]; 2],
    ) -> Result<Self, Failed> {
        let aes = || UnboundCipherKey::new(enctype.aes(), cipher);
        Ok(Self {
            enctype,
            encrypt: EncryptingKey::cbc(aes()?)?,
            decrypt: DecryptingKey::cbc(aes()?)?,
            integrity: hmac::Key::new(enctype.hash(), integrity),
            checksum: hmac::Key::new(enctype.hash(), checksum),
        })
    }
}

/// Derives a key: DK of RFC 3961 section 5.1, or KDF-HMAC-SHA2 of RFC 8009 section 3.
pub(crate) fn derived(
    enctype: Enctype,
    key: &[u8],
    usage: u32,
    purpose: Purpose,
) -> Result<Zeroizing<Vec<u8>>, Failed> {
    let mut label = [0; 5];
    label[..4].copy_from_slice(&usage.to_be_bytes());
    label[4] = purpose as u8;
    if enctype.tags_ciphertext() {
        let len = match purpose {
            Purpose::Encryption => enctype.key_len(),
            Purpose::Checksum | Purpose::Integrity => enctype.mac_key_len(),
        };
        return Ok(kdf_hmac_sha2(enctype, key, &label, len));
    }
    dk(enctype, key, &label)
}

/// Computes KDF-HMAC-SHA2 (RFC 8009 section 3) with `len` bytes, at most the length of the hash.
pub(crate) fn kdf_hmac_sha2(
    enctype: Enctype,
    key: &[u8],
    label: &[u8],
    len: usize,
) -> Zeroizing<Vec<u8>> {
    let mut mac = hmac::Context::with_key(&hmac::Key::new(enctype.hash(), key));
    mac.update(&1u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(&u32::try_from(len * 8).unwrap_or(u32::MAX).to_be_bytes());
    let tag = mac.sign();
    Zeroizing::new(tag.as_ref().iter().copied().take(len).collect())
}

/// Computes DK (RFC 3961 section 5.1): encrypts the folded constant, then each result again, until enough bytes exist.
pub(crate) fn dk(
    enctype: Enctype,
    key: &[u8],
    constant: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Failed> {
    let cipher = EncryptingKey::cbc(UnboundCipherKey::new(enctype.aes(), key)?)?;
    let mut block: [u8; BLOCK] = n_fold(constant);
    let mut out = Zeroizing::new(Vec::with_capacity(enctype.key_len()));
    while out.len() < enctype.key_len() {
        cbc_encrypt(&cipher, [0; BLOCK], &mut block)?;
        out.extend_from_slice(&block);
    }
    Ok(out)
}

/// Computes n-fold (RFC 3961 section 5.1) to `N` bytes: copies of the input, each rotated right by 13 more bits than the previous
/// one, are added as big-endian numbers with end-around carry.
pub(crate) fn n_fold<const N: usize>(input: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let (from, to) = (input.len(), N);
    if from == 0 || to == 0 {
        return out;
    }
    let bits = from * 8;
    // Returns byte `i` of the endless sequence of rotated copies.
    let byte = |i: usize| {
        let (copy, at) = (i / from, i % from);
        // Each copy is rotated right by 13 bits: its bit 0 is bit -13 * copy of the input.
        let start = (at * 8 + bits - 13 * copy % bits) % bits;
        let pair = u16::from_be_bytes([input[start / 8], input[(start / 8 + 1) % from]]);
        u32::from(pair >> (8 - start % 8) & 0xff)
    };
    let whole = from / gcd(from, to) * to;
    let mut carry = 0;
    for i in (0..whole).rev() {
        let sum = carry + u32::from(out[i % to]) + byte(i);
        let [.., low] = sum.to_be_bytes();
        out[i % to] = low;
        carry = sum >> 8;
    }
    for slot in out.iter_mut().rev() {
        let [.., low] = (carry + u32::from(*slot)).to_be_bytes();
        carry = (carry + u32::from(*slot)) >> 8;
        *slot = low;
    }
    out
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Encrypts whole blocks in place with CBC.
pub(crate) fn cbc_encrypt(
    key: &EncryptingKey,
    iv: [u8; BLOCK],
    data: &mut [u8],
) -> Result<(), Failed> {
    key.less_safe_encrypt(data, EncryptionContext::Iv128(iv.into()))?;
    Ok(())
}

/// Decrypts whole blocks in place with CBC.
pub(crate) fn cbc_decrypt(
    key: &DecryptingKey,
    iv: [u8; BLOCK],
    data: &mut [u8],
) -> Result<(), Failed> {
    key.decrypt(data, DecryptionContext::Iv128(iv.into()))?;
    Ok(())
}

#[cfg(test)]
mod tests;
