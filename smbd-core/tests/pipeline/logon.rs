//! Sessions: how they begin, re-authenticate, use further connections, and end.

use std::sync::Arc;

use smb_proto::smb2::negotiate::Dialect;
use smb_proto::smb2::session_setup::{self, BINDING};
use smb_proto::smb2::{Command, simple, tree_connect};
use smbd_core::settings::Encryption;
use smbd_core::status::Status;
use vfs::Cred;

use crate::peer::{Offer, Peer, Two, answers, create, file, server, server_of};

const LAST: Newest = Newest;
/// Offers the newest of everything.
struct Newest;

impl Newest {
    fn get(&self) -> Offer {
        Offer::default()
    }
}

#[tokio::test]
async fn every_dialect_and_signature_logs_on() {
    let server = server(|_| {});
    for dialect in Dialect::ALL {
        let mut peer = Peer::ready(&server, &Offer::of(dialect)).await;
        assert_eq!(peer.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
        assert_eq!(peer.ask(Command::Logoff, &simple::BODY).await.status(), Status::SUCCESS);
    }
    for signing in [vec![0], vec![1], vec![2], vec![0, 1], vec![]] {
        let offer = Offer { signing: signing.clone(), ..Offer::default() };
        let mut peer = Peer::ready(&server, &offer).await;
        let expected = signing.iter().max().copied().unwrap_or(1);
        assert_eq!(peer.signing as u16, expected);
        assert_eq!(peer.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
    }
    for cipher in 1..=4 {
        let offer = Offer { ciphers: vec![cipher], ..Offer::default() };
        let mut peer = Peer::ready(&server, &offer).await;
        assert_eq!(peer.ask_sealed(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
    }
}

#[tokio::test]
async fn a_wrong_password_tells_nothing_more() {
    let server = server(|_| {});
    for (user, password) in [("alice", "PW"), ("nobody", "pw"), ("alice", "")] {
        let mut peer = Peer::connect(&server);
        peer.negotiate(&LAST.get()).await;
        assert_eq!(peer.log_on(user, password).await, Status::LOGON_FAILURE);
        assert_eq!(server.core().sessions.count(), 0, "nothing is left of it");
    }
}

/// Guests and squashed NFS users have uid 65534: a user with this uid would share files with them. The right password does not make
/// the user a guest either.
#[tokio::test]
async fn user_with_the_uid_of_guests_is_refused() {
    for guest in [false, true] {
        let users = Arc::new(Two(Cred::root().into()));
        let server = server_of(users.clone(), |settings| {
            settings.shares.entry("data".into()).or_default().guest = guest;
        });
        for (uid, wanted) in [(65534, Status::LOGON_FAILURE), (65533, Status::SUCCESS)] {
            *users.0.lock().unwrap() =
                Cred { uid, gid: 65534, groups: Arc::new([]), token: vfs::Token::NONE };
            let mut peer = Peer::connect(&server);
            peer.negotiate(&LAST.get()).await;
            assert_eq!(peer.log_on("alice", "pw").await, wanted, "{uid}, guests: {guest}");
            let mut peer = Peer::connect(&server);
            peer.negotiate(&LAST.get()).await;
            assert_eq!(peer.log_on("alice", "wrong").await, Status::LOGON_FAILURE);
        }
    }
    let seen = rdma_transport::refused::list();
    let row = seen.iter().map(|row| &row.refused);
    let mut row = row.filter(|r| r.user == "alice" && r.remedy.contains("--uid NUMBER"));
    assert!(row.any(|r| r.rule == "logon"), "{seen:?}");
}

/// MS-SMB2 section 3.3.1.2: the server decides how many credits a request gets.
#[tokio::test]
async fn who_has_not_logged_on_keeps_a_window_of_one() {
    let server = server(|_| {});
    let mut peer = Peer::connect(&server);
    peer.negotiate(&LAST.get()).await;
    let token = &b"NTLMSSP\0"[..];
    let body = session_setup::Request { token, ..session_setup::Request::default() }.emit();
    assert_eq!(peer.ask(Command::SessionSetup, &body).await.header.credits, 1);
    // The NEGOTIATE granted no more either.
    let mut header = peer.header(Command::SessionSetup);
    header.message_id += 1;
    assert_eq!(peer.raw(&[&header.emit()[..], &body].concat()).await, None);
    let mut peer = Peer::ready(&server, &LAST.get()).await;
    assert_eq!(peer.ask(Command::Echo, &simple::BODY).await.header.credits, 32);
}

#[tokio::test]
async fn tokens_of_any_kind_are_refused() {
    let server = server(|_| {});
    for token in [&b""[..], b"NTLMSSP\0", &[0x60; 40], &[0xff; 4000]] {
        let mut peer = Peer::connect(&server);
        peer.negotiate(&LAST.get()).await;
        let body = session_setup::Request { token, ..session_setup::Request::default() }.emit();
        let answer = peer.ask(Command::SessionSetup, &body).await;
        assert!(answer.status().is_error());
        assert_eq!(server.core().sessions.count(), 0);
    }
}

#[tokio::test]
async fn a_session_ends_with_its_last_connection_and_by_logoff() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &LAST.get()).await;
    file(&peer.ask(Command::Create, &create("a", 0)).await);
    assert_eq!((server.core().sessions.count(), server.core().opens.count()), (1, 1));
    peer.connection.end().await;
    assert_eq!((server.core().sessions.count(), server.core().opens.count()), (0, 0));

    let mut peer = Peer::ready(&server, &LAST.get()).await;
    file(&peer.ask(Command::Create, &create("a", 0)).await);
    assert_eq!(peer.ask(Command::Logoff, &simple::BODY).await.status(), Status::SUCCESS);
    assert_eq!((server.core().sessions.count(), server.core().opens.count()), (0, 0));
    let message = peer.message(Command::Logoff, &simple::BODY);
    let again = peer.raw(&message).await.unwrap();
    assert_eq!(answers(&again)[0].status(), Status::USER_SESSION_DELETED);
}

#[tokio::test]
async fn a_tree_ends_with_what_is_open_in_it() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &LAST.get()).await;
    file(&peer.ask(Command::Create, &create("a", 0)).await);
    let first = peer.tree;
    assert_eq!(peer.connect_tree("DATA").await, Status::SUCCESS, "whatever the case");
    assert_ne!(peer.tree, first);
    peer.tree = first;
    assert_eq!(peer.ask(Command::TreeDisconnect, &simple::BODY).await.status(), Status::SUCCESS);
    assert_eq!(server.core().opens.count(), 0);
    let gone = peer.ask(Command::TreeDisconnect, &simple::BODY).await;
    assert_eq!(gone.status(), Status::NETWORK_NAME_DELETED);
    for (name, status) in [
        ("nothing", Status::BAD_NETWORK_NAME),
        ("", Status::BAD_NETWORK_NAME),
        ("data\\", Status::BAD_NETWORK_NAME),
        ("data\\x", Status::BAD_NETWORK_NAME),
        ("data/x", Status::BAD_NETWORK_NAME),
        ("ipc$", Status::SUCCESS),
    ] {
        assert_eq!(peer.connect_tree(name).await, status, "{name}");
    }
    for path in ["", "data", r"\\", r"\h\data", "//h/data", r"\\h", r"\\\data", r"\\h\\data"] {
        let body = tree_connect::Request { flags: 0, path: path.into() }.emit();
        let answer = peer.ask(Command::TreeConnect, &body).await;
        assert_eq!(answer.status(), Status::BAD_NETWORK_NAME, "{path}");
    }
}

