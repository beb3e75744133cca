//! Client memory that a READ or WRITE names (MS-SMB2 sections 3.3.5.12 and 3.3.5.13), and the protection of data sent through RDMA.
//!
//! *Operation.* Before any data is read or fetched, [`for_read`] and [`for_write`] decide whether it travels outside the message
//! and how: in clear, signed, or encrypted. [`Remote::protect`] and [`Remote::unprotect`] work on the server's buffers, so that the
//! verified data is also the data used, even if the peer changes its memory meanwhile.
//!
//! *Memory.* Data is copied only if another buffer refers to the bytes to encrypt.
//!
//! *Errors.* STATUS_INVALID_SIGNATURE if the signature does not match the data, STATUS_AUTH_TAG_MISMATCH if the tag does not match
//! the ciphertext; the connection stays open, because its messages were intact.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use iobuf::{Buf, BufMut};
use rdma_transport::channel::RemoteSeg;

use crate::answer::writable;
use crate::crypto::sign::Sender;
use crate::request_context::RequestContext;
use crate::session;
use crate::status::Status;
use crate::wire::Flags;
use crate::wire::negotiate::Dialect;
use crate::wire::rdma::{Channel, Protection, Transform};
use crate::wire::write;

/// Client memory and the protection of data transferred to or from it.
pub(super) struct Remote {
    /// Truncated to the length of the request.
    pub(super) segs: Vec<RemoteSeg>,
    protection: Option<(Protection, Arc<session::Channel>)>,
}

/// Returns the destination of a READ's data, or `None` if the data travels in the response.
pub(super) fn for_read(
    cx: &RequestContext,
    channel: Option<Channel>,
    segs: &[RemoteSeg],
    len: u32,
) -> Result<Option<Remote>, Status> {
    // This field is reserved in dialects 2.0.2 and 2.1.
    if cx.conn.dialect() < Dialect::V300 {
        return Ok(None);
    }
    match channel {
        Some(Channel::None) => return Ok(None),
        // Dialect 3.0 has no invalidation; Windows treats such requests as RDMA_V1.
        Some(Channel::RdmaV1 | Channel::RdmaV1Invalidate) => {}
        Some(Channel::RdmaTransform) | None => return Err(Status::INVALID_PARAMETER),
    }
    let protection = match (cx.encrypted, cx.header.flags.has(Flags::SIGNED)) {
        (true, _) => Some(Protection::Encryption),
        (false, true) if negotiated(cx, Protection::Signing) => Some(Protection::Signing),
        (false, _) => None,
    };
    remote(cx, protection, segs, len).map(Some)
}

/// Returns the source of a WRITE's data, or `None` if the data travels in the request.
pub(super) fn for_write(cx: &RequestContext, r: &write::Request) -> Result<Option<Remote>, Status> {
    if cx.conn.dialect() < Dialect::V300 {
        return Ok(None);
    }
    let protection = match (r.channel, &r.transform) {
        (Some(Channel::None), _) => return Ok(None),
        (Some(Channel::RdmaV1 | Channel::RdmaV1Invalidate), _) => None,
        (Some(Channel::RdmaTransform), Some(transform)) => {
            let came_so = match transform.protection {
                Protection::Encryption => cx.encrypted,
                Protection::Signing => cx.header.flags.has(Flags::SIGNED),
            };
            if !came_so {
                return Err(Status::INVALID_PARAMETER);
            }
            Some(transform.protection)
        }
        _ => return Err(Status::INVALID_PARAMETER),
    };
    if r.descriptors.first().is_none_or(|first| first.len == 0) {
        return Err(Status::INVALID_PARAMETER);
    }
    remote(cx, protection, &r.descriptors, r.remaining).map(Some)
}

fn negotiated(cx: &RequestContext, protection: Protection) -> bool {
    cx.conn.negotiated().is_some_and(|n| n.transforms.contains(&protection))
}

/// Refuses connections without RDMA, empty data, insufficient memory, a protection that was not negotiated, and clear data that
/// must be encrypted.
fn remote(
    cx: &RequestContext,
    protection: Option<Protection>,
    segs: &[RemoteSeg],
    len: u32,
) -> Result<Remote, Status> {
    let is_allowed = match protection {
        None => cx.may_place_clear(),
        // Signed data is not encrypted, so sending it in clear must be allowed.
        Some(Protection::Signing) => negotiated(cx, Protection::Signing) && cx.may_place_clear(),
        Some(Protection::Encryption) => negotiated(cx, Protection::Encryption),
    };
    if !is_allowed || !cx.conn.info.transport.is_rdma() {
        return Err(Status::INVALID_PARAMETER);
    }
    let have: u64 = segs.iter().map(|s| u64::from(s.len)).sum();
    if len == 0 || have < u64::from(len) {
        return Err(Status::INVALID_PARAMETER);
    }
    let protection = match protection {
        None => None,
        Some(protection) => Some((protection, cx.channel()?.clone())),
    };
    Ok(Remote { segs: first(segs, len), protection })
}

