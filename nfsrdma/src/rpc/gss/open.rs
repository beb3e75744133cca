//! Arguments that are protected (RFC 2203 section 5.3.2).

use iobuf::{Buf, BufMut};
use nfs_proto::rpcsec_gss::{GssInteg, GssMic, GssPriv};
use nfs_proto::xdr;
use rdma_transport::channel::Pulled;
use wire::pad;

use super::table::Context;

/// Arguments in plain.
pub(super) struct Opened {
    /// The message up to their end.
    pub(super) body: Buf,
    /// Where they begin.
    pub(super) at: usize,
    /// Their bulk data.
    pub(super) pulled: Vec<Pulled>,
}

/// Verifies the MIC over number and arguments, which stand where they stood.
pub(super) fn integrity(
    context: &Context,
    number: u32,
    body: Buf,
    at: usize,
    pulled: Vec<Pulled>,
) -> Option<Opened> {
    let (rest, GssInteg { databody_integ, seq_num }) =
        xdr::decode::<GssInteg>(body.get(at..)?).ok()?;
    let start = body.len() - rest.len();
    let of = |pulled: &Pulled| pulled.data.iter().map(Buf::len).sum::<usize>();
    let beside: usize = pulled.iter().map(|p| of(p) + pad(of(p))).sum();
    let inline = usize::try_from(databody_integ).ok()?.checked_sub(beside)?;
    // The number is counted in, and stands before the arguments.
    let end = (start - 4).checked_add(inline)?;
    if seq_num != number || end < start || !inline.is_multiple_of(4) {
        return None;
    }
    let mic = match xdr::decode::<GssMic<'_>>(body.get(end..)?) {
        Ok(([], GssMic { checksum })) => checksum,
        _ => return None,
    };
    let mut pieces: Vec<&[u8]> = Vec::with_capacity(2 + 3 * pulled.len());
    let mut from = start - 4;
    for part in &pulled {
        pieces.push(body.get(from..part.at.min(end))?);
        pieces.extend(part.data.iter().map(Buf::as_slice));
        pieces.push(&[0; 3][..pad(of(part))]);
        from = part.at;
    }
    pieces.push(body.get(from..end)?);
    context.keys.verify_mic(mic, &pieces).ok()?;
    Some(Opened { body: body.slice(0..end), at: start, pulled })
}

/// Decrypts number and arguments in place, or in a copy where others read the message's memory as well.
pub(super) fn privacy(
    context: &Context,
    number: u32,
    body: Buf,
    at: usize,
    pulled: &[Pulled],
) -> Option<Opened> {
    let (token, GssPriv { databody_priv }) = xdr::decode::<GssPriv>(body.get(at..)?).ok()?;
    let (start, len) = (body.len() - token.len(), databody_priv.len);
    if token.len() != len.checked_add(pad(len))? || !pulled.is_empty() {
        return None;
    }
    let (mut body, start) = match body.try_mut() {
        Ok(own) => (own, start),
        Err(shared) => {
            let mut own = BufMut::heap(len);
            own.append(shared.get(start..start + len)?);
            (own, 0)
        }
    };
    let sealed = body.filled_mut().get_mut(start..start + len)?;
    let plain = context.keys.unwrap(&mut [sealed]).ok().filter(|plain| plain.is_sealed)?;
    let (start, end) = (start + plain.start, start + plain.start + plain.len);
    let body = body.freeze().slice(0..end);
    let (_, seq_num) = xdr::decode::<u32>(body.get(start..)?).ok()?;
    (seq_num == number).then(|| Opened { body, at: start + 4, pulled: Vec::new() })
}
