//! WRITE (MS-SMB2 sections 2.2.21 and 2.2.22).

use wire::{Parser, RemoteSeg, le_u16, le_u32, le_u64};

use super::rdma::{self, Channel, Transform};
use super::read::{channel_info, put_channel_info};
use super::{FileId, HEADER_LEN, Parsed};
use crate::parse::body;

/// SMB2_WRITEFLAG_WRITE_THROUGH: durable before the response.
pub const WRITE_THROUGH: u32 = 1;
/// SMB2_WRITEFLAG_WRITE_UNBUFFERED
pub const WRITE_UNBUFFERED: u32 = 2;

/// Length of the fixed part of a request's body, in bytes.
const FIXED: usize = 48;

/// A WRITE request; the data is at `data_offset` of the message, or in the client's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Offset of the data from the header.
    pub data_offset: u16,
    /// Length of the data inside the message, in bytes.
    pub length: u32,
    /// Offset in the file.
    pub offset: u64,
    /// The open file.
    pub file: FileId,
    /// How the data is transferred; `None`: an undefined number.
    pub channel: Option<Channel>,
    /// Length of the data in the client's memory for the RDMA channels, in bytes; otherwise a hint.
    pub remaining: u32,
    /// [`WRITE_THROUGH`], [`WRITE_UNBUFFERED`].
    pub flags: u32,
    /// Client memory for the RDMA channels.
    pub descriptors: Vec<RemoteSeg>,
    /// Protection of the data in client memory; only with [`Channel::RdmaTransform`].
    pub transform: Option<Transform>,
}

impl Request {
    /// Offset of the data from the header if no channel information precedes it.
    #[allow(clippy::cast_possible_truncation)] // 112
    pub const DATA_OFFSET: u16 = (HEADER_LEN + FIXED) as u16;

    /// Parses a message that starts at its header. Does not access the data, which may have been removed from the message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 49, |i| {
            let (i, (data_offset, length, offset, file)) =
                (le_u16("DataOffset"), le_u32("Length"), le_u64("Offset"), FileId::parse)
                    .parse(i)?;
            let (i, (channel, remaining)) =
                (le_u32("Channel").map(Channel::from_number), le_u32("RemainingBytes")).parse(i)?;
            let (i, info) = channel_info(message, channel, "WriteChannelInfo")(i)?;
            let (i, flags) = le_u32("Flags")(i)?;
            let (transform, descriptors) = match channel {
                Some(Channel::RdmaTransform) => {
                    let (_, (transform, descriptors)) = Transform::with_descriptors(info)?;
                    (Some(transform), descriptors)
                }
                _ => (None, rdma::segments(info)?),
            };
            let value = Self {
                data_offset,
                length,
                offset,
                file,
                channel,
                remaining,
                flags,
                descriptors,
                transform,
            };
            Ok((i, value))
        })
    }

    /// Serializes the body; data inside the message follows it, and `data_offset` must then be [`Request::DATA_OFFSET`].
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED + self.descriptors.len() * rdma::DESCRIPTOR_LEN);
        out.extend(49_u16.to_le_bytes());
        out.extend(self.data_offset.to_le_bytes());
        out.extend(self.length.to_le_bytes());
        out.extend(self.offset.to_le_bytes());
        out.extend(self.file.emit());
        out.extend(self.channel.map_or(u32::MAX, Channel::number).to_le_bytes());
        out.extend(self.remaining.to_le_bytes());
        let mut info = Vec::new();
        match &self.transform {
            Some(transform) => transform.put(&mut info, &self.descriptors),
            None => rdma::put_descriptors(&mut info, &self.descriptors),
        }
        put_channel_info(&mut out, &info, FIXED);
        // `Flags` is in the gap before the channel information.
        out[FIXED - 4..FIXED].copy_from_slice(&self.flags.to_le_bytes());
        out
    }
}

/// A WRITE response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Number of bytes written.
    pub count: u32,
}

impl Response {
    /// Parses a message that starts at its header.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        body(message, 17, |i| {
            let (i, (_, count)) = (le_u16("Reserved"), le_u32("Count")).parse(i)?;
            Ok((i, Self { count }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        out.extend(17_u16.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.count.to_le_bytes());
        out.extend([0; 8]);
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::smb2::Command;
    use crate::smb2::rdma::Protection;
    use crate::smb2::test_harness::{message, named};

    fn some() -> Request {
        Request {
            data_offset: 0,
            length: 0,
            offset: 4096,
            file: FileId { persistent: 1, volatile: 2 },
            channel: Some(Channel::RdmaV1),
            remaining: 8192,
            flags: WRITE_THROUGH,
            descriptors: vec![
                RemoteSeg { handle: 7, len: 4096, offset: 0x1000 },
                RemoteSeg { handle: 8, len: 4096, offset: 0x9000 },
            ],
            transform: None,
        }
    }

    /// A message as Microsoft's client builds it: 72 bytes of channel information at offset 0x70.
    #[test]
    fn transform_precedes_its_descriptors() {
        let transform = Transform {
            channel: Channel::RdmaV1,
            protection: Protection::Signing,
            signature: vec![9; 16],
            nonce: vec![8; 12],
        };
        let descriptors = some().descriptors[..1].to_vec();
        let channel = Some(Channel::RdmaTransform);
        let r = Request { channel, descriptors, transform: Some(transform), ..some() };
        let m = message(Command::Write, &r.emit());
        assert_eq!(m.len(), 0x70 + 72);
        assert_eq!(m[64 + 40..64 + 44], [0x70, 0, 72, 0]);
        assert_eq!(Request::parse(&m), Ok(r.clone()));
        for cut in 64..m.len() {
            assert!(Request::parse(&m[..cut]).is_err(), "cut at {cut}");
        }
        let mut short = m;
        short[64 + 42] = 15;
        assert!(Request::parse(&short).is_err(), "shorter than an SMB2_RDMA_TRANSFORM");
    }

    #[test]
    fn truncated_request_names_field() {
        let r = some();
        let m = message(Command::Write, &r.emit());
        assert_eq!(m.len(), 64 + 48 + 32);
        assert_eq!(Request::parse(&m), Ok(r.clone()));
        for cut in 64..m.len() {
            assert!(Request::parse(&m[..cut]).is_err(), "cut at {cut}");
        }
        let inline = Request {
            data_offset: Request::DATA_OFFSET,
            length: 1 << 20,
            channel: Some(Channel::None),
            descriptors: vec![],
            ..r
        };
        let m = message(Command::Write, &inline.emit());
        assert_eq!(m.len(), 112);
        assert_eq!(Request::parse(&m), Ok(inline), "the data need not be there");
    }

    #[test]
    fn descriptors_outside_message_are_refused() {
        let mut m = message(Command::Write, &some().emit());
        m[64 + 42] = 47;
        assert_eq!(named(Request::parse(&m)), Err("WriteChannelInfo"));
        m[64 + 42] = 31;
        assert_eq!(named(Request::parse(&m)), Err("ChannelInfo"), "half a descriptor");
    }

    #[test]
    fn responses_round_trip() {
        let r = Response { count: 77 };
        assert_eq!(r.emit().len(), 16);
        assert_eq!(Response::parse(&message(Command::Write, &r.emit())), Ok(r));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..96)) {
            if let Ok(r) = Request::parse(&message(Command::Write, &body)) {
                let again = Request::parse(&message(Command::Write, &r.emit()));
                prop_assert_eq!(again, Ok(r));
            }
        }
    }
}