impl Remote {
    /// Signs or encrypts the data sent outside the response to this message, and returns how; `None` if it is sent unprotected.
    pub(super) fn protect(
        &self,
        message_id: u64,
        data: Vec<Buf>,
    ) -> Result<(Vec<Buf>, Option<Transform>), Status> {
        const FAILED: Status = Status::INTERNAL_ERROR;
        let Some((protection, channel)) = &self.protection else { return Ok((data, None)) };
        let (data, signature, nonce) = match protection {
            Protection::Signing => {
                let signer = channel.signer.as_ref().ok_or(FAILED)?;
                let pieces: Vec<&[u8]> = data.iter().map(Buf::as_slice).collect();
                let signed = signer.sign_payload(Sender::Server, message_id, &pieces);
                let (signature, nonce) = signed.map_err(|_| FAILED)?;
                (data, signature, nonce)
            }
            Protection::Encryption => {
                let secrets = channel.session.secrets.get();
                let sealer = secrets.and_then(|s| s.sealer.as_ref()).ok_or(FAILED)?;
                // Uses the counter for message nonces, because the key is the same.
                let nonce = sealer.nonce();
                let mut data: Vec<BufMut> = data.into_iter().map(writable).collect();
                let mut pieces: Vec<&mut [u8]> = data.iter_mut().map(BufMut::filled_mut).collect();
                let sealed = sealer.seal_in_place(&nonce, &[], &mut pieces);
                let signature = sealed.map_err(|_| FAILED)?;
                let data = data.into_iter().map(BufMut::freeze).collect();
                (data, signature, nonce[..sealer.cipher().nonce_len()].to_vec())
            }
        };
        let (channel, signature) = (Channel::None, signature.to_vec());
        let transform = Transform { channel, protection: *protection, signature, nonce };
        Ok((data, Some(transform)))
    }

    /// Checks that the signature and nonce have the lengths of the session's algorithms. Called before data is fetched.
    pub(super) fn check(&self, transform: Option<&Transform>) -> Result<(), Status> {
        let (Some((protection, channel)), Some(t)) = (&self.protection, transform) else {
            return Ok(());
        };
        let (nonce, status) = match protection {
            Protection::Signing => {
                let signer = channel.signer.as_ref().ok_or(Status::INVALID_PARAMETER)?;
                (signer.payload_nonce_len(), Status::INVALID_SIGNATURE)
            }
            Protection::Encryption => {
                let secrets = channel.session.secrets.get();
                let opener = secrets.and_then(|s| s.opener.as_ref());
                let opener = opener.ok_or(Status::INVALID_PARAMETER)?;
                (opener.cipher().nonce_len(), Status::AUTH_TAG_MISMATCH)
            }
        };
        if t.signature.len() == 16 && t.nonce.len() == nonce { Ok(()) } else { Err(status) }
    }

    /// Verifies or decrypts data fetched for a WRITE.
    pub(super) fn unprotect(
        &self,
        transform: Option<&Transform>,
        data: Vec<Buf>,
    ) -> Result<Vec<Buf>, Status> {
        let (Some((protection, channel)), Some(t)) = (&self.protection, transform) else {
            return Ok(data);
        };
        match protection {
            Protection::Signing => {
                let signer = channel.signer.as_ref().ok_or(Status::INVALID_SIGNATURE)?;
                let pieces: Vec<&[u8]> = data.iter().map(Buf::as_slice).collect();
                let verified = signer.verify_payload(&t.nonce, &pieces, &t.signature);
                verified.map_err(|_| Status::INVALID_SIGNATURE)?;
                Ok(data)
            }
            Protection::Encryption => {
                const BAD: Status = Status::AUTH_TAG_MISMATCH;
                let secrets = channel.session.secrets.get();
                let opener = secrets.and_then(|s| s.opener.as_ref()).ok_or(BAD)?;
                let tag = t.signature.first_chunk::<16>().ok_or(BAD)?;
                let mut nonce = [0; 16];
                nonce.get_mut(..t.nonce.len()).ok_or(BAD)?.copy_from_slice(&t.nonce);
                // The fetched buffers have no other user, so `writable` does not copy them.
                let mut data: Vec<BufMut> = data.into_iter().map(writable).collect();
                let mut pieces: Vec<&mut [u8]> = data.iter_mut().map(BufMut::filled_mut).collect();
                opener.open_in_place(&nonce, &[], &mut pieces, tag).map_err(|_| BAD)?;
                Ok(data.into_iter().map(BufMut::freeze).collect())
            }
        }
    }
}

