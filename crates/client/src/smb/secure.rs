//! Signing and encryption of a session's messages, client side. Pure.

use std::sync::Arc;

use iobuf::{Buf, BufMut, Pool};
use smb_crypto::kdf::Keys;
use smb_crypto::seal::{Cipher, Opener, Sealer};
use smb_crypto::sign::{Algorithm, Sender, Signer};
use smb_proto::NtStatus;
use smb_proto::smb2::rdma::{self, Channel, Protection};
use smb_proto::smb2::transform::{self, Transform};
use smb_proto::smb2::{Flags, Header};

use crate::error::{Error, Result};

/// The keys of a session and their use.
pub(super) struct Secure {
    session_id: u64,
    /// Signing key of this connection.
    signer: Arc<Signer>,
    /// Signing key of the session, used to bind further connections.
    session: Arc<Signer>,
    /// Encryption keys of the session; its connections share the nonces.
    sealing: Option<Arc<(Sealer, Opener)>>,
    sign: bool,
    seal: bool,
    /// The session has a key, so that single messages can be signed even if others are not.
    can_sign: bool,
    /// Supported protection of payload that is placed through RDMA.
    transforms: Vec<Protection>,
}

/// The protection that a session uses.
pub(super) struct Uses {
    pub(super) sign: bool,
    pub(super) seal: bool,
    /// The session has a signing key.
    pub(super) can_sign: bool,
    /// Supported protection of payload that is placed through RDMA.
    pub(super) transforms: Vec<Protection>,
}

/// Signs a message: `head` with its header, and the data after it.
pub(super) fn sign(signer: &Signer, head: &mut [u8], data: &[&[u8]]) -> Result<()> {
    if let Some(flags) = head.get_mut(16) {
        *flags |= u8::try_from(Flags::SIGNED).unwrap_or(0);
    }
    let pieces: Vec<&[u8]> = std::iter::once(&*head).chain(data.iter().copied()).collect();
    let signature = signer.sign(Sender::Client, &pieces).map_err(failed)?;
    head[Header::SIGNATURE].copy_from_slice(&signature);
    Ok(())
}

/// Returns a buffer for this many bytes.
fn room(pool: &Pool, len: usize) -> BufMut {
    let mut room = pool.try_get(len).unwrap_or_else(|| BufMut::heap(len));
    room.set_filled(len);
    room
}

/// Joins pieces in new memory.
pub(super) fn joined(pieces: &[Buf]) -> BufMut {
    let mut whole = BufMut::heap(pieces.iter().map(|p| p.len()).sum());
    for piece in pieces {
        whole.append(piece);
    }
    whole
}

fn failed<E>(_: E) -> Error {
    Error::Protocol("a message cannot be signed or sealed".into())
}

impl Secure {
    /// Creates the protection of a new session.
    pub(super) fn new(
        session_id: u64,
        algorithm: Algorithm,
        signing: &[u8; 16],
        keys: Option<(&Keys, Cipher)>,
        uses: Uses,
    ) -> Result<Self> {
        let Uses { sign, seal, can_sign, transforms } = uses;
        let sealing = match keys {
            Some((keys, cipher)) => {
                let start = getrandom::u64().map_err(failed)?;
                let sealer = Sealer::new(cipher, &keys.client_to_server, start).map_err(failed)?;
                let opener = Opener::new(cipher, &keys.server_to_client).map_err(failed)?;
                Some(Arc::new((sealer, opener)))
            }
            None => None,
        };
        if seal && sealing.is_none() {
            return Err(Error::Connect("the server does not encrypt".into()));
        }
        let signer = Arc::new(Signer::new(algorithm, signing).map_err(failed)?);
        let session = signer.clone();
        let sign = sign && !seal;
        Ok(Self { session_id, signer, session, sealing, sign, seal, can_sign, transforms })
    }

    /// Returns the protection of the same session on a further connection, which has its own signing key and transforms.
    pub(super) fn on(
        &self,
        algorithm: Algorithm,
        signing: &[u8; 16],
        transforms: Vec<Protection>,
    ) -> Result<Self> {
        let signer = Arc::new(Signer::new(algorithm, signing).map_err(failed)?);
        let (session, sealing) = (self.session.clone(), self.sealing.clone());
        Ok(Self { signer, session, sealing, transforms, ..*self })
    }

