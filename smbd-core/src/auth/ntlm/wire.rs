//! The three messages (MS-NLMP section 2.2.1) and the AV pairs (section 2.2.2.1).

use super::flags;
use crate::auth::{Identity, Refusal};
use crate::wire::{Fields, Malformed, put_utf16, range, utf16};

/// What every message begins with.
pub(crate) const SIGNATURE: [u8; 8] = *b"NTLMSSP\0";

/// Offset of the MIC in an AUTHENTICATE_MESSAGE.
pub(super) const MIC_AT: usize = 72;

/// Revision 15 of the protocol, on a system that has no version to tell.
const VERSION: [u8; 8] = [10, 0, 0, 0, 0, 0, 0, 15];

impl From<Malformed> for Refusal {
    fn from(e: Malformed) -> Self {
        Self::Malformed(e.0)
    }
}

fn open<'a>(message: &'a [u8], kind: u32) -> Result<Fields<'a>, Refusal> {
    let mut fields = Fields::new(message, 0);
    if fields.array("NTLMSSP")? != SIGNATURE {
        return Err(Refusal::Malformed("NTLMSSP"));
    }
    if fields.u32("MessageType")? != kind {
        return Err(Refusal::OutOfTurn);
    }
    Ok(fields)
}

/// A length, a maximum length and an offset: a part of the message.
fn part<'a>(
    fields: &mut Fields<'a>,
    message: &'a [u8],
    name: &'static str,
) -> Result<&'a [u8], Refusal> {
    let len = fields.u16(name)?;
    fields.u16(name)?;
    let offset = fields.u32(name)?;
    let offset = usize::try_from(offset).map_err(|_| Malformed(name))?;
    Ok(range(message, offset, usize::from(len), name)?)
}

/// A name in the character set of these flags (section 2.2.2.5). Which one OEM is, nothing says: what all of them share is ASCII.
fn text(bytes: &[u8], flags: u32) -> Option<String> {
    if flags & flags::UNICODE != 0 {
        return utf16(bytes);
    }
    String::from_utf8(bytes.to_vec()).ok().filter(|text| text.is_ascii())
}

/// Appends a name in the character set of these flags, and gives its length in bytes.
fn put_text(out: &mut Vec<u8>, text: &str, flags: u32) -> usize {
    if flags & flags::UNICODE != 0 {
        return put_utf16(out, text);
    }
    let from = out.len();
    out.extend(text.chars().map(|c| u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'?')));
    out.len() - from
}

/// `NegotiateFlags` of a NEGOTIATE_MESSAGE; the names in it mean nothing.
pub(super) fn parse_negotiate(message: &[u8]) -> Result<u32, Refusal> {
    Ok(open(message, 1)?.u32("NegotiateFlags")?)
}

/// The `Version` of a NEGOTIATE_MESSAGE, where it holds one.
pub(super) fn version(message: &[u8]) -> Option<[u8; 8]> {
    let flags = parse_negotiate(message).ok()?;
    // Behind the fields of two names.
    let version = message.get(32..)?.first_chunk()?;
    (flags & flags::VERSION != 0).then_some(*version)
}

/// A NEGOTIATE_MESSAGE without names.
pub(super) fn emit_negotiate(flags: u32) -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    out.extend(1_u32.to_le_bytes());
    out.extend(flags.to_le_bytes());
    out.extend([0; 16]);
    out.extend(VERSION);
    out
}

/// A CHALLENGE_MESSAGE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) flags: u32,
    pub(super) challenge: [u8; 8],
    pub(super) target_name: String,
    /// AV pairs, as they stand.
    pub(super) target_info: Vec<u8>,
}

impl Challenge {
    pub(super) fn parse(message: &[u8]) -> Result<Self, Refusal> {
        let mut f = open(message, 2)?;
        let target_name = part(&mut f, message, "TargetName")?;
        let flags = f.u32("NegotiateFlags")?;
        let challenge = f.array("ServerChallenge")?;
        f.skip(8);
        // A server of before Windows 2000 ends here.
        let target_info = if flags & flags::TARGET_INFO != 0 {
            part(&mut f, message, "TargetInfo")?.to_vec()
        } else {
            Vec::new()
        };
        let target_name = text(target_name, flags).ok_or(Malformed("TargetName"))?;
        Ok(Self { flags, challenge, target_name, target_info })
    }

