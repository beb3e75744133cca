//! Client memory in READ and WRITE (MS-SMB2 sections 2.2.19 and 2.2.21, MS-SMBD section 2.2.3.1), and signing or encryption of the
//! data placed there (MS-SMB2 section 2.2.43).

use wire::{Parser, RemoteSeg, Rule, known, le_u16, le_u32, le_u64, reject, take, times};

use super::Parsed;
use crate::parse::{Rejected, constant, range, whole};

/// The `Channel` of a READ or WRITE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channel {
    /// SMB2_CHANNEL_NONE: data is inside the message.
    #[default]
    None,
    /// SMB2_CHANNEL_RDMA_V1: data is transferred to or from the memory in the descriptors.
    RdmaV1,
    /// SMB2_CHANNEL_RDMA_V1_INVALIDATE: likewise, and the response invalidates the first descriptor's token.
    RdmaV1Invalidate,
    /// SMB2_CHANNEL_RDMA_TRANSFORM
    RdmaTransform,
}

impl Channel {
    /// Returns the channel with this number; `None` if it is not defined.
    pub fn from_number(n: u32) -> Option<Self> {
        [Self::None, Self::RdmaV1, Self::RdmaV1Invalidate, Self::RdmaTransform]
            .into_iter()
            .find(|c| c.number() == n)
    }

    /// Returns the number on the wire.
    pub fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::RdmaV1 => 1,
            Self::RdmaV1Invalidate => 2,
            Self::RdmaTransform => 3,
        }
    }
}

/// Protection of data transferred through RDMA: a number of SMB2_RDMA_TRANSFORM_CAPABILITIES, and the `TransformType` of an
/// SMB2_RDMA_CRYPTO_TRANSFORM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Protection {
    /// SMB2_RDMA_TRANSFORM_ENCRYPTION
    Encryption = 1,
    /// SMB2_RDMA_TRANSFORM_SIGNING
    Signing = 2,
}

impl Protection {
    /// SMB2_RDMA_TRANSFORM_NONE: reply of a server that supports no transform of the client.
    pub const NONE: u16 = 0;

    /// Returns the protection with this number.
    pub fn from_number(n: u16) -> Option<Self> {
        [Self::Encryption, Self::Signing].into_iter().find(|p| *p as u16 == n)
    }
}

/// Length of an SMB2_RDMA_TRANSFORM, in bytes.
const OUTER: usize = 16;
/// Length of an SMB2_RDMA_CRYPTO_TRANSFORM before its signature, in bytes.
const INNER: usize = 8;

/// An SMB2_RDMA_TRANSFORM with a single SMB2_RDMA_CRYPTO_TRANSFORM (MS-SMB2 sections 2.2.43 and 2.2.43.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transform {
    /// Channel of the descriptors that follow; [`Channel::None`] in a response, which has no descriptors.
    pub channel: Channel,
    /// The protection of the data.
    pub protection: Protection,
    /// Signature of the data. Signature and nonce have the length that the peer sent, which may be wrong.
    pub signature: Vec<u8>,
    /// Nonce of the signature or cipher.
    pub nonce: Vec<u8>,
}

impl Transform {
    /// Parses it from the channel information of a WRITE or the data of a READ response, with the descriptors at its
    /// `RdmaDescriptorOffset`. Refuses any number of crypto structures other than one, undefined types, and descriptors that do not
    /// begin at the next multiple of 8 bytes (MS-SMB2 section 3.3.5.13).
    pub fn parse(bytes: &[u8]) -> Parsed<(Self, Vec<RemoteSeg>)> {
        whole(bytes, Self::with_descriptors)
    }

