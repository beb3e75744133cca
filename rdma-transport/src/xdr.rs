//! XDR messages of ONC RPC (RFC 4506, RFC 8166 section 3.4): a bounded reader and a writer that support bulk data outside the
//! stream.

use iobuf::{Buf, Pages};
use wire::xdr::{Bulk, Xdr, data};
use wire::{Fault, Parsed, Rule, pad};

use crate::channel::{Payload, Place, ReadChunkData, Reply};

/// The result of reading; an error contains the field and its offset in the message.
pub type XdrResult<T> = Result<T, Fault>;

/// The first `max` bytes of `data`, for a WRITE that exceeds the server's maximum. Does not copy.
pub fn at_most(mut data: Vec<Buf>, max: usize) -> Vec<Buf> {
    let mut left = max;
    data.retain_mut(|piece| {
        if piece.len() > left {
            *piece = piece.slice(0..left);
        }
        left -= piece.len();
        !piece.is_empty()
    });
    data
}

/// Reads a request sequentially.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    body: &'a Buf,
    at: usize,
    read_chunks: &'a [ReadChunkData],
}

impl<'a> Reader<'a> {
    /// Reads this message with its bulk data.
    pub fn new(body: &'a Buf, read_chunks: &'a [ReadChunkData]) -> Self {
        Self { body, at: 0, read_chunks }
    }

    /// Runs a parser on the remaining bytes.
    #[inline]
    pub fn parse<T>(&mut self, parser: impl FnOnce(&'a [u8]) -> Parsed<'a, T>) -> XdrResult<T> {
        match wire::decode(self.rest(), parser) {
            Ok((rest, value)) => {
                self.at = self.body.len() - rest.len();
                Ok(value)
            }
            Err(why) => Err(why.at(self.body.as_slice())),
        }
    }

    /// Reads an XDR value.
    #[inline]
    pub fn value<T: Xdr<'a>>(&mut self) -> XdrResult<T> {
        self.parse(T::parse)
    }

    /// Continues at `rest`, a suffix of the remaining bytes.
    pub fn skip_to(&mut self, rest: &'a [u8]) {
        self.at = self.body.len().saturating_sub(rest.len());
    }

    /// Offset of the next byte in the body.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Number of remaining bytes of the body.
    pub fn remaining(&self) -> usize {
        self.body.len() - self.at
    }

    /// The remaining bytes of the body.
    pub fn rest(&self) -> &'a [u8] {
        let body: &'a [u8] = self.body.as_slice();
        body.get(self.at..).unwrap_or_default()
    }

    /// True if the bulk data at this position was not received for lack of memory ([`ReadChunkData::is_missing`]).
    pub fn lacks_data(&self) -> bool {
        self.read_chunks.first().is_some_and(|first| first.at == self.at && first.is_missing())
    }

    /// True if all bulk data of the message was received.
    pub fn is_whole(&self) -> bool {
        !self.read_chunks.iter().any(ReadChunkData::is_missing)
    }

    /// Number of bytes not read yet, including bulk data.
    pub fn unread(&self) -> usize {
        let bulk = self.read_chunks.iter().flat_map(|chunk| &chunk.data).map(Buf::len);
        bulk.fold(self.remaining(), usize::saturating_add)
    }

    /// True if everything was read, including bulk data.
    pub fn is_at_end(&self) -> bool {
        self.remaining() == 0 && self.read_chunks.is_empty()
    }

    /// Reads a fixed number of bytes, padded to a multiple of four.
    pub fn fixed<const N: usize>(&mut self) -> XdrResult<[u8; N]> {
        let out = self.parse(wire::bytes("opaque"))?;
        self.parse(wire::take(pad(N), "padding"))?;
        Ok(out)
    }

    /// `unsigned int`.
    pub fn u32(&mut self) -> XdrResult<u32> {
        self.value()
    }

    /// `int`.
    pub fn i32(&mut self) -> XdrResult<i32> {
        self.value()
    }

    /// `unsigned hyper`.
    pub fn u64(&mut self) -> XdrResult<u64> {
        self.value()
    }

    /// `hyper`.
    pub fn i64(&mut self) -> XdrResult<i64> {
        self.value()
    }

    /// `bool`: 0 or 1.
    pub fn bool(&mut self) -> XdrResult<bool> {
        self.value()
    }

    /// Reads a count of elements, at most `max`.
    pub fn count(&mut self, max: usize) -> XdrResult<usize> {
        self.parse(wire::bulk(max, "count")).map(|place| place.len)
    }

    /// Reads `opaque<max>` or `string<max>`, borrowed.
    pub fn opaque(&mut self, max: usize) -> XdrResult<&'a [u8]> {
        self.parse(wire::opaque(max, "opaque"))
    }

    /// Reads an `opaque<max>` that may be outside the stream: the data of a WRITE, the target of a link. Does not copy.
    pub fn bulk(&mut self, max: usize) -> XdrResult<Vec<Buf>> {
        let len = self.count(max)?;
        self.data(Bulk { len })
    }

    /// Returns the data of a parsed value, inside or outside the stream. Does not copy.
    pub fn data(&mut self, Bulk { len: n }: Bulk) -> XdrResult<Vec<Buf>> {
        if let Some((first, rest)) = self.read_chunks.split_first()
            && first.at == self.at
        {
            let have: usize = first.data.iter().map(Buf::len).sum();
            // RFC 8166 section 3.4.5: a reduced item may include its padding.
            if have != n && have != n + pad(n) {
                return Err(Fault { field: "data", rule: Rule::OutOfBounds, offset: self.at });
            }
            self.read_chunks = rest;
            let mut left = n;
            let mut out = Vec::with_capacity(first.data.len());
            for piece in &first.data {
                let take = piece.len().min(left);
                if take > 0 {
                    out.push(piece.slice(0..take));
                }
                left -= take;
            }
            return Ok(out);
        }
        let start = self.at;
        self.parse(data(n, "data"))?;
        Ok(if n == 0 { Vec::new() } else { vec![self.body.slice(start..start + n)] })
    }
}