    pub(super) fn emit(&self) -> Vec<u8> {
        const FIXED: usize = 56;
        let mut payload = Vec::new();
        let name = (put_text(&mut payload, &self.target_name, self.flags), FIXED);
        let info = (self.target_info.len(), FIXED + payload.len());
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

/// Parts are names and answers of ours, all far below 64 KiB.
fn put_part(out: &mut Vec<u8>, (len, at): (usize, usize)) {
    let len = u16::try_from(len).unwrap_or(u16::MAX);
    out.extend(len.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend(u32::try_from(at).unwrap_or(u32::MAX).to_le_bytes());
}

/// An AUTHENTICATE_MESSAGE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authenticate<'a> {
    pub(super) lm: &'a [u8],
    pub(super) nt: &'a [u8],
    pub(super) domain: String,
    pub(super) user: String,
    pub(super) workstation: String,
    pub(super) key: &'a [u8],
    pub(super) flags: u32,
}

impl<'a> Authenticate<'a> {
    /// Reads one whose names are in the character set that was granted with the challenge.
    pub(super) fn parse(message: &'a [u8], granted: u32) -> Result<Self, Refusal> {
        let mut f = open(message, 3)?;
        let lm = part(&mut f, message, "LmChallengeResponse")?;
        let nt = part(&mut f, message, "NtChallengeResponse")?;
        let domain = part(&mut f, message, "DomainName")?;
        let user = part(&mut f, message, "UserName")?;
        let workstation = part(&mut f, message, "Workstation")?;
        let key = part(&mut f, message, "EncryptedRandomSessionKey")?;
        let flags = f.u32("NegotiateFlags")?;
        let text = |bytes, name| text(bytes, granted).ok_or(Refusal::Malformed(name));
        Ok(Self {
            lm,
            nt,
            domain: text(domain, "DomainName")?,
            user: text(user, "UserName")?,
            workstation: text(workstation, "Workstation")?,
            key,
            flags,
        })
    }

    /// With zeros in place of the MIC.
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        let mut put = |bytes: &[u8]| {
            let at = MIC_AT + 16 + payload.len();
            payload.extend_from_slice(bytes);
            (bytes.len(), at)
        };
        let name = |text: &str| {
            let mut out = Vec::new();
            put_text(&mut out, text, self.flags);
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
        out.extend([0; 16]);
        out.extend(payload);
        out
    }
}

/// `AvId` of the pairs that mean something here.
pub(super) mod av {
    pub(crate) const EOL: u16 = 0;
    pub(crate) const NB_COMPUTER: u16 = 1;
    pub(crate) const NB_DOMAIN: u16 = 2;
    pub(crate) const DNS_COMPUTER: u16 = 3;
    pub(crate) const DNS_DOMAIN: u16 = 4;
    pub(crate) const FLAGS: u16 = 6;
    pub(crate) const TIMESTAMP: u16 = 7;
    pub(crate) const TARGET_NAME: u16 = 9;
    pub(crate) const CHANNEL_BINDINGS: u16 = 10;
    /// Bit of [`FLAGS`]: the AUTHENTICATE_MESSAGE has a MIC.
    pub(crate) const HAS_MIC: u32 = 2;
}

/// AV pairs up to the one that ends them.
pub(super) fn pairs(bytes: &[u8]) -> Result<Vec<(u16, &[u8])>, Refusal> {
    let mut f = Fields::new(bytes, 0);
    let mut found = Vec::new();
    loop {
        let id = f.u16("AvId")?;
        let len = f.u16("AvLen")?;
        let value = f.bytes(usize::from(len), "AvPair")?;
        if id == av::EOL {
            return Ok(found);
        }
        found.push((id, value));
    }
}

pub(super) fn put_pair(out: &mut Vec<u8>, id: u16, value: &[u8]) {
    out.extend(id.to_le_bytes());
    out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(value);
}

/// `TargetInfo` of a server: its names and its time. With the time, a client must send a MIC.
pub(super) fn target_info(identity: &Identity, time: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, name) in [
        (av::NB_DOMAIN, &identity.domain),
        (av::NB_COMPUTER, &identity.computer),
        (av::DNS_DOMAIN, &identity.dns_domain),
        (av::DNS_COMPUTER, &identity.dns_computer),
    ] {
        let mut wide = Vec::new();
        put_utf16(&mut wide, name);
        put_pair(&mut out, id, &wide);
    }
    put_pair(&mut out, av::TIMESTAMP, &time.to_le_bytes());
    put_pair(&mut out, av::EOL, &[]);
    out
}

/// `NTLMv2_CLIENT_CHALLENGE` (section 2.2.2.7), behind the 16 bytes of NTProofStr.
pub(super) struct ClientChallenge<'a> {
    pub(super) pairs: Vec<(u16, &'a [u8])>,
}

impl<'a> ClientChallenge<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let mut f = Fields::new(bytes, 0);
        if f.u16("RespType")? != 0x0101 {
            return Err(Refusal::Malformed("RespType"));
        }
        f.skip(2 + 4 + 8 + 8 + 4);
        Ok(Self { pairs: pairs(f.rest())? })
    }

    pub(super) fn emit(time: u64, challenge: [u8; 8], target_info: &[u8]) -> Vec<u8> {
        let mut out = vec![1, 1, 0, 0, 0, 0, 0, 0];
        out.extend(time.to_le_bytes());
        out.extend(challenge);
        out.extend([0; 4]);
        out.extend_from_slice(target_info);
        out.extend([0; 4]);
        out
    }

    pub(super) fn get(&self, id: u16) -> Option<&'a [u8]> {
        self.pairs.iter().find(|(found, _)| *found == id).map(|(_, value)| *value)
    }

    /// The client says that its message has a MIC.
    pub(super) fn has_mic(&self) -> bool {
        let flags = self.get(av::FLAGS).and_then(|v| v.first_chunk()).copied();
        u32::from_le_bytes(flags.unwrap_or_default()) & av::HAS_MIC != 0
    }
}
