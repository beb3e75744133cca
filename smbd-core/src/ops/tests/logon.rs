//! SESSION_SETUP with wrong passwords, expired sessions and full tables.

use std::time::Duration;

use rdma_transport::channel::Transport;

use crate::auth::ntlm::Credentials;
use crate::auth::{Account, Fresh, Initiator, NtHash};
use crate::harness::{Answered, Client, Harness};
use crate::limits::{
    ACCOUNT_GUESSES_FREE, ACCOUNT_TURN, GUESS_DELAY, GUESSES_FREE, SESSIONS_MAX,
    SESSIONS_PER_ADDRESS_MAX, SESSIONS_PER_CONNECTION_MAX, TREES_MAX, TREES_PER_ADDRESS_MAX,
};
use crate::open::FileId;
use crate::session::{Channel, Session, Terms, User};
use crate::status::Status;
use crate::users::accounts::{self, LogonDelay};
use crate::wire::lock::{Element, flag};
use crate::wire::negotiate::Dialect;
use crate::wire::session_setup::{Request, Response};
use crate::wire::{Command, Flags, flush, lock, simple};

/// Logs on as an unknown user.
async fn guess(client: &mut Client) -> Status {
    (client.session_id, client.tree_id) = (0, 0);
    log_on(client, "mallory", "guess").await
}

/// Logs on to the client's session, or to a new session if its id is 0.
pub(super) async fn log_on(client: &mut Client, user: &str, password: &str) -> Status {
    log_on_after(client, user, password, 0).await
}

/// Like [`log_on`], for a client that had the session `previous`.
async fn log_on_after(client: &mut Client, user: &str, password: &str, previous: u64) -> Status {
    let credentials = Credentials {
        account: Account { user: user.into(), domain: String::new(), workstation: String::new() },
        hash: NtHash::of(password),
        target_name: "cifs/gate".into(),
    };
    let mut initiator =
        Initiator::new(credentials, Fresh { challenge: [1; 8], key: [2; 16], time: 0 });
    let ask = |token: &[u8]| {
        let of = Request { security_mode: 1, previous_session: previous, ..Request::default() };
        Request { token, ..of }.emit()
    };
    let first = client.ask(Command::SessionSetup, &ask(&initiator.first())).await;
    assert_eq!(first.status(), Status::MORE_PROCESSING_REQUIRED);
    client.session_id = first.header.session_id;
    let challenge = Response::parse(&first.message).unwrap().token.to_vec();
    let (answer, _) = initiator.second(&challenge).unwrap();
    client.ask(Command::SessionSetup, &ask(&answer)).await.status()
}