    pub(super) fn with_descriptors(whole: &[u8]) -> wire::Parsed<'_, (Self, Vec<RemoteSeg>)> {
        // Transforms cannot be nested.
        let channel =
            |n| Channel::from_number(n).filter(|channel| *channel != Channel::RdmaTransform);
        let (i, (at, len)) =
            (le_u16("RdmaDescriptorOffset"), le_u16("RdmaDescriptorLength")).parse(whole)?;
        let (i, channel) = known("Channel", le_u32("Channel"), channel)(i)?;
        let (i, ()) = constant("TransformCount", le_u16("TransformCount"), 1)(i)?;
        let (i, _) = take(6, "Reserved")(i)?;
        let (i, protection) =
            known("TransformType", le_u16("TransformType"), Protection::from_number)(i)?;
        let (i, (signature, nonce, _)) =
            (le_u16("SignatureLength"), le_u16("NonceLength"), le_u16("Reserved")).parse(i)?;
        let (i, (signature, nonce)) =
            (take(signature.into(), "Signature"), take(nonce.into(), "Nonce")).parse(i)?;
        let (at, len) = (usize::from(at), usize::from(len));
        let segs = if len == 0 {
            Vec::new()
        } else {
            if at != (whole.len() - i.len()).next_multiple_of(8) {
                return Err(reject("RdmaDescriptorOffset", Rule::Value, whole));
            }
            segments(range(whole, (at, len), "RdmaDescriptorLength", whole)?)?
        };
        let (signature, nonce) = (signature.to_vec(), nonce.to_vec());
        Ok((i, (Self { channel, protection, signature, nonce }, segs)))
    }

    /// Returns the length with padding and without descriptors, in bytes: 56 with a nonce of 11 or 12 bytes, 40 without one.
    pub fn padded_len(&self) -> usize {
        (OUTER + INNER + self.signature.len() + self.nonce.len()).next_multiple_of(8)
    }

    /// Appends it and its descriptors. Signature, nonce and descriptors fit in fields of 16 bits.
    pub fn put(&self, out: &mut Vec<u8>, segs: &[RemoteSeg]) {
        let short = |n: usize| u16::try_from(n).unwrap_or(u16::MAX).to_le_bytes();
        let (from, padded) = (out.len(), self.padded_len());
        out.extend(short(if segs.is_empty() { 0 } else { padded }));
        out.extend(short(segs.len() * DESCRIPTOR_LEN));
        out.extend(self.channel.number().to_le_bytes());
        out.extend(1_u16.to_le_bytes());
        out.extend([0; 6]);
        out.extend((self.protection as u16).to_le_bytes());
        out.extend(short(self.signature.len()));
        out.extend(short(self.nonce.len()));
        out.extend([0; 2]);
        out.extend_from_slice(&self.signature);
        out.extend_from_slice(&self.nonce);
        out.resize(from + padded, 0);
        put_descriptors(out, segs);
    }
}

/// Length of an SMB_DIRECT_BUFFER_DESCRIPTOR_V1, in bytes.
pub const DESCRIPTOR_LEN: usize = 16;

/// Parses an array of SMB_DIRECT_BUFFER_DESCRIPTOR_V1. Its 16-bit length field bounds the number.
pub fn descriptors(bytes: &[u8]) -> Parsed<Vec<RemoteSeg>> {
    whole(bytes, |i| Ok((&[], segments(i)?)))
}

/// Parses descriptors to the end of the input.
#[inline]
pub(super) fn segments(bytes: &[u8]) -> Result<Vec<RemoteSeg>, Rejected<'_>> {
    let (half, segs) = times(bytes.len() / DESCRIPTOR_LEN, segment)(bytes)?;
    if half.is_empty() { Ok(segs) } else { Err(reject("ChannelInfo", Rule::Truncated, half)) }
}

#[inline]
fn segment(i: &[u8]) -> wire::Parsed<'_, RemoteSeg> {
    let (i, (offset, handle, len)) =
        (le_u64("Offset"), le_u32("Token"), le_u32("Length")).parse(i)?;
    Ok((i, RemoteSeg { handle, len, offset }))
}

