//! Checks the examples of MS-NLMP section 4.2.4.

use zeroize::Zeroizing;

use super::keys::{hmac_md5, ntowf_v2, rc4, seal_key, sign_key, upcase};
use super::messages::{Authenticate, Challenge, ClientChallenge, emit_negotiate, pairs, put_pair};
use super::*;
use crate::{Account, Fresh, Identity, NtHash, Policy, Refusal, Secrets, Who};
use smb_proto::smb2::put_utf16;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| u8::try_from(d[0] << 4 | d[1]).unwrap()).collect()
}

/// The flags of the examples: `33 82 8a e2`.
const FLAGS: u32 = 0xe28a_8233;

fn target_info() -> Vec<u8> {
    let mut out = Vec::new();
    for (id, name) in [(2, "Domain"), (1, "Server")] {
        let mut wide = Vec::new();
        put_utf16(&mut wide, name);
        put_pair(&mut out, id, &wide);
    }
    put_pair(&mut out, 0, &[]);
    out
}

#[test]
fn specification_examples_match() {
    let hash = NtHash::of("Password");
    assert_eq!(hash.0[..], unhex("a4f49c406510bdcab6824ee7c30fd852")[..], "4.2.2.1.2");
    let ntowf = ntowf_v2(&hash, "User", "Domain");
    assert_eq!(ntowf[..], unhex("0c868a403bfd7a93a3001ef22ef02e3f")[..], "4.2.4.1.1");
    assert_eq!(ntowf, ntowf_v2(&hash, "uSER", "Domain"));
    assert_ne!(ntowf, ntowf_v2(&hash, "User", "DOMAIN"), "the domain counts as written");
    let blob = ClientChallenge::emit(0, [0xaa; 8], &target_info());
    let proof = hmac_md5(&ntowf, &[&unhex("0123456789abcdef"), &blob]);
    assert_eq!(proof[..], unhex("68cd0ab851e51c96aabc927bebef6a1c")[..], "4.2.4.2.2");
    let base = hmac_md5(&ntowf, &[&proof[..]]);
    assert_eq!(base[..], unhex("8de40ccadbc14a82f15cb0ad0de95ca3")[..], "4.2.4.1.2");
    let mut wrapped = [0x55; 16];
    rc4(&base, &mut wrapped);
    assert_eq!(wrapped[..], unhex("c5dad2544fc9799094ce1ce90bc9d03e")[..], "4.2.4.2.3");
}

#[test]
fn gss_example_keys_match() {
    let exported = Zeroizing::new([0x55; 16]);
    let direction = Direction::ClientToServer;
    let seal = seal_key(&exported, FLAGS, direction);
    let sign = sign_key(&exported, direction);
    assert_eq!(seal[..], unhex("59f600973cc4960a25480a7c196e4c58")[..], "4.2.4.4");
    assert_eq!(sign[..], unhex("4788dc861b4782f35d43fd98fe1a2d39")[..], "4.2.4.4");
    // The example first encrypts and then signs with one RC4 stream.
    let mut plain = Vec::new();
    put_utf16(&mut plain, "Plaintext");
    let mut both = plain.clone();
    both.extend(&hmac_md5(&sign, &[&[0; 4], &plain])[..8]);
    rc4(&seal, &mut both);
    assert_eq!(both[..18], unhex("54e50165bf1936dc996020c1811b0f06fb5f")[..]);
    assert_eq!(both[18..], unhex("7fb38ec5c55d4976")[..]);
    // Signing without encryption restarts the stream.
    let mic = Mic::new(&exported, FLAGS);
    let mut first = hmac_md5(&sign, &[&[0; 4], &plain])[..8].to_vec();
    rc4(&seal, &mut first);
    assert_eq!(mic.sign(direction, &plain)[4..12], first[..]);
    assert!(mic.verify(direction, &plain, &mic.sign(direction, &plain)));
    assert!(!mic.verify(Direction::ServerToClient, &plain, &mic.sign(direction, &plain)));
    assert!(!mic.verify(direction, &plain, &[]));
    let weak = seal_key(&exported, FLAGS & !flags::KEY_128, direction);
    assert_ne!(weak, seal_key(&exported, 0, direction));
}

#[test]
fn upcase_maps_single_characters_only() {
    let raised: String = "straße éñ".chars().map(upcase).collect();
    assert_eq!(raised, "STRAßE ÉÑ");
}

#[test]
fn av_pairs_end_at_terminator() {
    let mut list = target_info();
    list.extend([9, 9, 9]);
    assert_eq!(pairs(&list).unwrap().len(), 2);
    assert!(pairs(&list[..list.len() - 7]).is_err(), "no end");
    assert!(pairs(&[1, 0, 0xff, 0xff, 0]).is_err());
}

struct OneUser;

impl Secrets for OneUser {
    fn nt_hash(&self, _: &str, user: &str) -> Option<NtHash> {
        (user == "User").then(|| NtHash::of("Password"))
    }
}