    /// Returns the signer for binding a further connection.
    pub(super) fn of_session(&self) -> &Arc<Signer> {
        &self.session
    }

    /// Returns the protection that RDMA payload needs.
    fn needed(&self) -> Option<Protection> {
        match (self.seal, self.sign) {
            (true, _) => Some(Protection::Encryption),
            (false, true) => Some(Protection::Signing),
            (false, false) => None,
        }
    }

    /// Checks whether payload must be sent inside messages, because RDMA could not protect it equally.
    pub(super) fn is_inline_only(&self) -> bool {
        self.needed().is_some_and(|p| !self.transforms.contains(&p))
    }

    /// Signs or encrypts the payload of the WRITE with this message id, which the server will fetch (MS-SMB2 section 3.2.4.7);
    /// `None` if it is not protected. Encrypted data is in new buffers, from `pool` if possible.
    pub(super) fn protect(
        &self,
        pool: &Pool,
        message_id: u64,
        channel: Channel,
        data: Vec<Buf>,
    ) -> Result<(Vec<Buf>, Option<rdma::Transform>)> {
        let Some(protection) = self.needed() else { return Ok((data, None)) };
        let pieces: Vec<&[u8]> = data.iter().map(Buf::as_slice).collect();
        let (data, signature, nonce) = match protection {
            Protection::Signing => {
                let signed = self.signer.sign_payload(Sender::Client, message_id, &pieces);
                let (signature, nonce) = signed.map_err(failed)?;
                (data, signature, nonce)
            }
            Protection::Encryption => {
                let (sealer, _) = self.sealing.as_deref().ok_or_else(|| failed(()))?;
                let nonce = sealer.nonce();
                let mut sealed: Vec<BufMut> = data.iter().map(|d| room(pool, d.len())).collect();
                let mut to: Vec<&mut [u8]> = sealed.iter_mut().map(BufMut::filled_mut).collect();
                let signature = sealer.seal(&nonce, &[], &pieces, &mut to).map_err(failed)?;
                let sealed = sealed.into_iter().map(BufMut::freeze).collect();
                (sealed, signature, nonce[..sealer.cipher().nonce_len()].to_vec())
            }
        };
        let signature = signature.to_vec();
        Ok((data, Some(rdma::Transform { channel, protection, signature, nonce })))
    }

    /// Verifies or decrypts the data that a server placed in these buffers for a READ; `described` is the transform in the
    /// response, if any. Refuses everything that MS-SMB2 section 3.2.5.11 refuses.
    pub(super) fn unprotect(
        &self,
        was_sealed: bool,
        described: Option<&[u8]>,
        into: &mut [BufMut],
    ) -> Result<()> {
        let bad = |why: &str| Error::Protocol(format!("payload by RDMA: {why}"));
        let needed = match was_sealed {
            true => Some(Protection::Encryption),
            false => self.needed(),
        };
        if self.seal && !was_sealed {
            return Err(bad("its message is not encrypted"));
        }
        let Some(described) = described else {
            let is_fine = needed.is_none() || into.iter().all(|b| b.filled().is_empty());
            return if is_fine { Ok(()) } else { Err(bad("it is not protected as it must be")) };
        };
        let (t, segs) = rdma::Transform::parse(described).map_err(|fault| bad(fault.field))?;
        let was_asked = self.transforms.contains(&t.protection) && segs.is_empty();
        if !was_asked || Some(t.protection) != needed || t.signature.len() != 16 {
            return Err(bad("it is protected in another way than was agreed on"));
        }
        match t.protection {
            Protection::Signing => {
                let pieces: Vec<&[u8]> = into.iter().map(BufMut::filled).collect();
                let verified = self.signer.verify_payload(&t.nonce, &pieces, &t.signature);
                verified.map_err(|_| bad("its signature is wrong"))
            }
            Protection::Encryption => {
                let (_, opener) = self.sealing.as_deref().ok_or_else(|| bad("there is no key"))?;
                let tag = t.signature.first_chunk::<16>().ok_or_else(|| bad("it has no tag"))?;
                let mut nonce = [0; 16];
                match nonce.get_mut(..t.nonce.len()) {
                    Some(room) if room.len() == opener.cipher().nonce_len() => {
                        room.copy_from_slice(&t.nonce);
                    }
                    _ => return Err(bad("its nonce has another length")),
                }
                let mut pieces: Vec<&mut [u8]> = into.iter_mut().map(BufMut::filled_mut).collect();
                let opened = opener.open_in_place(&nonce, &[], &mut pieces, tag);
                opened.map_err(|_| bad("it cannot be decrypted"))
            }
        }
    }

