use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;

use super::*;
use crate::unhex;

#[test]
fn rfc_3961_n_fold_matches() {
    assert_eq!(n_fold::<8>(b"012345")[..], unhex("be072631276b1955"));
    assert_eq!(n_fold::<7>(b"password")[..], unhex("78a07b6caf85fa"));
    assert_eq!(n_fold::<8>(b"Rough Consensus, and Running Code")[..], unhex("bb6ed30870b7f0e0"));
    let folded = unhex("59e4a8ca7c0385c3c37b3f6d2000247cb6e6bd5b3e");
    assert_eq!(n_fold::<21>(b"password")[..], folded);
    let folded = unhex("db3b0d8f0b061e603282b308a50841229ad798fab9540c1b");
    assert_eq!(n_fold::<24>(b"MASSACHVSETTS INSTITVTE OF TECHNOLOGY")[..], folded);
    assert_eq!(n_fold::<21>(b"Q")[..], unhex("518a54a215a8452a518a54a215a8452a518a54a215"));
    assert_eq!(n_fold::<21>(b"ba")[..], unhex("fb25d531ae8974499f52fd92ea9857c4ba24cf297e"));
    let folded = unhex("6b65726265726f737b9b5b2b93132b935c9bdcdad95c9899c4cae4dee6d6cae4");
    assert_eq!(n_fold::<32>(b"kerberos")[..], folded);
    assert_eq!(n_fold::<16>(b"kerberos")[..], folded[..16]);
    assert_eq!(n_fold::<8>(b"kerberos"), *b"kerberos");
}

/// The keys of RFC 3962 appendix B are DK(PBKDF2(password), "kerberos").
#[test]
fn rfc_3962_keys_match() {
    let key = |enctype: Enctype, rounds| {
        let (salt, password) = (b"ATHENA.MIT.EDUraeburn", b"password");
        let rounds = NonZeroU32::new(rounds).unwrap();
        let mut seed = vec![0; enctype.key_len()];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, rounds, salt, password, &mut seed);
        dk(enctype, &seed, b"kerberos").unwrap().to_vec()
    };
    let [short, long] = [Enctype::Aes128Sha1, Enctype::Aes256Sha1];
    assert_eq!(key(short, 1), unhex("42263c6e89f4fc28b8df68ee09799f15"));
    let expected = unhex("fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161");
    assert_eq!(key(long, 1), expected);
    assert_eq!(key(short, 1200), unhex("4c01cd46d632d01e6dbe230a01ed642a"));
    let expected = unhex("55a6ac740ad17b4846941051e1e8b0a7548d93b0ab30a8bc3ff16280382b8c2a");
    assert_eq!(key(long, 1200), expected);
}

#[test]
fn rfc_8009_keys_match() {
    let all = [Purpose::Checksum, Purpose::Encryption, Purpose::Integrity];
    let derived = |enctype, base: &str| {
        all.map(|purpose| derived(enctype, &unhex(base), 2, purpose).unwrap().to_vec())
    };
    let short = derived(Enctype::Aes128Sha2, "3705d96080c17728a0e800eab6e0d23c");
    let expected = [
        "b31a018a48f54776f403e9a396325dc3",
        "9b197dd1e8c5609d6e67c3e37c62c72e",
        "9fda0e56ab2d85e1569a688696c26a6c",
    ];
    assert_eq!(short, expected.map(unhex));
    let base = "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52";
    let expected = [
        "ef5718be86cc84963d8bbb5031e9f5c4ba41f28faf69e73d",
        "56ab22bee63d82d7bc5227f6773f8ea7a5eb1c825160c38312980c442e5c7e49",
        "69b16514e3cd8e56b82010d5c73012b622c4d00ffc23ed1f",
    ];
    assert_eq!(derived(Enctype::Aes256Sha2, base), expected.map(unhex));
}

#[test]
fn only_aes_types_are_supported() {
    let known: Vec<i32> = (-200..200).filter(|n| Enctype::from_number(*n).is_some()).collect();
    assert_eq!(known, [17, 18, 19, 20]);
    for enctype in Enctype::ALL {
        for len in 0..40 {
            let made = UsageKeys::derive(enctype, &vec![1; len], 22);
            assert_eq!(made.is_ok(), len == enctype.key_len(), "{} of {len}", enctype.name());
        }
    }
}