#[tokio::test]
async fn who_was_cut_off_ends_its_own_former_session() {
    let server = server(|_| {});
    let mut old = Peer::ready(&server, &LAST.get()).await;
    file(&old.ask(Command::Create, &create("a", 0)).await);
    // Another user names the session, without effect.
    let mut bob = Peer::connect(&server);
    bob.negotiate(&LAST.get()).await;
    assert_eq!(bob.set_up("bob", "pw", 0, old.session).await, Status::SUCCESS);
    assert_eq!(old.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
    assert_eq!(server.core().opens.count(), 1);
    let mut new = Peer::connect(&server);
    new.negotiate(&LAST.get()).await;
    assert_eq!(new.set_up("alice", "pw", 0, old.session).await, Status::SUCCESS);
    assert_eq!(server.core().opens.count(), 0);
    let message = old.message(Command::TreeDisconnect, &simple::BODY);
    let bytes = old.raw(&message).await.unwrap();
    assert_eq!(answers(&bytes)[0].status(), Status::USER_SESSION_DELETED);
}

#[tokio::test]
async fn a_user_shows_again_who_it_is() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &LAST.get()).await;
    let id = file(&peer.ask(Command::Create, &create("a", 0)).await);
    let session = peer.session;
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);
    assert_eq!(peer.session, session);
    let close = smb_proto::smb2::close::Request { flags: 0, file: id }.emit();
    assert_eq!(peer.ask(Command::Close, &close).await.status(), Status::SUCCESS, "all is there");
    assert_eq!(peer.log_on("alice", "wrong").await, Status::LOGON_FAILURE);
    assert_eq!(server.core().sessions.count(), 0, "who cannot loses it");
}