    /// Signs or encrypts a message: `head` with its header, and the bulk data after it. With `always` it is signed whenever a key
    /// exists. Encrypted data is in new buffers, from `pool` if possible.
    pub(super) fn seal(
        &self,
        pool: &Pool,
        mut head: Vec<u8>,
        data: Vec<Buf>,
        always: bool,
    ) -> Result<(Vec<u8>, Vec<Buf>)> {
        let sealer = self.sealing.as_deref().filter(|_| self.seal).map(|(sealer, _)| sealer);
        let pieces: Vec<&[u8]> = data.iter().map(Buf::as_slice).collect();
        let Some(sealer) = sealer else {
            if self.sign || (always && self.can_sign) {
                sign(&self.signer, &mut head, &pieces)?;
            }
            return Ok((head, data));
        };
        let len = head.len() + data.iter().map(Buf::len).sum::<usize>();
        let mut header = Transform {
            nonce: sealer.nonce(),
            original_len: u32::try_from(len).map_err(failed)?,
            session_id: self.session_id,
            signature: [0; 16],
        };
        let aad = &header.emit()[transform::AAD];
        let mut out = vec![0; transform::LEN + head.len()];
        let mut sealed: Vec<BufMut> = data.iter().map(|d| room(pool, d.len())).collect();
        let from: Vec<&[u8]> = std::iter::once(&head[..]).chain(pieces).collect();
        let mut to: Vec<&mut [u8]> = sealed.iter_mut().map(BufMut::filled_mut).collect();
        to.insert(0, &mut out[transform::LEN..]);
        header.signature = sealer.seal(&header.nonce, aad, &from, &mut to).map_err(failed)?;
        out[..transform::LEN].copy_from_slice(&header.emit());
        Ok((out, sealed.into_iter().map(BufMut::freeze).collect()))
    }

    /// Checks whether an unencrypted response is acceptable. If the session encrypts, only the report that the session is lost is,
    /// because a server that lost it has no keys. Interim responses and other errors are not: a forged end of file would truncate a
    /// read. Breaks are unencrypted if only the client requires encryption.
    pub(super) fn may_be_in_clear(&self, header: &Header) -> Result<()> {
        let gone = [NtStatus::USER_SESSION_DELETED, NtStatus::NETWORK_SESSION_EXPIRED];
        if !self.seal || gone.contains(&NtStatus::of(header)) {
            return Ok(());
        }
        Err(Error::Protocol("a message is in clear although its session encrypts".into()))
    }

    /// Messages are encrypted.
    pub(super) fn seals(&self) -> bool {
        self.seal
    }

    /// Verifies the signature of an unencrypted message in pieces, if it has or must have one.
    pub(super) fn check(&self, header: &Header, pieces: &[&[u8]]) -> Result<()> {
        let signed = header.flags.has(Flags::SIGNED);
        if !signed && !self.sign {
            return Ok(());
        }
        let bad = || Error::Protocol("an answer is not signed as it should be".into());
        self.signer.verify(Sender::Server, pieces).map_err(|_| bad())
    }

    /// Checks that every header of a decrypted message has the session of the transform header. The client discards a message that
    /// violates this (MS-SMB2 section 3.2.5.1.1.1), including break notifications.
    pub(super) fn is_of_session(&self, message: &[u8]) -> bool {
        let mut rest = message;
        while let Ok(header) = Header::parse(rest) {
            if header.session_id != self.session_id {
                return false;
            }
            let next = usize::try_from(header.next).unwrap_or(usize::MAX);
            match rest.get(next..) {
                Some(more) if next != 0 => rest = more,
                _ => break,
            }
        }
        true
    }

