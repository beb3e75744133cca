//! What a session does to its messages: signatures and encryption, from the client's side. Pure.

use std::sync::Arc;

use smbd_core::crypto::kdf::Keys;
use smbd_core::crypto::seal::{Cipher, Opener, Sealer};
use smbd_core::crypto::sign::{Algorithm, Sender, Signer};
use smbd_core::wire::transform::{self, Transform};
use smbd_core::wire::{Flags, HEADER_LEN, Header};

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
        (sign, seal, can_sign): (bool, bool, bool),
    ) -> Result<Self> {
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
        Ok(Self { session_id, signer, session, sealing, sign: sign && !seal, seal, can_sign })
    }

    /// The same session on a further connection, which signs with a key of its own.
    pub(super) fn on(&self, algorithm: Algorithm, signing: &[u8; 16]) -> Result<Self> {
        let signer = Arc::new(Signer::new(algorithm, signing).map_err(failed)?);
        let (session, sealing) = (self.session.clone(), self.sealing.clone());
        Ok(Self { signer, session, sealing, ..*self })
    }

    /// Signs what binds a further connection.
    pub(super) fn of_session(&self) -> &Arc<Signer> {
        &self.session
    }

    /// Payload must travel inside the messages: what goes by RDMA is neither signed nor sealed.
    pub(super) fn is_inline_only(&self) -> bool {
        self.sign || self.seal
    }

    /// Signs or seals a message: `head` with its header, and the bulk data that follows it. With `always` it is signed if that can
    /// be done at all.
    pub(super) fn seal(
        &self,
        head: &mut [u8],
        data: &[&[u8]],
        always: bool,
    ) -> Result<Option<Vec<u8>>> {
        if self.seal
            && let Some((sealer, _)) = self.sealing.as_deref()
        {
            let len: usize = head.len() + data.iter().map(|d| d.len()).sum::<usize>();
            let nonce = sealer.nonce();
            let mut header = Transform {
                nonce,
                original_len: u32::try_from(len).map_err(failed)?,
                session_id: self.session_id,
                signature: [0; 16],
            };
            let mut out = Vec::with_capacity(transform::LEN + len);
            out.extend(header.emit());
            out.extend_from_slice(head);
            data.iter().for_each(|d| out.extend_from_slice(d));
            let (first, body) = out.split_at_mut(transform::LEN);
            let tag = sealer.seal_in_place(&nonce, &first[transform::AAD], &mut [body]);
            header.signature = tag.map_err(failed)?;
            first.copy_from_slice(&header.emit());
            return Ok(Some(out));
        }
        if self.sign || (always && self.can_sign) {
            sign(&self.signer, head, data)?;
        }
        Ok(None)
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

    /// Decrypts a message in pieces, which begin with the transform header.
    pub(super) fn open(&self, pieces: &[&[u8]]) -> Result<Vec<u8>> {
        let bad = || Error::Protocol("an encrypted answer cannot be read".into());
        let (_, opener) = self.sealing.as_deref().ok_or_else(bad)?;
        let mut whole: Vec<u8> = pieces.concat();
        let header = Transform::parse(&whole).map_err(|_| bad())?;
        let tag = header.signature;
        let (first, body) = whole.split_at_mut_checked(transform::LEN).ok_or_else(bad)?;
        opener
            .open_in_place(&header.nonce, &first[transform::AAD], &mut [body], &tag)
            .map_err(|_| bad())?;
        if body.len() < HEADER_LEN {
            return Err(bad());
        }
        Ok(whole.split_off(transform::LEN))
    }
}
