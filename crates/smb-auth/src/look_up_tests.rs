//! Accounts that are looked up in a directory before their passwords are checked.

use std::cell::Cell;

use super::*;
use crate::relay::Answer;
use crate::tests::{acceptor_of, continued, fresh, refused};

const LOOK_UP: Policy = Policy { guest: false, anonymous: false, domain: false, look_up: true };
const GUESTS: Policy = Policy { guest: true, ..LOOK_UP };
const BOTH: Policy = Policy { domain: true, ..LOOK_UP };

/// A store with one user of a directory, whose password may be known.
struct Store {
    known: Cell<Option<&'static str>>,
    /// Must be looked up before the password is checked.
    is_old: Cell<bool>,
    /// May have changed if the password is wrong.
    may_have_changed: bool,
}

impl Secrets for Store {
    fn nt_hash(&self, _: &str, user: &str) -> Option<NtHash> {
        self.known.get().filter(|_| user == "dana").map(NtHash::of)
    }

    fn must_look_up(&self, _: &str, why: Look) -> bool {
        match why {
            Look::Unknown => self.is_old.get(),
            Look::Wrong => self.may_have_changed,
            Look::Proved => panic!("not asked by an acceptor"),
        }
    }
}

fn store(known: Option<&'static str>) -> Store {
    let is_old = Cell::new(known.is_none());
    Store { known: Cell::new(known), is_old, may_have_changed: true }
}

/// Runs an exchange up to the first step after the client's last message.
fn begun(
    (domain, user, password): (&str, &str, &str),
    policy: Policy,
    store: &Store,
) -> (Initiator, Acceptor<u32>, Step<u32>) {
    let account = Account { user: user.into(), domain: domain.into(), workstation: "PC".into() };
    let hash = NtHash::of(password);
    let credentials = ntlm::Credentials { account, hash, target_name: "cifs/gate".into() };
    let mut client = Initiator::new(credentials, fresh(2));
    let mut server = acceptor_of(policy);
    let challenge = continued(server.step(&client.first(), store));
    let (answer, _) = client.second(&challenge).unwrap();
    let step = server.step(&answer, store);
    (client, server, step)
}

fn why<U: std::fmt::Debug>(step: &Step<U>) -> Look {
    match step {
        Step::LookUp(account, why) if account.user == "dana" || account.user == "mallory" => *why,
        step => panic!("{step:?}"),
    }
}

fn is_dana(step: &Step<u32>) -> bool {
    matches!(step, Step::Done { who: Who::User(account), .. } if account.user == "dana")
}

const DANA: (&str, &str, &str) = ("WORKGROUP", "dana", "secret");

#[test]
fn unknown_user_is_looked_up_and_then_proves_the_password() {
    let store = store(None);
    let (mut client, mut server, step) = begun(DANA, LOOK_UP, &store);
    assert_eq!(why(&step), Look::Unknown);
    store.known.set(Some("secret"));
    let step = server.looked_up(LookedUp::Answered, &store);
    assert!(is_dana(&step), "{step:?}");
    let Step::Done { token, key: Some(key), .. } = step else { panic!("no key") };
    assert_eq!(client.finish(&token).unwrap(), key, "the list of mechanisms is signed");
    let again = server.looked_up(LookedUp::Answered, &store);
    assert_eq!(refused(again), Refusal::OutOfTurn, "each challenge has one answer");
}

#[test]
fn known_user_is_not_looked_up_and_nothing_is_without_directory() {
    let known = store(Some("secret"));
    assert!(is_dana(&begun(DANA, LOOK_UP, &known).2));
    let (_, _, step) = begun(DANA, Policy { look_up: false, ..LOOK_UP }, &store(None));
    assert!(matches!(refused(step), Refusal::UnknownUser(_)));
}

#[test]
fn wrong_password_is_looked_up_once() {
    let store = store(Some("old"));
    let (_, mut server, step) = begun(DANA, LOOK_UP, &store);
    assert_eq!(why(&step), Look::Wrong);
    store.known.set(Some("secret"));
    assert!(is_dana(&server.looked_up(LookedUp::Answered, &store)), "it has just been changed");

    store.known.set(Some("old"));
    let (_, mut server, step) = begun(DANA, LOOK_UP, &store);
    assert_eq!(why(&step), Look::Wrong);
    let step = server.looked_up(LookedUp::Answered, &store);
    assert!(matches!(refused(step), Refusal::WrongPassword(_)));
    let fresh = Store { may_have_changed: false, ..store };
    let (_, _, step) = begun(DANA, LOOK_UP, &fresh);
    assert!(matches!(refused(step), Refusal::WrongPassword(_)));
}

