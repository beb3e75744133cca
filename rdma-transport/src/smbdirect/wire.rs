//! The formats of MS-SMBD section 2.2, pure. All numbers are little-endian.

use super::violation::Violation;

/// The only version there is (MS-SMBD section 1.7).
pub const VERSION: u16 = 0x0100;
/// Bytes of a negotiate request.
pub const REQUEST_LEN: usize = 20;
/// Bytes of a negotiate response.
pub const RESPONSE_LEN: usize = 32;
/// Bytes of a data transfer message without padding and data.
pub const HEADER_LEN: usize = 20;
/// Where data begins: behind the header and four bytes that align it.
pub const DATA_OFFSET: usize = 24;
/// The receiver is to send something soon.
pub const RESPONSE_REQUESTED: u16 = 0x0001;
/// Negotiation succeeded.
pub const STATUS_SUCCESS: u32 = 0;
/// No common version.
pub const STATUS_NOT_SUPPORTED: u32 = 0xc000_00bb;
/// No receive could be posted.
pub const STATUS_INSUFFICIENT_RESOURCES: u32 = 0xc000_009a;

fn u16_at(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

/// A size on the wire as a number of bytes in memory; both are 32 bits at least wherever this runs.
pub(super) fn size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A number of bytes as a size on the wire; what is larger was bounded before.
pub(super) fn wire_size(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The first message, from the one who dialled (MS-SMBD section 2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiateRequest {
    /// Lowest version spoken.
    pub min_version: u16,
    /// Highest version spoken.
    pub max_version: u16,
    /// Credits that it wants to be granted.
    pub credits_requested: u16,
    /// Largest message it wants to send, in bytes.
    pub preferred_send_size: u32,
    /// Largest message it takes, in bytes.
    pub max_receive_size: u32,
    /// Largest message it takes in fragments, in bytes.
    pub max_fragmented_size: u32,
}

impl NegotiateRequest {
    /// Reads it; what follows it means nothing. `None` when it is cut short.
    pub fn parse(b: &[u8]) -> Option<Self> {
        let b = b.get(..REQUEST_LEN)?;
        Some(Self {
            min_version: u16_at(b, 0),
            max_version: u16_at(b, 2),
            credits_requested: u16_at(b, 6),
            preferred_send_size: u32_at(b, 8),
            max_receive_size: u32_at(b, 12),
            max_fragmented_size: u32_at(b, 16),
        })
    }

    /// Writes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(REQUEST_LEN);
        for word in [self.min_version, self.max_version, 0, self.credits_requested] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.preferred_send_size, self.max_receive_size, self.max_fragmented_size] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out
    }
}

/// Its answer (MS-SMBD section 2.2.2). All but the first two fields and the status are zero in a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NegotiateResponse {
    /// Lowest version spoken.
    pub min_version: u16,
    /// Highest version spoken.
    pub max_version: u16,
    /// The version of this connection.
    pub negotiated_version: u16,
    /// Credits that it wants to be granted.
    pub credits_requested: u16,
    /// Credits granted.
    pub credits_granted: u16,
    /// An NTSTATUS.
    pub status: u32,
    /// Most bytes of one RDMA Read or Write.
    pub max_read_write_size: u32,
    /// Largest message it will send, in bytes.
    pub preferred_send_size: u32,
    /// Largest message it takes, in bytes.
    pub max_receive_size: u32,
    /// Largest message it takes in fragments, in bytes.
    pub max_fragmented_size: u32,
}

impl NegotiateResponse {
    /// A refusal.
    pub fn refusal(status: u32) -> Self {
        Self { min_version: VERSION, max_version: VERSION, status, ..Self::default() }
    }

    /// Reads it; what follows it means nothing. `None` when it is cut short.
    pub fn parse(b: &[u8]) -> Option<Self> {
        let b = b.get(..RESPONSE_LEN)?;
        Some(Self {
            min_version: u16_at(b, 0),
            max_version: u16_at(b, 2),
            negotiated_version: u16_at(b, 4),
            credits_requested: u16_at(b, 8),
            credits_granted: u16_at(b, 10),
            status: u32_at(b, 12),
            max_read_write_size: u32_at(b, 16),
            preferred_send_size: u32_at(b, 20),
            max_receive_size: u32_at(b, 24),
            max_fragmented_size: u32_at(b, 28),
        })
    }

