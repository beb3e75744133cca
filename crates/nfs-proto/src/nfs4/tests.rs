use super::attrs::{Bitmap4, Fattr4, Value, put_fattr};
use super::ops::{Args, ReadDone, Res, ResWith, Results, argop};
use super::*;
use crate::xdr::sample::{Sample, Seed, choices, round_trips};
use crate::xdr::{decode, encode};

impl<'a> Sample<'a> for Bitmap4 {
    fn sample(seed: &mut Seed<'a>) -> Self {
        let words = [(); 4].map(|()| match seed.below(3) {
            0 => 0,
            _ => u32::sample(seed),
        });
        let count = seed.below(5);
        let mut bytes = words[..count].iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        bytes.splice(0..0, u32::try_from(count).unwrap().to_be_bytes());
        decode::<Bitmap4>(&bytes).unwrap().1
    }
}

impl<'a, T: Sample<'a>> Sample<'a> for Res<T> {
    fn sample(seed: &mut Seed<'a>) -> Self {
        match Nfsstat4::sample(seed) {
            Nfsstat4::Perm | Nfsstat4::Io => Self::Err(Nfsstat4::Io),
            _ => Self::Ok(Sample::sample(seed)),
        }
    }
}

impl<'a, T: Sample<'a>, F: Sample<'a>, const STATUS: u32> Sample<'a> for ResWith<T, F, STATUS> {
    fn sample(seed: &mut Seed<'a>) -> Self {
        match seed.below(3) {
            0 => Self::Ok(Sample::sample(seed)),
            1 => Self::With(Sample::sample(seed)),
            _ => Self::Err(Nfsstat4::Perm),
        }
    }
}

impl<'a> Sample<'a> for cb::OffloadInfo4 {
    fn sample(seed: &mut Seed<'a>) -> Self {
        match bool::sample(seed) {
            true => Self::Ok(Sample::sample(seed)),
            false => Self::Failed(Nfsstat4::Io, Sample::sample(seed)),
        }
    }
}

choices! {
    args: Args<'_>,
    results: Results<'_>,
    callback_args: cb::Args<'_>,
    callback_results: cb::Results<'_>,
    values: Value<'_>,
}

round_trips! {
    compound: Compound<'_>,
    compounded: Compounded<'_>,
    callback_compound: cb::Compound<'_>,
    callback_compounded: cb::Compounded<'_>,
}

fn words(w: &[u32]) -> Vec<u8> {
    w.iter().flat_map(|v| v.to_be_bytes()).collect()
}

#[test]
fn every_operation_has_both_types() {
    for number in op::ACCESS..=op::REMOVEXATTR {
        assert!(Args::NUMBERS.contains(&number), "{}", op::name(number));
        assert!(Results::NUMBERS.contains(&number), "{}", op::name(number));
    }
    assert_eq!(Args::parse(op::ILLEGAL, &[]).unwrap().1, None);
}

#[test]
fn compound_parses_operation_by_operation() {
    // SEQUENCE, PUTFH, WRITE of five bytes, whose data are outside of the message.
    let sequence = [53, 1, 2, 3, 4, 9, 0, 0, 1];
    let write = [38, 0, 0, 0, 0, 0, 4096, 2, 5];
    let message = words(&[&[0, 1, 3][..], &sequence, &[22, 4, 7], &write].concat());
    let (rest, compound) = decode::<Compound<'_>>(&message).unwrap();
    assert_eq!((compound.minorversion, compound.argarray), (1, 3));
    let (rest, (number, _)) = wire::decode(rest, argop).unwrap();
    assert_eq!(number, op::SEQUENCE);
    let (rest, (_, putfh)) = wire::decode(rest, argop).unwrap();
    assert_eq!(putfh, Some(Args::Putfh(ops::NfsFh4 { object: &[0, 0, 0, 7] })));
    let (rest, (_, write)) = wire::decode(rest, argop).unwrap();
    let Some(Args::Write(write)) = write else { panic!("{write:?}") };
    assert_eq!((rest, write.offset, write.data.len), (&[][..], 4096, 5));
}