/// The worst exchange has two look-ups.
#[test]
fn exchange_ends_whatever_the_store_wants() {
    let store = store(Some("old"));
    store.is_old.set(true);
    let (_, mut server, step) = begun(DANA, LOOK_UP, &store);
    assert_eq!(why(&step), Look::Unknown);
    let step = server.looked_up(LookedUp::Answered, &store);
    assert_eq!(why(&step), Look::Wrong);
    let step = server.looked_up(LookedUp::Answered, &store);
    assert!(matches!(refused(step), Refusal::WrongPassword(_)));
}

#[test]
fn silent_directory_refuses_only_unknown_users_and_makes_no_guests() {
    for policy in [LOOK_UP, GUESTS] {
        let (_, mut server, step) = begun(DANA, policy, &store(None));
        assert_eq!(why(&step), Look::Unknown);
        let refusal = refused(server.looked_up(LookedUp::Away, &store(None)));
        assert!(matches!(refusal, Refusal::DirectoryAway(_)) && !refusal.is_guess());
        assert_eq!((refusal.user(), refusal.status()), ("dana", NtStatus::LOGON_FAILURE));
        // An earlier answer serves.
        let kept = store(Some("secret"));
        kept.is_old.set(true);
        let (_, mut server, step) = begun(DANA, policy, &kept);
        assert_eq!(why(&step), Look::Unknown);
        assert!(is_dana(&server.looked_up(LookedUp::Away, &kept)));
    }
    let (_, mut server, step) = begun(("", "mallory", "x"), GUESTS, &store(None));
    assert_eq!(why(&step), Look::Unknown);
    let step = server.looked_up(LookedUp::Answered, &store(None));
    assert!(matches!(step, Step::Done { who: Who::Guest(_), .. }), "{step:?}");
}

/// A client that keeps all turns makes no old password valid, and no guest.
#[test]
fn look_up_without_a_turn_needs_a_fresh_answer() {
    for policy in [LOOK_UP, GUESTS] {
        for known in [None, Some("secret")] {
            let store = store(known);
            store.is_old.set(true);
            let (_, mut server, step) = begun(DANA, policy, &store);
            assert_eq!(why(&step), Look::Unknown);
            let refusal = refused(server.looked_up(LookedUp::Busy, &store));
            assert!(matches!(refusal, Refusal::DirectoryBusy(_)) && !refusal.is_guess());
            assert_eq!((refusal.user(), refusal.status()), ("dana", NtStatus::LOGON_FAILURE));
        }
        // Another logon of the user has had an answer meanwhile.
        let store = store(Some("secret"));
        store.is_old.set(true);
        let (_, mut server, _) = begun(DANA, policy, &store);
        store.is_old.set(false);
        assert!(is_dana(&server.looked_up(LookedUp::Busy, &store)));
    }
    // The answer is fresh, and the password that is wrong by it stays so.
    let store = store(Some("old"));
    let (_, mut server, step) = begun(DANA, LOOK_UP, &store);
    assert_eq!(why(&step), Look::Wrong);
    let refusal = refused(server.looked_up(LookedUp::Busy, &store));
    assert!(matches!(refusal, Refusal::WrongPassword(_)), "{refusal:?}");
}

#[test]
fn users_of_domains_are_not_looked_up() {
    let none = store(None);
    let (_, mut server, step) = begun(("LAB", "dana", "secret"), BOTH, &none);
    assert!(matches!(step, Step::Ask(_)), "{step:?}");
    // No domain has this name after all.
    let step = server.answered(Answer::Local, &none);
    assert_eq!(why(&step), Look::Unknown);
    none.known.set(Some("secret"));
    assert!(is_dana(&server.looked_up(LookedUp::Answered, &none)));
    // Without a domain the directory comes first, and then the domain.
    none.known.set(None);
    let (_, mut server, step) = begun(("", "mallory", "x"), BOTH, &none);
    assert_eq!(why(&step), Look::Unknown);
    let step = server.looked_up(LookedUp::Answered, &none);
    assert!(matches!(step, Step::Ask(_)), "{step:?}");
}
