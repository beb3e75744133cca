//! Derives keys from passwords (RFC 3962 section 4, RFC 8009 section 4).

use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use zeroize::Zeroizing;

use crate::Failed;
use crate::enctype::{Enctype, dk, kdf_hmac_sha2};

/// The key derivation constant.
const KERBEROS: &[u8] = b"kerberos";

impl Enctype {
    /// Returns the default number of PBKDF2 rounds: 4096 (RFC 3962 section 4), 32768 (RFC 8009 section 4).
    #[must_use]
    pub fn rounds(self) -> NonZeroU32 {
        let rounds = if self.tags_ciphertext() { 32_768 } else { 4096 };
        NonZeroU32::new(rounds).unwrap_or(NonZeroU32::MIN)
    }

    /// Derives the key of a password (string-to-key) with this salt and number of rounds. Deliberately slow: takes milliseconds.
    ///
    /// # Errors
    /// The cryptographic library failed.
    pub fn key_of_password(
        self,
        password: &str,
        salt: &[u8],
        rounds: NonZeroU32,
    ) -> Result<Zeroizing<Vec<u8>>, Failed> {
        let mut stretched = Zeroizing::new(vec![0; self.key_len()]);
        let algorithm = match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Aes128Sha2 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Aes256Sha2 => pbkdf2::PBKDF2_HMAC_SHA384,
        };
        // RFC 8009: the name of the encryption type and a zero precede the salt.
        let with_name = [self.name().as_bytes(), &[0], salt].concat();
        let salt = if self.tags_ciphertext() { &with_name } else { salt };
        pbkdf2::derive(algorithm, rounds, salt, password.as_bytes(), &mut stretched);
        if self.tags_ciphertext() {
            return Ok(kdf_hmac_sha2(self, &stretched, KERBEROS, self.key_len()));
        }
        dk(self, &stretched, KERBEROS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unhex;

    fn key(enctype: Enctype, salt: &[u8], rounds: u32) -> Vec<u8> {
        let rounds = NonZeroU32::new(rounds).unwrap();
        enctype.key_of_password("password", salt, rounds).unwrap().to_vec()
    }

    #[test]
    fn rfc_3962_vectors_match() {
        let salt = b"ATHENA.MIT.EDUraeburn";
        for (rounds, short, long) in [
            (
                1,
                "42263c6e89f4fc28b8df68ee09799f15",
                "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161",
            ),
            (
                1200,
                "4c01cd46d632d01e6dbe230a01ed642a",
                "55a6ac740ad17b4846941051e1e8b0a7548d93b0ab30a8bc3ff16280382b8c2a",
            ),
        ] {
            assert_eq!(key(Enctype::Aes128Sha1, salt, rounds), unhex(short));
            assert_eq!(key(Enctype::Aes256Sha1, salt, rounds), unhex(long));
        }
    }

    #[test]
    fn rfc_8009_vectors_match() {
        let salt =
            [&unhex("10df9dd783e5bc8acea1730e74355f61")[..], b"ATHENA.MIT.EDUraeburn"].concat();
        let short = key(Enctype::Aes128Sha2, &salt, 32_768);
        assert_eq!(short, unhex("089bca48b105ea6ea77ca5d2f39dc5e7"));
        let long = key(Enctype::Aes256Sha2, &salt, 32_768);
        let expected = "45bd806dbf6a833a9cffc1c94589a222367a79bc21c413718906e9f578a78467";
        assert_eq!(long, unhex(expected));
    }

    #[test]
    fn default_rounds_follow_the_rfcs() {
        assert_eq!(Enctype::ALL.map(|e| e.rounds().get()), [4096, 4096, 32_768, 32_768]);
    }
}
