//! Adds verifiers to replies and protects results (RFC 2203 section 5.3.3.4).

use iobuf::BufMut;
use nfs_proto::oncrpc::{AcceptStat, OpaqueAuth, ReplyHead};
use nfs_proto::rpcsec_gss::{GssService, RPCSEC_GSS};
use nfs_proto::xdr::Xdr;
use rdma_transport::channel::{Place, Reply};
use wire::{emit, pad};

use super::table::Context;
use super::writable;

/// Offset of the verifier in an accepted reply: after xid, REPLY and MSG_ACCEPTED.
const VERIFIER_AT: usize = 12;
/// Bytes of an empty verifier and the accept status.
const PLAIN: usize = 12;

/// The MIC of a sequence number, used as verifier.
pub(super) fn verifier(context: &Context, number: u32) -> gss_krb5::Tag {
    context.keys.mic(context.next_sequence(), &[&number.to_be_bytes()])
}

/// Inserts the verifier of this sequence number into a plain reply, and protects the results. Rejected calls are left unchanged;
/// only successful calls have results to protect.
pub(super) fn protect(
    context: &Context,
    number: u32,
    service: GssService,
    mut reply: Reply,
) -> Reply {
    let word = |at: usize| reply.head.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    if word(8) != Some(0) || reply.head.len() < VERIFIER_AT + PLAIN {
        return reply;
    }
    let is_done = word(20) == Some(0);
    let service = if is_done { service } else { GssService::None };
    let mut inserted = Vec::with_capacity(128);
    let mic = verifier(context, number);
    OpaqueAuth { flavor: RPCSEC_GSS, body: &mic }.emit(&mut inserted);
    inserted.extend_from_slice(&reply.head[20..24]);
    let before = match service {
        GssService::None => 0,
        GssService::Integrity => 4,
        GssService::Privacy => 4 + context.keys.seal_overhead().0,
    };
    // Space for the token's head is reserved here and filled when the results are known.
    inserted.resize(inserted.len() + before, 0);
    let results = VERIFIER_AT + inserted.len();
    if service != GssService::None {
        emit::be_u32(&mut inserted, number);
    }
    let moved = inserted.len() - PLAIN;
    reply.head.splice(VERIFIER_AT..VERIFIER_AT + PLAIN, inserted);
    for payload in &mut reply.payloads {
        payload.at += moved;
        if service != GssService::None {
            payload.place = Place::Inline;
        }
    }
    let done = match service {
        GssService::None => Some(()),
        GssService::Integrity => sign(context, results, &mut reply),
        GssService::Privacy => seal(context, results, &mut reply),
    };
    match done {
        Some(()) => reply,
        None => failed(context, number, &reply.head),
    }
}

/// Signs the results (RFC 2203 section 5.3.2.2): length, data, MIC.
fn sign(context: &Context, results: usize, reply: &mut Reply) -> Option<()> {
    let len = u32::try_from(reply.inline_len().checked_sub(results)?).ok()?;
    let skip = std::iter::once(results).chain(std::iter::repeat(0));
    let pieces: Vec<&[u8]> = skip.zip(reply.pieces()).filter_map(|(n, p)| p.get(n..)).collect();
    let mic = context.keys.mic(context.next_sequence(), &pieces);
    reply.head.get_mut(results - 4..results)?.copy_from_slice(&len.to_be_bytes());
    emit::opaque(&mut reply.head, &mic);
    Some(())
}

/// Encrypts the results (RFC 2203 section 5.3.2.3): length, then one token with all data. Payload in unshared memory is encrypted
/// in place, in one pass.
fn seal(context: &Context, results: usize, reply: &mut Reply) -> Option<()> {
    let (before, behind) = context.keys.seal_overhead();
    // The padding is part of the encrypted data, so it moves into the stream.
    let mut added = 0;
    for payload in &mut reply.payloads {
        payload.at += added;
        let pad = usize::from(std::mem::take(&mut payload.pad));
        reply.head.splice(payload.at..payload.at, std::iter::repeat_n(0, pad));
        added += pad;
    }
    let plain = reply.inline_len().checked_sub(results)?;
    let mut data: Vec<Vec<BufMut>> =
        reply.payloads.iter_mut().map(|p| p.data.drain(..).map(writable).collect()).collect();
    let mut pieces: Vec<&mut [u8]> = Vec::new();
    let (mut at, mut rest) = (results, reply.head.get_mut(results..)?);
    for (payload, data) in reply.payloads.iter().zip(&mut data) {
        let (now, later) = rest.split_at_mut_checked(payload.at.checked_sub(at)?)?;
        pieces.push(now);
        pieces.extend(data.iter_mut().map(BufMut::filled_mut));
        (at, rest) = (payload.at, later);
    }
    pieces.push(rest);
    let wrapped = context.keys.wrap(context.next_sequence(), &mut pieces).ok()?;
    for (payload, data) in reply.payloads.iter_mut().zip(data) {
        payload.data = data.into_iter().map(BufMut::freeze).collect();
    }
    let len = before + plain + behind;
    let front = reply.head.get_mut(results - before - 4..results)?;
    front[..4].copy_from_slice(&u32::try_from(len).ok()?.to_be_bytes());
    front[4..].copy_from_slice(wrapped.head());
    reply.head.extend_from_slice(wrapped.tail());
    reply.head.extend_from_slice(&[0; 3][..pad(len)]);
    Some(())
}

/// The reply if protection fails: an error without results.
fn failed(context: &Context, number: u32, head: &[u8]) -> Reply {
    let xid = head.first_chunk().copied().map_or(0, u32::from_be_bytes);
    let mut out = Vec::new();
    ReplyHead::accepted(xid, AcceptStat::SystemErr).emit(&mut out);
    let mut inserted = Vec::new();
    let mic = verifier(context, number);
    OpaqueAuth { flavor: RPCSEC_GSS, body: &mic }.emit(&mut inserted);
    out.splice(VERIFIER_AT..VERIFIER_AT + 8, inserted);
    Reply::of(out)
}
