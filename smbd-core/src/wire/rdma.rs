//! How READ and WRITE name memory of the client (MS-SMB2 sections 2.2.19 and 2.2.21, MS-SMBD section 2.2.3.1).

use rdma_transport::channel::RemoteSeg;

use super::{Fields, Malformed, Parsed};

/// The `Channel` of a READ or WRITE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channel {
    /// SMB2_CHANNEL_NONE: data travels inside the message.
    #[default]
    None,
    /// SMB2_CHANNEL_RDMA_V1: data travels to or from the memory that the descriptors name.
    RdmaV1,
    /// SMB2_CHANNEL_RDMA_V1_INVALIDATE: likewise, and the answer invalidates the first descriptor's token.
    RdmaV1Invalidate,
    /// SMB2_CHANNEL_RDMA_TRANSFORM
    RdmaTransform,
}

impl Channel {
    /// The channel of this number; `None` for one that is not defined.
    pub fn from_number(n: u32) -> Option<Self> {
        [Self::None, Self::RdmaV1, Self::RdmaV1Invalidate, Self::RdmaTransform]
            .into_iter()
            .find(|c| c.number() == n)
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::RdmaV1 => 1,
            Self::RdmaV1Invalidate => 2,
            Self::RdmaTransform => 3,
        }
    }
}

/// Bytes of an SMB_DIRECT_BUFFER_DESCRIPTOR_V1.
pub const DESCRIPTOR_LEN: usize = 16;

/// Reads an array of SMB_DIRECT_BUFFER_DESCRIPTOR_V1. The field that holds its length has 16 bits, so there are few.
pub fn descriptors(bytes: &[u8]) -> Parsed<Vec<RemoteSeg>> {
    let (each, rest) = bytes.as_chunks::<DESCRIPTOR_LEN>();
    if !rest.is_empty() {
        return Err(Malformed("ChannelInfo"));
    }
    each.iter()
        .map(|one| {
            let mut f = Fields::new(one, 0);
            Ok(RemoteSeg {
                offset: f.u64("Offset")?,
                handle: f.u32("Token")?,
                len: f.u32("Length")?,
            })
        })
        .collect()
}

/// Writes them.
pub fn put_descriptors(out: &mut Vec<u8>, segs: &[RemoteSeg]) {
    for s in segs {
        out.extend(s.offset.to_le_bytes());
        out.extend(s.handle.to_le_bytes());
        out.extend(s.len.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_round_trip_and_have_no_half() {
        let segs = [
            RemoteSeg { handle: 0x1122_3344, len: 4096, offset: 0xff11_0000_0000_0000 },
            RemoteSeg { handle: 2, len: 0, offset: 0 },
        ];
        let mut bytes = Vec::new();
        put_descriptors(&mut bytes, &segs);
        assert_eq!(bytes[8..12], [0x44, 0x33, 0x22, 0x11]);
        assert_eq!(descriptors(&bytes).unwrap(), segs);
        assert_eq!(descriptors(&bytes[..31]), Err(Malformed("ChannelInfo")));
        assert_eq!(descriptors(&[]), Ok(Vec::new()));
    }

    #[test]
    fn channels_have_their_numbers() {
        for n in 0..4 {
            assert_eq!(Channel::from_number(n).map(Channel::number), Some(n));
        }
        assert_eq!(Channel::from_number(4), None);
    }
}
