//! The three messages of NTLM (MS-NLMP section 2.2.1), the AV pairs (section 2.2.2.1) and the client's challenge (section 2.2.2.7).
//! Contains no cryptography: other code computes and verifies the proofs.
//!
//! *Errors.* [`wire::Fault`], whose offset counts from the start of the message. The field `MessageType` with [`Rule::Value`] means
//! a message of another kind.

use wire::{Parser, Rule, bytes, le_u16, le_u32, reject, take};

use crate::parse::{Parsed, Rejected, constant, put_utf16, range, size, utf16, whole};

/// Signature at the start of every message.
pub const SIGNATURE: [u8; 8] = *b"NTLMSSP\0";
/// Offset of the MIC in an AUTHENTICATE_MESSAGE.
pub const MIC_AT: usize = 72;
/// Length of a MIC, in bytes.
pub const MIC_LEN: usize = 16;
/// Revision 15 of the protocol, without an operating system version.
const VERSION: [u8; 8] = [10, 0, 0, 0, 0, 0, 0, 15];

/// `NegotiateFlags` (MS-NLMP section 2.2.2.5).
#[allow(missing_docs)] // The names are the specification's.
pub mod flag {
    pub const UNICODE: u32 = 0x0000_0001;
    pub const OEM: u32 = 0x0000_0002;
    pub const REQUEST_TARGET: u32 = 0x0000_0004;
    pub const SIGN: u32 = 0x0000_0010;
    pub const SEAL: u32 = 0x0000_0020;
    pub const NTLM: u32 = 0x0000_0200;
    pub const ANONYMOUS: u32 = 0x0000_0800;
    pub const ALWAYS_SIGN: u32 = 0x0000_8000;
    pub const TARGET_TYPE_SERVER: u32 = 0x0002_0000;
    pub const EXTENDED_SESSIONSECURITY: u32 = 0x0008_0000;
    pub const TARGET_INFO: u32 = 0x0080_0000;
    pub const VERSION: u32 = 0x0200_0000;
    pub const KEY_128: u32 = 0x2000_0000;
    pub const KEY_EXCH: u32 = 0x4000_0000;
    pub const KEY_56: u32 = 0x8000_0000;
}

/// Parses signature and type of a message.
fn head<'a>(kind: u32) -> impl FnMut(&'a [u8]) -> wire::Parsed<'a, ()> {
    move |i| {
        let (i, ()) = constant("NTLMSSP", bytes("NTLMSSP"), SIGNATURE)(i)?;
        constant("MessageType", le_u32("MessageType"), kind)(i)
    }
}

/// Parses a length, a maximum length and an offset, and returns that part of the message.
fn part<'a>(
    message: &'a [u8],
    field: &'static str,
) -> impl Fn(&'a [u8]) -> wire::Parsed<'a, &'a [u8]> {
    move |place| {
        let (i, (len, _, at)) = (le_u16(field), le_u16(field), le_u32(field)).parse(place)?;
        Ok((i, range(message, (size(at), len.into()), field, place)?))
    }
}

/// Decodes a name in the character set of these flags (section 2.2.2.5). The OEM character set is unknown, so only ASCII is
/// accepted.
fn name<'a>(bytes: &'a [u8], field: &'static str, flags: u32) -> Result<String, Rejected<'a>> {
    let text = if flags & flag::UNICODE != 0 {
        utf16(bytes)
    } else {
        String::from_utf8(bytes.to_vec()).ok().filter(|text| text.is_ascii())
    };
    text.ok_or_else(|| reject(field, Rule::Value, bytes))
}

/// Appends a name in the character set of these flags, and returns its length in bytes.
fn put_name(out: &mut Vec<u8>, text: &str, flags: u32) -> usize {
    if flags & flag::UNICODE != 0 {
        return put_utf16(out, text);
    }
    let from = out.len();
    out.extend(text.chars().map(|c| u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'?')));
    out.len() - from
}

