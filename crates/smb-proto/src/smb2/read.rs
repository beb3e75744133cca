//! READ (MS-SMB2 sections 2.2.19 and 2.2.20).

use wire::{Parser, RemoteSeg, le_u8, le_u32, le_u64};

use super::rdma::{self, Channel};
use super::{FileId, HEADER_LEN, Parsed};
use crate::parse::{behind, body, range, shorts, size, whole};

/// SMB2_READFLAG_READ_UNBUFFERED: bypass caches.
pub const UNBUFFERED: u8 = 1;
/// SMB2_READFLAG_REQUEST_COMPRESSED
pub const REQUEST_COMPRESSED: u8 = 2;

/// Length of the fixed part of a request's body, in bytes.
const FIXED: usize = 48;

/// A READ request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Position in the response at which the client prefers the data; a server may ignore it.
    pub padding: u8,
    /// [`UNBUFFERED`], [`REQUEST_COMPRESSED`].
    pub flags: u8,
    /// Number of bytes to read.
    pub length: u32,
    /// Offset of the first byte.
    pub offset: u64,
    /// The open file.
    pub file: FileId,
    /// The request fails if fewer bytes are available.
    pub minimum_count: u32,
    /// How the data is transferred; `None`: an undefined number.
    pub channel: Option<Channel>,
    /// Hint: number of bytes that will be read later.
    pub remaining: u32,
    /// Client memory for the RDMA channels.
    pub descriptors: Vec<RemoteSeg>,
}

impl Request {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 49, |i| {
            let (i, (padding, flags, length, offset)) =
                (le_u8("Padding"), le_u8("Flags"), le_u32("Length"), le_u64("Offset")).parse(i)?;
            let (i, (file, minimum_count, channel, remaining)) = (
                FileId::parse,
                le_u32("MinimumCount"),
                le_u32("Channel").map(Channel::from_number),
                le_u32("RemainingBytes"),
            )
                .parse(i)?;
            let (i, info) = channel_info(message, channel, "ReadChannelInfo")(i)?;
            let descriptors = match channel {
                Some(Channel::RdmaTransform) => Vec::new(),
                _ => rdma::segments(info)?,
            };
            let value = Self {
                padding,
                flags,
                length,
                offset,
                file,
                minimum_count,
                channel,
                remaining,
                descriptors,
            };
            Ok((i, value))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let info_len = self.descriptors.len() * rdma::DESCRIPTOR_LEN;
        let mut out = Vec::with_capacity(FIXED + info_len.max(1));
        out.extend(49_u16.to_le_bytes());
        out.extend([self.padding, self.flags]);
        out.extend(self.length.to_le_bytes());
        out.extend(self.offset.to_le_bytes());
        out.extend(self.file.emit());
        out.extend(self.minimum_count.to_le_bytes());
        out.extend(self.channel.map_or(u32::MAX, Channel::number).to_le_bytes());
        out.extend(self.remaining.to_le_bytes());
        let mut info = Vec::new();
        rdma::put_descriptors(&mut info, &self.descriptors);
        put_channel_info(&mut out, &info, FIXED);
        if self.descriptors.is_empty() {
            // The structure always has one byte of buffer.
            out.push(0);
        }
        out
    }
}

/// Returns the channel information at the next two fields if the channel uses RDMA; the fields are ignored otherwise. READ does not
/// support [`Channel::RdmaTransform`] and is refused before these fields are used.
pub(super) fn channel_info<'a>(
    message: &'a [u8],
    channel: Option<Channel>,
    field: &'static str,
) -> impl Fn(&'a [u8]) -> wire::Parsed<'a, &'a [u8]> {
    move |place| {
        let (i, (at, len)) = shorts(field)(place)?;
        let info = match channel {
            Some(Channel::None) | None => &[],
            Some(_) => behind(message, FIXED, (at, len), field, place)?,
        };
        Ok((i, info))
    }
}