/// Appends descriptors.
pub fn put_descriptors(out: &mut Vec<u8>, segs: &[RemoteSeg]) {
    for s in segs {
        out.extend(s.offset.to_le_bytes());
        out.extend(s.handle.to_le_bytes());
        out.extend(s.len.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::smb2::test_harness::named;

    #[test]
    fn descriptors_round_trip_only_whole() {
        let segs = [
            RemoteSeg { handle: 0x1122_3344, len: 4096, offset: 0xff11_0000_0000_0000 },
            RemoteSeg { handle: 2, len: 0, offset: 0 },
        ];
        let mut bytes = Vec::new();
        put_descriptors(&mut bytes, &segs);
        assert_eq!(bytes[8..12], [0x44, 0x33, 0x22, 0x11]);
        assert_eq!(descriptors(&bytes).unwrap(), segs);
        assert_eq!(named(descriptors(&bytes[..31])), Err("ChannelInfo"));
        assert_eq!(descriptors(&[]), Ok(Vec::new()));
    }

    fn signed() -> Transform {
        Transform {
            channel: Channel::RdmaV1Invalidate,
            protection: Protection::Signing,
            signature: (0x10..0x20).collect(),
            nonce: (0x20..0x2c).collect(),
        }
    }

    /// Follows the tables of MS-SMB2 sections 2.2.43 and 2.2.43.1: one descriptor, AES-GMAC.
    #[test]
    fn transform_matches_specification_tables() {
        let seg = RemoteSeg { handle: 0x5566_7788, len: 0x1000, offset: 0x0102_0304_0506_0708 };
        let mut bytes = Vec::new();
        signed().put(&mut bytes, &[seg]);
        let expected = crate::smb2::test_harness::unhex(
            "3800 1000 02000000 0100 0000 00000000
             0200 1000 0c00 0000
             101112131415161718191a1b1c1d1e1f 202122232425262728292a2b 00000000
             0807060504030201 88776655 00100000",
        );
        assert_eq!(bytes, expected);
        assert_eq!(Transform::parse(&bytes), Ok((signed(), vec![seg])));
    }

    #[test]
    fn response_transform_has_expected_lengths() {
        let cases = [(Protection::Signing, 12, 56), (Protection::Signing, 0, 40)];
        let more = [(Protection::Encryption, 11, 56), (Protection::Encryption, 12, 56)];
        for (protection, nonce, len) in cases.into_iter().chain(more) {
            let nonce = vec![7; nonce];
            let t = Transform { channel: Channel::None, protection, nonce, ..signed() };
            let mut bytes = Vec::new();
            t.put(&mut bytes, &[]);
            assert_eq!((bytes.len(), t.padded_len()), (len, len));
            assert_eq!(bytes[..4], [0; 4], "no descriptors");
            assert_eq!(Transform::parse(&bytes), Ok((t, vec![])));
        }
    }

    #[test]
    fn invalid_transform_names_field() {
        let seg = RemoteSeg { handle: 1, len: 4096, offset: 0 };
        let mut good = Vec::new();
        signed().put(&mut good, &[seg, seg]);
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Transform::parse(&bytes).unwrap_err().field
        };
        assert_eq!(with(0, 48), "RdmaDescriptorOffset", "not behind the crypto structure");
        assert_eq!(with(0, 60), "RdmaDescriptorOffset", "no multiple of 8");
        assert_eq!(with(2, 48), "RdmaDescriptorLength");
        assert_eq!(with(2, 31), "ChannelInfo", "half a descriptor");
        assert_eq!(with(4, 3), "Channel", "a transform in a transform");
        assert_eq!(with(4, 4), "Channel");
        assert_eq!(with(8, 0), "TransformCount");
        assert_eq!(with(8, 2), "TransformCount", "two of a kind, or one of each");
        assert_eq!(with(16, 3), "TransformType");
        assert_eq!(with(16, 0), "TransformType");
        assert_eq!(with(19, 0xff), "Signature");
        assert_eq!(with(21, 0xff), "Nonce");
        for cut in 0..good.len() {
            assert!(Transform::parse(&good[..cut]).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        /// Arbitrary bytes never panic, and a parsed transform serializes to an equivalent one.
        #[test]
        fn transforms_round_trip(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
            shaped: bool,
        ) {
            if shaped && bytes.len() >= 24 {
                let fixed = [0, 0, 0, 0, 1, 0, 0, 0, 1, 0];
                bytes[..10].copy_from_slice(&fixed);
                for (at, most) in [(16, 3), (18, 40), (20, 20)] {
                    bytes[at] %= most;
                    bytes[at + 1] = 0;
                }
            }
            if let Ok((t, segs)) = Transform::parse(&bytes) {
                let mut again = Vec::new();
                t.put(&mut again, &segs);
                prop_assert_eq!(Transform::parse(&again), Ok((t, segs)));
            }
        }
    }

    #[test]
    fn channels_match_their_numbers() {
        for n in 0..4 {
            assert_eq!(Channel::from_number(n).map(Channel::number), Some(n));
        }
        assert_eq!(Channel::from_number(4), None);
    }
}