/// Logs on as a client without Unicode.
fn logged_on_in_oem(user: &[u8]) -> Result<Who<()>, Refusal> {
    let fresh = Fresh { challenge: [7; 8], key: [0; 16], time: 0 };
    let mut server = Acceptor::new(Identity::standalone("gate"), fresh, Policy::default(), None);
    let flags = flags::OEM | flags::NTLM | flags::EXTENDED_SESSIONSECURITY;
    let challenge = Challenge::parse(&server.negotiate(&emit_negotiate(flags))?)?;
    assert_eq!(challenge.flags & (flags::UNICODE | flags::OEM), flags::OEM);
    assert_eq!(challenge.target_name, "GATE");
    let blob = ClientChallenge::emit(0, [0xaa; 8], &target_info());
    let ntowf = ntowf_v2(&NtHash::of("Password"), "User", "Domain");
    let proof = hmac_md5(&ntowf, &[&challenge.challenge, &blob]);
    let mut message = Authenticate {
        lm: &[0; 24],
        nt: &[&proof[..], &blob].concat(),
        domain: "Domain".into(),
        user: "User".into(),
        workstation: String::new(),
        key: &[],
        flags,
    }
    .emit();
    let at = message.windows(4).position(|w| w == b"User").unwrap();
    message[at..][..4].copy_from_slice(user);
    match server.authenticate(&message, &OneUser, None)? {
        Judged::Accepted(accepted) => Ok(accepted.who),
        Judged::Ask(_) | Judged::LookUp(..) => Err(Refusal::OutOfTurn),
    }
}

/// MS-NLMP section 2.2.2.5: clients without Unicode send names in the OEM character set, but compute the response from Unicode
/// (section 3.3.2).
#[test]
fn oem_names_are_accepted() {
    let who = logged_on_in_oem(b"User").unwrap();
    assert!(matches!(who, Who::User(a) if (&a.user[..], &a.domain[..]) == ("User", "Domain")));
    // The character set of these bytes is unknown.
    let why = logged_on_in_oem(b"Us\xe9r").unwrap_err();
    assert_eq!(why, Refusal::Malformed("UserName"));
}

#[test]
fn sealed_example_matches_and_each_message_is_read_once() {
    let exported = Zeroizing::new([0x55; 16]);
    let new = |own| Protection::new(&exported, FLAGS, own).unwrap();
    let mut client = new(Direction::ClientToServer);
    let mut server = new(Direction::ServerToClient);
    let mut plain = Vec::new();
    put_utf16(&mut plain, "Plaintext");
    let mut message = plain.clone();
    let signature = client.seal(&mut message, 0..18);
    assert_eq!(message, unhex("54e50165bf1936dc996020c1811b0f06fb5f"), "4.2.4.4");
    assert_eq!(signature[..], unhex("010000007fb38ec5c55d497600000000")[..], "4.2.4.4");
    let sealed = message.clone();
    assert!(server.unseal(&mut message, 0..18, &signature));
    assert_eq!(message, plain);
    assert!(!server.unseal(&mut sealed.clone(), 0..18, &signature), "sent again");
    assert!(!new(Direction::ServerToClient).unseal(&mut sealed.clone(), 0..19, &signature));
    assert!(!new(Direction::ServerToClient).unseal(&mut sealed.clone(), 0..18, &signature[..15]));
    for flag in [flags::SEAL, flags::KEY_128, flags::EXTENDED_SESSIONSECURITY] {
        assert!(Protection::new(&exported, FLAGS & !flag, Direction::ServerToClient).is_none());
    }
}

#[test]
fn peers_of_a_finished_exchange_read_each_other() {
    let account =
        Account { user: "User".into(), domain: "Domain".into(), workstation: String::new() };
    let logged_on = |password: &str| {
        let fresh = |n| Fresh { challenge: [n; 8], key: [n; 16], time: 0 };
        let credentials = Credentials {
            account: account.clone(),
            hash: NtHash::of(password),
            target_name: "host/gate".into(),
        };
        let client = Initiator::new(credentials, fresh(1));
        let mut server =
            Acceptor::new(Identity::standalone("gate"), fresh(2), Policy::default(), None);
        let challenge = server.negotiate(&client.negotiate()).unwrap();
        let (message, ours) = client.authenticate_sealed(&challenge).unwrap();
        server.authenticate_sealed(&message, &OneUser).map(|(who, theirs)| (who.user, ours, theirs))
    };
    let (user, mut client, mut server) = logged_on("Password").unwrap();
    assert_eq!(user, "User");
    for n in 0..3 {
        let (mut there, mut back) = (vec![n; 40], vec![n; 20]);
        let signature = client.seal(&mut there, 8..32);
        assert!(there[8..32] != [n; 24] && there[..8] == [n; 8]);
        assert!(server.unseal(&mut there, 8..32, &signature) && there == [n; 40]);
        let signature = server.seal(&mut back, 0..20);
        assert!(client.unseal(&mut back, 0..20, &signature) && back == [n; 20]);
    }
    let mut changed = vec![1; 40];
    let signature = client.seal(&mut changed, 8..32);
    changed[0] = 2;
    assert!(!server.unseal(&mut changed, 8..32, &signature), "what is not encrypted is signed");
    assert!(matches!(logged_on("wrong"), Err(Refusal::WrongPassword(_))));
}
