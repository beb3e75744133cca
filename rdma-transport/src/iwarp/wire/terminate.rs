//! The Terminate message (RFC 5040 section 4.8): the cause of a stream's end, and the headers of the offending segment.

use std::fmt;

use super::{ddp, field, rdmap};

/// Bytes of a Terminate header without copied headers.
pub const CONTROL_LEN: usize = 4;
/// Bytes of the largest Terminate header.
pub const LEN_MAX: usize = CONTROL_LEN + 2 + ddp::UNTAGGED_LEN + rdmap::READ_REQUEST_LEN;

/// Layer, error type and error code (RFC 5040 section 4.8, RFC 5041 section 8.2, RFC 5044 section 8, RFC 6581).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// 0 RDMAP, 1 DDP, 2 LLP (here MPA).
    pub layer: u8,
    /// Error type of the layer.
    pub etype: u8,
    /// Error code of the type.
    pub code: u8,
}

impl Cause {
    pub const fn new(layer: u8, etype: u8, code: u8) -> Self {
        Self { layer, etype, code }
    }

    /// The text of the registry (RFC 6580).
    pub fn text(self) -> &'static str {
        match (self.layer, self.etype, self.code) {
            (0, 0, _) => "RDMAP local catastrophic error",
            (0, 1, 0x00) => "remote protection error: invalid STag",
            (0, 1, 0x01) => "remote protection error: base or bounds violation",
            (0, 1, 0x02) => "remote protection error: access rights violation",
            (0, 1, 0x03) => "remote protection error: STag not associated with stream",
            (0, 1, 0x04) => "remote protection error: TO wrap",
            (0, 1, 0x09) => "remote protection error: STag cannot be invalidated",
            (0, 1, _) => "remote protection error",
            (0, 2, 0x05) => "remote operation error: invalid RDMAP version",
            (0, 2, 0x06) => "remote operation error: unexpected opcode",
            (0, 2, 0x07) => "remote operation error: catastrophic, this stream",
            (0, 2, 0x08) => "remote operation error: catastrophic, global",
            (0, 2, 0x09) => "remote operation error: STag cannot be invalidated",
            (0, 2, _) => "remote operation error",
            (1, 0, _) => "DDP local catastrophic error",
            (1, 1, 0x00) => "tagged buffer error: invalid STag",
            (1, 1, 0x01) => "tagged buffer error: base or bounds violation",
            (1, 1, 0x02) => "tagged buffer error: STag not associated with stream",
            (1, 1, 0x03) => "tagged buffer error: TO wrap",
            (1, 1, 0x04) => "tagged buffer error: invalid DDP version",
            (1, 2, 0x01) => "untagged buffer error: invalid queue number",
            (1, 2, 0x02) => "untagged buffer error: invalid MSN, no buffer",
            (1, 2, 0x03) => "untagged buffer error: invalid MSN, out of range",
            (1, 2, 0x04) => "untagged buffer error: invalid MO",
            (1, 2, 0x05) => "untagged buffer error: message too long",
            (1, 2, 0x06) => "untagged buffer error: invalid DDP version",
            (2, 0, 0x01) => "MPA: TCP connection closed, terminated or lost",
            (2, 0, 0x02) => "MPA: CRC mismatch",
            (2, 0, 0x03) => "MPA: marker and ULPDU length mismatch",
            (2, 0, 0x04) => "MPA: invalid request or reply frame",
            (2, 0, 0x05) => "MPA: local catastrophic error",
            (2, 0, 0x06) => "MPA: insufficient IRD",
            (2, 0, 0x07) => "MPA: no matching RTR",
            _ => "unknown error",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}/{}/{:02x})", self.text(), self.layer, self.etype, self.code)
    }
}

/// A Terminate header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// The cause of the end.
    pub cause: Cause,
    /// DDP segment length (M bit) of the offending segment.
    pub segment_len: Option<u16>,
    /// The DDP header of the faulty segment (D bit): 14 bytes if tagged, else 18.
    pub ddp: Option<DdpHeader>,
    /// The RDMA Read Request header of the faulty segment (R bit).
    pub read_request: Option<[u8; rdmap::READ_REQUEST_LEN]>,
}

/// A copy of a DDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DdpHeader {
    /// The header of a tagged segment.
    Tagged([u8; ddp::TAGGED_LEN]),
    /// The header of an untagged segment.
    Untagged([u8; ddp::UNTAGGED_LEN]),
}

impl DdpHeader {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Tagged(b) => b,
            Self::Untagged(b) => b,
        }
    }
}

impl Terminate {
    /// Parses a header; `None` if it is shorter than its flags announce.
    pub fn parse(b: &[u8]) -> Option<Self> {
        if b.len() < CONTROL_LEN {
            return None;
        }
        let cause = Cause::new(b[0] >> 4, b[0] & 0x0f, b[1]);
        let (m, d, r) = (b[2] & 0x80 != 0, b[2] & 0x40 != 0, b[2] & 0x20 != 0);
        let mut t = Self { cause, segment_len: None, ddp: None, read_request: None };
        let mut at = CONTROL_LEN;
        if m {
            t.segment_len = Some(u16::from_be_bytes(*b.get(at..)?.first_chunk()?));
            at += 2;
        }
        if d {
            let rest = b.get(at..)?;
            if ddp::is_tagged(*rest.first()?) {
                t.ddp = Some(DdpHeader::Tagged(*rest.first_chunk()?));
                at += ddp::TAGGED_LEN;
            } else {
                t.ddp = Some(DdpHeader::Untagged(*rest.first_chunk()?));
                at += ddp::UNTAGGED_LEN;
            }
        }
        if r {
            t.read_request = Some(field(b.get(at..at + rdmap::READ_REQUEST_LEN)?, 0));
        }
        Some(t)
    }

    /// The bytes of the header, at most [`LEN_MAX`].
    pub fn emit(&self) -> Vec<u8> {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.segment_len.is_some(), 0x80)
            | flag(self.ddp.is_some(), 0x40)
            | flag(self.read_request.is_some(), 0x20);
        let mut b =
            vec![self.cause.layer << 4 | self.cause.etype & 0x0f, self.cause.code, flags, 0];
        b.extend(self.segment_len.iter().flat_map(|n| n.to_be_bytes()));
        b.extend(self.ddp.iter().flat_map(|h| h.bytes().iter().copied()));
        b.extend(self.read_request.iter().flatten());
        b
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bits_in_their_places() {
        let t = Terminate {
            cause: Cause::new(1, 2, 5),
            segment_len: Some(0x0102),
            ddp: Some(DdpHeader::Untagged([0x41; ddp::UNTAGGED_LEN])),
            read_request: None,
        };
        let b = t.emit();
        assert_eq!(b[..6], [0x12, 0x05, 0xc0, 0x00, 0x01, 0x02]);
        assert_eq!(b.len(), 6 + ddp::UNTAGGED_LEN);
        assert_eq!(Terminate::parse(&b), Some(t));
        for n in 0..b.len() {
            assert_eq!(Terminate::parse(&b[..n]), None);
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_round_trips(b in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(t) = Terminate::parse(&b) {
                let e = t.emit();
                prop_assert!(e.len() <= LEN_MAX);
                prop_assert_eq!(Terminate::parse(&e), Some(t));
            }
        }
    }
}
