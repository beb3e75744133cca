//! Changes of passwords by their users (MS-SAMR sections 3.1.5.10.3, 3.1.5.10.4 and 3.2.2). Pure.
//!
//! *Operation.* A [`Change`] has the new password, encrypted with the NT hash of the old one, and a proof that the client knows
//! that hash. [`Change::open`] checks the proof and returns the new password.
//!
//! *Time.* A change of the newer form lets the server derive a key, which takes as long as the client wants, but no longer than
//! [`ITERATIONS`] allows: about a second.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use aws_lc_rs::cipher::{
    AES_256, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{hmac, pbkdf2};
use des::Des;
use des::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use md4::{Digest, Md4};
use smb_proto::samr::{PASSWORD_MAX, USER_PASSWORD_LEN, user_password, user_password_aes};
use smb_proto::smb2::utf16;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::NtHash;
use crate::ntlm::rc4;

/// Length of SAMPR_ENCRYPTED_USER_PASSWORD, in bytes (MS-SAMR section 2.2.6.21).
pub const BUFFER_LEN: usize = USER_PASSWORD_LEN;
/// Length of `AuthData`, in bytes (MS-SAMR section 2.2.6.32).
pub const AUTH_DATA_LEN: usize = 64;
/// Maximum length of `Cipher`, in bytes. Clients send 528.
pub const CIPHER_MAX: usize = 2048;
/// Permitted rounds of the key derivation (MS-SAMR section 3.1.5.10.4).
pub const ITERATIONS: RangeInclusive<u64> = 5000..=1_000_000;

/// The keys' labels, each with its terminating zero (MS-SAMR section 3.2.2.4).
const ENCRYPTION_LABEL: &[u8] = b"Microsoft SAM encryption key AEAD-AES-256-CBC-HMAC-SHA512 16\0";
const MAC_LABEL: &[u8] = b"Microsoft SAM MAC key AEAD-AES-256-CBC-HMAC-SHA512 16\0";
/// `versionbyte` and `versionbyte_length`.
const VERSION: [u8; 1] = [1];

/// A request for another password.
pub enum Change {
    /// SamrUnicodeChangePasswordUser2, with RC4 and DES.
    Rc4 {
        /// NewPasswordEncryptedWithOldNt
        password: Box<[u8; BUFFER_LEN]>,
        /// OldNtOwfPasswordEncryptedWithNewNt
        verifier: [u8; 16],
    },
    /// SamrUnicodeChangePasswordUser4, with AES.
    Aes(Box<Aes>),
}

/// SAMPR_ENCRYPTED_PASSWORD_AES
pub struct Aes {
    auth_data: [u8; AUTH_DATA_LEN],
    salt: [u8; 16],
    cipher: Vec<u8>,
    iterations: NonZeroU32,
}

/// The reason why a change gives no password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The client does not know the old password.
    Proof,
    /// The new password is no text.
    Text,
}

impl Aes {
    /// Builds it from its fields, unless the number of rounds or the length of the cipher is not permitted.
    pub fn new(
        auth_data: [u8; AUTH_DATA_LEN],
        salt: [u8; 16],
        cipher: &[u8],
        iterations: u64,
    ) -> Option<Self> {
        let is_whole = !cipher.is_empty() && cipher.len().is_multiple_of(16);
        if !ITERATIONS.contains(&iterations) || !is_whole || cipher.len() > CIPHER_MAX {
            return None;
        }
        let iterations = NonZeroU32::new(u32::try_from(iterations).ok()?)?;
        Some(Self { auth_data, salt, cipher: cipher.to_vec(), iterations })
    }

