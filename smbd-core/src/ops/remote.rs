//! Memory of the client that a READ or WRITE names (MS-SMB2 sections 3.3.5.12 and 3.3.5.13).

use std::sync::atomic::Ordering;

use rdma_transport::channel::RemoteSeg;

use crate::cx::Cx;
use crate::status::Status;
use crate::wire::negotiate::Dialect;
use crate::wire::rdma::Channel;

/// The memory that holds or takes `len` bytes; `None` when they travel inside the message. Refused: a channel that is not
/// defined, RDMA on a connection without it, too little memory, and data that must travel encrypted.
pub(super) fn check(
    cx: &Cx,
    channel: Option<Channel>,
    segs: &[RemoteSeg],
    len: u32,
) -> Result<Option<Vec<RemoteSeg>>, Status> {
    // The field is reserved in dialects 2.0.2 and 2.1.
    if cx.conn.dialect() < Dialect::V300 {
        return Ok(None);
    }
    let named = match channel {
        Some(Channel::None) => return Ok(None),
        // Dialect 3.0 knows no invalidation; Windows serves such a request there as one of RDMA_V1.
        Some(Channel::RdmaV1 | Channel::RdmaV1Invalidate) => segs,
        _ => return Err(Status::INVALID_PARAMETER),
    };
    if !cx.may_place_remote() {
        return Err(Status::INVALID_PARAMETER);
    }
    let have: u64 = named.iter().map(|s| u64::from(s.len)).sum();
    if named.is_empty() || have < u64::from(len) {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(Some(first(named, len)))
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

/// The token that is invalidated with the answer: of the first descriptor.
pub(super) fn token(cx: &Cx, channel: Option<Channel>, segs: &[RemoteSeg]) -> Option<u32> {
    let asked = channel == Some(Channel::RdmaV1Invalidate) && cx.conn.dialect() >= Dialect::V302;
    segs.first().filter(|_| asked).map(|s| s.handle)
}

/// An answer with so many bytes of data is no longer than the peer takes.
pub(super) fn fits(cx: &Cx, data: usize) -> bool {
    /// Header, body and what encryption adds.
    const AROUND: usize = 64 + 16 + 52;
    let max = cx.conn.info.message_out_max.load(Ordering::Relaxed);
    max == 0 || data.saturating_add(AROUND) <= max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_memory_is_used_than_needed() {
        let seg = |handle, len| RemoteSeg { handle, len, offset: 0x1000 };
        let all = [seg(1, 10), seg(2, 0), seg(3, 10), seg(4, 10)];
        assert_eq!(first(&all, 15), [seg(1, 10), seg(3, 5)]);
        assert_eq!(first(&all, 30), [seg(1, 10), seg(3, 10), seg(4, 10)]);
        assert_eq!(first(&all, 0), []);
    }
}