    /// Writes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RESPONSE_LEN);
        for word in [
            self.min_version,
            self.max_version,
            self.negotiated_version,
            0,
            self.credits_requested,
            self.credits_granted,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for word in [
            self.status,
            self.max_read_write_size,
            self.preferred_send_size,
            self.max_receive_size,
            self.max_fragmented_size,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out
    }
}

/// The header of every later message (MS-SMBD section 2.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataTransfer {
    /// Credits that the sender wants to have in all.
    pub credits_requested: u16,
    /// Credits granted with this message.
    pub credits_granted: u16,
    /// [`RESPONSE_REQUESTED`] or nothing.
    pub flags: u16,
    /// Bytes of the upper message in the messages that follow.
    pub remaining: u32,
    /// Where the data begins, from the start of the message.
    pub offset: u32,
    /// Bytes of data.
    pub len: u32,
}

impl DataTransfer {
    /// Reads the header and checks it against the message and the sizes that were negotiated (MS-SMBD section 3.1.5.8). What
    /// follows the data means nothing.
    pub fn parse(b: &[u8], max_receive: usize, max_fragmented: usize) -> Result<Self, Violation> {
        if b.len() < HEADER_LEN {
            return Err(Violation::DataShort(b.len()));
        }
        if b.len() > max_receive {
            return Err(Violation::DataTooLong(b.len()));
        }
        let header = Self {
            credits_requested: u16_at(b, 0),
            credits_granted: u16_at(b, 2),
            flags: u16_at(b, 4),
            remaining: u32_at(b, 8),
            offset: u32_at(b, 12),
            len: u32_at(b, 16),
        };
        if header.credits_requested == 0 {
            return Err(Violation::DataCredits);
        }
        if !header.offset.is_multiple_of(8) {
            return Err(Violation::DataAlignment(header.offset));
        }
        if u64::from(header.offset) + u64::from(header.len) > b.len() as u64 {
            return Err(Violation::DataBounds(header.offset, header.len));
        }
        let whole = u64::from(header.len) + u64::from(header.remaining);
        if whole > max_fragmented as u64 {
            return Err(Violation::DataFragmented(whole));
        }
        Ok(header)
    }