/// Builds a reply sequentially.
#[derive(Debug, Default)]
pub struct Writer {
    head: Vec<u8>,
    payloads: Vec<Payload>,
}

impl Writer {
    /// An empty stream.
    pub fn new() -> Self {
        Self { head: Vec::with_capacity(256), payloads: Vec::new() }
    }

    /// Bytes written to the stream, without bulk data.
    pub fn len(&self) -> usize {
        self.head.len()
    }

    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.payloads.is_empty()
    }

    /// Bytes of the whole reply so far, including bulk data and its padding.
    pub fn total_len(&self) -> usize {
        self.head.len() + self.payloads.iter().map(|p| p.len() + usize::from(p.pad)).sum::<usize>()
    }

    /// Writes an XDR value.
    #[inline]
    pub fn value<'v>(&mut self, v: &impl Xdr<'v>) {
        v.emit(&mut self.head);
    }

    /// The stream, for emitters that append to it.
    #[inline]
    pub fn head(&mut self) -> &mut Vec<u8> {
        &mut self.head
    }

    /// `unsigned int`.
    pub fn u32(&mut self, v: u32) {
        self.head.extend_from_slice(&v.to_be_bytes());
    }

    /// `int`.
    pub fn i32(&mut self, v: i32) {
        self.head.extend_from_slice(&v.to_be_bytes());
    }

    /// `unsigned hyper`.
    pub fn u64(&mut self, v: u64) {
        self.head.extend_from_slice(&v.to_be_bytes());
    }

    /// `hyper`.
    pub fn i64(&mut self, v: i64) {
        self.head.extend_from_slice(&v.to_be_bytes());
    }

    pub fn bool(&mut self, v: bool) {
        self.u32(u32::from(v));
    }

    /// Writes bytes, padded to a multiple of four.
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
        self.head.extend_from_slice(&[0; 3][..pad(bytes.len())]);
    }

    /// Writes a count or length, which is always far below the limit of the type.
    pub fn count(&mut self, n: usize) {
        self.u32(u32::try_from(n).unwrap_or(u32::MAX));
    }

    /// `opaque<>` or `string<>`.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.fixed(bytes);
    }

    /// Writes `opaque<>` of bulk data, which the transport may move separately.
    pub fn bulk(&mut self, data: Vec<Buf>) {
        self.eligible(data, None);
    }

    fn eligible(&mut self, data: Vec<Buf>, pages: Option<Pages>) {
        let len = data.iter().map(Buf::len).sum::<usize>() + pages.as_ref().map_or(0, Pages::len);
        self.count(len);
        self.attach(data, pages);
    }

    /// Attaches the bulk data of a value emitted up to its length word.
    pub fn attach(&mut self, data: Vec<Buf>, pages: Option<Pages>) {
        let at = self.head.len();
        let mut payload = Payload { at, data, pages, pad: 0, place: Place::Eligible };
        let n = payload.len();
        // Invariant: the padding is at most three.
        #[allow(clippy::cast_possible_truncation)]
        let padding = pad(n) as u8;
        payload.pad = padding;
        self.payloads.push(payload);
    }

    /// Writes `opaque<>` of bulk data that must stay inline.
    pub fn opaque_of(&mut self, data: Vec<Buf>) {
        self.bulk(data);
        if let Some(last) = self.payloads.last_mut() {
            last.place = Place::Inline;
        }
    }

    /// Overwrites four bytes at an offset obtained from [`Writer::len`].
    pub fn patch_u32(&mut self, at: usize, v: u32) {
        if let Some(place) = self.head.get_mut(at..at + 4) {
            place.copy_from_slice(&v.to_be_bytes());
        }
    }

    /// The word at `at`, if written.
    pub fn word_at(&self, at: usize) -> Option<u32> {
        self.head.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
    }

    /// Removes everything after an offset obtained from [`Writer::len`].
    pub fn truncate(&mut self, mark: usize) {
        self.head.truncate(mark);
        // A payload exactly at the mark belongs to the kept part, whose length word ends there.
        self.payloads.retain(|p| p.at <= mark);
    }

    /// The stream so far, without bulk data.
    pub fn bytes(&self) -> &[u8] {
        &self.head
    }

    /// Copies everything from an offset obtained from [`Writer::len`], with bulk data inline.
    pub fn copy_from(&self, mark: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.total_len().saturating_sub(mark));
        let mut at = mark.min(self.head.len());
        for p in self.payloads.iter().filter(|p| p.at >= mark) {
            out.extend_from_slice(&self.head[at..p.at]);
            p.data.iter().for_each(|piece| out.extend_from_slice(piece.as_slice()));
            out.extend_from_slice(&[0; 3][..usize::from(p.pad)]);
            at = p.at;
        }
        out.extend_from_slice(&self.head[at..]);
        out
    }

    /// Returns the finished reply.
    pub fn into_reply(self) -> Reply {
        Reply { head: self.head, payloads: self.payloads, ..Reply::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule<T: std::fmt::Debug>(read: XdrResult<T>) -> Rule {
        read.unwrap_err().rule
    }

    #[test]
    fn written_values_are_read_back() {
        let mut w = Writer::new();
        w.u32(7);
        w.opaque(b"hello");
        w.bool(true);
        w.i64(-2);
        let body = Buf::from(w.into_reply().head);
        let mut r = Reader::new(&body, &[]);
        assert_eq!(r.u32(), Ok(7));
        assert_eq!(r.opaque(5), Ok(&b"hello"[..]));
        assert_eq!(r.bool(), Ok(true));
        assert_eq!(r.i64(), Ok(-2));
        assert!(r.is_at_end());
        assert_eq!(rule(r.u32()), Rule::Truncated);
    }

    #[test]
    fn excessive_length_is_refused() {
        let body = Buf::from(vec![0xff, 0xff, 0xff, 0xff]);
        let max = 1024;
        assert_eq!(rule(Reader::new(&body, &[]).opaque(max)), Rule::OverLimit { max });
        let long = Buf::from([&[0, 0, 0, 8][..], &[1; 8]].concat());
        assert_eq!(rule(Reader::new(&long, &[]).opaque(7)), Rule::OverLimit { max: 7 });
        assert_eq!(rule(Reader::new(&body, &[]).bulk(max)), Rule::OverLimit { max });
        assert_eq!(rule(Reader::new(&body, &[]).bulk(usize::MAX)), Rule::Truncated);
    }

    #[test]
    fn bulk_data_is_found_anywhere() {
        let inside = Buf::from(vec![0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0]);
        let mut r = Reader::new(&inside, &[]);
        assert_eq!(r.bulk(8).unwrap()[0].as_slice(), &[1, 2, 3, 4, 5]);
        assert!(r.is_at_end());

        let outside = Buf::from(vec![0, 0, 0, 5]);
        let read_chunks = [ReadChunkData {
            at: 4,
            data: vec![Buf::from(vec![1, 2]), Buf::from(vec![3, 4, 5, 0, 0, 0])],
        }];
        let mut r = Reader::new(&outside, &read_chunks);
        let data: Vec<u8> = r.bulk(8).unwrap().iter().flat_map(|b| b.to_vec()).collect();
        assert_eq!(data, [1, 2, 3, 4, 5]);
        assert!(r.is_at_end());
    }

    #[test]
    fn oversized_data_is_cut() {
        let pieces = || vec![Buf::from(vec![1, 2, 3]), Buf::from(vec![4, 5]), Buf::from(vec![6])];
        let cut = |max| -> Vec<Vec<u8>> {
            at_most(pieces(), max).iter().map(|piece| piece.to_vec()).collect()
        };
        assert_eq!(cut(6), [vec![1, 2, 3], vec![4, 5], vec![6]]);
        assert_eq!(cut(4), [vec![1, 2, 3], vec![4]]);
        assert_eq!(cut(3), [vec![1, 2, 3]]);
        assert!(cut(0).is_empty());
    }

    #[test]
    fn copy_has_inline_bulk_data() {
        let mut w = Writer::new();
        w.u32(7);
        let mark = w.len();
        w.u32(1);
        w.bulk(vec![Buf::from(vec![2, 3]), Buf::from(vec![4])]);
        w.u32(5);
        let whole = [0, 0, 0, 1, 0, 0, 0, 3, 2, 3, 4, 0, 0, 0, 0, 5];
        assert_eq!(w.copy_from(mark), whole);
        assert_eq!(w.copy_from(0).len(), w.total_len());
    }

    #[test]
    fn bulk_length_mismatch_is_refused() {
        let body = Buf::from(vec![0, 0, 0, 9]);
        let read_chunks = [ReadChunkData { at: 4, data: vec![Buf::from(vec![0; 5])] }];
        assert_eq!(rule(Reader::new(&body, &read_chunks).bulk(16)), Rule::OutOfBounds);
    }
}