/// A new ticket may name other groups, and a tree acts as the user that connected it.
#[tokio::test]
async fn a_tree_ends_that_a_new_logon_would_not_be_granted_as_it_is() {
    let users = Arc::new(Two(Cred::root().into()));
    let server = server_of(users.clone(), |_| {});
    let mut peer = Peer::ready(&server, &LAST.get()).await;
    file(&peer.ask(Command::Create, &create("a", 0)).await);
    *users.0.lock().unwrap() = Cred { groups: Arc::new([7]), ..Cred::root() };
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);
    assert_eq!(server.core().opens.count(), 0, "what was open in it");
    let gone = peer.ask(Command::Create, &create("b", 0)).await;
    assert_eq!(gone.status(), Status::NETWORK_NAME_DELETED);
    assert_eq!(peer.connect_tree("data").await, Status::SUCCESS);
    file(&peer.ask(Command::Create, &create("b", 0)).await);
    // A logon with the same identity loses no state.
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);
    assert_eq!(server.core().opens.count(), 1);
}

/// MS-SMB2 section 3.3.5.5.3: the keys of a session belong to its first user, and so does the session.
#[tokio::test]
async fn a_session_is_not_taken_over_by_the_logon_of_another_user() {
    let server = server(|s| s.shares.entry("data".into()).or_default().guest = true);
    let mut peer = Peer::ready(&server, &LAST.get()).await;
    let id = file(&peer.ask(Command::Create, &create("a", 0)).await);
    for (user, password) in [("bob", "pw"), ("", "")] {
        let session = peer.session;
        let secrets = peer.secrets.clone();
        assert_eq!(peer.log_on(user, password).await, Status::ACCESS_DENIED, "{user:?}");
        (peer.session, peer.secrets) = (session, secrets);
        let owner = server.core().sessions.get(session).and_then(|s| s.user());
        assert_eq!(owner.map(|u| u.name.clone()).as_deref(), Some("alice"));
    }
    let close = smb_proto::smb2::close::Request { flags: 0, file: id }.emit();
    assert_eq!(
        peer.ask(Command::Close, &close).await.status(),
        Status::SUCCESS,
        "with its first keys"
    );
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);
}

#[tokio::test]
async fn a_session_uses_a_further_connection() {
    let server = server(|_| {});
    for dialect in [Dialect::V300, Dialect::V302, Dialect::V311] {
        let offer = Offer::of(dialect);
        let mut first = Peer::ready(&server, &offer).await;
        let mut second = Peer::connect(&server);
        second.negotiate(&offer).await;
        (second.session, second.tree) = (first.session, first.tree);
        second.secrets = first.secrets.clone();
        assert_eq!(second.set_up("alice", "pw", BINDING, 0).await, Status::SUCCESS);
        let id = file(&second.ask(Command::Create, &create("b", 0)).await);
        // The file belongs to the session, can be used over each of its connections, and outlives the connection that opened it.
        second.connection.end().await;
        let close = smb_proto::smb2::close::Request { flags: 0, file: id }.emit();
        assert_eq!(first.ask(Command::Close, &close).await.status(), Status::SUCCESS);
        assert_eq!(first.ask(Command::Logoff, &simple::BODY).await.status(), Status::SUCCESS);
    }
}

#[tokio::test]
async fn a_session_is_not_bound_by_others_or_otherwise() {
    let server = server(|_| {});
    let mut first = Peer::ready(&server, &LAST.get()).await;
    let bind = async |offer: Offer, user: &str, change: fn(&mut Peer)| {
        let mut peer = Peer::connect(&server);
        peer.negotiate(&offer).await;
        (peer.session, peer.secrets) = (first.session, first.secrets.clone());
        change(&mut peer);
        peer.set_up(user, "pw", BINDING, 0).await
    };
    let last = || LAST.get();
    assert_eq!(bind(last(), "bob", |_| {}).await, Status::ACCESS_DENIED, "another user");
    assert_eq!(bind(last(), "alice", |p| p.session ^= 1).await, Status::USER_SESSION_DELETED);
    assert_eq!(bind(last(), "alice", |p| p.secrets = None).await, Status::INVALID_PARAMETER);
    let cmac = Offer { signing: vec![1], ..last() };
    assert_eq!(bind(cmac, "alice", |_| {}).await, Status::REQUEST_OUT_OF_SEQUENCE);
    let ccm = Offer { ciphers: vec![1], ..last() };
    assert_eq!(bind(ccm, "alice", |_| {}).await, Status::INVALID_PARAMETER, "another cipher");
    let older = Offer::of(Dialect::V210);
    assert_eq!(bind(older, "alice", |_| {}).await, Status::REQUEST_OUT_OF_SEQUENCE);
    assert_eq!(first.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);

    // The session already uses this connection.
    let bytes = first.message(
        Command::SessionSetup,
        &session_setup::Request { flags: BINDING, ..session_setup::Request::default() }.emit(),
    );
    let bytes = first.raw(&bytes).await.unwrap();
    assert_eq!(answers(&bytes)[0].status(), Status::REQUEST_NOT_ACCEPTED);
}

