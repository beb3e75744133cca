//! Memory of the client that a READ or WRITE names (MS-SMB2 sections 3.3.5.12 and 3.3.5.13), and what protects the data on its way.
//!
//! *Operation.* [`for_read`] and [`for_write`] decide, before anything is read or fetched, whether data goes beside the message
//! and how: in clear, with a signature, or encrypted. [`Remote::protect`] and [`Remote::unprotect`] do it, over buffers of our
//! own: what was checked is what is used, whatever the peer does with its memory meanwhile.
//!
//! *Memory.* No copy, unless somebody else has a view of what is to be encrypted.
//!
//! *Errors.* A signature that is not that of the data is STATUS_INVALID_SIGNATURE, a tag that is not that of the ciphertext
//! STATUS_AUTH_TAG_MISMATCH; the connection lives, because its messages were whole.

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

/// Memory of the client, and how data comes from it or goes there.
pub(super) struct Remote {
    /// No more of it than the request moves.
    pub(super) segs: Vec<RemoteSeg>,
    protection: Option<(Protection, Arc<session::Channel>)>,
}

/// Where a READ's data goes; `None` when it travels inside the answer.
pub(super) fn for_read(
    cx: &RequestContext,
    channel: Option<Channel>,
    segs: &[RemoteSeg],
    len: u32,
) -> Result<Option<Remote>, Status> {
    // The field is reserved in dialects 2.0.2 and 2.1.
    if cx.conn.dialect() < Dialect::V300 {
        return Ok(None);
    }
    match channel {
        Some(Channel::None) => return Ok(None),
        // Dialect 3.0 knows no invalidation; Windows serves such a request there as one of RDMA_V1.
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

/// Where a WRITE's data comes from; `None` when it travels inside the request.
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

/// Refused: RDMA on a connection without it, no data, too little memory, a protection that was not agreed on, and data that must
/// be encrypted and would not be.
fn remote(
    cx: &RequestContext,
    protection: Option<Protection>,
    segs: &[RemoteSeg],
    len: u32,
) -> Result<Remote, Status> {
    let is_allowed = match protection {
        None => cx.may_place_clear(),
        // A signature hides nothing.
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
    /// Signs or encrypts what the answer to this message id sends beside itself, and says how; `None` where it leaves as it is.
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
                // From the counter that encrypts messages: the key is the same.
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

    /// The lengths of signature and nonce are those of the session's algorithms: seen before anything is fetched.
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

    /// Verifies or decrypts what was fetched for a WRITE.
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
                // What was fetched is ours alone, so nothing is copied.
                let mut data: Vec<BufMut> = data.into_iter().map(writable).collect();
                let mut pieces: Vec<&mut [u8]> = data.iter_mut().map(BufMut::filled_mut).collect();
                opener.open_in_place(&nonce, &[], &mut pieces, tag).map_err(|_| BAD)?;
                Ok(data.into_iter().map(BufMut::freeze).collect())
            }
        }
    }
}

/// As much of `segs` as `len` bytes need.
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

/// The token that is invalidated with the answer: of the first descriptor. `channel`: what the descriptors are for.
pub(super) fn token(
    cx: &RequestContext,
    channel: Option<Channel>,
    segs: &[RemoteSeg],
) -> Option<u32> {
    let asked = channel == Some(Channel::RdmaV1Invalidate) && cx.conn.dialect() >= Dialect::V302;
    segs.first().filter(|_| asked).map(|s| s.handle)
}

/// An answer with so many bytes of data is no longer than the peer takes.
pub(super) fn fits(cx: &RequestContext, data: usize) -> bool {
    /// Header, body and what encryption adds.
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

    /// A session that encrypts.
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
            // Its low half overflows into the high one on the way.
            sealer: Some(Sealer::new(Cipher::Aes128Gcm, &[2; 16], 0xffff_ff00).unwrap()),
            opener: Some(Opener::new(Cipher::Aes128Gcm, &[3; 16]).unwrap()),
        };
        assert!(session.secrets.set(secrets).is_ok());
        session
    }

    /// The nonces of a connection that sends so many encrypted messages, each with the data of a READ beside it.
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

    /// MS-SMB2 sections 2.2.41 and 3.3.5.12: a nonce is not used again within a session, whose messages and data have one key on
    /// all its connections.
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
