//! Runs complete exchanges between both sides, with and without attackers in the middle and misbehaving peers.

use proptest::prelude::*;
use smb_proto::spnego::mech::{KRB5, NTLMSSP, SPNEGO};
use smb_proto::spnego::{Init, InitialContext, Resp, mech_types};

use super::ntlm::{Credentials, messages::SIGNATURE};
use super::*;

pub(crate) struct Users(Vec<(&'static str, &'static str)>);

impl Secrets for Users {
    fn nt_hash(&self, _: &str, user: &str) -> Option<NtHash> {
        let found = self.0.iter().find(|(name, _)| name.eq_ignore_ascii_case(user));
        found.map(|(_, password)| NtHash::of(password))
    }
}

pub(crate) fn users() -> Users {
    Users(vec![("alice", "secret"), ("bob", "")])
}

pub(crate) fn fresh(seed: u8) -> Fresh {
    Fresh { challenge: [seed; 8], key: [seed; 16], time: 0x01d9_0000_0000_0000 }
}

fn acceptor(policy: Policy) -> Acceptor<()> {
    acceptor_of(policy)
}

pub(crate) fn acceptor_of<U>(policy: Policy) -> Acceptor<U> {
    Acceptor::new(Identity::standalone("gate.example.org"), fresh(1), policy, Mechs::NTLM)
}

fn credentials(user: &str, password: &str) -> Credentials {
    Credentials {
        account: Account {
            user: user.to_owned(),
            domain: "WORKGROUP".to_owned(),
            workstation: "PC".to_owned(),
        },
        hash: NtHash::of(password),
        target_name: "cifs/gate".to_owned(),
    }
}

fn initiator(user: &str, password: &str) -> Initiator {
    Initiator::new(credentials(user, password), fresh(2))
}

