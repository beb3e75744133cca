//! The part of DER (ITU-T X.690) that SPNEGO needs: definite lengths, single-byte tags.

use wire::{Malformed, Parser, Rule, le_u8, reject, take};

pub(crate) const OCTETS: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const GENERAL_STRING: u8 = 0x1b;
pub(crate) const SEQUENCE: u8 = 0x30;
/// `[APPLICATION 0]` of RFC 2743: the frame of an initial token.
pub(crate) const APPLICATION_0: u8 = 0x60;

/// Returns the constructed tag `[n]`.
pub(crate) const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// Parses the contents of an element with this tag.
pub(crate) fn contents<'a>(
    tag: u8,
    field: &'static str,
) -> impl Fn(&'a [u8]) -> wire::Parsed<'a, &'a [u8]> + Copy {
    /// Maximum number of bytes in a length: 4 GiB.
    const DIGITS_MAX: u8 = 4;
    move |i| {
        let (rest, (found, first)) = (le_u8(field), le_u8(field)).parse(i)?;
        let digits = first & 0x7f;
        let (rest, len) = match first {
            _ if found != tag => return Err(reject(field, Rule::Value, i)),
            0..0x80 => (rest, usize::from(digits)),
            // 0x80 is the indefinite form, which DER forbids.
            0x80 => return Err(reject(field, Rule::Value, i)),
            _ if digits > DIGITS_MAX => {
                let max = usize::from(DIGITS_MAX);
                return Err(reject(field, Rule::OverLimit { max }, i));
            }
            _ => {
                let (rest, digits) = take(digits.into(), field)(rest)?;
                (rest, digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)))
            }
        };
        take(len, field)(rest)
    }
}

/// Parses the contents of an element with this tag with `each`. Ignores the bytes after them, which later versions may add.
pub(crate) fn inside<'a, T>(
    tag: u8,
    field: &'static str,
    mut each: impl Parser<&'a [u8], Output = T, Error = Malformed<'a>>,
) -> impl FnMut(&'a [u8]) -> wire::Parsed<'a, T> {
    move |i| {
        let (rest, contents) = contents(tag, field)(i)?;
        let (_, value) = each.parse(contents)?;
        Ok((rest, value))
    }
}

/// Parses an optional element: `None` if the next element has another tag or does not exist.
pub(crate) fn optional<'a, T>(
    tag: u8,
    field: &'static str,
    each: impl Parser<&'a [u8], Output = T, Error = Malformed<'a>>,
) -> impl FnMut(&'a [u8]) -> wire::Parsed<'a, Option<T>> {
    let mut there = inside(tag, field, each);
    move |i| match i.first() {
        Some(found) if *found == tag => there(i).map(|(rest, value)| (rest, Some(value))),
        _ => Ok((i, None)),
    }
}

/// Serializes an element.
pub(crate) fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
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
    use crate::parse::whole;

    fn said(bytes: &[u8]) -> String {
        whole(bytes, contents(OCTETS, "x")).unwrap_err().to_string()
    }

    #[test]
    fn only_minimal_lengths_are_accepted() {
        assert_eq!(element(OCTETS, &[7]), [4, 1, 7]);
        assert_eq!(element(OCTETS, &[0; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(element(OCTETS, &[0; 0x1234])[..4], [4, 0x82, 0x12, 0x34]);
        assert_eq!(said(&[4, 0x80, 0, 0]), "x invalid at 0", "indefinite");
        assert_eq!(said(&[4, 0x85, 0, 0, 0, 0, 0]), "x over its limit of 4 at 0");
        assert_eq!(said(&[4, 0x84, 0xff, 0xff, 0xff, 0xff]), "x truncated at 6");
        assert_eq!(said(&[4, 0x84, 0xff, 0xff]), "x truncated at 2");
        assert_eq!(said(&[4, 2, 0]), "x truncated at 2");
        assert_eq!(said(&[6, 1, 0]), "x invalid at 0", "another tag");
        assert_eq!(said(&[4]), "x truncated at 1");
        assert_eq!(said(&[]), "x truncated at 0");
    }

    #[test]
    fn optional_elements_may_be_absent() {
        let mut one = optional(context(1), "x", contents(OCTETS, "y"));
        assert_eq!(one(&[0xa1, 3, 4, 1, 7, 9]), Ok((&[9][..], Some(&[7][..]))));
        assert_eq!(one(&[0xa2, 0]), Ok((&[0xa2, 0][..], None)));
        assert_eq!(one(&[]), Ok((&[][..], None)));
        assert!(one(&[0xa1, 2, 6, 0]).is_err(), "not what belongs in it");
    }

    proptest! {
        #[test]
        fn values_round_trip(tag: u8, fill: u8, len in 0_usize..70_000) {
            let inner = vec![fill; len];
            let mut bytes = element(tag, &inner);
            bytes.push(9);
            prop_assert_eq!(contents(tag, "x")(&bytes), Ok((&[9][..], &inner[..])));
        }
    }
}