/// A client binds as many connections to its session as it can; other clients log on meanwhile.
#[tokio::test]
async fn channels_of_session_leave_others_theirs() {
    let server = server(|_| {});
    let first = Peer::ready(&server, &LAST.get()).await;
    let mut bound = Vec::new();
    let refused = loop {
        let mut peer = Peer::connect(&server);
        peer.negotiate(&LAST.get()).await;
        (peer.session, peer.secrets) = (first.session, first.secrets.clone());
        match peer.set_up("alice", "pw", BINDING, 0).await {
            Status::SUCCESS => bound.push(peer),
            status => break status,
        }
    };
    assert_eq!(refused, Status::INSUFFICIENT_RESOURCES);
    assert_eq!(bound.len() + 1, smbd_core::limits::CHANNELS_MAX);
    let other = Peer::ready(&server, &LAST.get()).await;
    assert_ne!(other.session, first.session);
}

#[tokio::test]
async fn a_logon_that_changes_its_mind_leaves_nothing_behind() {
    let server = server(|_| {});
    let mut peer = Peer::connect(&server);
    peer.negotiate(&LAST.get()).await;
    // The first round of a logon, with the client's own first token.
    let token = smb_auth::Initiator::new(
        smb_auth::ntlm::Credentials {
            account: smb_auth::Account {
                user: "alice".into(),
                domain: String::new(),
                workstation: String::new(),
            },
            hash: smb_auth::NtHash::of("pw"),
            target_name: String::new(),
        },
        smb_auth::Fresh { challenge: [1; 8], key: [2; 16], time: 1 << 56 },
    )
    .first();
    let body = |flags| session_setup::Request { flags, token: &token, ..Default::default() }.emit();
    let first = peer.ask(Command::SessionSetup, &body(0)).await;
    assert_eq!(first.status(), Status::MORE_PROCESSING_REQUIRED);
    peer.session = first.header.session_id;
    let other = peer.ask(Command::SessionSetup, &body(BINDING)).await;
    assert_eq!(other.status(), Status::REQUEST_NOT_ACCEPTED);
    assert_eq!(server.core().sessions.count(), 1);
    peer.connection.end().await;
    assert_eq!(server.core().sessions.count(), 0);
}

/// MS-SMB2 section 3.3.5.2.4: a signed request must name its session.
#[tokio::test]
async fn a_signed_logon_names_the_session_that_it_is_signed_for() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &LAST.get()).await;
    let session = std::mem::take(&mut peer.session);
    let token = &b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..];
    let body = session_setup::Request { token, ..session_setup::Request::default() }.emit();
    let message = peer.message(Command::SessionSetup, &body);
    let bytes = peer.raw(&message).await.unwrap();
    assert_eq!(answers(&bytes)[0].status(), Status::USER_SESSION_DELETED);
    assert_eq!(server.core().sessions.count(), 1);
    peer.session = session;
    assert_eq!(peer.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
}

