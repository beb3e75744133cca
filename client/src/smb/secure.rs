//! What a session does to its messages: signatures and encryption, from the client's side. Pure.

use std::sync::Arc;

use iobuf::{Buf, BufMut, Pool};
use smb_proto::crypto::kdf::Keys;
use smb_proto::crypto::seal::{Cipher, Opener, Sealer};
use smb_proto::crypto::sign::{Algorithm, Sender, Signer};
use smb_proto::smb2::rdma::{self, Channel, Protection};
use smb_proto::smb2::transform::{self, Transform};
use smb_proto::smb2::{Flags, Header};

use crate::error::{Error, Result};

/// The keys of a session and what they are used for.
pub(super) struct Secure {
    session_id: u64,
    /// Of this connection.
    signer: Arc<Signer>,
    /// Of the session: what binds a further connection to it is signed with this.
    session: Arc<Signer>,
    /// Of the session: its connections share the nonces.
    sealing: Option<Arc<(Sealer, Opener)>>,
    sign: bool,
    seal: bool,
    /// The session has a key, so that one message may be signed although others are not.
    can_sign: bool,
    /// How payload that goes by RDMA may be protected.
    transforms: Vec<Protection>,
}

/// What a session is to do.
pub(super) struct Uses {
    pub(super) sign: bool,
    pub(super) seal: bool,
    /// It has a key to sign with.
    pub(super) can_sign: bool,
    /// How payload that goes by RDMA may be protected.
    pub(super) transforms: Vec<Protection>,
}

/// Signs a message: `head` with its header, and what follows it.
pub(super) fn sign(signer: &Signer, head: &mut [u8], data: &[&[u8]]) -> Result<()> {
    if let Some(flags) = head.get_mut(16) {
        *flags |= u8::try_from(Flags::SIGNED).unwrap_or(0);
    }
    let pieces: Vec<&[u8]> = std::iter::once(&*head).chain(data.iter().copied()).collect();
    let signature = signer.sign(Sender::Client, &pieces).map_err(failed)?;
    head[Header::SIGNATURE].copy_from_slice(&signature);
    Ok(())
}

/// Room for so many bytes.
fn room(pool: &Pool, len: usize) -> BufMut {
    let mut room = pool.try_get(len).unwrap_or_else(|| BufMut::heap(len));
    room.set_filled(len);
    room
}

/// Pieces as one, in new memory.
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
    /// Of a session that is being set up.
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

    /// The same session on a further connection, which signs with a key of its own and has agreed on these transforms.
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

    /// Signs what binds a further connection.
    pub(super) fn of_session(&self) -> &Arc<Signer> {
        &self.session
    }

    /// What payload that goes by RDMA needs.
    fn needed(&self) -> Option<Protection> {
        match (self.seal, self.sign) {
            (true, _) => Some(Protection::Encryption),
            (false, true) => Some(Protection::Signing),
            (false, false) => None,
        }
    }

    /// Payload must travel inside the messages: by RDMA it could not be protected as they are.
    pub(super) fn is_inline_only(&self) -> bool {
        self.needed().is_some_and(|p| !self.transforms.contains(&p))
    }

    /// Signs or seals the payload of the WRITE of this message id, which the server is to fetch (MS-SMB2 section 3.2.4.7); `None`
    /// where it goes in clear. What is sealed has other bytes, in buffers of `pool` where it has any.
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

    /// Checks or decrypts what a server put into these buffers for a READ; `described`: what its answer says of that, `None`
    /// where it says nothing. Refused is all that MS-SMB2 section 3.2.5.11 refuses.
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
        let Some(described) = described else {
            let is_fine = needed.is_none() || into.iter().all(|b| b.filled().is_empty());
            return if is_fine { Ok(()) } else { Err(bad("it is not protected as it must be")) };
        };
        let (t, segs) = rdma::Transform::parse(described).map_err(|m| bad(m.0))?;
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

    /// Signs or seals a message: `head` with its header, and the bulk data that follows it. With `always` it is signed if that can
    /// be done at all. What is sealed has other bytes, in buffers of `pool` where it has any.
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

    /// Checks the signature of a message in pieces, if it must have one or has one.
    pub(super) fn check(&self, header: &Header, pieces: &[&[u8]]) -> Result<()> {
        let signed = header.flags.has(Flags::SIGNED);
        if !signed && !self.sign {
            return Ok(());
        }
        let bad = || Error::Protocol("an answer is not signed as it should be".into());
        self.signer.verify(Sender::Server, pieces).map_err(|_| bad())
    }

    /// Decrypts what stands behind a transform header, where it is if it is nobody else's.
    pub(super) fn open(&self, header: &[u8], message: Vec<Buf>) -> Result<Vec<Buf>> {
        let bad = || Error::Protocol("an encrypted answer cannot be read".into());
        let (_, opener) = self.sealing.as_deref().ok_or_else(bad)?;
        let transform = Transform::parse(header).map_err(|_| bad())?;
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
