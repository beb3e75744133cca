//! The contexts of NEGOTIATE in dialect 3.1.1 (MS-SMB2 sections 2.2.3.1 and 2.2.4.1).

use wire::{Malformed, Parser, Rule, le_u16, le_u32, reject, take};

use super::{HEADER_LEN, put_utf16};
use crate::parse::{Rejected, size, text, u16s};

/// Maximum number of contexts in one NEGOTIATE.
pub const NEGOTIATE_CONTEXTS_MAX: usize = 32;
/// SHA-512, the only hash for preauthentication integrity.
pub const SHA_512: u16 = 1;
/// SMB2_ACCEPT_TRANSPORT_LEVEL_SECURITY
pub const TRANSPORT_LEVEL_SECURITY: u32 = 1;
/// Identifies the POSIX extensions that Linux clients request.
pub const POSIX_UUID: [u8; 16] = [
    0x93, 0xad, 0x25, 0x50, 0x9c, 0xb4, 0x11, 0xe7, 0xb4, 0x23, 0x83, 0xde, 0x96, 0x8b, 0xcd, 0x7c,
];

/// A context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NegotiateContext<'a> {
    /// SMB2_PREAUTH_INTEGRITY_CAPABILITIES
    Preauth {
        /// Hash algorithms.
        algorithms: Vec<u16>,
        /// Random bytes.
        salt: &'a [u8],
    },
    /// SMB2_ENCRYPTION_CAPABILITIES: ciphers, the most preferred first.
    Encryption(Vec<u16>),
    /// SMB2_COMPRESSION_CAPABILITIES
    Compression {
        /// Bit 0: chained compression is supported.
        flags: u32,
        /// Algorithms.
        algorithms: Vec<u16>,
    },
    /// SMB2_NETNAME_NEGOTIATE_CONTEXT_ID: the server name that the client uses.
    Netname(String),
    /// SMB2_TRANSPORT_CAPABILITIES
    Transport(u32),
    /// SMB2_RDMA_TRANSFORM_CAPABILITIES
    RdmaTransform(Vec<u16>),
    /// SMB2_SIGNING_CAPABILITIES: algorithms, the most preferred first.
    Signing(Vec<u16>),
    /// SMB2_POSIX_EXTENSIONS_AVAILABLE
    Posix,
    /// An unsupported context.
    Other(u16),
}

impl<'a> NegotiateContext<'a> {
    /// Returns the type number.
    pub fn number(&self) -> u16 {
        match self {
            Self::Preauth { .. } => 1,
            Self::Encryption(_) => 2,
            Self::Compression { .. } => 3,
            Self::Netname(_) => 5,
            Self::Transport(_) => 6,
            Self::RdmaTransform(_) => 7,
            Self::Signing(_) => 8,
            Self::Posix => 0x100,
            Self::Other(n) => *n,
        }
    }