pub(crate) fn continued<U: std::fmt::Debug>(step: Step<U>) -> Vec<u8> {
    match step {
        Step::Continue(token) => token,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn refused<U: std::fmt::Debug>(step: Step<U>) -> Refusal {
    match step {
        Step::Refused(why) => why,
        other => panic!("{other:?}"),
    }
}

/// Runs an exchange in which `change` modifies the client's last message.
fn exchange(
    user: &str,
    password: &str,
    policy: Policy,
    change: impl FnOnce(&mut Vec<u8>),
) -> (Initiator, Step<()>) {
    let (mut client, mut server) = (initiator(user, password), acceptor(policy));
    let challenge = continued(server.step(&client.first(), &users()));
    let (mut answer, _) = client.second(&challenge).unwrap();
    change(&mut answer);
    let step = server.step(&answer, &users());
    (client, step)
}

#[test]
fn correct_password_yields_shared_key() {
    for (user, password) in [("alice", "secret"), ("ALICE", "secret"), ("bob", "")] {
        let (mut client, step) = exchange(user, password, Policy::default(), |_| ());
        let Step::Done { token, who: Who::User(account), key: Some(key) } = step else {
            panic!("{step:?}")
        };
        assert_eq!((account.user.as_str(), account.domain.as_str()), (user, "WORKGROUP"));
        assert_eq!(account.workstation, "PC");
        assert_eq!(key[..], [2; 16], "what the client proposed");
        assert_eq!(client.finish(&token).unwrap(), key);
    }
}

#[test]
fn wrong_password_status_equals_unknown_user() {
    let (_, step) = exchange("alice", "Secret", Policy::default(), |_| ());
    let wrong = refused(step);
    assert!(matches!(wrong, Refusal::WrongPassword(_)));
    let (_, step) = exchange("mallory", "secret", Policy::default(), |_| ());
    let unknown = refused(step);
    assert!(matches!(unknown, Refusal::UnknownUser(_)));
    assert_eq!(wrong.status(), unknown.status());
    assert!(wrong.is_guess() && unknown.is_guess());
    assert_eq!(unknown.account().unwrap().user, "mallory");
}

/// Returns the position of an AV pair's value in a token.
fn av_at(token: &[u8], id: u16, len: u16) -> usize {
    let mut head = id.to_le_bytes().to_vec();
    head.extend(len.to_le_bytes());
    token.windows(4).position(|w| w == head).unwrap() + 4
}

/// A server that relied on the MIC would accept a client that claims to have sent none.
#[test]
fn cleared_mic_flag_never_authenticates() {
    let clear = |token: &mut Vec<u8>| {
        let at = av_at(token, 6, 4);
        assert_eq!(token[at], 2);
        token[at] = 0;
    };
    let (_, step) = exchange("alice", "wrong", Policy::default(), clear);
    assert!(matches!(refused(step), Refusal::WrongPassword(_)));
    let (_, step) = exchange("alice", "secret", Policy::default(), clear);
    assert!(matches!(refused(step), Refusal::WrongPassword(_)), "the flag is part of the proof");
}

#[test]
fn modified_mic_is_detected() {
    let ntlm = |token: &[u8]| token.windows(8).position(|w| w == SIGNATURE).unwrap();
    let (_, step) = exchange("alice", "secret", Policy::default(), |t| {
        let at = ntlm(t) + 72;
        t[at] ^= 1;
    });
    assert_eq!(refused(step), Refusal::Tampered("the MIC of the exchange differs"));
    let (_, step) = exchange("alice", "secret", Policy::default(), |t| {
        // Clears the signing flag in NegotiateFlags.
        let at = ntlm(t) + 60;
        t[at] ^= 0x10;
    });
    assert_eq!(refused(step), Refusal::Tampered("the MIC of the exchange differs"));
    let (_, step) = exchange("alice", "secret", Policy::default(), |t| {
        let at = t.len() - 5;
        t[at] ^= 1;
    });
    assert_eq!(refused(step), Refusal::Tampered("mechListMIC differs"));
}

/// An attacker who removes flags from the first message is detected by the MIC of the last.
#[test]
fn modified_negotiate_flags_are_detected() {
    let (mut client, mut server) = (initiator("alice", "secret"), acceptor(Policy::default()));
    let mut first = client.first();
    let at = first.windows(8).position(|w| w == SIGNATURE).unwrap();
    first[at + 12] ^= 0x10;
    let challenge = continued(server.step(&first, &users()));
    let (answer, _) = client.second(&challenge).unwrap();
    assert_eq!(
        refused(server.step(&answer, &users())),
        Refusal::Tampered("the MIC of the exchange differs")
    );
}

#[test]
fn challenge_is_valid_once() {
    let (mut client, mut server) = (initiator("alice", "secret"), acceptor(Policy::default()));
    let challenge = continued(server.step(&client.first(), &users()));
    let (answer, _) = client.second(&challenge).unwrap();
    assert!(matches!(server.step(&answer, &users()), Step::Done { .. }));
    assert!(matches!(server.step(&answer, &users()), Step::Refused(_)));
}

#[test]
fn raw_ntlm_gets_raw_reply() {
    let client = ntlm::Initiator::new(credentials("alice", "secret"), fresh(2));
    let mut server = acceptor(Policy::default());
    let challenge = continued(server.step(&client.negotiate(), &users()));
    assert!(challenge.starts_with(&SIGNATURE));
    let (answer, key, _) = client.authenticate(&challenge).unwrap();
    let Step::Done { token, key: Some(found), .. } = server.step(&answer, &users()) else {
        panic!()
    };
    assert!(token.is_empty());
    assert_eq!(found[..], key[..]);
    assert_eq!(server.target_name(), Some("cifs/gate"));
    let mut server = acceptor(Policy::default());
    assert_eq!(refused(server.step(&answer, &users())), Refusal::OutOfTurn);
}

fn init(mechs: &[&[u8]], token: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let list = mech_types(mechs.iter().copied());
    let init = Init { list: &list, mechs: mechs.to_vec(), token: Some(token), mic: None }.emit();
    (InitialContext { mech: &SPNEGO, inner: &init }.emit(), list)
}

fn resp(token: &[u8], mic: Option<&[u8]>) -> Vec<u8> {
    Resp { token: Some(token), mic, ..Resp::default() }.emit()
}

/// A client that prefers Kerberos falls back to NTLM and must prove that its list arrived unmodified.
#[test]
fn kerberos_client_falls_back_to_ntlm() {
    let (first, list) = init(&[&KRB5, &NTLMSSP], b"a ticket");
    for proves in [true, false] {
        let client = ntlm::Initiator::new(credentials("alice", "secret"), fresh(2));
        let mut server = acceptor(Policy::default());
        let answer = continued(server.step(&first, &users()));
        assert!(answer.windows(NTLMSSP.len()).any(|w| w == NTLMSSP), "NTLM is named");
        assert!(answer.windows(3).any(|w| w == [0x0a, 1, 3]), "request-mic");
        let challenge = continued(server.step(&resp(&client.negotiate(), None), &users()));
        let at = challenge.windows(8).position(|w| w == SIGNATURE).unwrap();
        let (answer, _, signer) = client.authenticate(&challenge[at..]).unwrap();
        let mic = signer.sign(ntlm::Direction::ClientToServer, &list);
        let step = server.step(&resp(&answer, proves.then_some(&mic[..])), &users());
        if proves {
            assert!(matches!(step, Step::Done { who: Who::User(_), .. }));
        } else {
            assert_eq!(refused(step), Refusal::Tampered("mechListMIC is missing"));
        }
    }
}

#[test]
fn unsupported_mechanisms_are_refused() {
    let (first, _) = init(&[&KRB5], b"a ticket");
    let why = refused(acceptor(Policy::default()).step(&first, &users()));
    assert_eq!(why, Refusal::NoMechanism);
    assert_eq!(why.status(), NtStatus::LOGON_FAILURE);
    // Kerberos without SPNEGO.
    let bare = InitialContext { mech: &KRB5, inner: &[] }.emit();
    assert_eq!(refused(acceptor(Policy::default()).step(&bare, &users())), Refusal::NoMechanism);
}

#[test]
fn too_many_mechanisms_are_refused() {
    let many = vec![&KRB5[..]; 100];
    let (first, _) = init(&many, b"");
    assert_eq!(
        refused(acceptor(Policy::default()).step(&first, &users())),
        Refusal::Malformed("mechTypes")
    );
}

#[test]
fn anonymous_logon_requires_permission() {
    let (_, step) = exchange("", "", Policy::default(), |_| ());
    let why = refused(step);
    assert_eq!((why.status(), why.is_guess()), (NtStatus::ACCESS_DENIED, false));
    let policy = Policy { anonymous: true, guest: false, domain: false, look_up: false };
    let (mut client, step) = exchange("", "", policy, |_| ());
    let Step::Done { token, who: Who::Anonymous, key: Some(key) } = step else {
        panic!("{step:?}")
    };
    assert_eq!(client.finish(&token).unwrap(), key);
}

#[test]
fn guest_logon_requires_unknown_name() {
    let policy = Policy { anonymous: false, guest: true, domain: false, look_up: false };
    let (_, step) = exchange("mallory", "x", policy, |_| ());
    assert!(matches!(step, Step::Done { who: Who::Guest(_), key: None, .. }));
    let (_, step) = exchange("alice", "wrong", policy, |_| ());
    assert!(matches!(refused(step), Refusal::WrongPassword(_)));
}

/// Builds an AUTHENTICATE_MESSAGE with 24-byte responses, as NTLM version 1 and LM send them.
#[test]
fn old_responses_are_refused() {
    let client = ntlm::Initiator::new(credentials("alice", "secret"), fresh(2));
    for nt_len in [0_u16, 24] {
        let mut server =
            acceptor(Policy { guest: true, anonymous: true, domain: false, look_up: false });
        let challenge = continued(server.step(&client.negotiate(), &users()));
        let (mut answer, _, _) = client.authenticate(&challenge).unwrap();
        answer[20..22].copy_from_slice(&nt_len.to_le_bytes());
        let why = refused(server.step(&answer, &users()));
        assert!(matches!(why, Refusal::OldResponse(_)), "{why:?}");
        assert_eq!(why.status(), NtStatus::LOGON_FAILURE);
    }
    // A guest is accepted with any response, because no proof is required.
    let client = ntlm::Initiator::new(credentials("mallory", ""), fresh(2));
    let mut server =
        acceptor(Policy { guest: true, anonymous: false, domain: false, look_up: false });
    let challenge = continued(server.step(&client.negotiate(), &users()));
    let (mut answer, _, _) = client.authenticate(&challenge).unwrap();
    answer[20..22].copy_from_slice(&[0, 0]);
    let step = server.step(&answer, &users());
    assert!(matches!(step, Step::Done { who: Who::Guest(_), key: None, .. }));
}

#[test]
fn client_without_charset_is_refused() {
    let client = ntlm::Initiator::new(credentials("alice", "secret"), fresh(2));
    let mut first = client.negotiate();
    first[12] &= !3;
    assert_eq!(refused(acceptor(Policy::default()).step(&first, &users())), Refusal::TooOld);
}

#[test]
fn channel_bindings_are_verified() {
    let client = ntlm::Initiator::new(credentials("alice", "secret"), fresh(2));
    for (ours, good) in [([0; 16], true), ([3; 16], false)] {
        let identity = Identity::standalone("gate");
        let mut server = ntlm::Acceptor::new(identity, fresh(1), Policy::default(), Some(ours));
        let challenge = server.negotiate(&client.negotiate()).unwrap();
        let (answer, _, _) = client.authenticate(&challenge).unwrap();
        assert_eq!(server.authenticate::<()>(&answer, &users(), None).is_ok(), good);
    }
}

#[test]
fn negotiate_hint_offers_ntlm() {
    let hint = hint(Mechs::NTLM);
    assert!(hint.windows(NTLMSSP.len()).any(|w| w == NTLMSSP));
    assert!(hint.ends_with(b"not_defined_in_RFC4178@please_ignore"));
    assert_eq!(usize::from(hint[1]) + 2, hint.len());
}

#[test]
fn netbios_names_are_shortened() {
    let found = Identity::standalone("a-very-long-host-name.Example.org");
    assert_eq!(found.computer, "A-VERY-LONG-HOS");
    assert_eq!(found.dns_computer, "a-very-long-host-name.example.org");
    assert_eq!(found.dns_domain, "example.org");
    assert_eq!(Identity::standalone("").computer, "HEADGATE");
}

#[test]
fn initiator_detects_refusal_and_tampering() {
    let reject = Resp { state: Some(2), ..Resp::default() }.emit();
    assert_eq!(initiator("a", "b").second(&reject).unwrap_err(), Refusal::Rejected);
    let (mut client, step) = exchange("alice", "secret", Policy::default(), |_| ());
    let Step::Done { mut token, .. } = step else { panic!() };
    let last = token.len() - 6;
    token[last] ^= 1;
    assert!(matches!(client.finish(&token), Err(Refusal::Tampered(_))));
    assert_eq!(client.finish(&token), Err(Refusal::OutOfTurn));
}

proptest! {
    /// Arbitrary bytes never panic, and never authenticate.
    #[test]
    fn arbitrary_bytes_are_refused(tokens in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..4)) {
        let mut server = acceptor(Policy::default());
        let mut client = initiator("alice", "secret");
        for token in &tokens {
            let step = server.step(token, &users());
            let inside = matches!(step, Step::Done { .. });
            prop_assert!(!inside);
            let _ = client.second(token);
            let _ = client.finish(token);
        }
    }

    /// A modified byte in the last message never authenticates a different user, and usually fails.
    #[test]
    fn modified_bytes_never_change_user(at: proptest::sample::Index, to: u8, wrong: bool) {
        let password = if wrong { "wrong" } else { "secret" };
        let (_, step) = exchange("alice", password, Policy::default(), |t| {
            let at = at.index(t.len());
            t[at] = to;
        });
        if let Step::Done { who, .. } = step {
            prop_assert!(!wrong);
            prop_assert!(matches!(who, Who::User(a) if a.user.eq_ignore_ascii_case("alice")));
        }
    }

    /// Truncates any of the three messages at any position.
    #[test]
    fn truncated_messages_are_refused(at: proptest::sample::Index) {
        let mut client = initiator("alice", "secret");
        let first = client.first();
        let mut server = acceptor(Policy::default());
        let _ = server.step(&first[..at.index(first.len())], &users());
        let mut server = acceptor(Policy::default());
        let challenge = continued(server.step(&first, &users()));
        let _ = client.second(&challenge[..at.index(challenge.len())]);
        let (answer, _) = client.second(&challenge).unwrap();
        let cut = &answer[..at.index(answer.len())];
        let step = server.step(cut, &users());
        let inside = matches!(step, Step::Done { .. });
        prop_assert!(!inside);
    }
}
