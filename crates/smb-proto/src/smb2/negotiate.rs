//! NEGOTIATE (MS-SMB2 sections 2.2.3 and 2.2.4).

use wire::{Parser, Rule, bytes, le_u16, le_u32, le_u64, reject};

use super::negotiate_context::{self, NegotiateContext};
use super::{HEADER_LEN, Parsed};
use crate::parse::{body, buffer, shorts, size, u16s};

/// Maximum number of dialects in one NEGOTIATE.
pub const DIALECTS_MAX: usize = 64;

/// A dialect of the protocol, by its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
#[allow(missing_docs)] // The names are the specification's.
pub enum Dialect {
    V202 = 0x0202,
    V210 = 0x0210,
    V300 = 0x0300,
    V302 = 0x0302,
    V311 = 0x0311,
}

impl Dialect {
    /// All dialects, the oldest first.
    pub const ALL: [Self; 5] = [Self::V202, Self::V210, Self::V300, Self::V302, Self::V311];

    /// In the response to an SMB1 NEGOTIATE: the client must choose among 2.1 and later with an SMB2 NEGOTIATE.
    pub const WILDCARD: u16 = 0x02ff;

    /// Returns the dialect with this number; `None` if it is not supported.
    pub fn from_number(n: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.number() == n)
    }

    /// Returns the number on the wire.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// Returns the usual notation.
    pub fn name(self) -> &'static str {
        match self {
            Self::V202 => "2.0.2",
            Self::V210 => "2.1",
            Self::V300 => "3.0",
            Self::V302 => "3.0.2",
            Self::V311 => "3.1.1",
        }
    }

    /// Checks whether the dialect is 3.x.
    pub fn is_3(self) -> bool {
        self >= Self::V300
    }
}

/// SMB2_NEGOTIATE_SIGNING_ENABLED
pub const SIGNING_ENABLED: u16 = 1;
/// SMB2_NEGOTIATE_SIGNING_REQUIRED
pub const SIGNING_REQUIRED: u16 = 2;

/// SMB2_GLOBAL_CAP_DFS
pub const CAP_DFS: u32 = 0x01;
/// SMB2_GLOBAL_CAP_LEASING
pub const CAP_LEASING: u32 = 0x02;
/// SMB2_GLOBAL_CAP_LARGE_MTU: multi-credit requests.
pub const CAP_LARGE_MTU: u32 = 0x04;
/// SMB2_GLOBAL_CAP_MULTI_CHANNEL
pub const CAP_MULTI_CHANNEL: u32 = 0x08;
/// SMB2_GLOBAL_CAP_PERSISTENT_HANDLES
pub const CAP_PERSISTENT_HANDLES: u32 = 0x10;
/// SMB2_GLOBAL_CAP_DIRECTORY_LEASING
pub const CAP_DIRECTORY_LEASING: u32 = 0x20;
/// SMB2_GLOBAL_CAP_ENCRYPTION
pub const CAP_ENCRYPTION: u32 = 0x40;
/// SMB2_GLOBAL_CAP_NOTIFICATIONS
pub const CAP_NOTIFICATIONS: u32 = 0x80;

/// A NEGOTIATE request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// [`SIGNING_ENABLED`], [`SIGNING_REQUIRED`].
    pub security_mode: u16,
    /// `CAP_*`.
    pub capabilities: u32,
    /// The client's identifier for itself.
    pub client_guid: [u8; 16],
    /// Numbers of dialects.
    pub dialects: Vec<u16>,
    /// Contexts; only if the dialects include 3.1.1.
    pub contexts: Vec<NegotiateContext<'a>>,
}

impl<'a> Request<'a> {
    const FIXED: usize = 36;

