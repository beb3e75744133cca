//! SESSION_SETUP (MS-SMB2 sections 2.2.5 and 2.2.6).

use wire::{Parser, le_u8, le_u16, le_u32, le_u64};

use super::{HEADER_LEN, Parsed};
use crate::parse::{behind, body, buffer, shorts};

/// SMB2_SESSION_FLAG_BINDING: binds an existing session to this connection.
pub const BINDING: u8 = 1;

/// SMB2_SESSION_FLAG_IS_GUEST
pub const IS_GUEST: u16 = 1;
/// SMB2_SESSION_FLAG_IS_NULL: an anonymous user.
pub const IS_NULL: u16 = 2;
/// SMB2_SESSION_FLAG_ENCRYPT_DATA
pub const ENCRYPT_DATA: u16 = 4;

/// A SESSION_SETUP request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// [`BINDING`]
    pub flags: u8,
    /// See NEGOTIATE.
    pub security_mode: u8,
    /// See NEGOTIATE.
    pub capabilities: u32,
    /// Session of this client before its connection was lost; zero if it had no session.
    pub previous_session: u64,
    /// A SPNEGO token.
    pub token: &'a [u8],
}

impl<'a> Request<'a> {
    const FIXED: usize = 24;

    /// Parses a message that starts at its header.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        body(message, 25, |i| {
            let (i, (flags, security_mode, capabilities, _)) =
                (le_u8("Flags"), le_u8("SecurityMode"), le_u32("Capabilities"), le_u32("Channel"))
                    .parse(i)?;
            let place = i;
            let (i, named) = shorts("SecurityBuffer")(i)?;
            let token = behind(message, Self::FIXED, named, "Buffer", place)?;
            let (i, previous_session) = le_u64("PreviousSessionId")(i)?;
            Ok((i, Self { flags, security_mode, capabilities, previous_session, token }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.token.len());
        let at = u16::try_from(HEADER_LEN + Self::FIXED).unwrap_or(u16::MAX);
        // This program never sends tokens above 64 KiB.
        let len = u16::try_from(self.token.len()).unwrap_or(u16::MAX);
        out.extend(25_u16.to_le_bytes());
        out.extend([self.flags, self.security_mode]);
        out.extend(self.capabilities.to_le_bytes());
        out.extend([0; 4]);
        out.extend(at.to_le_bytes());
        out.extend(len.to_le_bytes());
        out.extend(self.previous_session.to_le_bytes());
        out.extend(self.token);
        out
    }
}

/// A SESSION_SETUP response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response<'a> {
    /// [`IS_GUEST`], [`IS_NULL`], [`ENCRYPT_DATA`].
    pub flags: u16,
    /// A SPNEGO token.
    pub token: &'a [u8],
}

impl<'a> Response<'a> {
    const FIXED: usize = 8;

    /// Parses a message that starts at its header.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        body(message, 9, |i| {
            let (i, flags) = le_u16("SessionFlags")(i)?;
            let (i, token) = buffer(message, "Buffer", shorts("SecurityBuffer"))(i)?;
            Ok((i, Self { flags, token }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.token.len());
        let at = u16::try_from(HEADER_LEN + Self::FIXED).unwrap_or(u16::MAX);
        let len = u16::try_from(self.token.len()).unwrap_or(u16::MAX);
        out.extend(9_u16.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(at.to_le_bytes());
        out.extend(len.to_le_bytes());
        out.extend(self.token);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::{message, named};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn request_and_response_round_trip(
            flags in any::<u8>(), mode in any::<u8>(), capabilities in any::<u32>(),
            previous_session in any::<u64>(), token in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let token = &token[..];
            let r = Request { flags, security_mode: mode, capabilities, previous_session, token };
            let bytes = message(Command::SessionSetup, &r.emit());
            prop_assert_eq!(Request::parse(&bytes), Ok(r));
            let r = Response { flags: flags.into(), token };
            let bytes = message(Command::SessionSetup, &r.emit());
            prop_assert_eq!(Response::parse(&bytes), Ok(r));
        }

        #[test]
        fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = message(Command::SessionSetup, &body);
            for size in [25, 9] {
                if let Some(b) = bytes.get_mut(64) {
                    *b = size;
                }
                let _ = Request::parse(&bytes);
                let _ = Response::parse(&bytes);
            }
        }
    }

    #[test]
    fn token_outside_message_is_refused() {
        let mut bytes =
            message(Command::SessionSetup, &Request { token: b"abc", ..Request::default() }.emit());
        bytes.pop();
        assert_eq!(named(Request::parse(&bytes)), Err("Buffer"));
    }
}