/// Returns the part of `segs` that holds the first `len` bytes.
fn first(segs: &[RemoteSeg], len: u32) -> Vec<RemoteSeg> {
    let mut left = len;
    let mut out = Vec::with_capacity(segs.len());
    for s in segs {
        let here = s.len.min(left);
        left -= here;
        if here > 0 {
            out.push(RemoteSeg { len: here, ..*s });
        }
    }
    out
}

/// Returns the token to invalidate with the response, which is in the first descriptor. `channel`: the use of the descriptors.
pub(super) fn token(
    cx: &RequestContext,
    channel: Option<Channel>,
    segs: &[RemoteSeg],
) -> Option<u32> {
    let asked = channel == Some(Channel::RdmaV1Invalidate) && cx.conn.dialect() >= Dialect::V302;
    segs.first().filter(|_| asked).map(|s| s.handle)
}

/// Returns whether a response with this many bytes of data fits into the peer's largest message.
pub(super) fn fits(cx: &RequestContext, data: usize) -> bool {
    /// Header, body and encryption overhead.
    const AROUND: usize = 64 + 16 + 52;
    let max = cx.conn.info.message_out_max.load(Ordering::Relaxed);
    max == 0 || data.saturating_add(AROUND) <= max
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Weak;
    use std::thread;

    use super::*;
    use crate::answer;
    use crate::crypto::seal::{Cipher, Opener, Sealer};
    use crate::crypto::sign::{Algorithm, Signer};
    use crate::session::{Secrets, Session, Sessions, Terms};
    use crate::wire::{HEADER_LEN, transform};

    /// Creates a session with encryption.
    fn session() -> Arc<Session> {
        let terms = Terms {
            dialect: Dialect::V311,
            client_guid: [7; 16],
            signing: Algorithm::AesGmac,
            cipher: Some(Cipher::Aes128Gcm),
        };
        let session = Sessions::default().begin(terms).unwrap();
        let secrets = Secrets {
            signer: Signer::new(Algorithm::AesGmac, &[1; 16]).unwrap(),
            // The low half of this counter overflows into the high half during the test.
            sealer: Some(Sealer::new(Cipher::Aes128Gcm, &[2; 16], 0xffff_ff00).unwrap()),
            opener: Some(Opener::new(Cipher::Aes128Gcm, &[3; 16]).unwrap()),
        };
        assert!(session.secrets.set(secrets).is_ok());
        session
    }

    /// Collects the nonces of a connection that sends this many encrypted messages, each followed by RDMA data of a READ.
    fn nonces(session: &Arc<Session>, messages: u64) -> Vec<[u8; 12]> {
        let channel =
            session::Channel { session: session.clone(), conn: Weak::new(), signer: None };
        let protection = Some((Protection::Encryption, Arc::new(channel)));
        let remote = Remote { segs: vec![], protection };
        let of_one = |id| {
            let (_, transform) = remote.protect(id, vec![Buf::from(vec![5; 16])]).unwrap();
            let sent = answer::notice(vec![0; HEADER_LEN], Some(session)).unwrap();
            let header = transform::Transform::parse(&sent.head).unwrap();
            assert_eq!(header.nonce[12..], [0; 4]);
            [transform.unwrap().nonce.try_into().unwrap(), *header.nonce.first_chunk().unwrap()]
        };
        (0..messages).flat_map(of_one).collect()
    }

    /// All connections of a session use the same key for messages and data, so nonces must never repeat (MS-SMB2 sections 2.2.41
    /// and 3.3.5.12).
    #[test]
    fn a_million_nonces_of_four_connections_are_unique() {
        let session = session();
        let all: Vec<Vec<[u8; 12]>> = thread::scope(|scope| {
            let started: Vec<_> =
                (0..4).map(|_| scope.spawn(|| nonces(&session, 125_000))).collect();
            started.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let unique: HashSet<&[u8; 12]> = all.iter().flatten().collect();
        assert_eq!(unique.len(), 1_000_000);
    }

    #[test]
    fn no_more_memory_is_used_than_needed() {
        let seg = |handle, len| RemoteSeg { handle, len, offset: 0x1000 };
        let all = [seg(1, 10), seg(2, 0), seg(3, 10), seg(4, 10)];
        assert_eq!(first(&all, 15), [seg(1, 10), seg(3, 5)]);
        assert_eq!(first(&all, 30), [seg(1, 10), seg(3, 10), seg(4, 10)]);
        assert_eq!(first(&all, 0), []);
    }
}