/// Appends length and offset of a part. Parts are names and responses, all far below 64 KiB.
fn put_part(out: &mut Vec<u8>, (len, at): (usize, usize)) {
    let len = u16::try_from(len).unwrap_or(u16::MAX);
    out.extend(len.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend(u32::try_from(at).unwrap_or(u32::MAX).to_le_bytes());
}

/// A NEGOTIATE_MESSAGE; the names in it are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiate {
    /// NegotiateFlags
    pub flags: u32,
    /// `Version`, if its flag is set and the message is long enough.
    pub version: Option<[u8; 8]>,
}

impl Negotiate {
    /// Builds a message with these flags.
    pub fn new(flags: u32) -> Self {
        Self { flags, version: (flags & flag::VERSION != 0).then_some(VERSION) }
    }

    /// Parses it.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        whole(message, |i| {
            let (i, ((), flags)) = (head(1), le_u32("NegotiateFlags")).parse(i)?;
            // Messages of old clients end after the flags.
            let mut version =
                (take(16, "DomainName"), bytes("Version")).map(|(_, version)| version);
            let (i, version) = match version.parse(i) {
                Ok((i, version)) if flags & flag::VERSION != 0 => (i, Some(version)),
                _ => (i, None),
            };
            Ok((i, Self { flags, version }))
        })
    }

    /// Serializes it, without names.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = SIGNATURE.to_vec();
        out.extend(1_u32.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend([0; 16]);
        out.extend(self.version.unwrap_or(VERSION));
        out
    }
}

/// A CHALLENGE_MESSAGE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// NegotiateFlags
    pub flags: u32,
    /// ServerChallenge
    pub challenge: [u8; 8],
    /// TargetName
    pub target_name: String,
    /// TargetInfo: the unparsed AV pairs.
    pub target_info: Vec<u8>,
}

impl Challenge {
    /// Length before the payload, in bytes.
    const FIXED: usize = 56;

    /// Parses it.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        whole(message, |i| {
            let (i, ((), target_name, flags, challenge)) = (
                head(2),
                part(message, "TargetName"),
                le_u32("NegotiateFlags"),
                bytes("ServerChallenge"),
            )
                .parse(i)?;
            // Messages of servers before Windows 2000 end here.
            let (i, target_info) = if flags & flag::TARGET_INFO == 0 {
                (i, &[][..])
            } else {
                let (i, (_, info)) = (take(8, "Reserved"), part(message, "TargetInfo")).parse(i)?;
                (i, info)
            };
            let target_name = name(target_name, "TargetName", flags)?;
            Ok((i, Self { flags, challenge, target_name, target_info: target_info.to_vec() }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        let name = (put_name(&mut payload, &self.target_name, self.flags), Self::FIXED);
        let info = (self.target_info.len(), Self::FIXED + payload.len());
        payload.extend_from_slice(&self.target_info);
        let mut out = SIGNATURE.to_vec();
        out.extend(2_u32.to_le_bytes());
        put_part(&mut out, name);
        out.extend(self.flags.to_le_bytes());
        out.extend(self.challenge);
        out.extend([0; 8]);
        put_part(&mut out, info);
        out.extend(VERSION);
        out.extend(payload);
        out
    }
}

/// An AUTHENTICATE_MESSAGE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticate<'a> {
    /// LmChallengeResponse
    pub lm: &'a [u8],
    /// NtChallengeResponse
    pub nt: &'a [u8],
    /// DomainName
    pub domain: String,
    /// UserName
    pub user: String,
    /// Workstation
    pub workstation: String,
    /// EncryptedRandomSessionKey
    pub key: &'a [u8],
    /// NegotiateFlags
    pub flags: u32,
}

impl<'a> Authenticate<'a> {
    /// Parses a message whose names use the character set selected by the challenge.
    pub fn parse(message: &'a [u8], granted: u32) -> Parsed<Self> {
        whole(message, |i| {
            let of = |field| part(message, field);
            let (i, ((), lm, nt)) =
                (head(3), of("LmChallengeResponse"), of("NtChallengeResponse")).parse(i)?;
            let (i, (domain, user, workstation)) =
                (of("DomainName"), of("UserName"), of("Workstation")).parse(i)?;
            let (i, (key, flags)) =
                (of("EncryptedRandomSessionKey"), le_u32("NegotiateFlags")).parse(i)?;
            let domain = name(domain, "DomainName", granted)?;
            let user = name(user, "UserName", granted)?;
            let workstation = name(workstation, "Workstation", granted)?;
            Ok((i, Self { lm, nt, domain, user, workstation, key, flags }))
        })
    }

