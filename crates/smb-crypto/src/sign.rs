//! Signatures (MS-SMB2 sections 3.1.4.1 and 3.1.5.1) of whole messages, with zeros in the signature field, and of data that is
//! placed through RDMA (MS-SMB2 sections 3.2.4.7 and 3.3.5.12).

use aws_lc_rs::{cmac, hmac};
use subtle::ConstantTimeEq;

use super::Failed;
use super::evp::{Mode, Template};
use smb_proto::smb2::{Command, HEADER_LEN, Header};

/// A signing algorithm with its number in SMB2_SIGNING_CAPABILITIES (MS-SMB2 section 2.2.3.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Algorithm {
    /// HMAC-SHA256, truncated to 16 bytes: dialects 2.0.2 and 2.1, and 3.1.1 if no other is offered.
    HmacSha256 = 0,
    /// AES-128-CMAC: the 3.x family unless negotiated otherwise.
    AesCmac = 1,
    /// AES-128-GMAC: twenty times as fast.
    AesGmac = 2,
}

impl Algorithm {
    /// Returns the algorithm with this number.
    pub fn from_number(n: u16) -> Option<Self> {
        [Self::HmacSha256, Self::AesCmac, Self::AesGmac].into_iter().find(|a| *a as u16 == n)
    }
}

/// The sender of a message; part of the AES-GMAC nonce, so that both directions of a message id differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    Client,
    Server,
}

/// A signing key, expanded once and used for any number of messages concurrently.
pub struct Signer(SigningKey);

enum SigningKey {
    Hmac(Box<hmac::Key>),
    Cmac(cmac::Key),
    Gmac(Template),
}

impl Signer {
    /// Expands `Session.SigningKey`, `Channel.SigningKey` or, in dialects 2.x, `Session.SessionKey`.
    pub fn new(algorithm: Algorithm, key: &[u8; 16]) -> Result<Self, Failed> {
        Ok(Self(match algorithm {
            Algorithm::HmacSha256 => {
                SigningKey::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, key)))
            }
            Algorithm::AesCmac => {
                SigningKey::Cmac(cmac::Key::new(cmac::AES_128, key).map_err(|_| Failed)?)
            }
            Algorithm::AesGmac => SigningKey::Gmac(Template::new(Mode::Gcm, key)?),
        }))
    }

    pub fn algorithm(&self) -> Algorithm {
        match self.0 {
            SigningKey::Hmac(_) => Algorithm::HmacSha256,
            SigningKey::Cmac(_) => Algorithm::AesCmac,
            SigningKey::Gmac(_) => Algorithm::AesGmac,
        }
    }

    /// Computes the signature of a message in pieces, the first of which has the whole header. Ignores the signature field. Padding
    /// after a message of a chain counts as part of it.
    pub fn sign(&self, from: Sender, message: &[&[u8]]) -> Result<[u8; 16], Failed> {
        let (first, rest) = message.split_first().ok_or(Failed)?;
        let (header, body) = first.split_first_chunk::<HEADER_LEN>().ok_or(Failed)?;
        let mut cleared = *header;
        cleared[Header::SIGNATURE].fill(0);
        let pieces = [&cleared[..], body].into_iter().chain(rest.iter().copied());
        self.mac(&gmac_nonce(from, header), pieces)
    }

    fn mac<'a>(
        &self,
        nonce: &[u8; 12],
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Result<[u8; 16], Failed> {
        let mut len = 0;
        let mac = self.mac_of(nonce, pieces.inspect(|p| len += p.len()));
        super::touched(len);
        mac
    }

    fn mac_of<'a>(
        &self,
        nonce: &[u8; 12],
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Result<[u8; 16], Failed> {
        match &self.0 {
            SigningKey::Hmac(key) => {
                let mut mac = hmac::Context::with_key(key);
                pieces.for_each(|p| mac.update(p));
                mac.sign().as_ref().first_chunk().copied().ok_or(Failed)
            }
            SigningKey::Cmac(key) => {
                let mut mac = cmac::Context::with_key(key);
                for piece in pieces {
                    mac.update(piece).map_err(|_| Failed)?;
                }
                mac.sign().map_err(|_| Failed)?.as_ref().try_into().map_err(|_| Failed)
            }
            SigningKey::Gmac(key) => {
                let mut mac = key.encrypt(nonce)?;
                for piece in pieces {
                    mac.aad(piece)?;
                }
                mac.tag()
            }
        }
    }

    /// Verifies the signature in the header in constant time.
    pub fn verify(&self, from: Sender, message: &[&[u8]]) -> Result<(), Failed> {
        let header = message.first().ok_or(Failed)?;
        let found = header.get(Header::SIGNATURE).ok_or(Failed)?;
        let expected = self.sign(from, message)?;
        if bool::from(expected.ct_eq(found)) { Ok(()) } else { Err(Failed) }
    }

    /// Returns the length of the nonce in a payload signature, in bytes: zero except for AES-GMAC.
    pub fn payload_nonce_len(&self) -> usize {
        if self.algorithm() == Algorithm::AesGmac { 12 } else { 0 }
    }

    /// Computes the signature of data that is placed through RDMA for the message with this id, and its nonce, which is empty for
    /// algorithms without one.
    pub fn sign_payload(
        &self,
        from: Sender,
        message_id: u64,
        data: &[&[u8]],
    ) -> Result<([u8; 16], Vec<u8>), Failed> {
        let nonce = payload_nonce(from, message_id);
        let signature = self.mac(&nonce, data.iter().copied())?;
        Ok((signature, nonce[..self.payload_nonce_len()].to_vec()))
    }

    /// Verifies a payload signature in constant time. Nonce and signature have the lengths that the peer sent; wrong lengths fail.
    pub fn verify_payload(
        &self,
        nonce: &[u8],
        data: &[&[u8]],
        signature: &[u8],
    ) -> Result<(), Failed> {
        if nonce.len() != self.payload_nonce_len() || signature.len() != 16 {
            return Err(Failed);
        }
        let mut whole = [0; 12];
        whole[..nonce.len()].copy_from_slice(nonce);
        let expected = self.mac(&whole, data.iter().copied())?;
        if bool::from(expected.ct_eq(signature)) { Ok(()) } else { Err(Failed) }
    }
}