    /// Decrypts the message after a transform header, in place if the memory is not shared.
    pub(super) fn open(&self, header: &[u8], message: Vec<Buf>) -> Result<Vec<Buf>> {
        let bad = || Error::Protocol("an encrypted answer cannot be read".into());
        let (_, opener) = self.sealing.as_deref().ok_or_else(bad)?;
        let transform = Transform::parse(header).map_err(|_| bad())?;
        if transform.session_id != self.session_id {
            return Err(bad());
        }
        let own = |piece: Buf| piece.try_mut().unwrap_or_else(|shared| joined(&[shared]));
        let mut message: Vec<BufMut> = message.into_iter().map(own).collect();
        let mut pieces: Vec<&mut [u8]> = message.iter_mut().map(BufMut::filled_mut).collect();
        let aad = &header[transform::AAD];
        opener
            .open_in_place(&transform.nonce, aad, &mut pieces, &transform.signature)
            .map_err(|_| bad())?;
        Ok(message.into_iter().map(BufMut::freeze).collect())
    }
}

#[cfg(test)]
mod tests {
    use rdma_transport::channel::RemoteSeg;
    use smb_crypto::kdf::Context;

    use super::*;

    const DATA: &[u8] = b"what the server put into memory";
    const ID: u64 = 7;

    /// Returns a session with all protection; both sides have the same keys.
    fn session(sign: bool, seal: bool, transforms: &[Protection]) -> Secure {
        let keys = Keys::derive(&[1; 16], Context::V311(&[2; 64]), Cipher::Aes128Gcm);
        let uses = Uses { sign, seal, can_sign: true, transforms: transforms.to_vec() };
        let keyed = Some((&keys, Cipher::Aes128Gcm));
        Secure::new(1, Algorithm::AesGmac, &keys.signing, keyed, uses).unwrap()
    }

    /// Returns the transform of `DATA` that a server sends, and the bytes that it places in memory.
    fn served(protection: Protection) -> (rdma::Transform, Vec<u8>) {
        let keys = Keys::derive(&[1; 16], Context::V311(&[2; 64]), Cipher::Aes128Gcm);
        let mut data = DATA.to_vec();
        let (signature, nonce) = match protection {
            Protection::Signing => {
                let signer = Signer::new(Algorithm::AesGmac, &keys.signing).unwrap();
                signer.sign_payload(Sender::Server, ID, &[&data]).unwrap()
            }
            Protection::Encryption => {
                let sealer = Sealer::new(Cipher::Aes128Gcm, &keys.server_to_client, 9).unwrap();
                let nonce = sealer.nonce();
                let tag = sealer.seal_in_place(&nonce, &[], &mut [&mut data]).unwrap();
                (tag, nonce[..12].to_vec())
            }
        };
        let signature = signature.to_vec();
        (rdma::Transform { channel: Channel::None, protection, signature, nonce }, data)
    }

    /// Checks whether the client accepts the data, and whether it is then correct.
    fn taken(secure: &Secure, was_sealed: bool, described: Option<&[u8]>, data: &[u8]) -> bool {
        let mut into = BufMut::heap(data.len());
        into.append(data);
        let result = secure.unprotect(was_sealed, described, std::slice::from_mut(&mut into));
        assert!(result.is_err() || described.is_none() || into.filled() == DATA);
        result.is_ok()
    }

    #[test]
    fn unencrypted_response_in_encrypted_session_fails() {
        let sealed = session(false, true, &BOTH);
        let header = |status: NtStatus| Header {
            credit_charge: 1,
            status: status.0,
            command: 8,
            credits: 1,
            flags: Flags(Flags::RESPONSE),
            next: 0,
            message_id: ID,
            tree_or_async: 0,
            session_id: 1,
            signature: [0; 16],
        };
        for status in
            [NtStatus::SUCCESS, NtStatus::PENDING, NtStatus::END_OF_FILE, NtStatus::NO_MORE_FILES]
        {
            assert!(sealed.may_be_in_clear(&header(status)).is_err(), "{status:?}");
        }
        assert!(sealed.may_be_in_clear(&header(NtStatus::USER_SESSION_DELETED)).is_ok());
        let clear = session(false, false, &BOTH);
        assert!(clear.may_be_in_clear(&header(NtStatus::SUCCESS)).is_ok());
    }

