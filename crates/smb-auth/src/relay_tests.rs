//! Passwords of domain users, which a controller decides about.

use super::*;
use crate::relay::{AccountHere, Answer, Question, Why};
use crate::tests::{acceptor_of, continued, fresh, refused, users};
use zeroize::Zeroizing;

const DOMAIN: Policy = Policy { guest: false, anonymous: false, domain: true, look_up: false };

fn credentials(domain: &str, user: &str) -> ntlm::Credentials {
    let account = Account { user: user.into(), domain: domain.into(), workstation: "PC".into() };
    ntlm::Credentials {
        account,
        hash: NtHash::of("of-the-domain"),
        target_name: "cifs/gate".into(),
    }
}

/// Runs an exchange up to the client's last message; `policy` as in the server's settings.
fn asked(domain: &str, user: &str, policy: Policy) -> (Initiator, Acceptor<u32>, Step<u32>) {
    let mut client = Initiator::new(credentials(domain, user), fresh(2));
    let mut server = acceptor_of(policy);
    let challenge = continued(server.step(&client.first(), &users()));
    let (answer, _) = client.second(&challenge).unwrap();
    let step = server.step(&answer, &users());
    (client, server, step)
}

fn question(step: Step<u32>) -> Question {
    match step {
        Step::Ask(question) => *question,
        step => panic!("{step:?}"),
    }
}

/// Computes the key as a controller does.
fn key_of(question: &Question) -> Zeroizing<[u8; 16]> {
    let Account { user, domain, .. } = &question.account;
    ntlm::base_key_of(&NtHash::of("of-the-domain"), (user, domain), &question.nt)
}

#[test]
fn domain_user_is_asked_about_and_shares_a_key() {
    let (mut client, mut server, step) = asked("LAB", "alice", DOMAIN);
    let question = question(step);
    assert_eq!((&*question.account.domain, question.challenge), ("LAB", [1; 8]));
    let key = key_of(&question);
    let step = server.answered(Answer::Proved { user: 7, key }, &users());
    let Step::Done { token, who: Who::OfDomain { account, user }, key: Some(key) } = step else {
        panic!("{step:?}")
    };
    // `alice` of this server has another password, and is not asked.
    assert_eq!((&*account.user, *user), ("alice", 7));
    assert_eq!(key[..], [2; 16], "what the client proposed");
    assert_eq!(client.finish(&token).unwrap(), key, "the list of mechanisms is signed");
    let step = server.answered(Answer::Local, &users());
    assert_eq!(refused(step), Refusal::OutOfTurn, "each challenge has one answer");
}

/// A relay that knows no key must not get a session.
#[test]
fn wrong_key_of_controller_does_not_pass_mic() {
    let (_, mut server, step) = asked("LAB", "alice", DOMAIN);
    question(step);
    let step = server.answered(Answer::Proved { user: 7, key: Zeroizing::new([9; 16]) }, &users());
    assert!(matches!(refused(step), Refusal::Tampered(_)));
}

#[test]
fn own_names_of_the_machine_are_local() {
    for (domain, user, is_asked) in [
        ("GATE", "alice", false),
        ("gate", "alice", false),
        ("gate.example.org", "alice", false),
        (".", "mallory", false),
        ("", "alice", false),
        ("", "bob@lab", true),
        ("", "mallory", true),
        ("WORKGROUP", "alice", true),
        ("OTHER", "alice", true),
    ] {
        let (_, _, step) = asked(domain, user, DOMAIN);
        assert_eq!(matches!(step, Step::Ask(_)), is_asked, "{domain} {user}");
        let (_, _, step) = asked(domain, user, Policy { domain: false, ..DOMAIN });
        assert!(!matches!(step, Step::Ask(_)), "without a domain: {domain} {user}");
    }
}

/// A caller that does not know the domain can leave the decision to an account whose password is right.
#[test]
fn question_tells_what_accounts_say() {
    for (user, password, wanted) in [
        ("alice", "secret", AccountHere::Proved),
        ("alice", "of-the-domain", AccountHere::WrongPassword),
        ("mallory", "secret", AccountHere::Unknown),
    ] {
        let hash = NtHash::of(password);
        let credentials = ntlm::Credentials { hash, ..credentials("WORKGROUP", user) };
        let mut client = Initiator::new(credentials, fresh(2));
        let mut server = acceptor_of(DOMAIN);
        let challenge = continued(server.step(&client.first(), &users()));
        let (answer, _) = client.second(&challenge).unwrap();
        let question = question(server.step(&answer, &users()));
        assert_eq!(question.account_here, wanted, "{user} {password}");
    }
}

#[test]
fn unknown_domain_leaves_decision_to_accounts() {
    let (_, mut server, step) = asked("WORKGROUP", "alice", DOMAIN);
    question(step);
    let why = refused(server.answered(Answer::Local, &users()));
    assert!(matches!(why, Refusal::WrongPassword(_)), "{why:?}");
    let (_, mut server, step) = asked("WORKGROUP", "mallory", Policy { guest: true, ..DOMAIN });
    question(step);
    let step = server.answered(Answer::Local, &users());
    assert!(matches!(step, Step::Done { who: Who::Guest(_), key: None, .. }));
}

#[test]
fn refusal_of_controller_is_told_and_counts_as_guess() {
    for (why, is_guess) in [
        (Why::WrongPassword, true),
        (Why::Account, false),
        (Why::Away, false),
        (Why::NoPasswords, false),
    ] {
        let (_, mut server, step) = asked("LAB", "alice", Policy { guest: true, ..DOMAIN });
        question(step);
        let told = relay::Refused { why, detail: "NT_STATUS".into() };
        let refusal = refused(server.answered(Answer::Refused(told), &users()));
        assert_eq!(refusal.is_guess(), is_guess);
        assert_eq!((refusal.user(), refusal.detail()), ("alice", "NT_STATUS"));
        assert_eq!(refusal.status(), NtStatus::LOGON_FAILURE);
    }
}