/// MS-SMB2 section 3.1.4.1: `MessageId`, then a bit for the server and a bit for a CANCEL request, which reuses the id of the
/// cancelled request.
fn gmac_nonce(from: Sender, header: &[u8; HEADER_LEN]) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&header[24..32]);
    let command = u16::from_le_bytes([header[12], header[13]]);
    let server = u8::from(from == Sender::Server);
    let cancel = u8::from(from == Sender::Client && command == Command::Cancel as u16);
    nonce[8] = server | cancel << 1;
    nonce
}

/// Returns an AES-GMAC nonce that differs from every message's nonce under the same key, whose last 30 bits are zero: two messages
/// with the same nonce would reveal the hash key. Each message id has one payload, so the nonce is used once.
fn payload_nonce(from: Sender, message_id: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&message_id.to_le_bytes());
    let server = u32::from(from == Sender::Server);
    nonce[8..].copy_from_slice(&(1 << 31 | server).to_le_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use aes_gcm::aead::{Aead, KeyInit, Payload};
    use proptest::prelude::*;

    use super::super::kdf;
    use super::super::unhex;
    use super::*;

    const ALL: [Algorithm; 3] = [Algorithm::HmacSha256, Algorithm::AesCmac, Algorithm::AesGmac];

    /// The SESSION_SETUP response in Microsoft's "anatomy of signing and cryptographic keys", 3.1.1.
    #[test]
    fn windows_10_response_matches() {
        let message = unhex(
            "FE534D4240000100000000000100800009000000000000000300000000000000FFFE000000000000
             1900000000100000EBE146DA120BA25FC3376A49DFE31BC10900000048001D00A11B3019A0030A01
             00A3120410010000003B453CDC3524164200000000",
        );
        let key = unhex("73FE7A9A77BEF0BDE49C650D8CCB5F76").try_into().unwrap();
        let signer = Signer::new(Algorithm::AesCmac, &key).unwrap();
        assert_eq!(signer.verify(Sender::Server, &[&message]), Ok(()));
        assert_eq!(signer.verify(Sender::Server, &[&message[..70], &message[70..]]), Ok(()));
    }

    #[test]
    fn algorithms_match_wire_numbers() {
        for a in ALL {
            assert_eq!(Algorithm::from_number(a as u16), Some(a));
            assert_eq!(Signer::new(a, &[1; 16]).unwrap().algorithm(), a);
        }
        assert_eq!(Algorithm::from_number(3), None);
    }

    #[test]
    fn gmac_nonce_distinguishes_server_and_cancel() {
        let mut header = [0_u8; 64];
        header[24..32].copy_from_slice(&0x0807_0605_0403_0201_u64.to_le_bytes());
        let id = [1, 2, 3, 4, 5, 6, 7, 8];
        let tail = |from, command: Command, h: &[u8; 64]| {
            let mut h = *h;
            h[12..14].copy_from_slice(&(command as u16).to_le_bytes());
            let nonce = gmac_nonce(from, &h);
            assert_eq!(nonce[..8], id);
            nonce[8..].to_vec()
        };
        assert_eq!(tail(Sender::Client, Command::Read, &header), [0, 0, 0, 0]);
        assert_eq!(tail(Sender::Server, Command::Read, &header), [1, 0, 0, 0]);
        assert_eq!(tail(Sender::Client, Command::Cancel, &header), [2, 0, 0, 0]);
        // The response to a cancelled request has that request's command, so a server never sets the bit.
        assert_eq!(tail(Sender::Server, Command::Cancel, &header), [1, 0, 0, 0]);
    }

    #[test]
    fn payload_nonce_differs_from_messages() {
        let gmac = Signer::new(Algorithm::AesGmac, &[1; 16]).unwrap();
        let nonce = |from| gmac.sign_payload(from, 0x0807_0605_0403_0201, &[b"x"]).unwrap().1;
        assert_eq!(nonce(Sender::Client), [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0x80]);
        assert_eq!(nonce(Sender::Server), [1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 0, 0x80]);
        for a in [Algorithm::HmacSha256, Algorithm::AesCmac] {
            let signer = Signer::new(a, &[1; 16]).unwrap();
            assert_eq!(signer.sign_payload(Sender::Server, 7, &[b"x"]).unwrap().1, []);
        }
    }

    /// For each message id: a request, its CANCEL, the response, and the data of both sides, all under one key.
    #[test]
    fn million_nonces_are_unique() {
        let gmac = Signer::new(Algorithm::AesGmac, &[1; 16]).unwrap();
        let mut unique = std::collections::HashSet::new();
        let mut header = [0; HEADER_LEN];
        // Across a carry into the upper half.
        for id in (u64::from(u32::MAX) - 100_000..).take(200_000) {
            header[24..32].copy_from_slice(&id.to_le_bytes());
            for (from, command) in [
                (Sender::Client, Command::Write),
                (Sender::Client, Command::Cancel),
                (Sender::Server, Command::Write),
            ] {
                header[12..14].copy_from_slice(&(command as u16).to_le_bytes());
                unique.insert(gmac_nonce(from, &header));
            }
            for from in [Sender::Client, Sender::Server] {
                let (_, nonce) = gmac.sign_payload(from, id, &[b"x"]).unwrap();
                unique.insert(nonce.try_into().unwrap());
            }
        }
        assert_eq!(unique.len(), 1_000_000);
    }

    #[test]
    fn payload_lengths_are_checked() {
        for a in ALL {
            let signer = Signer::new(a, &[3; 16]).unwrap();
            let (tag, nonce) = signer.sign_payload(Sender::Client, 9, &[b"data"]).unwrap();
            assert_eq!(signer.verify_payload(&nonce, &[b"da", b"ta"], &tag), Ok(()));
            let longer = [&nonce[..], &[0]].concat();
            assert_eq!(signer.verify_payload(&longer, &[b"data"], &tag), Err(Failed));
            assert_eq!(signer.verify_payload(&nonce, &[b"data"], &tag[..15]), Err(Failed));
            let more = [&tag[..], &[0]].concat();
            assert_eq!(signer.verify_payload(&nonce, &[b"data"], &more), Err(Failed));
            if let Some((_, shorter)) = nonce.split_last() {
                assert_eq!(signer.verify_payload(shorter, &[b"data"], &tag), Err(Failed));
            }
        }
    }

    #[test]
    fn message_without_header_is_refused() {
        for a in ALL {
            let signer = Signer::new(a, &[1; 16]).unwrap();
            assert_eq!(signer.sign(Sender::Client, &[]), Err(Failed));
            assert_eq!(signer.sign(Sender::Client, &[&[0; 63], &[0; 9]]), Err(Failed));
            assert_eq!(signer.verify(Sender::Client, &[&[0; 63]]), Err(Failed));
        }
    }

    #[test]
    fn dialect_2_signs_with_session_key() {
        let key = kdf::session_key(b"short");
        let signer = Signer::new(Algorithm::HmacSha256, &key).unwrap();
        let message = [7_u8; 80];
        let mut cleared = message;
        cleared[48..64].fill(0);
        let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key[..]), &cleared);
        let found = signer.sign(Sender::Client, &[&message]).unwrap();
        assert_eq!(found[..], expected.as_ref()[..16]);
    }

    /// Computes the signature of the joined message with RustCrypto.
    fn oracle(a: Algorithm, key: &[u8; 16], from: Sender, message: &[u8]) -> Vec<u8> {
        use cmac::Mac as _;
        let mut whole = message.to_vec();
        whole[48..64].fill(0);
        match a {
            Algorithm::HmacSha256 => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &whole).as_ref()[..16].to_vec()
            }
            Algorithm::AesCmac => {
                let mut mac = <::cmac::Cmac<aes::Aes128> as ::cmac::KeyInit>::new(key.into());
                mac.update(&whole);
                mac.finalize().into_bytes().to_vec()
            }
            Algorithm::AesGmac => {
                let nonce = gmac_nonce(from, whole.first_chunk().unwrap());
                aes_gcm::Aes128Gcm::new(key.into())
                    .encrypt((&nonce).into(), Payload { msg: &[], aad: &whole })
                    .unwrap()
            }
        }
    }

    use ::cmac;

    /// Computes the signature of data with RustCrypto.
    fn payload_oracle(a: Algorithm, key: &[u8; 16], nonce: &[u8], data: &[u8]) -> Vec<u8> {
        use cmac::Mac as _;
        match a {
            Algorithm::HmacSha256 => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref()[..16].to_vec()
            }
            Algorithm::AesCmac => {
                let mut mac = <::cmac::Cmac<aes::Aes128> as ::cmac::KeyInit>::new(key.into());
                mac.update(data);
                mac.finalize().into_bytes().to_vec()
            }
            Algorithm::AesGmac => {
                let nonce: [u8; 12] = nonce.try_into().unwrap();
                aes_gcm::Aes128Gcm::new(key.into())
                    .encrypt((&nonce).into(), Payload { msg: &[], aad: data })
                    .unwrap()
            }
        }
    }

    proptest! {
        /// Signs only data without a header: equals the reference implementation however it is split, and every changed bit is
        /// detected.
        #[test]
        fn payload_signatures_match_reference(
            key: [u8; 16],
            id: u64,
            data in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 1..5000), 1..4),
            flip: proptest::sample::Index,
        ) {
            for a in ALL {
                let signer = Signer::new(a, &key).unwrap();
                let pieces: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let (tag, nonce) = signer.sign_payload(Sender::Server, id, &pieces).unwrap();
                let mut whole = pieces.concat();
                prop_assert_eq!(&tag[..], &payload_oracle(a, &key, &nonce, &whole)[..]);
                let bit = flip.index(whole.len() * 8);
                whole[bit / 8] ^= 1 << (bit % 8);
                prop_assert_eq!(signer.verify_payload(&nonce, &[&whole], &tag), Err(Failed));
            }
        }


        /// Equals the reference implementation however the message is split, and every changed bit is detected.
        #[test]
        fn signatures_match_reference_and_bind(
            key: [u8; 16],
            head in proptest::collection::vec(any::<u8>(), 64..200),
            rest in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..5000), 0..4),
            from_server: bool,
            flip: proptest::sample::Index,
        ) {
            let from = if from_server { Sender::Server } else { Sender::Client };
            for a in ALL {
                let signer = Signer::new(a, &key).unwrap();
                let mut head = head.clone();
                let mut pieces: Vec<&[u8]> = vec![&head];
                pieces.extend(rest.iter().map(Vec::as_slice));
                let signature = signer.sign(from, &pieces).unwrap();
                let mut whole = pieces.concat();
                prop_assert_eq!(&signature[..], &oracle(a, &key, from, &whole)[..]);
                head[48..64].copy_from_slice(&signature);
                whole[48..64].copy_from_slice(&signature);
                prop_assert_eq!(signer.verify(from, &[&whole]), Ok(()));
                let bit = flip.index(whole.len() * 8);
                whole[bit / 8] ^= 1 << (bit % 8);
                prop_assert_eq!(signer.verify(from, &[&whole]), Err(Failed));
            }
        }
    }
}
