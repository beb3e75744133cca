use proptest::prelude::*;

use super::*;
use crate::{Fault, Rule, decode, emit};

fn fault<'a, T>(
    message: &'a [u8],
    parser: impl FnOnce(&'a [u8]) -> Parsed<'a, T>,
) -> Option<(Rule, usize)> {
    let why = decode(message, parser).err()?;
    let Fault { rule, offset, .. } = why.at(message);
    Some((rule, offset))
}

#[test]
fn numbers_use_their_byte_order() {
    let message = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    assert_eq!(le_u8("f")(&message), Ok((&message[1..], 1)));
    assert_eq!(le_u16("f")(&message), Ok((&message[2..], 0x0201)));
    assert_eq!(le_u32("f")(&message), Ok((&message[4..], 0x0403_0201)));
    assert_eq!(le_u64("f")(&message), Ok((&message[8..], 0x0807_0605_0403_0201)));
    assert_eq!(be_u32("f")(&message), Ok((&message[4..], 0x0102_0304)));
    assert_eq!(be_u64("f")(&message), Ok((&message[8..], 0x0102_0304_0506_0708)));
    assert_eq!(bytes::<3>("f")(&message), Ok((&message[3..], [1, 2, 3])));
    assert_eq!(take(2, "f")(&message), Ok((&message[2..], &message[..2])));
}

#[test]
fn short_field_is_truncated_at_start() {
    let whole = |i| (be_u32("a"), be_u64("b")).parse(i);
    for len in 0..12 {
        let at = if len < 4 { 0 } else { 4 };
        assert_eq!(fault(&[0; 12][..len], whole), Some((Rule::Truncated, at)), "{len}");
    }
    assert_eq!(fault(&[0; 12], whole), None);
    assert_eq!(fault(&[1], le_u16("f")), Some((Rule::Truncated, 0)));
    assert_eq!(fault(&[], le_u8("f")), Some((Rule::Truncated, 0)));
    assert_eq!(fault(&[1; 3], take(4, "f")), Some((Rule::Truncated, 0)));
}

#[test]
fn opaque_requires_limit_and_padding() {
    let message = [0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0, 9];
    assert_eq!(opaque(5, "f")(&message), Ok((&[9][..], &message[4..9])));
    assert_eq!(fault(&message, opaque(4, "f")), Some((Rule::OverLimit { max: 4 }, 0)));
    assert_eq!(fault(&message[..11], opaque(5, "f")), Some((Rule::Truncated, 9)));
    assert_eq!(fault(&message[..8], opaque(5, "f")), Some((Rule::Truncated, 4)));
    assert_eq!(fault(&[0xff; 8], opaque(usize::MAX, "f")), Some((Rule::Truncated, 4)));
}

#[test]
fn count_is_checked_before_allocation() {
    let two = [0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 8];
    assert_eq!(list(2, "f", be_u32("e"))(&two), Ok((&[][..], vec![7, 8])));
    assert_eq!(fault(&two, list(1, "f", be_u32("e"))), Some((Rule::OverLimit { max: 1 }, 0)));
    assert_eq!(fault(&two[..10], list(2, "f", be_u32("e"))), Some((Rule::Truncated, 8)));
    // A peer's count within the limit allocates no more than the message could contain.
    let many = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 7];
    assert_eq!(fault(&many, list(usize::MAX, "f", be_u64("e"))), Some((Rule::Truncated, 4)));
    let (_, made) = times(2, le_u8("e"))(&[1, 2, 3]).unwrap();
    assert_eq!(made, [1, 2]);
}

#[test]
fn invalid_values_are_rejected() {
    let yes = [0, 0, 0, 1, 0, 0, 0, 7];
    assert_eq!(bool("f")(&yes[..4]), Ok((&[][..], true)));
    assert_eq!(optional("f", be_u32("v"))(&yes), Ok((&[][..], Some(7))));
    assert_eq!(optional("f", be_u32("v"))(&[0; 4]), Ok((&[][..], None)));
    assert_eq!(fault(&[0, 0, 0, 2], bool("f")), Some((Rule::Value, 0)));
    assert_eq!(fault(&yes[..6], optional("f", be_u32("v"))), Some((Rule::Truncated, 4)));
    let even = |n: u32| n.is_multiple_of(2).then_some(n / 2);
    assert_eq!(known("f", be_u32("f"), even)(&[0, 0, 0, 4]), Ok((&[][..], 2)));
    assert_eq!(fault(&[0, 0, 0, 1], known("f", be_u32("f"), even)), Some((Rule::Value, 0)));
}

#[test]
fn bulk_data_is_not_accessed() {
    let message = [0, 0, 0, 9, 0, 0, 0, 100];
    let (rest, (_, data)) = (be_u32("count"), bulk(100, "data")).parse(&message[..]).unwrap();
    assert_eq!((data.at(&message), data.len, rest), (8, 100, &[][..]));
    let over = |i| (be_u32("count"), bulk(99, "data")).parse(i);
    assert_eq!(fault(&message, over), Some((Rule::OverLimit { max: 99 }, 4)));
}

proptest! {
    #[test]
    fn encoded_fields_round_trip(
        small in any::<(u16, u32)>(),
        big in any::<(u32, u64)>(),
        data in proptest::collection::vec(any::<u8>(), 0..40),
        behind in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        let mut out = Vec::new();
        emit::le_u16(&mut out, small.0);
        emit::le_u32(&mut out, small.1);
        emit::be_u32(&mut out, big.0);
        emit::be_u64(&mut out, big.1);
        let at = out.len();
        emit::opaque(&mut out, &data);
        prop_assert_eq!((out.len() - at) % 4, 0);
        let end = out.len();
        out.extend_from_slice(&behind);
        let all = |i| (le_u16("a"), le_u32("b"), be_u32("c"), be_u64("d"), opaque(40, "e")).parse(i);
        let (rest, (a, b, c, d, e)) = decode(&out, all).unwrap();
        prop_assert_eq!(((a, b), (c, d), e, rest), (small, big, &data[..], &behind[..]));
        // Every shorter message is truncated, at or before its end.
        for len in 0..end {
            let fault = decode(&out[..len], all).unwrap_err().at(&out[..len]);
            prop_assert_eq!(fault.rule, Rule::Truncated);
            prop_assert!(fault.offset <= len);
        }
    }

    #[test]
    fn list_parses_like_its_elements(
        items in proptest::collection::vec(any::<u64>(), 0..20),
        max in 0usize..20,
    ) {
        let mut out = Vec::new();
        emit::count(&mut out, items.len());
        items.iter().for_each(|v| emit::be_u64(&mut out, *v));
        match decode(&out, list(max, "f", be_u64("e"))) {
            Ok((rest, read)) => {
                prop_assert!(rest.is_empty() && read.len() <= max);
                prop_assert_eq!(read, items);
            }
            Err(why) => {
                prop_assert_eq!(why.rule, Rule::OverLimit { max });
                prop_assert!(items.len() > max);
            }
        }
    }
}