    /// Encrypts a password as clients do, unless it is too long or the number of rounds is not permitted.
    pub fn seal(old: &NtHash, new: &str, salt: [u8; 16], iterations: u64) -> Option<Self> {
        let mut text = Zeroizing::new(vec![0; 2 + PASSWORD_MAX]);
        let wide = wide(new);
        text[..2].copy_from_slice(&u16::try_from(wide.len()).ok()?.to_le_bytes());
        text.get_mut(2..2 + wide.len())?.copy_from_slice(&wide);
        let mut sealed = Self::new([0; AUTH_DATA_LEN], salt, &[0; 16], iterations)?;
        let (key, mac) = sealed.keys(old);
        let key = UnboundCipherKey::new(&AES_256, &key[..]).ok()?;
        let key = PaddedBlockEncryptingKey::cbc_pkcs7(key).ok()?;
        let mut cipher = text.to_vec();
        let context = EncryptionContext::Iv128(FixedLength::from(salt));
        key.less_safe_encrypt(&mut cipher, context).ok()?;
        sealed.cipher = cipher;
        let tag = sealed.tag(&mac);
        sealed.auth_data.copy_from_slice(tag.as_ref());
        Some(sealed)
    }

    /// Returns the fields: AuthData, Salt, Cipher and PBKDF2Iterations.
    pub fn fields(&self) -> (&[u8; AUTH_DATA_LEN], &[u8; 16], &[u8], u64) {
        (&self.auth_data, &self.salt, &self.cipher, self.iterations.get().into())
    }

    /// Derives the keys of cipher and MAC (sections 3.2.2.4 and 3.2.2.5). Takes long.
    fn keys(&self, old: &NtHash) -> (Zeroizing<[u8; 32]>, hmac::Key) {
        let mut shared = Zeroizing::new([0; 16]);
        let prf = pbkdf2::PBKDF2_HMAC_SHA512;
        pbkdf2::derive(prf, self.iterations, &self.salt, &old.0[..], &mut shared[..]);
        let shared = hmac::Key::new(hmac::HMAC_SHA512, &shared[..]);
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(&hmac::sign(&shared, ENCRYPTION_LABEL).as_ref()[..32]);
        (key, hmac::Key::new(hmac::HMAC_SHA512, hmac::sign(&shared, MAC_LABEL).as_ref()))
    }

    fn tag(&self, mac: &hmac::Key) -> hmac::Tag {
        let mut tag = hmac::Context::with_key(mac);
        for piece in [&VERSION, &self.salt[..], &self.cipher, &VERSION] {
            tag.update(piece);
        }
        tag.sign()
    }

    fn open(&self, old: &NtHash) -> Result<Zeroizing<String>, Wrong> {
        let (key, mac) = self.keys(old);
        if !bool::from(self.tag(&mac).as_ref().ct_eq(&self.auth_data)) {
            return Err(Wrong::Proof);
        }
        let key = UnboundCipherKey::new(&AES_256, &key[..]).map_err(|_| Wrong::Text)?;
        let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(|_| Wrong::Text)?;
        let mut plain = Zeroizing::new(self.cipher.clone());
        let context = DecryptionContext::Iv128(FixedLength::from(self.salt));
        let plain = key.decrypt(&mut plain, context).map_err(|_| Wrong::Text)?;
        let wide = user_password_aes(plain).map_err(|_| Wrong::Text)?;
        utf16(wide).map(Zeroizing::new).ok_or(Wrong::Text)
    }
}

impl Change {
    /// Encrypts a password as clients do, behind these random bytes, unless it is too long.
    pub fn seal_rc4(old: &NtHash, new: &str, filler: [u8; PASSWORD_MAX]) -> Option<Self> {
        let mut password = Box::new([0; BUFFER_LEN]);
        let wide = wide(new);
        let start = PASSWORD_MAX.checked_sub(wide.len())?;
        password[..start].copy_from_slice(&filler[..start]);
        password[start..PASSWORD_MAX].copy_from_slice(&wide);
        password[PASSWORD_MAX..].copy_from_slice(&u32::try_from(wide.len()).ok()?.to_le_bytes());
        rc4(&old.0, &mut password[..]);
        let mut verifier = *old.0;
        let (halves, _) = verifier.as_chunks_mut::<8>();
        for (half, key) in halves.iter_mut().zip(des_keys(&NtHash::of(new))) {
            key.encrypt_block(half.into());
        }
        Some(Self::Rc4 { password, verifier })
    }

