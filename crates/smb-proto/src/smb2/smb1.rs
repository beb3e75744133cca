//! The SMB1 NEGOTIATE with which old clients request SMB2 (MS-SMB2 section 3.3.5.3). No other part of SMB1 is supported.

use wire::{Parser, Rule, bytes, le_u8, le_u16, reject, take};

use super::Parsed;
use crate::parse::{constant, whole};

/// The first four bytes of the message.
pub const PROTOCOL_ID: [u8; 4] = *b"\xffSMB";
/// SMB_COM_NEGOTIATE
const NEGOTIATE: u8 = 0x72;
/// Length of the SMB1 header, in bytes.
const HEADER_LEN: usize = 32;

/// The SMB2 dialects in an SMB1 NEGOTIATE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Smb1Dialects {
    /// `SMB 2.002`
    pub v202: bool,
    /// `SMB 2.???`
    pub later: bool,
}

/// Parses the dialects of an SMB1 NEGOTIATE.
pub fn parse(message: &[u8]) -> Parsed<Smb1Dialects> {
    whole(message, |i| {
        let (i, ()) = constant("Protocol", bytes("Protocol"), PROTOCOL_ID)(i)?;
        let (i, ()) = constant("Command", le_u8("Command"), NEGOTIATE)(i)?;
        let (i, _) = take(HEADER_LEN - 5, "Header")(i)?;
        let (i, ()) = constant("WordCount", le_u8("WordCount"), 0)(i)?;
        let (i, len) = le_u16("ByteCount")(i)?;
        let (i, mut dialects) = take(len.into(), "Dialects")(i)?;
        let mut offer = Smb1Dialects::default();
        while !dialects.is_empty() {
            let (rest, name) = dialect(dialects)?;
            offer.v202 |= name == b"SMB 2.002";
            offer.later |= name == b"SMB 2.???";
            dialects = rest;
        }
        Ok((i, offer))
    })
}

/// Builds the response to an SMB1 NEGOTIATE without a supported dialect: `DialectIndex` 0xffff (MS-CIFS section 2.2.4.52.2). The
/// header is copied from the request and marked as a successful response.
pub fn no_dialect(message: &[u8]) -> Vec<u8> {
    let mut out = message.first_chunk::<HEADER_LEN>().copied().unwrap_or_default().to_vec();
    // Status, FLAGS_REPLY, and no signature.
    out[5..9].fill(0);
    out[9] |= 0x80;
    out[14..22].fill(0);
    // WordCount, DialectIndex, ByteCount.
    out.extend([1, 0xff, 0xff, 0, 0]);
    out
}

/// Parses a name: its format, which is 2, then text up to the terminator.
fn dialect(i: &[u8]) -> wire::Parsed<'_, &[u8]> {
    let (i, ()) = constant("BufferFormat", le_u8("BufferFormat"), 2)(i)?;
    let end = i.iter().position(|b| *b == 0);
    let end = end.ok_or_else(|| reject("Dialects", Rule::Truncated, i))?;
    (take(end, "Dialects"), le_u8("Dialects")).map(|(name, _)| name).parse(i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn negotiate(dialects: &[&str]) -> Vec<u8> {
        let mut out = vec![0; HEADER_LEN];
        out[..4].copy_from_slice(&PROTOCOL_ID);
        out[4] = NEGOTIATE;
        let list: Vec<u8> =
            dialects.iter().flat_map(|d| [b"\x02", d.as_bytes(), b"\0"].concat()).collect();
        out.push(0);
        out.extend(u16::try_from(list.len()).unwrap().to_le_bytes());
        out.extend(list);
        out
    }

    #[test]
    fn smb2_dialects_are_found() {
        let offer = |d: &[&str]| parse(&negotiate(d)).unwrap();
        assert_eq!(offer(&["NT LM 0.12"]), Smb1Dialects::default());
        assert_eq!(offer(&["NT LM 0.12", "SMB 2.002"]), Smb1Dialects { v202: true, later: false });
        assert_eq!(offer(&["SMB 2.002", "SMB 2.???"]), Smb1Dialects { v202: true, later: true });
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = negotiate(&[]);
            bytes.truncate(HEADER_LEN);
            bytes.extend(tail);
            let _ = parse(&bytes);
        }
    }
}
