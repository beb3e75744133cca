use super::*;
use crate::xdr::encode;
use crate::xdr::sample::{Sample, Seed, choices};

impl<'a> Sample<'a> for Testrply<'a> {
    fn sample(seed: &mut Seed<'a>) -> Self {
        match Stat::sample(seed) {
            Stat::Denied => Self::Denied(Sample::sample(seed)),
            stat => Self::Stat(stat),
        }
    }
}

choices! {
    args: Args<'_>,
    results: Results<'_>,
}

fn bytes(w: &[u32]) -> Vec<u8> {
    w.iter().flat_map(|v| v.to_be_bytes()).collect()
}

const LOCK: Lock<'_> = Lock {
    caller_name: b"host",
    fh: b"\x01\x02\x03\x04\x05",
    oh: b"7@host",
    svid: -2,
    l_offset: 0x1_0000_0002,
    l_len: 9,
};

/// The encoded lock: name, handle, owner, svid, offset, length.
const LOCK_WORDS: [u32; 13] = [
    4,
    0x686f_7374,
    5,
    0x0102_0304,
    0x0500_0000,
    6,
    0x3740_686f,
    0x7374_0000,
    0xffff_fffe,
    1,
    2,
    0,
    9,
];

#[test]
fn procedure_encodings_match_specification() {
    let cookie: &[u8] = b"abcd";
    let (c, l) = ([4, 0x6162_6364], LOCK_WORDS);
    let alock = LOCK;
    let full = Lockargs { cookie, block: true, exclusive: false, alock, reclaim: true, state: 5 };
    let share_words = [&c[..], &l[..8], &[2, 1, 0]].concat();
    let share = Share {
        caller_name: b"host",
        fh: LOCK.fh,
        oh: LOCK.oh,
        mode: ShMode::DenyWrite,
        access: ShAccess::Read,
    };
    let share = Shareargs { cookie, share, reclaim: false };
    let test = |exclusive| Testargs { cookie, exclusive, alock };
    let cancel = Cancargs { cookie, block: false, exclusive: true, alock };
    let cases: Vec<(Vec<u32>, Vec<u32>, Args<'_>)> = vec![
        (vec![0], vec![], Args::Null),
        (vec![1, 6], [&c[..], &[1], &l].concat(), Args::Test(test(true))),
        (vec![2, 7, 22], [&c[..], &[1, 0], &l, &[1, 5]].concat(), Args::Lock(full)),
        (vec![3, 8], [&c[..], &[0, 1], &l].concat(), Args::Cancel(cancel)),
        (vec![4, 9], [&c[..], &l].concat(), Args::Unlock(Unlockargs { cookie, alock })),
        (vec![5, 10], [&c[..], &[0], &l].concat(), Args::Granted(test(false))),
        (
            vec![12, 13, 14, 15],
            [&c[..], &[4]].concat(),
            Args::Res(Res { cookie, stat: Stat::DeniedGracePeriod }),
        ),
        (vec![20], share_words.clone(), Args::Share(share)),
        (vec![21], share_words, Args::Unshare(share)),
        (vec![23], vec![4, 0x686f_7374, 7], Args::FreeAll(Notify { name: b"host", state: 7 })),
    ];
    for (numbers, words, wanted) in cases {
        let message = bytes(&words);
        for number in numbers {
            let (rest, args) = Args::parse(number, &message).unwrap();
            assert_eq!((rest, args), (&[][..], Some(wanted.clone())), "procedure {number}");
        }
    }
    for number in [16, 17, 18, 19, 24, u32::MAX] {
        assert_eq!(Args::parse(number, &[0; 256]).unwrap().1, None);
    }
}

#[test]
fn invalid_lengths_and_values_are_refused() {
    let of = |number, w: &[u32]| {
        let message = bytes(w);
        Args::parse(number, &message).map(|_| ()).map_err(|e| match e {
            nom::Err::Error(why) => why.at(&message).to_string(),
            other => format!("{other:?}"),
        })
    };
    let long = |before: &[u32], length| [before, &[length], &[0; 300]].concat();
    let err = |text: &str| Err(text.to_owned());
    use procedure as p;
    assert_eq!(of(p::UNLOCK, &long(&[], 1025)), err("cookie over its limit of 1024 at 0"));
    assert_eq!(of(p::UNLOCK, &long(&[0], 1025)), err("caller_name over its limit of 1024 at 4"));
    assert_eq!(of(p::UNLOCK, &long(&[0, 0], 65)), err("fh over its limit of 64 at 8"));
    assert_eq!(of(p::UNLOCK, &[0, 0, 0, u32::MAX]), err("oh over its limit of 1024 at 12"));
    assert_eq!(of(p::TEST, &[0, 2]), err("exclusive invalid at 4"));
    assert_eq!(of(p::LOCK_RES, &[0, 10]), err("stat invalid at 4"));
    assert_eq!(of(p::SHARE, &[0, 0, 0, 0, 4, 0, 0]), err("mode invalid at 16"));
    assert_eq!(of(p::SHARE, &[0, 0, 0, 0, 0, 4, 0]), err("access invalid at 20"));
}

#[test]
fn result_encodings_match_specification() {
    let cookie: &[u8] = b"abcd";
    let c = [4, 0x6162_6364];
    assert_eq!(encode(&Res { cookie, stat: Stat::Fbig }), bytes(&[c[0], c[1], 8]));
    let share = Shareres { cookie, stat: Stat::Granted, sequence: 0 };
    assert_eq!(encode(&share), bytes(&[c[0], c[1], 0, 0]));
    let holder = Holder { exclusive: true, svid: 9, oh: b"me", l_offset: 3, l_len: 10 };
    let held = Testres { cookie, stat: Testrply::Denied(holder) };
    assert_eq!(encode(&held), bytes(&[c[0], c[1], 1, 1, 9, 2, 0x6d65_0000, 0, 3, 0, 10]));
}