#[test]
fn read_parses_up_to_data() {
    let message = words(&[0, 1, 3, 0x6162_6300]);
    let (rest, read) = decode::<Res<ReadDone>>(&message).unwrap();
    let Res::Ok(read) = read else { panic!("{read:?}") };
    assert!(read.eof);
    let data = wire::decode(rest, crate::xdr::data(read.data.len, "data"));
    assert_eq!(data, Ok((&[][..], &b"abc"[..])));
}

#[test]
fn trailing_zero_words_are_omitted() {
    assert_eq!(encode(&Bitmap4::EMPTY), words(&[0]));
    assert_eq!(encode(&Bitmap4::of(&[1])), words(&[1, 2]));
    assert_eq!(encode(&Bitmap4::of(&[33])), words(&[2, 0, 2]));
}

#[test]
fn unknown_attributes_are_noticed() {
    let of = |w: &[u32]| {
        let bytes = words(w);
        decode::<Bitmap4>(&bytes).map(|(_, set)| set).map_err(|e| e.rule)
    };
    let set = of(&[4, 0, 0, 0, 1]).unwrap();
    assert!(!set.is_empty());
    assert!(!set.is_within(&Bitmap4::of(&[1])));
    assert_eq!(of(&[4, 0, 0, 0, 0]), Ok(Bitmap4::EMPTY));
    let long = vec![65; 66];
    assert_eq!(of(&long), Err(wire::Rule::OverLimit { max: 64 }));
}

#[test]
fn values_follow_attribute_order() {
    let mask = Bitmap4::of(&[attr::TYPE, attr::SIZE, attr::OWNER]);
    let values = [
        Value::Type(attrs::NfsFtype4::Reg),
        Value::Size(7),
        Value::Owner(ops::Component4 { name: b"me" }),
    ];
    let mut bytes = Vec::new();
    put_fattr(&mask, &values, &mut bytes);
    assert_eq!(bytes, words(&[2, 0x12, 0x10, 20, 1, 0, 7, 2, 0x6d65_0000]));
    let (rest, fattr) = decode::<Fattr4<'_>>(&bytes).unwrap();
    assert_eq!(rest, &[][..]);
    assert_eq!(fattr.values().unwrap().1, values);
    let long = Fattr4 { attr_vals: &bytes[16..], ..fattr };
    assert!(long.values().is_ok());
    let cut = Fattr4 { attrmask: Bitmap4::of(&[attr::TYPE]), ..fattr };
    assert!(cut.values().is_err(), "bytes behind the last value");
}

proptest::proptest! {
    #[test]
    fn attribute_sets_obey_set_algebra(a: [u32; 3], b: [u32; 3]) {
        let of = |w: [u32; 3]| decode::<Bitmap4>(&words(&[3, w[0], w[1], w[2]])).unwrap().1;
        let (a, b) = (of(a), of(b));
        proptest::prop_assert!(a.and(&b).is_within(&a));
        proptest::prop_assert!(a.is_within(&a.or(&b)));
        proptest::prop_assert_eq!(a.without(&b).or(&a.and(&b)), a);
        for n in 0..96 {
            proptest::prop_assert_eq!(a.has(n), a.iter().any(|m| m == n));
        }
    }
}

#[test]
fn status_numbers_match_specifications() {
    assert_eq!(Nfsstat4::Stale as u32, 70);
    assert_eq!(Nfsstat4::OpIllegal as u32, 10044);
    assert_eq!(Nfsstat4::DelegRevoked as u32, 10087);
    assert_eq!(Nfsstat4::Xattr2Big as u32, 10096);
    // 19 exists only in NFSv3, 10073 is unused.
    assert_eq!(Nfsstat4::from_u32(19), None);
    assert_eq!(Nfsstat4::from_u32(10073), None);
    assert!(Nfsstat4::ALL.iter().all(|s| Nfsstat4::from_u32(*s as u32) == Some(*s)));
}