    /// Parses a context. A context that a server may ignore is valid in any form (MS-SMB2 section 3.3.5.4).
    fn parse(number: u16, data: &'a [u8]) -> Result<Self, Rejected<'a>> {
        const OPTIONAL: [u16; 4] = [3, 5, 6, 7];
        match Self::known(number, data) {
            Err(_) if OPTIONAL.contains(&number) => Ok(Self::Other(number)),
            other => other.map(|(_, context)| context),
        }
    }

    fn known(number: u16, data: &'a [u8]) -> wire::Parsed<'a, Self> {
        match number {
            1 => preauth(data),
            2 => {
                // The count must be above zero, yet some clients without encryption send an empty list.
                let (i, count) = le_u16("CipherCount")(data)?;
                u16s(count.into(), "Ciphers").map(Self::Encryption).parse(i)
            }
            3 => compression(data),
            // An empty name is ignored.
            5 if !data.is_empty() => Ok((&[], Self::Netname(text(data, "NetName")?))),
            6 => le_u32("Flags").map(Self::Transport).parse(data),
            7 => {
                let count = (le_u16("TransformCount"), take(6, "Reserved")).map(|(count, _)| count);
                counted("TransformCount", count, "RDMATransformIds")
                    .map(Self::RdmaTransform)
                    .parse(data)
            }
            8 => counted(
                "SigningAlgorithmCount",
                le_u16("SigningAlgorithmCount"),
                "SigningAlgorithms",
            )
            .map(Self::Signing)
            .parse(data),
            0x100 if data == POSIX_UUID => Ok((&[], Self::Posix)),
            other => Ok((data, Self::Other(other))),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let count = |out: &mut Vec<u8>, list: &[u16]| {
            // This program sends only short lists.
            out.extend(u16::try_from(list.len()).unwrap_or(u16::MAX).to_le_bytes());
        };
        let list = |out: &mut Vec<u8>, list: &[u16]| {
            out.extend(list.iter().flat_map(|n| n.to_le_bytes()));
        };
        match self {
            Self::Preauth { algorithms, salt } => {
                count(out, algorithms);
                out.extend(u16::try_from(salt.len()).unwrap_or(u16::MAX).to_le_bytes());
                list(out, algorithms);
                out.extend(*salt);
            }
            Self::Encryption(l) | Self::Signing(l) => {
                count(out, l);
                list(out, l);
            }
            Self::Compression { flags, algorithms } => {
                count(out, algorithms);
                out.extend([0; 2]);
                out.extend(flags.to_le_bytes());
                list(out, algorithms);
            }
            Self::Netname(name) => {
                put_utf16(out, name);
            }
            Self::Transport(flags) => out.extend(flags.to_le_bytes()),
            Self::RdmaTransform(l) => {
                count(out, l);
                out.extend([0; 6]);
                list(out, l);
            }
            Self::Posix => out.extend(POSIX_UUID),
            Self::Other(_) => {}
        }
    }
}

/// Parses a count and at least one number.
fn counted<'a>(
    name: &'static str,
    mut count: impl Parser<&'a [u8], Output = u16, Error = Malformed<'a>>,
    numbers: &'static str,
) -> impl FnMut(&'a [u8]) -> wire::Parsed<'a, Vec<u16>> {
    move |input| {
        let (i, count) = count.parse(input)?;
        not_zero(count, name, input)?;
        u16s(count.into(), numbers)(i)
    }
}

fn not_zero<'a>(count: u16, name: &'static str, input: &'a [u8]) -> Result<(), Rejected<'a>> {
    if count == 0 { Err(reject(name, Rule::Value, input)) } else { Ok(()) }
}

fn preauth(data: &[u8]) -> wire::Parsed<'_, NegotiateContext<'_>> {
    let (i, (count, salt)) = (le_u16("HashAlgorithmCount"), le_u16("SaltLength")).parse(data)?;
    not_zero(count, "HashAlgorithmCount", data)?;
    let (i, (algorithms, salt)) =
        (u16s(count.into(), "HashAlgorithms"), take(salt.into(), "Salt")).parse(i)?;
    Ok((i, NegotiateContext::Preauth { algorithms, salt }))
}

fn compression(data: &[u8]) -> wire::Parsed<'_, NegotiateContext<'_>> {
    let (i, (count, _, flags)) =
        (le_u16("CompressionAlgorithmCount"), le_u16("Padding"), le_u32("Flags")).parse(data)?;
    not_zero(count, "CompressionAlgorithmCount", data)?;
    let (i, algorithms) = u16s(count.into(), "CompressionAlgorithms")(i)?;
    Ok((i, NegotiateContext::Compression { flags, algorithms }))
}

/// Parses type, length and data.
fn context(i: &[u8]) -> wire::Parsed<'_, NegotiateContext<'_>> {
    let (i, (number, len, _)) =
        (le_u16("ContextType"), le_u16("DataLength"), le_u32("Reserved")).parse(i)?;
    let (i, data) = take(len.into(), "Data")(i)?;
    Ok((i, NegotiateContext::parse(number, data)?))
}

/// Parses a list at `offset` from the header of `message`; `place` is the position of the offset field, for errors.
pub(super) fn list<'a>(
    message: &'a [u8],
    offset: u32,
    count: u16,
    place: &'a [u8],
) -> Result<Vec<NegotiateContext<'a>>, Rejected<'a>> {
    if usize::from(count) > NEGOTIATE_CONTEXTS_MAX {
        let rule = Rule::OverLimit { max: NEGOTIATE_CONTEXTS_MAX };
        return Err(reject("NegotiateContextCount", rule, place));
    }
    let mut at = size(offset);
    if count > 0 && (at < HEADER_LEN || !at.is_multiple_of(8)) {
        return Err(reject("NegotiateContextOffset", Rule::Value, place));
    }
    let mut all = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let from = message.get(at..).unwrap_or_default();
        let (rest, found) = context(from)?;
        all.push(found);
        at = (at + from.len() - rest.len()).next_multiple_of(8);
    }
    Ok(all)
}

/// Appends a list to a body; returns its offset from the header and the number of contexts.
pub(super) fn put(out: &mut Vec<u8>, all: &[NegotiateContext<'_>]) -> (u32, u16) {
    let pad = |out: &mut Vec<u8>| out.resize(out.len().next_multiple_of(8), 0);
    pad(out);
    // Bodies are far shorter than the fields allow.
    let offset = u32::try_from(HEADER_LEN + out.len()).unwrap_or(u32::MAX);
    for context in all {
        pad(out);
        out.extend(context.number().to_le_bytes());
        let len_at = out.len();
        out.extend([0; 6]);
        let from = out.len();
        context.put(out);
        let len = u16::try_from(out.len() - from).unwrap_or(u16::MAX);
        out[len_at..len_at + 2].copy_from_slice(&len.to_le_bytes());
    }
    (offset, u16::try_from(all.len()).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Parsed, whole};
    use crate::smb2::test_harness::named;

    fn parse(message: &[u8], offset: u32, count: u16) -> Parsed<Vec<NegotiateContext<'_>>> {
        whole(message, |i| Ok((i, list(message, offset, count, i)?)))
    }

    /// Part of a NEGOTIATE from Windows 10: preauthentication integrity, then encryption.
    #[test]
    fn windows_contexts_are_parsed() {
        let mut bytes = vec![0; 72];
        bytes.extend(crate::smb2::test_harness::unhex(
            "0100 2600 00000000 0100 2000 0100
             c1d2e3f405162738495a6b7c8d9eafb0c1d2e3f405162738495a6b7c8d9eafb0 0000
             0200 0600 00000000 0200 0200 0100",
        ));
        let found = parse(&bytes, 72, 2).unwrap();
        assert!(matches!(&found[0], NegotiateContext::Preauth { algorithms, salt }
            if *algorithms == [SHA_512] && salt.len() == 32));
        assert_eq!(found[1], NegotiateContext::Encryption(vec![2, 1]));
    }

    #[test]
    fn invalid_offsets_and_counts_are_refused() {
        assert_eq!(named(parse(&[0; 80], 60, 1)), Err("NegotiateContextOffset"));
        assert_eq!(named(parse(&[0; 80], 68, 1)), Err("NegotiateContextOffset"));
        assert_eq!(named(parse(&[0; 80], 80, 1)), Err("ContextType"));
        assert_eq!(named(parse(&[0; 80], 72, 33)), Err("NegotiateContextCount"));
        let with = |context: u8, data: &[u8]| {
            let len = u8::try_from(data.len()).unwrap();
            [&[0; 72], &[context, 0, len, 0, 0, 0, 0, 0][..], data].concat()
        };
        assert_eq!(
            named(parse(&with(2, &[1, 0]), 72, 1)),
            Err("Ciphers"),
            "one announced, none sent"
        );
        assert_eq!(named(parse(&with(8, &[0, 0]), 72, 1)), Err("SigningAlgorithmCount"));
        let none = with(2, &[0, 0]);
        assert_eq!(parse(&none, 72, 1).unwrap(), [NegotiateContext::Encryption(Vec::new())]);
    }
}