    /// MS-SMB2 section 3.2.5.1.1.1: applies to responses, chains and notifications.
    #[test]
    fn foreign_session_messages_are_discarded() {
        let secure = session(false, true, &BOTH);
        let header = |session_id: u64, message_id: u64, next: u32| Header {
            credit_charge: 1,
            status: 0,
            command: if message_id == u64::MAX { 18 } else { 8 },
            credits: 1,
            flags: Flags(Flags::RESPONSE),
            next,
            message_id,
            tree_or_async: 0,
            session_id,
            signature: [0; 16],
        };
        for message_id in [ID, u64::MAX] {
            for named in [0, 1, 2, u64::MAX] {
                let alone = header(named, message_id, 0).emit();
                assert_eq!(secure.is_of_session(&alone), named == 1, "{named:#x}");
                for first in [1, named] {
                    let chain = [header(first, ID, 64).emit(), header(named, message_id, 0).emit()];
                    assert_eq!(secure.is_of_session(&chain.concat()), named == 1, "{named:#x}");
                }
            }
        }
        // A chain without an end is parsed only as far as the bytes go.
        assert!(secure.is_of_session(&header(1, ID, u32::MAX).emit()));
    }

    const BOTH: [Protection; 2] = [Protection::Encryption, Protection::Signing];

    /// MS-SMB2 section 3.2.5.11.
    #[test]
    fn placed_data_requires_negotiated_protection() {
        for protection in BOTH {
            let is_sealed = protection == Protection::Encryption;
            let (told, data) = served(protection);
            let bytes = |t: &rdma::Transform, segs: &[RemoteSeg]| {
                let mut bytes = Vec::new();
                t.put(&mut bytes, segs);
                bytes
            };
            let right = bytes(&told, &[]);
            let both = session(!is_sealed, is_sealed, &BOTH);
            assert!(taken(&both, is_sealed, Some(&right), &data));
            assert!(!taken(&both, !is_sealed, Some(&right), &data), "in another message");
            assert!(!taken(&both, is_sealed, None, &data), "not told of");
            assert!(taken(&both, is_sealed, None, b""), "no data needs no protection");
            let other_one = BOTH.into_iter().find(|p| *p != protection);
            for agreed in [None, other_one] {
                let other = session(!is_sealed, is_sealed, agreed.as_slice());
                assert!(!taken(&other, is_sealed, Some(&right), &data), "only {agreed:?}");
            }
            let seg = RemoteSeg { handle: 1, len: 9, offset: 0 };
            assert!(!taken(&both, is_sealed, Some(&bytes(&told, &[seg])), &data), "descriptors");
            type Spoil = fn(&mut rdma::Transform);
            let spoils: [Spoil; 6] = [
                |t| t.signature[3] ^= 1,
                |t| t.nonce[3] ^= 1,
                |t| t.signature.truncate(15),
                |t| t.signature.push(0),
                |t| t.nonce.truncate(11),
                |t| t.nonce.push(0),
            ];
            for (nth, spoil) in spoils.into_iter().enumerate() {
                let mut t = told.clone();
                spoil(&mut t);
                assert!(!taken(&both, is_sealed, Some(&bytes(&t, &[])), &data), "spoil {nth}");
            }
            for (at, value) in [(8, 0), (8, 2), (16, 0), (16, 3), (4, 3)] {
                let mut wrong = right.clone();
                wrong[at] = value;
                assert!(!taken(&both, is_sealed, Some(&wrong), &data), "byte {at} is {value}");
            }
            let mut wrong = data.clone();
            wrong[5] ^= 0x10;
            assert!(!taken(&both, is_sealed, Some(&right), &wrong), "other data");
        }
    }
}
