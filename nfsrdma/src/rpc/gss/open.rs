//! Verifies or decrypts protected arguments (RFC 2203 section 5.3.2).

use iobuf::{Buf, BufMut};
use nfs_proto::oncrpc::CallHead;
use nfs_proto::rpcsec_gss::{GssInteg, GssMic, GssPriv};
use nfs_proto::xdr;
use rdma_transport::channel::ReadChunkData;
use wire::pad;

use super::table::Context;
use crate::locate;

/// The decrypted and verified arguments of a call.
pub(super) struct Opened {
    /// The message up to the end of the arguments.
    pub(super) body: Buf,
    /// Offset of the arguments.
    pub(super) at: usize,
    pub(super) read_chunks: Vec<ReadChunkData>,
}

/// Verifies the MIC over sequence number and arguments, and returns the arguments in place.
pub(super) fn integrity(
    context: &Context,
    number: u32,
    body: Buf,
    at: usize,
    read_chunks: Vec<ReadChunkData>,
) -> Option<Opened> {
    let (rest, GssInteg { databody_integ, seq_num }) =
        xdr::decode::<GssInteg>(body.get(at..)?).ok()?;
    let start = body.len() - rest.len();
    let of = |read_chunks: &ReadChunkData| read_chunks.data.iter().map(Buf::len).sum::<usize>();
    let beside: usize = read_chunks.iter().map(|p| of(p) + pad(of(p))).sum();
    let inline = usize::try_from(databody_integ).ok()?.checked_sub(beside)?;
    // The length includes the sequence number in front of the arguments.
    let end = (start - 4).checked_add(inline)?;
    if seq_num != number || end < start || !inline.is_multiple_of(4) {
        return None;
    }
    let mic = match xdr::decode::<GssMic<'_>>(body.get(end..)?) {
        Ok(([], GssMic { checksum })) => checksum,
        _ => return None,
    };
    let mut pieces: Vec<&[u8]> = Vec::with_capacity(2 + 3 * read_chunks.len());
    let mut from = start - 4;
    for part in &read_chunks {
        pieces.push(body.get(from..part.at.min(end))?);
        pieces.extend(part.data.iter().map(Buf::as_slice));
        pieces.push(&[0; 3][..pad(of(part))]);
        from = part.at;
    }
    pieces.push(body.get(from..end)?);
    context.keys.verify_mic(mic, &pieces).ok()?;
    Some(Opened { body: body.slice(0..end), at: start, read_chunks })
}

/// The data of a WRITE begins within this many bytes of the arguments.
const FRONT: usize = 4096;

/// Decrypts sequence number and arguments, in place unless the memory is shared. The token is either part of the message, or the
/// transport has read it separately.
pub(super) fn privacy(
    context: &Context,
    head: &CallHead<'_>,
    number: u32,
    body: Buf,
    at: usize,
    read_chunks: Vec<ReadChunkData>,
) -> Option<Opened> {
    let (rest, GssPriv { databody_priv }) = xdr::decode::<GssPriv>(body.get(at..)?).ok()?;
    let (start, len) = (body.len() - rest.len(), databody_priv.len);
    let (token, skip) = match read_chunks.into_iter().next() {
        None if rest.len() == len.checked_add(pad(len))? => (vec![body], start),
        Some(beside) if rest.is_empty() && beside.at == start => (beside.data, 0),
        _ => return None,
    };
    let mut token: Vec<BufMut> = token.into_iter().map(super::writable).collect();
    let mut left = len;
    let mut pieces = Vec::with_capacity(token.len());
    for (i, piece) in token.iter_mut().enumerate() {
        let piece = piece.filled_mut().get_mut(if i == 0 { skip } else { 0 }..)?;
        let n = piece.len().min(left);
        pieces.push(&mut piece[..n]);
        left -= n;
    }
    let plain = context.keys.unwrap(&mut pieces).ok()?;
    if left > 0 || !plain.is_sealed {
        return None;
    }
    let token: Vec<Buf> = token.into_iter().map(BufMut::freeze).collect();
    let plain = part(&token, skip + plain.start, plain.len);
    let (of_number, args) = (gathered(&part(&plain, 0, 4)), part_from(&plain, 4));
    let (_, seq_num) = xdr::decode::<u32>(&of_number).ok()?;
    (seq_num == number).then(|| laid_out(head, args))
}

/// Arranges the arguments as a transport delivers them: one piece, with the data of a WRITE apart.
fn laid_out(head: &CallHead<'_>, args: Vec<Buf>) -> Opened {
    if let [whole] = &args[..] {
        return Opened { body: whole.clone(), at: 0, read_chunks: Vec::new() };
    }
    let total: usize = args.iter().map(Buf::len).sum();
    let front = gathered(&part(&args, 0, FRONT));
    let found = locate::of_arguments(head, &front)
        .filter(|(at, len)| *len > 0 && at + len + pad(*len) <= total);
    let Some((at, len)) = found else {
        return Opened { body: gathered(&args), at: 0, read_chunks: Vec::new() };
    };
    let mut body = part(&args, 0, at);
    body.extend(part_from(&args, at + len + pad(len)));
    let read_chunks = vec![ReadChunkData { at, data: part(&args, at, len) }];
    Opened { body: gathered(&body), at: 0, read_chunks }
}

/// Takes a range of bytes from several pieces without a copy.
fn part(pieces: &[Buf], from: usize, len: usize) -> Vec<Buf> {
    let (mut skip, mut left) = (from, len);
    let mut out = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let start = skip.min(piece.len());
        let end = piece.len().min(start + left);
        skip -= start;
        left -= end - start;
        if start < end {
            out.push(piece.slice(start..end));
        }
    }
    out
}

fn part_from(pieces: &[Buf], from: usize) -> Vec<Buf> {
    part(pieces, from, usize::MAX >> 1)
}

/// Joins the pieces, with a copy if there are several.
fn gathered(pieces: &[Buf]) -> Buf {
    match pieces {
        [] => Buf::empty(),
        [one] => one.clone(),
        several => {
            let bytes = several.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>();
            iobuf::copied_note(bytes.len());
            Buf::from(bytes)
        }
    }
}
