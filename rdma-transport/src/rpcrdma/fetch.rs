//! A call with parts to fetch by RDMA Read: the memory that it needs, and the assembly of the request. No I/O.

use iobuf::{Buf, BufMut, Pool};

use super::check::Violation;
use super::chunks::ReadChunk;
use crate::calls::xid_and_is_reply;
use crate::channel::{ReadChunkData, RemoteSeg};
use crate::limits;

/// One RDMA Read, into a separate buffer.
#[derive(Debug)]
struct Part {
    len: usize,
    from: Vec<RemoteSeg>,
    into: Option<Buf>,
}

/// A call in progress.
#[derive(Debug)]
pub(super) struct Fetch {
    /// The RPC message, unless it is fetched.
    inline: Option<Buf>,
    /// Bytes of the RPC message at the start of the fetched data.
    call: usize,
    /// Bulk data after the RPC message, in order: position and length.
    reads: Vec<(usize, usize)>,
    /// Either one buffer for all, or one for the message and one for its bulk data if they do not fit together, or two for a
    /// message that is too long for one. The two have different sizes, so that requesting them one after the other cannot deadlock.
    parts: Vec<Part>,
    left: usize,
}

impl Fetch {
    pub(super) fn new(
        inline: Option<Buf>,
        call: Option<ReadChunk>,
        reads: Vec<ReadChunk>,
    ) -> Result<Self, Violation> {
        let call = call.unwrap_or(ReadChunk { at: 0, len: 0, segments: Vec::new() });
        let data: usize = reads.iter().map(|r| r.len).sum();
        let places = reads.iter().map(|r| (r.at, r.len)).collect();
        let segments = reads.into_iter().flat_map(|r| r.segments);
        let mut parts = Vec::with_capacity(2);
        let part = |len, from| Part { len, from, into: None };
        if call.len > limits::RPC_PAYLOAD_MAX && data == 0 {
            // A large WRITE that is signed or encrypted completely inside the message (required by RFC 8166 section 3.4.1).
            let (first, rest) = split(call.segments, limits::RPC_PAYLOAD_MAX);
            parts.push(part(limits::RPC_PAYLOAD_MAX, first));
            parts.push(part(call.len - limits::RPC_PAYLOAD_MAX, rest));
        } else if call.len + data <= limits::RPC_PAYLOAD_MAX {
            let all = call.segments.into_iter().chain(segments).collect();
            parts.push(part(call.len + data, all));
        } else if call.len <= limits::RPCRDMA_LONG_CALL_MAX {
            parts.push(part(call.len, call.segments));
            parts.push(part(data, segments.collect()));
        } else {
            return Err(Violation::ChunkTooLong((call.len + data) as u64));
        }
        parts.retain(|p| p.len > 0);
        for p in &mut parts {
            p.from.retain(|s| s.len > 0);
        }
        Ok(Self { inline, call: call.len, reads: places, left: parts.len(), parts })
    }

    /// Sizes of the needed buffers, in bytes; at most two.
    pub(super) fn wants(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(|p| p.len)
    }

    /// The segments to read into the buffer of this number.
    pub(super) fn source(&mut self, part: usize) -> Vec<RemoteSeg> {
        self.parts.get_mut(part).map(|p| std::mem::take(&mut p.from)).unwrap_or_default()
    }

    /// Stores a filled buffer. `true` if all are filled.
    pub(super) fn got(&mut self, part: usize, buf: BufMut) -> bool {
        if let Some(p) = self.parts.get_mut(part)
            && p.into.is_none()
        {
            p.into = Some(buf.freeze());
            self.left -= 1;
        }
        self.left == 0
    }

    /// True if the RPC message has arrived, so that the call can be answered without its bulk data.
    pub(super) fn is_answerable(&self) -> bool {
        self.inline.is_some()
    }

    /// Returns the RPC message, with all bulk data marked as missing.
    pub(super) fn refuse(self) -> (Buf, Vec<ReadChunkData>) {
        let missing = self.reads.into_iter().map(|(at, _)| ReadChunkData::missing(at));
        (self.inline.unwrap_or_default(), missing.collect())
    }

    /// Returns the RPC message and its bulk data. `pool` accounts for a message that must be on the heap.
    pub(super) fn finish(
        self,
        xid: u32,
        pool: &Pool,
    ) -> Result<(Buf, Vec<ReadChunkData>), Violation> {
        let mut all = self.parts.into_iter().filter_map(|p| p.into);
        let mut data = all.next().unwrap_or_default();
        let body = match self.inline {
            Some(body) => body,
            None => {
                let body = match self.call.checked_sub(data.len()) {
                    Some(more) if more > 0 => joined(pool, &data, &all.next().unwrap_or_default()),
                    _ => data.split_to(self.call),
                };
                match xid_and_is_reply(&body) {
                    Some((there, false)) if there == xid => body,
                    Some((_, true)) => return Err(Violation::ReverseChunks),
                    Some(_) => return Err(Violation::XidMismatch),
                    None => return Err(Violation::MessageShort),
                }
            }
        };
        if data.is_empty() {
            data = all.next().unwrap_or_default();
        }
        let read_chunks = self.reads.into_iter().map(|(at, len)| {
            let chunk = data.split_to(len);
            let chunk = chunk.slice(0..without_padding(&body, at, len));
            ReadChunkData { at, data: vec![chunk] }
        });
        let read_chunks = read_chunks.collect();
        Ok((body, read_chunks))
    }
}

/// Splits regions at byte `at`.
fn split(segments: Vec<RemoteSeg>, at: usize) -> (Vec<RemoteSeg>, Vec<RemoteSeg>) {
    let mut left = u32::try_from(at).unwrap_or(u32::MAX);
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for seg in segments {
        let here = seg.len.min(left);
        left -= here;
        first.push(RemoteSeg { len: here, ..seg });
        let offset = seg.offset.saturating_add(here.into());
        rest.push(RemoteSeg { len: seg.len - here, offset, ..seg });
    }
    (first, rest)
}