    /// Parses a message that starts at its header.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        body(message, 36, |start| {
            let (i, (count, security_mode, _, capabilities, client_guid)) = (
                le_u16("DialectCount"),
                le_u16("SecurityMode"),
                le_u16("Reserved"),
                le_u32("Capabilities"),
                bytes("ClientGuid"),
            )
                .parse(start)?;
            let place = i;
            let (i, (offset, contexts, _)) = (
                le_u32("NegotiateContextOffset"),
                le_u16("NegotiateContextCount"),
                le_u16("Reserved2"),
            )
                .parse(i)?;
            let rule = match usize::from(count) {
                0 => Some(Rule::Value),
                1..=DIALECTS_MAX => None,
                _ => Some(Rule::OverLimit { max: DIALECTS_MAX }),
            };
            if let Some(rule) = rule {
                return Err(reject("DialectCount", rule, start));
            }
            let (i, dialects) = u16s(count.into(), "Dialects")(i)?;
            let contexts = if dialects.contains(&Dialect::V311.number()) {
                let fixed = HEADER_LEN + Self::FIXED + 2 * dialects.len();
                if contexts > 0 && size(offset) < fixed {
                    return Err(reject("NegotiateContextOffset", Rule::Value, place));
                }
                negotiate_context::list(message, offset, contexts, place)?
            } else {
                Vec::new()
            };
            Ok((i, Self { security_mode, capabilities, client_guid, dialects, contexts }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        // This program never sends more dialects than the field can count.
        let count = u16::try_from(self.dialects.len()).unwrap_or(u16::MAX);
        out.extend(36_u16.to_le_bytes());
        out.extend(count.to_le_bytes());
        out.extend(self.security_mode.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.capabilities.to_le_bytes());
        out.extend(self.client_guid);
        out.extend([0; 8]);
        out.extend(self.dialects.iter().flat_map(|d| d.to_le_bytes()));
        if !self.contexts.is_empty() {
            let (offset, count) = negotiate_context::put(&mut out, &self.contexts);
            out[Self::FIXED - 8..Self::FIXED - 4].copy_from_slice(&offset.to_le_bytes());
            out[Self::FIXED - 4..Self::FIXED - 2].copy_from_slice(&count.to_le_bytes());
        }
        out
    }
}

/// A NEGOTIATE response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response<'a> {
    /// [`SIGNING_ENABLED`], [`SIGNING_REQUIRED`].
    pub security_mode: u16,
    /// Number of the dialect, or [`Dialect::WILDCARD`].
    pub dialect: u16,
    /// The server's identifier for itself.
    pub server_guid: [u8; 16],
    /// `CAP_*`.
    pub capabilities: u32,
    /// Maximum buffer of a QUERY, SET or CHANGE_NOTIFY, in bytes.
    pub transact_max: u32,
    /// Maximum length of a READ, in bytes.
    pub read_max: u32,
    /// Maximum length of a WRITE, in bytes.
    pub write_max: u32,
    /// A FILETIME.
    pub system_time: u64,
    /// A FILETIME, or zero.
    pub start_time: u64,
    /// A SPNEGO token.
    pub token: &'a [u8],
    /// Contexts; only in dialect 3.1.1.
    pub contexts: Vec<NegotiateContext<'a>>,
}

impl<'a> Response<'a> {
    const FIXED: usize = 64;

