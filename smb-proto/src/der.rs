//! As much of DER (ITU-T X.690) as SPNEGO needs: definite lengths, single-byte tags.

use super::Refusal;

pub(super) const OCTETS: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const GENERAL_STRING: u8 = 0x1b;
pub(super) const SEQUENCE: u8 = 0x30;
/// `[APPLICATION 0]` of RFC 2743: the frame of a first token.
pub(super) const APPLICATION_0: u8 = 0x60;

/// `[n]`, constructed.
pub(super) const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// Reads elements one after the other.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// The tag of the next element.
    pub(super) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element: its contents, and itself with its head.
    fn element(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let whole = self.0;
        let (&tag, rest) = whole.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let n = usize::from(first & 0x7f);
            if n == 0 || n > 4 {
                return None;
            }
            let (digits, rest) = rest.split_at_checked(n)?;
            let len = digits.iter().fold(0_u32, |sum, d| sum << 8 | u32::from(*d));
            (usize::try_from(len).ok()?, rest)
        };
        let (contents, after) = rest.split_at_checked(len)?;
        self.0 = after;
        Some((tag, contents, &whole[..whole.len() - after.len()]))
    }

    /// The contents of the next element, which must have this tag; `part` names it when it has not.
    pub(super) fn expect(&mut self, tag: u8, part: &'static str) -> Result<&'a [u8], Refusal> {
        match self.element() {
            Some((found, contents, _)) if found == tag => Ok(contents),
            _ => Err(Refusal::Malformed(part)),
        }
    }

    /// The next element with its head.
    pub(super) fn raw(&mut self, tag: u8, part: &'static str) -> Result<&'a [u8], Refusal> {
        match self.element() {
            Some((found, _, raw)) if found == tag => Ok(raw),
            _ => Err(Refusal::Malformed(part)),
        }
    }

    /// The contents of the next element when it has this tag.
    pub(super) fn optional(
        &mut self,
        tag: u8,
        part: &'static str,
    ) -> Result<Option<Self>, Refusal> {
        if self.peek() == Some(tag) {
            self.expect(tag, part).map(|c| Some(Self(c)))
        } else {
            Ok(None)
        }
    }
}

/// An element.
pub(super) fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let len = contents.len();
    if len < 0x80 {
        out.push(u8::try_from(len).unwrap_or_default());
    } else {
        let digits = len.to_be_bytes();
        let used = &digits[digits.iter().take_while(|d| **d == 0).count()..];
        // Invariant: a length has eight digits at most.
        out.push(0x80 | u8::try_from(used.len()).unwrap_or_default());
        out.extend_from_slice(used);
    }
    out.extend_from_slice(contents);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_have_one_form() {
        assert_eq!(element(OCTETS, &[7]), [4, 1, 7]);
        assert_eq!(element(OCTETS, &[0; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(element(OCTETS, &[0; 0x1234])[..4], [4, 0x82, 0x12, 0x34]);
        assert!(Reader(&[4, 0x80, 0, 0]).expect(OCTETS, "x").is_err(), "indefinite");
        assert!(Reader(&[4, 0x85, 0, 0, 0, 0, 0]).expect(OCTETS, "x").is_err());
        assert!(Reader(&[4, 0x84, 0xff, 0xff, 0xff, 0xff]).expect(OCTETS, "x").is_err());
        assert!(Reader(&[4, 2, 0]).expect(OCTETS, "x").is_err());
        assert!(Reader(&[]).expect(OCTETS, "x").is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(tag: u8, fill: u8, len in 0_usize..70_000) {
            let contents = vec![fill; len];
            let mut whole = element(tag, &contents);
            whole.push(9);
            let mut reader = Reader(&whole);
            prop_assert_eq!(reader.peek(), Some(tag));
            let mut again = reader;
            prop_assert_eq!(reader.expect(tag, "x").unwrap(), &contents[..]);
            prop_assert_eq!(again.raw(tag, "x").unwrap(), &whole[..whole.len() - 1]);
            prop_assert_eq!(reader.0, &[9]);
        }
    }
}