    /// Serializes it, with zeros in place of the MIC.
    pub fn emit(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        let mut put = |bytes: &[u8]| {
            let at = MIC_AT + MIC_LEN + payload.len();
            payload.extend_from_slice(bytes);
            (bytes.len(), at)
        };
        let name = |text: &str| {
            let mut out = Vec::new();
            put_name(&mut out, text, self.flags);
            out
        };
        let domain = put(&name(&self.domain));
        let user = put(&name(&self.user));
        let workstation = put(&name(&self.workstation));
        let (lm, nt, key) = (put(self.lm), put(self.nt), put(self.key));
        let mut out = SIGNATURE.to_vec();
        out.extend(3_u32.to_le_bytes());
        for place in [lm, nt, domain, user, workstation, key] {
            put_part(&mut out, place);
        }
        out.extend(self.flags.to_le_bytes());
        out.extend(VERSION);
        out.extend([0; MIC_LEN]);
        out.extend(payload);
        out
    }
}

/// `AvId` of the supported pairs.
#[allow(missing_docs)] // The names are the specification's, without MsvAv.
pub mod av {
    pub const EOL: u16 = 0;
    pub const NB_COMPUTER: u16 = 1;
    pub const NB_DOMAIN: u16 = 2;
    pub const DNS_COMPUTER: u16 = 3;
    pub const DNS_DOMAIN: u16 = 4;
    pub const FLAGS: u16 = 6;
    pub const TIMESTAMP: u16 = 7;
    pub const TARGET_NAME: u16 = 9;
    pub const CHANNEL_BINDINGS: u16 = 10;
    /// Bit of [`FLAGS`]: the AUTHENTICATE_MESSAGE has a MIC.
    pub const HAS_MIC: u32 = 2;
}

/// Parses AV pairs up to the terminating pair.
pub fn pairs(bytes: &[u8]) -> Parsed<Vec<(u16, &[u8])>> {
    whole(bytes, all_pairs)
}

fn all_pairs(mut rest: &[u8]) -> wire::Parsed<'_, Vec<(u16, &[u8])>> {
    let mut found = Vec::new();
    loop {
        let (i, (id, len)) = (le_u16("AvId"), le_u16("AvLen")).parse(rest)?;
        let (i, value) = take(len.into(), "AvPair")(i)?;
        if id == av::EOL {
            return Ok((i, found));
        }
        found.push((id, value));
        rest = i;
    }
}

/// Appends a pair.
pub fn put_pair(out: &mut Vec<u8>, id: u16, value: &[u8]) {
    out.extend(id.to_le_bytes());
    out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(value);
}

/// `NTLMv2_CLIENT_CHALLENGE`, which follows the 16 bytes of NTProofStr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientChallenge<'a> {
    /// AvPairs, without the terminating pair.
    pub pairs: Vec<(u16, &'a [u8])>,
}

