//! Tests SPNEGO around Kerberos with a context that signs with a prefix; other tests exercise the library with a KDC.

use smb_proto::spnego::mech::SPNEGO;
use smb_proto::spnego::{Init, InitialContext, Resp, mech_types};
use zeroize::Zeroizing;

use super::ticket::{Context, Proof, Refused, Why};
use super::*;

const KRB5: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
const MS_KRB5: &[u8] = b"\x2a\x86\x48\x82\xf7\x12\x01\x02\x02";
const NTLM: &[u8] = b"\x2b\x06\x01\x04\x01\x82\x37\x02\x02\x0a";
const NEGOEX: &[u8] = b"\x2b\x06\x01\x04\x01\x82\x37\x02\x02\x1e";
const BOTH: Mechs = Mechs { kerberos: true, ntlm: true };

struct Prefix;

impl Context for Prefix {
    fn sign(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        Some([b"ours:", message].concat())
    }

    fn verify(&mut self, message: &[u8], mic: &[u8]) -> bool {
        mic == [b"theirs:", message].concat()
    }

    fn ends(self: Box<Self>) -> Option<u64> {
        Some(77)
    }
}

struct NoAccounts;

impl Secrets for NoAccounts {
    fn nt_hash(&self, _: &str, _: &str) -> Option<NtHash> {
        None
    }
}

/// Returns a proof whose user is a name.
fn proof() -> Proof<&'static str> {
    Proof {
        principal: "alice@LAB".into(),
        service: "cifs/gw@LAB".into(),
        user: "alice",
        key: Zeroizing::new(vec![3; 32]),
        token: b"AP-REP".to_vec(),
        context: Box::new(Prefix),
    }
}

fn acceptor(mechs: Mechs) -> Acceptor<&'static str> {
    let fresh = Fresh { challenge: [0; 8], key: [0; 16], time: 0 };
    Acceptor::new(Identity::standalone("gw"), fresh, Policy::default(), mechs)
}

fn list(mechs: &[&[u8]]) -> Vec<u8> {
    mech_types(mechs.iter().copied())
}

/// Builds a NegTokenInit with this list and token.
fn first(mechs: &[&[u8]], token: Option<&[u8]>) -> Vec<u8> {
    first_signed(mechs, token, None)
}

/// The same with a MIC over the list.
fn first_signed(mechs: &[&[u8]], token: Option<&[u8]>, mic: Option<&[u8]>) -> Vec<u8> {
    let init = Init { list: &list(mechs), mechs: mechs.to_vec(), token, mic }.emit();
    InitialContext { mech: &SPNEGO, inner: &init }.emit()
}

/// Builds a client's NegTokenResp.
fn further(token: Option<&[u8]>, mic: Option<&[u8]>) -> Vec<u8> {
    Resp { token, mic, ..Resp::default() }.emit()
}

/// Builds a server's NegTokenResp: state, mechanism, token, MIC.
fn answer(state: u8, mech: Option<&[u8]>, token: Option<&[u8]>, mic: Option<&[u8]>) -> Vec<u8> {
    Resp { state: Some(state), mech, token, mic }.emit()
}

fn asked(step: Step<&'static str>) -> Vec<u8> {
    match step {
        Step::Prove(token) => token,
        other => panic!("{other:?}"),
    }
}

fn finished(step: Step<&'static str>) -> Vec<u8> {
    match step {
        Step::Done { token, who: Who::Ticket(ticket), key: Some(key) } => {
            assert_eq!((ticket.user, ticket.ends, key.len()), ("alice", 77, 32));
            token
        }
        other => panic!("{other:?}"),
    }
}

fn refused(step: Step<&'static str>) -> Refusal {
    match step {
        Step::Refused(why) => why,
        other => panic!("{other:?}"),
    }
}

/// One round trip, with the client's identifier for Kerberos (MS-SPNG section 3.1.5.2).
#[test]
fn optimistic_ticket_takes_one_round() {
    for (mechs, named) in [
        (&[MS_KRB5, KRB5, NTLM][..], MS_KRB5),
        (&[KRB5, MS_KRB5][..], KRB5),
        (&[KRB5, NTLM][..], KRB5),
    ] {
        let mut server = acceptor(BOTH);
        assert_eq!(asked(server.step(&first(mechs, Some(b"AP-REQ")), &NoAccounts)), b"AP-REQ");
        let last = finished(server.proved(Ok(proof())));
        assert_eq!(last, answer(0, Some(named), Some(b"AP-REP"), None));
        assert_eq!(server.target_name(), Some("cifs/gw@LAB"));
    }
}

/// RFC 4178 section 5: a MIC that comes must be right, also where none is needed.
#[test]
fn a_mic_in_the_first_token_is_verified() {
    let mechs = [KRB5, NTLM];
    let (ours, theirs) =
        ([b"ours:", &*list(&mechs)].concat(), [b"theirs:", &*list(&mechs)].concat());
    let begin = |mic: &[u8]| {
        let mut server = acceptor(BOTH);
        asked(server.step(&first_signed(&mechs, Some(b"AP-REQ"), Some(mic)), &NoAccounts));
        server.proved(Ok(proof()))
    };
    let last = answer(0, Some(KRB5), Some(b"AP-REP"), Some(&ours));
    assert_eq!(finished(begin(&theirs)), last);
    for wrong in [&b""[..], b"theirs:another", &ours] {
        assert_eq!(refused(begin(wrong)), Refusal::Tampered("mechListMIC differs"));
    }
}

#[test]
fn missing_optimistic_token_is_requested() {
    let mut server = acceptor(BOTH);
    let Step::Continue(told) = server.step(&first(&[KRB5], None), &NoAccounts) else { panic!() };
    assert_eq!(told, answer(1, Some(KRB5), None, None));
    assert_eq!(asked(server.step(&further(Some(b"AP-REQ"), None), &NoAccounts)), b"AP-REQ");
    assert_eq!(finished(server.proved(Ok(proof()))), answer(0, None, Some(b"AP-REP"), None));
}