/// Appends the offset and length of the channel information, then the fields in between, then the information: the fixed part has
/// `fixed` bytes.
pub(super) fn put_channel_info(out: &mut Vec<u8>, info: &[u8], fixed: usize) {
    let len = u16::try_from(info.len()).unwrap_or(0);
    let at = if len == 0 { 0 } else { u16::try_from(HEADER_LEN + fixed).unwrap_or(0) };
    out.extend(at.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.resize(fixed, 0);
    if len != 0 {
        out.extend_from_slice(info);
    }
}

/// SMB2_READFLAG_RESPONSE_RDMA_TRANSFORM: the message contains an [SMB2_RDMA_TRANSFORM](rdma::Transform) in place of the data.
pub const RESPONSE_TRANSFORM: u32 = 1;

/// A READ response; the data follows the body, or was transferred through RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Offset of the data from the header; 0 if all data was transferred through RDMA.
    pub data_offset: u8,
    /// Length of the data in the message, or of the transform of data that was transferred through RDMA, in bytes.
    pub data_length: u32,
    /// Length of the data that was transferred through RDMA, in bytes (MS-SMB2 section 3.3.5.12).
    pub data_remaining: u32,
    /// [`RESPONSE_TRANSFORM`]; reserved before dialect 3.1.1.
    pub flags: u32,
}

impl Response {
    /// Length of the body before the data, in bytes.
    pub const LEN: usize = 16;
    /// Offset of data inside the message from the header: 8-byte aligned.
    pub const DATA_OFFSET: u8 = 80;

    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 17, |i| {
            let (i, (data_offset, _, data_length, data_remaining, flags)) = (
                le_u8("DataOffset"),
                le_u8("Reserved"),
                le_u32("DataLength"),
                le_u32("DataRemaining"),
                le_u32("Flags"),
            )
                .parse(i)?;
            Ok((i, Self { data_offset, data_length, data_remaining, flags }))
        })
    }

    /// Returns the data inside the message.
    pub fn data<'a>(&self, message: &'a [u8]) -> Parsed<&'a [u8]> {
        let place = message.get(HEADER_LEN + 4..).unwrap_or_default();
        let named = (self.data_offset.into(), size(self.data_length));
        whole(message, |i| Ok((i, range(message, named, "DataLength", place)?)))
    }

    /// Serializes the body without the data.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LEN);
        out.extend(17_u16.to_le_bytes());
        out.extend([self.data_offset, 0]);
        out.extend(self.data_length.to_le_bytes());
        out.extend(self.data_remaining.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::{message, named};

    fn some() -> Request {
        Request {
            padding: 80,
            flags: UNBUFFERED,
            length: 65536,
            offset: 1 << 40,
            file: FileId { persistent: 1, volatile: 2 },
            minimum_count: 1,
            channel: Some(Channel::RdmaV1Invalidate),
            remaining: 0,
            descriptors: vec![RemoteSeg { handle: 7, len: 65536, offset: 0x1000 }],
        }
    }

    #[test]
    fn truncated_request_names_field() {
        let r = some();
        let m = message(Command::Read, &r.emit());
        assert_eq!(m.len(), 64 + 48 + 16);
        assert_eq!(Request::parse(&m), Ok(r.clone()));
        for cut in 64..m.len() {
            assert!(Request::parse(&m[..cut]).is_err(), "cut at {cut}");
        }
        let plain = Request { channel: Some(Channel::None), descriptors: vec![], ..r };
        let m = message(Command::Read, &plain.emit());
        assert_eq!(m.len(), 64 + 49);
        assert_eq!(Request::parse(&m), Ok(plain));
    }

    #[test]
    fn descriptors_outside_message_are_refused() {
        let mut m = message(Command::Read, &some().emit());
        m[64 + 44] = 113;
        assert_eq!(named(Request::parse(&m)), Err("ReadChannelInfo"));
        m[64 + 36] = 0;
        assert!(Request::parse(&m).is_ok(), "no channel, so nothing is named");
        m[64 + 36] = 9;
        assert_eq!(Request::parse(&m).unwrap().channel, None);
    }

    #[test]
    fn responses_round_trip() {
        let r = Response { data_offset: 80, data_length: 3, ..Response::default() };
        let mut m = message(Command::Read, &r.emit());
        m.extend(*b"abc");
        assert_eq!(Response::parse(&m), Ok(r));
        assert_eq!(r.data(&m), Ok(&b"abc"[..]));
        assert_eq!(named(r.data(&m[..82])), Err("DataLength"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..96)) {
            let m = message(Command::Read, &body);
            if let Ok(r) = Request::parse(&m) {
                let again = Request::parse(&message(Command::Read, &r.emit()));
                prop_assert_eq!(again, Ok(r));
            }
            let _ = Response::parse(&m).map(|r| r.data(&m).map(<[u8]>::len));
        }
    }
}