/// Joins a message that no single buffer can hold, on the heap. Its buffers are returned at once, since the request may need some
/// for its reply. The heap memory is charged without waiting, and an excess delays the next calls.
fn joined(pool: &Pool, first: &[u8], rest: &[u8]) -> Buf {
    let bytes = [first, rest].concat();
    iobuf::copied_note(bytes.len());
    pool.pay_now(bytes.len()).hold(bytes).freeze()
}

/// Bytes of a chunk without padding. A client may include the padding or not (RFC 8166 section 3.4.5.2); the length word before the
/// position tells.
fn without_padding(body: &[u8], at: usize, len: usize) -> usize {
    let word = at.checked_sub(4).and_then(|from| body.get(from..at)).and_then(|w| w.first_chunk());
    let told = word.and_then(|w| usize::try_from(u32::from_be_bytes(*w)).ok());
    match told {
        Some(told) if told <= len && told.next_multiple_of(4) == len => told,
        _ => len,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool::new(iobuf::PoolLimits { buffers_max: [1; 3] })
    }

    fn chunk(at: usize, len: usize) -> ReadChunk {
        let half = u32::try_from(len / 2).unwrap();
        let rest = u32::try_from(len).unwrap() - half;
        let seg = |len, offset| RemoteSeg { handle: 1, len, offset };
        ReadChunk { at, len, segments: vec![seg(half, 0), seg(rest, 1000)] }
    }

    fn filled(bytes: &[u8]) -> BufMut {
        let mut b = BufMut::heap(bytes.len());
        b.append(bytes);
        b
    }

    #[test]
    fn padding_is_removed_if_present() {
        let body = [&[0, 0, 0, 5][..], &[0; 4]].concat();
        for (len, data) in [(5, 5), (8, 5), (4, 4), (12, 12)] {
            assert_eq!(without_padding(&body, 4, len), data);
        }
        assert_eq!(without_padding(&body, 2, 8), 8);
        assert_eq!(without_padding(&[255; 4], 4, 8), 8);
    }

    #[test]
    fn long_call_shares_buffer_with_data() {
        let mut f = Fetch::new(None, Some(chunk(0, 12)), vec![chunk(8, 4), chunk(12, 3)]).unwrap();
        assert_eq!(f.wants().collect::<Vec<_>>(), [19]);
        assert_eq!(f.source(0).len(), 6);
        let message = [0, 0, 0, 9, 0, 0, 0, 0, 7, 7, 7, 7];
        assert!(f.got(0, filled(&[&message[..], b"abcdefg"].concat())));
        let (body, read_chunks) = f.finish(9, &pool()).unwrap();
        assert_eq!(&*body, message);
        let read_chunks: Vec<_> = read_chunks.iter().map(|p| (p.at, p.data[0].to_vec())).collect();
        assert_eq!(read_chunks, [(8, b"abcd".to_vec()), (12, b"efg".to_vec())]);
    }

    #[test]
    fn oversized_parts_use_separate_buffers() {
        let mib = 1 << 20;
        let f = Fetch::new(None, Some(chunk(0, 2000)), vec![chunk(8, mib)]).unwrap();
        assert_eq!(f.wants().collect::<Vec<_>>(), [2000, mib]);
        assert!(matches!(
            Fetch::new(None, Some(chunk(0, mib / 2)), vec![chunk(8, mib / 2 + 1)]),
            Err(Violation::ChunkTooLong(_))
        ));
    }

    #[test]
    fn oversized_message_uses_two_buffers() {
        let mib = 1 << 20;
        let mut f = Fetch::new(None, Some(chunk(0, mib + 308)), vec![]).unwrap();
        assert_eq!(f.wants().collect::<Vec<_>>(), [mib, 308]);
        let lengths =
            |all: Vec<RemoteSeg>| all.iter().map(|s| (s.len as usize, s.offset)).collect();
        let half = mib / 2 + 154;
        let (first, rest): (Vec<_>, Vec<_>) = (lengths(f.source(0)), lengths(f.source(1)));
        assert_eq!(first, [(half, 0), (mib - half, 1000)]);
        assert_eq!(rest, [(308, 1000 + (mib - half) as u64)]);
        let mut message: Vec<u8> = (0..=250).cycle().take(mib + 308).collect();
        message[..8].copy_from_slice(&[0, 0, 0, 9, 0, 0, 0, 0]);
        // The parts may arrive in either order.
        assert!(!f.got(1, filled(&message[mib..])));
        assert!(f.got(0, filled(&message[..mib])));
        let pool = pool();
        let (body, read_chunks) = f.finish(9, &pool).unwrap();
        assert!(*body == message[..] && read_chunks.is_empty());
        assert_eq!(pool.heap_stats().in_use, mib + 308);
        drop(body);
        assert_eq!(pool.heap_stats().in_use, 0);
        let with_data = Fetch::new(None, Some(chunk(0, mib + 308)), vec![chunk(8, 4)]);
        assert!(matches!(with_data, Err(Violation::ChunkTooLong(_))));
    }

    #[test]
    fn fetched_message_is_checked() {
        for (message, rule) in [
            ([0, 0, 0, 8, 0, 0, 0, 0], Violation::XidMismatch),
            ([0, 0, 0, 9, 0, 0, 0, 1], Violation::ReverseChunks),
        ] {
            let mut f = Fetch::new(None, Some(chunk(0, 8)), vec![]).unwrap();
            f.got(0, filled(&message));
            assert_eq!(f.finish(9, &pool()).unwrap_err(), rule);
        }
    }
}
