//! The SMB1 NEGOTIATE by which old clients ask for SMB2 (MS-SMB2 section 3.3.5.3). Nothing else of SMB1 exists here.

use super::{Fields, Malformed, Parsed};

/// The first four bytes.
pub const PROTOCOL_ID: [u8; 4] = *b"\xffSMB";
/// SMB_COM_NEGOTIATE
const NEGOTIATE: u8 = 0x72;
/// Bytes of the SMB1 header.
const HEADER_LEN: usize = 32;

/// What such a client can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// `SMB 2.002`
    pub v202: bool,
    /// `SMB 2.???`
    pub later: bool,
}

/// Reads the dialects of an SMB1 NEGOTIATE.
pub fn parse(message: &[u8]) -> Parsed<Offer> {
    let mut f = Fields::new(message, 0);
    if f.array::<4>("Protocol")? != PROTOCOL_ID {
        return Err(Malformed("Protocol"));
    }
    if f.u8("Command")? != NEGOTIATE {
        return Err(Malformed("Command"));
    }
    let mut f = Fields::new(message, HEADER_LEN);
    if f.u8("WordCount")? != 0 {
        return Err(Malformed("WordCount"));
    }
    let len = usize::from(f.u16("ByteCount")?);
    let mut rest = f.bytes(len, "Dialects")?;
    let mut offer = Offer::default();
    while let Some((format, text)) = rest.split_first() {
        let end = text.iter().position(|b| *b == 0).ok_or(Malformed("Dialects"))?;
        if *format != 2 {
            return Err(Malformed("BufferFormat"));
        }
        offer.v202 |= &text[..end] == b"SMB 2.002";
        offer.later |= &text[..end] == b"SMB 2.???";
        rest = &text[end + 1..];
    }
    Ok(offer)
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
    fn the_dialects_of_smb2_are_found() {
        let offer = |d: &[&str]| parse(&negotiate(d)).unwrap();
        assert_eq!(offer(&["NT LM 0.12"]), Offer::default());
        assert_eq!(offer(&["NT LM 0.12", "SMB 2.002"]), Offer { v202: true, later: false });
        assert_eq!(offer(&["SMB 2.002", "SMB 2.???"]), Offer { v202: true, later: true });
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(tail in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = negotiate(&[]);
            bytes.truncate(HEADER_LEN);
            bytes.extend(tail);
            let _ = parse(&bytes);
        }
    }
}