    /// Returns the new password, if the client knows the old one. May take about a second.
    ///
    /// # Errors
    /// The client does not know it, or the new password is no text.
    pub fn open(&self, old: &NtHash) -> Result<Zeroizing<String>, Wrong> {
        match self {
            Self::Rc4 { password, verifier } => open_rc4(old, password, *verifier),
            Self::Aes(aes) => aes.open(old),
        }
    }

    /// Returns whether [`Change::open`] takes long.
    pub fn is_slow(&self) -> bool {
        matches!(self, Self::Aes(_))
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_slow() { "Change::Aes(..)" } else { "Change::Rc4(..)" })
    }
}

/// Section 3.1.5.10.3: the new hash decrypts the old hash.
fn open_rc4(
    old: &NtHash,
    password: &[u8; BUFFER_LEN],
    mut verifier: [u8; 16],
) -> Result<Zeroizing<String>, Wrong> {
    let mut plain = Zeroizing::new(*password);
    rc4(&old.0, &mut plain[..]);
    // The length is random if the client has used another old password.
    let wide = user_password(&plain).map_err(|_| Wrong::Proof)?;
    let hash = NtHash(Zeroizing::new(Md4::digest(wide).into()));
    let (halves, _) = verifier.as_chunks_mut::<8>();
    for (half, key) in halves.iter_mut().zip(des_keys(&hash)) {
        key.decrypt_block(half.into());
    }
    if !bool::from(verifier.ct_eq(&old.0[..])) {
        return Err(Wrong::Proof);
    }
    utf16(wide).map(Zeroizing::new).ok_or(Wrong::Text)
}

/// Returns the keys for both halves of a hash: seven bytes each, spread over eight (sections 2.2.11.1.1 and 2.2.11.1.2).
fn des_keys(hash: &NtHash) -> [Des; 2] {
    [0, 7].map(|at| {
        let half = &hash.0[at..at + 7];
        let mut key = Zeroizing::new([0_u8; 8]);
        for (n, byte) in key.iter_mut().enumerate() {
            let before = if n > 0 { half[n - 1] << (8 - n) } else { 0 };
            let after = if n < 7 { half[n] >> n } else { 0 };
            // The lowest bit is a parity that no peer checks.
            *byte = (before | after) & 0xfe;
        }
        Des::new((&*key).into())
    })
}