#[tokio::test(start_paused = true)]
async fn ten_wrong_passwords_in_a_minute_slow_the_next() {
    let harness = Harness::new();
    let mut client = harness.client();
    let begun = tokio::time::Instant::now();
    for _ in 0..GUESSES_FREE {
        assert_eq!(guess(&mut client).await, Status::LOGON_FAILURE);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(guess(&mut client).await, Status::LOGON_FAILURE);
    assert!(begun.elapsed() >= GUESS_DELAY, "both messages waited");
    let slowed = rdma_transport::count::broken_rules();
    assert!(slowed.iter().any(|(rule, n)| *rule == "smb-logon-slowed" && *n >= 2));
}

/// Returns a client with an open file and a locked range, whose session has expired as with a user's ticket.
async fn run_out(harness: &Harness) -> (Client, FileId) {
    let client = harness.client();
    let file = client.open("f").await;
    assert_eq!(
        lock(&client, file, flag::EXCLUSIVE | flag::FAIL_IMMEDIATELY).await,
        Status::SUCCESS
    );
    let session = harness.core.sessions.get(client.session_id).unwrap();
    let user = session.user().unwrap();
    session.log_on(User::clone(&user), Some(harness.core.now()));
    (client, file)
}

async fn lock(client: &Client, file: FileId, flags: u32) -> Status {
    let locks = vec![Element { offset: 0, length: 9, flags }];
    let request = lock::Request { sequence_number: 0, sequence_index: 0, file, locks };
    client.ask(Command::Lock, &request.emit()).await.status()
}

/// An expired session may only use LOGOFF, CLOSE, LOCK for unlocking, and ECHO (MS-SMB2 section 3.3.5.2.9).
#[tokio::test]
async fn a_session_that_has_run_out_only_gives_back() {
    let harness = Harness::new();
    let (client, file) = run_out(&harness).await;
    let others = Command::ALL.into_iter().filter(|c| {
        use Command::{Cancel, Close, Echo, Lock, Logoff, Negotiate, SessionSetup};
        !matches!(c, Cancel | Close | Echo | Lock | Logoff | Negotiate | SessionSetup)
    });
    for command in others {
        let told = client.ask(command, &[0; 64]).await.status();
        assert_eq!(told, Status::NETWORK_SESSION_EXPIRED, "{command:?}");
    }
    assert_eq!(lock(&client, file, flag::UNLOCK).await, Status::SUCCESS);
    let again = lock(&client, file, flag::EXCLUSIVE | flag::FAIL_IMMEDIATELY).await;
    assert_eq!(again, Status::NETWORK_SESSION_EXPIRED, "nothing new");
    assert_eq!(client.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
    assert_eq!(client.close(file).await, Status::SUCCESS);
    assert_eq!(client.ask(Command::Logoff, &simple::BODY).await.status(), Status::SUCCESS);
    assert_eq!(harness.core.sessions.count(), 0);
}

/// A new session has no signing key yet (MS-SMB2 section 3.3.5.2.4).
#[tokio::test]
async fn a_logon_to_a_new_session_is_not_signed() {
    let harness = Harness::new();
    let mut client = harness.client();
    client.session_id = 0;
    let request = Request { security_mode: 1, ..Request::default() };
    for flags in [Flags::SIGNED, 0] {
        let mut header = client.header(Command::SessionSetup, 1);
        header.flags.0 |= flags;
        header.signature = [5; 16];
        let mut message = header.emit().to_vec();
        message.extend(request.emit());
        let (core, conn) = (harness.core.clone(), client.conn.clone());
        let reply = crate::compound::call(core, conn, message.into(), Vec::new()).await;
        let told = Answered::of(reply.unwrap());
        let refused = told.status() == Status::USER_SESSION_DELETED;
        assert_eq!(refused, flags == Flags::SIGNED);
        assert_eq!(told.header.signature == [5; 16], refused, "no key for another one");
    }
}

/// MS-SMB2 section 3.3.5.17.
#[tokio::test]
async fn an_echo_may_name_no_session_but_none_that_is_not() {
    let mut client = Harness::new().client();
    let own = client.session_id;
    for (session, want) in
        [(0, Status::SUCCESS), (own, Status::SUCCESS), (own + 1, Status::USER_SESSION_DELETED)]
    {
        client.session_id = session;
        let told = client.ask(Command::Echo, &simple::BODY).await.status();
        assert_eq!(told, want, "{session}");
    }
}

/// Reauthentication keeps all opens (MS-SMB2 section 3.3.5.5.1).
#[tokio::test]
async fn a_session_that_has_run_out_goes_on_when_its_user_logs_on_again() {
    let harness = Harness::new();
    let (mut client, file) = run_out(&harness).await;
    let (session, tree) = (client.session_id, client.tree_id);
    let flush = flush::Request::of(file).emit();
    let flushed = client.ask(Command::Flush, &flush).await.status();
    assert_eq!(flushed, Status::NETWORK_SESSION_EXPIRED);
    assert_eq!(log_on(&mut client, "user", "pw").await, Status::SUCCESS);
    assert_eq!((client.session_id, client.tree_id), (session, tree));
    assert_eq!(client.ask(Command::Flush, &flush).await.status(), Status::SUCCESS);
    let other = harness.client();
    let theirs = other.open("f").await;
    let held = lock(&other, theirs, flag::EXCLUSIVE | flag::FAIL_IMMEDIATELY).await;
    assert_eq!(held, Status::LOCK_NOT_GRANTED, "the lock was kept");
}

#[tokio::test]
async fn a_session_that_has_run_out_ends_when_somebody_else_tries() {
    let harness = Harness::new();
    let (mut client, _) = run_out(&harness).await;
    assert_eq!(log_on(&mut client, "user", "wrong").await, Status::LOGON_FAILURE);
    assert_eq!((harness.core.sessions.count(), harness.core.opens.count()), (0, 0));
}

/// MS-SMB2 section 3.3.5.5.3.
#[tokio::test]
async fn a_client_that_was_cut_off_comes_back_by_the_same_dialect() {
    let harness = Harness::new();
    let old = harness.client();
    let file = old.open("f").await;
    for (dialect, want) in
        [(Dialect::V302, Status::USER_SESSION_DELETED), (Dialect::V311, Status::SUCCESS)]
    {
        assert!(harness.core.opens.get(file).is_some());
        let mut client = harness.client_by(0, dialect, Transport::Tcp);
        assert_eq!(client.ask(Command::Logoff, &simple::BODY).await.status(), Status::SUCCESS);
        client.session_id = 0;
        assert_eq!(log_on_after(&mut client, "user", "pw", old.session_id).await, want);
    }
    assert!(harness.core.opens.get(file).is_none(), "its session ended");
}

/// A client with an existing session must keep its dialect (MS-SMB2 section 3.3.5.5.3), for each pair of dialects.
#[tokio::test]
async fn client_keeps_to_its_dialect() {
    let all = [Dialect::V202, Dialect::V210, Dialect::V300, Dialect::V302, Dialect::V311];
    for old in all {
        for new in all {
            let harness = Harness::new();
            let user = |dialect| harness.client_by(0, dialect, Transport::Tcp);
            let (_first, mut second) = (user(old), user(new));
            assert_eq!(second.ask(Command::Logoff, &simple::BODY).await.status(), Status::SUCCESS);
            second.session_id = 0;
            let told = log_on(&mut second, "user", "pw").await;
            let want = if old == new { Status::SUCCESS } else { Status::USER_SESSION_DELETED };
            assert_eq!(told, want, "{old:?}, then {new:?}");
            let count = if old == new { 2 } else { 1 };
            assert_eq!(harness.core.sessions.count(), count, "{old:?}, then {new:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_sign_is_among_the_refused() {
    let client = Harness::new().user("unsigned");
    client.core.sessions.get(client.session_id).unwrap().require(true, false);
    for _ in 0..2 {
        let told = client.ask(Command::Echo, &simple::BODY).await;
        assert_eq!(told.status(), Status::ACCESS_DENIED);
    }
    let rows = rdma_transport::refused::list();
    let row = rows.iter().find(|r| r.refused.user == "unsigned").unwrap();
    assert_eq!((row.refused.rule, row.count), ("smb-signing", 2));
}

/// Returns the NTLM message in a token (MS-NLMP section 2.2.1).
fn ntlm(token: &mut [u8]) -> &mut [u8] {
    let at = token.windows(8).position(|w| w == b"NTLMSSP\0").unwrap();
    &mut token[at..]
}

/// Logs on to a new session with tokens that are changed before they are sent.
async fn log_on_spoiled(
    harness: &Harness,
    user: &str,
    [first, second]: [fn(&mut [u8]); 2],
) -> Status {
    let mut client = harness.client();
    (client.session_id, client.tree_id) = (0, 0);
    let account = Account { user: user.into(), domain: String::new(), workstation: String::new() };
    let credentials =
        Credentials { account, hash: NtHash::of("pw"), target_name: "cifs/gate".into() };
    let fresh = Fresh { challenge: [1; 8], key: [2; 16], time: 0 };
    let mut initiator = Initiator::new(credentials, fresh);
    let ask = |token: &[u8]| Request { security_mode: 1, token, ..Request::default() }.emit();
    let mut token = initiator.first();
    first(&mut token);
    let told = client.ask(Command::SessionSetup, &ask(&token)).await;
    if told.status() != Status::MORE_PROCESSING_REQUIRED {
        return told.status();
    }
    client.session_id = told.header.session_id;
    let challenge = Response::parse(&told.message).unwrap().token.to_vec();
    let (mut token, _) = initiator.second(&challenge).unwrap();
    second(&mut token);
    client.ask(Command::SessionSetup, &ask(&token)).await.status()
}

/// Each reason for which a logon is refused is shown with the remedy for it.
#[tokio::test]
async fn each_refused_logon_has_its_remedy() {
    let harness = Harness::new();
    let keep: fn(&mut [u8]) = |_| ();
    // LmChallengeResponseFields and NtChallengeResponseFields of AUTHENTICATE_MESSAGE (section 2.2.1.3).
    let no_response: fn(&mut [u8]) = |token| {
        let message = ntlm(token);
        message[12..16].fill(0);
        message[20..24].fill(0);
    };
    let version_1: fn(&mut [u8]) = |token| ntlm(token)[20..24].copy_from_slice(&[24, 0, 24, 0]);
    // NegotiateFlags of NEGOTIATE_MESSAGE (section 2.2.1.1): no NTLMSSP_NEGOTIATE_UNICODE.
    let no_unicode: fn(&mut [u8]) = |token| ntlm(token)[12] &= !1;
    // The mechanism's identifier becomes an unknown one, in the list and in the token.
    let no_mechanism: fn(&mut [u8]) = |token| {
        const NTLM: [u8; 10] = [0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 0x0a];
        let all: Vec<usize> =
            (0..token.len() - NTLM.len()).filter(|at| token[*at..].starts_with(&NTLM)).collect();
        assert!(!all.is_empty());
        all.into_iter().for_each(|at| token[at + 9] = 0x0b);
    };
    for (user, spoil, remedy) in [
        ("", [keep, keep], "log on by a name"),
        ("no-response", [keep, no_response], "give the client the password of the user"),
        ("version-1", [keep, version_1], "NTLM version 2, which needs no domain"),
        ("", [no_unicode, keep], "NTLM version 2, which needs no domain"),
        ("", [no_mechanism, keep], "give the server a keytab"),
        ("unknown-user", [keep, keep], "`headgate user add`"),
    ] {
        let status = log_on_spoiled(&harness, user, spoil).await;
        assert!([Status::LOGON_FAILURE, Status::ACCESS_DENIED].contains(&status), "{status:?}");
        let rows = rdma_transport::refused::list();
        let is_it = |row: &rdma_transport::refused::Row| {
            let one = &row.refused;
            one.rule == "logon" && one.user == user && one.remedy.contains(remedy)
        };
        assert!(rows.iter().any(is_it), "{user}: {remedy}");
    }
}

/// Simulates wrong passwords from many addresses.
fn attack(harness: &Harness, name: &str) {
    let now = harness.core.since_start();
    (0..ACCOUNT_GUESSES_FREE).for_each(|_| harness.core.accounts.lock().unwrap().wrong(name, now));
}

#[tokio::test(start_paused = true)]
async fn an_account_that_many_guess_answers_in_turns_and_who_was_here_before_at_once() {
    let harness = Harness::new();
    let mut client = harness.client();
    attack(&harness, "user");
    for waited in [ACCOUNT_TURN, Duration::ZERO] {
        (client.session_id, client.tree_id) = (0, 0);
        let begun = tokio::time::Instant::now();
        assert_eq!(log_on(&mut client, "user", "pw").await, Status::SUCCESS);
        assert_eq!(begun.elapsed(), waited);
    }
    attack(&harness, "mallory");
    let begun = tokio::time::Instant::now();
    assert_eq!(guess(&mut client).await, Status::LOGON_FAILURE);
    assert_eq!(begun.elapsed(), ACCOUNT_TURN, "who does not exist waits alike");
}

#[tokio::test(start_paused = true)]
async fn who_gets_no_turn_is_refused_with_the_right_password() {
    let harness = Harness::new();
    let mut client = harness.client();
    attack(&harness, "user");
    let (elsewhere, now) = ([192, 0, 2, 77].into(), harness.core.since_start());
    let turn = || harness.core.accounts.lock().unwrap().turn("user", elsewhere, now);
    while turn() != LogonDelay::None {}
    (client.session_id, client.tree_id) = (0, 0);
    let sessions = harness.core.sessions.count();
    assert_eq!(log_on(&mut client, "user", "pw").await, Status::LOGON_FAILURE);
    assert_eq!(harness.core.sessions.count(), sessions);
    let met = rdma_transport::count::limits_met();
    assert!(met.iter().any(|(limit, n)| *limit == accounts::LIMIT && *n > 0));
}

/// Adds idle sessions to those that this address already has.
fn fill(harness: &Harness, at: std::net::IpAddr, count: usize) -> Vec<std::sync::Arc<Session>> {
    let terms = Terms {
        dialect: Dialect::V311,
        client_guid: [9; 16],
        signing: crate::crypto::sign::Algorithm::AesCmac,
        cipher: None,
    };
    let sessions = &harness.core.sessions;
    let one = || {
        let session = sessions.begin(terms).unwrap();
        sessions.admit(&session, at).unwrap();
        session
    };
    (0..count).map(|_| one()).collect()
}

fn address(n: usize) -> std::net::IpAddr {
    std::net::IpAddr::from([192, 0, 2, u8::try_from(n).unwrap()])
}

/// A new address can log on even if others use all sessions of the server, each up to its limit.
#[tokio::test]
async fn a_new_address_finds_a_session() {
    let harness = Harness::new();
    for n in 0..SESSIONS_MAX / SESSIONS_PER_ADDRESS_MAX {
        fill(&harness, address(n), SESSIONS_PER_ADDRESS_MAX);
    }
    let mut client = harness.client();
    let before = harness.core.sessions.count();
    for _ in 0..3 {
        (client.session_id, client.tree_id) = (0, 0);
        assert_eq!(log_on(&mut client, "user", "pw").await, Status::SUCCESS);
        assert_eq!(harness.core.sessions.count(), before, "one ended for it");
    }
    let met = rdma_transport::count::limits_met();
    assert!(met.iter().any(|(limit, n)| *limit == "sessions" && *n >= 3));
}

/// An address at its limit, whose sessions were all just used, is refused; other addresses can log on.
#[tokio::test]
async fn an_address_has_its_part_of_sessions() {
    let harness = Harness::new();
    let mut client = harness.client();
    let own = client.conn.info.peer.ip();
    let sessions = fill(&harness, own, SESSIONS_PER_ADDRESS_MAX);
    let now = harness.core.now();
    sessions.iter().for_each(|s| s.note_used(now + 60_000));
    (client.session_id, client.tree_id) = (0, 0);
    assert_eq!(log_on(&mut client, "user", "pw").await, Status::INSUFFICIENT_RESOURCES);
    assert_eq!(harness.core.sessions.full(address(1)), None);
    let met = rdma_transport::count::limits_met();
    assert!(met.iter().any(|(limit, _)| *limit == "sessions-of-address"));
}

/// A connection at its session limit does not block another one of the same address.
#[tokio::test]
async fn sessions_of_connection_leave_others_theirs() {
    let harness = Harness::new();
    let (mut full, mut other) = (harness.client(), harness.client());
    let room = SESSIONS_PER_CONNECTION_MAX - full.conn.sessions();
    for session in fill(&harness, full.conn.info.peer.ip(), room) {
        let conn = std::sync::Arc::downgrade(&full.conn);
        full.conn.add_channel(Channel { session, conn, signer: None }.into());
    }
    (full.session_id, full.tree_id) = (0, 0);
    let token = &b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..];
    let begins = Request { security_mode: 1, token, ..Request::default() }.emit();
    let refused = full.ask(Command::SessionSetup, &begins).await;
    assert_eq!(refused.status(), Status::INSUFFICIENT_RESOURCES);
    (other.session_id, other.tree_id) = (0, 0);
    assert_eq!(log_on(&mut other, "user", "pw").await, Status::SUCCESS);
}

/// Selects which of two sessions ends: idle or in use, with and without opens, from an address over its limit or not.
#[tokio::test]
async fn sessions_end_in_the_order_of_use() {
    let harness = Harness::new();
    let (a, b) = (harness.client(), harness.client());
    let of = |c: &Client| harness.core.sessions.get(c.session_id).unwrap();
    let (first, second) = (of(&a), of(&b));
    let both = [first.clone(), second.clone()];
    let (recent, idle, now) = (59_000, 1000, 60_000);
    for (opens_of_first, opens_of_second) in [(false, false), (true, false), (true, true)] {
        let mut open = Vec::new();
        if opens_of_first {
            open.push((&a, a.open("f").await));
        }
        if opens_of_second {
            open.push((&b, b.open("f").await));
        }
        for used in [[recent, recent + 1], [idle, recent], [idle, idle + 1], [idle + 1, idle]] {
            first.note_used(used[0]);
            second.note_used(used[1]);
            for has_more in [false, true] {
                let sessions = [(0, used[0], opens_of_first), (1, used[1], opens_of_second)];
                let may = |s: &&(usize, u64, bool)| has_more || !s.2 && s.1 <= idle + 1;
                let mut able: Vec<_> = sessions.iter().filter(may).collect();
                able.sort_by_key(|s| (s.2, s.1));
                let expected = able.first().map(|s| both[s.0].id);
                let ends =
                    super::super::session_setup::giving_way(&harness.core, &both, has_more, now);
                assert_eq!(ends.map(|s| s.id), expected, "{sessions:?} {has_more}");
            }
        }
        for (client, file) in open {
            assert_eq!(client.close(file).await, Status::SUCCESS);
        }
    }
}

#[tokio::test]
async fn session_with_waiting_request_is_spared() {
    let harness = Harness::new();
    let (a, b) = (harness.client(), harness.client());
    let of = |c: &Client| harness.core.sessions.get(c.session_id).unwrap();
    let both = [of(&a), of(&b)];
    both[0].note_used(0);
    both[1].note_used(1);
    let wait = a.conn.begin_wait(7, a.session_id, false);
    let ends = |has_more| {
        let found = super::super::session_setup::giving_way(&harness.core, &both, has_more, 60_000);
        found.map(|s| s.id)
    };
    assert_eq!((ends(false), ends(true)), (Some(b.session_id), Some(b.session_id)));
    a.conn.end_wait(&wait);
    assert_eq!((ends(false), ends(true)), (Some(a.session_id), Some(a.session_id)));
}

/// A client with all trees of its address is refused more trees, and can connect again after a disconnect.
#[tokio::test]
async fn an_address_has_its_part_of_trees() {
    let harness = Harness::new();
    // Dialect 3.1.1 requires a signed TREE_CONNECT.
    let client = harness.client_by(0, Dialect::V302, Transport::Tcp);
    let trees = &harness.core.trees_by_address;
    let path = crate::wire::tree_connect::Request { flags: 0, path: r"\\h\IPC$".into() }.emit();
    let connect = async || client.ask(Command::TreeConnect, &path).await;
    let first = connect().await;
    assert_eq!(first.status(), Status::SUCCESS);
    let mut others = trees.of(client.conn.info.peer);
    others.set(TREES_PER_ADDRESS_MAX - 2).unwrap();
    assert_eq!(connect().await.status(), Status::INSUFFICIENT_RESOURCES);
    assert!(trees.of((address(1), 445).into()).set(1).is_ok(), "another address");
    let mut header = client.header(Command::TreeDisconnect, 1);
    header.tree_or_async = first.header.tree_or_async;
    assert_eq!(client.send(&header, &simple::BODY).await.status(), Status::SUCCESS);
    assert_eq!(connect().await.status(), Status::SUCCESS);
    assert_eq!(client.ask(Command::Logoff, &simple::BODY).await.status(), Status::SUCCESS);
    assert_eq!(trees.of(client.conn.info.peer).room(10), 2, "all are given back");
}

/// A session at its tree limit does not block another one of the same address.
#[tokio::test]
async fn trees_of_session_leave_others_theirs() {
    let harness = Harness::new();
    // Dialect 3.1.1 requires a signed TREE_CONNECT.
    let client = || harness.client_by(0, Dialect::V302, Transport::Tcp);
    let (full, other) = (client(), client());
    let path = crate::wire::tree_connect::Request { flags: 0, path: r"\\h\IPC$".into() }.emit();
    let mut connected = 0;
    let refused = loop {
        match full.ask(Command::TreeConnect, &path).await.status() {
            Status::SUCCESS => connected += 1,
            status => break status,
        }
    };
    assert_eq!(refused, Status::INSUFFICIENT_RESOURCES);
    // The harness connected the first tree.
    assert!((TREES_MAX - 1..=TREES_MAX).contains(&connected), "{connected}");
    assert_eq!(other.ask(Command::TreeConnect, &path).await.status(), Status::SUCCESS);
}