/// RFC 4178 section 5: both sides sign the list if the client preferred another mechanism.
#[test]
fn fallback_mechanism_requires_both_mics() {
    let mechs = [NEGOEX, KRB5, NTLM];
    let begin = || {
        let mut server = acceptor(BOTH);
        let step = server.step(&first(&mechs, Some(b"of NEGOEX")), &NoAccounts);
        let Step::Continue(told) = step else { panic!("{step:?}") };
        assert_eq!(told, answer(3, Some(KRB5), None, None), "request-mic");
        server
    };
    let (ours, theirs) =
        ([b"ours:", &*list(&mechs)].concat(), [b"theirs:", &*list(&mechs)].concat());
    // Windows and Samba sign after they get the server's response.
    let mut server = begin();
    asked(server.step(&further(Some(b"AP-REQ"), None), &NoAccounts));
    let step = server.proved(Ok(proof()));
    let Step::Continue(told) = step else { panic!("{step:?}") };
    assert_eq!(told, answer(1, None, Some(b"AP-REP"), Some(&ours)));
    assert_eq!(
        finished(server.step(&further(None, Some(&theirs)), &NoAccounts)),
        answer(0, None, None, None)
    );
    // The MIC may come together with the ticket.
    let mut server = begin();
    asked(server.step(&further(Some(b"AP-REQ"), Some(&theirs)), &NoAccounts));
    assert_eq!(finished(server.proved(Ok(proof()))), answer(0, None, Some(b"AP-REP"), Some(&ours)));
    // An attacker who removes a mechanism from the list cannot sign it.
    let mut server = begin();
    asked(server.step(&further(Some(b"AP-REQ"), Some(b"theirs:another")), &NoAccounts));
    assert_eq!(refused(server.proved(Ok(proof()))), Refusal::Tampered("mechListMIC differs"));
    for mic in [None, Some(&b"x"[..])] {
        let mut server = begin();
        asked(server.step(&further(Some(b"AP-REQ"), None), &NoAccounts));
        assert!(matches!(server.proved(Ok(proof())), Step::Continue(_)));
        let why = refused(server.step(&further(None, mic), &NoAccounts));
        assert!(matches!(why, Refusal::Tampered(_)), "{why:?}");
    }
}

#[test]
fn raw_kerberos_gets_raw_reply() {
    let raw = InitialContext { mech: KRB5, inner: b"\x01\0ticket" }.emit();
    let mut server = acceptor(BOTH);
    assert_eq!(asked(server.step(&raw, &NoAccounts)), raw);
    assert_eq!(finished(server.proved(Ok(proof()))), b"AP-REP");
    assert_eq!(refused(acceptor(Mechs::NTLM).step(&raw, &NoAccounts)), Refusal::NoMechanism);
}

#[test]
fn disabled_mechanisms_are_refused() {
    let tickets = Mechs { kerberos: true, ntlm: false };
    let only =
        |mechs, list: &[&[u8]]| refused(acceptor(mechs).step(&first(list, None), &NoAccounts));
    assert_eq!(only(tickets, &[NTLM]), Refusal::NoPasswords);
    assert_eq!(only(Mechs::NTLM, &[MS_KRB5, KRB5]), Refusal::NoMechanism);
    assert_eq!(only(BOTH, &[NEGOEX]), Refusal::NoMechanism);
    let raw = b"NTLMSSP\0\x01\0\0\0";
    assert_eq!(refused(acceptor(tickets).step(raw, &NoAccounts)), Refusal::NoPasswords);
    // A client that prefers passwords must send a ticket if passwords are not accepted.
    let mut server = acceptor(tickets);
    let Step::Continue(told) = server.step(&first(&[NTLM, KRB5], Some(raw)), &NoAccounts) else {
        panic!()
    };
    assert_eq!(told, answer(3, Some(KRB5), None, None));
}

#[test]
fn refused_ticket_ends_exchange() {
    let mut server = acceptor(BOTH);
    asked(server.step(&first(&[KRB5], Some(b"AP-REQ")), &NoAccounts));
    // A further token during the Kerberos check is out of sequence.
    let why = Refused::unread(Why::Kerberos(gss_krb5::Cause::NoKey), "no key");
    let told = refused(server.proved(Err(why.clone())));
    assert_eq!(told, Refusal::Ticket(Box::new(why)));
    assert!(
        !told.is_guess() && told.status() == NtStatus::LOGON_FAILURE && told.detail() == "no key"
    );
    assert_eq!(refused(server.proved(Ok(proof()))), Refusal::OutOfTurn);
    let mut server = acceptor(BOTH);
    asked(server.step(&first(&[KRB5], Some(b"AP-REQ")), &NoAccounts));
    assert_eq!(refused(server.step(&further(Some(b"x"), None), &NoAccounts)), Refusal::OutOfTurn);
    assert_eq!(refused(server.proved(Ok(proof()))), Refusal::OutOfTurn, "it was given up");
}

#[test]
fn offer_lists_enabled_mechanisms_in_order() {
    let with = |mechs: Mechs| {
        let hint = hint(mechs);
        [MS_KRB5, KRB5, NTLM].map(|m| hint.windows(m.len()).position(|w| w == m))
    };
    assert!(with(BOTH).is_sorted() && with(BOTH).iter().all(Option::is_some));
    assert!(matches!(with(Mechs::NTLM), [None, None, Some(_)]));
    assert!(matches!(with(Mechs { kerberos: true, ntlm: false }), [Some(_), Some(_), None]));
}