fn wide(text: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(text.encode_utf16().flat_map(u16::to_le_bytes).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|d| u8::try_from(d[0] << 4 | d[1]).unwrap()).collect()
    }

    fn opened(change: &Change, old: &str) -> Result<String, Wrong> {
        change.open(&NtHash::of(old)).map(|new| new.to_string())
    }

    #[test]
    fn change_of_other_clients_is_opened() {
        // Made by impacket 0.10: hSamrUnicodeChangePasswordUser2.
        let rc4 = include_str!("password/impacket.hex");
        let (password, verifier) = rc4.trim().split_once('\n').unwrap();
        let change = Change::Rc4 {
            password: Box::new(unhex(password).try_into().unwrap()),
            verifier: unhex(verifier).try_into().unwrap(),
        };
        assert_eq!(opened(&change, "old password").as_deref(), Ok("new p\u{e4}ssword"));
        assert_eq!(opened(&change, "other password"), Err(Wrong::Proof));
        // Made by Samba 4.17: samba.crypto.aead_aes_256_cbc_hmac_sha512_blob.
        let aes = include_str!("password/samba.hex");
        let fields: Vec<Vec<u8>> = aes.lines().map(unhex).collect();
        let [auth_data, salt, cipher] = &fields[..] else { panic!("three lines") };
        let aes =
            Aes::new(auth_data[..].try_into().unwrap(), salt[..].try_into().unwrap(), cipher, 5000);
        let change = Change::Aes(Box::new(aes.unwrap()));
        assert_eq!(opened(&change, "old password").as_deref(), Ok("new p\u{e4}ssword \u{1f511}"));
        assert_eq!(opened(&change, "other password"), Err(Wrong::Proof));
    }

    #[test]
    fn des_example_of_the_specification_matches() {
        // MS-SAMR section 2.2.11.1.2 spreads the bits of seven bytes; ones show where they go.
        let hash = NtHash(Zeroizing::new([0xff; 16]));
        let mut block = [0_u8; 8];
        des_keys(&hash)[1].encrypt_block((&mut block).into());
        // FIPS 81: the weak key of ones decrypts what it encrypts.
        des_keys(&hash)[0].encrypt_block((&mut block).into());
        assert_eq!(block, [0; 8]);
    }

    #[test]
    fn rounds_and_lengths_beyond_the_limits_are_refused() {
        let new = |len: usize, iterations| {
            Aes::new([0; AUTH_DATA_LEN], [0; 16], &vec![0; len], iterations).is_some()
        };
        assert!(new(528, 5000) && new(CIPHER_MAX, 1_000_000));
        for (len, iterations) in [
            (528, 4999),
            (528, 1_000_001),
            (528, u64::MAX),
            (0, 5000),
            (527, 5000),
            (CIPHER_MAX + 16, 5000),
        ] {
            assert!(!new(len, iterations), "{len} {iterations}");
        }
        let old = NtHash::of("old");
        assert!(Change::seal_rc4(&old, &"x".repeat(256), [1; PASSWORD_MAX]).is_some());
        assert!(Change::seal_rc4(&old, &"x".repeat(257), [1; PASSWORD_MAX]).is_none());
        assert!(Aes::seal(&old, &"x".repeat(257), [1; 16], 5000).is_none());
    }

    #[test]
    fn password_that_is_no_text_is_refused_after_the_proof() {
        let old = NtHash::of("old");
        let Some(Change::Rc4 { mut password, .. }) = Change::seal_rc4(&old, "x", [1; PASSWORD_MAX])
        else {
            panic!("no change")
        };
        rc4(&old.0, &mut password[..]);
        // Half of a surrogate pair.
        password[PASSWORD_MAX - 2..PASSWORD_MAX].copy_from_slice(&[0, 0xd8]);
        let mut verifier = *old.0;
        let hash = NtHash(Zeroizing::new(Md4::digest([0, 0xd8]).into()));
        let (halves, _) = verifier.as_chunks_mut::<8>();
        for (half, key) in halves.iter_mut().zip(des_keys(&hash)) {
            key.encrypt_block(half.into());
        }
        rc4(&old.0, &mut password[..]);
        assert_eq!(Change::Rc4 { password, verifier }.open(&old), Err(Wrong::Text));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn every_password_comes_back(old in "\\PC{0,20}", new in "\\PC{0,60}", salt: [u8; 16], other in "\\PC{0,20}") {
            let hash = NtHash::of(&old);
            let aes = Aes::seal(&hash, &new, salt, 5000).map(|aes| Change::Aes(Box::new(aes)));
            let rc4 = Change::seal_rc4(&hash, &new, [salt[0]; PASSWORD_MAX]);
            for change in [aes.unwrap(), rc4.unwrap()] {
                prop_assert_eq!(opened(&change, &old), Ok(new.clone()));
                if other != old {
                    prop_assert_eq!(opened(&change, &other), Err(Wrong::Proof));
                }
                let shown = format!("{change:?}");
                prop_assert!(shown.len() < 16 && (new.len() < 5 || !shown.contains(&new)));
            }
        }

        #[test]
        fn changed_bytes_are_refused(at: prop::sample::Index, bit in 0..8_u8) {
            let old = NtHash::of("old");
            let Some(Change::Rc4 { mut password, verifier }) = Change::seal_rc4(&old, "new password", [9; PASSWORD_MAX])
            else { panic!("no change") };
            // Bytes before the password are random.
            let at = at.index(28);
            password[BUFFER_LEN - 1 - at] ^= 1 << bit;
            prop_assert_eq!(Change::Rc4 { password, verifier }.open(&old), Err(Wrong::Proof));
        }
    }
}
