//! Derives the keys of a session (MS-SMB2 section 3.1.4.2): SP800-108 in counter mode with HMAC-SHA256, 32-bit counter and length.

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use super::seal::Cipher;

/// The context of a key derivation, in addition to the session key.
#[derive(Clone, Copy, Debug)]
pub enum Context<'a> {
    /// Dialects 3.0 and 3.0.2: constant strings.
    V30,
    /// Dialect 3.1.1: the preauthentication integrity hash of the session or, for the signing key of a further channel, of the
    /// channel.
    V311(&'a [u8; 64]),
}

/// The keys of one session, named by direction, because the specification's `EncryptionKey` is from the server's view.
#[derive(Clone)]
pub struct Keys {
    /// `Session.SigningKey`
    pub signing: Zeroizing<[u8; 16]>,
    /// `Session.EncryptionKey` of the server, `Session.DecryptionKey` of the client.
    pub server_to_client: Zeroizing<Vec<u8>>,
    /// `Session.DecryptionKey` of the server, `Session.EncryptionKey` of the client.
    pub client_to_server: Zeroizing<Vec<u8>>,
}

impl Keys {
    /// Derives all keys. `full` is the result of authentication, of any length; signing uses its first 16 bytes, as does encryption
    /// unless the cipher has 256-bit keys.
    pub fn derive(full: &[u8], context: Context<'_>, cipher: Cipher) -> Self {
        let session = session_key(full);
        let from: &[u8] = if cipher.key_len() == 32 { full } else { &*session };
        let cipher_key = |label: &[u8], fixed: &[u8]| {
            let mut key = Zeroizing::new(vec![0; cipher.key_len()]);
            derive(from, label, fixed, &mut key);
            key
        };
        let (server_to_client, client_to_server) = match context {
            Context::V30 => (
                cipher_key(b"SMB2AESCCM\0", b"ServerOut\0"),
                cipher_key(b"SMB2AESCCM\0", b"ServerIn \0"),
            ),
            Context::V311(hash) => {
                (cipher_key(b"SMBS2CCipherKey\0", hash), cipher_key(b"SMBC2SCipherKey\0", hash))
            }
        };
        Self { signing: signing_key(full, context), server_to_client, client_to_server }
    }
}

/// Returns `Session.SessionKey`: the first 16 bytes of the result of authentication, padded with zeros (MS-SMB2 section 3.3.5.5.3).
/// It signs messages of dialects 2.0.2 and 2.1.
pub fn session_key(full: &[u8]) -> Zeroizing<[u8; 16]> {
    let mut key = Zeroizing::new([0; 16]);
    let n = full.len().min(16);
    key[..n].copy_from_slice(&full[..n]);
    key
}

/// Derives the signing key of a session or channel in dialects 3.x.
pub fn signing_key(full: &[u8], context: Context<'_>) -> Zeroizing<[u8; 16]> {
    let mut key = Zeroizing::new([0; 16]);
    let session = session_key(full);
    match context {
        Context::V30 => derive(&*session, b"SMB2AESCMAC\0", b"SmbSign\0", &mut *key),
        Context::V311(hash) => derive(&*session, b"SMBSigningKey\0", hash, &mut *key),
    }
    key
}

/// SP800-108 section 5.1 with r = 32: blocks of HMAC-SHA256 over counter, label, a zero byte, context and length in bits.
fn derive(key: &[u8], label: &[u8], context: &[u8], out: &mut [u8]) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    // Keys have 16 or 32 bytes, so the number of bits always fits.
    let bits = u32::try_from(out.len() * 8).unwrap_or(u32::MAX);
    for (block, counter) in out.chunks_mut(32).zip(1_u32..) {
        let mut mac = hmac::Context::with_key(&key);
        mac.update(&counter.to_be_bytes());
        mac.update(label);
        mac.update(&[0]);
        mac.update(context);
        mac.update(&bits.to_be_bytes());
        block.copy_from_slice(&mac.sign().as_ref()[..block.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::unhex;
    use super::*;

    /// Values of Microsoft's "SMB 2 and SMB 3 security in Windows 10: the anatomy of signing and cryptographic keys", named from
    /// the client's view: its `EncryptionKey` encrypts messages to the server.
    #[test]
    fn dialect_3_0_keys_match() {
        let keys = Keys::derive(
            &unhex("7CD451825D0450D235424E44BA6E78CC"),
            Context::V30,
            Cipher::Aes128Ccm,
        );
        assert_eq!(keys.signing[..], unhex("0B7E9C5CAC36C0F6EA9AB275298CEDCE")[..]);
        assert_eq!(keys.server_to_client[..], unhex("B0F0427F7CEB416D1D9DCC0CD4F99447")[..]);
        assert_eq!(keys.client_to_server[..], unhex("FAD27796665B313EBB578F388632B4F7")[..]);
    }

    #[test]
    fn dialect_3_1_1_keys_match() {
        let hash: [u8; 64] = unhex(
            "0DD13628CC3ED218EF9DF9772D436D0887AB9814BFAE63A80AA845F36909DB79
             28622DDDAD522D9751640A459762C5A9D6BB084CBB3CE6BDADEF5D5BCE3C6C01",
        )
        .try_into()
        .unwrap();
        let session = unhex("270E1BA896585EEB7AF3472D3B4C75A7");
        let keys = Keys::derive(&session, Context::V311(&hash), Cipher::Aes128Gcm);
        assert_eq!(keys.signing[..], unhex("73FE7A9A77BEF0BDE49C650D8CCB5F76")[..]);
        assert_eq!(keys.server_to_client[..], unhex("E2AF0DCEFAC68DA71A0DFBD0D1350D74")[..]);
        assert_eq!(keys.client_to_server[..], unhex("629BCBC54422A0F572B97F45989B6073")[..]);
    }

    /// The hash covers the length, so a long key does not begin with the short one.
    #[test]
    fn long_keys_use_whole_input() {
        let hash: [u8; 64] = std::array::from_fn(|i| u8::try_from(i).unwrap());
        let session = unhex("270E1BA896585EEB7AF3472D3B4C75A7");
        let keys = Keys::derive(&session, Context::V311(&hash), Cipher::Aes256Gcm);
        assert_eq!(
            keys.client_to_server[..],
            unhex("c273f0de35671e766ef5106b605054d70385f9237f1327662763de8ac2444317")[..]
        );
        assert_eq!(keys.signing.len(), 16);
        let longer = [&session[..], &[7; 16]].concat();
        let of_longer = Keys::derive(&longer, Context::V311(&hash), Cipher::Aes256Gcm);
        assert_eq!(of_longer.signing, keys.signing);
        assert_ne!(of_longer.client_to_server, keys.client_to_server);
    }

    #[test]
    fn short_session_key_is_padded() {
        assert_eq!(session_key(&[1, 2])[..4], [1, 2, 0, 0]);
    }
}
