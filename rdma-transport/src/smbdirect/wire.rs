//! Formats of MS-SMBD section 2.2. All numbers are little-endian. No I/O.

use wire::{Parsed, Parser, Rule, decode, emit, le_u16, le_u32, reject};

use super::violation::{CREDITS_REQUESTED, Violation};

/// The only version (MS-SMBD section 1.7).
pub const VERSION: u16 = 0x0100;
/// Bytes of a negotiate request.
pub const REQUEST_LEN: usize = 20;
/// Bytes of a negotiate response.
pub const RESPONSE_LEN: usize = 32;
/// Bytes of a data transfer message without padding and data.
pub const HEADER_LEN: usize = 20;
/// Offset of the data: after the header and four bytes of padding.
pub const DATA_OFFSET: usize = 24;
/// The receiver must send a message soon.
pub const RESPONSE_REQUESTED: u16 = 0x0001;
/// Negotiation succeeded.
pub const STATUS_SUCCESS: u32 = 0;
/// No common version.
pub const STATUS_NOT_SUPPORTED: u32 = 0xc000_00bb;
/// No receive could be posted.
pub const STATUS_INSUFFICIENT_RESOURCES: u32 = 0xc000_009a;

/// Converts a wire size to bytes in memory; `usize` has at least 32 bits on all supported targets.
pub(super) fn size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Converts bytes in memory to a wire size; larger values were excluded before.
pub(super) fn wire_size(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The first message, sent by the initiator (MS-SMBD section 2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiateRequest {
    /// Lowest version supported.
    pub min_version: u16,
    /// Highest version supported.
    pub max_version: u16,
    /// Credits requested.
    pub credits_requested: u16,
    /// Largest message it wants to send, in bytes.
    pub preferred_send_size: u32,
    /// Largest message accepted, in bytes.
    pub max_receive_size: u32,
    /// Largest fragmented message accepted, in bytes.
    pub max_fragmented_size: u32,
}

impl NegotiateRequest {
    /// Parses it; trailing bytes are ignored.
    pub fn parse(message: &[u8]) -> Parsed<'_, Self> {
        let versions = (le_u16("MinVersion"), le_u16("MaxVersion"));
        let credits = (le_u16("Reserved"), le_u16("CreditsRequested"));
        let sizes =
            (le_u32("PreferredSendSize"), le_u32("MaxReceiveSize"), le_u32("MaxFragmentedSize"));
        let made = |((min_version, max_version), (_, credits_requested), sizes)| {
            let (preferred_send_size, max_receive_size, max_fragmented_size) = sizes;
            Self {
                min_version,
                max_version,
                credits_requested,
                preferred_send_size,
                max_receive_size,
                max_fragmented_size,
            }
        };
        (versions, credits, sizes).map(made).parse(message)
    }

    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(REQUEST_LEN);
        for word in [self.min_version, self.max_version, 0, self.credits_requested] {
            emit::le_u16(&mut out, word);
        }
        for word in [self.preferred_send_size, self.max_receive_size, self.max_fragmented_size] {
            emit::le_u32(&mut out, word);
        }
        out
    }
}

/// The response (MS-SMBD section 2.2.2). In a refusal all fields but the first two and the status are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NegotiateResponse {
    /// Lowest version supported.
    pub min_version: u16,
    /// Highest version supported.
    pub max_version: u16,
    /// The version of this connection.
    pub negotiated_version: u16,
    /// Credits requested.
    pub credits_requested: u16,
    pub credits_granted: u16,
    /// An NTSTATUS.
    pub status: u32,
    /// Largest RDMA Read or Write, in bytes.
    pub max_read_write_size: u32,
    /// Largest message it will send, in bytes.
    pub preferred_send_size: u32,
    /// Largest message accepted, in bytes.
    pub max_receive_size: u32,
    /// Largest fragmented message accepted, in bytes.
    pub max_fragmented_size: u32,
}

impl NegotiateResponse {
    pub fn refusal(status: u32) -> Self {
        Self { min_version: VERSION, max_version: VERSION, status, ..Self::default() }
    }

    /// Parses it; trailing bytes are ignored.
    pub fn parse(message: &[u8]) -> Parsed<'_, Self> {
        let versions = (le_u16("MinVersion"), le_u16("MaxVersion"), le_u16("NegotiatedVersion"));
        let credits = (le_u16("Reserved"), le_u16("CreditsRequested"), le_u16("CreditsGranted"));
        let sizes = (
            le_u32("MaxReadWriteSize"),
            le_u32("PreferredSendSize"),
            le_u32("MaxReceiveSize"),
            le_u32("MaxFragmentedSize"),
        );
        let made = |(versions, credits, status, sizes)| {
            let (min_version, max_version, negotiated_version) = versions;
            let (_, credits_requested, credits_granted): (u16, _, _) = credits;
            let (max_read_write_size, preferred_send_size, max_receive_size, max_fragmented_size) =
                sizes;
            Self {
                min_version,
                max_version,
                negotiated_version,
                credits_requested,
                credits_granted,
                status,
                max_read_write_size,
                preferred_send_size,
                max_receive_size,
                max_fragmented_size,
            }
        };
        (versions, credits, le_u32("Status"), sizes).map(made).parse(message)
    }

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
            emit::le_u16(&mut out, word);
        }
        for word in [
            self.status,
            self.max_read_write_size,
            self.preferred_send_size,
            self.max_receive_size,
            self.max_fragmented_size,
        ] {
            emit::le_u32(&mut out, word);
        }
        out
    }
}

