//! Assigns the bytes of a message to regions of the peer, or to pieces of a Send. No I/O.

use iobuf::Buf;

use crate::channel::{Payload, RemoteSeg, XDR_PAD};

/// One RDMA Write of a plan; `from` is not empty and fills all of `to`.
#[derive(Clone, Debug)]
pub struct RdmaWrite {
    pub from: Buf,
    pub to: RemoteSeg,
}

/// Distributes `data` over `segments` in order and sets their lengths accordingly. `None` if they are too short.
pub(crate) fn scatter(
    data: Vec<Buf>,
    segments: &mut [RemoteSeg],
    writes: &mut Vec<RdmaWrite>,
) -> Option<()> {
    let mut data = data.into_iter().filter(|b| !b.is_empty());
    let mut piece = data.next();
    for segment in segments {
        let mut got = 0;
        while segment.len > got {
            let Some(from) = &mut piece else { break };
            let room = usize::try_from(segment.len - got).ok()?;
            let part = from.split_to(room);
            // At most `room`, which came from 32 bits.
            let len = u32::try_from(part.len()).ok()?;
            let offset = segment.offset.wrapping_add(u64::from(got));
            writes.push(RdmaWrite {
                from: part,
                to: RemoteSeg { handle: segment.handle, len, offset },
            });
            got += len;
            if from.is_empty() {
                piece = data.next();
            }
        }
        segment.len = got;
    }
    if piece.is_some() { None } else { Some(()) }
}

/// The stream in pieces: `head` from its start, with each payload at its offset. `from` is the origin of the offsets.
pub(crate) fn pieces(head: Buf, from: usize, payloads: Vec<Payload>) -> Vec<Buf> {
    let mut out = Vec::with_capacity(1 + 4 * payloads.len());
    let mut done = 0;
    for p in payloads {
        let at = (from + p.at).clamp(done, head.len());
        out.push(head.slice(done..at));
        done = at;
        out.extend(p.data);
        let pad = usize::from(p.pad).min(XDR_PAD.len());
        out.push(Buf::from_static(&XDR_PAD[..pad]));
    }
    out.push(head.slice(done..head.len()));
    out.retain(|b| !b.is_empty());
    out
}
