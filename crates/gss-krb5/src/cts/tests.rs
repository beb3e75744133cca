use super::*;
use crate::{Enctype, unhex};

fn keys(enctype: Enctype, cipher: &[u8]) -> UsageKeys {
    UsageKeys::of(enctype, cipher, [&[1], &[2]]).unwrap()
}

#[test]
fn rfc_3962_ciphertexts_match() {
    let keys = keys(Enctype::Aes128Sha1, b"chicken teriyaki");
    let text = *b"I would like the General Gau's Chicken, please, and wonton soup.";
    let vectors = [
        (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
        (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
        (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
        (
            47,
            "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e39312523a78662d5be7fcbcc98ebf5",
        ),
        (
            48,
            "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd839312523a78662d5be7fcbcc98ebf5a8",
        ),
        (
            64,
            "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a84807efe836ee89a526730dbc2f7bc840\
             9dad8bbb96c4cdc03bc103e1a194bbd8",
        ),
    ];
    for (len, expected) in vectors {
        let mut work = text[..len].to_vec();
        let tag = encrypt(&keys, &mut [&mut work]).unwrap();
        assert_eq!(work, unhex(expected), "{len} bytes");
        decrypt(&keys, &mut [&mut work], &tag).unwrap();
        assert_eq!(work, text[..len], "{len} bytes");
    }
}

fn sealed(enctype: Enctype, base: &str, confounder: &str, plain: &[u8]) -> Vec<u8> {
    let keys = UsageKeys::derive(enctype, &unhex(base), 2).unwrap();
    let (mut first, mut rest) = (unhex(confounder), plain.to_vec());
    let tag = encrypt(&keys, &mut [&mut first, &mut rest]).unwrap();
    let mut all = [&first[..], &rest[..], &tag[..]].concat();
    let end = all.len() - tag.len();
    let (message, tag) = all.split_at_mut(end);
    let mut work = message.to_vec();
    decrypt(&keys, &mut [&mut work], tag).unwrap();
    assert_eq!(work[BLOCK..], *plain);
    all
}

#[test]
fn rfc_8009_ciphertexts_match() {
    let plain: Vec<u8> = (0..21).collect();
    let vectors = [
        (
            0,
            "7e5895eaf2672435bad817f545a37148",
            "ef85fb890bb8472f4dab20394dca781dad877eda39d50c870c0d5a0a8e48c718",
        ),
        (
            6,
            "7bca285e2fd4130fb55b1a5c83bc5b24",
            "84d7f30754ed987bab0bf3506beb09cfb55402cef7e6877ce99e247e52d16ed4421dfdf8976c",
        ),
        (
            16,
            "56ab21713ff62c0a1457200f6fa9948f",
            "3517d640f50ddc8ad3628722b3569d2ae07493fa8263254080ea65c1008e8fc295fb4852e7d83e1e7c48c37eebe6b0d3",
        ),
        (
            21,
            "a7a4e29a4728ce10664fb64e49ad3fac",
            "720f73b18d9859cd6ccb4346115cd336c70f58edc0c4437c5573544c31c813bce1e6d072c1\
             86b39a413c2f92ca9b8334a287ffcbfc",
        ),
    ];
    for (len, confounder, expected) in vectors {
        let base = "3705d96080c17728a0e800eab6e0d23c";
        let got = sealed(Enctype::Aes128Sha2, base, confounder, &plain[..len]);
        assert_eq!(got, unhex(expected), "{len} bytes");
    }
    let base = "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52";
    let got = sealed(Enctype::Aes256Sha2, base, "f764e9fa15c276478b2c7d0c4e5f58e4", &[]);
    let expected =
        "41f53fa5bfe7026d91faf9be959195a058707273a96a40f0a01960621ac612748b9bbfbe7eb4ce3c";
    assert_eq!(got, unhex(expected));
}

#[test]
fn rfc_8009_checksum_matches() {
    let base = unhex("3705d96080c17728a0e800eab6e0d23c");
    let keys = UsageKeys::derive(Enctype::Aes128Sha2, &base, 2).unwrap();
    let plain: Vec<u8> = (0..21).collect();
    let expected = unhex("d78367186643d67b411cba9139fc1dee");
    assert_eq!(checksum(&keys, [&plain[..5], &[], &plain[5..]].into_iter())[..], expected);
}

#[test]
fn short_message_is_refused() {
    let keys = keys(Enctype::Aes256Sha1, &[7; 32]);
    assert_eq!(encrypt(&keys, &mut [&mut [0; 15]]), Err(Failed));
    assert_eq!(decrypt(&keys, &mut [&mut [0; 15]], &[0; 12]), Err(Failed));
    assert_eq!(decrypt(&keys, &mut [], &[0; 12]), Err(Failed));
}