/// The header of every later message (MS-SMBD section 2.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataTransfer {
    /// Total credits that the sender requests.
    pub credits_requested: u16,
    /// Credits granted with this message.
    pub credits_granted: u16,
    /// [`RESPONSE_REQUESTED`] or 0.
    pub flags: u16,
    /// Remaining bytes of the upper message in later fragments.
    pub remaining: u32,
    /// Offset of the data from the start of the message.
    pub offset: u32,
    pub len: u32,
}

impl DataTransfer {
    /// Parses the header and checks it against the message and the negotiated sizes (MS-SMBD section 3.1.5.8). Bytes after the data
    /// are ignored.
    pub fn parse(
        message: &[u8],
        max_receive: usize,
        max_fragmented: usize,
    ) -> Result<Self, Violation> {
        if message.len() > max_receive {
            return Err(Violation::DataTooLong(message.len()));
        }
        let header = decode(message, |i| Self::header(i, max_fragmented));
        header.map(|(_, header)| header).map_err(|why| Violation::of_data(why.at(message)))
    }

    fn header(message: &[u8], max_fragmented: usize) -> Parsed<'_, Self> {
        let credits = (le_u16(CREDITS_REQUESTED), le_u16("CreditsGranted"));
        let flags = (le_u16("Flags"), le_u16("Reserved"));
        let head = (credits, flags).parse(message)?;
        let (at_remaining, ((credits_requested, credits_granted), (flags, _))) = head;
        let (at_offset, remaining) = le_u32("RemainingDataLength")(at_remaining)?;
        let (at_len, offset) = le_u32("DataOffset")(at_offset)?;
        let (rest, len) = le_u32("DataLength")(at_len)?;
        if credits_requested == 0 {
            return Err(reject(CREDITS_REQUESTED, Rule::Value, message));
        }
        if !offset.is_multiple_of(8) {
            return Err(reject("DataOffset", Rule::Value, at_offset));
        }
        if u64::from(offset) + u64::from(len) > message.len() as u64 {
            return Err(reject("DataLength", Rule::OutOfBounds, at_len));
        }
        if u64::from(len) + u64::from(remaining) > max_fragmented as u64 {
            let rule = Rule::OverLimit { max: max_fragmented };
            return Err(reject("RemainingDataLength", rule, at_remaining));
        }
        Ok((rest, Self { credits_requested, credits_granted, flags, remaining, offset, len }))
    }

    /// Encodes the header, with padding if data follows.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(DATA_OFFSET);
        for word in [self.credits_requested, self.credits_granted, self.flags, 0] {
            emit::le_u16(&mut out, word);
        }
        for word in [self.remaining, self.offset, self.len] {
            emit::le_u32(&mut out, word);
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
        assert_eq!(NegotiateRequest::parse(&bytes), Ok((&[][..], example)));
        assert_eq!(example.emit(), bytes);
        let linux = [
            0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0xff, 0x00, 0x54, 0x05, 0x00, 0x00, 0x54, 0x05,
            0x00, 0x00, 0x56, 0xa7, 0x02, 0x00,
        ];
        let (_, linux) = NegotiateRequest::parse(&linux).unwrap();
        assert_eq!((linux.preferred_send_size, linux.max_receive_size), (1364, 1364));
        assert_eq!((linux.credits_requested, linux.max_fragmented_size), (255, 173_910));
        let cut = decode(&bytes[..19], NegotiateRequest::parse).unwrap_err();
        assert_eq!(cut.at(&bytes).to_string(), "MaxFragmentedSize truncated at 16");
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
        assert_eq!(NegotiateResponse::parse(&bytes), Ok((&[][..], example)));
        let cut = decode(&bytes[..13], NegotiateResponse::parse).unwrap_err();
        assert_eq!(cut.at(&bytes).to_string(), "Status truncated at 12");
        let refusal = NegotiateResponse::refusal(STATUS_NOT_SUPPORTED).emit();
        assert_eq!(refusal[..4], [0, 1, 0, 1]);
        assert_eq!(refusal[12..16], [0xbb, 0, 0, 0xc0]);
        assert!(refusal[4..12].iter().chain(&refusal[16..]).all(|b| *b == 0));
    }

    #[test]
    fn header_violations_are_detected() {
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
            (DataTransfer { credits_requested: 0, ..good }, "CreditsRequested invalid at 0"),
            (DataTransfer { offset: 23, ..good }, "DataOffset invalid at 12"),
            (DataTransfer { offset: 32, ..good }, "DataLength out of bounds at 16"),
            (DataTransfer { len: 9, ..good }, "DataLength out of bounds at 16"),
            (DataTransfer { len: u32::MAX, ..good }, "DataLength out of bounds at 16"),
            (
                DataTransfer { remaining: 131_065, ..good },
                "RemainingDataLength over its limit of 131072 at 8",
            ),
            (
                DataTransfer { remaining: u32::MAX, ..good },
                "RemainingDataLength over its limit of 131072 at 8",
            ),
        ];
        let names =
            ["credits", "alignment", "bounds", "bounds", "bounds", "fragmented", "fragmented"];
        for ((header, told), name) in cases.into_iter().zip(names) {
            let violation = parse(header).unwrap_err();
            assert_eq!(violation.to_string(), told);
            assert_eq!(violation.name(), format!("smbd.data.{name}"));
        }
        let short = DataTransfer::parse(&[1; 19], 1024, 131_072).unwrap_err();
        assert_eq!(short.name(), "smbd.data.short");
        assert_eq!(short.to_string(), "DataLength truncated at 16");
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
        fn any_input_is_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = NegotiateRequest::parse(&bytes);
            let _ = NegotiateResponse::parse(&bytes);
            if let Ok(h) = DataTransfer::parse(&bytes, 4096, 1 << 20) {
                prop_assert!(size(h.offset) + size(h.len) <= bytes.len());
            }
        }
    }
}