    /// Writes the header, with the padding if data follows.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(DATA_OFFSET);
        for word in [self.credits_requested, self.credits_granted, self.flags, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.remaining, self.offset, self.len] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        if self.len > 0 {
            out.resize(DATA_OFFSET, 0);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example of MS-SMBD section 4.1, and what a Linux 6.12 client sends.
    #[test]
    fn requests_read_as_they_are_written() {
        let example = NegotiateRequest {
            min_version: VERSION,
            max_version: VERSION,
            credits_requested: 10,
            preferred_send_size: 1024,
            max_receive_size: 1024,
            max_fragmented_size: 131_072,
        };
        let bytes = [0, 1, 0, 1, 0, 0, 10, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0, 2, 0];
        assert_eq!(NegotiateRequest::parse(&bytes), Some(example));
        assert_eq!(example.emit(), bytes);
        let linux = [
            0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0xff, 0x00, 0x54, 0x05, 0x00, 0x00, 0x54, 0x05,
            0x00, 0x00, 0x56, 0xa7, 0x02, 0x00,
        ];
        let linux = NegotiateRequest::parse(&linux).unwrap();
        assert_eq!((linux.preferred_send_size, linux.max_receive_size), (1364, 1364));
        assert_eq!((linux.credits_requested, linux.max_fragmented_size), (255, 173_910));
        assert_eq!(NegotiateRequest::parse(&bytes[..19]), None);
    }

    /// The example of MS-SMBD section 4.1.
    #[test]
    fn responses_read_as_they_are_written() {
        let example = NegotiateResponse {
            min_version: VERSION,
            max_version: VERSION,
            negotiated_version: VERSION,
            credits_requested: 10,
            credits_granted: 10,
            status: STATUS_SUCCESS,
            max_read_write_size: 1 << 20,
            preferred_send_size: 1024,
            max_receive_size: 1024,
            max_fragmented_size: 131_072,
        };
        let bytes = [
            0, 1, 0, 1, 0, 1, 0, 0, 10, 0, 10, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 4, 0, 0, 0, 4, 0, 0,
            0, 0, 2, 0,
        ];
        assert_eq!(example.emit(), bytes);
        assert_eq!(NegotiateResponse::parse(&bytes), Some(example));
        assert_eq!(NegotiateResponse::parse(&bytes[..31]), None);
        let refusal = NegotiateResponse::refusal(STATUS_NOT_SUPPORTED).emit();
        assert_eq!(refusal[..4], [0, 1, 0, 1]);
        assert_eq!(refusal[12..16], [0xbb, 0, 0, 0xc0]);
        assert!(refusal[4..12].iter().chain(&refusal[16..]).all(|b| *b == 0));
    }

    #[test]
    fn every_rule_on_headers_can_be_broken() {
        let good = DataTransfer {
            credits_requested: 10,
            credits_granted: 1,
            flags: 0,
            remaining: 0,
            offset: 24,
            len: 8,
        };
        let parse = |header: DataTransfer| {
            let mut bytes = header.emit();
            bytes.resize(32, 7);
            DataTransfer::parse(&bytes, 1024, 131_072)
        };
        assert_eq!(parse(good), Ok(good));
        let cases = [
            (DataTransfer { credits_requested: 0, ..good }, Violation::DataCredits),
            (DataTransfer { offset: 23, ..good }, Violation::DataAlignment(23)),
            (DataTransfer { offset: 32, ..good }, Violation::DataBounds(32, 8)),
            (DataTransfer { len: 9, ..good }, Violation::DataBounds(24, 9)),
            (DataTransfer { len: u32::MAX, ..good }, Violation::DataBounds(24, u32::MAX)),
            (DataTransfer { remaining: 131_065, ..good }, Violation::DataFragmented(131_073)),
            (
                DataTransfer { remaining: u32::MAX, ..good },
                Violation::DataFragmented(u64::from(u32::MAX) + 8),
            ),
        ];
        for (header, violation) in cases {
            assert_eq!(parse(header), Err(violation));
        }
        assert_eq!(DataTransfer::parse(&[1; 19], 1024, 131_072), Err(Violation::DataShort(19)));
        assert_eq!(
            DataTransfer::parse(&[1; 1025], 1024, 131_072),
            Err(Violation::DataTooLong(1025))
        );
        let largest = DataTransfer { remaining: 131_064, ..good };
        assert_eq!(parse(largest), Ok(largest));
    }

    proptest! {
        #[test]
        fn headers_round_trip(
            words in any::<[u16; 3]>(),
            remaining in 0u32..131_072,
            len in 0u32..100,
        ) {
            let offset = if len == 0 { 0 } else { 24 };
            let [credits_requested, credits_granted, flags] = words;
            let credits_requested = credits_requested.max(1);
            let header =
                DataTransfer { credits_requested, credits_granted, flags, remaining, offset, len };
            let mut bytes = header.emit();
            prop_assert_eq!(bytes.len(), if len == 0 { HEADER_LEN } else { DATA_OFFSET });
            bytes.resize(bytes.len() + size(len), 0);
            prop_assert_eq!(DataTransfer::parse(&bytes, 4096, 1 << 20), Ok(header));
        }

        #[test]
        fn whatever_comes_is_judged(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = NegotiateRequest::parse(&bytes);
            let _ = NegotiateResponse::parse(&bytes);
            if let Ok(h) = DataTransfer::parse(&bytes, 4096, 1 << 20) {
                prop_assert!(size(h.offset) + size(h.len) <= bytes.len());
            }
        }
    }
}