impl<'a> ClientChallenge<'a> {
    /// Parses it.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        whole(bytes, |i| {
            let (i, ()) = constant("RespType", le_u16("RespType"), 0x0101)(i)?;
            // Two reserved fields, TimeStamp, ChallengeFromClient, and another reserved field.
            let (i, (_, pairs)) = (take(2 + 4 + 8 + 8 + 4, "TimeStamp"), all_pairs).parse(i)?;
            Ok((i, Self { pairs }))
        })
    }

    /// Serializes a client's challenge: time, random bytes, and pairs including the terminating one.
    pub fn emit(time: u64, challenge: [u8; 8], target_info: &[u8]) -> Vec<u8> {
        let mut out = vec![1, 1, 0, 0, 0, 0, 0, 0];
        out.extend(time.to_le_bytes());
        out.extend(challenge);
        out.extend([0; 4]);
        out.extend_from_slice(target_info);
        out.extend([0; 4]);
        out
    }

    /// Returns the value of this pair.
    pub fn get(&self, id: u16) -> Option<&'a [u8]> {
        self.pairs.iter().find(|(found, _)| *found == id).map(|(_, value)| *value)
    }

    /// Checks whether the client's message has a MIC.
    pub fn has_mic(&self) -> bool {
        let flags = self.get(av::FLAGS).and_then(|v| v.first_chunk()).copied();
        u32::from_le_bytes(flags.unwrap_or_default()) & av::HAS_MIC != 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::smb2::test_harness::named;

    fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..40)
    }

    proptest! {
        #[test]
        fn messages_round_trip(
            flags: u32, challenge: [u8; 8], name in "[A-Za-z]{0,9}", lm in some_bytes(), nt in some_bytes(),
            key in some_bytes(), target_info in some_bytes(), cut: prop::sample::Index,
        ) {
            let negotiate = Negotiate::new(flags);
            prop_assert_eq!(Negotiate::parse(&negotiate.emit()), Ok(negotiate));
            let told = if flags & flag::TARGET_INFO == 0 { Vec::new() } else { target_info };
            let c = Challenge { flags, challenge, target_name: name.clone(), target_info: told };
            prop_assert_eq!(Challenge::parse(&c.emit()), Ok(c));
            let a = Authenticate {
                lm: &lm,
                nt: &nt,
                domain: name.clone(),
                user: name.to_uppercase(),
                workstation: name,
                key: &key,
                flags,
            };
            let message = a.emit();
            prop_assert_eq!(Authenticate::parse(&message, flags), Ok(a));
            let _ = Authenticate::parse(&message[..cut.index(message.len())], flags);
        }

        #[test]
        fn pairs_round_trip(list in prop::collection::vec((1_u16.., some_bytes()), 0..6), time: u64) {
            let mut info = Vec::new();
            list.iter().for_each(|(id, value)| put_pair(&mut info, *id, value));
            prop_assert!(pairs(&info).is_err(), "nothing ends them");
            put_pair(&mut info, av::EOL, &[]);
            let want: Vec<(u16, &[u8])> = list.iter().map(|(id, value)| (*id, &value[..])).collect();
            prop_assert_eq!(&pairs(&info).unwrap(), &want);
            let bytes = ClientChallenge::emit(time, [7; 8], &info);
            prop_assert_eq!(ClientChallenge::parse(&bytes).unwrap().pairs, want);
        }

        #[test]
        fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..120), kind in 1_u32..4) {
            let message = [&SIGNATURE[..], &kind.to_le_bytes(), &body].concat();
            let _ = Negotiate::parse(&message);
            let _ = Challenge::parse(&message);
            let _ = Authenticate::parse(&message, flag::UNICODE);
            let _ = ClientChallenge::parse(&body);
        }
    }

    #[test]
    fn wrong_message_type_names_field() {
        let negotiate = Negotiate::new(flag::UNICODE).emit();
        assert_eq!(named(Challenge::parse(&negotiate)), Err("MessageType"));
        assert_eq!(named(Negotiate::parse(b"NTLMSSQ\0")), Err("NTLMSSP"));
        let short = Negotiate::parse(&negotiate[..14]).unwrap_err();
        assert_eq!(short.to_string(), "NegotiateFlags truncated at 12");
        assert_eq!(Negotiate::parse(&negotiate[..16]).unwrap().version, None);
    }

    #[test]
    fn part_outside_message_names_field() {
        let a = Authenticate {
            lm: &[],
            nt: &[1; 24],
            domain: String::new(),
            user: "user".into(),
            workstation: String::new(),
            key: &[],
            flags: flag::UNICODE,
        };
        let mut message = a.emit();
        message[20] = 25;
        let fault = Authenticate::parse(&message, flag::UNICODE).unwrap_err();
        assert_eq!(fault.to_string(), "NtChallengeResponse out of bounds at 20");
    }
}