/// MS-SMB2 section 3.3.5.5.3: one client, one dialect; another user and another client are not affected.
#[tokio::test]
async fn a_client_does_not_log_on_by_two_dialects() {
    let server = server(|_| {});
    let mut first = Peer::ready(&server, &LAST.get()).await;
    let log_on = async |offer: &Offer, user: &str| {
        let mut peer = Peer::connect(&server);
        peer.negotiate(offer).await;
        let status = peer.log_on(user, "pw").await;
        peer.connection.end().await;
        status
    };
    for dialect in [Dialect::V202, Dialect::V210, Dialect::V300, Dialect::V302] {
        let offer = Offer { guid: LAST.get().guid, ..Offer::of(dialect) };
        assert_eq!(log_on(&offer, "alice").await, Status::USER_SESSION_DELETED);
        assert_eq!(log_on(&offer, "bob").await, Status::SUCCESS, "another user");
        let other = Offer { guid: [8; 16], ..offer };
        assert_eq!(log_on(&other, "alice").await, Status::SUCCESS, "another client");
    }
    assert_eq!(log_on(&LAST.get(), "alice").await, Status::SUCCESS);
    assert_eq!(first.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
    first.connection.end().await;
    let other = Offer { guid: LAST.get().guid, ..Offer::of(Dialect::V300) };
    assert_eq!(log_on(&other, "alice").await, Status::SUCCESS);
}

/// A client that does not finish its logons occupies at most four places, and other clients need not wait.
#[tokio::test]
async fn unfinished_logons_give_way_to_newer_ones() {
    let server = server(|_| {});
    let mut peer = Peer::connect(&server);
    peer.negotiate(&LAST.get()).await;
    let token = &b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..];
    let body = session_setup::Request { token, ..session_setup::Request::default() }.emit();
    let mut begun = Vec::new();
    for _ in 0..40 {
        peer.session = 0;
        let first = peer.ask(Command::SessionSetup, &body).await;
        assert_eq!(first.status(), Status::MORE_PROCESSING_REQUIRED);
        begun.push(first.header.session_id);
        assert!(server.core().sessions.count() <= 4);
        assert_eq!(server.core().logons.count(), server.core().sessions.count());
    }
    let met = rdma_transport::count::limits_met();
    assert!(
        met.iter().any(|(l, n)| *l == "unfinished-logons-of-connection" && *n >= 36),
        "{met:?}"
    );
    // The oldest are evicted, the newest are not.
    peer.session = begun[0];
    let answer = peer.ask(Command::SessionSetup, &body).await;
    assert_eq!(answer.status(), Status::USER_SESSION_DELETED);
    assert!(begun[36..].iter().all(|id| server.core().sessions.get(*id).is_some()));
    peer.session = 0;
    assert_eq!(peer.log_on("alice", "pw").await, Status::SUCCESS);
    peer.connection.end().await;
    assert_eq!((server.core().sessions.count(), server.core().logons.count()), (0, 0));
}

/// Connections of one address reach its limit: a user at another address logs on, and so does one at the same address.
#[tokio::test]
async fn a_crowd_of_unfinished_logons_keeps_nobody_out() {
    let server = server(|_| {});
    let token = &b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..];
    let body = session_setup::Request { token, ..session_setup::Request::default() }.emit();
    let mut crowd = Vec::new();
    for _ in 0..100 {
        let mut peer = Peer::connect(&server);
        peer.negotiate(&LAST.get()).await;
        for _ in 0..4 {
            peer.session = 0;
            let first = peer.ask(Command::SessionSetup, &body).await;
            assert_eq!(first.status(), Status::MORE_PROCESSING_REQUIRED);
        }
        crowd.push(peer);
    }
    let most = smbd_core::limits::LOGONS_PER_ADDRESS_MAX;
    assert_eq!((server.core().logons.count(), server.core().sessions.count()), (most, most));
    let mut peer = Peer::ready(&server, &LAST.get()).await;
    assert_eq!(peer.ask(Command::Echo, &simple::BODY).await.status(), Status::SUCCESS);
}

#[tokio::test]
async fn a_stranger_with_a_key_of_its_own_binds_nothing() {
    let server = server(|_| {});
    let first = Peer::ready(&server, &LAST.get()).await;
    let stranger = Peer::ready(&server, &LAST.get()).await;
    let mut peer = Peer::connect(&server);
    peer.negotiate(&LAST.get()).await;
    (peer.session, peer.secrets) = (first.session, stranger.secrets.clone());
    let body = session_setup::Request { flags: BINDING, token: b"x", ..Default::default() }.emit();
    let message = peer.message(Command::SessionSetup, &body);
    let bytes = peer.raw(&message).await.unwrap();
    assert_eq!(answers(&bytes)[0].status(), Status::ACCESS_DENIED);
}

