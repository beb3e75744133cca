use super::*;
use crate::xdr::sample::{Sample, Seed, choices};
use crate::xdr::{decode, encode};

impl<'a, T: Sample<'a>, F: Sample<'a>> Sample<'a> for Res<T, F> {
    fn sample(seed: &mut Seed<'a>) -> Self {
        match seed.below(4) {
            0 => Self::Err(Sample::sample(seed), Sample::sample(seed)),
            _ => Self::Ok(Sample::sample(seed)),
        }
    }
}

impl<'a> Sample<'a> for Nfstime3 {
    fn sample(seed: &mut Seed<'a>) -> Self {
        Self { seconds: Sample::sample(seed), nseconds: u32::sample(seed) % 1_000_000_000 }
    }
}

choices! {
    args: Args<'_>,
    results: Results<'_>,
}

fn words(w: &[u32]) -> Vec<u8> {
    w.iter().flat_map(|v| v.to_be_bytes()).collect()
}

#[test]
fn set_attributes_follow_specification_order() {
    let time = Nfstime3 { seconds: 1, nseconds: 2 };
    let set = Sattr3 {
        mode: Some(0o640),
        size: Some(7),
        mtime: SetTime::SetToClientTime(time),
        ..Sattr3::default()
    };
    // mode, no uid, no gid, size, atime DONT_CHANGE, mtime SET_TO_CLIENT_TIME (RFC 1813 section 2.6).
    assert_eq!(encode(&set), words(&[1, 0o640, 0, 0, 1, 0, 7, 0, 2, 1, 2]));
}

#[test]
fn write_parses_up_to_data() {
    let message = words(&[4, 9, 0, 4096, 5, 2, 5, 0x6865_6c6c, 0x6f00_0000]);
    let (rest, args) = decode::<Write3args<'_>>(&message).unwrap();
    assert_eq!((args.offset, args.stable, args.data.len), (4096, StableHow::FileSync, 5));
    assert_eq!(message.len() - rest.len(), 28);
    let (rest, data) = wire::decode(rest, crate::xdr::data(args.data.len, "data")).unwrap();
    assert_eq!((rest, data), (&[][..], &b"hello"[..]));
    // The data may be outside of the message.
    assert_eq!(decode::<Write3args<'_>>(&message[..28]), Ok((&[][..], args)));
}

#[test]
fn faults_name_their_field() {
    let fault = |number, w: &[u32]| {
        let message = words(w);
        wire::decode(&message, |i| Args::parse(number, i)).unwrap_err().at(&message).to_string()
    };
    assert_eq!(fault(procedure::GETATTR, &[65]), "data over its limit of 64 at 0");
    assert_eq!(fault(procedure::READ, &[4, 9, 0]), "offset truncated at 8");
    assert_eq!(fault(procedure::WRITE, &[0, 0, 0, 4, 3, 4]), "stable invalid at 16");
    assert_eq!(fault(procedure::CREATE, &[0, 0, 3]), "createmode3 invalid at 8");
    assert_eq!(fault(procedure::MKNOD, &[0, 0, 8]), "ftype3 invalid at 8");
    assert_eq!(fault(procedure::SETATTR, &[0, 2]), "mode invalid at 4");
    let time = [0, 0, 0, 0, 0, 2, 7, 1_000_000_000];
    assert_eq!(fault(procedure::SETATTR, &time), "nseconds invalid at 28");
}

#[test]
fn unknown_status_is_refused() {
    let message = words(&[3]);
    let fault = decode::<Res<WccData, WccData>>(&message).unwrap_err().at(&message);
    assert_eq!(fault.to_string(), "status invalid at 0");
}