    /// Parses a message that starts at its header.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        body(message, 65, |i| {
            let (i, (security_mode, dialect, count, server_guid, capabilities)) = (
                le_u16("SecurityMode"),
                le_u16("DialectRevision"),
                le_u16("NegotiateContextCount"),
                bytes("ServerGuid"),
                le_u32("Capabilities"),
            )
                .parse(i)?;
            let (i, (transact_max, read_max, write_max)) =
                (le_u32("MaxTransactSize"), le_u32("MaxReadSize"), le_u32("MaxWriteSize"))
                    .parse(i)?;
            let (i, (system_time, start_time)) =
                (le_u64("SystemTime"), le_u64("ServerStartTime")).parse(i)?;
            let (place, token) = buffer(message, "Buffer", shorts("SecurityBuffer"))(i)?;
            let (i, offset) = le_u32("NegotiateContextOffset")(place)?;
            let contexts = if dialect == Dialect::V311.number() {
                negotiate_context::list(message, offset, count, place)?
            } else {
                Vec::new()
            };
            let value = Self {
                security_mode,
                dialect,
                server_guid,
                capabilities,
                transact_max,
                read_max,
                write_max,
                system_time,
                start_time,
                token,
                contexts,
            };
            Ok((i, value))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.token.len() + 128);
        // This program never sends tokens above 64 KiB.
        let len = u16::try_from(self.token.len()).unwrap_or(u16::MAX);
        let at = u16::try_from(HEADER_LEN + Self::FIXED).unwrap_or(u16::MAX);
        out.extend(65_u16.to_le_bytes());
        out.extend(self.security_mode.to_le_bytes());
        out.extend(self.dialect.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.server_guid);
        out.extend(self.capabilities.to_le_bytes());
        out.extend(self.transact_max.to_le_bytes());
        out.extend(self.read_max.to_le_bytes());
        out.extend(self.write_max.to_le_bytes());
        out.extend(self.system_time.to_le_bytes());
        out.extend(self.start_time.to_le_bytes());
        out.extend(at.to_le_bytes());
        out.extend(len.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.token);
        if !self.contexts.is_empty() {
            let (offset, count) = negotiate_context::put(&mut out, &self.contexts);
            out[60..64].copy_from_slice(&offset.to_le_bytes());
            out[6..8].copy_from_slice(&count.to_le_bytes());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::{message, named};
    use proptest::prelude::*;

    fn contexts() -> impl Strategy<Value = Vec<NegotiateContext<'static>>> {
        let numbers = || prop::collection::vec(any::<u16>(), 1..9);
        let one = prop_oneof![
            numbers().prop_map(|algorithms| NegotiateContext::Preauth {
                algorithms,
                salt: b"0123456789abcdef0123456789abcdef",
            }),
            numbers().prop_map(NegotiateContext::Encryption),
            (any::<u32>(), numbers()).prop_map(|(flags, algorithms)| {
                NegotiateContext::Compression { flags, algorithms }
            }),
            "[a-z]{1,20}".prop_map(NegotiateContext::Netname),
            any::<u32>().prop_map(NegotiateContext::Transport),
            numbers().prop_map(NegotiateContext::RdmaTransform),
            numbers().prop_map(NegotiateContext::Signing),
            Just(NegotiateContext::Posix),
            (0x200_u16..).prop_map(NegotiateContext::Other),
        ];
        prop::collection::vec(one, 0..9)
    }

    proptest! {
        #[test]
        fn requests_round_trip(
            security_mode in any::<u16>(), capabilities in any::<u32>(), guid in any::<[u8; 16]>(),
            mut dialects in prop::collection::vec(0x0202_u16..0x0303, 1..9), contexts in contexts(),
        ) {
            if !contexts.is_empty() {
                dialects.push(0x0311);
            }
            let r = Request { security_mode, capabilities, client_guid: guid, dialects, contexts };
            let bytes = message(Command::Negotiate, &r.emit());
            prop_assert_eq!(Request::parse(&bytes), Ok(r));
        }

        #[test]
        fn responses_round_trip(
            capabilities in any::<u32>(), sizes in any::<[u32; 3]>(), times in any::<[u64; 2]>(),
            token in prop::collection::vec(any::<u8>(), 0..200), contexts in contexts(),
        ) {
            let r = Response {
                security_mode: 1,
                dialect: 0x0311,
                server_guid: [7; 16],
                capabilities,
                transact_max: sizes[0],
                read_max: sizes[1],
                write_max: sizes[2],
                system_time: times[0],
                start_time: times[1],
                token: &token,
                contexts,
            };
            let bytes = message(Command::Negotiate, &r.emit());
            prop_assert_eq!(Response::parse(&bytes), Ok(r));
        }

        #[test]
        fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = message(Command::Negotiate, &body);
            let _ = Request::parse(&bytes);
            let _ = Response::parse(&bytes);
            if body.len() > 40 {
                bytes[64..66].copy_from_slice(&36_u16.to_le_bytes());
                bytes[66..68].copy_from_slice(&1_u16.to_le_bytes());
                bytes[100..102].copy_from_slice(&0x311_u16.to_le_bytes());
                let _ = Request::parse(&bytes);
            }
        }
    }

    #[test]
    fn numbers_of_dialects_are_limited() {
        let mut r = Request { dialects: vec![0x0202; DIALECTS_MAX], ..Request::default() };
        assert!(Request::parse(&message(Command::Negotiate, &r.emit())).is_ok());
        r.dialects.push(0x0202);
        let too_many = message(Command::Negotiate, &r.emit());
        assert_eq!(named(Request::parse(&too_many)), Err("DialectCount"));
        r.dialects.clear();
        let none = message(Command::Negotiate, &r.emit());
        assert_eq!(named(Request::parse(&none)), Err("DialectCount"));
    }
}