#[tokio::test]
async fn guests_come_where_a_share_is_for_them() {
    let closed = server(|_| {});
    let mut peer = Peer::connect(&closed);
    peer.negotiate(&LAST.get()).await;
    assert_eq!(peer.log_on("", "").await, Status::ACCESS_DENIED);
    let open = server(|s| s.shares.entry("data".into()).or_default().guest = true);
    let mut peer = Peer::connect(&open);
    peer.negotiate(&LAST.get()).await;
    let body = |token: &[u8]| session_setup::Request { token, ..Default::default() }.emit();
    let initiator = || {
        use smb_auth::ntlm::Credentials;
        use smb_auth::{Account, Fresh, Initiator, NtHash};
        let account =
            Account { user: "stranger".into(), domain: "".into(), workstation: "".into() };
        let credentials =
            Credentials { account, hash: NtHash::of("any"), target_name: "cifs/here".into() };
        Initiator::new(credentials, Fresh { challenge: [1; 8], key: [2; 16], time: 1 << 56 })
    };
    let mut initiator = initiator();
    let first = peer.ask(Command::SessionSetup, &body(&initiator.first())).await;
    peer.session = first.header.session_id;
    let told = session_setup::Response::parse(&first.bytes).unwrap();
    let (token, _) = initiator.second(told.token).unwrap();
    let last = peer.ask(Command::SessionSetup, &body(&token)).await;
    assert_eq!(last.status(), Status::SUCCESS);
    let told = session_setup::Response::parse(&last.bytes).unwrap();
    assert_eq!(told.flags, session_setup::IS_GUEST);
    assert_eq!(peer.connect_tree("data").await, Status::SUCCESS);
    assert_eq!(peer.connect_tree("secret").await, Status::ACCESS_DENIED);
}

/// MS-SMB2 section 3.2.5.3.1: a client never signs in an anonymous session, whatever client and server require otherwise.
#[tokio::test]
async fn a_session_without_a_name_is_not_signed() {
    let open = server(|s| s.shares.entry("data".into()).or_default().guest = true);
    for dialect in Dialect::ALL {
        let mut peer = Peer::connect(&open);
        peer.negotiate(&Offer::of(dialect)).await;
        assert_eq!(peer.log_on("", "").await, Status::SUCCESS);
        peer.secrets = None;
        assert_eq!(peer.connect_tree("data").await, Status::SUCCESS);
        let answer = peer.ask(Command::Logoff, &simple::BODY).await;
        assert_eq!(answer.status(), Status::SUCCESS);
        assert_eq!(answer.header.signature, [0; 16]);
    }
}

/// The key of an anonymous session is public (MS-NLMP section 3.2.5.1.2): every client can decrypt its messages.
#[tokio::test]
async fn a_session_without_a_name_does_not_pass_for_an_encrypted_one() {
    let all = server(|s| {
        s.shares.entry("data".into()).or_default().guest = true;
        s.encryption = Encryption::Required;
    });
    let mut peer = Peer::connect(&all);
    peer.negotiate(&LAST.get()).await;
    assert_eq!(peer.log_on("", "").await, Status::ACCESS_DENIED);
    assert_eq!(all.core().sessions.count(), 0);
    let one = server(|s| {
        let data = s.shares.entry("data".into()).or_default();
        (data.guest, data.encrypt) = (true, true);
    });
    let mut peer = Peer::connect(&one);
    peer.negotiate(&LAST.get()).await;
    assert_eq!(peer.log_on("", "").await, Status::SUCCESS);
    assert_eq!(peer.connect_tree("data").await, Status::ACCESS_DENIED);
}

/// MS-SMB2 section 3.3.5.5.2: every client that knows the key of such a session could join it.
#[tokio::test]
async fn a_session_without_a_name_is_not_bound_by_a_further_connection() {
    let open = server(|s| s.shares.entry("data".into()).or_default().guest = true);
    let mut first = Peer::connect(&open);
    first.negotiate(&LAST.get()).await;
    assert_eq!(first.log_on("", "").await, Status::SUCCESS);
    let mut second = Peer::connect(&open);
    second.negotiate(&LAST.get()).await;
    (second.session, second.secrets) = (first.session, first.secrets.clone());
    assert_eq!(second.set_up("", "", BINDING, 0).await, Status::NOT_SUPPORTED);
}

#[tokio::test(start_paused = true)]
async fn guesses_are_slowed() {
    let server = server(|_| {});
    let mut peer = Peer::connect(&server);
    peer.negotiate(&LAST.get()).await;
    let mut slow = 0;
    for _ in 0..12 {
        let before = tokio::time::Instant::now();
        assert_eq!(peer.log_on("alice", "guess").await, Status::LOGON_FAILURE);
        peer.session = 0;
        slow += usize::from(before.elapsed() >= std::time::Duration::from_millis(500));
    }
    assert!((1..=3).contains(&slow), "{slow}");
}
