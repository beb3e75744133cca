//! RDMAP control octet and the RDMA Read Request header (RFC 5040 section 4).

use super::field;

/// The only RDMAP version that is supported.
pub const VERSION: u8 = 1;
/// Bytes of an RDMA Read Request header, which is the whole message.
pub const READ_REQUEST_LEN: usize = 28;

/// RDMA message opcodes (RFC 5040 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    Write,
    ReadRequest,
    ReadResponse,
    Send,
    SendInvalidate,
    /// Send with Solicited Event.
    SendSolicited,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate,
    Terminate,
}

impl Opcode {
    const ALL: [Self; 8] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
    ];

    /// The opcode in a control octet, if it is defined in RFC 5040.
    pub fn of(control: u8) -> Option<Self> {
        Self::ALL.get(usize::from(control & 0x0f)).copied()
    }

    /// The control octet of a message.
    pub fn control(self) -> u8 {
        // Invariant: eight opcodes, numbered in order of declaration.
        #[allow(clippy::cast_possible_truncation)]
        let n = self as usize as u8;
        VERSION << 6 | n
    }

    /// True if its segments are tagged.
    pub fn is_tagged(self) -> bool {
        matches!(self, Self::Write | Self::ReadResponse)
    }

    /// True if it carries an STag to invalidate.
    pub fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}

/// The RDMAP version in a control octet.
pub fn version(control: u8) -> u8 {
    control >> 6
}

/// A request to read the peer's memory (RFC 5040 section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// SinkSTag, which the response repeats.
    pub sink_stag: u32,
    /// SinkTO, which the response repeats.
    pub sink_to: u64,
    /// RDMARDSZ: bytes to read.
    pub len: u32,
    /// SrcSTag.
    pub source_stag: u32,
    /// SrcTO.
    pub source_to: u64,
}

impl ReadRequest {
    pub fn parse(b: &[u8; READ_REQUEST_LEN]) -> Self {
        Self {
            sink_stag: u32::from_be_bytes(field(b, 0)),
            sink_to: u64::from_be_bytes(field(b, 4)),
            len: u32::from_be_bytes(field(b, 12)),
            source_stag: u32::from_be_bytes(field(b, 16)),
            source_to: u64::from_be_bytes(field(b, 20)),
        }
    }

    /// The bytes of the header.
    pub fn emit(&self) -> [u8; READ_REQUEST_LEN] {
        let mut b = [0; READ_REQUEST_LEN];
        b[..4].copy_from_slice(&self.sink_stag.to_be_bytes());
        b[4..12].copy_from_slice(&self.sink_to.to_be_bytes());
        b[12..16].copy_from_slice(&self.len.to_be_bytes());
        b[16..20].copy_from_slice(&self.source_stag.to_be_bytes());
        b[20..].copy_from_slice(&self.source_to.to_be_bytes());
        b
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_octets_match_captures() {
        for (opcode, octet) in [
            (Opcode::Write, 0x40),
            (Opcode::ReadRequest, 0x41),
            (Opcode::ReadResponse, 0x42),
            (Opcode::Send, 0x43),
            (Opcode::SendInvalidate, 0x44),
            (Opcode::SendSolicited, 0x45),
            (Opcode::SendSolicitedInvalidate, 0x46),
            (Opcode::Terminate, 0x47),
        ] {
            assert_eq!(opcode.control(), octet);
            assert_eq!(Opcode::of(octet), Some(opcode));
            assert_eq!(version(octet), VERSION);
        }
        assert_eq!(Opcode::of(0x48), None);
    }

    proptest! {
        #[test]
        fn read_request_round_trip(a: u32, b: u64, c: u32, d: u32, e: u64) {
            let r = ReadRequest { sink_stag: a, sink_to: b, len: c, source_stag: d, source_to: e };
            prop_assert_eq!(ReadRequest::parse(&r.emit()), r);
        }
    }
}
