//! SMB's Direct TCP transport (MS-SMB2 section 2.1): a zero byte and the 24-bit length before each message. No I/O.

use super::record::MARK_LEN;
use crate::limits;

/// NetBIOS session packet types (RFC 1002 section 4.3.1).
const MESSAGE: u8 = 0x00;
const KEEP_ALIVE: u8 = 0x85;

/// The meaning of the four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// A message of so many bytes.
    Message(usize),
    /// Neither data nor a reply follows: a NetBIOS client checks whether the server is reachable.
    KeepAlive,
}

/// A violated rule of the Direct TCP transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The first byte is neither zero nor a keep-alive.
    Type(u8),
    /// A message is longer than [`limits::SMB_MESSAGE_MAX`].
    TooLong(usize),
    /// A message shorter than its protocol identifier, or a keep-alive with a length.
    Length(usize),
}

crate::rule_names!(Violation {
    Violation::Type(_) => "smb.direct-tcp.type",
    Violation::TooLong(_) => "smb.direct-tcp.too-long",
    Violation::Length(_) => "smb.direct-tcp.length",
});

impl Violation {
    /// Details for the log.
    pub fn detail(self) -> String {
        match self {
            Self::Type(t) => format!("packet of type {t:#04x}"),
            Self::TooLong(n) => {
                format!("message of {n} bytes, at most {}", limits::SMB_MESSAGE_MAX)
            }
            Self::Length(n) => format!("packet of {n} bytes"),
        }
    }
}

impl Prefix {
    /// Parses the four bytes.
    pub fn parse([packet, a, b, c]: [u8; MARK_LEN]) -> Result<Self, Violation> {
        // 24 bits fit `usize` on all supported targets.
        let len = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
        match packet {
            MESSAGE if len > limits::SMB_MESSAGE_MAX => Err(Violation::TooLong(len)),
            MESSAGE if len >= limits::SMB_MESSAGE_MIN => Ok(Self::Message(len)),
            KEEP_ALIVE if len == 0 => Ok(Self::KeepAlive),
            MESSAGE | KEEP_ALIVE => Err(Violation::Length(len)),
            other => Err(Violation::Type(other)),
        }
    }

    /// Encodes the bytes before a message; `None` if its length exceeds 24 bits.
    pub fn emit(len: usize) -> Option<[u8; MARK_LEN]> {
        let [top, a, b, c] = u32::try_from(len).ok()?.to_be_bytes();
        (top == 0).then_some([MESSAGE, a, b, c])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_round_trip() {
        for len in [4, 64, 0x1_0203, limits::SMB_MESSAGE_MAX] {
            let bytes = Prefix::emit(len).unwrap();
            assert_eq!(Prefix::parse(bytes), Ok(Prefix::Message(len)));
        }
        assert_eq!(Prefix::emit(0x01_0203), Some([0, 1, 2, 3]));
        assert_eq!(Prefix::emit(1 << 24), None);
        assert_eq!(Prefix::parse([0x85, 0, 0, 0]), Ok(Prefix::KeepAlive));
    }

    #[test]
    fn every_rule_can_be_broken() {
        assert_eq!(Prefix::parse([0x81, 0, 0, 68]), Err(Violation::Type(0x81)));
        assert_eq!(Prefix::parse([0, 0, 0, 3]), Err(Violation::Length(3)));
        assert_eq!(Prefix::parse([0x85, 0, 0, 1]), Err(Violation::Length(1)));
        assert_eq!(Prefix::parse([0, 0xff, 0xff, 0xff]), Err(Violation::TooLong(0xff_ffff)));
    }
}
